"""`fit`: from a model, texts, a goal and a time budget to an extension with its evidence."""

from __future__ import annotations

import itertools
import math
import multiprocessing
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import optuna
import torch

from ropewalk.errors import name_errors
from ropewalk.extension.extension import Extension
from ropewalk.extension.notation import BARE
from ropewalk.measure.comparison.runner import device_name
from ropewalk.measure.comparison.store import Store, provenance
from ropewalk.measure.material.measured_by import code_marks
from ropewalk.measure.material.subject import Subject
from ropewalk.search.final_test import EXTENDED, FitResult, OtherCorpus, final_test, lines, name_of, reserve
from ropewalk.search.goal import DeployTarget, Goal
from ropewalk.search.objective import OnTexts
from ropewalk.search.proposals import known_extensions
from ropewalk.search.search_loop import OutOfTime, Watch, search, winner
from ropewalk.search.studies import open_study
from ropewalk.search.trials import MeasuredTrial, finished_trials

STUDY = "fit"
BESIDE_ELSEWHERE = 3  # extensions that are tested on other text: the answer, the base model, the best hand-set one
FEWEST_ELSEWHERE = 3  # texts of another corpus
FEWEST_JUDGES = 6  # fewest texts of a test, where there are so many
IDLE = 1.3  # cost of threads that wait for each other
Step = Callable[[str, int, int], None]  # called with what is done, its number, and how many there are


def ignore_step(line: str, done: int, of: int) -> None:
    """The default does nothing."""


def storage_in(folder: Path) -> str:
    """The study's storage where none is named."""
    return f"sqlite:///{folder / 'study.sqlite'}"


