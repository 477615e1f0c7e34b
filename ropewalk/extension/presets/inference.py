"""Presets for a trained rotary model at inference; nothing is trained."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable

from ropewalk.errors import InvalidValue
from ropewalk.extension.extension import Extension
from ropewalk.extension.presets.arguments import (
    Length,
    checked_arguments,
    require_countable,
    share_of,
    squeeze,
    target_or,
)
from ropewalk.methods.biases import FarDiscount
from ropewalk.methods.decoding import NBCE, MeanPooling
from ropewalk.methods.reach import (
    DPE,
    SELF,
    Blockwise,
    Causal,
    DualChunk,
    LambdaMask,
    LaMPE,
    LeakyReRoPE,
    ReadingWindow,
    ReRoPE,
    ReRoPEByParts,
    SelfExtend,
    Sinks,
    String,
    Window,
    furthest,
)
from ropewalk.methods.scales import LogN

# The authors' for Llama 3.1, the only one of their models whose bands stay within its trained length.
DPE_GROUPS = (2, 32, 32, 2, 2, 2, 2, 1)
SWAA_LONG = 4096  # trained tokens from which on SWAA's window and sinks are the authors'


@checked_arguments
def window(*, window: int | None = None, trained_len: Length = None) -> Extension:
    """A sliding window of the trained length.

    Source: Jiang et al. 2023 (Mistral 7B), arXiv:2310.06825, sec. 2.
    """
    return Extension(reach=Window(window=share_of("window", "window", window, trained_len)))


@checked_arguments
def bca(*, block: int | None = None, trained_len: Length = None) -> Extension:
    """Blockwise causal attention in blocks of the trained length (rounded down to even).

    Source: Sun et al. 2022, arXiv:2212.10554, sec. 3.3.
    """
    size = 2 * share_of("bca", "block", None, trained_len, 1 / 2) if block is None else block
    return Extension(reach=Blockwise(block=size))


@checked_arguments
def streaming(*, window: int | None = None, n_sink: int = 4, trained_len: Length = None) -> Extension:
    """StreamingLLM: four sinks and a window, together the trained length.

    Source: Xiao et al. 2023, arXiv:2309.17453.
    """
    size = share_of("streaming", "window", window, trained_len, less=n_sink)
    return Extension(reach=Sinks(window=size, n_sink=n_sink))


@checked_arguments
def swaa(
    *,
    window: int | None = None,
    n_sink: int | None = None,
    every: int = 2,
    layers: int,
    trained_len: Length = None,
) -> Extension:
    """SWAA: tokens of a prompt see the last 2048 keys and the first 100, in every second layer; written ones see all.

    The layers 1, 1 + every, ... see all keys in all tokens; with every=0 none does. Sinks keep their distance, so that
    beyond the trained length a schedule such as yarn is needed too. A model trained on few tokens has a window of half
    of them, and a fortieth as sinks.

    Source: Yu et al. 2025, arXiv:2512.10411; yuyijiong/sliding-window-attention-adaptation, README (2048, 100).
    """
    require_countable(layers)
    if every < 0 or every == 1:
        raise InvalidValue("every", "0, or at least 2", every, remedy="every=1 would be the model as it is")
    least = min(trained_len or SWAA_LONG, SWAA_LONG)
    full = range(1, layers, every) if every else ()
    return Extension(
        reach=ReadingWindow(
            window=max(least // 2, 1) if window is None else window,
            n_sink=min(max(least // 40, 1), 100) if n_sink is None else n_sink,
        ),
        layers={layer: Extension(reach=Causal()) for layer in full},
    )


@checked_arguments
def lm_infinite(*, window: int | None = None, n_sink: int = 10, trained_len: Length = None) -> Extension:
    """LM-Infinite: ten sinks at a fixed distance and a window of the trained length.

    Source: Han et al. 2023, arXiv:2308.16137; Glaciohound/LM-Infinite, README (10; 100 in the paper's runs).
    """
    return Extension(reach=LambdaMask(window=share_of("lm_infinite", "window", window, trained_len), n_sink=n_sink))


@checked_arguments
def rerope(*, window: int | None = None, trained_len: Length = None) -> Extension:
    """ReRoPE with a window of a quarter of the trained length; add log_n for the authors' code.

    Source: Su 2023, kexue.fm/9708; bojone/rerope, README (1,024 of 4,096).
    """
    return Extension(reach=ReRoPE(window=share_of("rerope", "window", window, trained_len, 1 / 4)))


@checked_arguments
def leaky_rerope(
    *,
    window: int | None = None,
    leak: float | None = None,
    trained_len: Length = None,
    target_len: Length = None,
) -> Extension:
    """Leaky ReRoPE: a window of a quarter of the trained length, a leak that keeps the longest distance at half of it.

    Source: Su 2023, kexue.fm/9708; leak 16 without a target length.
    """
    size = share_of("leaky_rerope", "window", window, trained_len, 1 / 4)
    if leak is None:
        leak = squeeze(size, 1 / 2, trained_len, target_len) or 16.0
    return Extension(reach=LeakyReRoPE(window=size, leak=leak))


@checked_arguments
def rerope_by_parts(
    *,
    window: int | None = None,
    leak: float | None = None,
    low_turns: float = 0.5,
    high_turns: float = 2.0,
    trained_len: Length = None,
    target_len: Length = None,
) -> Extension:
    """ReRoPE by parts: a window of 3/8 of the trained length, and a leak that keeps the longest distance at 3/4 of it.

    Source: ours, 2026; leak 16 without a target length.
    """
    size = share_of("rerope_by_parts", "window", window, trained_len, 3 / 8)
    if leak is None:
        leak = squeeze(size, 3 / 4, trained_len, target_len) or 16.0
    parts = ReRoPEByParts(window=size, leak=leak, low_turns=low_turns, high_turns=high_turns)
    return Extension(reach=parts)


@checked_arguments
def long_reach(
    *,
    window: int | None = None,
    leak: float | None = None,
    trained_len: Length = None,
    target_len: Length = None,
) -> Extension:
    """ReRoPE by parts with a steeper log-n and a discount of far keys: the best on code with a trained length of 512.

    Source: ours, 2026; studies/results/compositions, and docs/results/real, where self_extend+log_n is better on a real
    model of 8,192 tokens. Window and leak as for rerope_by_parts.
    """
    parts = rerope_by_parts(window=window, leak=leak, trained_len=trained_len, target_len=target_len)
    size = share_of("long_reach", "window", window, trained_len, 3 / 8)
    scales = (LogN(strength=1.5),)
    return Extension(reach=parts.reach, biases=(FarDiscount(window=size),), scales=scales)


@checked_arguments
def self_extend(
    *,
    window: int | None = None,
    group: int | None = None,
    trained_len: Length = None,
    target_len: Length = None,
) -> Extension:
    """Self-Extend: a window of a quarter of the trained length, groups that keep the longest distance at 2/3 of it.

    Source: Jin et al. 2024, arXiv:2401.01325; datamllab/LongLM, README (rule of thumb, groups of 8 to 16).
    """
    size = share_of("self_extend", "window", window, trained_len, 1 / 4)
    if group is None:
        group = math.ceil(squeeze(size, 2 / 3, trained_len, target_len) or 8)
    return Extension(reach=SelfExtend(window=size, group=group))


@checked_arguments
def dpe(
    *,
    window: int | None = None,
    groups: tuple[int, ...] | None = None,
    trained_len: Length = None,
    target_len: Length = None,
) -> Extension:
    """DPE with a window of a quarter of the trained length, and the authors' sizes for Llama 3.1 in proportion.

    The pattern is 2, 32, 32, 2, 2, 2, 2, 1; the group of the last band is Self-Extend's, so that no band goes further.

    Source: Lu et al. 2025, arXiv:2504.18857; LuLuLuyi/DPE, config/dpe_config.yaml (others for each model, by a search).
    """
    size = share_of("dpe", "window", window, trained_len, 1 / 4)
    if groups is None:
        finest = math.ceil(squeeze(size, 2 / 3, trained_len, target_len) or 8)
        groups = tuple(finest * times for times in DPE_GROUPS)
    return Extension(reach=DPE(window=size, groups=groups))


@checked_arguments
def dual_chunk(*, chunk: int | None = None, local: int | None = None, trained_len: Length = None) -> Extension:
    """Dual chunk attention with chunks of three quarters of the trained length and an eighth kept local.

    Source: An et al. 2024, arXiv:2402.17463; HKUNLP/ChunkLlama, chunkllama_attn_replace.py.
    """
    place = share_of("dual_chunk", "chunk", chunk, trained_len, 3 / 4)
    return Extension(reach=DualChunk(chunk=place, local=share_of("dual_chunk", "local", local, trained_len, 1 / 8)))


@checked_arguments
def string(*, shift: int | None = None, local: int | None = None, trained_len: Length = None) -> Extension:
    """STRING: keys from a third of the trained length on move nearer, down to a distance of 128.

    For models with a short trained length the distance is at most a quarter of that third. Made for texts within the
    trained length; one a third longer still has no unknown distance.

    Source: An et al. 2024, arXiv:2410.18745; HKUNLP/STRING, README (0.33 L and 128).
    """
    start = share_of("string", "shift", shift, trained_len, 1 / 3)
    return Extension(reach=String(shift=start, local=min(128, max(start // 4, 1)) if local is None else local))


@checked_arguments
def lampe(
    *,
    head: int | None = None,
    tail: int | None = None,
    mapped: int | None = None,
    length: int | None = None,
    growth: float | None = None,
    offset: float = 0.0,
    trained_len: Length = None,
    target_len: Length = None,
) -> Extension:
    """LaMPE: the text on a scale of three quarters of the trained length, but for the nearest keys and the first 200.

    The authors map a text of n tokens to 3/4 L / (1 + exp(-(growth n + offset))), with numbers fitted to each model by
    its losses; without growth it is the limit for long texts, 3/4 L.

    Source: Zhang et al. 2025, arXiv:2508.02308, sec. 3; scar-on/LaMPE, llama_cache1.py (512 and 200 of 8,192).
    """
    length = target_or("lampe", "length", length, target_len)
    near = share_of("lampe", "head", head, trained_len, 1 / 16)
    first = min(200, share_of("lampe", "tail", tail, trained_len, 1 / 40)) if tail is None else tail
    if mapped is None:
        most = share_of("lampe", "mapped", None, trained_len, 3 / 4)
        share = 1.0 if growth is None else (1 + math.tanh((growth * length + offset) / 2)) / 2  # the sigmoid
        mapped = max(min(int(share * most), length - 2), 1)
        # The first keys are rounded up to a group, which is wide where few tokens were trained on.
        mapped = _fitting(lambda one: _lampe(near, first, length, one), mapped, length, trained_len)
    return Extension(reach=_lampe(near, first, length, mapped))


def _fitting(reach: Callable[[int], LaMPE], most: int, length: int, trained_len: Length) -> int:
    """The largest length to map to by which a text's first key is no further away than in training; 1 if none is."""
    if trained_len is None or furthest(reach(most), length - 1) < trained_len:
        return most
    return max(1, bisect_left(range(1, most), True, key=lambda one: furthest(reach(one), length - 1) >= trained_len))


def _lampe(head: int, tail: int, length: int, mapped: int) -> LaMPE:
    return LaMPE(head=head, tail=tail, length=length, mapped=mapped)


@checked_arguments
def self_logistic(
    *,
    window: int | None = None,
    capacity: int | None = None,
    rate: float | None = None,
    trained_len: Length = None,
    target_len: Length = None,
) -> Extension:
    """SELF: Self-Extend with groups that grow along a logistic curve, so far that the longest distance is as there.

    The rate is the authors' 0.02 for a trained length of 4,096 and in proportion for others, so that groups grow over
    the same share of it; the capacity is the least that keeps the longest distance at 2/3 of it.

    Source: Dang et al. 2025, arXiv:2505.17296; alexeipc/SELF-LLM, attn_method.py (capacity 33 without a target length).
    """
    near = share_of("self_logistic", "window", window, trained_len, 1 / 4)
    if rate is None:
        rate = 0.02 if trained_len is None else 0.02 * 4096 / trained_len
    if capacity is None:
        capacity = _least_capacity(near, rate, trained_len, target_len) or 33
    return Extension(reach=SELF(window=near, capacity=capacity, rate=rate))


def _least_capacity(window: int, rate: float, trained_len: Length, target_len: Length) -> int | None:
    """The capacity that brings the first key of the longest text to 2/3 of the trained length."""
    mean = squeeze(window, 2 / 3, trained_len, target_len)
    if mean is None or trained_len is None or target_len is None:
        return None
    familiar, row = 2 / 3 * trained_len, target_len - 1

    def fits(capacity: int) -> bool:
        return furthest(SELF(window=window, capacity=capacity, rate=rate), row) <= familiar

    sizes = range(math.ceil(mean) + 1, 8 * math.ceil(mean) + 8)  # above the mean group, which is below the largest
    least = bisect_left(sizes, True, key=fits)
    if least == len(sizes):
        rule = f"high enough for groups of {math.ceil(mean)} tokens on average, as a text of {target_len} needs"
        raise InvalidValue("rate", rule, rate)
    return sizes[least]


@checked_arguments
def log_n(*, clipped: bool = True, strength: float = 1.0) -> Extension:
    """log-n scaling of the logits, clipped at the trained length.

    Source: Su 2021, kexue.fm/8823; kexue.fm/9706, eq. 14.
    """
    return Extension(scales=(LogN(clipped=clipped, strength=strength),))


@checked_arguments
def nbce(*, beta: float = 0.25, eta: float = 0.1, top_p: float = 0.95) -> Extension:
    """Naive-Bayes context extension: each token from the most certain of several contexts.

    Source: Su 2023, kexue.fm/9617; bojone/NBCE.
    """
    return Extension(decoding=NBCE(beta=beta, eta=eta, top_p=top_p))


@checked_arguments
def parallel_windows(*, beta: float = 0.0) -> Extension:
    """The plain average of the log-probabilities over several contexts.

    Source: Ratner et al. 2022, arXiv:2212.10947, as read in kexue.fm/9617.
    """
    return Extension(decoding=MeanPooling(beta=beta))
