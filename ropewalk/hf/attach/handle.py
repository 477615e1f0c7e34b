"""The handle of an extended model: what `extend` returns, and what `handle_of` finds on a model later."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from transformers import PreTrainedModel

from ropewalk.attention.layout.retention import sees_everything
from ropewalk.errors import InvalidValue
from ropewalk.extension.extension import Extension
from ropewalk.extension.slots import SLOTS
from ropewalk.hf.attach.tables import chooser_edit
from ropewalk.hf.checkpoint import sidecar
from ropewalk.hf.probe.host import CHANGES, Forwards
from ropewalk.hf.probe.probed_layer import ProbedLayer, cache_growth
from ropewalk.hf.runtime.caches import NeverCopied
from ropewalk.hf.runtime.layer import ExtendedLayer
from ropewalk.methods.facts import Facts
from ropewalk.methods.frequencies import NoPE

_HANDLE = "_ropewalk_handle"  # of a model under an extension

# How an extension is applied to a model.
TABLES, ATTENTION = "tables", "attention"
MODES = (TABLES, ATTENTION)

DISTANCES = ("frequencies", "reach", "positions")  # the slots that decide at which distance a key is seen
UNUSED = (
    "windowed layers keep their windows (lift_windows=True lifts them), and other layers do not rotate, so that"
    " distances change nothing there"
)
WEIGHTED = "weights of norms come after the rotation: logits depend on the positions themselves, not on distances alone"
OVER_HEAD = "over=head multiplies the whole logit, as in the paper"
REPEATED = "cache: the model's own, which forgets nothing, because modules attend several times in one forward"
FULL_KEYS = (
    "Ropewalk's attention caches the keys and values of all heads, while the model caches what they are computed from"
)


@dataclass(frozen=True)
class Handle(NeverCopied):
    """A model under an extension: `describe()` says what is in force, `remove()` restores the model."""

    model: PreTrainedModel
    extension: Extension
    layers: tuple[ExtendedLayer, ...]
    lifts_windows: bool
    undo: ExitStack
    mode: str  # TABLES or ATTENTION
    reason: str = ""  # why not TABLES
    trained_len: int | None = None  # where the caller corrected the config
    own_schedule: str = ""  # the schedule that the checkpoint came with, and what happens to it
    target_len: int | None = None  # the length to reach, where the caller named it
    forwards: Forwards = field(default_factory=Forwards)  # that run under it
    blocks: list[None] = field(default_factory=list)  # of `extended`, where no call of `extend` put it on

    @property
    def facts(self) -> Facts:
        """The facts of the model: those of its first rotating layer without a window."""
        return main_facts(self.layers)

    def __repr__(self) -> str:
        specs = [str(spec) for specs in self.extension.specs.values() for spec in specs]
        idle = f", {' and '.join(self.idle)} used in no layer" if self.idle else ""
        return f"<{type(self.model).__name__} under {'+'.join(specs) or 'no extension'}, mode {self.mode}{idle}>"

    @property
    def idle(self) -> tuple[str, ...]:
        """The slots that no layer uses, because some layers keep their windows and others do not rotate."""
        return idle_slots(self.extension, self.layers)

    def describe(self) -> str:
        """The formula in force, how it is applied, and which layers differ."""
        lines = [self.extension.describe(), "", self.own_schedule, self._applied(), *self._warmed()]
        for layer in self.layers:
            if layer.left_alone:
                lines.append(f"layer {layer.depth}: unchanged, it keeps its {own_reach(layer.probed)}")
            elif not layer.probed.rotating:
                lines.append(f"layer {layer.depth}: does not rotate, with or without the extension")
        lines += [f"{name}: used in no layer; {UNUSED}" for name in self.idle]
        if self.mode == ATTENTION and any(layer.facts.weighted for layer in self.layers):
            lines.append(WEIGHTED)
        if self.mode == ATTENTION and any(layer.probed.slots for layer in self.layers):
            lines.append(REPEATED)
        times = cache_growth([layer.probed for layer in self.layers], self.model.dtype.itemsize)
        if self.mode == ATTENTION and any(layer.probed.own_mask for layer in self.layers):
            lines += self._chosen()
        if self.mode == ATTENTION and times > 1:
            lines.append(f"cache: {times:.3g} times the model's usual size, because {FULL_KEYS}")
        return "\n".join(lines)

    def _warmed(self) -> list[str]:
        """What a temperature of the rotation multiplies, where that is not the whole logit."""
        names = ", ".join(spec.name for spec in self.extension.scales if spec.of_rotation)
        turning = [layer.probed for layer in self.layers if layer.probed.rotating and not layer.left_alone]
        if not names or not turning:
            return []
        if turning[0].norm_follows:
            return [f"{names}: a norm after the rotation undoes it, as in transformers ({OVER_HEAD})"]
        if turning[0].rotating == turning[0].head_dim:
            return []
        some = f"the {turning[0].rotating} of {turning[0].head_dim} dimensions that rotate"
        return [f"{names}: multiplies {some}, as in transformers and engines ({OVER_HEAD})"]

    def _chosen(self) -> list[str]:
        """Which layers make masks of their own, how they choose, and what that costs."""
        depths = ", ".join(str(layer.depth) for layer in self.layers if layer.probed.own_mask)
        as_trained = chooser_edit(self.extension, self.layers) is None
        tables = "the model's own tables, as trained" if as_trained else "the tables of the schedule"
        return [
            f"layers {depths}: choose keys or make masks by themselves, among the keys that the reach shows; "
            f"what rotates for that uses {tables}",
            "cache: the model's own, of all tokens, because these layers choose among them",
        ]

    def _applied(self) -> str:
        if self.mode == TABLES:
            return "applied through the model's rotary tables (angles in float32); the model's attention is unchanged"
        return f"applied by Ropewalk's attention: {self.reason}"

    def keep(self, place: Path, state: dict[str, Tensor] | None = None, *, target_len: int | None = None) -> None:
        """Write the sidecar into the folder of the model's weights, where `load` finds it."""
        lengths = {"target_len": target_len or self.target_len, "trained_len": self.trained_len}
        how = {"lift_windows": self.lifts_windows, "mode": self.mode, **lengths}
        sidecar.write(place, self.extension, how, self.model, self.layers, state)

    def remove(self) -> None:
        """Restore the model, once forwards of other threads have ended. Removing twice is the same as removing once."""
        with CHANGES:
            self.forwards.close()
            self.undo.close()


