"""Every backend against torch's flash attention at 8k, 32k and 128k tokens, forward and backward, bfloat16.

B 1, 32 query heads of 128 over 8 key heads. *Plain* is torch's causal flash attention plus rotating queries and keys
by tables computed before. *attend* is the call of a layer of a model, where the layers before it have worked out
what depends on positions alone; *attend, alone* works it out itself. A backend's name is that backend alone, whatever
`attend` would choose.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

import ropewalk as rw
from ropewalk.attention import attend, explain
from ropewalk.attention.backends.backend import Backend
from ropewalk.attention.backends.dense import DENSE
from ropewalk.attention.backends.flash import FLASH
from ropewalk.attention.dispatch import problem_of
from ropewalk.attention.layout.segments import SpanKeys, segments_of
from ropewalk.attention.layout.sequences import SharedLayout, share_results
from ropewalk.attention.problem import AttentionInputs, layer_terms
from ropewalk.attention.rotation.rotate import Rotation, rotate, rotation_at

from gpu.case import Case, Place, Row, goal
from gpu.timing import compared

FORWARD, BOTH = "forward", "forward + backward"
TWO_ROTATIONS, PER_PAIR = 1.08, 1.25  # goals: times plain, and times plain for each pair that is seen
LONGEST_DENSE = 8192  # tokens, by the slowest backend
Attention = Callable[[Tensor, Tensor, Tensor], Tensor]


class Job(NamedTuple):
    """A case: an extension at a length, and about how long it takes."""

    direction: str
    length: int
    extension: str
    seconds: float = 5
    learning: bool = False  # whether the numbers of a bias need gradients

    @property
    def name(self) -> str:
        """What the record calls it."""
        return f"{self.direction}, {self.length:,}, {self.extension}" + (", learning" if self.learning else "")


WINDOW = "window:window=2048"
JOBS = (
    *(Job(FORWARD, 32_768, text) for text in ("rerope:window=512", "self_extend:window=512,group=8")),
    *(Job(FORWARD, 32_768, text) for text in (WINDOW, "window:window=8192", "streaming:window=2048")),
    Job(BOTH, 32_768, "rerope:window=512", 8),
    Job(BOTH, 32_768, WINDOW, 8),
    *(Job(FORWARD, 8192, text) for text in ("rerope:window=512", "alibi", "biases.kerple_log", "dynamic_yarn", WINDOW)),
    Job(BOTH, 8192, "rerope:window=512"),
    Job(BOTH, 8192, "alibi"),
    Job(FORWARD, 32_768, "alibi"),
    Job(FORWARD, 131_072, "rerope:window=512", 12),
    Job(FORWARD, 131_072, WINDOW, 8),
    Job(BOTH, 131_072, "rerope:window=512", 20),
    Job(FORWARD, 131_072, "self_extend:window=512,group=8", 12),
)
DRY = (Job(FORWARD, 24, "rerope:window=5"), Job(BOTH, 24, "window:window=5"), Job(FORWARD, 24, "alibi"))


def cases(place: Place) -> list[Case]:
    """Every job; those with goals first."""
    return [Case(job.name, job.seconds, functools.partial(measured, job, place)) for job in place.either(JOBS, DRY)]


def facts_of(place: Place) -> rw.Facts:
    """The model's heads."""
    shape = place.either({"head_dim": 128, "heads": 32, "kv_heads": 8}, {"head_dim": 16, "heads": 2, "kv_heads": 1})
    return rw.Facts(trained_len=place.either(4096, 16), **shape)


def measured(
    job: Job, place: Place, left: float, backends: Sequence[Backend] = (FLASH, DENSE), base: str = "plain"
) -> list[Row]:
    """All candidates of a job, side by side."""
    facts, backward = facts_of(place), job.direction == BOTH
    extension = rw.parse(job.extension)
    inputs = drawn(job.length, facts, place, backward)
    weights = weights_of(extension, facts, place, learning=job.learning)
    runs, refused = candidates(extension, facts, inputs[:3], weights, backends, place)
    timed = {name: on(run, inputs, backward) for name, run in runs.items()}
    if backward:
        timed["plain, in a fixed order"] = in_fixed_order(timed[base])
    figures = compared(timed, base, place, seconds=min(job.seconds, left) / 2)
    said = explain(*inputs[:3], extension, facts, weights=weights)
    share = share_of_pairs(extension, facts, job.length)
    rows = [{"method": name, **row} for name, row in figures.items()] + refused
    return [
        {**row, **judged(job, row, share), **({"explain": said} if row["method"] == "attend" else {})} for row in rows
    ]


def judged(job: Job, row: Row, share: float) -> Row:
    """The goals of the issue: two rotations at 32k, and windows for each pair that they see."""
    if "median" not in row:
        return {}
    about: Row = {"share of pairs": round(share, 4), "per pair": round(row["median"] / share, 3)}
    if row["method"] == "attend" and job.extension.startswith("window"):
        return {**about, **goal("per pair", PER_PAIR)}
    if row["method"] == "attend" and job.length == 32_768 and job.extension.startswith(("rerope", "self_extend")):
        return {**about, **goal("median", TWO_ROTATIONS)}
    return about


