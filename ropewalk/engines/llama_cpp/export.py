"""What a file says for llama.cpp to compute an extension; `check.py` beside this says how llama.cpp computes a file.

Its server keeps keys and values in float16, and computes attention in it, unless it is told otherwise:
log-probabilities of a float32 model are then off by 2e-2 to 6e-2.
"""

from __future__ import annotations

import math

import torch

from ropewalk.engines.llama_cpp.architectures import ARCHITECTURES
from ropewalk.engines.llama_cpp.check import DROPS, READS_DIVISORS, RUN, TENSOR
from ropewalk.engines.rules.standard import ROPE_FREQS
from ropewalk.engines.rules.statement import EngineReading, StatedModel, fold, lower, yarn_temperature
from ropewalk.errors import DoesNotFit

__all__ = ["ROPE_FREQS", "TENSOR", "command", "read"]

FILE = "model.gguf"
EXACT = " -fa off -ctk f32 -ctv f32"  # for a float32 model: the float16 cache is off by 2e-2 to 6e-2


def read(stated: StatedModel) -> EngineReading | DoesNotFit:
    """By name where that computes it, else by divisors among the weights and a temperature in the queries."""
    if stated.window is not None:
        return DoesNotFit.because("reach", "llama.cpp's converter writes no window but the model's own")
    if stated.latent and stated.type != "default":
        return DoesNotFit("schedule", "another base where keys are latent", stated.type)
    if stated.text.model_type in DROPS:
        rule = "of a model whose base and schedule llama.cpp's converter writes down"
        return DoesNotFit("schedule", rule, f"{stated.type} of {stated.text.model_type}")
    temperature, unrun = _temperature(stated), stated.text.model_type not in RUN
    if temperature is not None and math.isclose(stated.temperature, temperature, rel_tol=1e-6):
        return EngineReading(lowered=False, unrun=unrun)
    if stated.text.model_type in READS_DIVISORS and not stated.kinds:
        lower(stated)
        return EngineReading(True, fold(stated), divisors=True, rope_type=ROPE_FREQS)
    if stated.type == "yarn" and not stated.reaches_all:
        sentence = "llama.cpp gives YaRN's temperature to what rotates, and this one multiplies whole logits"
        return DoesNotFit.because("temperature", sentence, remedy="say over=rotating, or use pi, ntk or abf")
    if temperature is None:
        rule = "linear, another base, or yarn with betas 32 and 1, truncated, "
        return DoesNotFit("schedule", f"{rule}which is what llama.cpp knows of {stated.text.model_type}", stated.type)
    return EngineReading(lowered=False, folded=fold(stated, temperature), unrun=unrun)


def command(place: str, stated: StatedModel) -> str:
    """Serves it, converted first where we write no GGUF. The file holds the schedule; no flag is to contradict it."""
    served = f"-c {stated.length}{EXACT if stated.config.dtype == torch.float32 else ''}"
    if stated.text.model_type in ARCHITECTURES:
        return f"llama-server -m {place}/{FILE} {served}"
    return f"python convert_hf_to_gguf.py {place} --outfile {place}.gguf && llama-server -m {place}.gguf {served}"


def _temperature(stated: StatedModel) -> float | None:
    """The factor of cos and sin under llama.cpp's schedule of this name; None if its table is another."""
    if stated.type in ("default", "linear"):
        return 1.0
    if stated.type != "yarn" or not stated.reaches_all:
        return None
    parameters = stated.parameters[0]
    betas = (parameters.get("beta_fast") or 32, parameters.get("beta_slow") or 1)
    usual = betas == (32, 1) and parameters.get("truncate", True)
    return yarn_temperature(parameters["factor"]) if usual else None
