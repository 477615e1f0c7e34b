"""Cells are measured once, kept as they finish, and gone on with."""

import copy
import math
import sqlite3
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Annotated, ClassVar

import pytest
import torch

import ropewalk as rw
from ropewalk.errors import DoesNotFit, Unreadable
from ropewalk.hf.attach.handle import handle_of
from ropewalk.measure.comparison import runner
from ropewalk.measure.comparison.runner import Cell, cells, run
from ropewalk.measure.comparison.store import Store
from ropewalk.measure.metrics.intervals import mean
from ropewalk.measure.metrics.losses import HeldOutTexts
from ropewalk.measure.tasks.task import Task

from measure.subjects import model, subject

SEEN = []


@dataclass(frozen=True, kw_only=True)
class Logits(Task):
    """The mean logit of a passage: depends on model, extension, length and sample."""

    name: ClassVar[str] = "logits"
    shift: Annotated[int, "something that another task would measure"] = 0

    def measure(self, subject, length, sample):
        SEEN.append((length, sample))
        ids = subject.passages(self.samples)[sample][None, -length:]
        with torch.no_grad():
            return {"logit": float(subject.model(input_ids=ids).logits.abs().mean())}

    def condense(self, measured):
        return {"logit": mean([each["logit"] for each in measured])}


EXTENSIONS = [rw.Extension(), rw.parse("window:window=8"), rw.parse("yarn:factor=2")]


@pytest.fixture(autouse=True)
def _nothing_seen():
    SEEN.clear()


def test_nothing_is_measured_twice(tmp_path):
    who, store = subject(tmp_path), Store(tmp_path / "cells.sqlite")
    first = run(who, EXTENSIONS, [Logits(samples=3)], [32, 64], store)
    assert len(SEEN) == 3 * 2 * 3
    assert run(who, EXTENSIONS, [Logits(samples=3)], [32, 64], store) == first
    assert len(SEEN) == 18
    more = run(who, EXTENSIONS, [Logits(samples=4)], [32, 64], store)
    assert len(SEEN) == 24
    assert [row.numbers["logit"].of for row in more] == [4] * 6


def test_stopped_and_gone_on_is_uninterrupted(tmp_path):
    who, store = subject(tmp_path), Store(tmp_path / "cells.sqlite")
    whole = run(who, EXTENSIONS, [Logits(samples=4)], [32], Store(tmp_path / "other.sqlite"))
    SEEN.clear()
    with pytest.raises(KeyboardInterrupt):
        run(who, EXTENSIONS, [Stopping(samples=4)], [32], store)
    assert not hasattr(who.model, "_ropewalk_handle")
    again = run(who, EXTENSIONS, [Logits(samples=4)], [32], store)
    assert len(SEEN) == 2 + 4 * 3 - 2  # two before the stop, and only what was missing after it
    assert [row.numbers for row in again] == [row.numbers for row in whole]


@dataclass(frozen=True, kw_only=True)
class Stopping(Logits):
    """The same cells, interrupted at the third."""

    def measure(self, subject, length, sample):
        if sample == 2:
            raise KeyboardInterrupt
        return super().measure(subject, length, sample)

    def to_json(self):
        return Logits(samples=self.samples).to_json()


def test_progress_counts_what_was_done_before(tmp_path):
    who, store, counted = subject(tmp_path), Store(tmp_path / "cells.sqlite"), []
    for known in (False, True):
        counted.clear()
        run(who, EXTENSIONS, [Logits(samples=2)], [32], store, progress=lambda *done: counted.append(done))
        assert [not result for _, result in counted] == [known] * 6


def test_a_cell_has_the_name_of_all_it_depends_on(tmp_path):
    who = subject(tmp_path)
    cell = Cell(EXTENSIONS[0], Logits(samples=2), 32, 0)
    names = {
        cell.key(who.marks),
        *(cell._replace(**{field: value}).key(who.marks) for field, value in
          (("extension", EXTENSIONS[1]), ("length", 64), ("sample", 1), ("task", Logits(shift=7)))),
        cell.key(replace(who, seed=1).marks),
        cell.key(replace(who, longest=128).marks),
    }  # fmt: skip
    assert len(names) == 7
    other = subject(tmp_path, model_=torch.nn.Module.to(model(), torch.float32))
    assert cell.key(other.marks) == cell.key(who.marks)
    assert cell.key(subject(tmp_path, model_=_changed()).marks) != cell.key(who.marks)


def _changed():
    from ropewalk.train.small_models import ModelShape, new_small_model

    return new_small_model(ModelShape(vocabulary=300, width=32, inner=64, layers=2, heads=2, trained_len=32), seed=1)


def test_other_texts_are_other_cells(tmp_path):
    """Also where they stand under the same names."""
    before = subject(tmp_path)
    names = [before.marks_at(sample) for sample in range(3)]
    assert subject(tmp_path).marks_at(2) == names[2]
    reversed_ids = torch.stack(before.passages(3)).flip(1)
    changed = before.reading(HeldOutTexts(reversed_ids, tuple(before.projects(3))))
    assert changed.marks == before.marks
    assert all(changed.marks_at(sample)["texts"] != name["texts"] for sample, name in enumerate(names))


def test_a_model_is_the_same_wherever_it_lies(tmp_path):
    here, there = subject(tmp_path / "a"), subject(tmp_path / "b", model_=copy.deepcopy(model()))
    there.model.config._name_or_path = "/somewhere/else"
    assert {**here.marks, "corpus": ""} == {**there.marks, "corpus": ""}


def test_an_extension_comes_once(tmp_path):
    order = [cell.extension for cell in cells(EXTENSIONS, [Logits(samples=2), Logits(samples=3)], [32, 64], 32)]
    assert sum(a != b for a, b in pairwise(order)) == len(EXTENSIONS) - 1


