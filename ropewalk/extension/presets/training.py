"""Presets that a model is trained or tuned with."""

from __future__ import annotations

import math

from ropewalk.errors import InvalidValue
from ropewalk.extension.extension import Extension
from ropewalk.extension.presets.arguments import (
    Length,
    checked_arguments,
    require_countable,
    share_of,
    stretch,
    target_or,
)
from ropewalk.methods.biases import BAM, FIRE, T5, ALiBi, GAURotary, KerpleLog, Sandwich
from ropewalk.methods.frequencies import ABF, Interpolation, NoPE, Partial, XPos
from ropewalk.methods.positions import PoSE, Randomized
from ropewalk.methods.reach import Causal, Chunks, Reach, ReRoPE, Window
from ropewalk.methods.scales import Llama4Temperature, LogN, SSMax
from ropewalk.methods.surgery import MHAToGQA, QKBias, StretchPositions

SMALLEST_WINDOW = 16  # tokens: a window of one or two would be none


@checked_arguments
def nope() -> Extension:
    """No positions at all.

    Source: Kazemnejad et al. 2023, arXiv:2305.19466.
    """
    return Extension(frequencies=NoPE())


@checked_arguments
def p_rope(*, share: float = 0.75) -> Extension:
    """Rotation of the fastest three quarters of the pairs; the others carry content alone.

    Source: Barbero et al. 2024, arXiv:2410.06205 (0.75 is the best of 0.25, 0.5 and 0.75; Gemma 4 has 0.25).
    """
    return Extension(frequencies=Partial(share=share, over="head"))


@checked_arguments
def rope_id(*, share: float = 0.5, new_base: float | None = None, trained_len: Length = None) -> Extension:
    """RoPE-ID: half of a head rotates, all of it fast enough to come round in training; the other half does not.

    The base is L / 2 pi, so that the slowest pair turns a little more than once in the trained length L; no angle of a
    longer text is new.

    Source: Wertheimer et al. 2026, arXiv:2603.18017 (high frequencies in some channels; half and base are ours).
    """
    if new_base is None:
        new_base = max(share_of("rope_id", "new_base", None, trained_len) / (2 * math.pi), 2.0)
    return Extension(frequencies=Partial(share=share, inner=ABF(new_base=new_base)))


@checked_arguments
def alibi() -> Extension:
    """Linear biases in place of rotation.

    Source: Press et al. 2021, arXiv:2108.12409.
    """
    return Extension(frequencies=NoPE(), biases=(ALiBi(),))


@checked_arguments
def kerple() -> Extension:
    """Learned logarithmic biases (the better of the paper's two) in place of rotation.

    Source: Chi et al. 2022, arXiv:2205.09921.
    """
    return Extension(frequencies=NoPE(), biases=(KerpleLog(),))


@checked_arguments
def bam(*, centred: bool = True) -> Extension:
    """Learned generalized Gaussians of the distance in place of rotation, with scalable softmax.

    Source: Bianchessi et al. 2025, arXiv:2505.22842; ArthurSBianchessi/BAM, README (bam_ssmax; its s is 1 at first).
    """
    return Extension(frequencies=NoPE(), biases=(BAM(centred=centred),), scales=(SSMax(start=1.0),))


@checked_arguments
def sandwich() -> Extension:
    """Sinusoidal biases in place of rotation.

    Source: Chi et al. 2022, arXiv:2212.10356.
    """
    return Extension(frequencies=NoPE(), biases=(Sandwich(),))


@checked_arguments
def t5() -> Extension:
    """Learned biases per bucket of distances in place of rotation.

    Source: Raffel et al. 2019, arXiv:1910.10683.
    """
    return Extension(frequencies=NoPE(), biases=(T5(),))


@checked_arguments
def fire() -> Extension:
    """Biases from a small network of the relative distance in place of rotation.

    Source: Li et al. 2023, arXiv:2310.04418.
    """
    return Extension(frequencies=NoPE(), biases=(FIRE(),))


@checked_arguments
def gau_bias() -> Extension:
    """Rotation, and a learned rotary bias on top.

    Source: Hua et al. 2022, arXiv:2202.10447; kexue.fm/9577.
    """
    return Extension(biases=(GAURotary(),))


