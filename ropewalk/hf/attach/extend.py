"""`extend`: a model under an extension, until it is removed. Only this model's instance changes, and changes back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from ropewalk.errors import Conflict, DoesNotFit, InvalidValue, UnknownName
from ropewalk.extension import Extension
from ropewalk.facts import Facts
from ropewalk.hf.attach.instance_methods import replaced
from ropewalk.hf.attach.rotary_tables import own_writing, require_written, write, writing
from ropewalk.hf.checkpoint import sidecar
from ropewalk.hf.probe.attention_arguments import ASKED
from ropewalk.hf.probe.cache_contents import widened
from ropewalk.hf.probe.checkpoint_schedule import came_with, require_not_restated, what_happens, with_plain_scalings
from ropewalk.hf.probe.facts import corrected, facts_of
from ropewalk.hf.probe.identity import CLOSE as CLOSE
from ropewalk.hf.probe.identity import HALF as HALF
from ropewalk.hf.probe.identity import require_identity
from ropewalk.hf.probe.masks import require_causal
from ropewalk.hf.probe.rotary import ProbedLayer, attention_named, device_of, probe
from ropewalk.hf.runtime.cache_owner import NeverCopied, Owner
from ropewalk.hf.runtime.hooks import ForwardPreHook, closing, numbered, straight
from ropewalk.hf.runtime.layer import ATTRIBUTE, NAME, ExtendedLayer, attached, attention, learned
from ropewalk.parsing import parse_for, stands_instead

HANDLE = "_ropewalk_handle"
TABLES, ATTENTION = "tables", "attention"
WAYS = {
    TABLES: "written into the model's own rotary modules, whose angles are float32; its attention is untouched",
    ATTENTION: "attention of ours in the place of the model's",
}


IDLE = "layers with windows of their own keep them (lift_windows=True lifts them), and others turn nothing"
WIDENED = "attention of ours keeps the keys and values of all heads, where its own cache holds what they are made of"


@dataclass(frozen=True)
class Handle(NeverCopied):
    """An extended model."""

    model: PreTrainedModel
    extension: Extension
    layers: tuple[ExtendedLayer, ...]
    lifts_windows: bool
    undo: ExitStack
    way: str  # TABLES or ATTENTION
    reason: str = ""  # why not by tables
    trained_len: int | None = None  # where somebody corrected the config
    own_schedule: str = ""  # what the checkpoint came with, and what happens to it

    @property
    def facts(self) -> Facts:
        """What the model brings, as its first rotating layer without a window has it."""
        return self.layers[main_layer([own.layer for own in self.layers])].facts

    def __repr__(self) -> str:
        specs = [str(spec) for specs in self.extension.specs.values() for spec in specs]
        idle = f", {' and '.join(self.idle)} in force in no layer" if self.idle else ""
        return f"<{type(self.model).__name__} under {'+'.join(specs) or 'nothing'}, by {self.way}{idle}>"

    @property
    def idle(self) -> tuple[str, ...]:
        """What the extension says and no layer hears, since some keep windows of their own and others never turn."""
        hearing = [own for own in self.layers if not own.left_alone]
        turning = [own for own in hearing if own.layer.rotating]
        heard = {name for own in hearing for name in self.extension.at_layer(own.depth, own.facts).specs}
        deaf = {"positions"} | (heard if turning else heard - {"frequencies"})
        return tuple(name for name in self.extension.specs if name not in deaf)

    def describe(self) -> str:
        """The formula in force, the way it was put in, and how layers differ from it."""
        lines = [self.extension.describe(), "", self.own_schedule, f"by {self.way}: {self.reason or WAYS[self.way]}"]
        for own in self.layers:
            if own.left_alone:
                lines.append(f"layer {own.depth}: left alone, it sees {own.layer.window} keys by itself")
            elif not own.layer.rotating:
                lines.append(f"layer {own.depth}: turns nothing by itself, and still does not")
        lines += [f"{name}: in force in no layer; {IDLE}" for name in self.idle]
        times = widened([own.layer for own in self.layers], self.model.dtype.itemsize)
        if self.way == ATTENTION and times > 1:
            lines.append(f"cache: {times:.3g} times what the model keeps by itself, since {WIDENED}")
        return "\n".join(lines)

    def keep(self, place: Path, state: dict[str, Tensor] | None = None, *, target_len: int | None = None) -> None:
        """Write the extension beside the model's weights, where `load` finds it."""
        lengths = {"target_len": target_len, "trained_len": self.trained_len}
        how = {"lift_windows": self.lifts_windows, "way": self.way, **lengths}
        said = {"extension": self.extension.to_json(), **how}
        sidecar.write(place, said, self.model, self.layers, state)

    def remove(self) -> None:
        """Put everything back. Removing twice is removing once."""
        self.undo.close()


