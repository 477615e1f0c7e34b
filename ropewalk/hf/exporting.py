"""Export to the engines people serve with: what each reads of a schedule, and the command that starts it.

    native    the engine knows the schedule by its name
    lowered   any static table, written pair by pair as longrope with equal factors, its temperature folded into weights
    frozen    a dynamic schedule made static for one length, which changes short texts, and is said
    refused   what no config can say, with the reason

Source: vLLM's rotary_embedding and config of 2026, SGLang's factory, llama.cpp's convert_hf_to_gguf and server, read as
docs/decisions.md tells.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
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
from ropewalk.hf.extending import Handle, extended
from ropewalk.hf.layers import Attached
from ropewalk.hf.saving import FAILURES, extended_host, require_same, save_tokenizer, save_weights
from ropewalk.hf.standard import require_sayable, standard_config, temperature_of
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
    config = standard_config(host.config, extension, handle.layers, target_len)
    length = config.get_text_config().max_position_embeddings
    parameters = _ruled(config, handle.layers)
    lowered = parameters["rope_type"] == "longrope"
    folded = _fold(extension, handle.layers, handle.facts, parameters, target)
    _adapt(parameters, config, target, handle.facts)
    with appearing(Path(directory), FAILURES) as place:
        save_weights(host, place, _folded(host, handle, folded) if folded != 1 else None)
        config.save_pretrained(place)
        _verify(host, handle, extension, place, length)
        save_tokenizer(tokenizer, place)
    kind = "frozen" if extension != handle.extension else "lowered" if lowered else "native"
    notes = _notes(kind, extension, folded, length)
    return Exported(kind, Path(directory), COMMANDS[target](Path(directory), parameters, length), notes)


def require_exportable(
    host: PreTrainedModel, extension: Extension, layers: Sequence[Attached], facts: Facts, target: str, target_len: int
) -> None:
    """Refuse what an engine could not load as it is; nothing is written, and the model need not be extended."""
    require_engine(target)
    if isinstance(extension.theta, Dynamic):
        raise DoesNotFit("frequencies", "static, or an engine would have them frozen", extension.theta.name)
    config = standard_config(host.config, extension, layers, target_len)
    if _fold(extension, layers, facts, _ruled(config, layers), target) != 1:
        for own in (own for own in layers if not own.left_alone):
            _require_foldable(own.layer.module)


def require_engine(target: str) -> None:
    """Refuse an engine that nobody here knows."""
    if target not in COMMANDS:
        raise UnknownName("target", "an engine", target, known=COMMANDS)


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


def _ruled(config: Any, layers: Sequence[Attached]) -> dict[str, Any]:
    """The rotary parameters that the extension has set: of the whole, or of its kind of layer."""
    text = config.get_text_config()
    depth = next(own.depth for own in layers if own.layer.rotating and not own.left_alone)
    nested = any(isinstance(part, dict) for part in text.rope_parameters.values())
    parameters: dict[str, Any] = text.rope_parameters[text.layer_types[depth]] if nested else text.rope_parameters
    return parameters


def _fold(
    extension: Extension, layers: Sequence[Attached], facts: Facts, parameters: dict[str, Any], target: str
) -> float:
    """The temperature that goes into weights since this engine reads none, 1 where there is none; or a refusal."""
    lowered = parameters["rope_type"] == "longrope"
    if lowered and target == "llama.cpp":
        rule = "linear, yarn, llama3 or another base, which its converter knows for every architecture"
        raise DoesNotFit("schedule", rule, extension.theta.name)
    own = next(own for own in layers if own.layer.rotating and not own.left_alone)
    folded = temperature_of(extension, own) ** 2 if lowered and target != "transformers" else 1.0
    if folded == 1:
        require_sayable(extension, layers)
    return folded


def _adapt(parameters: dict[str, Any], config: Any, target: str, facts: Facts) -> None:
    """What an engine reads otherwise than transformers."""
    if parameters["rope_type"] == "yarn":  # some multiply their own temperature by this
        parameters["attn_factor"] = parameters["attention_factor"] / (0.1 * math.log(parameters["factor"]) + 1)
    if parameters["rope_type"] == "longrope" and target != "transformers":
        parameters |= {"attention_factor": 1.0, "short_mscale": 1.0, "long_mscale": 1.0}
    if parameters["rope_type"] == "linear" and target == "vllm":  # which multiplies the length by itself
        config.get_text_config().max_position_embeddings = facts.trained_len


def _folded(host: PreTrainedModel, handle: Handle, factor: float) -> dict[str, Tensor]:
    """The weights with a temperature in what makes the queries: their norm, or their projection."""
    state = dict(host.state_dict())
    names = {module: name for name, module in host.named_modules()}
    for own in (own for own in handle.layers if not own.left_alone):
        maker, name = own.layer.module, names[own.layer.module]
        if hasattr(maker, "q_norm"):
            key = f"{name}.q_norm.weight"
            one = float(_adds_one(maker.q_norm))
            state[key] = (state[key] + one) * factor - one
        else:
            _require_foldable(maker)
            for key in (f"{name}.q_proj.weight", f"{name}.q_proj.bias"):
                state |= {key: state[key] * factor} if key in state else {}
    return state


def _require_foldable(maker: nn.Module) -> None:
    if not hasattr(maker, "q_norm") and not hasattr(maker, "q_proj"):
        raise DoesNotFit("model", "one with q_proj or q_norm, to fold a temperature into", type(maker).__name__)


def _adds_one(norm: Any) -> bool:
    """Whether a norm multiplies by its weight plus one."""
    blank = copy.deepcopy(norm)
    torch.nn.init.zeros_(blank.weight)
    return bool(blank(torch.ones_like(blank.weight)).any())


def _verify(host: PreTrainedModel, handle: Handle, extension: Extension, place: Path, length: int) -> None:
    if extension == handle.extension:
        return require_same(host, place, length)
    twin = AutoModelForCausalLM.from_config(copy.deepcopy(host.config), attn_implementation="eager")  # type: ignore[no-untyped-call]
    twin.to(host.dtype)
    twin.load_state_dict(host.state_dict())
    with extended(twin, extension, trained_len=handle.trained_len):
        require_same(twin, place, length)


def _notes(kind: str, extension: Extension, folded: float, length: int) -> tuple[str, ...]:
    notes = []
    if kind == "frozen":
        notes.append(f"made static for {length} tokens ({extension.theta}); short texts are no longer the bare model's")
    if folded != 1:
        notes.append(f"a temperature of {folded:.4f} is folded into the weights of the queries")
    return tuple(notes)


def _transformers(directory: Path, parameters: dict[str, Any], length: int) -> str:
    return f'python -c "from transformers import AutoModelForCausalLM as A; A.from_pretrained({str(directory)!r})"'


def _vllm(directory: Path, parameters: dict[str, Any], length: int) -> str:
    return f"vllm serve {directory} --max-model-len {length}"


def _sglang(directory: Path, parameters: dict[str, Any], length: int) -> str:
    return f"python -m sglang.launch_server --model-path {directory} --context-length {length}"


def _llama_cpp(directory: Path, parameters: dict[str, Any], length: int) -> str:
    convert = f"python convert_hf_to_gguf.py {directory} --outfile {directory}.gguf"
    flags = {
        "linear": f" --rope-scaling linear --rope-scale {parameters.get('factor')}",
        "yarn": f" --rope-scaling yarn --rope-scale {parameters.get('factor')}"
        f" --yarn-orig-ctx {parameters.get('original_max_position_embeddings')}",
    }
    return f"{convert} && llama-server -m {directory}.gguf -c {length}{flags.get(parameters['rope_type'], '')}"


COMMANDS: dict[str, Callable[[Path, dict[str, Any], int], str]] = {
    "transformers": _transformers,
    "vllm": _vllm,
    "sglang": _sglang,
    "llama.cpp": _llama_cpp,
}