@checked_arguments
def xpos(*, new_base: float | None = None) -> Extension:
    """Rotation with decay; the authors add blockwise attention at inference (write xpos+bca).

    With `new_base` the base is replaced too, as by `abf`.

    Source: Sun et al. 2022, arXiv:2212.10554.
    """
    return Extension(frequencies=XPos(new_base=new_base))


@checked_arguments
def randomized(*, limit: int | None = None, target_len: Length = None) -> Extension:
    """Random ascending positions in training, from a range of four times the target length.

    Source: Ruoss et al. 2023, arXiv:2305.16843 (2,048 numbers for texts of up to 500).
    """
    return Extension(positions=Randomized(limit=target_or("randomized", "limit", limit, target_len, times=4)))


@checked_arguments
def pose(*, target_len: Length = None, trained_len: Length = None, factor: float | None = None) -> Extension:
    """Tune on short texts numbered like long ones, with position interpolation.

    Source: Zhu et al. 2023, arXiv:2309.10400 (which also runs NTK and YaRN instead).
    """
    target = target_or("pose", "target_len", None, target_len)
    times = stretch("pose", factor, trained_len, target)
    return Extension(positions=PoSE(target_len=target), frequencies=Interpolation(factor=times))


@checked_arguments
def hwfa(*, layers: int, window: int | None = None, trained_len: Length = None) -> Extension:
    """Windows with rotation in all layers but the last, which has full attention with log-n and without positions.

    The windows together must reach no further than 3/4 of the trained length: (W-1)(layers-1) + 1 <= 3/4 L, rounded
    down to a power of two.

    Source: Su 2023, kexue.fm/9603.
    """
    size = window if window is not None else hwfa_window(layers, share_of("hwfa", "window", None, trained_len))
    full = Extension(frequencies=NoPE(), reach=Causal(), scales=(LogN(clipped=False),))
    return Extension(reach=_hiding(Window(window=size), trained_len), layers={-1: full})


def hwfa_window(layers: int, trained_len: int) -> int:
    """The largest power of two W with (W-1)(layers-1) + 1 <= 3/4 of the trained length."""
    if layers < 2:
        raise InvalidValue("layers", "at least 2, one with windows and the last", layers)
    widest = int((0.75 * trained_len - 1) / (layers - 1) + 1)
    if widest < 2:
        raise InvalidValue("layers", f"fewer, for a window of 2 in {trained_len} trained tokens", layers)
    return 1 << (widest.bit_length() - 1)


