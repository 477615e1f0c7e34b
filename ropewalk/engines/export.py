"""Export to serving engines and trainers: what each reads of a schedule, and the command or the settings.

    native    the engine knows the schedule by its name and computes the same
    lowered   any static table, pair by pair: as longrope with equal factors, or as divisors among the weights
    plugin    Ropewalk's plugin in the engine computes it (vLLM)
    frozen    a dynamic schedule made static for one length, which changes short texts; a note says so
    refused   what the engine would compute differently, with the reason

Source: each rule is in its file in engines/ and trainers/, with the version that was read or run.
"""

from __future__ import annotations

import copy
import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, PreTrainedModel

from ropewalk.engines.fold import fold_into_weights, why_not_foldable
from ropewalk.engines.llama_cpp.gguf import require_writer, write_for_llama_cpp
from ropewalk.engines.llama_cpp.gguf_to_gguf import export_file, require_gguf_target
from ropewalk.engines.llama_cpp.rules import TENSOR
from ropewalk.engines.overrides import STARTS, changes_between, serving_command, why_no_option
from ropewalk.engines.rules.statement import (
    EngineReading,
    StatedModel,
    drafting_key,
    notes_on_lengths,
    state_extension,
    stretch_in,
)
from ropewalk.engines.targets import TARGETS, TRAINERS
from ropewalk.engines.trainers.torchtitan import SCRIPT
from ropewalk.engines.vllm.plans import (
    Plans,
    complete,
    is_for_text_alone,
    line_of,
    notes_on_methods,
    plans_by_request,
    plans_for,
    write_plans,
)
from ropewalk.engines.vllm.rules import SERVE
from ropewalk.errors import DoesNotFit, InvalidValue, UnknownName
from ropewalk.extension.extension import Extension
from ropewalk.extension.static import freeze, is_dynamic
from ropewalk.files import read_record
from ropewalk.folders import make_folder, require_new, write_text
from ropewalk.hf.attach.extend import extended
from ropewalk.hf.attach.handle import Handle
from ropewalk.hf.checkpoint.closed_config import FILE
from ropewalk.hf.checkpoint.fetch import fetch_model
from ropewalk.hf.checkpoint.own_files import require_own_files, sources_of
from ropewalk.hf.checkpoint.sidecar import copy_papers, whole_state
from ropewalk.hf.load_options import UNSTATED, LoadOptions
from ropewalk.hf.probe.host import format_of, loadable_config, require_plain, require_savable, why_not_plain
from ropewalk.hf.runtime.layer import ExtendedLayer
from ropewalk.hf.use.save import FAILURES, extended_host, require_same, save_tokenizer, save_weights
from ropewalk.methods.frequencies.frequencies import unwrap

PLUGGED = "vllm"  # the engine with a plugin of ours
KINDS = {
    "native": "the engine computes the same from the config",
    "lowered": "the schedule is written pair by pair",
    "plugin": "Ropewalk's plugin computes it inside the engine",
    "frozen": "a dynamic schedule, made static",
}
ANSWERS = (
    "a request without max_tokens may fill the longest text, and so has the largest factor; "
    """--override-generation-config '{"max_new_tokens": 1024}' sets another default"""
)
NEEDS_PLUGIN = f"a factor for each request needs Ropewalk's plugin, which only {PLUGGED} has"
QUANTISE_LATER = "export the model as it was before quantisation; llama-quantize quantises the file"


class Exported(NamedTuple):
    """What was written, and the command that starts it; for a trainer, its settings."""

    kind: str
    directory: Path | None  # None where a trainer's settings carry the schedule alone
    command: str
    notes: tuple[str, ...]

    def __str__(self) -> str:
        head = f"{self.kind} ({KINDS[self.kind]})"
        head += "" if self.directory is None else f": {self.directory}"
        return "\n".join([head, *self.notes, self.command])


