"""What a comparison does, decided before it: lengths, lines and rounds, and the time and the memory that they need.

    seconds(n) = (2 n parameters) / rate + (sum over layers of 2 heads (d_k + d_v) pairs(n)) / pair rate
    cell(n)    = 1.1 (seconds(n) + (2 asked parameters) / rate), with the tokens that are asked after a text

pairs(n) are the pairs of a token and a key before it: n^2 / 2, or about n w under a window of w. A few seconds of
reading show both rates of this model on this machine: that of pairs by a chunk that is read behind many keys.
"""

from __future__ import annotations

import time
import timeit
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

from ropewalk.errors import DoesNotFit, InvalidValue
from ropewalk.hf.attach.handle import host_of
from ropewalk.hf.checkpoint.tokens import token_ids
from ropewalk.hf.load_options import AUTO, LoadOptions
from ropewalk.hf.loading import is_small
from ropewalk.hf.probe.host import device_of
from ropewalk.hf.probe.max_length import require_held
from ropewalk.hf.use.inspect import Inspection
from ropewalk.hf.use.long_text import score_tokens
from ropewalk.measure.arguments import FEWEST_TEXTS
from ropewalk.measure.metrics.losses import token_losses

TIMES = (1, 2, 4)  # lengths by default, in trained lengths
ONE_ROUND = 20.0  # seconds: a comparison that takes no longer has one round
FIRST_TABLE_SECONDS = 180.0  # seconds: where the first table would take longer, it is of a shorter length
LEAST_LINES = 2  # of those that a caller did not choose, however little time there is
CALIBRATED = (512, 2048)  # tokens of the texts that show the rate: the longer one where it is read in a few seconds
FEW_SECONDS = 6.0
FIRST_READ = 64  # tokens of a text that is read before anything is timed
DEPTH = 16  # times as many keys as the chunk has that shows the rate of pairs
PRODUCT = (128, 1024)  # rows and columns of the matrices that show how fast a precision is
EXTENSION_SLOWDOWN = 1.1  # an extension's time over the base model's
QUESTION_TOKENS = 320  # tokens of the questions after a text, and of the passage that is copied
CACHES_PLANNED = 3  # of the longest text's keys and values: grown, joined, and kept for the questions
GIB = 2**30


class PlannedRound(NamedTuple):
    """A part of a comparison, after which there is a table."""

    texts: int
    only_longest: bool = False  # extensions read texts of its longest length alone
    shortest: int | None = None  # only so many lengths, the shortest; None: all


@dataclass(frozen=True)
class Cost:
    """The operations of reading a text, and how many this machine does in a second."""

    parameters: int
    layers: tuple[tuple[float, int | None], ...]  # 2 heads (d_k + d_v), and the window
    rate: float = 1.0
    pair_rate: float | None = None  # `rate` if nothing

    def of_pairs(self, length: int) -> float:
        """The operations of attention in one text."""
        pairs = {window: _pairs(length, window) for _, window in self.layers}
        return sum(of_pair * pairs[window] for of_pair, window in self.layers)

    def operations(self, length: int) -> float:
        """Of one text."""
        return 2.0 * length * self.parameters + self.of_pairs(length)

    def seconds(self, length: int) -> float:
        """Of one text, by the base model."""
        pairs = self.of_pairs(length)
        return (self.operations(length) - pairs) / self.rate + pairs / (self.pair_rate or self.rate)

    def cell(self, length: int) -> float:
        """Seconds of one text under an extension, with the questions after it."""
        return EXTENSION_SLOWDOWN * (self.seconds(length) + 2.0 * QUESTION_TOKENS * self.parameters / self.rate)

    def times(self, count: int) -> Cost:
        """With so many workers."""
        return replace(self, rate=count * self.rate, pair_rate=self.pair_rate and count * self.pair_rate)


def _pairs(length: int, window: int | None) -> float:
    seen = min(window or length, length)
    return length * seen - seen**2 / 2


