"""transformers itself: everything by its name, or pair by pair where a model's config knows no other name."""

from __future__ import annotations

from ropewalk.hf.engine_export.engines.signature import Reading, Stated, is_lowered, place_temperature


def read(stated: Stated) -> Reading:
    """Nothing to rewrite but a temperature that cos and sin would not carry everywhere."""
    folded = place_temperature(stated)
    return Reading(is_lowered(stated), folded)


def command(place: str, stated: Stated) -> str:
    """Loads it."""
    return f'python -c "from transformers import AutoModelForCausalLM as A; A.from_pretrained({place!r})"'
