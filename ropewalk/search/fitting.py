"""`fit`: a model, a text, a goal and a time; an answer with its evidence."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import optuna

from ropewalk.evaluation.comparison import made_here
from ropewalk.evaluation.store import Store
from ropewalk.evaluation.subject import Subject
from ropewalk.extension import Extension
from ropewalk.search.engines import Engine
from ropewalk.search.goal import Goal
from ropewalk.search.judging import BARE, Fit, judged, lines, name_of, reserve
from ropewalk.search.objective import OnTexts
from ropewalk.search.searching import OutOfTime, Watch, search, winner
from ropewalk.search.studies import opened
from ropewalk.search.tried import Tried, tried

STUDY = "fit"
Step = Callable[[str, int, int], None]  # what is judged, the how-manieth, of how many


@dataclass
class Fitting:
    """One worker's part in a search: its model, its texts, the study that it shares."""

    subject: Subject  # all held-out texts; every other one is fitted on
    goal: Goal
    folder: Path
    storage: str | None = None
    name: str = STUDY
    deadline: float | None = None  # of everything, on the clock of time.time(); nothing: none
    workers: int = 1
    most: int | None = None  # of what was set by hand, so many are judged beside the answer

    @cached_property
    def study(self) -> optuna.Study:
        """In a file of its own where no storage is named."""
        self.folder.mkdir(parents=True, exist_ok=True)
        storage = self.storage or f"sqlite:///{self.folder / 'study.sqlite'}"
        return opened(storage, self.name, self.goal, self.subject.marks, self.takes)

    @cached_property
    def engine(self) -> Engine:
        """Made while the model is bare."""
        return Engine.of(self.subject.model)

    @cached_property
    def _taken(self) -> dict[Extension, bool]:
        return {}

    def takes(self, extension: Extension) -> bool:
        """Whether the model takes it, and the engine could load it."""
        if extension not in self._taken:
            self._taken[extension] = self.engine.takes(self.goal, extension)
        return self._taken[extension]

    def texts(self, first: int) -> OnTexts:
        """One half of the held-out texts."""
        half = replace(self.subject, every=2, first=first, _passages=[])
        return OnTexts(half, self.goal, Store(self.folder / "cells.sqlite"))

    @cached_property
    def fitted_on(self) -> OnTexts:
        """The half that the search sees."""
        return self.texts(0)

    @cached_property
    def judged_on(self) -> OnTexts:
        """The half that it does not."""
        return self.texts(1)

    def begin(self) -> None:
        """Refuse what cannot be searched, and measure once what all workers need: the bare model."""
        for half in (self.fitted_on, self.judged_on):
            half.subject.passages(self.goal.samples)
        _ = self.study
        self.fitted_on.long(Extension())

    def search(self, *, trials: int | None = None, watch: Watch = lambda each: None) -> bool:
        """Until the time that judging will need is all that is left; whether it was stopped from outside."""
        by_hand = lines(self.goal, self.takes, ())
        seconds = self.fitted_on.long(Extension()).seconds
        count = len(by_hand if self.most is None else list(by_hand)[: self.most])
        end = None if self.deadline is None else self.deadline - reserve(self.goal, seconds, count, self.workers)
        timed = replace(self.fitted_on, watch=lambda cell: self._require_time(end))
        return search(self.study, self.goal, timed, trials=trials, watch=watch)

    def judge_share(self, worker: int) -> None:
        """Measure one worker's share of what was set by hand; all find it in the store then."""
        for extension in list(self._lines(tried(self.study)).values())[worker :: self.workers]:
            self.judged_on.long(extension)
            self.judged_on.short_losses(extension)

    def judge(self, step: Step = lambda line, done, of: None) -> Fit:
        """The answer, beside the bare model and what was set by hand."""
        history, chosen = tried(self.study), winner(self.study, self.goal)
        beside = {BARE: Extension(), **self._lines(history)}
        found = []
        for done, (line, extension) in enumerate(beside.items()):
            step(line, done, len(beside) + 1)
            found.append(judged(self.judged_on, line, extension, chosen.extension))
        answer = judged(self.judged_on, name_of(chosen), chosen.extension, chosen.extension)
        marks: Mapping[str, str] = self.subject.marks
        return Fit(
            goal=self.goal,
            chosen=chosen,
            answer=answer,
            beside=tuple(found),
            history=tuple(history),
            marks=marks,
            made=made_here("optuna"),
        )

    def _lines(self, history: list[Tried]) -> dict[str, Extension]:
        return lines(self.goal, self.takes, history, self.most)

    def _require_time(self, end: float | None) -> None:
        """One extension is measured wholly however long it takes: a slow machine has an answer too."""
        parent = multiprocessing.parent_process()
        if parent is not None and not parent.is_alive():
            raise KeyboardInterrupt  # nobody waits for this worker any more
        if end is not None and time.time() > end and any(each.figures for each in tried(self.study)):
            raise OutOfTime
