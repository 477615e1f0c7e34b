"""A row of the leaderboard, measured again from its settings, and figure by figure whether it agrees."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from ropewalk.errors import DoesNotFit, RopewalkError, Unreadable
from ropewalk.extension.extension import Extension
from ropewalk.extension.outside import admit
from ropewalk.extension.parsing import Line
from ropewalk.hf.load_options import AUTO, UNSTATED, LoadOptions, require_plausible
from ropewalk.measure.arguments import FEWEST_TEXTS, RunOptions, whole_number
from ropewalk.measure.compare import measuring_by
from ropewalk.measure.comparison.comparison import Comparison, measure_candidates
from ropewalk.measure.comparison.runner import Cell
from ropewalk.measure.comparison.store import Store
from ropewalk.measure.material.subject import Subject
from ropewalk.measure.opened_model import open_model
from ropewalk.measure.progress import showing_progress
from ropewalk.measure.report.drawing.names import name_of
from ropewalk.measure.report.submitted import is_current, read_records, read_row, rounded, row_of
from ropewalk.measure.tasks import Task
from ropewalk.measure.tasks.task_line import tasks_stored
from ropewalk.methods.spec import Json
from ropewalk.models import path_of

TIMES_ONLY = ("seconds", "slowdown", "cost")  # they differ from run to run
SAME_TEXT_ATOL = 0.01  # nats between two readings of one text: what a leaderboard counts as the same loss
EQUAL, WITHIN, CLOSE, DIFFERS = "equal", "within the interval", f"within {SAME_TEXT_ATOL}", "differs"
NO_FIGURE = "no figure"


class RedoneFigure(NamedTuple):
    """One figure of a row, as it stands there and as it was measured now."""

    name: str
    before: Any
    now: Any
    verdict: str


class RedoneRow(NamedTuple):
    """A row that was measured again."""

    line: str
    current: bool  # whether its formulas and tasks are those of today's code
    figures: tuple[RedoneFigure, ...]

    @property
    def agrees(self) -> bool:
        """Whether every figure does, times apart."""
        return bool(self.figures) and all(figure.verdict != DIFFERS for figure in self.figures)

    @property
    def words(self) -> list[str]:
        """What is not equal, and how many figures agree."""
        count = Counter(figure.verdict for figure in self.figures)
        unequal = [figure for figure in self.figures if figure.verdict != EQUAL]
        return [
            *(f"{one.name}: {one.before} in the row, {one.now} now: {one.verdict}" for one in unequal),
            *["The row was measured with another version of its formulas or tasks."] * (not self.current),
            f"{self.line}: of {len(self.figures)} figures {count[EQUAL]} are equal, {count[WITHIN]} {WITHIN},"
            f" {count[CLOSE]} {CLOSE}, {count[DIFFERS]} others; times apart",
        ]


def redo(
    path: str | Path,
    model: Any = "",
    *,
    corpus: str = "",
    samples: int | None = None,
    options: LoadOptions = UNSTATED,
) -> RedoneRow:
    """Measure a row again. With fewer `samples` the losses of these texts are compared, each with its own.

    Args:
        path: the row's file.
        model: where the row's model is, if its name does not say so; its weights must be the same.
        corpus: where the row's texts are, if they are elsewhere now; they must be the same.
        samples: texts that are read; by default all.
        options: a `LoadOptions` says how a named model is loaded; a `RunOptions` also says what runs the measurement.
    """
    path, run = Path(path), RunOptions.of(options)
    row = read_row(path)
    settings, marks = row["settings"], row["settings"]["marks"]
    admit(settings["extension"], path.parent, trusted=run.trust_remote_code)
    line = Line(row["line"], (), Extension.from_json(settings["extension"]))
    whole = tasks_stored(settings["tasks"])
    few = samples is not None and whole_number("samples", samples, least=FEWEST_TEXTS) < max(t.samples for t in whole)
    tasks = tuple(replace(task, samples=min(task.samples, samples or task.samples)) for task in whole)
    # Of fewer texts a task may ask something else, as at depths that are spread over them.
    same = {
        (task.title, text)
        for task, was in zip(tasks, whole, strict=True)
        for text in range(task.samples)
        if task.identity(text) == was.identity(text)
    }
    model = model or _model_of(row, path)
    if isinstance(model, str | Path):
        stated, dtype = marks.get("trained_len"), marks["dtype"].removeprefix("torch.")
        run = replace(run, dtype=dtype if run.dtype == AUTO else run.dtype)
        run = replace(run, trained_len=run.trained_len or (int(stated) if stated else None))
    with (
        TemporaryDirectory(prefix="ropewalk-") as place,
        open_model(model, run) as host,
        showing_progress("measuring again", shown=run.progress) as shown,
    ):
        subject = host.subject(corpus or marks["corpus"], settings["lengths"][-1])
        _require_same(subject, settings, tasks, path)
        done, total = 0, sum(2 * task.samples * len(settings["lengths"]) for task in tasks)

        def progress(cell: Cell, result: Json) -> None:
            nonlocal done
            done += 1
            shown(min(done, total), total, f"{row['line']} at {cell.length:,}")

        how: dict[str, Any] = {"tasks": tasks, "measuring": measuring_by(run), "progress": progress}
        again = measure_candidates(subject, [line], settings["lengths"], Store(Path(place, "cells.sqlite")), **how)
    before, now = _by_text(row, path, again, same) if few else _condensed(row, again)
    return RedoneRow(row["line"], is_current(path, row), tuple(compared(before, now)))


def _model_of(row: Json, path: Path) -> str:
    """The model that a row names, where that is enough to find it."""
    name = path_of(str(row["settings"]["model"]))
    with suppress(RopewalkError):
        require_plausible(name)
        return name
    sentence = f"the row was measured on {row['settings']['model']!r}, a folder of whoever measured it"
    raise Unreadable.because("model", sentence, remedy=f"say where it is here: ropewalk compare MODEL --redo {path}")


def _require_same(subject: Subject, settings: Json, tasks: tuple[Task, ...], path: Path) -> None:
    """Refuse another model or other texts: their figures would be others."""
    for name, mark in settings["marks"].items():
        if name != "corpus" and subject.marks.get(name) != mark:
            sentence = f"the row is of a model with {name} {mark}, and {subject.name} has {subject.marks.get(name)}"
            remedy = f"name the model that was measured: ropewalk compare MODEL --redo {path}"
            raise DoesNotFit.because("model", sentence, remedy=remedy)
    count = max(task.samples for task in tasks)
    subject.passages(count)
    pairs = list(zip(subject.text_marks(count), settings["texts"], strict=False))
    if not pairs or any(here != there for here, there in pairs):
        sentence = f"the texts of {subject.corpus} are not those that the row was measured on"
        remedy = "use the versions of Python and of packages that the row names, or say where its texts are: --corpus"
        raise DoesNotFit.because("corpus", sentence, remedy=remedy)


def _condensed(row: Json, again: Comparison) -> tuple[Json, Json]:
    """The results of a row, and the same ones now."""
    before, now = (
        {name: one[name] for name in ("results", "base")} for one in (row, row_of(again, again.candidates[-1]))
    )
    return before, now


def _by_text(row: Json, path: Path, again: Comparison, same: Set[tuple[str, int]]) -> tuple[Json, Json]:
    """The losses of the texts that were read now, as they lie beside a row, and as they are."""
    before = {
        name: loss
        for line, parts in read_records(path, row).items()
        for part in parts
        for name, loss in _losses(line, part["task"], part["length"], part["samples"], same)
    }
    now = {
        name: rounded(loss)
        for one in again.candidates
        for part in one.rows
        for name, loss in _losses(one.line, part.task.title, part.length, part.samples, same)
    }
    return {name: loss for name, loss in before.items() if name in now}, now


def _losses(
    line: str, task: str, length: int, samples: Sequence[Json], same: Set[tuple[str, int]]
) -> Iterator[tuple[str, float]]:
    for number, sample in enumerate(samples):
        if "loss" in sample and (task, number) in same:
            yield f"{name_of(line)}: {task} at {length:,}, text {number + 1}", sample["loss"]


def compared(before: Mapping[str, Any], now: Mapping[str, Any], name: str = "") -> Iterator[RedoneFigure]:
    """Every figure of a record against that of another; times are left out."""
    for key, was in before.items():
        title, here = f"{name} {key}".strip(), now.get(key, NO_FIGURE)
        if key in TIMES_ONLY:
            continue
        if isinstance(was, Mapping) and isinstance(here, Mapping):
            yield from [_estimate(title, was, here)] if "low" in was else compared(was, here, title)
        elif here == was:
            yield RedoneFigure(title, was, here, EQUAL)
        else:
            near = isinstance(was, float) and isinstance(here, float) and abs(was - here) <= SAME_TEXT_ATOL
            yield RedoneFigure(title, was, here, CLOSE if near else DIFFERS)


def _estimate(name: str, was: Mapping[str, Any], here: Mapping[str, Any]) -> RedoneFigure:
    """A number with its interval; an end that is open holds everything."""
    before, now = was["value"], here.get("value")
    if dict(was) == dict(here):
        return RedoneFigure(name, before, now, EQUAL)
    if before is None or now is None:
        return RedoneFigure(name, before, now, DIFFERS)
    low, high = was["low"], was["high"]
    inside = (low is None or low <= now) and (high is None or now <= high)
    return RedoneFigure(name, before, now, WITHIN if inside else DIFFERS)
