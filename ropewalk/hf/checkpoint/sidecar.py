"""What is kept beside a model's weights: the extension, and what it has learned."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Literal

from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from ropewalk.errors import UnknownName, Unreadable, about
from ropewalk.extension import Extension
from ropewalk.files import read_record, why
from ropewalk.hf.runtime.layer import ExtendedLayer, learned
from ropewalk.record import AT_LEAST_ONE, Checked, parameters
from ropewalk.spec import Json

FILE = "ropewalk.json"
LEARNED = "ropewalk.safetensors"
KEYS = {"mode": "way"}  # in the file, where they differ from the arguments of `extend`
AGAIN = "save it again, or fetch it again"


@dataclass(frozen=True, kw_only=True)
class SidecarFields(Checked):
    """What the file says beside the extension. What is written by `Handle.keep` has its place here."""

    lift_windows: Annotated[bool, "whether layers with a window of their own are ruled too"]
    way: Annotated[Literal["tables", "attention"] | None, "how it was put in"] = None
    target_len: Annotated[int | None, AT_LEAST_ONE, "the length it was saved for"] = None
    trained_len: Annotated[int | None, AT_LEAST_ONE, "the trained length, where somebody corrected the config"] = None
    ropewalk: Annotated[str, "the version that wrote it"] = ""


def write(
    place: Path,
    extension: Extension,
    how: dict[str, Any],
    host: nn.Module,
    layers: Sequence[ExtendedLayer],
    state: dict[str, Tensor] | None,
) -> None:
    """Both files; `state` has the numbers where the parameters themselves are elsewhere, as in training at scale."""
    values = {KEYS.get(name, name): value for name, value in how.items()}
    content = {"ropewalk": version("ropewalk"), "extension": extension.to_json(), **values}
    (place / FILE).write_text(json.dumps(content, indent=2) + "\n", "utf-8")
    kept = {name: (state or {}).get(key, value) for key, name, value in _learned(host, layers)}
    save_file({name: value.detach().cpu().contiguous() for name, value in kept.items()}, place / LEARNED)


def read(place: Path) -> tuple[Extension, dict[str, Any]]:
    """The extension that was written, and how it was put in."""
    file = place / FILE
    values = read_record(file, "what save wrote")
    with about(str(file)):
        known = ("extension", *(each.name for each in parameters(SidecarFields)))
        for name in values:
            if name not in known:
                raise UnknownName("key", name, known=known, owner="the file", remedy=_written_by(values))
        if "extension" not in values or "lift_windows" not in values:
            raise Unreadable("file", "what save wrote, with extension and lift_windows", sorted(values))
        if not isinstance(values["extension"], dict):
            raise Unreadable("extension", "a JSON object of slots", values["extension"])
        extension = Extension.from_json(values.pop("extension"))
        said = SidecarFields(**values)
    how = {"lift_windows": said.lift_windows, "mode": said.way, "trained_len": said.trained_len}
    return extension, how


def _written_by(values: Json) -> str:
    return f"it was written by ropewalk {values.get('ropewalk', '(it does not say)')}, this is {version('ropewalk')}"


def fill(place: Path, host: nn.Module, layers: Sequence[ExtendedLayer]) -> None:
    """What was learned, where it belongs: every number, no other, in the shape that it has."""
    file, wanted = place / LEARNED, {name: value for _, name, value in _learned(host, layers)}
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
    except Exception as reason:  # safetensors has errors of its own, and others for what it does not expect
        raise Unreadable(str(file), "what save wrote", why(reason), remedy=AGAIN) from reason


def _require_alike(field: str, kept: Tensor, value: Tensor) -> None:
    if kept.shape != value.shape:
        raise Unreadable(field, f"of shape {tuple(value.shape)}", tuple(kept.shape), remedy=AGAIN)
    if not kept.is_floating_point():
        raise Unreadable(field, "of a floating type", str(kept.dtype), remedy=AGAIN)
    if not bool(kept.isfinite().all()):
        raise Unreadable(field, "of finite numbers", f"{int((~kept.isfinite()).sum())} that are none", remedy=AGAIN)


def _learned(host: nn.Module, layers: Sequence[ExtendedLayer]) -> Iterator[tuple[str, str, nn.Parameter]]:
    """Each learned parameter with its names, in the model's state and in the file."""
    places = {module: name for name, module in host.named_modules()}
    for own in layers:
        for name, value in learned(own).items():
            yield f"{places[own.probed.module]}.{name}", f"{own.depth}.{name}", value
