"""What `save` writes beside a config: the extension, its learned numbers, the weights and the card."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import PreTrainedModel

from ropewalk.errors import UnknownName, Unreadable, name_errors
from ropewalk.extension.extension import Extension
from ropewalk.extension.outside import admit, require_portable, write_files
from ropewalk.files import read_record, why
from ropewalk.hf.checkpoint.closed_config import SIDECAR as FILE
from ropewalk.hf.checkpoint.own_files import WEIGHTS, copy_own, folder_of
from ropewalk.hf.runtime.layer import ExtendedLayer, learned_parameters
from ropewalk.methods.record import AT_LEAST_ONE, Checked, parameters
from ropewalk.methods.spec import Json

# Copy the licence and the card of a model into the folder of changed weights.


NAMES = ("licen", "notice", "copying", "use_policy", "readme")  # the beginnings of their names, in any case


def copy_papers(host: PreTrainedModel, place: Path) -> list[str]:
    """Copy the papers from the model's folder, and name them; nothing is downloaded."""
    source = folder_of(host.name_or_path or "")
    papers = sorted(paper for paper in source.iterdir() if _is_paper(paper)) if source else []
    for paper in papers:
        copy_own(paper, place / paper.name)
    names, verb = ", ".join(paper.name for paper in papers), "was" if len(papers) == 1 else "were"
    return [f"{names} {verb} copied from the original model and may not describe this one"] if papers else []


def _is_paper(path: Path) -> bool:
    name = path.name.lower()
    return name.startswith(NAMES) and not name.endswith(WEIGHTS) and not path.is_dir()


# All weights of a model, wherever they are, and whether another model has the same.


def whole_state(host: PreTrainedModel) -> dict[str, Tensor]:
    """The state dict with all numbers: those that accelerate keeps on disk are read."""
    state = dict(host.state_dict())
    if not any(isinstance(value, Tensor) and value.device.type == "meta" for value in state.values()):
        return state
    from accelerate.utils.modeling import get_state_dict_offloaded_model

    read: dict[str, Tensor] = get_state_dict_offloaded_model(host)
    return state | read


def first_difference(host: PreTrainedModel, again: PreTrainedModel) -> str:
    """The first of the loaded weights that is not the model's, number by number; empty where none is."""
    state, loaded = whole_state(host), again.state_dict()
    return next((name for name, value in sorted(loaded.items()) if not is_same(value, state.get(name))), "")


def is_same(value: Any, other: Any) -> bool:
    """Whether two entries of a state dict are equal; quantised ones are compared part by part."""
    if not isinstance(value, Tensor) or not isinstance(other, Tensor):
        return bool(value == other)
    if hasattr(value, "__tensor_flatten__"):
        names = value.__tensor_flatten__()[0]
        return type(value) is type(other) and all(is_same(getattr(value, n), getattr(other, n)) for n in names)
    return torch.equal(value.cpu(), other.cpu())


# The sidecar in the folder of a model's weights: the extension, and its learned numbers.


LEARNED = "ropewalk.safetensors"
AGAIN = "save it again, or fetch it again"


@dataclass(frozen=True, kw_only=True)
class SidecarFields(Checked):
    """The fields of the file besides the extension, as `Handle.keep` writes them."""

    lift_windows: Annotated[bool, "whether windowed layers are extended too"]
    mode: Annotated[Literal["tables", "attention"] | None, "the mode of the extension"] = None
    target_len: Annotated[int | None, AT_LEAST_ONE, "the length that it was saved for"] = None
    trained_len: Annotated[int | None, AT_LEAST_ONE, "the trained length, where the config was corrected"] = None
    ropewalk: Annotated[str, "the version that wrote it"] = ""


