"""What a config and a probed model say: lengths, facts, a scale of queries, the schedule of the checkpoint."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from transformers import PreTrainedModel

from ropewalk.errors import Conflict, DoesNotFit
from ropewalk.extension.extension import Extension
from ropewalk.extension.parsing import Line, read_line
from ropewalk.extension.presets.arguments import require_whole
from ropewalk.hf.probe.probed_layer import ProbedLayer
from ropewalk.hf.probe.trained_lengths import DUAL_CHUNK, ORIGINAL, RELEASED
from ropewalk.methods.facts import Facts
from ropewalk.methods.frequencies import Frequencies, Table
from ropewalk.methods.frequencies.frequencies import formula
from ropewalk.methods.scales import Llama4Temperature

if TYPE_CHECKING:
    from ropewalk.hf.probe.probed_layer import ProbedLayer


# The facts of a model: from its config, checked against a probe.


TABLE_RTOL = 1e-5  # relative: the error of tables in float32
USUAL_BASE = 10_000.0
EXPORTED = "ropewalk_export"  # the key of a config for what an export stretched; no engine reads it
_CORRECTED = "_ropewalk_trained_len"  # of a model: the trained length that corrects its config


class TrainedLengths(NamedTuple):
    """The trained lengths of a model: with the schedule that it came with, and before that."""

    trained: int
    original: int


class KnownLength(NamedTuple):
    """A trained length that a config does not state as such, and who says so."""

    tokens: int
    source: str


def facts_of(model: PreTrainedModel, layer: ProbedLayer, layers: int, trained_len: int | None = None) -> Facts:
    """The facts of one layer; layers may differ in their bases and in the schedules that they came with.

    `trained_len`, or the length that `correct` has stored, replaces the length in the config.
    """
    config = model.config.get_text_config()
    lengths = lengths_of(config, layer.layer_type, corrected_len(model) if trained_len is None else trained_len)
    facts = Facts(
        trained_len=lengths.trained,
        original_len=None if lengths.original == lengths.trained else lengths.original,
        head_dim=layer.head_dim,
        rotary_dim=layer.rotating if 0 < layer.rotating < layer.head_dim else None,
        interleaved=bool(layer.interleaved),
        heads=layer.heads,
        kv_heads=layer.groups,
        layers=layers,
        softcap=layer.softcap or None,
        sinks=layer.sinks is not None,
        weighted=any(layer.norms),
    )
    candidates = [replace(facts, base=base) for base in _bases(config, layer.layer_type)]
    plain = next((candidate for candidate in candidates if _is_plain(candidate, layer)), None)
    if plain is not None or not layer.rotating:
        return plain or candidates[0]
    return replace(candidates[0], inv_freq=_own_table(layer))


def correct(model: PreTrainedModel, trained_len: int | None) -> None:
    """Store the trained length of a model; from now on it replaces the length in its config."""
    require_whole("trained_len", trained_len)
    model.__dict__[_CORRECTED] = trained_len


def corrected_len(model: PreTrainedModel) -> int | None:
    """The corrected trained length of a model, or None."""
    length: int | None = model.__dict__.get(_CORRECTED)
    return length


def trained_len(model: PreTrainedModel) -> int:
    """The trained length of a model, with the schedule that it came with: the corrected one, or that of its config."""
    return lengths_of(model.config.get_text_config(), corrected=corrected_len(model)).trained


def lengths_of(config: Any, layer_type: str | None = None, corrected: int | None = None) -> TrainedLengths:
    """The trained lengths in a config, by the rule of each type of schedule.

    The trained length is the longest of all layer types, or the corrected one, which is known of some released
    families. The original one is that of this type, or of the type that was stretched most.
    """
    require_whole("trained_len", corrected)
    parts, position = parts_of(config), _position(config)
    if corrected is None and (released := known_length(config)):
        corrected = released.tokens
    # For linear, a corrected length divided by the factor is the original length.
    original_lengths = {name: corrected if part.get("rope_type") == "linear" else None for name, part in parts.items()}
    by_type = {name: _lengths_by_type(part, original_lengths[name] or position) for name, part in parts.items()}
    known = [lengths for lengths in by_type.values() if lengths is not None]
    if corrected is None and not known:
        rule, remedy = "a length of at least 1", "pass trained_len (--trained-len)"
        raise DoesNotFit("config.max_position_embeddings", rule, position, remedy=remedy)
    trained = corrected or max(lengths.trained for lengths in known)
    shortest = min(known, key=lambda lengths: lengths.original, default=TrainedLengths(trained, trained))
    return TrainedLengths(trained, min((by_type.get(layer_type or "") or shortest).original, trained))


def known_length(config: Any) -> KnownLength | None:
    """The trained length of the family that a config is of; None where its own numbers are all that is known."""
    kind, parameters = getattr(config, "model_type", ""), next(iter(parts_of(config).values()), {})
    dual, longer = getattr(config, DUAL_CHUNK, None), getattr(config, "model_max_length", None)
    if isinstance(dual, dict) and isinstance(dual.get(ORIGINAL), int):
        return KnownLength(dual[ORIGINAL], f"its own {DUAL_CHUNK}, which serves longer texts without training")
    if kind in ("cohere", "cohere2") and isinstance(longer, int):
        return KnownLength(longer, "model_max_length of its config, which Cohere trained for")
    for types, stated, tokens, source in RELEASED:
        if kind in types and all(parameters.get(key, getattr(config, key, None)) == stated[key] for key in stated):
            return KnownLength(tokens, source)
    return None


def _position(config: Any) -> Any:
    """The length that a config states; Whisper's has one for what it hears and one for what it writes."""
    stated_length = getattr(config, "max_position_embeddings", None)
    return getattr(config, "max_target_positions", None) if stated_length is None else stated_length


