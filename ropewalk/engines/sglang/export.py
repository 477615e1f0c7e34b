"""SGLang, as its source reads a config (0.5.23: layers/rotary_embedding/factory.py; not run):

yarn        its temperature is attn_factor * (0.1 ln(factor) + 1); its table grows with the text
longrope    its temperature is short_mscale and long_mscale; pairs must be halves
elsewhere   some architectures read a base and no schedule (Mixtral, StarCoder 2, StableLM)
latent      every schedule is DeepSeek's YaRN, its temperature that of mscale and mscale_all_dim
"""

from __future__ import annotations

from ropewalk.engines.rules.statement import (
    QUERY_SCALE,
    EngineReading,
    StatedModel,
    read_as_deepseek_and_phi,
)
from ropewalk.engines.sglang.check import BASE_ALONE
from ropewalk.errors import DoesNotFit


def read(stated: StatedModel) -> EngineReading:
    """By name or pair by pair, where the architecture reads more than a base."""
    kind = stated.text.model_type
    if kind in BASE_ALONE and stated.type != "default":
        raise DoesNotFit("schedule", f"another base, which is all that SGLang reads of {kind}", stated.type)
    reading = read_as_deepseek_and_phi(stated)
    for part in stated.parameters:
        if QUERY_SCALE in part:  # beside the rope parameters it looks for the length of this scale
            stated.text.original_max_position_embeddings = part["original_max_position_embeddings"]
    return reading


def command(place: str, stated: StatedModel) -> str:
    """Serves it."""
    return f"python -m sglang.launch_server --model-path {place} --context-length {stated.length}"
