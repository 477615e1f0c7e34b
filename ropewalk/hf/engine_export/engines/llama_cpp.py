"""llama.cpp, as its converter writes a model and as it computes it (b11739, and the converter of 2026-08; both run):

default, linear    unchanged
yarn               with betas 32 and 1, truncated, at the temperature 0.1 ln(factor) + 1, whatever a config, a key
                   or a flag says
nothing            where an architecture's converter writes only its own keys (Gemma 2, StableLM, Phi)
any table          as the tensor rope.freqs.weight, a divisor for each pair, where the architecture reads it;
                   elsewhere the converter or the loader stops at it, and llama3 is dropped silently
"""

from __future__ import annotations

import math

from ropewalk.errors import DoesNotFit
from ropewalk.hf.engine_check.engines.llama_cpp import DROPS, READS_DIVISORS, RUN, TENSOR
from ropewalk.hf.engine_check.engines.standard import ROPE_FREQS
from ropewalk.hf.engine_export.engines.signature import EngineReading, StatedModel, fold, lower, yarn_temperature

__all__ = ["ROPE_FREQS", "TENSOR", "command", "read"]


def read(stated: StatedModel) -> EngineReading:
    """By name where that computes it, else by divisors among the weights and a temperature in the queries."""
    if stated.window is not None:
        raise DoesNotFit.because("reach", "llama.cpp's converter writes no window but the model's own")
    if stated.latent and stated.type != "default":
        raise DoesNotFit("schedule", "another base where keys are latent", stated.type)
    if stated.text.model_type in DROPS:
        rule = "of a model whose base and schedule llama.cpp's converter writes down"
        raise DoesNotFit("schedule", rule, f"{stated.type} of {stated.text.model_type}")
    if _computes(stated):
        return EngineReading(lowered=False, unrun=stated.text.model_type not in RUN)
    if stated.text.model_type not in READS_DIVISORS or stated.kinds:
        rule = "linear, another base, or yarn with betas 32 and 1, truncated, at its own temperature, "
        raise DoesNotFit("schedule", f"{rule}which is what llama.cpp knows of {stated.text.model_type}", stated.type)
    lower(stated)
    return EngineReading(True, fold(stated), divisors=True, rope_type=ROPE_FREQS)


def command(place: str, stated: StatedModel) -> str:
    """Converts and serves it. The file holds the schedule; flags could only contradict it."""
    converted = f"python convert_hf_to_gguf.py {place} --outfile {place}.gguf"
    return f"{converted} && llama-server -m {place}.gguf -c {stated.length}"


def _computes(stated: StatedModel) -> bool:
    """Whether llama.cpp's schedule of this name computes the same."""
    if stated.type in ("default", "linear"):
        return stated.temperature == 1
    if stated.type != "yarn" or not stated.reaches_all:
        return False
    parameters = stated.parameters[0]
    betas = (parameters.get("beta_fast") or 32, parameters.get("beta_slow") or 1)
    usual = betas == (32, 1) and parameters.get("truncate", True)
    return usual and math.isclose(stated.temperature, yarn_temperature(parameters["factor"]), rel_tol=1e-6)
