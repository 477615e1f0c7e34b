"""Decoding with fewer key and value heads: a step of a plain transformers model over a long cache, in turns.

    python -m studies.kv_heads [--quick]

One thread, float32. Ten processes, one after the other, with nine rounds each: ratios agree within a process and differ
between processes by a fifth, so each process counts once, with its median.
A Llama of 4 layers, 1,024 wide, with 16 query heads of 64 and random weights; 8,192 cached tokens.
For the cause, attention alone: 16 key heads of their own, and 16 views of one, which is the same arithmetic on a
sixteenth of the bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

from benchmarks.rounds import append, machine, rounds
from studies.claims import ARTICLE_2, Claim, JudgedClaim, Unit, judge
from studies.processes import Seconds, asked_for_quick, one_by_one, printed_ratios, processes_of, ratio, times
from studies.records import write

HEADS, DIM, LAYERS = 16, 64, 4
KINDS = {"all 16 key heads": 16, "4 key heads": 4, "1 key head": 1}
ALL, GROUPED, ONE = KINDS
APART, SHARED = "attention to 16 key heads", "attention to 16 views of one"
RECORDS = Path(__file__).resolve().parent / "results" / "kv-heads" / "kv-heads.json"
PROCESSES, ROUNDS = 10, 9
SECONDS = "seconds of rounds by process"
TIMES = Unit("times", digits=2)
SOURCE = "arXiv:2305.13245"


def step(kv_heads: int, cached: int) -> Callable[[], None]:
    """One token after a cache of random keys and values, which is as long again afterwards."""
    config = LlamaConfig(
        hidden_size=HEADS * DIM,
        intermediate_size=2816,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=kv_heads,
        vocab_size=2048,
        max_position_embeddings=2 * cached,
    )
    model: Any = LlamaForCausalLM(config)
    model.eval()
    cache = DynamicCache(config=config)
    for layer in range(LAYERS):
        keys, values = torch.randn(2, 1, kv_heads, cached, DIM)
        cache.update(keys, values, layer)
    token = torch.tensor([[1]])

    def run() -> None:
        with torch.no_grad():
            model(input_ids=token, past_key_values=cache)
        cache.crop(-1)

    return run


def attention(stored: int, cached: int) -> Callable[[], None]:
    """The attention of one token with 16 key heads, of which so many are stored."""
    q = torch.randn(1, HEADS, 1, DIM)
    k, v = (torch.randn(1, stored, cached, DIM).expand(-1, HEADS, -1, -1) for _ in range(2))

    def run() -> None:
        for _ in range(LAYERS):
            torch.nn.functional.scaled_dot_product_attention(q, k, v)

    return run


def measured(quick: bool) -> Seconds:
    """One process."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    cached = 256 if quick else 8192
    steps = {name: step(kv_heads, cached) for name, kv_heads in KINDS.items()}
    alone = {APART: attention(HEADS, cached), SHARED: attention(1, cached)}
    count = 3 if quick else ROUNDS
    return {**rounds(steps, count), **rounds(alone, count)}


class Pair(NamedTuple):
    """A claim on two candidates: how many times as long the first takes."""

    claim: Claim
    above: str
    below: str
    kinds: Mapping[str, int] = KINDS  # of the curve, the first of which is the baseline


COPIED = (
    "transformers copies the whole cache at every step (DynamicCache), which is most of the time of a step with 16 key "
    "heads. With a cache that is written in place the gain would be smaller."
)
PAIRS = (
    Pair(Claim("faster", "Grouped queries decode faster than all heads.", SOURCE,
               (("time with 16 key heads over time with 4",),), 1.0, "0.28 instead of 1.51 s", COPIED), ALL, GROUPED),
    Pair(Claim("one-faster", "A single key head decodes faster than all heads.", SOURCE,
               (("time with 16 key heads over time with 1",),), 1.0, "0.24 instead of 1.51 s", COPIED), ALL, ONE),
    Pair(Claim("as-one", "Grouped queries decode nearly as fast as a single key head: at least 0.8 times.", SOURCE,
               (("time with 1 key head over time with 4",),), 0.8, "0.28 instead of 0.24 s; the bound is ours"),
         ONE, GROUPED),
    Pair(Claim("fewer-bytes", "Fewer key heads are faster since fewer bytes are read: with the arithmetic of 16 key "
               "heads, attention to 16 views of one is faster than to 16 heads of their own.", ARTICLE_2,
               (("time with 16 key heads over time with 16 views of one",),), 1.0, "'faster than one would imagine'",
               f"Only attention is timed here (four calls of torch's). It is a tenth of what a step gains; {COPIED}"),
         APART, SHARED, {APART: HEADS, SHARED: 1}),
)  # fmt: skip


def verdicts(kept: Mapping[str, Any]) -> list[JudgedClaim]:
    """What the sources say of speed."""
    runs: list[Seconds] = kept[SECONDS]
    axes = "key heads that are stored", "time, relative to all heads"
    judged = []
    for pair in PAIRS:
        baseline = next(iter(pair.kinds))
        curve = [(heads, ratio(runs, name, baseline)) for name, heads in pair.kinds.items()]
        timed = times(runs, pair.above, pair.below)
        judged.append(judge(pair.claim, timed, TIMES, axes, {"measured": curve}, drawn=processes_of(runs)))
    return judged


def measure(quick: bool) -> None:
    """Measure process by process, print the ratios, and keep them if they are not of a quick run."""
    runs = one_by_one(measured, 2 if quick else PROCESSES, quick)
    rows = printed_ratios(runs, ALL)
    if not quick:
        print(f"stored in {append('kv_heads', rows)}")
        write(RECORDS, {"made": machine(), SECONDS: runs})


if __name__ == "__main__":
    measure(asked_for_quick("studies.kv_heads", f"{__doc__}"))