def export(
    model: nn.Module | str | Path,
    directory: str | Path | None = None,
    *,
    target: str,
    target_len: int | None = None,
    tokenizer: Any | None = None,
    plugin: bool | None = None,
    request_factors: Sequence[float] = (),
    extension: Extension | str | None = None,
    force: bool = False,
    options: LoadOptions = UNSTATED,
) -> Exported:
    """Write an extended model for a serving engine or a trainer, verified in transformers.

        rw.extend(model, "yarn", target_len=32768)
        print(rw.export(model, "served", target="vllm", target_len=32768, tokenizer=tokenizer))

    For llama.cpp the folder holds a GGUF file, if that architecture was tested in llama.cpp. And a GGUF file becomes
    another, whose tensors are the same byte for byte: rw.export("X.gguf", "Y.gguf", target="llama.cpp",
    extension="yarn", target_len=32768).

    Args:
        model: under an extension; or a GGUF file.
        directory: new or empty; axolotl and torchtitan take none, since settings are all they need. Of a GGUF file: the
            new file.
        target: transformers, vllm, sglang, llama.cpp or mlx; or a trainer: llama-factory, axolotl or torchtitan.
        target_len: in tokens; it goes into the config, and is needed for a dynamic schedule.
        tokenizer: written beside the weights.
        plugin: of vLLM. None puts the extension into the config for Ropewalk's plugin where vLLM alone cannot compute
            the same; True does it always. False never does: a dynamic schedule is made static, and other methods are
            refused.
        request_factors: of vLLM: growing factors of a dynamic schedule. A request is computed under the smallest that
            covers its prompt and max_tokens, for all of its tokens.
        extension: that of a GGUF file, which has none of its own.
        force: overwrites a GGUF file.
        options: of a GGUF file, of which only `trained_len` is used.

    Returns:
        An `Exported`: its kind, directory, command (of a trainer, the settings) and notes.
    """
    require_engine(target)
    require_directory(directory, target)
    if isinstance(model, str | Path):
        require_gguf_target(str(model), target)
        if request_factors:
            raise DoesNotFit.because("request_factors", NEEDS_PLUGIN, remedy="leave out --request-factors")
        out = None if directory is None else Path(directory)
        said = export_file(str(model), out, extension, target_len, force=force, options=options, plan=plan_export)
        return Exported(*said)
    if extension is not None or force:
        sentence = "extension and force are for a GGUF file: a loaded model is under an extension, in a new folder"
        raise InvalidValue.because("force" if force else "extension", sentence, remedy="leave them out")
    host, handle = extended_host(model)
    place = None if directory is None else Path(directory)
    if place:
        require_new(place)
        require_own_files(*sources_of(host, tokenizer))
    plan = plan_export(handle, target, target_len, plugin, request_factors)
    if isinstance(plan, DoesNotFit):
        raise plan
    if isinstance(plan, EngineConfig):
        return _export_config(host, handle, place, target, plan, tokenizer)
    return _export_for_plugin(host, plan, Path(str(directory)), tokenizer)


class EngineConfig(NamedTuple):
    """The config for an engine, and how the engine computes the extension from it."""

    kind: str
    extension: Extension  # static
    stated: StatedModel
    reading: EngineReading


def plan_export(
    handle: Handle,
    target: str,
    target_len: int | None,
    plugin: bool | None = None,
    request_factors: Sequence[float] = (),
) -> EngineConfig | Plans | DoesNotFit:
    """What `export` would write: a config, or plans for the engine's plugin; or the reason why neither is possible."""
    require_engine(target)
    host, extension = handle.model, handle.extension
    if reason := _why_stretched(handle):
        return reason
    if target != PLUGGED and plugin:
        return DoesNotFit("plugin", f"left out for {target}: only {PLUGGED} has one", plugin)
    if request_factors and (target != PLUGGED or plugin is False):
        remedy = "leave out --no-plugin (plugin=False)" if target == PLUGGED else "leave out --request-factors"
        return DoesNotFit.because("request_factors", NEEDS_PLUGIN, remedy=remedy)
    if request_factors:
        return plans_by_request(host, handle, request_factors, target_len)
    if target == PLUGGED and (plugin or (plugin is None and is_dynamic(extension))):
        return plans_for(host, handle, target_len)
    if target_len is None and is_dynamic(extension):
        sentence = f"{extension.frequencies_or_rope.name} must be made static"
        return DoesNotFit.because("target_len", sentence, remedy="pass target_len (--to)")
    static = extension if target_len is None else freeze(extension, handle.facts, target_len)
    config = config_for(host, static, handle.layers, target, target_len)
    if isinstance(config, DoesNotFit):
        by_plugin = target == PLUGGED and plugin is not False and config.field != "target_len"
        return plans_for(host, handle, target_len) if by_plugin else config
    return config if static == extension else config._replace(kind="frozen")


