"""What a model came with: the extension that it was trained under, taken off so that others can be put in its place.

`load` puts it on again, and whoever compares extensions begins from it: it is what the model does, and a slot that a
line leaves empty keeps it. What it has learned goes with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from ropewalk.extension import Extension
from ropewalk.hf.attach.extend import extend, removed_after
from ropewalk.hf.attach.handle import Handle, handle_of, host_of
from ropewalk.hf.runtime.layer import PREFIX


@dataclass(frozen=True)
class TrainedExtension:
    """The extension that a model was loaded with; an empty one where there was none."""

    extension: Extension = field(default_factory=Extension)
    lifts_windows: bool = False
    mode: str | None = None
    trained_len: int | None = None
    learned: Mapping[str, Tensor] = field(default_factory=dict, compare=False)  # by the parameter's name

    def with_line(self, line: Extension) -> Extension:
        """What is in force when a line is put on: what it says, and in slots that it leaves empty what was there."""
        return line.over(self.extension)

    def put_on(self, model: nn.Module, line: Extension, **given: Any) -> Handle:
        """The model under its own extension with a line over it; `given` is what `extend` takes."""
        wanted = self.with_line(line)
        how: dict[str, Any] = {"lift_windows": self.lifts_windows, "trained_len": self.trained_len}
        if wanted == self.extension:
            how["mode"] = self.mode
        handle = extend(model, wanted, **{**how, **given})
        for name, value in handle.model.named_parameters():
            kept = self.learned.get(name)
            if kept is not None and kept.shape == value.shape:
                value.data.copy_(kept)
        return handle

    @contextmanager
    def under(self, model: nn.Module, line: Extension, **given: Any) -> Iterator[Handle]:
        """The same for as long as a block lasts."""
        with removed_after(model, lambda: self.put_on(model, line, **given)) as handle:
            yield handle


def taken_off(model: nn.Module) -> TrainedExtension:
    """The extension of a model, which is bare from here on."""
    host = host_of(model)
    handle = handle_of(host)
    if handle is None:
        return TrainedExtension()
    learned = {name: value.detach().clone() for name, value in host.named_parameters() if PREFIX in name}
    handle.remove()
    return TrainedExtension(handle.extension, handle.lifts_windows, handle.mode, handle.trained_len, learned)
