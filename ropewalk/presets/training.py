"""Presets that a model is trained or tuned with."""

from __future__ import annotations

from ropewalk.biases import FIRE, T5, ALiBi, GAURotary, KerpleLog, Sandwich
from ropewalk.errors import InvalidValue
from ropewalk.extension import Extension
from ropewalk.frequencies import Interpolation, NoPE, XPos
from ropewalk.positions import PoSE, Randomized
from ropewalk.presets.lengths import Length, share_of, stretch, target_or
from ropewalk.reach import Causal, ReRoPE, Window
from ropewalk.scales import LogN
from ropewalk.surgery import MHAToGQA, QKBias, StretchPositions


def nope() -> Extension:
    """No positions at all.

    Source: Kazemnejad et al. 2023, arXiv:2305.19466.
    """
    return Extension(frequencies=NoPE())


def alibi() -> Extension:
    """Linear biases in place of rotation.

    Source: Press et al. 2021, arXiv:2108.12409.
    """
    return Extension(frequencies=NoPE(), biases=(ALiBi(),))


def kerple() -> Extension:
    """Learned logarithmic biases (the better of the paper's two) in place of rotation.

    Source: Chi et al. 2022, arXiv:2205.09921.
    """
    return Extension(frequencies=NoPE(), biases=(KerpleLog(),))


def sandwich() -> Extension:
    """Sinusoidal biases in place of rotation.

    Source: Chi et al. 2022, arXiv:2212.10356.
    """
    return Extension(frequencies=NoPE(), biases=(Sandwich(),))


def t5() -> Extension:
    """Learned biases per bucket of distances in place of rotation.

    Source: Raffel et al. 2019, arXiv:1910.10683.
    """
    return Extension(frequencies=NoPE(), biases=(T5(),))


def fire() -> Extension:
    """Biases from a small network of the relative distance in place of rotation.

    Source: Li et al. 2023, arXiv:2310.04418.
    """
    return Extension(frequencies=NoPE(), biases=(FIRE(),))


def gau_bias() -> Extension:
    """Rotation, and a learned rotary bias on top.

    Source: Hua et al. 2022, arXiv:2202.10447; kexue.fm/9577.
    """
    return Extension(biases=(GAURotary(),))


def xpos() -> Extension:
    """Rotation with decay; the authors add blockwise attention at inference (write xpos+bca).

    Source: Sun et al. 2022, arXiv:2212.10554.
    """
    return Extension(frequencies=XPos())


def randomized(*, limit: int | None = None, target_len: Length = None) -> Extension:
    """Random ascending positions in training, from a range of four times the target length.

    Source: Ruoss et al. 2023, arXiv:2305.16843 (2,048 numbers for texts of up to 500).
    """
    return Extension(positions=Randomized(limit=target_or("randomized", "limit", limit, target_len, times=4)))


def pose(*, target_len: Length = None, trained_len: Length = None, factor: float | None = None) -> Extension:
    """Tune on short texts numbered like long ones, with position interpolation.

    Source: Zhu et al. 2023, arXiv:2309.10400 (which also runs NTK and YaRN instead).
    """
    target = target_or("pose", "target_len", None, target_len)
    times = stretch("pose", factor, trained_len, target)
    return Extension(positions=PoSE(target_len=target), frequencies=Interpolation(factor=times))


def hwfa(*, layers: int, window: int | None = None, trained_len: Length = None) -> Extension:
    """Windows with rotation in all layers but the last, which has full attention with log-n and without positions.

    The windows together must reach no further than 3/4 of the trained length: (W-1)(layers-1) + 1 <= 3/4 L, rounded
    down to a power of two.

    Source: Su 2023, kexue.fm/9603.
    """
    size = window if window is not None else hwfa_window(layers, share_of("hwfa", "window", None, trained_len))
    full = Extension(frequencies=NoPE(), reach=Causal(), scales=(LogN(clipped=False),))
    return Extension(reach=Window(window=size), layers={-1: full})


def hwfa_window(layers: int, trained_len: int) -> int:
    """The largest power of two W with (W-1)(layers-1) + 1 <= 3/4 of the trained length."""
    if layers < 2:
        raise InvalidValue("layers", "at least 2, one with windows and the last", layers)
    widest = int((0.75 * trained_len - 1) / (layers - 1) + 1)
    if widest < 2:
        raise InvalidValue("layers", f"fewer, for a window of 2 in {trained_len} trained tokens", layers)
    return 1 << (widest.bit_length() - 1)


def hwfa_rerope(
    *, layers: int, window: int | None = None, trained_len: Length = None, rerope_window: int | None = None
) -> Extension:
    """Windows with rotation, and full layers at a third and two thirds of the depth that run as ReRoPE with log-n.

    A window is three times the trained length over the number of layers (the author's best are between two and four
    times). Train these layers with plain rotation, run them with ReRoPE.

    Source: Su 2023, kexue.fm/9731 ("HWFA2", f2).
    """
    if layers < 3:
        raise InvalidValue("layers", "at least 3, two of which are full", layers)
    far = share_of("hwfa_rerope", "rerope_window", rerope_window, trained_len, 1 / 2)
    full = Extension(reach=ReRoPE(window=far), scales=(LogN(),))
    size = share_of("hwfa_rerope", "window", window, trained_len, 3 / layers)
    return Extension(reach=Window(window=size), layers={layers // 3: full, 2 * layers // 3: full})


def gqa(*, kv_heads: int = 8) -> Extension:
    """Grouped-query attention from multi-head weights, with eight key heads as in Llama 2 70B and Mistral.

    Source: Ainslie et al. 2023, arXiv:2305.13245.
    """
    return Extension(surgery=(MHAToGQA(kv_heads=kv_heads),))


def qk_bias() -> Extension:
    """Rotation, with trainable biases on queries and keys.

    Source: Su 2023, kexue.fm/9577.
    """
    return Extension(surgery=(QKBias(),))


def stretched_positions(*, target_len: Length = None) -> Extension:
    """Learned absolute positions, interpolated to the target length.

    Source: Dosovitskiy et al. 2020, arXiv:2010.11929, sec. 3.2.
    """
    return Extension(
        surgery=(StretchPositions(target_len=target_or("stretched_positions", "target_len", None, target_len)),)
    )