def _why_stretched(handle: Handle) -> DoesNotFit | None:
    """Why an export of ours takes no second schedule, which would stretch what is stretched; None for another model."""
    before, extension = stretch_in(handle.model.config.get_text_config()), handle.extension
    if before is None or handle.trained_len or extension.frequencies is None or extension.replaces_scaling:
        return None
    lengths = f"from {before.trained_len:,} to {before.target_len:,} tokens"
    trained = f"if this one was trained further since, say so: --trained-len {before.target_len} (trained_len)"
    sentence = f"the model is stretched by {before.methods} already, {lengths}"
    return DoesNotFit.because("model", sentence, remedy=f"take the model that it was made of; {trained}")


def _export_config(
    host: PreTrainedModel,
    handle: Handle,
    directory: Path | None,
    target: str,
    plan: EngineConfig,
    tokenizer: Any | None,
) -> Exported:
    """Write the model with a config that the engine reads, or only name the settings of a trainer."""
    kind, extension, config, reading = plan
    notes = _notes(plan, host, target)
    if directory is None:
        name = host.name_or_path or "MODEL"
        return Exported(kind, None, TARGETS[target].command(name, config), tuple(notes))
    if target == "llama.cpp":
        require_plain(host, "writing a GGUF file", QUANTISE_LATER)
        require_writer(config)
    require_savable(host)
    weights = _weights(host, handle, config, reading)
    with make_folder(directory, FAILURES) as place:
        save_weights(host, place, weights)
        config.config.save_pretrained(place)
        _verify(host, handle, extension, place, config.length)
        settle(reading, place)
        save_tokenizer(tokenizer, place)
        notes += copy_papers(host, place)
        if target == "llama.cpp":
            notes += write_for_llama_cpp(config, weights or whole_state(host), tokenizer, place)
    name = str(directory) if target in TRAINERS else shlex.quote(str(directory))  # in settings, or in a command
    return Exported(kind, directory, TARGETS[target].command(name, config), tuple(notes))


def _export_for_plugin(host: PreTrainedModel, plans: Plans, directory: Path, tokenizer: Any | None) -> Exported:
    """Write the model for the engine's plugin."""
    with make_folder(directory, FAILURES) as place:
        write_plans(host, plans, place)
        save_tokenizer(tokenizer, place)
        papers = copy_papers(host, place)
    plan = next(iter(plans.values()))
    hindrance = next((plan.why_not_tables for plan in plans.values() if not plan.is_tables), "")
    notes = [
        "vLLM needs Ropewalk installed in its environment; without it vLLM refuses the folder",
        *notes_on_methods(plans),
        f"by Ropewalk's attention: {hindrance}" if hindrance else "by vLLM's own kernels, with tables from the plugin",
        *(["not with --kv-cache-dtype fp8: Ropewalk's attention keeps keys in a floating type"] if hindrance else []),
    ]
    if is_dynamic(extension := plan.planned[0].extension):
        exact = "" if unwrap(extension.frequencies_or_rope).wrappers else "short texts stay exact; "
        notes.append(f"{exact}--no-plugin makes the schedule static, for vLLM without Ropewalk")
    if plan.shorter:
        notes.append(ANSWERS)
    command = complete(SERVE.format(place=shlex.quote(str(directory)), length=plan.target_len), plans, host.config)
    if is_for_text_alone(plans, host.config):
        notes.append("for text alone: tokens of images have several positions (M-RoPE)")
    return Exported("plugin", directory, command, (*notes, *papers))


def why_not_exportable(
    host: PreTrainedModel,
    extension: Extension,
    layers: Sequence[ExtendedLayer],
    target: str,
    target_len: int,
) -> DoesNotFit | None:
    """Why an engine cannot load an extension; None where it can. The model need not be extended."""
    require_engine(target)
    if is_dynamic(extension):
        return DoesNotFit(
            "frequencies", "static, since an engine would freeze them", extension.frequencies_or_rope.name
        )
    config = config_for(host, extension, layers, target, target_len)
    return config if isinstance(config, DoesNotFit) else None


def require_engine(target: str) -> None:
    """Refuse an unknown engine or trainer."""
    if target not in TARGETS:
        raise UnknownName("engine", target, known=TARGETS)


def require_directory(directory: str | Path | None, target: str, field: str = "directory") -> None:
    """Refuse a folder where none is written, and none where one is."""
    folder = TARGETS[target].folder
    if folder and directory is None:
        raise InvalidValue.because(field, f"{target} reads a folder, so {field} must be a new one")
    if not folder and directory is not None:
        raise InvalidValue.because(field, f"the settings of {target} need no folder, so {field} must be left out")


