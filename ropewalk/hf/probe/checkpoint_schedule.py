"""The schedule that a checkpoint came with: its two tables where it has two, its scaling without it, its name."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from transformers import PreTrainedModel

from ropewalk.errors import Conflict, DoesNotFit
from ropewalk.extension import Extension
from ropewalk.facts import Facts
from ropewalk.frequencies import Frequencies, Table
from ropewalk.hf.probe.facts import CLOSE, lengths_of, parts_of
from ropewalk.hf.probe.rotary import ProbedLayer
from ropewalk.parsing import Line, read_line

# What of a config's rope parameters says a schedule. All else is the model's layout: bases, shares, sections.
SCHEDULE = frozenset(
    (
        *("type", "rope_type", "factor", "original_max_position_embeddings", "alpha", "truncate"),
        *("beta_fast", "beta_slow", "low_freq_factor", "high_freq_factor", "short_factor", "long_factor"),
        *("attention_factor", "attn_factor", "mscale", "mscale_all_dim", "short_mscale", "long_mscale"),
    )
)
SAME = {"linear": ("pi", "interpolation"), "yarn": ("yarn", "by_parts"), "llama3": ("llama3",)}  # what a type is here
RESTATED = "leave it out to keep that; add +instead to replace it by the method's own values; or say how long (--to)"
LAYOUTS = ("proportional", "axial")  # types that say which dimensions turn


@dataclass(frozen=True, kw_only=True)
class TwoTables(Frequencies):
    """A schedule on a model with one table for short texts and one for long ones, such as Phi-3: it maps the row's own.

    transformers takes the one or the other for a whole batch, by its longest text; here it belongs to the row.
    """

    name = "own_tables_for_short_and_long_texts"
    inner: Frequencies
    above: int
    long_inv_freq: tuple[float, ...]

    def check_against(self, facts: Facts) -> None:
        self.inner.check_against(facts)

    def table(self, facts: Facts, length: int) -> Table:
        return self.inner.table(facts if length <= self.above else replace(facts, inv_freq=self.long_inv_freq), length)

    def stages(self, facts: Facts, length: int) -> tuple[int, ...]:
        starts = set(self.inner.stages(facts, length))
        return tuple(sorted(starts | {self.above + 1} if length > self.above else starts))

    @property
    def stretch(self) -> float:
        return self.inner.stretch


def on_own_tables(schedule: Frequencies, layer: ProbedLayer) -> Frequencies:
    """A schedule as it applies to this layer's own table, or to both of them."""
    if layer.long_table is None:
        return schedule
    if abs(layer.long_table.temperature - layer.temperature) > 1e-6 * layer.temperature:
        rule = "one for short and long texts, or replaced"
        raise DoesNotFit("the model's own temperature", rule, layer.long_table.temperature, remedy="add +instead")
    return TwoTables(inner=schedule, above=layer.long_table.above, long_inv_freq=layer.long_table.inv_freq)


def without_schedule(parameters: dict[str, Any]) -> dict[str, Any]:
    """A config's rope parameters as they would be had the model never been stretched."""
    if any(isinstance(part, dict) for part in parameters.values()):
        return {kind: without_schedule(part) if isinstance(part, dict) else part for kind, part in parameters.items()}
    layout = {name: value for name, value in parameters.items() if name not in SCHEDULE}
    kind = parameters.get("rope_type")
    return {**layout, "rope_type": kind if kind in LAYOUTS else "default"}


def with_plain_scalings(host: PreTrainedModel, layers: Sequence[ProbedLayer]) -> list[ProbedLayer]:
    """The layers with the scaling that each would have without the model's own schedule, which may be part of it.

    The model's own code is asked: it makes the same model, on no device, from a config without the schedule.
    """
    config = copy.deepcopy(host.config)
    text = config.get_text_config()
    text.rope_parameters = without_schedule(text.rope_parameters or {})
    with torch.device("meta"):
        twin = dict(type(host)(config).named_modules())
    names = {module: name for name, module in host.named_modules()}
    scalings = [twin[names[layer.module]].__dict__.get("scaling", layer.scaling) for layer in layers]
    return [layer._replace(plain_scaling=float(each)) for layer, each in zip(layers, scalings, strict=True)]