@dataclass
class Fitting:
    """One worker of a search: its model, its texts, the study that all workers share."""

    subject: Subject  # all held-out texts; the search sees every other one
    goal: Goal
    folder: Path
    storage: str | None = None
    name: str = STUDY
    deadline: float | None = None  # of the whole run, by time.monotonic()
    budget: float | None = None  # seconds from start to deadline
    workers: int = 1
    most: int | None = None  # hand-set extensions that are tested beside the answer
    other: Subject | None = None  # texts of another kind, for the final test alone
    leads: bool = True  # whether it computes gradients for the next step; one worker does
    stopped: Callable[[], bool] = lambda: False  # whether the main process has ended the search
    _until: float | None = None  # end of the search, by the last estimate

    @cached_property
    def study(self) -> optuna.Study:
        """In a file of its folder where no storage is named."""
        self.folder.mkdir(parents=True, exist_ok=True)
        return open_study(self.storage or storage_in(self.folder), self.name, self.goal, self.marks, self.takes)

    @cached_property
    def marks(self) -> dict[str, str]:
        """Hashes of the model, of the texts of both halves, and of what measures."""
        halves = {"fitted on": self.fitted_on, "judged on": self.judged_on}
        texts = {name: " ".join(half.subject.text_marks(half.count)) for name, half in halves.items()}
        measuring = {f"measured by {name}": mark for name, mark in code_marks().items()}
        timed = {} if self.goal.max_slowdown is None else {"device": device_name(self.subject)}
        return {**self.subject.marks, **texts, **measuring, **timed}

    @cached_property
    def engine(self) -> DeployTarget:
        """Probed on the base model."""
        return DeployTarget.of(self.subject.model, self.subject.own)

    @cached_property
    def _taken(self) -> dict[Extension, bool]:
        return {}

    def takes(self, extension: Extension) -> bool:
        """Whether an extension fits the goal and the model, and the engine can load it."""
        if extension not in self._taken:
            self._taken[extension] = self.goal.admits(extension) and self.engine.takes(self.goal, extension)
        return self._taken[extension]

    def texts(self, first: int, count: int) -> OnTexts:
        """`count` texts of one half of the held-out ones."""
        half = replace(self.subject, every=2, first=first, _passages=[])
        half.passages(count)  # refuses too few texts before a store is made
        return OnTexts(half, self.goal, Store(self.folder / "cells.sqlite"), count)

    @cached_property
    def fitted_on(self) -> OnTexts:
        """The texts that the search sees."""
        return self.texts(0, self.goal.samples)

    @cached_property
    def judged_on(self) -> OnTexts:
        """The texts of the final test."""
        return self.texts(1, self.goal.judges)

    def require_texts(self) -> None:
        """Refuse what cannot be searched."""
        _ = self.fitted_on, self.judged_on, self._others, self.study
        _ = self.fitted_on.subject.warm, self.judged_on.subject.warm  # in this process, which others are forked from
        for texts in (self.fitted_on, self.judged_on):
            texts.require_tokens()

    def begin(self, step: Step = ignore_step) -> None:
        """Measure what all workers need: the base model."""
        self.require_texts()
        read = itertools.count()

        def said(*_: object) -> None:
            step("measuring the base model", next(read), self.goal.samples)

        said()  # before the first text, which may take minutes
        replace(self.fitted_on, watch=said).long(Extension())

    @cached_property
    def bare_seconds(self) -> float:
        """Seconds of the base model on all fitting texts, at all lengths that count."""
        seconds = sum(row.seconds for row in self.fitted_on.rows(Extension()))
        threads = torch.get_num_threads() if self.subject.model.device.type == "cpu" else 1
        return seconds * IDLE / threads if threads > 1 else seconds  # on a CPU it is the time of the processor

    @cached_property
    def elsewhere(self) -> Subject | None:
        """The other corpus without texts of either half, which it may have too."""
        halves = (self.fitted_on, self.judged_on)
        seen = frozenset[str]().union(*(half.subject.seen(half.count) for half in halves))
        return replace(self.other, without=seen, _passages=[]) if self.other else None

    @cached_property
    def _others(self) -> int:
        """Texts of the other corpus; none where it has too few that are long enough."""
        with name_errors("judge_on"):
            count = self.elsewhere.count(self.goal.judges) if self.elsewhere else 0
        return count if count >= FEWEST_ELSEWHERE else 0

    @property
    def end(self) -> float | None:
        """End of the search: it leaves the time that the final test will need."""
        if self.deadline is None:
            return None
        shares = [count / self.goal.judges for _, count in self._to_judge().values()]
        shares += [self._others / self.goal.judges] * BESIDE_ELSEWHERE
        slowdowns = [trial.figures.slowdown for trial in finished_trials(self.study) if trial.figures]
        known = [times for times in slowdowns if math.isfinite(times)]
        times = max(known, default=EXTENDED)  # of an extension; the slowest that the search has met
        return self.deadline - reserve(self.goal, self.bare_seconds, sum(shares), self.workers, times)

    def _to_judge(self) -> dict[str, tuple[Extension, int]]:
        """Hand-set extensions, the best first, with their number of test texts: a few where they fell behind."""
        history, judges = finished_trials(self.study), self.goal.judges
        held = {trial.extension for trial in history if trial.figures}
        by_line = lines(self.goal, self.takes, history, self.most)
        return {line: (extension, judges if extension in held else self._few) for line, extension in by_line.items()}

    @cached_property
    def _few(self) -> int:
        """A quarter of the test texts, or as many as it takes to have a token that counts."""
        counts = range(min(self.goal.judges, max(FEWEST_JUDGES, self.goal.judges // 4)), self.goal.judges)
        return next(filter(self.judged_on.scored_tokens, counts), self.goal.judges)

    def search(
        self, *, trials: int | None = None, watch: Watch = lambda trial: None, beat: Callable[[], None] = lambda: None
    ) -> bool:
        """Search until the end; True where it was interrupted. `beat` is called after each text."""
        self._until = self.end  # measures the base model, before anything is extended

        def read(*_: object) -> None:
            beat()
            self._require_time()

        timed = replace(self.fitted_on, watch=read)

        def seen(trial: MeasuredTrial) -> None:
            self._until = self.end  # a completed trial is tested on more texts, which takes longer
            watch(trial)

        return search(self.study, self.goal, timed, trials=trials, watch=seen, leads=self.leads)

    def judge_share(self, worker: int) -> None:
        """Measure one worker's share of the hand-set extensions; the store then has it for all."""
        for extension, count in list(self._to_judge().values())[worker :: self.workers]:
            texts = replace(self.judged_on, count=count)
            texts.rows(extension)
            texts.short_losses(extension)

    def judge(self, step: Step = ignore_step) -> FitResult:
        """The answer, tested beside the base model and the hand-set extensions."""
        history, chosen = finished_trials(self.study), winner(self.study, self.goal)
        beside = {BARE: (Extension(), self.goal.judges), **self._to_judge()}
        tested_beside = []
        for done, (line, (extension, count)) in enumerate(beside.items()):
            step(line, done, len(beside) + 1)
            tested_beside.append(final_test(replace(self.judged_on, count=count), line, extension, chosen.extension))
        answer = final_test(self.judged_on, name_of(chosen), chosen.extension, chosen.extension)
        result = FitResult(
            goal=self.goal,
            chosen=chosen,
            answer=answer,
            beside=tuple(tested_beside),
            history=tuple(history),
            marks=self.marks,
            made={**provenance("optuna"), "model": self.subject.name},
            own=self.subject.own.extension,
            budget=self.budget,
            untried=len(set(lines(self.goal, self.takes, history).values()) - known_extensions(self.study)),
        )
        elsewhere = self._elsewhere(result)
        too_few = self.other.corpus if self.other and elsewhere is None else ""
        return replace(result, elsewhere=elsewhere, not_elsewhere=too_few)

    def _elsewhere(self, result: FitResult) -> OtherCorpus | None:
        """The answer, the base model and the rival, on text of another kind."""
        if self.elsewhere is None or not self._others:
            return None
        on = OnTexts(self.elsewhere, self.goal, self.judged_on.store, self._others)
        if not on.scored_tokens(self._others):  # none of them may need far context
            return None
        tested = [result.answer, result.beside[0], *([result.rival] if result.rival else [])]
        answer, *beside = (final_test(on, one.line, one.extension, result.answer.extension) for one in tested)
        return OtherCorpus(self.elsewhere.corpus, answer, tuple(beside))

    def _require_time(self) -> None:
        """Raise when time is up, but not before one extension is measured: a slow machine needs an answer too."""
        parent = multiprocessing.parent_process()
        if self.stopped() or (parent is not None and not parent.is_alive()):
            raise KeyboardInterrupt  # the main process was interrupted, or has died
        over = self._until is not None and time.monotonic() > self._until
        if over and any(trial.figures for trial in finished_trials(self.study)):
            raise OutOfTime
