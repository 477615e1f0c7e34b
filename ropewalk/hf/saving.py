"""Saving and loading: in the words of plain transformers where it has them, beside the weights where not; verified."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, PreTrainedModel

from ropewalk.errors import DoesNotFit, InvalidValue, Unreadable
from ropewalk.extension import Extension
from ropewalk.hf.extending import CLOSE, HALF, HANDLE, Handle, extend, host_of
from ropewalk.hf.layers import PREFIX, learned
from ropewalk.hf.probe import quiet
from ropewalk.hf.standard import standard_config

LEARNED = "ropewalk.safetensors"  # and what it has learned
FILE = "ropewalk.json"  # where an extension is kept that a config cannot say
TOKENS = 256  # of the text on which what was saved must give the same logits


def save(model: nn.Module, directory: str | Path, *, target_len: int | None = None) -> str:
    """Write an extended model so that it comes back the same, and say how it is to be loaded.

    A static schedule becomes a standard config; whatever else there is goes into `ropewalk.json` beside the weights.
    What was written is loaded and compared before this returns; nothing half-written is ever left.
    """
    host, handle = extended_host(model)
    with appearing(Path(directory)) as place:
        save_weights(host, place)
        try:
            standard_config(host.config, handle.extension, handle.layers, target_len).save_pretrained(place)
            how = "transformers.AutoModelForCausalLM.from_pretrained"
        except DoesNotFit as reason:
            (place / FILE).write_text(json.dumps(_stored(handle, target_len), indent=2) + "\n")
            save_file({name: value.detach().contiguous() for name, value in _learned(handle).items()}, place / LEARNED)
            how = f"ropewalk.load ({reason})"
        require_same(host, place, target_len or handle.facts.trained_len)
    return how


def load(directory: str | Path, **given: Any) -> PreTrainedModel:
    """A model as it was saved, extended again where its config cannot say how; `given` goes to from_pretrained."""
    stored = Path(directory) / FILE
    model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(directory, **given)
    if not stored.exists():
        return model
    try:
        read = json.loads(stored.read_text())
        extension, lift_windows = Extension.from_json(read["extension"]), bool(read["lift_windows"])
    except (json.JSONDecodeError, KeyError, TypeError) as reason:
        raise Unreadable(str(stored), "what save wrote", str(reason)) from reason
    handle, kept = extend(model, extension, lift_windows=lift_windows), load_file(stored.with_name(LEARNED))
    for name, value in _learned(handle).items():
        value.data.copy_(kept[name])
    return model


def _learned(handle: Handle) -> dict[str, Tensor]:
    """What the extension has learned, layer by layer."""
    return {f"{own.depth}.{name}": value for own in handle.layers for name, value in learned(own).items()}


def extended_host(model: nn.Module) -> tuple[PreTrainedModel, Handle]:
    """The model inside and the handle it is held by; a bare model is refused."""
    host = host_of(model)
    if host is not model:
        remedy = "merge the adapter first (merge_and_unload), then extend and save"
        raise InvalidValue("model", "transformers' own, not wrapped", type(model).__name__, remedy=remedy)
    if HANDLE not in host.__dict__:
        remedy = "extend it first, or use save_pretrained"
        raise InvalidValue("model", "under an extension", type(host).__name__, remedy=remedy)
    return host, host.__dict__[HANDLE]


def _stored(handle: Handle, target_len: int | None) -> dict[str, Any]:
    own = {"extension": handle.extension.to_json(), "lift_windows": handle.lifts_windows, "target_len": target_len}
    return {"ropewalk": version("ropewalk"), **own}


def save_weights(host: PreTrainedModel, place: Path, state: dict[str, Tensor] | None = None) -> None:
    """As transformers does, which on its way notes types and architectures in the model's own config."""
    own = dict(host.config.__dict__)
    try:
        state = {name: value for name, value in (state or host.state_dict()).items() if PREFIX not in name}
        host.save_pretrained(place, state_dict=state)
    finally:
        host.config.__dict__.clear()
        host.config.__dict__.update(own)


@contextmanager
def appearing(directory: Path) -> Iterator[Path]:
    """A folder beside the wanted one, which takes its place when all is well and is gone when not."""
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise InvalidValue("directory", "new or empty", str(directory), remedy="choose another, or remove it first")
    directory.parent.mkdir(parents=True, exist_ok=True)
    place = Path(tempfile.mkdtemp(prefix=f".{directory.name}-", dir=directory.parent))
    try:
        yield place
        if directory.exists():
            directory.rmdir()
        place.chmod(0o755)
        place.rename(directory)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def require_same(host: PreTrainedModel, place: Path, length: int) -> None:
    """Load what was written and compare logits; refused where they differ."""
    again = load(place, dtype=host.dtype).to(host.device)  # type: ignore[arg-type]
    count = min(length, TOKENS)
    ids = torch.arange(count, device=host.device)[None] * 7 % host.config.get_text_config().vocab_size
    given = {"input_ids": ids, "use_cache": False}
    with quiet(host), quiet(again), torch.no_grad():
        expected, got = host(**given).logits.double(), again(**given).logits.double()
    error = float((got - expected).square().mean().sqrt() / expected.square().mean().sqrt())
    if not error <= CLOSE.get(host.dtype, HALF):
        raise DoesNotFit("what was saved", "the same when loaded", f"relative error {error:.1e}")
