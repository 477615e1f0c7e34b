"""The Triton kernels' tile sizes: every candidate is timed on its own kernel, and the fastest goes into the table.

Compiling takes most of the time, so all candidates are first compiled by as many processes as there are processors;
they need no GPU. A candidate counts if its answer is that of the default sizes, and if it can also be launched where
biases and dimensions without rotation take more of the shared memory.
"""

from __future__ import annotations

import functools
import importlib
import itertools
import json
import math
import multiprocessing
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, wait
from typing import Any, NamedTuple

import torch
from torch import Tensor

import ropewalk as rw
from ropewalk.attention.backends.triton import launch as launching
from ropewalk.attention.backends.triton.tile_sizes import (
    HALF_ROTATED,
    HALF_UNROTATED,
    TUNED,
    Launch,
    Launches,
    kind,
    tuned_sizes,
)

from gpu.attention import prepared, weights_of
from gpu.case import Case, Place, Row
from gpu.timing import is_fatal, seconds_of, synchronize, told

SIZES = {  # rows, keys, warps, stages
    "forward": ((64, 128), (32, 64, 128), (4, 8), (2, 3)),
    "backward_queries": ((64, 128), (32, 64), (4, 8), (1, 2, 3)),
    "backward_keys": ((32, 64), (32, 64, 128), (4, 8), (1, 2)),
}
DRY_SIZES = dict.fromkeys(SIZES, ((16,), (16,), (8,), (1,)))
LENGTH, LENGTHS = 8192, (2048, 32_768)  # of all candidates; of the best ones as well
BEST, ROUNDS, CALLS = 4, 5, 3
CLOSE = 0.03  # relative to the largest number, for answers in half precision
SHORT = 256  # tokens that are enough to compile for
COMPILING = 0.5  # the share of a case's time that compiling the candidates may take
NUMBERS = {"forward": 64, "backward_queries": 64, "backward_keys": 128}  # of sums in the registers of a thread


class Problem(NamedTuple):
    """What the kernels are tuned on: heads of a size, rotated or not; the variants take more shared memory."""

    head_dim: int
    rotated: bool
    biased: bool = False
    partial: bool = False

    @property
    def extension(self) -> rw.Extension:
        """Without far keys, so that there is one segment."""
        return rw.parse(("rope" if self.rotated else "nope") + ("+biases.alibi" if self.biased else ""))

    def facts(self, place: Place) -> rw.Facts:
        """As many heads as those of a model of eight billion parameters."""
        heads = place.either({"heads": 32, "kv_heads": 8}, {"heads": 1, "kv_heads": 1})
        rotary = self.head_dim // 2 if self.partial else None
        return rw.Facts(trained_len=LENGTH, head_dim=self.head_dim, rotary_dim=rotary, **heads)


class Ready(NamedTuple):
    """A kernel that only has to be launched, and where its answers are."""

    run: Callable[[], object]
    answers: Sequence[Tensor]

    def answered(self) -> list[Tensor]:
        """The answers of one launch; gradients are added to what is there."""
        for tensor in self.answers:
            tensor.zero_()
        self.run()
        return [tensor.float().clone() for tensor in self.answers]


class Tuning(NamedTuple):
    """The best launches, the best first, relative to the default; all that were timed; why others were not."""

    means: dict[Launch, float]
    times: dict[Launch, float]
    refused: dict[str, int]