def cost_of(model: Any, inspection: Inspection) -> Cost:
    """The operations of a model; a table of words that only looks tokens up costs nothing."""
    tied = model.get_output_embeddings() is not None and (
        model.get_output_embeddings().weight is model.get_input_embeddings().weight
    )
    words = 0 if tied else model.get_input_embeddings().weight.numel()
    parameters = sum(parameter.numel() for parameter in model.parameters()) - words
    layers = tuple((2.0 * one.heads * (one.head_dim + one.value_dim), one.window) for one in inspection.layers)
    return Cost(max(1, parameters), layers)


def calibrate(cost: Cost, model: Any, ids_n: Tensor, clock: Callable[[], float] = time.perf_counter) -> Cost:
    """The cost with rates that were measured: by reading the beginning of a text, and more where that is quick."""
    rate, ids = 0.0, ids_n.to(device_of(model))[None]
    if len(ids_n) > CALIBRATED[0] and (both := _both_rates(cost, model, ids[:, : CALIBRATED[0] + 1], clock)):
        return replace(cost, rate=both[0], pair_rate=both[1])
    for length in sorted({min(len(ids_n), count) for count in CALIBRATED}):
        if rate and cost.operations(length) / rate > FEW_SECONDS:
            break
        token_losses(model, ids[:, :FIRST_READ])  # the first text in a process takes longer
        began = clock()
        token_losses(model, ids[:, :length])
        rate = cost.operations(length - 1) / max(clock() - began, 1e-6)
    return replace(cost, rate=rate)


def product_seconds(dtype: torch.dtype, clock: Callable[[], float] = time.perf_counter) -> float:
    """The seconds of a product of matrices in a precision, the least of three."""
    a, b = torch.ones(PRODUCT[0], PRODUCT[1], dtype=dtype), torch.ones(PRODUCT[1], PRODUCT[1], dtype=dtype)
    a @ b  # the first one takes longer
    return min(timeit.repeat(lambda: a @ b, timer=clock, repeat=3, number=1))


def _both_rates(cost: Cost, model: Any, ids_bn: Tensor, clock: Callable[[], float]) -> tuple[float, float] | None:
    """The rates of tokens and of pairs, by reading a chunk, and again behind its own keys many times over.

    None where layers keep other caches, where the model has no such positions, or where nothing tells the two apart.
    """
    length = ids_bn.shape[1] - 1
    with suppress(DoesNotFit):
        require_held(host_of(model), (DEPTH + 1) * length)
        _seconds(model, ids_bn[:, :FIRST_READ], clock)  # the first text in a process takes longer
        plain, cache = _seconds(model, ids_bn, clock)
        if {type(layer) for layer in cache.layers} - {DynamicLayer, DynamicSlidingWindowLayer}:
            return None
        for layer in cache.layers:
            if type(layer) is DynamicLayer and layer.keys is not None and layer.values is not None:
                layer.keys, layer.values = (kept.repeat(1, 1, DEPTH, 1) for kept in (layer.keys, layer.values))
        deep, _ = _seconds(model, ids_bn, clock, cache)
        pairs = sum(of_pair * length * length * DEPTH for of_pair, window in cost.layers if window is None)
        if pairs and deep > plain:
            pair_rate = pairs / (deep - plain)
            rest = plain - cost.of_pairs(length) / pair_rate
            return (2.0 * length * cost.parameters / rest, pair_rate) if rest > 0 else None
    return None


def _seconds(
    model: Any, ids_bn: Tensor, clock: Callable[[], float], cache: DynamicCache | None = None
) -> tuple[float, DynamicCache]:
    """The seconds in which a text is read behind what a cache holds, and the cache after it."""
    cache = DynamicCache(config=host_of(model).config) if cache is None else cache
    began = clock()
    score_tokens(model, ids_bn, cache=cache)
    return clock() - began, cache


def require_trained_length(lengths: Sequence[int], known: int, field: str = "lengths") -> None:
    """Refuse a length below the trained one, at which the base model is measured anyway."""
    if lengths and min(lengths) < known:
        remedy = "leave it out: what an extension does to texts of the trained length is measured anyway"
        raise InvalidValue(field, f"at least the trained length ({known})", min(lengths), remedy=remedy)


