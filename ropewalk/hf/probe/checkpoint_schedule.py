"""The schedule that a checkpoint came with: its tables, its name, and the model without it."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from transformers import PreTrainedModel

from ropewalk.errors import Conflict, DoesNotFit
from ropewalk.extension.extension import Extension
from ropewalk.extension.parsing import Line, read_line
from ropewalk.hf.probe.facts import TABLE_RTOL, lengths_of, parts_of
from ropewalk.hf.probe.probed_layer import ProbedLayer
from ropewalk.methods.facts import Facts
from ropewalk.methods.frequencies import Frequencies, Table

# The rope parameters of a config that belong to a schedule. All others are the model's layout: bases, shares, sections.
SCHEDULE = frozenset(
    (
        *("type", "rope_type", "factor", "original_max_position_embeddings", "alpha", "truncate"),
        *("beta_fast", "beta_slow", "low_freq_factor", "high_freq_factor", "short_factor", "long_factor"),
        *("attention_factor", "attn_factor", "mscale", "mscale_all_dim", "short_mscale", "long_mscale"),
    )
)
SAME = {"linear": ("pi", "interpolation"), "yarn": ("yarn", "by_parts"), "llama3": ("llama3",)}  # our names of a type
RESTATED = "leave it out to keep that; add +instead to replace it by the method's values; or state a length (--to)"
LAYOUTS = ("proportional", "axial")  # types that choose the dimensions that rotate
DROPPED = "none: its rotation was dropped"  # in place of the name of a schedule


@dataclass(frozen=True, kw_only=True)
class TwoTables(Frequencies):
    """A schedule on a model with one table for short texts and one for long ones, such as Phi-3.

    It maps the table of the row. transformers takes one table for the whole batch, by its longest text.
    """

    name = "short_and_long_tables"
    inner: Frequencies
    above: int
    long_inv_freq: tuple[float, ...]

    def table(self, facts: Facts, length: int) -> Table:
        return self.inner.table(facts if length <= self.above else replace(facts, inv_freq=self.long_inv_freq), length)

    def stages(self, facts: Facts, length: int) -> tuple[int, ...]:
        starts = set(self.inner.stages(facts, length))
        return tuple(sorted(starts | {self.above + 1} if length > self.above else starts))


def apply_to_own_tables(schedule: Frequencies, layer: ProbedLayer) -> Frequencies:
    """A schedule applied to the table of this layer, or to both of its tables."""
    if layer.long_table is None:
        return schedule
    if abs(layer.long_table.temperature - layer.temperature) > 1e-6 * layer.temperature:
        sentence = "the checkpoint has different temperatures for short and for long texts"
        raise DoesNotFit.because("temperature", sentence, remedy="add +instead to replace its schedule")
    return TwoTables(inner=schedule, above=layer.long_table.above, long_inv_freq=layer.long_table.inv_freq)


def without_schedule(parameters: dict[str, Any]) -> dict[str, Any]:
    """A config's rope parameters without the schedule."""
    if any(isinstance(part, dict) for part in parameters.values()):
        return {kind: without_schedule(part) if isinstance(part, dict) else part for kind, part in parameters.items()}
    layout = {name: value for name, value in parameters.items() if name not in SCHEDULE}
    kind = parameters.get("rope_type")
    return {**layout, "rope_type": kind if kind in LAYOUTS else "default"}


def with_plain_scalings(host: PreTrainedModel, layers: Sequence[ProbedLayer]) -> list[ProbedLayer]:
    """The layers with the scaling that they have without the checkpoint's own schedule, which may be part of it.

    The model's own code computes it: a twin without weights, from a config without the schedule.
    """
    config = copy.deepcopy(host.config)
    text = config.get_text_config()
    if getattr(text, "rope_parameters", None):
        text.rope_parameters = without_schedule(text.rope_parameters)
    with torch.device("meta"):
        twin = dict(type(host)(config).named_modules())
    names = {module: name for name, module in host.named_modules()}
    scalings = [twin[names[layer.module]].__dict__.get("scaling", layer.scaling) for layer in layers]
    return [layer._replace(plain_scaling=float(scaling)) for layer, scaling in zip(layers, scalings, strict=True)]


