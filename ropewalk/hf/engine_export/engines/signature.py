"""What an engine is handed, and what it answers. An engine is one pure rule: which words of a config it reads, and how.

What it reads otherwise than transformers is lowered, said pair by pair, or refused; nothing is left for it to guess.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ropewalk.errors import DoesNotFit
from ropewalk.hf.checkpoint.config_schedule import STILL
from ropewalk.hf.probe.checkpoint_schedule import SCHEDULE

LONGROPE = "longrope"
QUERY_SCALE = "llama_4_scaling_beta"  # beside it, the original length is what attention scales its queries by


@dataclass
class StatedModel:
    """A model under a static extension in the words of transformers' config, which an engine rewrites for itself."""

    config: Any
    kinds: tuple[str, ...]  # of the layers that the extension rules, where each kind has parameters of its own
    table: Tensor  # radians per position of each pair in these layers
    length: int
    interleaved: bool  # whether neighbours make a pair
    reaches_all: bool  # whether what cos and sin are multiplied by reaches every logit
    window: int | None = None

    @property
    def text(self) -> Any:
        """The part of the config that is the language model's."""
        return self.config.get_text_config()

    @property
    def parameters(self) -> list[dict[str, Any]]:
        """The rotary parameters that the extension has set: of the whole, or of its kinds of layers."""
        own = self.text.rope_parameters
        return [own[kind] for kind in self.kinds] if self.kinds else [own]

    @property
    def type(self) -> str:
        return str(self.parameters[0]["rope_type"])

    @property
    def temperature(self) -> float:
        """What cos and sin are multiplied by."""
        own = self.parameters[0]
        stated = own.get("attention_factor")
        if stated is not None:
            return float(stated)
        return yarn_mscale(own, own.get("mscale_all_dim") or 0.0) if self.type == "yarn" else 1.0

    @property
    def latent(self) -> bool:
        """Whether keys and values come from a latent vector (DeepSeek's attention)."""
        return bool(getattr(self.text, "kv_lora_rank", None))

    @property
    def divisors(self) -> list[float]:
        """What base^(-2i/d) is divided by in each pair."""
        base, pairs = float(self.parameters[0]["rope_theta"]), len(self.table)
        divisors = base ** (-torch.arange(pairs, dtype=torch.float64) / pairs) / self.table
        return [float(each) for each in divisors.clamp(max=STILL)]


class EngineReading(NamedTuple):
    """How an engine comes to compute what was stated."""

    lowered: bool
    folded: float = 1.0  # what queries are multiplied by, in the weights
    divisors: bool = False  # whether they stand among the weights
    unrun: bool = False  # whether nobody here has seen the engine compute this kind of model
    rope_type: str | None = None  # written last, when the folder has been compared with the model


class EngineRules(NamedTuple):
    """One who serves models."""

    read: Callable[[StatedModel], EngineReading]  # rewrites the config
    command: Callable[[str, StatedModel], str]  # that starts it, given the folder


def is_lowered(stated: StatedModel) -> bool:
    """Whether the schedule is said pair by pair."""
    return stated.type == LONGROPE


def lower(stated: StatedModel) -> None:
    """Say the schedule pair by pair: as longrope, with one set of divisors for short texts and long ones."""
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
    if hasattr(stated.text, "original_max_position_embeddings"):  # which transformers prefers where it is there
        stated.text.original_max_position_embeddings = stated.length


def fold(stated: StatedModel) -> float:
    """Take the temperature out of the config: what the queries' weights are to be multiplied by instead."""
    factor = stated.temperature**2
    for parameters in stated.parameters:
        for name in ("attention_factor", "short_mscale", "long_mscale"):
            if name in parameters:
                parameters[name] = 1.0
    return factor


def place_temperature(stated: StatedModel) -> float:
    """Leave it to cos and sin where these reach every logit, else fold it."""
    if stated.temperature == 1 or stated.reaches_all:
        return 1.0
    if not is_lowered(stated):
        lower(stated)
    return fold(stated)


def state_mscale(stated: StatedModel) -> None:
    """vLLM and SGLang read the temperature of longrope under other names."""
    for parameters in stated.parameters if is_lowered(stated) else ():
        parameters |= {"short_mscale": stated.temperature, "long_mscale": stated.temperature}


def yarn_temperature(factor: float, coefficient: float = 1.0) -> float:
    """YaRN's own: 0.1 ln(factor) + 1, with mscale as its coefficient where a config has one."""
    return 0.1 * coefficient * math.log(factor) + 1 if factor > 1 else 1.0


def yarn_mscale(parameters: dict[str, Any], all_dim: float) -> float:
    """The temperature that mscale and mscale_all_dim give."""
    own = parameters.get("mscale")
    factor = parameters["factor"]
    return yarn_temperature(factor, 1.0 if own is None else own) / yarn_temperature(factor, all_dim)


def require_latent(stated: StatedModel) -> None:
    """vLLM and SGLang read every schedule of latent attention as DeepSeek's YaRN, whose temperature is mscale's."""
    parameters, rule = stated.parameters[0], "YaRN with the temperature of its mscale, or another base, where keys are "
    if stated.type == "default":
        return
    if stated.type != "yarn" or not parameters.get("truncate", True):
        raise DoesNotFit("schedule", f"{rule}latent", stated.type)
    read = yarn_mscale(parameters, parameters.get("mscale_all_dim") or 0.0)
    if not math.isclose(read, stated.temperature, rel_tol=1e-6):
        raise DoesNotFit(
            "temperature", f"{read:.4f}, which an engine computes where keys are latent", stated.temperature
        )
    for name in ("attention_factor", "attn_factor"):  # 1 there makes vLLM forget mscale_all_dim
        parameters.pop(name, None)


def read_as_deepseek_and_phi(stated: StatedModel) -> EngineReading:
    """What vLLM and SGLang share: latent keys by DeepSeek's rule, longrope by Phi's, all else by name."""
    if stated.latent:
        require_latent(stated)
        return EngineReading(lowered=False)
    folded = place_temperature(stated)
    if is_lowered(stated):
        require_halves(stated)
    state_mscale(stated)
    return EngineReading(is_lowered(stated), folded)


def require_halves(stated: StatedModel) -> None:
    """Refuse what the module for longrope of vLLM and SGLang does not compute."""
    if stated.interleaved:
        raise DoesNotFit("schedule", "one that has a name of its own where neighbours make a pair", LONGROPE)
    if any("mrope_section" in parameters for parameters in stated.parameters):
        raise DoesNotFit("schedule", "one that has a name of its own where positions have several axes", LONGROPE)
