"""Export without the weights, which nobody copies for a few numbers: a command, or a config.json alone.

The model is made narrow from its config (hf/use/stand_in.py), so that 140 GB of weights are not read either.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ropewalk.engines.export import ANSWERS, EngineConfig, Exported, plan_export, settle
from ropewalk.engines.overrides import STARTS, Changes, changes_between, serving_command, why_no_option, without_note
from ropewalk.engines.rules.statement import EngineReading, drafting_key, notes_on_lengths
from ropewalk.engines.vllm.plans import Plans, complete, config_with, methods_of, notes_on_methods
from ropewalk.errors import DoesNotFit
from ropewalk.extension.extension import Extension
from ropewalk.extension.outside import write_files
from ropewalk.folders import make_folder
from ropewalk.hf.attach.extend import extend
from ropewalk.hf.attach.handle import Handle
from ropewalk.hf.checkpoint.fetch import fetch_config
from ropewalk.hf.load_options import UNSTATED, LoadOptions
from ropewalk.hf.use.save import FAILURES
from ropewalk.hf.use.stand_in import stand_in

TARGETS = (*STARTS, "transformers")
LEAVE_OUT, WITH_FOLDER = "leave out --config-only", "pass a folder for the config (-o FOLDER)"


def export_config(
    model: str,
    extension: Extension,
    directory: Path | None = None,
    *,
    target: str,
    target_len: int | None = None,
    plugin: bool | None = None,
    request_factors: Sequence[float] = (),
    options: LoadOptions = UNSTATED,
) -> Exported:
    """The command that serves a model's own weights under an extension; with a folder, a config.json for it too.

    Args:
        model: a folder, or a name on the hub; only its config is read.
        extension: what is to be in force.
        directory: a new folder for the config; without it the command has what changes.
        target: vllm, sglang or transformers.
        target_len: in tokens.
        plugin: of vLLM, as in `rw.export`.
        request_factors: of vLLM, as in `rw.export`.
        options: how the config is read.
    """
    if target not in TARGETS:
        sentence = f"{target} reads more than a config, so a config alone is for {', '.join(TARGETS)}"
        raise DoesNotFit.because("config_only", sentence, remedy=LEAVE_OUT)
    config = fetch_config(model, options)
    host = stand_in(config)
    asked: dict[str, Any] = {
        "target": target,
        "target_len": target_len,
        "plugin": plugin,
        "request_factors": request_factors,
    }
    plan, handle = _plan(host, config, extension, options, asked)
    stated, length = _stated(plan, host)
    reading = plan.reading if isinstance(plan, EngineConfig) else EngineReading(lowered=False)
    changes = changes_between(config, stated, reading.written)
    command = _command(model, config, target, plan, changes, length, directory)
    if directory is not None:
        with make_folder(directory, FAILURES) as place:
            stated.save_pretrained(place)
            settle(reading, place)
            if not isinstance(plan, EngineConfig):
                write_files(methods_of(plan), place)
    kind = plan.kind if isinstance(plan, EngineConfig) else "plugin"
    return Exported(kind, directory, command, tuple(_notes(plan, config, target, handle.facts.trained_len)))


def require_exportable(model: str, extension: Extension, options: LoadOptions, **asked: Any) -> None:
    """Refuse, before the weights are read, what the export of a model would refuse by its config alone.

    Args:
        model: a folder, or a name on the hub.
        extension: what is to be in force.
        options: how the config is read.
        **asked: what `plan_export` takes.
    """
    config = fetch_config(model, options)
    try:
        host = stand_in(config)
    except DoesNotFit:  # its code makes no small one; the export itself will tell
        return
    _plan(host, config, extension, options, asked)


def _plan(
    host: Any, config: Any, extension: Extension, options: LoadOptions, asked: Mapping[str, Any]
) -> tuple[EngineConfig | Plans, Handle]:
    handle = extend(host, extension, target_len=asked["target_len"], trained_len=options.trained_len)
    host.config = config  # of the whole model: what is stated goes into it, and is judged by its sizes
    plan = plan_export(handle, **asked)
    if isinstance(plan, DoesNotFit):
        raise plan
    return plan, handle


def _stated(plan: EngineConfig | Plans, host: Any) -> tuple[Any, int]:
    """The config with the extension in it, and the length; refused where the weights change too."""
    if not isinstance(plan, EngineConfig):
        return config_with(host, plan), next(iter(plan.values())).target_len
    if plan.reading.changes_weights:
        sentence = "this export changes weights too: a temperature is folded into them"
        raise DoesNotFit.because("config_only", sentence, remedy=LEAVE_OUT)
    return plan.stated.config, plan.stated.length


def _command(
    model: str, config: Any, target: str, plan: EngineConfig | Plans, changes: Changes, length: int, place: Path | None
) -> str:
    if target == "transformers":
        arguments = {"config": str(place)} if place else without_note(changes)
        said = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
        code = f"from transformers import AutoModelForCausalLM as A; A.from_pretrained({model!r}, {said})"
        return f"python -c {shlex.quote(code)}"
    if target == "vllm" and place is not None:
        start = STARTS[target].format(model=shlex.quote(model))
        command = f"{start} --hf-config-path {shlex.quote(str(place))} --max-model-len {length}"
        return command if isinstance(plan, EngineConfig) else complete(command, plan, config)
    if not isinstance(plan, EngineConfig):
        raise DoesNotFit.because(
            "config_only", "vLLM's options cannot hold a plan of Ropewalk's plugin", remedy=WITH_FOLDER
        )
    if reason := why_no_option(config, changes):
        raise DoesNotFit.because("config_only", reason, remedy=LEAVE_OUT if target == "sglang" else WITH_FOLDER)
    return serving_command(model, target, changes, length)


def _notes(plan: EngineConfig | Plans, config: Any, target: str, trained_len: int) -> list[str]:
    notes = []
    if isinstance(plan, EngineConfig):
        if plan.kind == "frozen":
            notes.append("a dynamic schedule made static for this length")
        notes += notes_on_lengths(plan.stated)
    else:
        notes.append("vLLM needs Ropewalk installed in its environment; without it vLLM refuses the config")
        notes += notes_on_methods(plan)
        notes += [ANSWERS] * any(one.shorter for one in plan.values())
    if (key := drafting_key(config)) and target == "vllm":
        if isinstance(plan, EngineConfig):
            sentence = (
                f"the model's drafter ({key}) reads the model's own config.json, and fewer of its tokens are accepted"
            )
            remedy = "replace that file by the config.json of -o FOLDER to extend both"
            notes.append(f"{sentence} beyond {trained_len:,} tokens; {remedy}")
        else:
            notes.append(f"the plugin does not extend the model's drafter ({key}): leave out --speculative-config")
    return notes
