"""The extension that a model was trained under, taken off so that others can replace it.

`load` puts it on, and comparisons of extensions start from it: a slot that a line leaves empty keeps it. Its learned
numbers go with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from ropewalk.extension.extension import Extension
from ropewalk.hf.attach.extend import extend, remove_after
from ropewalk.hf.attach.handle import Handle, handle_of, host_of
from ropewalk.hf.runtime.layer import PREFIX


@dataclass(frozen=True)
class TrainedExtension:
    """The extension that a model was loaded with; empty where there was none."""

    extension: Extension = field(default_factory=Extension)
    lifts_windows: bool = False
    mode: str | None = None
    trained_len: int | None = None
    learned: Mapping[str, Tensor] = field(default_factory=dict, compare=False)  # by the parameter's name

    def with_line(self, line: Extension) -> Extension:
        """What is in force under a line: the line, and the trained extension in slots that the line leaves empty."""
        return line.over(self.extension)

    def put_on(self, model: nn.Module, line: Extension, **kwargs: Any) -> Handle:
        """The model under its trained extension with a line over it; `kwargs` are those of `extend`."""
        wanted = self.with_line(line)
        how: dict[str, Any] = {"lift_windows": self.lifts_windows, "trained_len": self.trained_len}
        if wanted == self.extension:
            how["mode"] = self.mode
        handle = extend(model, wanted, **{**how, **kwargs})
        for name, value in handle.model.named_parameters():
            kept = self.learned.get(name)
            if kept is not None and kept.shape == value.shape:
                value.data.copy_(kept)
        return handle

    @contextmanager
    def under(self, model: nn.Module, line: Extension, **kwargs: Any) -> Iterator[Handle]:
        """The same for the length of a block."""
        with remove_after(model, lambda: self.put_on(model, line, **kwargs)) as handle:
            yield handle


def extension_of(model: nn.Module) -> TrainedExtension:
    """The extension of a model, with its learned numbers."""
    host = host_of(model)
    handle = handle_of(host)
    if handle is None:
        return TrainedExtension()
    learned = {name: value.detach().clone() for name, value in host.named_parameters() if PREFIX in name}
    return TrainedExtension(handle.extension, handle.lifts_windows, handle.mode, handle.trained_len, learned)


def take_off(model: nn.Module) -> TrainedExtension:
    """Remove the extension of a model and return it."""
    trained, handle = extension_of(model), handle_of(host_of(model))
    if handle is not None:
        handle.remove()
    return trained
