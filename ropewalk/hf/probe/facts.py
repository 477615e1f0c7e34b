"""A model's facts, and what it does with positions by itself: from its config, checked against a probe."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import torch
from transformers import PreTrainedModel

from ropewalk.errors import DoesNotFit
from ropewalk.facts import Facts
from ropewalk.frequencies.signature import formula
from ropewalk.hf.probe.rotary import ProbedLayer
from ropewalk.presets.lengths import require_whole
from ropewalk.trained_to import stated

CLOSE = 1e-5  # relative: what tables in float32 leave
USUAL_BASE = 10_000.0
_CORRECTED = "_ropewalk_trained_len"  # of a model, where somebody corrected its config


class TrainedLengths(NamedTuple):
    """What a model was trained to, with the schedule that it came with and before that."""

    trained: int
    original: int


def facts_of(model: PreTrainedModel, layer: ProbedLayer, layers: int, trained_len: int | None = None) -> Facts:
    """The facts of one layer; layers may differ in their bases and in the schedules they came with.

    `trained_len` takes the place of the length that the config states, as does what `correct` has said of the model.
    """
    config = model.config.get_text_config()
    lengths = lengths_of(config, layer.layer_type, corrected(model) if trained_len is None else trained_len)
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
    )
    candidates = [replace(facts, base=base) for base in _bases(config, layer.layer_type)]
    plain = next((own for own in candidates if _is_plain(own, layer)), None)
    if plain is not None or not layer.rotating:
        return plain or candidates[0]
    return replace(candidates[0], inv_freq=_own_table(layer))


def correct(model: PreTrainedModel, trained_len: int | None) -> None:
    """Say which length a model was trained to, whatever its config states, to all that is done with it from now on."""
    require_whole("trained_len", trained_len)
    model.__dict__[_CORRECTED] = trained_len


def corrected(model: PreTrainedModel) -> int | None:
    """What `correct` has said of a model, or whoever calls has said of all."""
    found: int | None = model.__dict__.get(_CORRECTED)
    return stated() if found is None else found


def trained_len(config: Any) -> int:
    """The length that a model was trained to, with whatever schedule it came with."""
    return lengths_of(config).trained


def lengths_of(config: Any, kind: str | None = None, corrected: int | None = None) -> TrainedLengths:
    """What a config says of the lengths of its model, by the rule of each type of schedule.

    The trained length is the longest of all types of layers. The original one is that of this type, or of the type that
    was stretched most.
    """
    corrected = stated() if corrected is None else corrected
    require_whole("trained_len", corrected)
    parts, position = parts_of(config), getattr(config, "max_position_embeddings", None)
    # Of linear the factor says where a corrected length came from.
    begun = {name: corrected if part.get("rope_type") == "linear" else None for name, part in parts.items()}
    found = {name: _by_type(part, begun[name] or position) for name, part in parts.items()}
    known = [each for each in found.values() if each is not None]
    if corrected is None and not known:
        rule, remedy = "a length of at least 1", "give trained_len (--trained-len)"
        raise DoesNotFit("config.max_position_embeddings", rule, position, remedy=remedy)
    trained = corrected or max(each.trained for each in known)
    own = found.get(kind or "") or min(known, key=lambda each: each.original, default=TrainedLengths(trained, trained))
    return TrainedLengths(trained, min(own.original, trained))


def _by_type(part: dict[str, Any], position: Any) -> TrainedLengths | None:
    """The rule of one type of schedule, or nothing where the config states no length.

    yarn                its original length times its factor
    llama3, longrope    max_position_embeddings where that is longer than the original length, else as yarn
    linear              max_position_embeddings, which is its original length times its factor
    any other           max_position_embeddings: what transformers' dynamic does beyond that was not trained
    """
    kind, factor = part.get("rope_type", "default"), part.get("factor") or 1.0
    position = position if _is_length(position) else part.get("original_max_position_embeddings")
    if not _is_length(position):
        return None
    original = part.get("original_max_position_embeddings") or position
    stretched = round(original * factor)
    if kind == "yarn":
        return TrainedLengths(stretched, int(original))
    if kind in ("llama3", "longrope"):
        return TrainedLengths(int(position) if position > original else stretched, int(original))
    return TrainedLengths(int(position), max(round(position / factor), 1) if kind == "linear" else int(position))


def _is_length(found: Any) -> bool:
    return isinstance(found, int | float) and not isinstance(found, bool) and found >= 1


def _bases(config: Any, kind: str | None) -> list[float]:
    """Every base that the config names, that of this type of layer first."""
    parts = parts_of(config)
    named = [parts.get(kind or "", {}).get("rope_theta"), *(part.get("rope_theta") for part in parts.values())]
    named += [getattr(config, "rope_theta", None)]
    return list(dict.fromkeys(float(base) for base in named if base)) or [USUAL_BASE]


def parts_of(config: Any) -> dict[str, dict[str, Any]]:
    """The config's rope parameters by type of layer, or one set for all."""
    stated = getattr(config, "rope_parameters", None) or {}
    nested = {name: part for name, part in stated.items() if isinstance(part, dict)}
    return nested or {"": stated}


def _is_plain(facts: Facts, layer: ProbedLayer) -> bool:
    measured, expected = torch.tensor(layer.inv_freq, dtype=torch.float64), formula(facts)
    if len(measured) != len(expected):
        return False
    return bool(((measured - expected).abs() <= CLOSE * expected).all())


def _own_table(layer: ProbedLayer) -> tuple[float, ...]:
    """The table that a layer came with: the numbers in its module where those are what was measured."""
    measured = torch.tensor(layer.inv_freq, dtype=torch.float64)
    buffers = layer.rotary._buffers if layer.rotary is not None else {}
    stated = buffers.get(f"{layer.layer_type}_inv_freq", buffers.get("inv_freq"))
    if stated is None or stated.shape != measured.shape:
        return layer.inv_freq
    exact = stated.detach().double().cpu()
    same = ((exact - measured).abs() <= CLOSE * measured.abs() + CLOSE**2).all()
    return tuple(exact.tolist()) if same else layer.inv_freq
