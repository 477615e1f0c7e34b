"""Schedules of the rotary frequencies, with the temperatures that belong to them."""

from __future__ import annotations

from ropewalk.errors import InvalidValue
from ropewalk.extension.extension import Extension
from ropewalk.extension.presets.arguments import Length, checked_arguments, stretch
from ropewalk.methods.frequencies import (
    ABF,
    NTK,
    ByParts,
    Dynamic,
    Frequencies,
    Interpolation,
    Llama3,
    LongRoPE,
    NTKMixed,
    RoPE,
)
from ropewalk.methods.scales import DynamicTemperature, Llama4Temperature, LogN, LongRoPETemperature, YarnTemperature
from ropewalk.methods.scales.scale import Over


@checked_arguments
def rope() -> Extension:
    """The rotary embedding as trained.

    Source: Su et al. 2021, arXiv:2104.09864.
    """
    return Extension(frequencies=RoPE())


@checked_arguments
def pi(*, factor: float | None = None, trained_len: Length = None, target_len: Length = None) -> Extension:
    """Position interpolation; needs about 1,000 steps of fine-tuning.

    Source: Chen et al. 2023, arXiv:2306.15595.
    """
    return Extension(frequencies=Interpolation(factor=stretch("pi", factor, trained_len, target_len)))


@checked_arguments
def ntk(*, factor: float | None = None, trained_len: Length = None, target_len: Length = None) -> Extension:
    """NTK-aware scaling; in practice it reaches only a quarter to half of its nominal factor.

    Source: bloc97 2023, "NTK-Aware Scaled RoPE"; arXiv:2309.00071, sec. 3.1.
    """
    return Extension(frequencies=NTK(factor=stretch("ntk", factor, trained_len, target_len)))


@checked_arguments
def ntk_mixed(*, factor: float | None = None, trained_len: Length = None, target_len: Length = None) -> Extension:
    """NTK-RoPE in a mixed base with log-n, as its author runs it.

    Source: Su 2023, kexue.fm/9706; bojone/rerope, ntk_patch.py.
    """
    return Extension(
        frequencies=NTKMixed(factor=stretch("ntk_mixed", factor, trained_len, target_len)), scales=(LogN(),)
    )


@checked_arguments
def dynamic_ntk(*, steps: int | None = 4) -> Extension:
    """NTK-aware scaling, as much as each token's position needs: nothing changes within the trained length.

    Source: emozilla 2023, "Dynamically Scaled RoPE", with scale 1; per row as in frequencies/dynamic.
    """
    return Extension(frequencies=Dynamic(inner=NTK(factor=1), steps=steps))


@checked_arguments
def by_parts(
    *,
    factor: float | None = None,
    trained_len: Length = None,
    target_len: Length = None,
    low_turns: float = 1.0,
    high_turns: float = 32.0,
) -> Extension:
    """NTK by parts: YaRN without its temperature.

    Source: Peng et al. 2023, arXiv:2309.00071, sec. 3.2.
    """
    times = stretch("by_parts", factor, trained_len, target_len)
    return Extension(frequencies=ByParts(factor=times, low_turns=low_turns, high_turns=high_turns))


@checked_arguments
def yarn(
    *,
    factor: float | None = None,
    trained_len: Length = None,
    target_len: Length = None,
    low_turns: float = 1.0,
    high_turns: float = 32.0,
    over: Over = "rotating",
) -> Extension:
    """By-parts frequencies and a temperature that follows the factor.

    Source: Peng et al. 2023, arXiv:2309.00071; jquesnelle/yarn (thresholds 1 and 32, as for Llama).
    """
    times = stretch("yarn", factor, trained_len, target_len)
    schedule = by_parts(factor=times, low_turns=low_turns, high_turns=high_turns)
    return schedule + Extension(scales=(YarnTemperature(factor=times, over=over),))


@checked_arguments
def dynamic_yarn(
    *, low_turns: float = 1.0, high_turns: float = 32.0, steps: int | None = 4, over: Over = "rotating"
) -> Extension:
    """YaRN applied to each token, only as far as its position needs.

    Source: Peng et al. 2023, arXiv:2309.00071, sec. 3.3, per row as in frequencies/dynamic.
    """
    inner = ByParts(factor=1, low_turns=low_turns, high_turns=high_turns)
    return Extension(
        frequencies=Dynamic(inner=inner, steps=steps),
        scales=(DynamicTemperature(inner=YarnTemperature(factor=1, over=over), steps=steps),),
    )


@checked_arguments
def ministral3(
    *,
    factor: float | None = None,
    trained_len: Length = None,
    target_len: Length = None,
    low_turns: float = 1.0,
    high_turns: float = 32.0,
) -> Extension:
    """YaRN's frequencies, with Llama 4's temperature in place of YaRN's.

    Source: Mistral 2025, Ministral 3; transformers, models/ministral3 (factor 16 from 16,384, both mscale 1).
    """
    times = stretch("ministral3", factor, trained_len, target_len)
    schedule = by_parts(factor=times, low_turns=low_turns, high_turns=high_turns)
    return schedule + Extension(scales=(Llama4Temperature(),))


@checked_arguments
def abf(*, new_base: float = 500_000.0) -> Extension:
    """A larger base and continued training at the new length.

    Source: Xiong et al. 2023, arXiv:2309.16039 (500,000; Code Llama 1,000,000).
    """
    return Extension(frequencies=ABF(new_base=new_base))


@checked_arguments
def llama3(
    *,
    factor: float | None = None,
    trained_len: Length = None,
    target_len: Length = None,
    low_turns: float = 1.0,
    high_turns: float = 4.0,
) -> Extension:
    """Llama 3.1's scaling; factor 8 without a target length, as released.

    Source: meta-llama/llama-models, models/llama3/model.py.
    """
    known = factor is not None or target_len is not None
    times = stretch("llama3", factor, trained_len, target_len) if known else 8.0
    return Extension(frequencies=Llama3(factor=times, low_turns=low_turns, high_turns=high_turns))


@checked_arguments
def longrope(
    *,
    factor: float | None = None,
    trained_len: Length = None,
    target_len: Length = None,
    long: tuple[float, ...] = (),
    short: tuple[float, ...] = (),
    over: Over = "rotating",
) -> Extension:
    """Searched divisors per pair and their temperature; without divisors, the start of the authors' search.

    Source: Ding et al. 2024, arXiv:2402.13753; microsoft/LongRoPE, evolution/search.py:166-171 for the start.
    """
    times = stretch("longrope", factor, trained_len, target_len)
    if short and not long:
        raise InvalidValue.because("long", "short needs long", remedy="give both, or long alone")
    schedule: Frequencies = LongRoPE(long=long, short=short) if long else ByParts(factor=times, mix="wavelength")
    return Extension(frequencies=schedule, scales=(LongRoPETemperature(factor=times, over=over),))