def own_schedule_of(config: Any, layers: Sequence[ProbedLayer], facts: Sequence[Facts]) -> str:
    """The schedule that a model came with, in a line; empty where it turns as RoPE does."""
    parts, every = parts_of(config), zip(layers, facts, strict=True)
    found = [
        _named(parts.get(layer.layer_type or "") or next(iter(parts.values())), layer, own) for layer, own in every
    ]
    turning = [said for said, layer in zip(found, layers, strict=True) if layer.rotating]
    kinds = [said for said in dict.fromkeys(turning) if said]
    some = " in some layers" if kinds and "" in turning else ""
    return " and ".join(f"{said}{some}" for said in kinds)


def is_stretched(layer: ProbedLayer, facts: Facts) -> bool:
    """Whether a layer came with a schedule: a table that is not its base's, a temperature, or both by length."""
    if layer.temperature != 1 or layer.varies:
        return True
    plain = facts.undone.inv_freq  # with the pairs that stand still by the model's layout
    if facts.inv_freq is None or plain is None:
        return facts.inv_freq is not None
    return any(abs(own - theta) > CLOSE * theta for own, theta in zip(facts.inv_freq, plain, strict=True))


def _named(part: dict[str, Any], layer: ProbedLayer, facts: Facts) -> str:
    """The schedule of one layer: the config's word for it where the layer has one, with its factor and lengths."""
    if not is_stretched(layer, facts):
        return ""
    kind = part.get("rope_type", "default")
    if layer.long_table is not None:
        kind += f", one table up to {layer.long_table.above:,} tokens and another beyond (each row takes its own, where"
        kind += " transformers takes one for the whole batch)"
    elif layer.varies:
        return f"{kind} scaling beyond {facts.trained_len:,} tokens"
    factor = f", factor {part['factor']:g}" if part.get("factor", 1) != 1 else ""
    lengths = f" ({facts.original_len:,} to {facts.trained_len:,} tokens)" if facts.original_len else ""
    mscale = f", mscale_all_dim {part['mscale_all_dim']:g}" if part.get("mscale_all_dim") else ""
    return "a table of its own" if kind == "default" else f"{kind}{factor}{lengths}{mscale}"


def require_not_restated(config: Any, text: str | Line) -> None:
    """Refuse a line that states the checkpoint's own schedule once more: it would stretch what is stretched already."""
    line = read_line(text) if text else None
    terms = () if line is None or line.instead else line.terms
    for part in parts_of(config).values():
        names, factor = SAME.get(str(part.get("rope_type")), ()), part.get("factor", 1)
        said = (term.name for term in terms if term.values.get("factor") == factor)
        again = next((name for name in said if name.removeprefix("frequencies.") in names), None)
        if again is not None:
            own = f"{part['rope_type']} with factor {factor:g}"
            rule = f"another than {own}, by which the checkpoint is stretched already"
            raise Conflict("schedule", rule, again, remedy=RESTATED)


def parsed_for(config: Any, text: str | Line, target_len: int | None, facts: Facts | None = None) -> Extension:
    """The extension that a line names for a model with this config; its lengths are the config's without `facts`."""
    line = read_line(text)
    require_not_restated(config, line)
    if facts is not None:
        return line.build_for(facts, target_len)
    trained, original = lengths_of(config)
    lengths = {"trained_len": trained, "original_len": original, "target_len": target_len}
    return line.build(layers=config.num_hidden_layers, **lengths)


def what_happens(own: str, extension: Extension, facts: Facts, layers: Sequence[ProbedLayer]) -> str:
    """What becomes of the schedule that a model came with under an extension, as a sentence."""
    if not own:
        return "the checkpoint came without a schedule of its own"
    came = f"the checkpoint came with {own}"
    named = str(extension.frequencies) if extension.frequencies else "plain RoPE"
    if extension.instead:
        return f"{came}: {named} replaces it, and the trained length is {facts.undone.trained_len:,} tokens again"
    if extension.frequencies is None:
        return f"{came}: it is kept"
    if any(layer.varies and layer.long_table is None for layer in layers):
        return f"{came}: {named} replaces that"
    return f"{came}: {named} builds on it (add +instead to replace it)"