def own_schedule_of(config: Any, layers: Sequence[ProbedLayer], facts: Sequence[Facts]) -> str:
    """The schedule that a model came with, in a line; empty where it is plain RoPE."""
    parts, every = parts_of(config), zip(layers, facts, strict=True)
    default = next(iter(parts.values()))
    names = [_schedule_name(parts.get(layer.layer_type or "") or default, layer, known) for layer, known in every]
    rotating = [name for name, layer in zip(names, layers, strict=True) if layer.rotating]
    schedules = [name for name in dict.fromkeys(rotating) if name]
    some = " in some layers" if schedules and "" in rotating else ""
    return " and ".join(f"{name}{some}" for name in schedules)


def is_stretched(layer: ProbedLayer, facts: Facts) -> bool:
    """Whether a layer came with a schedule: a table that differs from its base's, a temperature, or a varying table."""
    if layer.temperature != 1 or layer.varies:
        return True
    plain = facts.undone.inv_freq  # with the pairs that do not rotate by the model's layout
    if facts.inv_freq is None or plain is None:
        return facts.inv_freq is not None
    return any(abs(theta - usual) > TABLE_RTOL * usual for theta, usual in zip(facts.inv_freq, plain, strict=True))


def _schedule_name(part: dict[str, Any], layer: ProbedLayer, facts: Facts) -> str:
    """The schedule of one layer by the config's name, with its factor and lengths; empty where it has none."""
    if not is_stretched(layer, facts):
        return ""
    if layer.stands_still:
        return DROPPED
    kind = part.get("rope_type", "default")
    if layer.long_table is not None:
        kind += f", one table up to {layer.long_table.above:,} tokens and another beyond (every row takes its own;"
        kind += " transformers takes one for the whole batch)"
    elif layer.varies:
        return f"{kind} scaling beyond {facts.trained_len:,} tokens"
    factor = f", factor {part['factor']:g}" if part.get("factor", 1) != 1 else ""
    lengths = f" ({facts.original_len:,} to {facts.trained_len:,} tokens)" if facts.original_len else ""
    mscale = f", mscale_all_dim {part['mscale_all_dim']:g}" if part.get("mscale_all_dim") else ""
    return "its own table" if kind == "default" else f"{kind}{factor}{lengths}{mscale}"


def require_not_restated(config: Any, text: str | Line) -> None:
    """Refuse a line that repeats the checkpoint's own schedule: it would stretch the checkpoint twice."""
    line = read_line(text) if text else None
    terms = () if line is None or line.instead else line.terms
    for part in parts_of(config).values():
        names, factor = SAME.get(str(part.get("rope_type")), ()), part.get("factor", 1)
        same_factor = (term.name for term in terms if term.values.get("factor") == factor)
        repeated = next((name for name in same_factor if name.removeprefix("frequencies.") in names), None)
        if repeated is not None:
            sentence = f"{repeated} repeats {part['rope_type']} with factor {factor:g}, which the checkpoint has"
            raise Conflict.because("schedule", sentence, remedy=RESTATED)


def parse_for_config(
    config: Any, text: str | Line, target_len: int | None, facts: Facts | None = None, *, trained_len: int | None = None
) -> Extension:
    """The extension that a line names for a model with this config.

    Its lengths are those of `facts`; without them those of the config, which `trained_len` corrects.
    """
    line = read_line(text)
    require_not_restated(config, line)
    if facts is not None:
        return line.build_for(facts, target_len)
    trained, original = lengths_of(config, corrected=trained_len)
    lengths = {"trained_len": trained, "original_len": original, "target_len": target_len}
    return line.build(layers=config.num_hidden_layers, **lengths)


def what_happens(schedule: str, extension: Extension, facts: Facts, layers: Sequence[ProbedLayer]) -> str:
    """What happens to the checkpoint's own schedule under an extension, as a sentence."""
    if not schedule:
        return "the checkpoint came without a schedule of its own"
    came = "the checkpoint came without rotation" if schedule == DROPPED else f"the checkpoint came with {schedule}"
    named = str(extension.frequencies) if extension.frequencies else "plain RoPE"
    if extension.instead:
        length = f"the trained length is the original one, {facts.undone.trained_len:,} tokens"
        return f"{came}: {named} replaces it, and {length}"
    if extension.frequencies is None or schedule == DROPPED:
        return f"{came}: it is kept"
    if any(layer.varies and layer.long_table is None for layer in layers):
        return f"{came}: {named} replaces it"
    return f"{came}: {named} builds on it (add +instead to replace it)"