@checked_arguments
def hwfa_rerope(
    *, layers: int, window: int | None = None, trained_len: Length = None, rerope_window: int | None = None
) -> Extension:
    """Windows with rotation, and full layers at a third and two thirds of the depth that run as ReRoPE with log-n.

    A window is three times the trained length over the number of layers (the author's best are between two and four
    times). Of a model with three layers that is the whole trained length, which is refused: state a window there. Train
    these layers with plain rotation, run them with ReRoPE.

    Source: Su 2023, kexue.fm/9731 ("HWFA2", f2).
    """
    if layers < 3:
        raise InvalidValue("layers", "at least 3, two of which are full", layers)
    far = share_of("hwfa_rerope", "rerope_window", rerope_window, trained_len, 1 / 2)
    full = Extension(reach=ReRoPE(window=far), scales=(LogN(),))
    size = share_of("hwfa_rerope", "window", window, trained_len, 3 / layers)
    near = _hiding(Window(window=size), trained_len)
    return Extension(reach=near, layers={layers // 3: full, 2 * layers // 3: full})


@checked_arguments
def swan(*, layers: int, every: int = 4, window: int | None = None, trained_len: Length = None) -> Extension:
    """Full attention without rotation in the first of every four layers, short windows with rotation in the others.

    A window is a sixteenth of the trained length, and 16 tokens at least. The authors sharpen the full layers beyond
    the trained length by a logarithm fitted to their model, ln(a + i); here it is log-n.

    Source: Puvvada et al. 2025 (SWAN-GPT), arXiv:2504.08719 (512 of 8,192).
    """
    size = _share_or_few("swan", "window", window, trained_len, 1 / 16)
    full = Extension(frequencies=NoPE(), reach=Causal(), scales=(LogN(),))
    near = _hiding(Window(window=size), trained_len)
    return _interleaved(near, full, layers, range(0, layers, _period(every)))


@checked_arguments
def rnope_swa(*, layers: int, every: int = 4, window: int | None = None, trained_len: Length = None) -> Extension:
    """Full attention without rotation in the last of every four layers, windows with rotation in the others.

    A window is half of the trained length.

    Source: Yang et al. 2025, arXiv:2501.18795; Command R7B (windows of 4,096 of 8,192).
    """
    size = share_of("rnope_swa", "window", window, trained_len, 1 / 2)
    full = Extension(frequencies=NoPE(), reach=Causal())
    near = _hiding(Window(window=size), trained_len)
    return _interleaved(near, full, layers, range(_period(every) - 1, layers, every))


@checked_arguments
def irope(*, layers: int, every: int = 4, chunk: int | None = None, trained_len: Length = None) -> Extension:
    """Full attention with Llama 4's temperature and without rotation in the last of every four layers, chunks with
    rotation in the others.

    A chunk, and a step of the temperature, is 1/32 of the trained length, and 16 tokens at least.

    Source: Meta 2025, Llama 4 Scout (8,192 of 262,144); transformers, models/llama4.
    """
    size = _share_or_few("irope", "chunk", chunk, trained_len, 1 / 32)
    full = Extension(frequencies=NoPE(), reach=Causal(), scales=(Llama4Temperature(length=size, first=1),))
    near = _hiding(Chunks(chunk=size), trained_len)
    return _interleaved(near, full, layers, range(_period(every) - 1, layers, every))


def _share_or_few(preset: str, name: str, value: int | None, trained_len: Length, share: float) -> int:
    """The value, by default a share of the trained length; of a short one `SMALLEST_WINDOW` tokens, or half of it."""
    size = share_of(preset, name, value, trained_len, share)
    return size if value is not None or trained_len is None else max(size, min(SMALLEST_WINDOW, trained_len // 2))


def _interleaved(near: Reach, full: Extension, layers: int, places: range) -> Extension:
    """Full layers at these places, and others; refused where there is only one kind."""
    require_countable(layers)
    if not 0 < len(places) < layers:
        raise InvalidValue("layers", f"at least {max(places.start + 1, 2)}, for full layers and others", layers)
    return Extension(reach=near, layers=dict.fromkeys(places, full))


def _period(every: int) -> int:
    """How many layers there are to one full layer."""
    if every < 2:
        raise InvalidValue("every", "at least 2, one full layer and one other", every)
    return every


def _hiding(near: Window | Chunks, trained_len: Length) -> Window | Chunks:
    """A reach that hides keys in training; another one is refused, since its layers would be trained as plain ones."""
    size = near.window if isinstance(near, Window) else near.chunk
    if trained_len is not None and size >= trained_len:
        kind = "window" if isinstance(near, Window) else "chunk"
        rule = f"below the trained length ({trained_len}), or nothing is hidden in training"
        raise InvalidValue(kind, rule, size, remedy=f"state a smaller {kind}, or use more layers")
    return near


@checked_arguments
def ssmax(*, start: float | None = None) -> Extension:
    """Scalable softmax: each head learns how fast its logits grow with the logarithm of the number of keys.

    Source: Nakanishi 2025, arXiv:2501.19399 (in training from the start, or for the last part of it).
    """
    return Extension(scales=(SSMax(start=start),))


@checked_arguments
def gqa(*, kv_heads: int = 8) -> Extension:
    """Grouped-query attention from multi-head weights, with eight key heads as in Llama 2 70B and Mistral.

    Source: Ainslie et al. 2023, arXiv:2305.13245.
    """
    return Extension(surgery=(MHAToGQA(kv_heads=kv_heads),))


@checked_arguments
def qk_bias() -> Extension:
    """Rotation, with trainable biases on queries and keys.

    Source: Su 2023, kexue.fm/9577.
    """
    return Extension(surgery=(QKBias(),))


@checked_arguments
def stretched_positions(*, target_len: Length = None) -> Extension:
    """Learned absolute positions, interpolated to the target length.

    Source: Dosovitskiy et al. 2020, arXiv:2010.11929, sec. 3.2.
    """
    return Extension(
        surgery=(StretchPositions(target_len=target_or("stretched_positions", "target_len", None, target_len)),)
    )