def write(
    place: Path,
    extension: Extension,
    how: dict[str, Any],
    host: nn.Module,
    layers: Sequence[ExtendedLayer],
    state: dict[str, Tensor] | None,
) -> None:
    """Write both files, and those of methods from outside beside them.

    `state` has the learned numbers where the parameters are sharded, as in training at scale.
    """
    require_portable(extension.methods)
    write_files(extension.methods, place, earlier=place / FILE)
    content = {"ropewalk": version("ropewalk"), "extension": extension.to_json(), **how}
    (place / FILE).write_text(json.dumps(content, indent=2) + "\n", "utf-8")
    kept = {name: (state or {}).get(key, value) for key, name, value in _learned_parameters(host, layers)}
    save_file({name: value.detach().cpu().contiguous() for name, value in kept.items()}, place / LEARNED)


def remove(place: Path) -> None:
    """Remove what an earlier save left in a folder whose config says all."""
    for name in (FILE, LEARNED):
        (place / name).unlink(missing_ok=True)


def read(place: Path, *, trusted: bool = False) -> tuple[Extension, dict[str, Any]]:
    """The stored extension, and the other arguments of `extend`. `trusted`: methods in files of the folder may run."""
    file = place / FILE
    values = read_record(file, "what save wrote")
    with name_errors(str(file)):
        known = ("extension", *(field.name for field in parameters(SidecarFields)))
        for name in values:
            if name not in known:
                raise UnknownName("key", name, known=known, remedy=_writer_of(values))
        if "extension" not in values or "lift_windows" not in values:
            raise Unreadable("file", "what save wrote, with extension and lift_windows", sorted(values))
        if not isinstance(values["extension"], dict):
            raise Unreadable("extension", "a JSON object of slots", values["extension"])
        admit(values["extension"], place, trusted=trusted)
        extension = Extension.from_json(values.pop("extension"))
        fields = SidecarFields(**values)
    how = {"lift_windows": fields.lift_windows, "mode": fields.mode, "trained_len": fields.trained_len}
    return extension, how


def _writer_of(values: Json) -> str:
    return f"it was written by ropewalk {values.get('ropewalk', '(version not stated)')}, this is {version('ropewalk')}"


def fill(place: Path, host: nn.Module, layers: Sequence[ExtendedLayer]) -> None:
    """Copy the learned numbers into the model: exactly its parameters, in their shapes."""
    file, wanted = place / LEARNED, {name: value for _, name, value in _learned_parameters(host, layers)}
    kept = _numbers(file)
    if kept.keys() != wanted.keys():
        got = [*(f"no {name}" for name in wanted if name not in kept), *(name for name in kept if name not in wanted)]
        raise Unreadable(str(file), f"the {len(wanted)} learned numbers of {FILE}", got[:3], remedy=AGAIN)
    for name, value in wanted.items():
        _require_alike(f"{name} in {file}", kept[name], value)
        value.data.copy_(kept[name])


def _numbers(file: Path) -> dict[str, Tensor]:
    try:
        return load_file(file)
    except Exception as reason:  # safetensors raises its own errors, and others for unexpected content
        raise Unreadable(str(file), "what save wrote", why(reason), remedy=AGAIN) from reason


def _require_alike(field: str, kept: Tensor, value: Tensor) -> None:
    if kept.shape != value.shape:
        raise Unreadable(field, f"of shape {tuple(value.shape)}", tuple(kept.shape), remedy=AGAIN)
    if not kept.is_floating_point():
        raise Unreadable(field, "of a floating type", str(kept.dtype), remedy=AGAIN)
    if not bool(kept.isfinite().all()):
        raise Unreadable(field, "of finite numbers", f"{int((~kept.isfinite()).sum())} that are not", remedy=AGAIN)


def _learned_parameters(host: nn.Module, layers: Sequence[ExtendedLayer]) -> Iterator[tuple[str, str, nn.Parameter]]:
    """Every learned parameter with its names, in the model's state and in the file."""
    places = {module: name for name, module in host.named_modules()}
    for layer in layers:
        for name, value in learned_parameters(layer).items():
            yield f"{places[layer.probed.module]}.{name}", f"{layer.depth}.{name}", value
