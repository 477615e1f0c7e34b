"""A config that only Ropewalk reads: other programs stop at it, where they would load the base model.

A rope type that nobody has stops what builds a rotary module from the config (transformers, vLLM, SGLang). An
architecture that nobody has stops converters that read no more than that. Both are the sentence that they print.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ropewalk.files import holds, read_bytes, read_json
from ropewalk.folders import write_whole

SENTENCE = "this folder has an extension in ropewalk.json: load it with ropewalk.load"
ROPE_TYPE = "ropewalk"  # of a config with a plan for a plugin: unknown to whoever lacks the plugin, who stops
FILE, SIDECAR = "config.json", "ropewalk.json"
ADAPTER, KIND = "adapter_config.json", "peft_type"  # an adapter's config by peft, and what peft reads of it first
TYPE, ARCHITECTURES, KEPT = "rope_type", "architectures", "ropewalk_"  # KEPT begins the names of what was replaced


def close(place: Path) -> None:
    """Put the sentence into the config of a folder that has a sidecar: of its model, or of its adapter."""
    file = place / (ADAPTER if is_adapter(place) else FILE)
    config = read_json(read_bytes(file, "config", "what transformers or peft wrote"), str(file))
    for values, name in [(config, KIND)] if file.name == ADAPTER else _places(config):
        if KEPT + name not in values:
            values[KEPT + name] = values.get(name)
        values[name] = [SENTENCE] if name == ARCHITECTURES else SENTENCE
    write_whole(file, json.dumps(config, indent=2, sort_keys=True) + "\n")


def is_adapter(place: Path) -> bool:
    """Whether a folder has an adapter and no model."""
    return holds((place / ADAPTER).is_file) and not holds((place / FILE).is_file)


def is_closed(model: str | Path) -> bool:
    """Whether a folder's config was closed."""
    files = [Path(model) / name for name in (SIDECAR, FILE)]
    if not all(holds(file.is_file) for file in files):
        return False
    return SENTENCE.encode() in read_bytes(files[1], "config", "readable")


def reopen(config: dict[str, Any]) -> dict[str, Any]:
    """The values of a config as they were before it was closed."""
    for values, name in _places(config):
        if KEPT + name in values:
            values[name] = values.pop(KEPT + name)
    return config


@contextmanager
def without_warning() -> Iterator[None]:
    """transformers warns of a rope type that it does not know, also where only the tokenizer is read."""
    logger = logging.getLogger("transformers.modeling_rope_utils")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


def _places(config: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    """Where the sentence stands: the architectures, and the type of every set of rotary parameters."""
    yield config, ARCHITECTURES
    for parameters in _rotary(config):
        yield parameters, TYPE


def _rotary(values: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The sets of rotary parameters: of the model, of layer types, of parts of the model."""
    if TYPE in values:
        yield values
    for inner in list(values.values()):
        inner = inner if isinstance(inner, dict) else getattr(inner, "__dict__", None)
        if isinstance(inner, dict):
            yield from _rotary(inner)
