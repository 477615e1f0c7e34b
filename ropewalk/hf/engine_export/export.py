"""Export to the engines people serve with: what each reads of a schedule, and the command that starts it.

    native    the engine knows the schedule by its name and computes the same
    lowered   any static table, pair by pair: as longrope with equal factors, or as divisors among the weights
    frozen    a dynamic schedule made static for one length, which changes short texts, and is said
    refused   what the engine would compute otherwise, with the reason

Source: each engine's rule is in its file in ropewalk/hf/engines, with the version that was read or run.
"""

from __future__ import annotations

import copy
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, PreTrainedModel

from ropewalk.errors import DoesNotFit, UnknownName
from ropewalk.extension import Extension
from ropewalk.facts import Facts
from ropewalk.folders import appearing
from ropewalk.frequencies import Dynamic
from ropewalk.hf.attach.extend import extended
from ropewalk.hf.attach.handle import Handle
from ropewalk.hf.checkpoint.model_card import copy_papers
from ropewalk.hf.engine_export.config_for_engine import stated
from ropewalk.hf.engine_export.engines import ENGINES, EngineReading, StatedModel
from ropewalk.hf.engine_export.engines.llama_cpp import TENSOR
from ropewalk.hf.engine_export.fold_temperature import folded_weights, require_foldable
from ropewalk.hf.engine_export.tokenizer import of_llama_cpp
from ropewalk.hf.runtime.layer import ExtendedLayer
from ropewalk.hf.use.save import FAILURES, extended_host, require_same, save_tokenizer, save_weights
from ropewalk.scales import DynamicTemperature


class Exported(NamedTuple):
    """What was written, and how to start it."""

    kind: str
    directory: Path
    command: str
    notes: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join([f"{self.kind}: {self.directory}", *self.notes, self.command])


def export(
    model: nn.Module,
    directory: str | Path,
    *,
    target: str,
    target_len: int | None = None,
    tokenizer: Any | None = None,
) -> Exported:
    """Write an extended model for an engine (transformers, vllm, sglang, llama.cpp), verified in transformers."""
    require_engine(target)
    host, handle = extended_host(model)
    extension = frozen(handle.extension, handle.facts, target_len)
    said, reading = _read(host, extension, handle.layers, target, target_len)
    with appearing(Path(directory), FAILURES) as place:
        save_weights(host, place, _weights(host, handle, said, reading))
        said.config.save_pretrained(place)
        _verify(host, handle, extension, place, said.length)
        _settle(said, reading, place)
        save_tokenizer(tokenizer, place)
        papers = copy_papers(host, place)
    kind = "frozen" if extension != handle.extension else "lowered" if reading.lowered else "native"
    notes = [*_notes(kind, extension, said, reading, host), *papers]
    notes += of_llama_cpp(tokenizer) if target == "llama.cpp" else []
    return Exported(kind, Path(directory), ENGINES[target].command(shlex.quote(str(directory)), said), tuple(notes))


def require_exportable(
    host: PreTrainedModel,
    extension: Extension,
    layers: Sequence[ExtendedLayer],
    facts: Facts,
    target: str,
    target_len: int,
) -> None:
    """Refuse what an engine could not load as it is; nothing is written, and the model need not be extended."""
    require_engine(target)
    if isinstance(extension.theta, Dynamic):
        raise DoesNotFit("frequencies", "static, or an engine would have them frozen", extension.theta.name)
    _read(host, extension, layers, target, target_len)


def require_engine(target: str) -> None:
    """Refuse an engine that nobody here knows."""
    if target not in ENGINES:
        raise UnknownName("engine", target, known=ENGINES)


def frozen(extension: Extension, facts: Facts, target_len: int | None) -> Extension:
    """A dynamic schedule made static for one length; any other as it is."""
    if not isinstance(extension.theta, Dynamic):
        return extension
    if target_len is None:
        raise DoesNotFit("target_len", "given, to make a dynamic schedule static", None)
    factor: Any = {"factor": target_len / facts.trained_len}
    scales = [
        replace(each.inner, **factor) if isinstance(each, DynamicTemperature) else each for each in extension.scales
    ]
    return replace(extension, frequencies=replace(extension.theta.inner, **factor), scales=tuple(scales))


def _read(
    host: PreTrainedModel, extension: Extension, layers: Sequence[ExtendedLayer], target: str, target_len: int | None
) -> tuple[StatedModel, EngineReading]:
    """The config as the engine is to find it, and how it comes to compute the same; or a refusal."""
    said = stated(host, extension, layers, target_len)
    reading = ENGINES[target].read(said)
    if reading.folded != 1:
        require_foldable(layers)
    return said, reading


def _weights(
    host: PreTrainedModel, handle: Handle, said: StatedModel, reading: EngineReading
) -> dict[str, Tensor] | None:
    """The model's weights with what the engine finds there; nothing where they are the model's own."""
    if reading.folded == 1 and not reading.divisors:
        return None
    weights = folded_weights(host, handle.layers, reading.folded)
    return {**weights, TENSOR: torch.tensor(said.divisors)} if reading.divisors else weights


def _verify(host: PreTrainedModel, handle: Handle, extension: Extension, place: Path, length: int) -> None:
    if extension == handle.extension:
        return require_same(host, place, length)
    twin = AutoModelForCausalLM.from_config(copy.deepcopy(host.config), attn_implementation="eager")  # type: ignore[no-untyped-call]
    twin.to(host.dtype)
    twin.load_state_dict(host.state_dict())
    with extended(twin, extension, trained_len=handle.trained_len):
        require_same(twin, place, length)


def _settle(said: StatedModel, reading: EngineReading, place: Path) -> None:
    """What only the engine's converter is to read, written when the rest has been compared."""
    if reading.rope_type is None:
        return
    said.text.rope_parameters = {"rope_type": reading.rope_type, "rope_theta": said.parameters[0]["rope_theta"]}
    said.config.save_pretrained(place)


def _notes(
    kind: str, extension: Extension, said: StatedModel, reading: EngineReading, host: PreTrainedModel
) -> list[str]:
    notes = []
    if kind == "frozen":
        told = f"made static for {said.length} tokens ({extension.theta})"
        notes.append(f"{told}; short texts are no longer the bare model's")
    if reading.divisors:
        notes.append(
            f"the frequencies stand in {TENSOR}, for llama.cpp's converter alone: transformers refuses the folder"
        )
    if reading.folded != 1:
        rounded = "" if host.dtype == torch.float32 else f", rounded to {host.dtype}".replace("torch.", "")
        notes.append(f"a temperature of {reading.folded:.4f} is folded into the weights of the queries{rounded}")
    if reading.unrun:
        notes.append(f"the engine was never run with {said.text.model_type} here: compare before you rely on it")
    if said.window is not None and said.config.model_type != host.config.model_type:
        notes.append(f"written as {said.config.model_type}, which is {host.config.model_type} with a window")
    return notes