def candidates(
    extension: rw.Extension,
    facts: rw.Facts,
    inputs: Sequence[Tensor],
    weights: Any,
    backends: Sequence[Backend],
    place: Place,
) -> tuple[dict[str, Attention], list[Row]]:
    """The baselines, the whole call and the backends; and the backends that refuse, with their reasons."""
    length = inputs[0].shape[2]
    whole = lambda q, k, v: attend(q, k, v, extension, facts, weights=weights)  # noqa: E731
    runs: dict[str, Attention] = {"plain": plain(length, facts, place), "attend": shared(whole), "attend, alone": whole}
    if place.device == "cuda":
        runs["plain, by cudnn"] = plain(length, facts, place, SDPBackend.CUDNN_ATTENTION)
    refused: list[Row] = []
    for backend in backends:
        why_not = refusal(backend, extension, facts, inputs, weights, place)
        if why_not:
            refused.append({"method": backend.name, "why": why_not})
        else:
            runs[backend.name] = shared(alone(backend, extension, facts, weights))
    return runs, refused


def refusal(
    backend: Backend, extension: rw.Extension, facts: rw.Facts, inputs: Sequence[Tensor], weights: Any, place: Place
) -> str | None:
    """Why a backend is not measured on a problem, or nothing."""
    if backend is DENSE and inputs[0].shape[2] > LONGEST_DENSE:
        return f"measured up to {LONGEST_DENSE:,} tokens only"
    problem = prepared(extension, facts, inputs, weights).problem
    # FlexAttention and fused kernels of cuda refuse a CPU; a dry run calls them all the same.
    return None if place.dry and backend.name == "flex" else backend.why_not(problem)


def prepared(extension: rw.Extension, facts: rw.Facts, inputs: Sequence[Tensor], weights: Any) -> AttentionInputs:
    """What a backend is given, as `attend` makes it for one sequence."""
    q, k, v = inputs
    at, terms = torch.arange(k.shape[2]), layer_terms(extension, facts, weights)
    keys = [SpanKeys(k, v, at)] * len(terms.extension.reach_or_causal.spans())
    segments = segments_of(terms.extension, terms.facts, at, [at] * len(keys))
    return AttentionInputs(problem_of(q, at, keys, segments, terms), terms, q, at.to(q.device), keys)


def alone(backend: Backend, extension: rw.Extension, facts: rw.Facts, weights: Any) -> Attention:
    """A backend whose segments are worked out in its first call."""
    ready: list[AttentionInputs] = []

    def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if not ready:
            ready.append(prepared(extension, facts, (q, k, v), weights))
        return backend.run(ready[0])

    return run


def shared(run: Attention) -> Attention:
    """As in a model's pass, where layers share what depends on positions alone."""
    layout = SharedLayout()

    def within(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        with share_results(layout):
            return run(q, k, v)

    return within


def plain(length: int, facts: rw.Facts, place: Place, kernel: SDPBackend = SDPBackend.FLASH_ATTENTION) -> Attention:
    """The baseline; its angles are computed before."""
    at = torch.arange(length)
    rotation = rotation_at(at, rw.Extension().frequencies_or_rope.table(facts, 1), at)
    placed = Rotation(*(part.to(place.device, torch.float32) for part in rotation))

    def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        with sdpa_kernel(kernel):
            return scaled_dot_product_attention(
                rotate(q, placed, False), rotate(k, placed, False), v, is_causal=True, enable_gqa=True
            )

    return run


def in_fixed_order(run: Callable[[], object]) -> Callable[[], None]:
    """With gradients that are summed in the same order every time, as ours are."""

    def ordered() -> None:
        torch.use_deterministic_algorithms(True)
        try:
            run()
        finally:
            torch.use_deterministic_algorithms(False)

    return ordered


def on(run: Attention, inputs: Sequence[Tensor], backward: bool) -> Callable[[], object]:
    """A call on these tensors; gradients are returned, not added up."""
    *vectors, slope = inputs
    if backward:
        return lambda: torch.autograd.grad(run(*vectors), vectors, slope)
    return lambda: run(*vectors)


def drawn(length: int, facts: rw.Facts, place: Place, backward: bool) -> list[Tensor]:
    """Queries, keys, values, and the gradient of the output. Zeros would be faster than any real data."""
    options = {"device": place.device, "dtype": place.either(torch.bfloat16, torch.float32)}
    shapes = [(1, heads, length, facts.head_dim) for heads in (facts.heads, facts.groups, facts.groups, facts.heads)]
    return [torch.randn(shape, **options).requires_grad_(backward and n < 3) for n, shape in enumerate(shapes)]


def weights_of(extension: rw.Extension, facts: rw.Facts, place: Place, *, learning: bool) -> Any:
    """The learned numbers of an extension, as it begins with them."""
    initial = extension.weights(facts, torch.Generator().manual_seed(0))
    return {
        name: {key: value.to(place.device).requires_grad_(learning) for key, value in group.items()}
        for name, group in initial.items()
    }


def share_of_pairs(extension: rw.Extension, facts: rw.Facts, length: int) -> float:
    """The query-key pairs that an extension sees, as a share of those that causal attention sees."""
    at = torch.arange(length)
    segments = segments_of(extension, facts, at, [at] * len(extension.reach_or_causal.spans()))
    return sum(tile.pairs for one in segments for tile in one.tiles) / (length * (length + 1) / 2)
