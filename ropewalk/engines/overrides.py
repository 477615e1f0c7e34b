"""The keys of a config that an extension changes, as an option of an engine that serves the model's own weights.

    vllm serve MODEL --hf-overrides '{"text_config": {"rope_parameters": {...}}}' --max-model-len 1048576

Source: ModelConfig._apply_dict_overrides of vLLM 0.32.0 and get_config of SGLang 0.5.23. Both merge the rope parameters
of a language model that is part of a larger one with those that it has.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from ropewalk.engines.rules.statement import language_model_key
from ropewalk.engines.targets import ENGINES
from ropewalk.hf.probe.facts import EXPORTED

STARTS = {"vllm": "vllm serve {model}", "sglang": "python -m sglang.launch_server --model-path {model}"}
OF_A_FOLDER = ("architectures", "dtype", "transformers_version", "_name_or_path")  # not the extension's doing
Changes = dict[str, Any]


def changes_between(before: Any, after: Any, written: Mapping[str, Any]) -> Changes:
    """The keys that differ, those of the language model under its own key where it is part of a larger one.

    `written` are keys of the language model that only the engine reads.
    """
    key, one, two = language_model_key(before), before.to_dict(), after.to_dict()
    changes: Changes = {name: value for name, value in two.items() if name != key and one.get(name) != value}
    if key:
        changes[key] = {name: value for name, value in two[key].items() if one[key].get(name) != value}
    (changes[key] if key else changes).update(written)
    parts = (changes, changes.get(key, {}))
    for part in parts:
        for name in OF_A_FOLDER:
            part.pop(name, None)
    return changes


def why_no_option(before: Any, changes: Changes) -> str:
    """Why no option says the changes; empty where one does."""
    if "model_type" in changes:
        return "this export writes a config of another type of model"
    after = changes.get(language_model_key(before), changes).get("rope_parameters")
    now = before.get_text_config().rope_parameters or {}
    stays = sorted(now.keys() - after.keys()) if after else []
    return f"the engine would keep {stays[0]} of the model's own schedule" if stays else ""


def serving_command(model: str, target: str, changes: Changes, length: int) -> str:
    """The command that serves a model of this name or folder with the changes."""
    start = STARTS[target].format(model=shlex.quote(model))
    return f"{start} {ENGINES[target].flags(without_note(changes), length)}"


def without_note(changes: Changes) -> Changes:
    """The changes without what an export notes for people."""
    part = {name: without_note(value) if isinstance(value, dict) else value for name, value in changes.items()}
    return {name: value for name, value in part.items() if name != EXPORTED}
