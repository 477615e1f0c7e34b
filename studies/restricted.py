"""What restricted attention and YaRN's temperature cost: claims of articles, judged by time and by the size of caches.

    python -m studies.restricted [--quick]

One thread, float32. Ten processes, one after the other, with seven rounds each: each process counts once, with its
median. Attention has 8 heads of 64 over 8,192 tokens; a window has 512. The cache is that of the model that Ropewalk
carries, after texts of 512 to 4,096 tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers.cache_utils import Cache

import ropewalk as rw
from ropewalk.attention import attend
from ropewalk.measure.metrics.intervals import Estimate
from ropewalk.models import path_of

from benchmarks.rounds import append, machine, rounds
from studies.claims import ARTICLE_1, ARTICLE_2, ARTICLE_3, Claim, JudgedClaim, Unit, judge
from studies.processes import Seconds, asked_for_quick, one_by_one, printed_ratios, processes_of, times
from studies.records import write

HEADS, DIM, TOKENS, WINDOW = 8, 64, 8192, 512
FULL, MASKED, WINDOWS, UNCHANGED, TEMPERATURE = "full", "masked", "windows", "by_parts", "yarn"
CACHED = (512, 1024, 2048, 4096)  # tokens of a text
RECORDS = Path(__file__).resolve().parent / "results" / "restricted" / "restricted.json"
PROCESSES, ROUNDS = 10, 7
SECONDS, BYTES = "seconds of rounds by process", "bytes of the cache by length"
TIMES = Unit("times", digits=3)


def candidates(tokens: int) -> dict[str, Callable[[], Tensor]]:
    """Attention of each kind over the same random tokens."""
    facts = rw.Facts(trained_len=tokens // 4, head_dim=DIM, heads=HEADS)
    q, k, v = torch.randn(3, 1, HEADS, tokens, DIM)
    behind = torch.arange(tokens)[:, None] - torch.arange(tokens)
    seen = (behind >= 0) & (behind < WINDOW)

    def under(line: str) -> Callable[[], Tensor]:
        extension = rw.parse(line)
        return lambda: attend(q, k, v, extension, facts)

    return {
        FULL: lambda: scaled_dot_product_attention(q, k, v, is_causal=True),
        MASKED: lambda: scaled_dot_product_attention(q, k, v, attn_mask=seen),
        WINDOWS: under(f"window:window={WINDOW}"),
        UNCHANGED: under("by_parts:factor=4"),
        TEMPERATURE: under("yarn:factor=4"),
    }


def measured(quick: bool) -> Seconds:
    """One process."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    return rounds(candidates(1024 if quick else TOKENS), 2 if quick else ROUNDS)


def cached(lengths: Iterable[int] = CACHED) -> dict[str, list[int]]:
    """Bytes of all tensors of the carried model's cache after a text of each length."""
    model = rw.load(path_of("default"))
    found: dict[str, list[int]] = {}
    for line in ("rope", f"window:window={WINDOW}"):
        with rw.extended(model, line, target_len=max(CACHED)), torch.no_grad():
            found[line] = [held(model(torch.arange(length)[None] % 2000).past_key_values) for length in lengths]
    return found


def held(cache: Cache) -> int:
    """Bytes of all tensors in a cache."""
    tensors: dict[int, int] = {}
    left: list[Any] = list(cache.layers)
    while left:
        one = left.pop()
        if isinstance(one, Tensor):
            tensors[one.untyped_storage().data_ptr()] = one.untyped_storage().nbytes()
        elif isinstance(one, list | tuple):
            left += one
        elif hasattr(one, "__dict__"):
            left += vars(one).values()
    return sum(tensors.values())


MASK = Claim(
    "masked-window",
    "A window that is only masked saves nothing: it takes at least 0.95 times as long as attention to all tokens.",
    ARTICLE_1,
    (("time of a masked window over time of full attention",),),
    0.95,
)
COMPUTED = Claim(
    "computed-window",
    f"Computed as windows it saves much: at {TOKENS:,} tokens full attention takes at least twice as long as a window "
    f"of {WINDOW}.",
    ARTICLE_1,
    (("time of full attention over time of a window",),),
    2.0,
    note="Twice is our bound. A window of 512 has an eighth of the pairs.",
)
WARM = Claim(
    "yarn-temperature-cost",
    "YaRN's temperature costs hardly any computation: without it attention takes at least 0.952 times as long.",
    f"{ARTICLE_3} on arXiv:2309.00071",
    (("time of by_parts over time of yarn",),),
    1 / 1.05,
    "'almost no'; the bound is ours",
    "`yarn` is `by_parts` with the temperature. 1 / 0.952 is 1.05.",
)
BOUNDED = Claim(
    "window-cache",
    "A window needs a cache of its own size only, whatever the text's length: after eight times as many tokens it has "
    "at most 1.01 times the bytes.",
    f"{ARTICLE_2} on arXiv:2310.06825",
    (("bytes after 512 tokens over bytes after 4,096",),),
    1 / 1.01,
    note="Counted, not drawn, so the interval has no width. The cache has its full size from the first token on.",
)


def verdicts(kept: Mapping[str, Any]) -> list[JudgedClaim]:
    """What the articles say of cost."""
    runs: list[Seconds] = kept[SECONDS]
    sizes: dict[str, list[int]] = kept[BYTES]
    axes = ("kind", "time, relative to full attention")
    pairs = {MASK: (MASKED, FULL), COMPUTED: (FULL, WINDOWS), WARM: (UNCHANGED, TEMPERATURE)}
    timed = [judge(one, times(runs, *pair), TIMES, axes, drawn=processes_of(runs)) for one, pair in pairs.items()]
    lines = {
        line: [(length, exactly(size / 2**20)) for length, size in zip(CACHED, bytes_, strict=True)]
        for line, bytes_ in sizes.items()
    }
    windowed = sizes[f"window:window={WINDOW}"]
    counted = exactly(windowed[0] / windowed[-1])
    bounded = judge(BOUNDED, lambda terms, level: counted, TIMES, ("tokens of the text", "MiB"), lines, drawn="counted")
    return [*timed, bounded]


def exactly(number: float) -> Estimate:
    """A number that was counted."""
    return Estimate(number, number, number, 1)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure process by process, append the ratios and write what the claims follow from."""
    quick = asked_for_quick("studies.restricted", f"{__doc__}", arguments)
    runs = one_by_one(measured, 2 if quick else PROCESSES, quick)
    rows = printed_ratios(runs, FULL)
    if not quick:
        sizes = cached()
        print(f"stored in {append('restricted_attention', rows)}")
        write(RECORDS, {"made": machine(), SECONDS: runs, BYTES: sizes})


if __name__ == "__main__":
    main()
