"""The input and the output of an engine's rule: a pure function of which config keys the engine reads, and how.

What it reads differently from transformers is lowered (stated pair by pair) or refused; nothing is left to guess.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ropewalk.engines.rules.formulas import yarn_temperature as yarn_temperature
from ropewalk.errors import DoesNotFit
from ropewalk.hf.checkpoint.config_schedule import STOPPING_DIVISOR
from ropewalk.hf.probe.facts import SCHEDULE

LONGROPE = "longrope"
QUERY_SCALE = "llama_4_scaling_beta"  # beside it, the original length is what attention scales its queries by


@dataclass
class StatedModel:
    """A static extension as a transformers config, which an engine's rule rewrites."""

    config: Any
    kinds: tuple[str, ...]  # types of the extended layers, where each type has its own parameters
    table: Tensor  # radians per position of every pair in these layers
    length: int
    interleaved: bool  # whether neighbours make a pair
    reaches_all: bool  # whether cos and sin carry the temperature: it multiplies what they reach, and nothing else
    window: int | None = None

    @property
    def text(self) -> Any:
        """The language model's part of the config."""
        return self.config.get_text_config()

    @property
    def parameters(self) -> list[dict[str, Any]]:
        """The rotary parameters of the extension: of the whole model, or of its layer types."""
        parameters = self.text.rope_parameters
        return [parameters[kind] for kind in self.kinds] if self.kinds else [parameters]

    @property
    def type(self) -> str:
        return str(self.parameters[0]["rope_type"])

    @property
    def temperature(self) -> float:
        """The factor of cos and sin."""
        first = self.parameters[0]
        stated = first.get("attention_factor")
        if stated is not None:
            return float(stated)
        return yarn_mscale(first, first.get("mscale_all_dim") or 0.0) if self.type == "yarn" else 1.0

    @property
    def latent(self) -> bool:
        """Whether keys and values come from a latent vector (DeepSeek's attention)."""
        return bool(getattr(self.text, "kv_lora_rank", None))

    @property
    def divisors(self) -> list[float]:
        """The divisor of base^(-2i/d) in every pair."""
        base, pairs = float(self.parameters[0]["rope_theta"]), len(self.table)
        divisors = base ** (-torch.arange(pairs, dtype=torch.float64) / pairs) / self.table
        return [float(divisor) for divisor in divisors.clamp(max=STOPPING_DIVISOR)]


class EngineReading(NamedTuple):
    """How an engine computes what was stated."""

    lowered: bool
    folded: float = 1.0  # the factor of the queries, in the weights
    divisors: bool = False  # whether divisors are among the weights
    unrun: bool = False  # whether the engine was never run with this kind of model
    rope_type: str | None = None  # written last, after the folder was compared with the model


class EngineRules(NamedTuple):
    """The rules of one engine, or of one trainer."""

    read: Callable[[StatedModel], EngineReading | DoesNotFit]  # rewrites the config, or says why it cannot
    command: Callable[[str, StatedModel], str]  # the command that starts it with a folder, or a trainer's settings
    folder: bool = True  # whether a folder is written; some settings carry the schedule alone


def is_lowered(stated: StatedModel) -> bool:
    """Whether the schedule is stated pair by pair."""
    return stated.type == LONGROPE


def lower(stated: StatedModel) -> None:
    """State the schedule pair by pair: as longrope, with one set of divisors for short texts and long ones."""
    divisors, temperature = stated.divisors, stated.temperature
    for parameters in stated.parameters:
        original = parameters.get("original_max_position_embeddings") if QUERY_SCALE in parameters else None
        kept = {name: value for name, value in parameters.items() if name not in SCHEDULE}
        parameters.clear()
        parameters |= {
            **kept,
            "rope_type": LONGROPE,
            "short_factor": divisors,
            "long_factor": divisors,
            "factor": 1.0,
            "attention_factor": temperature,
            "original_max_position_embeddings": original or stated.length,
        }
    if hasattr(stated.text, "original_max_position_embeddings"):  # transformers prefers this one where it exists
        stated.text.original_max_position_embeddings = stated.length


def fold(stated: StatedModel, computed: float = 1.0) -> float:
    """Leave the temperature that the engine computes in the config; return the rest, for the weights of the queries."""
    factor = (stated.temperature / computed) ** 2
    for parameters in stated.parameters:
        for name in ("attention_factor", "short_mscale", "long_mscale"):
            if name in parameters:
                parameters[name] = computed
        if "attn_factor" in parameters:  # of YaRN's own temperature, which is what is left
            parameters["attn_factor"] = 1.0
    return factor


def place_temperature(stated: StatedModel) -> float:
    """Leave the temperature to cos and sin where these reach every logit, else fold it."""
    if stated.temperature == 1 or stated.reaches_all:
        return 1.0
    if not is_lowered(stated):
        lower(stated)
    return fold(stated)


def state_mscale(stated: StatedModel) -> None:
    """vLLM and SGLang read the temperature of longrope under other names."""
    for parameters in stated.parameters if is_lowered(stated) else ():
        parameters |= {"short_mscale": stated.temperature, "long_mscale": stated.temperature}


def yarn_mscale(parameters: dict[str, Any], all_dim: float) -> float:
    """The temperature that mscale and mscale_all_dim give."""
    mscale = parameters.get("mscale")
    factor = parameters["factor"]
    return yarn_temperature(factor, 1.0 if mscale is None else mscale) / yarn_temperature(factor, all_dim)


def state_latent(stated: StatedModel) -> EngineReading | DoesNotFit:
    """vLLM and SGLang read every schedule of latent attention as DeepSeek's YaRN, whose temperature is mscale's."""
    parameters = stated.parameters[0]
    if stated.type == "default":
        return EngineReading(lowered=False)
    if stated.type != "yarn" or not parameters.get("truncate", True):
        rule = "YaRN with the temperature of its mscale, or another base, where keys are latent"
        return DoesNotFit("schedule", rule, stated.type)
    read = yarn_mscale(parameters, parameters.get("mscale_all_dim") or 0.0)
    if not math.isclose(read, stated.temperature, rel_tol=1e-6):
        rule = f"{read:.4f}, which an engine computes where keys are latent"
        return DoesNotFit("temperature", rule, stated.temperature)
    for name in ("attention_factor", "attn_factor"):  # 1 there makes vLLM ignore mscale_all_dim
        parameters.pop(name, None)
    return EngineReading(lowered=False)


def read_as_deepseek_and_phi(stated: StatedModel) -> EngineReading | DoesNotFit:
    """What vLLM and SGLang share: latent keys by DeepSeek's rule, longrope by Phi's, all else by name."""
    if stated.latent:
        return state_latent(stated)
    folded = place_temperature(stated)
    if is_lowered(stated) and (reason := why_no_longrope(stated)):
        return reason
    state_mscale(stated)
    return EngineReading(is_lowered(stated), folded)


def why_no_longrope(stated: StatedModel) -> DoesNotFit | None:
    """Why the longrope module of vLLM and SGLang does not compute a model; None where it does."""
    if stated.interleaved:
        return DoesNotFit("schedule", "one with a type of its own where pairs are neighbours", LONGROPE)
    if any("mrope_section" in parameters for parameters in stated.parameters):
        return DoesNotFit("schedule", "one with a type of its own where positions have several axes", LONGROPE)
    return None
