"""`rw.leaderboard`: every preset that applies to a model, measured with halving."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ropewalk.errors import InvalidValue
from ropewalk.extension.notation import length as in_tokens
from ropewalk.files import record_json
from ropewalk.hf.load_options import UNSTATED, LoadOptions
from ropewalk.hf.probe.facts import trained_len
from ropewalk.measure.arguments import RunOptions, seconds_or_none
from ropewalk.measure.compare import CORPUS, ComparisonResult, measuring_by, tasks_asked
from ropewalk.measure.comparison.race import Leaderboard, Race, TimeIsUp, run_race, tasks_of
from ropewalk.measure.comparison.runner import Cell
from ropewalk.measure.comparison.store import Store
from ropewalk.measure.lines import Extensions, lines_of
from ropewalk.measure.opened_model import open_folder, open_model
from ropewalk.measure.progress import showing_progress
from ropewalk.measure.report.leaderboard import BOARD, as_json, ranking_json, stopped, table, write_leaderboard
from ropewalk.measure.report.written_tables import PageTable
from ropewalk.measure.tasks.task_line import check_tasks
from ropewalk.methods.spec import Json
from ropewalk.models import NAME

TIMES, MANY_SAMPLES = 8, 24  # the target length in trained lengths, and the texts, where the caller says nothing


@dataclass(frozen=True, repr=False)
class LeaderboardResult(ComparisonResult):
    """The result of `rw.leaderboard`; `board` has its lines, those that were dropped and those that were left out."""

    board: Leaderboard

    @property
    def table(self) -> PageTable:
        """A row for each line that was measured on all texts, the lowest loss first."""
        return table(as_json(self.board))

    @property
    def brief(self) -> PageTable:
        """The loss, what is behind it, and whether another line beats it."""
        head, rows, _ = self.table
        chosen = [0, 1, 2, len(head) - 1]
        return PageTable(
            tuple(head[column] for column in chosen),
            tuple(tuple(row[column] for column in chosen) for row in rows),
            ends_in_words=True,
        )

    @property
    def stopped(self) -> list[tuple[str, str]]:
        """What was dropped early or not measured, and why."""
        return stopped(as_json(self.board))

    def to_dict(self) -> Json:
        """Everything, text by text, as `results.json`; under `leaderboard` what is in no other comparison."""
        return {**super().to_dict(), BOARD: record_json(ranking_json(self.board))}

    def write(self, folder: str | Path, *, command: str = "", pictures: str = "") -> Path:
        """Write `leaderboard.md`, `leaderboard.json` and the report; return the path of the page."""
        return write_leaderboard(self.board, folder, command=command, pictures=pictures)


def leaderboard(
    model: Any = NAME,
    target_len: int | str | None = None,
    extensions: Extensions = (),
    *,
    tasks: str = "",
    corpus: str = "",
    samples: int | None = None,
    time_limit: float | str = "",
    folder: str | Path | None = None,
    options: LoadOptions = UNSTATED,
) -> LeaderboardResult:
    """Measure every preset that applies to a model, and say which presets no other preset beats.

        board = rw.leaderboard("model", "1k", ["rerope+log_n"], samples=2, tasks="context")
        print(board)

    All presets read a few texts. Those that are clearly behind are dropped (`stopped` lists them); the rest read more.

    Args:
        model: as in `rw.compare`.
        target_len: the length of the texts in tokens (1024 or "1k"); by default 8 times the trained length.
        extensions: those that take part beside the presets.
        tasks: by default the tasks that the table's columns need.
        corpus: held-out text; by default stdlib.
        samples: texts that are read at most, by default 24.
        time_limit: in seconds, or as "30m": the last whole round counts, and the first is always finished.
        folder: where results are stored; repeating the call resumes from them.
        options: a `LoadOptions` says how a named model is loaded; a `RunOptions` also says what runs the measurement.
    """
    began, run = time.monotonic(), RunOptions.of(options)
    samples = MANY_SAMPLES if samples is None else samples
    every_task = check_tasks(tasks_asked(tasks, samples, tasks_of), samples)
    limit = seconds_or_none("time_limit", time_limit)
    deadline = None if limit in (None, math.inf) else began + limit
    lines = lines_of(extensions) if extensions else []
    asked = None if target_len is None else in_tokens(str(target_len), "target_len")
    run.check(model, unused=("after_round",))
    measuring = measuring_by(run)
    with (
        open_folder(folder) as place,
        open_model(model, run) as host,
        showing_progress("measuring", shown=run.progress) as shown,
    ):
        known = trained_len(host.model)
        length = TIMES * known if asked is None else asked
        if length <= known:
            raise InvalidValue("target_len", f"above the trained length ({known})", length)
        clock = RaceClock(deadline)
        race = Race(
            subject=host.subject(corpus or CORPUS, length),
            target_len=length,
            store=Store(place / "cells.sqlite"),
            tasks=every_task,
            measuring=measuring,
            progress=lambda cell, result: shown(*clock.counted(cell)),
            announce=clock.begin,
        )
        board = run_race(race, lines)
    return LeaderboardResult(board.comparison, board)


class RaceClock:
    """Counts the cells of a round, and ends the race when its time is over."""

    def __init__(self, deadline: float | None) -> None:
        self._deadline, self._label, self._done, self._total = deadline, "", 0, 1

    def begin(self, number: int, lines: int, texts: int, cells: int) -> None:
        """A round begins."""
        self._label, self._done, self._total = f"round {number}: {lines} lines, {texts} texts", 0, cells

    def counted(self, _: Cell) -> tuple[int, int, str]:
        """One more cell is there."""
        if self._deadline is not None and time.monotonic() > self._deadline:
            raise TimeIsUp
        self._done += 1
        return self._done, self._total, self._label
