"""What a model brings, what of it is unfamiliar at a longer length, and which methods apply."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn
from transformers import AutoModelForCausalLM

from ropewalk.attention.retention import retained
from ropewalk.errors import RopewalkError
from ropewalk.extension import Extension
from ropewalk.facts import Facts
from ropewalk.hf.extending import HANDLE, host_of, require_carried
from ropewalk.hf.facts import facts_of
from ropewalk.hf.probe import Layer, probe
from ropewalk.parsing import PRESETS, parse


@dataclass(frozen=True, kw_only=True)
class Inspection:
    """The facts of a model and what follows from them at a target length."""

    facts: Facts
    layers: tuple[Layer, ...]
    target_len: int
    turns: tuple[float, ...]  # of each pair within the trained length
    bytes_per_number: int
    carried: str  # empty, or why this model's attention cannot be replaced
    applying: tuple[str, ...]
    refused: dict[str, str]

    @property
    def unfinished(self) -> int:
        """Pairs that never turn once within the trained length: beyond it they meet angles they have not seen."""
        return sum(each < 1 for each in self.turns)

    def cache_bytes(self, extension: Extension | None = None) -> int:
        """Of keys and values of one text of the target length, where the extension's reach forgets what it can."""
        reach = retained((extension or Extension()).spans)
        kept = self.target_len if reach.last is None else min(self.target_len, reach.first + reach.last)
        total = 0
        for layer in self.layers:
            own = kept if layer.window is None else min(layer.window, self.target_len)
            total += own * layer.groups * (layer.head_dim + layer.value_dim)
        return total * self.bytes_per_number

    def __str__(self) -> str:
        facts, windows = self.facts, [layer.window for layer in self.layers if layer.window is not None]
        still = sum(not layer.rotating for layer in self.layers)
        lines = [
            f"trained on {facts.trained_len} tokens; {len(self.layers)} layers, {facts.heads} heads of {facts.head_dim}"
            f" over {facts.groups} of keys",
            f"turns {facts.rotating} of {facts.head_dim} dimensions by base {facts.base:g}, pairs are "
            + ("neighbours" if facts.interleaved else "halves"),
            f"{len(windows)} layers have a window of their own ({sorted(set(windows))}), {still} turn nothing",
            f"{self.unfinished} of {len(self.turns)} pairs never turn once within the trained length; the slowest"
            f" turns {min(self.turns, default=0):.3g} times there and {self._slowest_at_target():.3g} at the target",
            f"cache at {self.target_len}: {_mebibytes(self.cache_bytes())} a text, all keys kept",
            f"extensions: {self.carried or 'all of this mechanism'}",
            "apply: " + ", ".join(self.applying),
            *(f"  not {name}: {reason}" for name, reason in self.refused.items()),
        ]
        return "\n".join(lines)

    def _slowest_at_target(self) -> float:
        return min(self.turns, default=0.0) * self.target_len / self.facts.trained_len


def inspect(model: nn.Module | str | Path, *, target_len: int | None = None) -> Inspection:
    """Look at a model, or at one in a folder, with a longer length in mind, or with eight times the trained one."""
    loaded: Any = model if isinstance(model, nn.Module) else AutoModelForCausalLM.from_pretrained(model)
    host = host_of(loaded)
    handle = host.__dict__.get(HANDLE)
    layers = [own.layer for own in handle.layers] if handle else probe(host)
    main = next((layer for layer in layers if layer.rotating and layer.window is None), layers[0])
    facts = facts_of(host, main, len(layers))
    length = target_len or 8 * facts.trained_len
    applying, refused = _methods(facts, length)
    return Inspection(
        facts=facts,
        layers=tuple(layers),
        target_len=length,
        turns=tuple(facts.trained_len * theta / (2 * math.pi) for theta in main.inv_freq),
        bytes_per_number=host.dtype.itemsize,
        carried=_hindrance(layers),
        applying=tuple(applying),
        refused=refused,
    )


def _hindrance(layers: list[Layer]) -> str:
    try:
        require_carried(layers)
    except RopewalkError as reason:
        return f"static schedules only, by its config: {reason}"
    return ""


def _methods(facts: Facts, target_len: int) -> tuple[list[str], dict[str, str]]:
    """The presets that fit with their own values, and why the others do not."""
    applying, refused = [], {}
    for name in PRESETS:
        try:
            parse(name, trained_len=facts.trained_len, target_len=target_len, layers=facts.layers).check_against(facts)
            applying.append(name)
        except RopewalkError as reason:
            refused[name] = str(reason)
    return applying, refused


def _mebibytes(count: int) -> str:
    return f"{count / 2**20:,.1f} MiB"
