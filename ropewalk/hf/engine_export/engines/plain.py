"""transformers itself: everything by its name, or pair by pair where a model's config knows no other name."""

from __future__ import annotations

from ropewalk.hf.engine_export.engines.signature import EngineReading, StatedModel, is_lowered, place_temperature


def read(stated: StatedModel) -> EngineReading:
    """Nothing to rewrite but a temperature that cos and sin would not carry everywhere."""
    folded = place_temperature(stated)
    return EngineReading(is_lowered(stated), folded)


def command(place: str, stated: StatedModel) -> str:
    """Loads it."""
    return f'python -c "from transformers import AutoModelForCausalLM as A; A.from_pretrained({place!r})"'
