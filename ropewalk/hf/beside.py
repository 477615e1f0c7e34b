"""What is kept beside a model's weights: the extension, and what it has learned."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from ropewalk.errors import Unreadable
from ropewalk.extension import Extension
from ropewalk.hf.layers import Attached, learned
from ropewalk.spec import Json

FILE = "ropewalk.json"
LEARNED = "ropewalk.safetensors"


def write(
    place: Path, said: Json, host: nn.Module, layers: Sequence[Attached], state: dict[str, Tensor] | None
) -> None:
    """Both files; `state` has the numbers where the parameters themselves are elsewhere, as in training at scale."""
    (place / FILE).write_text(json.dumps({"ropewalk": version("ropewalk"), **said}, indent=2) + "\n")
    kept = {name: (state or {}).get(key, value) for key, name, value in _learned(host, layers)}
    save_file({name: value.detach().cpu().contiguous() for name, value in kept.items()}, place / LEARNED)


def read(place: Path) -> tuple[Extension, dict[str, Any]]:
    """The extension that was written, and how it was put in."""
    try:
        values = json.loads((place / FILE).read_text())
        how = {"lift_windows": bool(values["lift_windows"]), "way": values.get("way")}
        how |= {"trained_len": values.get("trained_len")}
        return Extension.from_json(values["extension"]), how
    except (json.JSONDecodeError, KeyError, TypeError) as reason:
        raise Unreadable(str(place / FILE), "what save wrote", str(reason)) from reason


def fill(place: Path, host: nn.Module, layers: Sequence[Attached]) -> None:
    """What was learned, where it belongs."""
    kept = load_file(place / LEARNED)
    for _, name, value in _learned(host, layers):
        value.data.copy_(kept[name])


def _learned(host: nn.Module, layers: Sequence[Attached]) -> Iterator[tuple[str, str, nn.Parameter]]:
    """Each learned parameter with its names, in the model's state and in the file."""
    places = {module: name for name, module in host.named_modules()}
    for own in layers:
        for name, value in learned(own).items():
            yield f"{places[own.layer.module]}.{name}", f"{own.depth}.{name}", value