@dataclass(frozen=True, kw_only=True)
class ComparisonPlan:
    """What is done, and what is left out."""

    lengths: tuple[int, ...]
    lines: int  # of the lines that were asked for, the first ones
    rounds: tuple[PlannedRound, ...]
    cost: Cost
    limit: float | None  # seconds
    memory: int  # bytes beside the weights
    left_out: tuple[int, ...] = ()  # lengths

    def seconds(self, round_: PlannedRound) -> float:
        """Of everything up to the end of a round."""
        return seconds_needed(self.cost, self.lengths, self.lines, self.rounds[: self.rounds.index(round_) + 1])

    def unread(self, done: PlannedRound) -> str:
        """What the rounds after one would read."""
        longer = " and ".join(f"{length:,}" for length in self.lengths[done.shortest or len(self.lengths) :])
        more = self.rounds[-1].texts - done.texts
        parts = [f"texts of {longer} tokens"] * bool(longer) + [f"{more} more texts"] * bool(more)
        return ", ".join(parts) or "texts of other lengths"

    @property
    def last(self) -> PlannedRound:
        """The last round that is expected to end in time: the first one is always finished."""
        fitting = [one for one in self.rounds if self.limit is None or self.seconds(one) <= self.limit]
        return fitting[-1] if fitting else self.rounds[0]


def seconds_needed(cost: Cost, lengths: Sequence[int], lines: int, rounds: Sequence[PlannedRound]) -> float:
    """Seconds until the last of some rounds is done: no text is read twice."""
    base, others = dict.fromkeys(lengths, 0), dict.fromkeys(lengths, 0)  # texts
    for one in rounds:
        read = lengths[: one.shortest]
        for length in read:
            base[length] = max(base[length], one.texts)
        for length in read[-1:] if one.only_longest else read:
            others[length] = max(others[length], one.texts)
    return sum((base[length] + lines * others[length]) * cost.cell(length) for length in lengths)


def plan_comparison(
    cost: Cost,
    inspection: Inspection,
    asked: Sequence[int],
    *,
    lines: int,
    chosen: bool,
    samples: int,
    limit: float | None,
    free: int,
    texts_of: Callable[[int], int],
) -> ComparisonPlan:
    """The plan: asked-for lengths and lines as they are; else what time, memory and texts allow.

    `texts_of` says how many texts of a length there are, at most `samples`; `free` is the memory in bytes; `chosen`
    lines are never left out.
    """
    known = inspection.facts.trained_len
    lengths, left_out = tuple(asked), list[int]()
    if not asked:
        every = [times * known for times in TIMES]
        while len(every) > 1 and not _fits(cost, inspection, every, lines, limit, free, texts_of):
            left_out.insert(0, every.pop())
        lengths = tuple(every)
    count = max(1, min(samples, texts_of(lengths[-1])))
    first = PlannedRound(1, only_longest=True)
    while not chosen and lines > LEAST_LINES and limit and seconds_needed(cost, lengths, lines, [first]) > limit:
        lines -= 1
    whole = PlannedRound(count)
    rounds = [PlannedRound(texts) for texts in (1, 2, 4, 8, 16, 32, 64) if texts < count] + [whole]
    if len(lengths) > 2 and seconds_needed(cost, lengths, lines, [first]) > FIRST_TABLE_SECONDS:
        rounds.insert(0, first)
        first = first._replace(shortest=2)
    quick = seconds_needed(cost, lengths, lines, [whole]) <= ONE_ROUND
    return ComparisonPlan(
        lengths=lengths,
        lines=lines,
        rounds=(whole,) if quick else (first, *rounds),
        cost=cost,
        limit=limit,
        memory=_memory(inspection, lengths[-1]),
        left_out=tuple(left_out),
    )


def _fits(
    cost: Cost,
    inspection: Inspection,
    lengths: Sequence[int],
    lines: int,
    limit: float | None,
    free: int,
    texts_of: Callable[[int], int],
) -> bool:
    """Whether two texts of the longest length can be read in time, within memory, where there are two."""
    if (
        limit is not None
        and len(lengths) > 2
        and seconds_needed(cost, lengths, lines, [PlannedRound(FEWEST_TEXTS)]) > limit
    ):
        return False
    return _memory(inspection, lengths[-1]) <= free and texts_of(lengths[-1]) >= FEWEST_TEXTS


