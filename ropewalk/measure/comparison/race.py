"""A leaderboard: every preset that applies to a model, with halving; which of them no other one beats.

The columns are the loss at the target length, what is found there, the harm to short texts, the cost and the cache. The
cost that decides is the share of query-key pairs, which is computed; times are measured and differ from run to run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import NamedTuple

from ropewalk.extension.notation import BARE
from ropewalk.extension.parsing import Line
from ropewalk.extension.presets import Needs
from ropewalk.hf.use.inspect import Inspection, inspect
from ropewalk.measure.comparison.comparison import Candidate, Comparison, measure_candidates
from ropewalk.measure.comparison.halving import Dropped, Entrant, LeftOut, Standing, entrants, hopeless, rounds
from ropewalk.measure.comparison.runner import Cell, Measuring, Progress, measure_here
from ropewalk.measure.comparison.store import Store
from ropewalk.measure.comparison.verdict import DAMAGE, DEPLOYMENTS, Deployment, deployment, key_share
from ropewalk.measure.material.subject import Subject
from ropewalk.measure.metrics.intervals import Estimate, difference, share
from ropewalk.measure.tasks import Context, Damage, Passkey, Task
from ropewalk.methods.spec import Json

FIRST_ROUND_TEXTS = 4  # texts of the first round: of fewer, an interval drops next to nothing
ROUGHLY = 1.05  # a cache that is larger by less is as large
LOSS_DIGITS = 2  # of a loss in the comparison of columns: smaller differences are no reason to choose


class TimeIsUp(Exception):
    """The time of a leaderboard is over; raised between two texts."""


class Costs(NamedTuple):
    """What is known of a line without measuring."""

    needs: Needs
    deployment: Deployment
    key_share: float


class FrontColumns(NamedTuple):
    """One line of a leaderboard in the figures that are compared: lower is better, but for what is found."""

    line: str
    loss: float
    right: float  # share of right answers; 0 where nothing was asked
    harm: float
    key_share: float
    cache_bytes: int
    deployment: Deployment = "static"

    def no_worse(self, other: FrontColumns) -> bool:
        """Whether it is no worse in all but the loss; a little harm and a few bytes do not count."""
        return (
            self.right >= other.right
            and self.harm <= other.harm + DAMAGE
            and self.key_share <= other.key_share
            and self.cache_bytes <= ROUGHLY * other.cache_bytes
        )

    def beats(self, other: FrontColumns) -> bool:
        """Whether it is no worse in all columns, and better in one."""
        mine, theirs = round(self.loss, LOSS_DIGITS), round(other.loss, LOSS_DIGITS)
        better = mine < theirs or self.right > other.right or self.harm < other.harm - DAMAGE
        cheaper = self.key_share < other.key_share or ROUGHLY * self.cache_bytes < other.cache_bytes
        return mine <= theirs and self.no_worse(other) and (better or cheaper)

    def as_easy(self, other: FrontColumns) -> bool:
        """Whether it runs wherever the other one runs."""
        return DEPLOYMENTS.index(self.deployment) <= DEPLOYMENTS.index(other.deployment)


@dataclass(frozen=True, kw_only=True)
class RankedEntry:
    """One line of a leaderboard, measured on all texts."""

    candidate: Candidate
    costs: Costs
    columns: FrontColumns
    losses: tuple[float, ...]  # at the target length, text by text
    behind: Estimate  # its loss minus the best one's, on the same texts
    right: Estimate | None  # the share of right answers, over all tasks that ask
    harm: Estimate | None
    beaten_by: str = ""  # a line that is no worse in all columns and better in one; empty: it is on the front
    beaten_in_class: bool = False  # by one that runs wherever it runs


class Round(NamedTuple):
    """One round: how many texts were read, by how many lines."""

    texts: int
    lines: int


@dataclass(frozen=True, kw_only=True)
class Leaderboard:
    """All lines that were measured to the end, those that were dropped, and those that were left out."""

    comparison: Comparison  # of the lines that were not dropped
    entries: tuple[RankedEntry, ...]  # the lowest loss first
    dropped: tuple[Dropped, ...]
    left_out: tuple[LeftOut, ...]
    rounds: tuple[Round, ...]  # that were completed
    planned: tuple[int, ...]  # the texts of all rounds

    @property
    def complete(self) -> bool:
        """Whether there was time for all rounds."""
        return len(self.rounds) == len(self.planned)


def tasks_of(samples: int) -> tuple[Task, ...]:
    """The tasks that the columns need."""
    return Context(samples=samples), Passkey(samples=samples), Damage(samples=max(2, samples // 2))


Announce = Callable[[int, int, int, int], None]  # called with a round's number, its lines, texts and cells


@dataclass(frozen=True, kw_only=True)
class Race:
    """How lines are measured: the same in all rounds."""

    subject: Subject
    target_len: int
    store: Store
    tasks: Sequence[Task]
    measuring: Measuring = measure_here
    progress: Progress = lambda cell, result: None  # may raise TimeIsUp, which counts from the second round on
    announce: Announce = lambda number, lines, texts, count: None

    @property
    def planned(self) -> tuple[int, ...]:
        """The texts of all rounds."""
        texts = max(task.samples for task in self.tasks if task.name == Context.name)
        return tuple(rounds(texts, least=FIRST_ROUND_TEXTS))

    def compared(self, lines: Sequence[Line], number: int) -> Comparison:
        """One round: what the store does not have is measured. The last one has all samples of every task."""
        texts, known = self.planned[number - 1], self.subject.facts.trained_len
        last = number == len(self.planned)
        tasks = [task if last else replace(task, samples=min(task.samples, texts)) for task in self.tasks]
        count = sum(task.samples * len(task.at([known, self.target_len], known)) for task in tasks)
        self.announce(number, len(lines) + 1, texts, count * (len(lines) + 1))
        return measure_candidates(
            self.subject,
            lines,
            [self.target_len],
            self.store,
            tasks=tasks,
            measuring=self.measuring,
            progress=self.progress if number > 1 else self._patient,
        )

    def _patient(self, cell: Cell, result: Json) -> None:
        with suppress(TimeIsUp):
            self.progress(cell, result)


def run_race(race: Race, more: Sequence[Line] = ()) -> Leaderboard:
    """Measure every preset that applies, and `more` lines, round after round."""
    race.subject.passages(race.planned[-1])  # too few texts are refused now, and not in the last round
    inspection = inspect(race.subject.model, target_len=race.target_len)
    racing, left_out = entrants(race.subject, inspection, more)
    costs = {BARE: Costs("nothing", "static", 1.0)}
    costs |= {entrant.line.text: _costs(race.subject, entrant, inspection) for entrant in racing}
    lines, dropped, done = [entrant.line for entrant in racing], list[Dropped](), list[Round]()
    reached = race.compared(lines, 1)
    for number in range(1, len(race.planned) + 1):
        done.append(Round(race.planned[number - 1], len(lines) + 1))
        left_out += [LeftOut(one.line, one.verdict.words) for one in reached.candidates if not losses_of(one, reached)]
        if number == len(race.planned):
            break
        dropped += hopeless(standings(reached, costs), number)
        gone = {drop.line for drop in dropped} | {out.name for out in left_out}
        lines = [line for line in lines if line.text not in gone]
        try:
            reached = race.compared(lines, number + 1)
        except TimeIsUp:
            break
    return _rank(race, _without(reached, dropped, left_out), costs, dropped, left_out, done)


def _costs(subject: Subject, entrant: Entrant, inspection: Inspection) -> Costs:
    extension = subject.own.with_line(entrant.extension)
    where = deployment(subject, entrant.extension, inspection.target_len)
    return Costs(entrant.needs, where, key_share(extension, inspection))


def _without(comparison: Comparison, dropped: Sequence[Dropped], left_out: Sequence[LeftOut]) -> Comparison:
    gone = {drop.line for drop in dropped} | {out.name for out in left_out}
    kept = tuple(one for one in comparison.candidates if one.line == BARE or one.line not in gone)
    return replace(comparison, candidates=kept)


def standings(comparison: Comparison, costs: Mapping[str, Costs]) -> list[Standing]:
    """What decides who is dropped; the base model never is, since all others are compared with it."""
    columns = {one.line: columns_of(one, comparison, costs[one.line]) for one in comparison.candidates}

    def rivals(line: str) -> tuple[str, ...]:
        mine = columns[line]
        others = (other for other in columns.values() if other is not mine and line != BARE)
        return tuple(other.line for other in others if other.as_easy(mine) and other.no_worse(mine))

    return [
        Standing(one.line, losses_of(one, comparison), rivals(one.line), comparison.projects)
        for one in comparison.candidates
    ]


def losses_of(candidate: Candidate, comparison: Comparison) -> tuple[float, ...]:
    """The losses at the target length, text by text; empty where it has none, or one that is NaN or infinite."""
    row = candidate.at(Context.name, comparison.lengths[-1]) if candidate.has_loss else None
    return tuple(sample["loss"] for sample in row.samples) if row else ()


def columns_of(candidate: Candidate, comparison: Comparison, costs: Costs) -> FrontColumns:
    """The figures of one line that are compared."""
    losses, right, harm = losses_of(candidate, comparison), right_of(candidate, comparison), harm_of(candidate)
    return FrontColumns(
        line=candidate.line,
        loss=sum(losses) / len(losses) if losses else math.inf,
        right=right.value if right else 0.0,
        harm=_rise(harm) if harm else 0.0,
        key_share=costs.key_share,
        cache_bytes=candidate.cache_bytes,
        deployment=costs.deployment,
    )


def _rise(harm: Estimate) -> float:
    """The rise; what is no number is worse than any number, or nobody could be better."""
    return math.inf if math.isnan(harm.value) else harm.value


def right_of(candidate: Candidate, comparison: Comparison) -> Estimate | None:
    """The share of right answers at the target length over all tasks that ask; None where none was measured."""
    asked = [row for row in candidate.rows if row.task.scored and row.length == comparison.lengths[-1]]
    answers = [row.numbers[row.task.headline] for row in asked]
    return share(sum(one.value * one.of for one in answers), sum(one.of for one in answers)) if answers else None


def harm_of(candidate: Candidate) -> Estimate | None:
    """The rise of the loss on texts of the trained length."""
    return next((row.numbers["loss"] for row in candidate.rows if row.task.name == Damage.name), None)


def _rank(
    race: Race,
    comparison: Comparison,
    costs: Mapping[str, Costs],
    dropped: Sequence[Dropped],
    left_out: Sequence[LeftOut],
    done: Sequence[Round],
) -> Leaderboard:
    measured = [one for one in comparison.candidates if losses_of(one, comparison)]
    columns = {one.line: columns_of(one, comparison, costs[one.line]) for one in measured}
    ranking = sorted(measured, key=lambda one: columns[one.line].loss)
    best = losses_of(ranking[0], comparison) if ranking else ()
    return Leaderboard(
        comparison=comparison,
        entries=tuple(_entry(one, comparison, costs[one.line], columns, best) for one in ranking),
        dropped=tuple(dropped),
        left_out=tuple(dict.fromkeys(left_out)),
        rounds=tuple(done),
        planned=race.planned,
    )


def _entry(
    candidate: Candidate,
    comparison: Comparison,
    costs: Costs,
    columns: Mapping[str, FrontColumns],
    best: Sequence[float],
) -> RankedEntry:
    mine, losses = columns[candidate.line], losses_of(candidate, comparison)
    beating = sorted((other for other in columns.values() if other.beats(mine)), key=lambda other: other.loss)
    return RankedEntry(
        candidate=candidate,
        costs=costs,
        columns=mine,
        losses=losses,
        behind=difference(losses, best, groups=comparison.groups),
        right=right_of(candidate, comparison),
        harm=harm_of(candidate),
        beaten_by=beating[0].line if beating else "",
        beaten_in_class=any(other.as_easy(mine) for other in beating),
    )
