"""What a config says for vLLM to compute an extension; `check.py` beside this says how vLLM reads it."""

from __future__ import annotations

import math

from ropewalk.engines.rules.statement import (
    QUERY_SCALE,
    EngineReading,
    StatedModel,
    lower,
    read_as_deepseek_and_phi,
)
from ropewalk.errors import DoesNotFit

SERVE = "vllm serve {place} --max-model-len {length}"  # with Ropewalk's plugin too


def read(stated: StatedModel) -> EngineReading | DoesNotFit:
    """Use vLLM's schedule name if its table is long enough, else divisors per pair."""
    multiplies = not _is_gemma3(stated)  # a linear schedule's length by its factor
    if not stated.latent and (_ends_early(stated) or (stated.type == "linear" and stated.kinds and multiplies)):
        lower(stated)
    reading = read_as_deepseek_and_phi(stated)
    if isinstance(reading, DoesNotFit):
        return reading
    _state_query_scale(stated)
    if stated.type == "linear" and multiplies:
        stated.text.max_position_embeddings = math.ceil(stated.length / stated.parameters[0]["factor"])
    return reading


def _state_query_scale(stated: StatedModel) -> None:
    """Ministral 3's scale of queries, which vLLM reads under another name."""
    for part in stated.parameters:
        if QUERY_SCALE in part:
            length = part["original_max_position_embeddings"]
            stated.text.llama_4_scaling = {"beta": part[QUERY_SCALE], "original_max_position_embeddings": length}


def command(place: str, stated: StatedModel) -> str:
    """The shell command that serves the model."""
    return SERVE.format(place=place, length=stated.length)


def _ends_early(stated: StatedModel) -> bool:
    """Whether the table ends before the target length."""
    parameters = stated.parameters[0]
    return (
        stated.type == "yarn"
        and int(parameters["original_max_position_embeddings"] * parameters["factor"]) < stated.length
    )


def _is_gemma3(stated: StatedModel) -> bool:
    """Gemma 3, whose length vLLM does not multiply."""
    return "gemma3" in stated.config.model_type
