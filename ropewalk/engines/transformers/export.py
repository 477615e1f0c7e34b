"""transformers itself: everything by its name, or pair by pair where a model's config has no name for it."""

from __future__ import annotations

from ropewalk.engines.rules.statement import EngineReading, StatedModel, is_lowered, place_temperature


def read(stated: StatedModel) -> EngineReading:
    """Unchanged, but for a temperature that cos and sin do not bring to every logit."""
    folded = place_temperature(stated)
    return EngineReading(is_lowered(stated), folded)


def command(place: str, stated: StatedModel) -> str:
    """Loads it."""
    return f'python -c "from transformers import AutoModelForCausalLM as A; A.from_pretrained({place!r})"'