def extend(
    model: nn.Module,
    extension: Extension | str,
    *,
    target_len: int | None = None,
    trained_len: int | None = None,
    lift_windows: bool = False,
    way: str | None = None,
) -> Handle:
    """Put a causal language model under an extension, given as such or as text ("yarn:factor=4+log_n").

    A schedule maps the table that the model came with; with "+instead" it takes the place of the model's own schedule.
    `target_len` is for presets that are told a length; `trained_len` corrects what the config says of the length that
    the model was trained to; `lift_windows` lets the extension rule layers that have a window of their own. `way` is
    "tables" (a static schedule is written into the model's rotary modules) or "attention" (ours takes the place of the
    model's); nothing: tables where they can say it all. Everything is checked before anything is touched, and
    `handle.remove()` leaves no trace.
    """
    host = host_of(model)
    if way not in (None, *WAYS):
        raise UnknownName("way", way, known=WAYS)
    present: Handle | None = host.__dict__.get(HANDLE)
    layers = probe(host) if present is None else [own.layer for own in present.layers]
    trained_len = corrected(host) if trained_len is None else trained_len
    facts = [facts_of(host, layer, len(layers), trained_len) for layer in layers]
    main = facts[main_layer(layers)]
    wanted = _parsed(extension, main, target_len)
    if present is not None:
        same = present.lifts_windows == lift_windows and present.trained_len == trained_len
        if present.extension == wanted and same and way in (None, present.way):
            return present
        raise Conflict("model", "free of another extension", present.extension.to_json(), remedy="remove that first")
    require_steady(layers, wanted)
    if isinstance(extension, str):  # a record was thought over, or written down when it was in force
        require_not_restated(host.config.get_text_config(), extension)
    if wanted.instead:
        layers = with_plain_scalings(host, layers)
    bare, own = attached_all(layers, facts, Extension()), attached_all(layers, facts, wanted, lift_windows)
    said = what_happens(came_with(host.config.get_text_config(), layers, facts), wanted, main, layers)
    way, reason, undo = _entered(EntryPaths(host, bare), wanted, own, target_len, way)
    with undo:
        handle = Handle(host, wanted, tuple(own), lift_windows, ExitStack(), way, reason, trained_len, said)
        host.__dict__[HANDLE] = handle
        undo.callback(host.__dict__.pop, HANDLE)
        undo.enter_context(replaced(host, handle.keep))
        handle.undo.enter_context(undo.pop_all())
    return handle


@contextmanager
def extended(model: nn.Module, extension: Extension | str, **given: Any) -> Iterator[Handle]:
    """`extend` for as long as a block lasts."""
    with removed_after(model, lambda: extend(model, extension, **given)) as handle:
        yield handle


@contextmanager
def removed_after(model: nn.Module, put_on: Callable[[], Handle]) -> Iterator[Handle]:
    """What is put on holds for as long as a block lasts; what was there before the block stays."""
    already = HANDLE in host_of(model).__dict__
    handle = put_on()
    try:
        yield handle
    finally:
        if not already:
            handle.remove()


def host_of(model: nn.Module) -> PreTrainedModel:
    """transformers' model inside whatever wraps it, such as an adapter of peft."""
    inside: Any = model.get_base_model() if hasattr(model, "get_base_model") else model  # type: ignore[operator]
    if not isinstance(inside, PreTrainedModel) or inside.get_output_embeddings() is None:  # type: ignore[no-untyped-call]
        raise InvalidValue("model", "a causal language model of transformers", type(model).__name__)
    return inside


