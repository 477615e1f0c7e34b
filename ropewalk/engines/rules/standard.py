"""What a config says: the schedule of its name, in the words of transformers, which is how authors release them.

A text has the table of its own length, under `dynamic` and `longrope` too; engines take one for a batch or a server.
Where positions have several axes (mrope_section), those of a text token are equal on all of them: each pair rotates by
its own speed, whichever section it is in, as without sections. Where a head rotates in part, a temperature multiplies
what rotates.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from ropewalk.engines.rules import formulas
from ropewalk.engines.rules.rotation import EngineRotation, NoAnswer, QueryScale, RopeConfig

# Written by `ropewalk export --target llama.cpp`. Not a type of transformers, so that loading the folder there stops
# instead of missing the tensor. llama.cpp's converter warns that it does not know the type, and writes none.
ROPE_FREQS = "rope_freqs"
# Keys from a latent vector; attention is scaled by the square of mscale_all_dim's temperature.
LATENT = ("deepseek_v2", "deepseek_v3", "glm4_moe_lite")


def why_not_known(config: RopeConfig, name: str) -> NoAnswer | None:
    """Why it is not known what a config says of one type of layer; None where it is."""
    kind = config.kind(name)
    if kind in TABLES and (kind != ROPE_FREQS or config.divisors is not None):
        return None
    return NoAnswer("unknown", f"what the rope type {kind!r} means is not known")


def standard_rotation(config: RopeConfig, name: str, text: int) -> EngineRotation:
    """One type of layer in a text of this length, where that is known."""
    table = TABLES[config.kind(name)](config, name, text)
    return EngineRotation(
        table, _temperature(config, name, text), logits=_logits(config, name), query_scale=query_scale(config, name)
    )


def _linear(config: RopeConfig, name: str, text: int) -> Tensor:
    return formulas.plain(config.base(name), config.dims(name)) / config.factor(name)


def _dynamic(config: RopeConfig, name: str, text: int) -> Tensor:
    part, factor = config.parts[name], config.factor(name)
    grown = factor * max(text, config.max_len) / config.max_len - (factor - 1)
    return formulas.rebased(config.base(name), config.dims(name), float(part.get("alpha") or grown))


def yarn_table(config: RopeConfig, name: str, text: int) -> Tensor:
    """YaRN with the config's own ends and truncation."""
    part = config.parts[name]
    truncate = bool(part.get("truncate", True))
    base, dims, factor = config.base(name), config.dims(name), config.factor(name)
    return formulas.yarn(base, dims, factor, config.original(name), formulas.betas_of(part), truncate)


def longrope_table(config: RopeConfig, name: str, long: bool) -> Tensor:
    """LongRoPE's table for long texts or for short ones."""
    divisors = config.parts[name]["long_factor" if long else "short_factor"]
    return formulas.divided(config.base(name), config.dims(name), divisors)


def has_two_tables(config: RopeConfig, name: str) -> bool:
    """Whether short texts and long ones have different divisors."""
    part = config.parts[name]
    return config.kind(name) == "longrope" and list(part["short_factor"]) != list(part["long_factor"])


def llama3_table(config: RopeConfig, name: str, text: int) -> Tensor:
    """Llama 3.1's."""
    part, base, dims = config.parts[name], config.base(name), config.dims(name)
    low, high = float(part["low_freq_factor"]), float(part["high_freq_factor"])
    return formulas.llama3(base, dims, config.factor(name), config.original(name), low, high)


def _proportional(config: RopeConfig, name: str, text: int) -> Tensor:
    share, factor = config.parts[name].get("partial_rotary_factor", 1.0), config.parts[name].get("factor") or 1.0
    return formulas.proportional(config.base(name), config.dims(name), share) / factor


TABLES: dict[str, Callable[[RopeConfig, str, int], Tensor]] = {
    "default": lambda config, name, text: formulas.plain(config.base(name), config.dims(name)),
    "linear": _linear,
    "dynamic": _dynamic,
    "yarn": yarn_table,
    "longrope": lambda config, name, text: longrope_table(config, name, long=text > config.original(name)),
    "llama3": llama3_table,
    "proportional": _proportional,
    ROPE_FREQS: lambda config, name, text: formulas.divided(
        config.base(name), config.dims(name), config.divisors or ()
    ),
}


def _temperature(config: RopeConfig, name: str, text: int) -> float:
    """The factor of cos and sin."""
    part, kind = config.parts[name], config.kind(name)
    if kind not in ("yarn", "longrope"):
        return 1.0
    if part.get("attention_factor") is not None:
        return float(part["attention_factor"])
    return yarn_temperature(config, name) if kind == "yarn" else _longrope_temperature(config, name, text)


def yarn_temperature(config: RopeConfig, name: str) -> float:
    """That of mscale and mscale_all_dim where a config has both, else YaRN's own."""
    part, factor = config.parts[name], config.factor(name)
    mscale, all_dim = part.get("mscale"), part.get("mscale_all_dim")
    if mscale and all_dim:
        return formulas.yarn_temperature(factor, mscale) / formulas.yarn_temperature(factor, all_dim)
    return formulas.yarn_temperature(factor)


def _longrope_temperature(config: RopeConfig, name: str, text: int) -> float:
    mscale = config.parts[name].get("long_mscale" if text > config.original(name) else "short_mscale")
    usual = formulas.longrope_temperature(config.factor(name), config.original(name))
    return usual if mscale is None else float(mscale)


def _logits(config: RopeConfig, name: str) -> float:
    """The factor of the logits beside cos and sin."""
    all_dim = config.parts[name].get("mscale_all_dim")
    if config.model_type not in LATENT or config.kind(name) == "default" or not all_dim:
        return 1.0
    return formulas.yarn_temperature(config.factor(name), all_dim) ** 2


def query_scale(config: RopeConfig, name: str) -> QueryScale | None:
    """The scale of queries that grows with the position, where a config has one."""
    beta = config.parts[name].get("llama_4_scaling_beta")
    return QueryScale(float(beta), config.original(name)) if beta else None