def _lengths_by_type(part: dict[str, Any], position: Any) -> TrainedLengths | None:
    """The lengths by the rule of one type of schedule; None where the config states no length.

    yarn                its original length times its factor
    llama3, longrope    max_position_embeddings where that is longer than the original length, else as yarn
    linear              max_position_embeddings, which is its original length times its factor
    any other           max_position_embeddings; beyond it, transformers' dynamic was not trained
    """
    rope_type, factor = part.get("rope_type", "default"), part.get("factor") or 1.0
    position = position if _is_length(position) else part.get("original_max_position_embeddings")
    if not _is_length(position):
        return None
    original = part.get("original_max_position_embeddings") or position
    stretched = round(original * factor)
    if rope_type == "yarn":
        return TrainedLengths(stretched, int(original))
    if rope_type in ("llama3", "longrope"):
        return TrainedLengths(int(position) if position > original else stretched, int(original))
    return TrainedLengths(int(position), max(round(position / factor), 1) if rope_type == "linear" else int(position))


def _is_length(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 1


def _bases(config: Any, layer_type: str | None) -> list[float]:
    """Every base in the config, that of this layer type first."""
    parts = parts_of(config)
    named = [parts.get(layer_type or "", {}).get("rope_theta"), *(part.get("rope_theta") for part in parts.values())]
    named += [getattr(config, "rope_theta", None)]
    return list(dict.fromkeys(float(base) for base in named if base)) or [USUAL_BASE]


def parts_of(config: Any) -> dict[str, dict[str, Any]]:
    """The config's rope parameters by layer type, or one set for all."""
    rope_parameters = getattr(config, "rope_parameters", None) or {}
    nested = {name: part for name, part in rope_parameters.items() if isinstance(part, dict)}
    return nested or {"": rope_parameters}


def _is_plain(facts: Facts, layer: ProbedLayer) -> bool:
    measured, expected = torch.tensor(layer.inv_freq, dtype=torch.float64), formula(facts)
    if len(measured) != len(expected):
        return False
    return bool(((measured - expected).abs() <= TABLE_RTOL * expected).all())


def _own_table(layer: ProbedLayer) -> tuple[float, ...]:
    """The table that a layer came with: the numbers in its module where they agree with the probe."""
    measured = torch.tensor(layer.inv_freq, dtype=torch.float64)
    buffers = layer.rotary._buffers if layer.rotary is not None else {}
    table = buffers.get(f"{layer.layer_type}_inv_freq", buffers.get("inv_freq"))
    if table is None or table.shape != measured.shape:
        return layer.inv_freq
    exact = table.detach().double().cpu()
    same = ((exact - measured).abs() <= TABLE_RTOL * measured.abs() + TABLE_RTOL**2).all()
    return tuple(exact.tolist()) if same else layer.inv_freq


# A scale of its rows that a model computes itself, before attention gets the queries; read from its config.
#
# Ministral 3 and Mistral 4 have it in every layer, Llama 4 in layers without rotation. Its steps are thousands of
# tokens long, so that the probe's short texts do not show it.


IN_PARAMETERS, IN_CONFIG = "llama_4_scaling_beta", "attn_temperature_tuning"


def why_scaled_twice(
    config: Any, layers: Sequence[ProbedLayer], extension: Extension, facts: Sequence[Facts]
) -> DoesNotFit | None:
    """Why Llama 4's temperature would count twice: a layer computes it already. None where none does."""
    for depth, (layer, known) in enumerate(zip(layers, facts, strict=True)):
        scales = extension.at_layer(depth, known).scales
        if not any(isinstance(spec, Llama4Temperature) for spec in scales):
            continue
        if setting := own_query_scale(config, layer):
            sentence = f"the model has llama4_temperature of its own ({setting} in its config), which would count twice"
            return DoesNotFit.because("scales", sentence, remedy="leave llama4_temperature out")
    return None


def own_query_scale(config: Any, layer: ProbedLayer) -> str:
    """The setting by which a layer scales its queries by their positions; empty where there is none."""
    if any(part.get(IN_PARAMETERS) for part in parts_of(config).values()):
        return IN_PARAMETERS
    return IN_CONFIG if getattr(config, IN_CONFIG, False) and not layer.rotating else ""


# The schedule that a checkpoint came with: its tables, its name, and the model without it.


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
    plain = facts.unscaled.inv_freq  # with the pairs that do not rotate by the model's layout
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
    terms = () if line is None or line.replaces_scaling else line.terms
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
    key_heads = getattr(config, "num_key_value_heads", None) or getattr(config, "num_attention_heads", None)
    return line.build(layers=config.num_hidden_layers, key_heads=key_heads, **lengths)


def what_happens(schedule: str, extension: Extension, facts: Facts, layers: Sequence[ProbedLayer]) -> str:
    """What happens to the checkpoint's own schedule under an extension, as a sentence."""
    if not schedule:
        return "the checkpoint came without a schedule of its own"
    came = "the checkpoint came without rotation" if schedule == DROPPED else f"the checkpoint came with {schedule}"
    named = str(extension.frequencies) if extension.frequencies else "plain RoPE"
    if extension.replaces_scaling:
        length = f"the trained length is the original one, {facts.unscaled.trained_len:,} tokens"
        return f"{came}: {named} replaces it, and {length}"
    if extension.frequencies is None or schedule == DROPPED:
        return f"{came}: it is kept"
    if any(layer.varies and layer.long_table is None for layer in layers):
        return f"{came}: {named} replaces it"
    return f"{came}: {named} builds on it (add +instead to replace it)"
