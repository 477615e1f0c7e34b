"""A model's facts, and what it does with positions by itself: from its config, checked against a probe."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from transformers import PreTrainedModel

from ropewalk.errors import DoesNotFit
from ropewalk.facts import Facts
from ropewalk.frequencies import Frequencies, LongRoPE, NoPE, RoPE
from ropewalk.frequencies.signature import trained
from ropewalk.hf.probe import Layer

CLOSE = 1e-5  # relative: what tables in float32 leave
USUAL_BASE = 10_000.0


def facts_of(model: PreTrainedModel, layer: Layer, layers: int) -> Facts:
    """The facts of one layer; layers may differ in their bases."""
    config = model.config.get_text_config()
    facts = Facts(
        trained_len=trained_len(config),
        head_dim=layer.head_dim,
        rotary_dim=layer.rotating if 0 < layer.rotating < layer.head_dim else None,
        interleaved=bool(layer.interleaved),
        heads=layer.heads,
        kv_heads=layer.groups,
        layers=layers,
        softcap=layer.softcap or None,
        sinks=layer.sinks is not None,
    )
    candidates = [replace(facts, base=base) for base in _bases(config)]
    return next((own for own in candidates if _is_plain(own, layer)), candidates[0])


def own_frequencies(facts: Facts, layer: Layer) -> Frequencies:
    """The schedule the layer came with: by its formula where it is plain RoPE, else pair by pair as it was measured."""
    if not layer.rotating:
        return NoPE()
    if _is_plain(facts, layer):
        return RoPE()
    divisors = tuple((trained(facts) / torch.tensor(layer.inv_freq, dtype=torch.float64)).tolist())
    return LongRoPE(long=divisors, short=divisors)


def trained_len(config: Any) -> int:
    """The length that the model was trained on, before whatever its config stretched it by."""
    originals = [part["original_max_position_embeddings"] for part in _parts(config) if _states_original(part)]
    found = originals[0] if originals else getattr(config, "max_position_embeddings", None)
    if not isinstance(found, int | float) or found < 1:
        raise DoesNotFit("config.max_position_embeddings", "the trained length", found)
    return int(found)


def _states_original(part: dict[str, Any]) -> bool:
    return bool(part.get("original_max_position_embeddings"))


def _bases(config: Any) -> list[float]:
    """Every base that the config names."""
    named = [part.get("rope_theta") for part in _parts(config)] + [getattr(config, "rope_theta", None)]
    return [float(base) for base in named if base] or [USUAL_BASE]


def _parts(config: Any) -> list[dict[str, Any]]:
    """The config's rope parameters: one set, or one for each type of layer."""
    stated = getattr(config, "rope_parameters", None) or {}
    nested = [part for part in stated.values() if isinstance(part, dict)]
    return nested or [stated]


def _is_plain(facts: Facts, layer: Layer) -> bool:
    measured, formula = torch.tensor(layer.inv_freq, dtype=torch.float64), trained(facts)
    if len(measured) != len(formula):
        return False
    return bool(((measured - formula).abs() <= CLOSE * formula).all())