def config_for(
    host: PreTrainedModel, extension: Extension, layers: Sequence[ExtendedLayer], target: str, target_len: int | None
) -> EngineConfig | DoesNotFit:
    """The config from which the engine computes a static extension, or the reason why there is none."""
    stated = state_extension(host, extension, layers, target_len)
    if isinstance(stated, DoesNotFit):
        return _with_remedy(stated, target)
    reading = TARGETS[target].rewrite(stated)
    if isinstance(reading, DoesNotFit):
        return reading
    if reading.folded != 1:
        reason = why_not_foldable(layers) or why_not_plain(host, "folding a temperature into the queries")
        if reason is not None:
            return reason
    return EngineConfig("lowered" if reading.lowered else "native", extension, stated, reading)


def _with_remedy(reason: DoesNotFit, target: str) -> DoesNotFit:
    """The reason with what to do instead."""
    if target in TRAINERS and reason.field != "target_len":
        return DoesNotFit.because(reason.field, str(reason), remedy=SCRIPT)
    if reason.field not in ("reach", "biases", "scales"):
        return reason
    remedy = f"{target} cannot run it; use yarn, or `ropewalk extend` and rw.load"
    if target == PLUGGED:
        remedy = f"{target} alone cannot run it; leave out --no-plugin (plugin=False), or use yarn"
    return DoesNotFit.because(reason.field, str(reason), remedy=remedy)


def _weights(
    host: PreTrainedModel, handle: Handle, config: StatedModel, reading: EngineReading
) -> dict[str, Tensor] | None:
    """The changed weights for the engine; None where they are the model's own."""
    if not reading.changes_weights:
        return None
    weights = fold_into_weights(host, handle.layers, reading.folded, whole=not config.reaches_all)
    return {**weights, TENSOR: torch.tensor(config.divisors)} if reading.divisors else weights


def _verify(host: PreTrainedModel, handle: Handle, extension: Extension, place: Path, length: int) -> None:
    if extension == handle.extension:
        return require_same(host, place, length)
    twin = _base_model(host, place)
    with extended(twin, extension, trained_len=handle.trained_len):
        require_same(twin, place, length)


def _base_model(host: PreTrainedModel, place: Path) -> PreTrainedModel:
    """The model without an extension once more; quantised weights are read from the folder, and compared later."""
    if format_of(host):
        again: PreTrainedModel = fetch_model(
            place, config=loadable_config(host), dtype=host.dtype, attn_implementation="eager"
        )
        return again
    twin: Any = AutoModelForCausalLM.from_config(copy.deepcopy(host.config), attn_implementation="eager")  # type: ignore[no-untyped-call]
    twin.to(host.dtype)
    twin.load_state_dict(whole_state(host))
    base: PreTrainedModel = twin
    return base


def settle(reading: EngineReading, place: Path) -> None:
    """Write what only the engine reads, after the comparison."""
    if not reading.written:
        return
    values = read_record(place / FILE, "what transformers wrote")
    values.get("text_config", values).update(reading.written)
    write_text(place / FILE, json.dumps(values, indent=2) + "\n")


def _notes(plan: EngineConfig, host: PreTrainedModel, target: str) -> list[str]:
    kind, extension, config, reading = plan
    notes = []
    if kind == "frozen":
        notes.append(f"made static for {config.length:,} tokens, as {line_of(extension)}")
    notes += [] if target in TRAINERS else notes_on_lengths(config)
    if reading.divisors:
        notes.append(f"the frequencies are in {TENSOR}, for llama.cpp only: transformers refuses the folder")
    if reading.folded != 1:
        rounded = "" if host.dtype == torch.float32 else f", rounded to {host.dtype}".replace("torch.", "")
        notes.append(f"a temperature of {reading.folded:.4f} is folded into the weights of the queries{rounded}")
    if reading.unrun:
        notes.append(f"this export was never run with {config.text.model_type}: compare before you rely on it")
    if config.window is not None and config.config.model_type != host.config.model_type:
        notes.append(f"written as {config.config.model_type}, which is {host.config.model_type} with a window")
    if key := drafting_key(host.config):
        notes.append(
            f"the model's drafter ({key}) is not in the folder: transformers loads none; --config-only keeps it"
        )
    changes = changes_between(host.config, config.config, reading.written)
    if target in STARTS and host.name_or_path and not (reading.changes_weights or why_no_option(host.config, changes)):
        command = serving_command(host.name_or_path, target, changes, config.length)
        notes.append(f"the same without a copy of the weights (--config-only): {command}")
    return notes