class Tuner:
    """The processes that compile, started once."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.sizes = place.either(SIZES, DRY_SIZES)
        self.processes: Executor | None = None

    def measured(self, problem: Problem, left: float) -> list[Row]:
        """Tune the three kernels on a problem."""
        end, kernels = time.perf_counter() + left, Launches._fields
        self.compile(
            [(name, one, problem) for name in kernels for one in self.launches(name, problem)], COMPILING * left
        )
        tunings = {name: self.tuned(name, problem, end) for name in kernels}
        largest = problem._replace(biased=True, partial=problem.rotated)
        first = [
            (name, one, largest)
            for name in kernels
            for one in (self.default(name, problem), next(iter(tunings[name].means)))
        ]
        self.compile(first, max(0.0, end - time.perf_counter()))
        rows = [self.chosen(name, tunings[name], problem, largest) for name in kernels]
        if not self.place.dry:
            write(torch.cuda.get_device_name(), problem, rows)
        return rows

    def compile(self, jobs: Sequence[tuple[str, Launch, Problem]], seconds: float) -> None:
        """Compile kernels in all processes, as far as there is time; triton keeps them on disk."""
        if self.place.dry:
            return
        if self.processes is None:
            count = max(1, (os.cpu_count() or 2) - 2)
            self.processes = ProcessPoolExecutor(count, mp_context=multiprocessing.get_context("spawn"))
        target = torch.cuda.get_device_capability()
        futures = [self.processes.submit(compiled, *job, target) for job in dict.fromkeys(jobs)]
        for late in wait(futures, timeout=seconds).not_done:
            late.cancel()

    def default(self, name: str, problem: Problem) -> Launch:
        """The sizes on a device without a table."""
        launch: Launch = self.place.either(defaults(problem)._asdict()[name], Launch(16, 16, 4, 1))
        return launch

    def launches(self, name: str, problem: Problem) -> list[Launch]:
        """The default, and all candidates whose sums fit into registers."""
        combined = itertools.starmap(Launch, itertools.product(*self.sizes[name]))
        fitting = [one for one in combined if numbers(name, one, problem) <= NUMBERS[name]]
        return list(dict.fromkeys([self.default(name, problem), *fitting]))

    def tuned(self, name: str, problem: Problem, end: float) -> Tuning:
        """The best launches of a kernel, timed at all lengths."""
        default = self.default(name, problem)
        times, refused = self.times(name, self.launches(name, problem), problem, self.place.either(LENGTH, 16), end)
        best = sorted(times, key=lambda launch: times[launch])[:BEST]
        whole = {launch: [times[launch] / times[default]] for launch in dict.fromkeys([*best, default])}
        for other in self.place.either(LENGTHS, ()):
            again, _ = self.times(name, list(dict.fromkeys([default, *whole])), problem, other, end)
            for launch in again:
                whole[launch].append(again[launch] / again[default])
        complete = max(map(len, whole.values()))
        means = {launch: geometric_mean(ratios) for launch, ratios in whole.items() if len(ratios) == complete}
        return Tuning(dict(sorted(means.items(), key=lambda item: item[1])), times, refused)

    def chosen(self, name: str, tuning: Tuning, problem: Problem, largest: Problem) -> Row:
        """The fastest launch that also works where most shared memory is taken."""
        default = self.default(name, problem)
        launch = next(one for one in tuning.means if one == default or self.fits(name, one, default, largest))
        return {
            "method": name,
            "median": round(tuning.means[launch], 3),
            "milliseconds": round(tuning.times[launch] * 1e3, 3),
            "launch": list(launch),
            "default": list(default),
            "timed": len(tuning.times),
            "refused": tuning.refused,
        }

    def times(
        self, name: str, launches: Sequence[Launch], problem: Problem, length: int, end: float
    ) -> tuple[dict[Launch, float], dict[str, int]]:
        """The median seconds of each launch whose answer is the first one's; how many were refused, and why."""
        tensors = Tensors(problem, length, self.place)
        ready: dict[Launch, Ready] = {}
        refused: dict[str, int] = {}
        for launch in launches:
            if ready and time.perf_counter() > end:
                refused["no time left"] = refused.get("no time left", 0) + 1
                continue
            why = self.wrong(name, launch, tensors, ready)
            if why:
                refused[why] = refused.get(why, 0) + 1
        calls = self.place.either(CALLS, 1)
        taken: dict[Launch, list[float]] = {launch: [] for launch in ready}
        for _, (launch, kernel) in itertools.product(range(self.place.either(ROUNDS, 1)), ready.items()):
            taken[launch].append(seconds_of(lambda run=kernel.run: [run() for _ in range(calls)], self.place) / calls)
        return {launch: sorted(seconds)[len(seconds) // 2] for launch, seconds in taken.items()}, refused

    def wrong(self, name: str, launch: Launch, tensors: Tensors, ready: dict[Launch, Ready]) -> str:
        """Why a launch does not count, or nothing; then it is ready."""
        try:
            kernel = tensors.kernel(name, launch)
            answers = kernel.answered()
            synchronize(self.place)
        except Exception as error:
            if not ready or is_fatal(error):
                raise
            return told(error)[:80]
        tensors.expected.setdefault(name, answers)  # the default's, which comes first
        if not alike(answers, tensors.expected[name]):
            return "another answer"
        ready[launch] = kernel
        return ""

    def fits(self, name: str, launch: Launch, default: Launch, largest: Problem) -> bool:
        """Whether a launch gives the default's answer with a bias, and with dimensions that are not rotated."""
        tensors, ready = Tensors(largest, self.place.either(1024, 16), self.place), {}
        return not (self.wrong(name, default, tensors, ready) or self.wrong(name, launch, tensors, ready))


class Tensors:
    """A problem's tensors, which all candidates share."""

    def __init__(self, problem: Problem, length: int, place: Place) -> None:
        facts, extension = problem.facts(place), problem.extension
        dtype = place.either(torch.bfloat16, torch.float32)
        weights = weights_of(extension, facts, place, learning=False)
        shapes = [
            (1, heads, length, facts.head_dim) for heads in (facts.heads, facts.groups, facts.groups, facts.heads)
        ]
        q, k, v, self.grad = (torch.randn(shape, device=place.device, dtype=dtype) for shape in shapes)
        inputs = prepared(extension, facts, (q, k, v), weights)
        self.plan = launching.plan_for(inputs.problem.segments, q, v, False)
        factor = torch.ones(1, length, device=place.device) / math.sqrt(facts.head_dim)
        line = None if inputs.bias_at is None else launching.bias_line(inputs.bias_at, self.plan, q.device)
        self.inputs = launching.KernelInputs(q, k, v, factor * launching.LOG2E, line)
        self.expected: dict[str, list[Tensor]] = {}
        self._forward: tuple[Tensor, Tensor] | None = None

    def kernel(self, name: str, launch: Launch) -> Ready:
        """A kernel with everything worked out but its launch."""
        forward = name == "forward"
        ranges = (
            launching._key_ranges(launch, self.plan)
            if name == "backward_keys"
            else launching._query_ranges(launch, self.plan)
        )
        shape = launching._shape(launch, self.inputs, self.plan, *self.plan.rotates[0])
        answers = self.empty_output() if forward else self.sums(name)
        places = (
            launching._vectors(answers[0]),
            (launching._vectors if name == "backward_keys" else launching._numbers)(answers[1]),
        )
        arguments = places if forward else (0, *self.slope(), *places)
        run = functools.partial(launching._launch, name, launch, ranges, shape, self.inputs, self.plan, *arguments)
        return Ready(run, answers)

    def empty_output(self) -> tuple[Tensor, Tensor]:
        """The output and its log-sum-exp."""
        q, v = self.inputs.q_bhid, self.inputs.v_bgjd
        return torch.empty(*q.shape[:3], v.shape[-1], dtype=v.dtype, device=v.device), q.new_empty(
            q.shape[:3], dtype=torch.float32
        )

    def sums(self, name: str) -> tuple[Tensor, Tensor]:
        """What a backward kernel adds to."""
        if name == "backward_queries":
            return torch.zeros_like(self.inputs.q_bhid), torch.zeros(
                self.inputs.q_bhid.shape[:3], device=self.grad.device
            )
        return torch.zeros_like(self.inputs.k_bgjd), torch.zeros_like(self.inputs.v_bgjd)

    def slope(self) -> tuple[Any, ...]:
        """The queries' side of the backward kernels."""
        if self._forward is None:
            out, lse = self.empty_output()
            if self.inputs.q_bhid.is_cuda or os.environ.get("TRITON_INTERPRET") == "1":  # else only compiled for
                self.kernel_into(out, lse)
            self._forward = lse, (self.grad.float() * out.float()).sum(-1)
        return launching._vectors(self.grad), *(launching._numbers(x) for x in self._forward)

    def kernel_into(self, out: Tensor, lse: Tensor) -> None:
        """The forward kernel in the sizes of the plan."""
        launch = self.plan.launches.forward if self.inputs.q_bhid.is_cuda else Launch(16, 16, 4, 1)
        ranges = launching._query_ranges(launch, self.plan)
        shape = launching._shape(launch, self.inputs, self.plan, *self.plan.rotates[0])
        places = launching._vectors(out), launching._numbers(lse)
        launching._launch("forward", launch, ranges, shape, self.inputs, self.plan, *places)


def cases(place: Place) -> list[Case]:
    """Heads of 128 and 64, rotated and not; those of most models first."""
    tuner = Tuner(place)
    problems = [Problem(size, rotated) for size in (128, 64) for rotated in (True, False)]
    problems = place.either(problems, [Problem(16, True)])
    return [Case(kind(*problem[:2]), 20, functools.partial(tuner.measured, problem)) for problem in problems]


def numbers(name: str, launch: Launch, problem: Problem) -> float:
    """How many numbers of its sums a thread holds."""
    sums = 2 * launch.keys if name == "backward_keys" else launch.rows
    return sums * problem.head_dim / (32 * launch.warps)


def defaults(problem: Problem) -> Launches:
    """The sizes of a device without a table."""
    return (HALF_ROTATED if problem.rotated else HALF_UNROTATED)[128 if problem.head_dim > 64 else 64]


def geometric_mean(ratios: Sequence[float]) -> float:
    """Of ratios to the default, so that no length outweighs the others."""
    return math.prod(ratios) ** (1 / len(ratios))


def alike(one: Sequence[Tensor], other: Sequence[Tensor]) -> bool:
    """Whether answers are the same but for rounding, and none is NaN."""
    pairs = zip(one, other, strict=True)
    return all(bool((a - b).abs().max() <= CLOSE * b.abs().max().clamp(min=1.0)) for a, b in pairs)


def write(device: str, problem: Problem, rows: Sequence[Row]) -> None:
    """Put what is faster than the default into the table, which the kernels read from now on."""
    table = json.loads(TUNED.read_text())
    faster = {row["method"]: row["launch"] for row in rows if row["launch"] != row["default"] and row["median"] < 1}
    table.setdefault(device, {})[kind(problem.head_dim, problem.rotated)] = faster
    TUNED.write_text(json.dumps(table, indent=1, sort_keys=True) + "\n")
    tuned_sizes.cache_clear()


# In the processes that compile.


class Target:
    """What triton asks a driver for when it compiles."""

    def __init__(self, capability: tuple[int, int]) -> None:
        from triton.backends.compiler import GPUTarget

        self.target = GPUTarget("cuda", 10 * capability[0] + capability[1], 32)

    def get_current_target(self) -> Any:
        """The GPU that the other process has."""
        return self.target

    def get_current_device(self) -> int:
        """The only one."""
        return 0

    def get_current_stream(self, device: int) -> int:
        """None is used."""
        return 0


class OnlyCompiled:
    """A kernel that is compiled where it would be launched."""

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., object]:
        """The launch."""
        return functools.partial(self.kernel.run, grid=grid, warmup=True)


def compiled(name: str, launch: Launch, problem: Problem, capability: tuple[int, int]) -> None:
    """Compile a kernel; what does not compile fails again, and is counted, when it is timed."""
    import triton

    torch.set_num_threads(1)
    kernels = importlib.import_module("ropewalk.attention.backends.triton.kernels")
    triton.runtime.driver.set_active(Target(capability))
    if not isinstance(getattr(kernels, name), OnlyCompiled):
        setattr(kernels, name, OnlyCompiled(getattr(kernels, name)))
    tensors_to_compile_for(problem).kernel(name, launch).run()


@functools.cache
def tensors_to_compile_for(problem: Problem) -> Tensors:
    """Tensors of the types, strides and alignment that the others have, on the CPU."""
    tensors = Tensors(problem, SHORT, Place("cpu", dry=False))
    return tensors
