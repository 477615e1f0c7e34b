"""The facts of a model: from its config, checked against a probe."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from transformers import PreTrainedModel

from ropewalk.errors import DoesNotFit
from ropewalk.extension.presets.lengths import require_whole
from ropewalk.methods.facts import Facts
from ropewalk.methods.frequencies.signature import formula

if TYPE_CHECKING:
    from ropewalk.hf.probe.probed_layer import ProbedLayer  # it needs more of transformers than reading a config does

TABLE_RTOL = 1e-5  # relative: the error of tables in float32
USUAL_BASE = 10_000.0
_CORRECTED = "_ropewalk_trained_len"  # of a model: the trained length that corrects its config


class TrainedLengths(NamedTuple):
    """The trained lengths of a model: with the schedule that it came with, and before that."""

    trained: int
    original: int


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

    The trained length is the longest of all layer types, or the corrected one. The original one is that of this type,
    or of the type that was stretched most.
    """
    require_whole("trained_len", corrected)
    parts, position = parts_of(config), _position(config)
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