def _memory(inspection: Inspection, length: int) -> int:
    """Beside the weights, about: the cache with its copies, and the work space of a chunk."""
    return CACHES_PLANNED * replace(inspection, target_len=length).cache_bytes() + GIB // 2


# Which precision a model is measured in: the faster one of two, where nobody has chosen.


OTHER_PRECISION = {torch.float32: torch.bfloat16, torch.bfloat16: torch.float32}
FASTER = 1.1  # times as fast, from which on another precision is taken
DECISIVE = 3.0  # times as fast products: a model is then not read in the slower precision at all


def is_free(model: Any, loaded: Any, options: LoadOptions) -> bool:
    """Whether nobody has chosen a precision: a loaded model has one, and a small model keeps its own."""
    named = isinstance(model, str | Path) and options.dtype == AUTO
    return named and loaded.device.type == "cpu" and not is_small(loaded)


def calibration_text(tokenizer: Any, trained_len: int) -> Tensor:
    """The tokens that a model reads to show how fast it is here."""
    words = " ".join(f"word {number}" for number in range(CALIBRATED[-1]))
    return token_ids(tokenizer, words, min(trained_len, CALIBRATED[-1]))


def size_in_words(model: Any) -> str:
    """How large a model is, and in which precision it is measured."""
    count = sum(parameter.numel() for parameter in model.parameters())
    return f"{count / 1e6:,.0f} million parameters in {str(model.dtype).removeprefix('torch.')}"


def calibrated_in_fastest(model: Any, inspection: Inspection, ids: Tensor, *, free: bool, workers: int) -> Cost:
    """The cost of a model here for so many workers; where it is free, the model is then in the faster precision."""
    before, loaded = model.dtype, [parameter.data for parameter in model.parameters()]
    costs, known = dict[torch.dtype, Cost](), inspection.facts.trained_len
    with _threads(1 if workers > 1 else torch.get_num_threads()):  # as many as each of several workers has
        for dtype in _precisions(before) if free else (before,):
            costs[dtype] = calibrate(cost_of(_cast(model, loaded, before, dtype), inspection), model, ids)
    # The precision that was loaded has to be clearly slower.
    fastest = min(costs, key=lambda dtype: costs[dtype].seconds(known) * (1.0 if dtype is before else FASTER))
    _cast(model, loaded, before, fastest)
    return costs[fastest].times(workers)


def _precisions(dtype: torch.dtype) -> list[torch.dtype]:
    """Those worth trying: the model's, and another; one alone where products decide."""
    if dtype not in OTHER_PRECISION:
        return [dtype]
    other = OTHER_PRECISION[dtype]
    times = product_seconds(dtype) / product_seconds(other)
    return [other] if times > DECISIVE else [dtype] if times * DECISIVE < 1 else [dtype, other]


def faster_precision(dtype: torch.dtype) -> torch.dtype:
    """Float32 in place of bfloat16 where products in it are decisively faster here; else what there is."""
    return torch.float32 if dtype is torch.bfloat16 and _precisions(dtype) == [torch.float32] else dtype


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """So many threads of torch inside the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _cast(model: Any, loaded: Sequence[Tensor], before: torch.dtype, dtype: torch.dtype) -> Any:
    """The model in a precision, made of the weights as they were loaded: what was rounded once has lost its digits."""
    for parameter, data in zip(model.parameters(), loaded, strict=True):
        parameter.data = data
    model.config.dtype = before
    return model if dtype is before else in_precision(model, dtype)


def in_precision(model: Any, dtype: Any) -> Any:
    """The model with its weights in another precision, as if it was loaded so: its rotary tables stay as they are."""
    for parameter in model.parameters():
        if parameter.is_floating_point():
            parameter.data = parameter.data.to(dtype)
    model.config.dtype = dtype
    return model