def _parsed(extension: Extension | str, facts: Facts, target_len: int | None) -> Extension:
    if target_len is not None and (isinstance(target_len, bool) or not isinstance(target_len, int)):
        raise InvalidValue("target_len", "a whole number of tokens", target_len)
    if isinstance(extension, str):
        begun = facts.undone if stands_instead(extension) else facts
        require_beyond("target_len", target_len, begun.trained_len)  # before a preset works with it
        extension = parse_for(extension, facts, target_len)
    if not isinstance(extension, Extension):
        raise InvalidValue("extension", "an Extension, or a text such as yarn:factor=4", extension)
    require_beyond("target_len", target_len, extension.ground(facts).trained_len)
    for slot, remedy in (("decoding", "use nbce_generate"), ("surgery", "convert the model first")):
        if getattr(extension, slot):
            raise DoesNotFit(slot, "left to a call of its own", extension.specs[slot][0].name, remedy=remedy)
    extension.check_against(facts)
    return extension


def require_beyond(field: str, target_len: int | None, trained_len: int) -> None:
    """Refuse a length to reach that the model was trained to."""
    if target_len is not None and target_len <= trained_len:
        rule = f"above the trained length ({trained_len})"
        raise DoesNotFit(field, rule, target_len, remedy="within it the model needs no extension")


def require_steady(layers: list[ProbedLayer], wanted: Extension) -> None:
    """Refuse to keep a schedule of the model's own that changes with the length of the whole batch."""
    unsteady = any(layer.varies and layer.beyond is None for layer in layers)
    if unsteady and wanted.frequencies is None and not wanted.instead:
        rule = "given, since the model's own schedule (dynamic) changes with the longest text of a batch"
        raise DoesNotFit("frequencies", rule, None, remedy="add dynamic_ntk, which changes row by row, or another")


def main_layer(layers: Sequence[ProbedLayer]) -> int:
    """The layer whose facts speak for the model: the first that rotates and has no window of its own."""
    free = (index for index, layer in enumerate(layers) if layer.rotating and layer.window is None)
    rotating = (index for index, layer in enumerate(layers) if layer.rotating)
    return next(free, next(rotating, 0))


def require_carried(layers: list[ProbedLayer]) -> None:
    """Refuse what attention of ours would compute otherwise than the model was trained."""
    for index, layer in enumerate(layers):
        what = f"layer {index}"
        if layer.norm_follows and layer.interleaved is None:  # one that turns with its pairs may as well come before
            raise DoesNotFit(what, "one that turns queries and keys last", "a norm after the rotation")
        if layer.interleaved is None:
            raise DoesNotFit(what, "one whose pairs are halves or neighbours", "pairs of another kind")
        if layer.more:
            raise DoesNotFit(what, f"one that asks attention for {ASKED} alone", layer.more)
        if layer.sinks == "":
            raise DoesNotFit(what, "one whose sinks are a parameter of its own, a number a head", "other sinks")


def attached_all(
    layers: list[ProbedLayer], facts: list[Facts], extension: Extension, lift: bool = False
) -> list[ExtendedLayer]:
    """What is in force in each layer."""
    pairs = enumerate(zip(layers, facts, strict=True))
    return [attached(depth, layer, own, extension, lift_windows=lift) for depth, (layer, own) in pairs]


class EntryPaths:
    """The ways into one bare model, each tried when something is to go by it, and once."""

    def __init__(self, host: PreTrainedModel, bare: list[ExtendedLayer]) -> None:
        self.host, self.bare = host, bare
        self._tried: dict[str, DoesNotFit | None] = {}

    def chosen(
        self, wanted: Extension, own: list[ExtendedLayer], target_len: int | None, way: str | None = None
    ) -> tuple[str, str]:
        """The way that an extension goes, and why not the other one; a refusal where it can go by none."""
        reason = "as was asked for"
        if way != ATTENTION:
            try:
                writing(wanted, own, target_len)
                self.require(TABLES)
                return TABLES, ""
            except DoesNotFit as hindrance:
                if way == TABLES:
                    raise
                reason = f"tables will not do, {hindrance}"
        self.require(ATTENTION)
        return ATTENTION, reason

    def require(self, way: str) -> None:
        """Refuse a way by which the model does not stay what it is."""
        if way == ATTENTION:
            require_carried([each.layer for each in self.bare])
        if way not in self._tried:
            try:
                self._try(way)
                self._tried[way] = None
            except DoesNotFit as hindrance:
                self._tried[way] = hindrance
        found = self._tried[way]
        if found is not None:
            raise found

    def _try(self, way: str) -> None:
        if HANDLE in self.host.__dict__:  # it was asked when it was extended; the other way is not tried now
            return
        # transformers' own tables of long texts are of whole batches.
        short = [own.layer.beyond.above for own in self.bare if own.layer.beyond]
        most = min([self.bare[0].facts.trained_len, *short])
        if way == TABLES:
            require_identity(self.host, most, lambda: write(own_writing(self.bare)))
            return
        require_identity(self.host, most, lambda: _by_attention(self.host, Extension(), self.bare))


