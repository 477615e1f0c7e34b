"""`rw.leaderboard`: every preset that applies to a model, measured with halving."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ropewalk.errors import InvalidValue
from ropewalk.extension.notation import length as in_tokens
from ropewalk.files import record_json
from ropewalk.hf.load_options import UNSTATED, LoadOptions, merge_options
from ropewalk.hf.probe.facts import trained_len
from ropewalk.measure.api.argument_checks import seconds, tasks_text, whole_number
from ropewalk.measure.api.comparing import FEWEST_TEXTS, ComparisonResult
from ropewalk.measure.api.lines import Extensions, lines_of
from ropewalk.measure.api.loading import open_folder, open_model
from ropewalk.measure.api.progress import Shown, showing_progress
from ropewalk.measure.compare.cluster.crew import measure_on_cluster
from ropewalk.measure.compare.leaderboard import Leaderboard, Race, TimeIsUp, leaderboard as raced, tasks_of
from ropewalk.measure.compare.runner import Cell
from ropewalk.measure.compare.store import Store
from ropewalk.measure.compare.workers import side_by_side
from ropewalk.measure.report.html_page import PageTable
from ropewalk.measure.report.leaderboard import BOARD, as_json, ranking_json, stopped, table, write_leaderboard
from ropewalk.measure.tasks.task_line import check_tasks, tasks_named
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
        head, rows = table(as_json(self.board))
        return PageTable(head, tuple(rows), ends_in_words=True)

    @property
    def brief(self) -> PageTable:
        """The loss, what is behind it, and whether another line beats it."""
        head, rows = table(as_json(self.board))
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
    tokenizer: Any = None,
    time_limit: float | str = "",
    corpus: str = "stdlib",
    samples: int = MANY_SAMPLES,
    tasks: str = "",
    folder: str | Path | None = None,
    device: str = "",
    dtype: str = "",
    revision: str = "",
    trust_remote_code: bool = False,
    options: LoadOptions = UNSTATED,
    workers: int = 1,
    ray: str = "",
    progress: Shown = True,
) -> LeaderboardResult:
    """Measure every preset that applies to a model, and say which no other one beats.

        board = rw.leaderboard("model", "1k", ["rerope+log_n"], samples=2, tasks="context")
        print(board)

    All presets read a few texts of `target_len` tokens (by default 8 times the trained length). Those that are surely
    behind are dropped, which `stopped` says, and the rest read more, up to `samples` texts. `extensions` take part
    besides. `tasks` are by default those that the columns need. When `time_limit` is over (seconds, or "30m"), the last
    whole round counts; the first is always finished. In a `folder` the numbers are kept: the same call continues
    there. All other parameters are those of `rw.compare`.
    """
    began = time.monotonic()
    limit, samples = seconds("time_limit", time_limit), whole_number("samples", samples, least=FEWEST_TEXTS)
    deadline = None if limit is None else began + limit
    lines = lines_of(extensions) if extensions else []
    every_task = check_tasks(tasks_named(tasks, samples) if tasks_text(tasks) else tasks_of(samples), samples)
    asked = None if target_len is None else in_tokens(str(target_len), "target_len")
    measuring = measure_on_cluster(ray) if ray else side_by_side(whole_number("workers", workers, least=0))
    options = merge_options(model, options, dtype, device, revision, trust_remote_code)
    with (
        open_folder(folder) as place,
        open_model(model, tokenizer, replace(options, device="cpu") if ray else options) as host,
        showing_progress("measuring", shown=progress) as shown,
    ):
        known = trained_len(host.model)
        length = TIMES * known if asked is None else asked
        if length <= known:
            raise InvalidValue("target_len", f"above the trained length ({known})", length)
        clock = RaceClock(deadline)
        race = Race(
            subject=host.subject(corpus, length),
            target_len=length,
            store=Store(place / "cells.sqlite"),
            tasks=every_task,
            measuring=measuring,
            progress=lambda cell: shown(*clock.counted(cell)),
            announce=clock.begin,
        )
        board = raced(race, lines)
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