def stated_slots(extension: Extension) -> list[str]:
    """The slots that an extension fills, in the whole model or in a layer."""
    filled = {name for part in extension.parts for name in part.specs}
    return [name for name in SLOTS if name in filled]


def idle_slots(extension: Extension, layers: Sequence[ExtendedLayer]) -> tuple[str, ...]:
    """The slots of an extension whose content changes nothing in any of these layers, which are under it."""
    used = {name for layer in layers for name in _used_slots(extension.at_layer(layer.depth, layer.facts), layer)}
    return tuple(name for name in stated_slots(extension) if name not in used)


def _used_slots(local: Extension, layer: ExtendedLayer) -> set[str]:
    """The slots that change a layer: where nothing depends on distances, renumbering keys changes nothing."""
    if layer.left_alone:
        return set()
    rotates = bool(layer.probed.rotating) and (local.replaces_scaling or not layer.probed.stands_still)
    stated = {name for part in local.parts for name in part.specs}
    used = {name for name in stated if name not in DISTANCES} | ({"frequencies"} if rotates else set())
    if not layer.probed.rotating and all(spec.of_rotation for spec in local.scales):
        used.discard("scales")
    if layer.keeps_window:  # its schedule alone is replaced
        return used & {"frequencies", "scales"}
    turns = rotates and not isinstance(layer.extension.frequencies_or_rope, NoPE)
    hides = not sees_everything(local)
    return used | ({"reach", "positions"} if turns or hides or local.biases else set())


def handle_of(model: nn.Module) -> Handle | None:
    """The handle of the extension that a model is under, through wrappers such as peft's; None without an extension.

    A model is under the extension of its language model, and the other way round.
    """
    parts = _models(host_of(model, head=False))
    return next((part.__dict__[_HANDLE] for part in parts if _HANDLE in part.__dict__), None)


def _models(model: PreTrainedModel) -> Iterator[PreTrainedModel]:
    """A model and those inside it, without their layers: this is asked for every token of a stream."""
    yield model
    for part in model.children():
        if isinstance(part, PreTrainedModel):
            yield from _models(part)


def attach_handle(handle: Handle, base: PreTrainedModel) -> ExitStack:
    """Store the handle on its model and on the part that reads texts; closing what is returned takes it off."""
    undo = ExitStack()
    for part in {id(part): part for part in (handle.model, base)}.values():
        part.__dict__[_HANDLE] = handle
        undo.callback(part.__dict__.pop, _HANDLE)
    return undo


def host_of(model: nn.Module, *, head: bool = True) -> PreTrainedModel:
    """The transformers model inside a wrapper, such as a peft adapter, or the model itself; without `head` it may be
    the language model inside another."""
    inside: Any = model.get_base_model() if hasattr(model, "get_base_model") else model  # type: ignore[operator]
    if not isinstance(inside, PreTrainedModel) or (head and inside.get_output_embeddings() is None):  # type: ignore[no-untyped-call]
        remedy = "pass the whole model, with its output head" if isinstance(inside, PreTrainedModel) else ""
        raise InvalidValue("model", "a causal language model of transformers", type(model).__name__, remedy=remedy)
    return inside


def own_reach(layer: ProbedLayer) -> str:
    """The window or the chunks of a layer, in words."""
    return f"window of {layer.window} keys" if layer.chunk is None else f"chunks of {layer.chunk} tokens"


def main_facts(layers: Sequence[ExtendedLayer]) -> Facts:
    """The facts that stand for the model."""
    return layers[main_layer([layer.probed for layer in layers])].facts


def main_layer(layers: Sequence[ProbedLayer]) -> int:
    """The layer whose facts stand for the model: the first that rotates and sees the whole text."""
    free = (index for index, layer in enumerate(layers) if layer.rotating and layer.limit is None)
    rotating = (index for index, layer in enumerate(layers) if layer.rotating)
    return next(free, next(rotating, 0))