def _entered(
    ways: EntryPaths, wanted: Extension, own: list[ExtendedLayer], target_len: int | None, way: str | None
) -> tuple[str, str, ExitStack]:
    """The way that was taken, why not the other one, and the way back."""
    taken, reason = ways.chosen(wanted, own, target_len, way)
    if taken == TABLES:
        try:
            return TABLES, "", _by_tables(ways.host, wanted, own, target_len)
        except DoesNotFit as hindrance:
            if way == TABLES:
                raise
            reason = f"tables will not do, {hindrance}"
            ways.require(ATTENTION)
    return ATTENTION, reason, _by_attention(ways.host, wanted, own)


def followed(ways: EntryPaths, extension: Extension, own: list[ExtendedLayer]) -> None:
    """Refuse a model that does not do what is written into its tables, or whose logits are not its own by them."""
    wanted = writing(extension, own, None)
    ways.require(TABLES)
    if HANDLE in ways.host.__dict__:
        return
    with write(wanted):
        require_written(wanted, probe(ways.host))


def _by_tables(
    host: PreTrainedModel, extension: Extension, own: list[ExtendedLayer], target_len: int | None
) -> ExitStack:
    """What is written into the model's own modules, read back, with a watch over its caches."""
    wanted = writing(extension, own, target_len)
    with ExitStack() as undo:
        undo.enter_context(write(wanted))
        require_written(wanted, probe(host))
        base, owner = host.base_model, Owner(extension, TABLES)
        undo.callback(base.register_forward_pre_hook(numbered, with_kwargs=True).remove)
        undo.callback(base.register_forward_pre_hook(owner.before, with_kwargs=True).remove)
        undo.callback(base.register_forward_hook(owner.after).remove)
        undo.callback(owner.leave)
        return undo.pop_all()


def _by_attention(host: PreTrainedModel, extension: Extension, own: list[ExtendedLayer]) -> ExitStack:
    """Everything that changes, with the way back; undone at once where a step fails."""
    with ExitStack() as undo:
        undo.enter_context(attention_named(host, NAME, attention, _mask, _asking(host, own)))
        for each in own:
            each.layer.module.__dict__[ATTRIBUTE] = each
            undo.callback(each.layer.module.__dict__.pop, ATTRIBUTE)
            for name, value in learned(each).items():
                value.data = value.data.to(device_of(host))
                each.layer.module.register_parameter(name, value)
                undo.callback(each.layer.module._parameters.pop, name)
        for module in {each.layer.maker for each in own if each.layer.maker}:
            undo.callback(module.register_forward_hook(straight, with_kwargs=True).remove)
        base: Any = host.base_model
        owner = Owner(extension, ATTENTION)
        undo.callback(owner.leave)
        undo.callback(base.register_forward_pre_hook(ForwardPreHook(base, owner, own), with_kwargs=True).remove)
        undo.callback(base.register_forward_hook(closing, always_call=True).remove)
        return undo.pop_all()


def _asking(host: PreTrainedModel, own: list[ExtendedLayer]) -> list[Any]:
    """The configs of the parts whose attention is ours: what sees images keeps its own."""
    return [host.config.get_text_config(), *(getattr(each.layer.module, "config", None) for each in own)]


@torch.compiler.disable  # type: ignore[untyped-decorator]
def _mask(*, mask_function: Any, attention_mask: Tensor | None = None, **given: Any) -> Tensor | None:
    """The padding as it was given: who sees whom is not a matter of masks here, and no mask says otherwise."""
    require_causal(mask_function, **given)
    return attention_mask
