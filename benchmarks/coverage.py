"""How often an interval of 95 % holds the truth, for the designs that occur here, by simulation.

    python benchmarks/coverage.py [DRAWS]

A row is a design: numbers around 1 with parts that seeds, projects and texts share, drawn anew each time (2,000 times).
`below` and `above` are the shares of intervals that lie wholly below the truth or above it, from which false verdicts
come. `refused` is the share of draws without an interval, or of seeds that `why_too_few_seeds` refuses; all else is of
those that are left. There the truth is the mean of the trainings that do not fail. `width` is the median. Ten minutes.
"""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from ropewalk.measure.metrics.intervals import Estimate, crossed_mean, mean, why_too_few_seeds

from rounds import append

DRAWS = 2000
TEXTS = 32  # of a simulated table, of as many projects as the sizes say
SIZES = (6, 4, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1)  # texts of each project: unequal, as those of the zoo are
FAILED = 0.15  # share of trainings that fail
APART = (5.0, 12.5)  # by how many standard deviations of seeds they lie below the others
REFUSING = (5, 8)  # seeds; of many the mean over all trainings is held, and refusing those that differ would bias it
Draw = Callable[[Generator, tuple[int, ...]], Tensor]


class Design(NamedTuple):
    """What is drawn, and who estimates it."""

    name: str
    estimate: Callable[[Generator], Estimate | None]  # None where it is refused
    truth: float = 1.0


def normal(generator: Generator, shape: tuple[int, ...]) -> Tensor:
    """Mean 0 and standard deviation 1, as all of these."""
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def skewed(generator: Generator, shape: tuple[int, ...]) -> Tensor:
    """Exponential."""
    return torch.empty(shape, dtype=torch.float64).exponential_(generator=generator) - 1


def heavy(generator: Generator, shape: tuple[int, ...]) -> Tensor:
    """Student's with three degrees of freedom."""
    parts = normal(generator, (4, *shape))
    return parts[0] / (parts[1:] ** 2).mean(0).sqrt() / math.sqrt(3)


def bimodal(apart: float) -> Draw:
    """Some fail, which moves the mean; it is put back to 0."""

    def draw(generator: Generator, shape: tuple[int, ...]) -> Tensor:
        failed = torch.rand(shape, generator=generator, dtype=torch.float64) < FAILED
        return normal(generator, shape) - apart * failed + apart * FAILED

    return draw


def crossed(
    seeds: int = 3,
    *,
    of_seed: float = 0.0,
    of_project: float = 0.0,
    of_both: float = 0.0,
    noise: float = 0.3,
    by_seed: Draw = normal,
    by_project: Draw = normal,
    refusing: bool = False,
) -> Callable[[Generator], Estimate | None]:
    """A table of seeds and texts."""
    names = [str(project) for project, size in enumerate(SIZES) for _ in range(size)]
    of = torch.tensor([int(name) for name in names])

    def estimate(generator: Generator) -> Estimate | None:
        table = 1 + of_seed * by_seed(generator, (seeds, 1)) + noise * normal(generator, (seeds, TEXTS))
        table = table + of_project * by_project(generator, (1, len(SIZES)))[:, of]
        table = table + of_both * normal(generator, (seeds, len(SIZES)))[:, of]
        rows = table.tolist()
        return None if refusing and why_too_few_seeds(rows) else crossed_mean(rows, groups=names)

    return estimate


def of_texts(texts: int, projects: int, by_project: Draw, own: float = 0.5) -> Callable[[Generator], Estimate | None]:
    """The mean of texts, as many of each project as there can be."""
    of = torch.arange(texts) % projects

    def estimate(generator: Generator) -> Estimate | None:
        values = 1 + by_project(generator, (projects,))[of] + own * normal(generator, (texts,))
        seed = int(torch.randint(2**31, (1,), generator=generator))
        found = mean(values.tolist(), groups=[str(int(project)) for project in of], seed=seed)
        return None if found.why_open else found

    return estimate


def designs() -> list[Design]:
    """All of them."""
    tables = [
        Design("3 seeds, which differ most", crossed(of_seed=1.0, of_project=0.3)),
        Design("3 seeds, which differ as projects do", crossed(of_seed=0.25, of_project=1.0)),
        Design("3 seeds, projects differ most", crossed(of_seed=0.05, of_project=1.0)),
        Design("3 seeds, skewed projects", crossed(of_seed=0.05, of_project=1.0, by_project=skewed)),
        Design("3 seeds, heavy tails", crossed(of_seed=0.25, of_project=1.0, by_seed=heavy, by_project=heavy)),
        Design("3 seeds, which differ by project", crossed(of_both=1.0)),
        Design("3 seeds, noise", crossed(noise=1.0)),
    ]
    for apart in APART:
        for count in (3, 5, 8, 20, 40):
            two_kinds = partial(crossed, count, of_seed=1.0, of_project=0.3, by_seed=bimodal(apart))
            name = f"{count} seeds of two kinds, {apart:g} sd apart"
            tables.append(Design(name, two_kinds()))
            if count in REFUSING:
                tables.append(Design(f"{name}, refusing", two_kinds(refusing=True), 1 + FAILED * apart))
    means = [
        Design(f"{texts} texts of {projects} projects, {words}", of_texts(texts, projects, draw, own))
        for texts, projects in ((24, 15), (8, 8), (4, 4), (24, 4), (24, 3), (3, 3), (2, 2))
        for words, draw, own in (("normal", normal, 0.5), ("skewed", skewed, 0.5), ("exponential", skewed, 0.0))
    ]
    return [*tables, *means]


def simulate(design: Design, draws: int) -> dict[str, object]:
    """One row."""
    generator = torch.Generator().manual_seed(0)
    every = [design.estimate(generator) for _ in range(draws)]
    found = [one for one in every if one is not None]
    row: dict[str, object] = {"design": design.name, "draws": draws, "refused": round(1 - len(found) / draws, 4)}
    if not found:
        return row
    below, above = (sum(missed) / len(found) for missed in _missed(found, design.truth))
    width = statistics.median(one.high - one.low for one in found)
    shares = {"held": 1 - below - above, "below": below, "above": above, "width": width}
    return row | {name: round(share, 4) for name, share in shares.items()}


def _missed(found: Sequence[Estimate], truth: float) -> tuple[list[bool], list[bool]]:
    return [one.high < truth for one in found], [one.low > truth for one in found]


def main(draws: int = DRAWS) -> None:
    """Simulate and record."""
    torch.set_num_threads(1)
    rows = []
    print(f"{'design':47} {'held':>6} {'below':>6} {'above':>6} {'width':>6} {'refused':>7}")
    for design in designs():
        rows.append(row := simulate(design, draws))
        held, below, above, width = (
            "-" if name not in row else f"{row[name]:.3f}" for name in ("held", "below", "above", "width")
        )
        print(f"{design.name:47} {held:>6} {below:>6} {above:>6} {width:>6} {row['refused']:>7.3f}", flush=True)
    append("coverage", rows)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
