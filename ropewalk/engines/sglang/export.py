"""What a config says for SGLang to compute an extension; `check.py` beside this says how SGLang reads it."""

from __future__ import annotations

from ropewalk.engines.rules.statement import (
    QUERY_SCALE,
    EngineReading,
    StatedModel,
    read_as_deepseek_and_phi,
)
from ropewalk.engines.sglang.check import BASE_ALONE
from ropewalk.errors import DoesNotFit


def read(stated: StatedModel) -> EngineReading | DoesNotFit:
    """By name or pair by pair, where the architecture reads more than a base."""
    kind = stated.text.model_type
    if kind in BASE_ALONE and stated.type != "default":
        return DoesNotFit("schedule", f"another base, which is all that SGLang reads of {kind}", stated.type)
    reading = read_as_deepseek_and_phi(stated)
    if isinstance(reading, DoesNotFit):
        return reading
    for part in stated.parameters:
        if QUERY_SCALE in part:  # beside the rope parameters it looks for the length of this scale
            stated.text.original_max_position_embeddings = part["original_max_position_embeddings"]
    return reading


def command(place: str, stated: StatedModel) -> str:
    """Serves it."""
    return f"python -m sglang.launch_server --model-path {place} --context-length {stated.length}"
