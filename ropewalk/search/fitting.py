"""`fit`: a model, a text, a goal and a time; an answer with its evidence."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import optuna
import torch

from ropewalk.evaluation.compare.compare import made_here
from ropewalk.evaluation.compare.store import Store
from ropewalk.evaluation.material.subject import Subject
from ropewalk.extension import Extension
from ropewalk.notation import BARE
from ropewalk.search.engines import DeployTarget
from ropewalk.search.goal import Goal
from ropewalk.search.judging import FitResult, lines, name_of, reserve, tested
from ropewalk.search.objective import OnTexts
from ropewalk.search.proposing import taken
from ropewalk.search.searching import OutOfTime, Watch, search, winner
from ropewalk.search.studies import opened
from ropewalk.search.tried import MeasuredTrial, tried

STUDY = "fit"
LEAST = 6  # texts that anything is judged on, where there are so many
IDLE = 1.3  # times as long as if no thread waited for another
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
    budget: float | None = None  # seconds that this leaves from the beginning on
    workers: int = 1
    most: int | None = None  # of what was set by hand, so many are judged beside the answer
    leads: bool = True  # whether it looks where to step next; one worker does
    _until: float | None = None  # the end as it was last known

    @cached_property
    def study(self) -> optuna.Study:
        """In a file of its own where no storage is named."""
        self.folder.mkdir(parents=True, exist_ok=True)
        storage = self.storage or f"sqlite:///{self.folder / 'study.sqlite'}"
        return opened(storage, self.name, self.goal, self.marks, self.takes)

    @cached_property
    def marks(self) -> dict[str, str]:
        """Hashes of the model and of the texts of both halves."""
        halves = {"fitted on": self.fitted_on, "judged on": self.judged_on}
        texts = {name: " ".join(half.subject.text_marks(half.count)) for name, half in halves.items()}
        return {**self.subject.marks, **texts}

    @cached_property
    def engine(self) -> DeployTarget:
        """Made while the model is bare."""
        return DeployTarget.of(self.subject.model, self.subject.own)

    @cached_property
    def _taken(self) -> dict[Extension, bool]:
        return {}

    def takes(self, extension: Extension) -> bool:
        """Whether the model takes it, and the engine could load it."""
        if extension not in self._taken:
            self._taken[extension] = self.engine.takes(self.goal, extension)
        return self._taken[extension]

    def texts(self, first: int, count: int) -> OnTexts:
        """So many of one half of the held-out texts."""
        half = replace(self.subject, every=2, first=first, _passages=[])
        half.passages(count)  # before there is a store of what cannot be measured
        return OnTexts(half, self.goal, Store(self.folder / "cells.sqlite"), count)

    @cached_property
    def fitted_on(self) -> OnTexts:
        """The half that the search sees."""
        return self.texts(0, self.goal.samples)

    @cached_property
    def judged_on(self) -> OnTexts:
        """The half that it does not."""
        return self.texts(1, self.goal.judges)

    def begin(self) -> None:
        """Refuse what cannot be searched, and measure once what all workers need: the bare model."""
        _ = self.fitted_on, self.judged_on, self.study
        _ = self.fitted_on.subject.warm, self.judged_on.subject.warm  # of this process, which others are forked from
        self.fitted_on.long(Extension())

    @cached_property
    def bare_seconds(self) -> float:
        """That all fitting texts take."""
        seconds = self.fitted_on.long(Extension()).seconds
        on_cpu = self.subject.model.device.type == "cpu"  # where seconds are the processor's
        return seconds * IDLE / torch.get_num_threads() if on_cpu else seconds

    @property
    def end(self) -> float | None:
        """Of the search: when the time that judging will need is all that is left."""
        if self.deadline is None:
            return None
        shares = [count / self.goal.judges for _, count in self._to_judge().values()]
        return self.deadline - reserve(self.goal, self.bare_seconds, sum(shares), self.workers)

    def _to_judge(self) -> dict[str, tuple[Extension, int]]:
        """What was set by hand, the best first, and on how many texts each is judged: what broke, on a few."""
        history, judges = tried(self.study), self.goal.judges
        held = {each.extension for each in history if each.figures}
        few = min(judges, max(LEAST, judges // 4))
        wanted = lines(self.goal, self.takes, history, self.most)
        return {line: (each, judges if each in held else few) for line, each in wanted.items()}

    def search(self, *, trials: int | None = None, watch: Watch = lambda each: None) -> bool:
        """Until its end; whether it was stopped from outside."""
        self._until = self.end  # for which the bare model is measured, before anything is extended
        timed = replace(self.fitted_on, watch=lambda cell: self._require_time())

        def seen(each: MeasuredTrial) -> None:
            self._until = self.end  # what held is judged on more texts
            watch(each)

        return search(self.study, self.goal, timed, trials=trials, watch=seen, leads=self.leads)

    def judge_share(self, worker: int) -> None:
        """Measure one worker's share of what was set by hand; all find it in the store then."""
        for extension, count in list(self._to_judge().values())[worker :: self.workers]:
            own = replace(self.judged_on, count=count)
            own.long(extension)
            own.short_losses(extension)

    def judge(self, step: Step = lambda line, done, of: None) -> FitResult:
        """The answer, beside the bare model and what was set by hand."""
        history, chosen = tried(self.study), winner(self.study, self.goal)
        beside = {BARE: (Extension(), self.goal.judges), **self._to_judge()}
        found = []
        for done, (line, (extension, count)) in enumerate(beside.items()):
            step(line, done, len(beside) + 1)
            found.append(tested(replace(self.judged_on, count=count), line, extension, chosen.extension))
        answer = tested(self.judged_on, name_of(chosen), chosen.extension, chosen.extension)
        return FitResult(
            goal=self.goal,
            chosen=chosen,
            answer=answer,
            beside=tuple(found),
            history=tuple(history),
            marks=self.marks,
            made=made_here("optuna"),
            own=self.subject.own.extension,
            budget=self.budget,
            untried=len(set(lines(self.goal, self.takes, history).values()) - taken(self.study)),
        )

    def _require_time(self) -> None:
        """One extension is measured wholly however long it takes: a slow machine has an answer too."""
        parent = multiprocessing.parent_process()
        if parent is not None and not parent.is_alive():
            raise KeyboardInterrupt  # nobody waits for this worker any more
        over = self._until is not None and time.time() > self._until
        if over and any(each.figures for each in tried(self.study)):
            raise OutOfTime