def test_a_corpus_that_is_too_small(tmp_path):
    with pytest.raises(DoesNotFit, match=r"50 held-out documents of 64 tokens.*it has"):
        subject(tmp_path, count=60).passages(50)


def test_a_store_that_is_none(tmp_path):
    (tmp_path / "cells.sqlite").write_text("this is no data base, and long enough to be sure of it" * 20)
    with pytest.raises(Unreadable, match="a file of results"):
        Store(tmp_path / "cells.sqlite")


def test_a_store_without_results_is_no_file(tmp_path):
    assert Store(tmp_path / "out" / "cells.sqlite").keys() == set()
    assert not (tmp_path / "out").exists()


def test_what_came_first_stays(tmp_path):
    store = Store(tmp_path / "cells.sqlite")
    store.put("a", {"x": 1})
    store.put("a", {"x": 2})
    assert store.get("a") == {"x": 1}
    assert Store(store.path).keys() == {"a"}
    assert store.get("b") is None


def test_a_store_of_another_version(tmp_path):
    path = tmp_path / "cells.sqlite"
    with closing(sqlite3.connect(path)) as file, file:  # the layout before versions were written
        file.execute("create table cells (key text primary key, result text not null)")
    with pytest.raises(Unreadable, match=r"store must be of version 2, got 'version 0 in .*another folder"):
        Store(path)
    Store(tmp_path / "new.sqlite").put("a", {})
    with closing(sqlite3.connect(tmp_path / "new.sqlite")) as file, file:
        file.execute("pragma user_version = 7")
    with pytest.raises(Unreadable, match="got 'version 7"):
        Store(tmp_path / "new.sqlite")


@dataclass(frozen=True, kw_only=True)
class Greedy(Logits):
    """The same cells; memory does not suffice for one of them, or something else is wrong."""

    wrong: ClassVar[dict[tuple[int, int], BaseException]] = {}

    def measure(self, subject, length, sample):
        result = super().measure(subject, length, sample)
        if handle_of(subject.model).extension == EXTENSIONS[1] and (length, sample) in self.wrong:
            raise self.wrong[length, sample]
        return result

    def to_json(self):
        return Logits(samples=self.samples).to_json()


@pytest.mark.sampled(cases=1)
@pytest.mark.parametrize("error", [torch.OutOfMemoryError("CUDA out of memory."), MemoryError()])
def test_want_of_memory_is_marked_and_tried_again(tmp_path, monkeypatch, error):
    who, store, counted = subject(tmp_path), Store(tmp_path / "cells.sqlite"), []
    monkeypatch.setitem(Greedy.wrong, (64, 1), error)
    first = run(who, EXTENSIONS, [Greedy(samples=2)], [32, 64], store, progress=lambda *done: counted.append(done))
    assert len(counted) == 12  # it went on
    failed = [row for row in first if row.failed]
    assert [(row.extension, row.length, row.failed, row.numbers) for row in failed] == [
        (EXTENSIONS[1], 64, "out of memory", {})
    ]
    assert len(store.keys()) == 11
    SEEN.clear()
    monkeypatch.delitem(Greedy.wrong, (64, 1))
    again = run(who, EXTENSIONS, [Greedy(samples=2)], [32, 64], store)
    assert SEEN == [(64, 1)]
    assert [row.failed for row in again] == [""] * 6
    assert [row.numbers["logit"].of for row in again] == [2] * 6


def test_other_errors_stop_a_run(tmp_path, monkeypatch):
    monkeypatch.setitem(Greedy.wrong, (32, 0), RuntimeError("shapes cannot be multiplied"))
    with pytest.raises(RuntimeError, match="shapes"):
        run(subject(tmp_path), EXTENSIONS, [Greedy(samples=1)], [32], Store(tmp_path / "cells.sqlite"))


class Clock:
    """A processor on which the first reading of all takes a hundred times as long."""

    def __init__(self):
        self.now, self.readings = 0.0, 0

    def reading(self, *_):
        self.now += 1.0 if self.readings else 100.0
        self.readings += 1


@pytest.mark.parametrize("first", [rw.Extension(), rw.parse("yarn:factor=2")])
def test_what_comes_first_is_measured_as_all_the_rest(tmp_path, monkeypatch, first):
    clock, who = Clock(), subject(tmp_path, model_=copy.deepcopy(model()))
    monkeypatch.setattr(runner.time, "process_time", lambda: clock.now)
    who.model.register_forward_pre_hook(clock.reading)
    both = [first, *(each for each in (rw.Extension(), rw.parse("yarn:factor=2")) if each != first)]
    for length in (32, 64):  # the second run of a process is as warm as the first
        rows = run(who, both, [Logits(samples=3)], [length], Store(tmp_path / f"{length}.sqlite"))
        assert [row.seconds for row in rows] == [3.0, 3.0]


def test_seconds_of_two_kinds_of_devices_are_no_ratio(tmp_path, monkeypatch):
    """A store may go from one machine to another: its losses are the same there, its seconds are not."""
    who, store, task = subject(tmp_path), Store(tmp_path / "cells"), Logits(samples=2)
    window = rw.parse("window:window=8")
    (base,) = run(who, [rw.Extension()], [task], [64], store)
    monkeypatch.setattr(runner, "device_name", lambda subject: "a GPU")
    again, other = run(who, [rw.Extension(), window], [task], [64], store)
    assert again == base
    assert (base.devices, other.devices) == ({"cpu"}, {"a GPU"})
    assert math.isnan(other.times(base))
    assert other.times(other) == 1
    mixed = base._replace(devices=frozenset({"cpu", "a GPU"}))
    assert math.isnan(mixed.times(mixed))
