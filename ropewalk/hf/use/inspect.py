"""The facts of a model, what is unfamiliar to it at a longer length, and which methods apply."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import Any, cast

from torch import nn

from ropewalk.errors import DoesNotFit, InvalidValue, RopewalkError
from ropewalk.extension.extension import Extension
from ropewalk.extension.presets.arguments import require_whole
from ropewalk.extension.slots import PER_LAYER
from ropewalk.files import holds
from ropewalk.hf.attach.extend import Modes, attach_layers, why_not_rotated
from ropewalk.hf.attach.handle import (
    ATTENTION,
    FULL_KEYS,
    UNUSED,
    WEIGHTED,
    handle_of,
    host_of,
    idle_slots,
    main_layer,
    stated_slots,
)
from ropewalk.hf.checkpoint.closed_config import SIDECAR, is_adapter
from ropewalk.hf.checkpoint.fetch import TRUST, fetch_config
from ropewalk.hf.load_options import AUTO, UNSTATED, LoadOptions, require_named, require_plausible
from ropewalk.hf.probe.facts import EXPORTED, correct, facts_of, own_schedule_of
from ropewalk.hf.probe.probe import known
from ropewalk.hf.probe.probed_layer import ProbedLayer, cache_growth
from ropewalk.hf.use.advice import Advice, advise, kept_bytes, numbers_held
from ropewalk.hf.use.save import load
from ropewalk.hf.use.stand_in import stand_in
from ropewalk.methods.facts import Facts
from ropewalk.methods.frequencies import Interpolation
from ropewalk.models import path_of

TERMINAL_WIDTH = 80
PAIRS_SHOWN = 9  # pairs in the table
OF_CONFIGS = {TRUST, "revision"}  # keywords that do not ask for weights
NEEDS = {
    "nothing": "no training",
    "tuning": "short fine-tuning",
    "training": "trained from scratch with it",
}
WHICH = "`ropewalk show NAME` explains one of them, and `ropewalk compare MODEL` measures which helps."
BY = {"convert": " (rw.convert)", "nbce_generate": " (several contexts)"}

STATIC = Extension(frequencies=Interpolation(factor=1))  # any static schedule


@dataclass(frozen=True, kw_only=True, repr=False)
class Inspection:
    """The facts of a model, and what follows from them at a target length."""

    facts: Facts
    layers: tuple[ProbedLayer, ...]
    layer_facts: tuple[Facts, ...]
    target_len: int
    turns: tuple[float, ...]  # of every pair within the trained length
    bytes_per_number: int
    own_schedule: str  # the schedule that the checkpoint came with; empty: plain RoPE
    fixed_bytes: int  # of its cache at any length: the states of layers without attention
    exported: str = ""  # empty, or how `ropewalk export` stretched the checkpoint
    tabled: str = ""  # empty, or why a static schedule cannot go into its rotary tables
    carried: str = ""  # empty, or why its attention cannot be replaced
    methods: tuple[Advice, ...] = ()  # none where only sizes were asked for

    @property
    def applying(self) -> tuple[str, ...]:
        """The presets that apply to this model."""
        return tuple(advice.name for advice in self.methods if advice.applies)

    @property
    def refused(self) -> dict[str, str]:
        """Why the others do not apply."""
        return {advice.name: advice.why_not for advice in self.methods if not advice.applies}

    @property
    def under_trained(self) -> tuple[int, ...]:
        """Pairs that never complete a full turn within the trained length, and meet unseen angles beyond it."""
        return tuple(pair for pair, turns in enumerate(self.turns) if 0 < turns < min(1.0, turns * self._longer))

    @property
    def _longer(self) -> float:
        return self.target_len / self.facts.trained_len

    def cache_bytes(self, extension: Extension | None = None) -> int:
        """The bytes of the cache for one text of the target length: the model's own, or that under an extension."""
        if extension is None:
            return kept_bytes(self.layers, self.target_len, self.bytes_per_number) + self.fixed_bytes
        return (
            numbers_held(self.layers, extension, self.facts, self.target_len) * self.bytes_per_number + self.fixed_bytes
        )

    def idle(self, extension: Extension, *, lift_windows: bool = False) -> tuple[str, ...]:
        """The slots of an extension that no layer of this model would use."""
        layers, facts = list(self.layers), list(self.layer_facts)
        return idle_slots(extension, attach_layers(layers, facts, extension, lift_windows))

    def changes_nothing(self, extension: Extension) -> bool:
        """Whether an extension has methods, and no layer of this model would use one."""
        stated = stated_slots(extension)
        outside = any(name not in PER_LAYER for name in stated)
        return bool(stated) and not outside and set(self.idle(extension)) == set(stated)

    def to_json(self) -> dict[str, Any]:
        """Everything, as JSON."""
        facts = self.facts
        return {
            "trained_len": facts.trained_len,
            "target_len": self.target_len,
            "layers": len(self.layers),
            "heads": facts.heads,
            "kv_heads": facts.groups,
            "head_dim": facts.head_dim,
            "rotary_dim": facts.rotating,
            "base": facts.base,
            "own_schedule": self.own_schedule,
            "windows": [layer.window for layer in self.layers],
            "chunks": [layer.chunk for layer in self.layers],
            "turns_trained": list(self.turns),
            "turns_at_target": [turns * self._longer for turns in self.turns],
            "under_trained": list(self.under_trained),
            "cache_bytes": self.cache_bytes(),
            "tabled": self.tabled,
            "carried": self.carried,
            "methods": [{**advice._asdict(), "applies": advice.applies} for advice in self.methods],
        }

    def __repr__(self) -> str:
        lengths = f"trained on {self.facts.trained_len:,} tokens, inspected for {self.target_len:,}"
        count = f"{len(self.applying)} of {len(self.methods)} presets apply"
        return f"<Inspection: {lengths}, {count}; print it for everything>"

    def _repr_html_(self) -> str:
        summary = escape(repr(self)[1:-1].partition(";")[0])
        return f"<details><summary>{summary}</summary><pre>{escape(str(self))}</pre></details>"

    def __str__(self) -> str:
        return "\n\n".join(["\n".join(self._model()), "\n".join(self._pairs()), "\n".join(self._applying())])

    def _model(self) -> list[str]:
        """A row for each fact; a row without a text is left out."""
        facts = self.facts
        heads = f"{facts.heads} query heads and {facts.groups} key heads of {facts.head_dim}"
        numbers = f"({self.bytes_per_number} bytes a number), without an extension"
        rows = {
            "trained on": f"{facts.trained_len:,} tokens",
            "exported": self.exported,
            "target length": f"{self.target_len:,} tokens, {self._compared}",
            "layers": f"{len(self.layers)}, with {heads}",
            **self._exceptions(),
            "rotation": self._rotation(),
            "norms": WEIGHTED if facts.weighted else "",
            "sinks": "a learned sink per head" if facts.sinks else "",
            "cap": f"attention logits are capped at {facts.softcap:g}" if facts.softcap else "",
            "its own schedule": self._own_schedule() if self.own_schedule else "",
            "static schedules": self.tabled or "by rotary tables; the model's attention is unchanged",
            "other extensions": self.carried or "by Ropewalk's attention",
            "cache at the target": f"{_size(self.cache_bytes())} per text {numbers}",
            "Ropewalk's cache": self._growth(),
        }
        return [line for name, text in rows.items() if text for line in _row(name, text)]

    @property
    def _compared(self) -> str:
        return f"{self._longer:.3g} times as many" if self._longer > 1 else "within the trained length"

    def _exceptions(self) -> dict[str, str]:
        """Layers that do not rotate, or do not see the whole text."""
        still = sum(not layer.rotating for layer in self.layers)
        chunks = [layer.chunk for layer in self.layers if layer.chunk is not None]
        windows = [layer.window for layer in self.layers if layer.window is not None]
        sizes = ", ".join(map(str, sorted(set(windows))))
        chunked = f"{_layers(len(chunks))} chunks of {max(chunks)} tokens, which extensions keep" if chunks else ""
        windowed = f"{_layers(len(windows))} a window (of {sizes} tokens), which extensions keep" if windows else ""
        return {
            "no rotation": f"{still} {'layer does' if still == 1 else 'layers do'} not rotate" if still else "",
            "chunks": chunked,
            "windows": windowed,
        }

    def _growth(self) -> str:
        times = cache_growth(self.layers, self.bytes_per_number)
        return f"{times:.3g} times as much, because {FULL_KEYS}" if times > 1 and not self.carried else ""

    def _rotation(self) -> str:
        facts, pairs = self.facts, "neighbours" if self.facts.interleaved else "halves"
        turned = f"{facts.rotating} of {facts.head_dim} dimensions, base {facts.base:g}, pairs are {pairs}"
        return turned if any(self.turns) else "none"

    def _own_schedule(self) -> str:
        builds = "; schedules build on it; add +instead to replace it"
        return f"{self.own_schedule}{builds if any(self.turns) else '; +instead rotates again'}"

    def _pairs(self) -> list[str]:
        count, few = len(self.turns), self.under_trained
        if not any(self.turns):
            return ["No layer rotates its queries and keys."]
        lines = [f"rotations per pair: trained on {self.facts.trained_len:,} tokens, in a text of {self.target_len:,}"]
        lines += [f"{'pair':>6}{'in training':>16}{'in the text':>16}"]
        step = max((count - 1) // (PAIRS_SHOWN - 1), 1)
        for pair in dict.fromkeys([*range(0, count, step), *([count - 1] if count else [])]):
            seen = "   under-trained" if pair in few else ""
            lines.append(f"{pair:>6}{self.turns[pair]:>16,.3g}{self.turns[pair] * self._longer:>16,.3g}{seen}")
        if few:
            said = f"{len(few)} of {count} pairs ({few[0]} to {few[-1]}) never complete a full turn in"
            beyond = "beyond that length they meet angles that the model has never seen"
            lines += _wrap(f"{said} {self.facts.trained_len:,} tokens: {beyond}.")
        elif any(0 < turns < 1 for turns in self.turns):
            lines += _wrap("No pair meets an angle in this text that it does not meet in training.")
        else:
            lines += _wrap("Every rotating pair completes a full turn within the trained length.")
        still = sum(turns == 0 for turns in self.turns)
        lines += _wrap(f"{still} pairs do not rotate, by the model's design.") if still else []
        return lines

    def _applying(self) -> list[str]:
        lines: list[str] = []
        for needs, words in NEEDS.items():
            lines += self._by_cache(words, [one for one in self.methods if one.applies and one.needs == needs])
        lines += _wrap(WHICH) if lines else []
        lines += self._idle()
        reasons = dict.fromkeys(self.refused.values())
        lines += ["do not apply:"] if reasons else []
        for reason in reasons:
            names = ", ".join(name for name, why in self.refused.items() if why == reason)
            lines += [*_wrap(names, "  "), *_wrap(reason, "      ")]
        return lines

    def _by_cache(self, words: str, group: list[Advice]) -> list[str]:
        """The methods of a group, those with the smallest cache first."""
        names: dict[str, list[str]] = {}
        for advice in sorted(group, key=lambda one: one.cache_bytes):
            names.setdefault(_size(advice.cache_bytes), []).append(advice.name + BY.get(advice.by, ""))
        lines = [f"{words}, by size of the cache:"] if names else []
        for size, of_size in names.items():
            first, *rest = textwrap.wrap(", ".join(of_size), TERMINAL_WIDTH - 14)
            lines += [f"{size:>12}  {first}", *(f"{'':14}{line}" for line in rest)]
        return lines

    def _idle(self) -> list[str]:
        """What applies and is used by no layer, in whole or in part."""
        names: dict[str, list[str]] = {}
        for advice in self.methods:
            for slot in advice.idle:
                names.setdefault(slot, []).append(advice.name)
        rows = [f"{slot} of {', '.join(of_slot)}" for slot, of_slot in names.items()]
        reason = _wrap(f"{UNUSED}.", "      ")
        return ["used in no layer:", *(line for row in rows for line in _wrap(row, "  ")), *reason] if rows else []


def inspect(
    model: nn.Module | str | Path,
    *,
    target_len: int | None = None,
    trained_len: int | None = None,
    options: LoadOptions = UNSTATED,
    **kwargs: Any,
) -> Inspection:
    """Look at a model: its layers, their cache, and which methods apply at a target length.

        print(rw.inspect("model", target_len=32768))

    Weights are loaded only where the config does not say everything.

    Args:
        model: a loaded model, a folder, default, a name on the hub, a GGUF file or a config.json.
        target_len: in tokens; by default eight times the trained length.
        trained_len: in tokens; corrects the trained length of the config.
        options: how a model is loaded by its name.
        kwargs: of transformers' from_pretrained, for a model given by its name; they come before `options`.

    Returns:
        An `Inspection`: `str` is a page of text, `to_json()` the same for programs.
    """
    if kwargs and isinstance(model, nn.Module):
        name = next(iter(kwargs))
        sentence = f"{name} applies only to a model given by name, and this one is already loaded"
        raise InvalidValue.because(name, sentence, remedy="leave it out")
    model = path_of(model) if isinstance(model, str) else model
    require_named(model, options)
    host = host_of(model if isinstance(model, nn.Module) else _read(model, options, kwargs))
    inspection, modes = _sizes(host, target_len, trained_len)
    return replace(
        inspection,
        tabled=str(_why_not_tables(modes, inspection.layer_facts) or ""),
        carried=str(modes.why_not(ATTENTION) or ""),
        methods=tuple(advise(modes, inspection.facts, inspection.target_len, inspection.fixed_bytes)),
    )


def sizes(
    model: nn.Module | str | Path, *, target_len: int | None = None, options: LoadOptions = UNSTATED
) -> Inspection:
    """What `inspect` says of a model's layers and their cache; trying which methods apply takes seconds more."""
    return _sizes(host_of(model if isinstance(model, nn.Module) else _read(model, options, {})), target_len, None)[0]


def _sizes(host: Any, target_len: int | None, trained_len: int | None) -> tuple[Inspection, Modes]:
    handle = handle_of(host)
    layers = [layer.probed for layer in handle.layers] if handle else known(host).layers
    trained_len = handle.trained_len if handle and trained_len is None else trained_len
    every = [facts_of(host, layer, len(layers), trained_len) for layer in layers]
    main = layers[main_layer(layers)]
    facts = every[main_layer(layers)]
    require_whole("target_len", target_len)
    inspection = Inspection(
        facts=facts,
        layers=tuple(layers),
        layer_facts=tuple(every),
        target_len=target_len or 8 * facts.trained_len,
        turns=tuple(facts.trained_len * theta / (2 * math.pi) for theta in main.inv_freq),
        bytes_per_number=host.dtype.itemsize,
        own_schedule=own_schedule_of(host.config.get_text_config(), layers, every),
        fixed_bytes=next((layer.cached.fixed for layer in layers if layer.cached), 0),
        exported=_exported(host.config.get_text_config(), facts.trained_len),
    )
    return inspection, Modes(host, attach_layers(layers, every, Extension()))


def _read(model: str | Path, options: LoadOptions, kwargs: dict[str, Any]) -> nn.Module:
    """A model by name: made from its config alone, where that says everything."""
    place = Path(model)
    require_plausible(str(model), config_is_enough=True)
    of_weights = set(kwargs) - OF_CONFIGS or (options.dtype, options.device) != (AUTO, "")
    if not of_weights and not is_adapter(place) and not holds((place / SIDECAR).is_file):
        config = fetch_config(model, options, **kwargs)
        with suppress(DoesNotFit):
            stand: Any = stand_in(config)
            correct(stand, options.trained_len)
            return cast(nn.Module, stand)
    return load(model, options=options, **kwargs)


def _why_not_tables(modes: Modes, every: Sequence[Facts]) -> RopewalkError | None:
    """Why a model's rotary tables cannot hold a static schedule; None where they can."""
    layers = [layer.probed for layer in modes.base]
    if reason := why_not_rotated(layers, STATIC, every):
        return reason
    try:
        under = attach_layers(layers, every, STATIC)
    except RopewalkError as refused:  # by the method, of this model
        return refused
    return modes.why_not_followed(STATIC, under)


def _exported(text: Any, trained_len: int) -> str:
    """What an export noted, where the config states the length that it was for as the trained one."""
    match getattr(text, EXPORTED, None):
        case {"trained_len": int(before), "target_len": int(target), "methods": str(methods)} if before < trained_len:
            return (
                f"with {methods} for {target:,} tokens; the model was trained on {before:,}."
                f" If it was not trained on more since, inspect it with --trained-len {before}"
            )
    return ""


def _layers(count: int) -> str:
    return "1 layer has" if count == 1 else f"{count} layers have"


def _row(name: str, text: str) -> list[str]:
    first, *rest = textwrap.wrap(text, TERMINAL_WIDTH - 22)
    return [f"{name:<22}{first}", *(f"{'':<22}{line}" for line in rest)]


def _wrap(text: str, indent: str = "") -> list[str]:
    return textwrap.wrap(text, TERMINAL_WIDTH, initial_indent=indent, subsequent_indent=indent)


def _size(count: int) -> str:
    """In the unit that leaves few digits."""
    unit = min(max(count.bit_length() - 1, 0) // 10, 4)
    return f"{count / 1024**unit:,.1f} {('B', 'KiB', 'MiB', 'GiB', 'TiB')[unit]}"
