"""Cells in several processes: the numbers of one process, whatever happens to any of them."""

import multiprocessing
import os
import signal
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, ClassVar

import pytest
import torch

import ropewalk as rw
from ropewalk.errors import DoesNotFit, InvalidValue
from ropewalk.measure.comparison import workers as module
from ropewalk.measure.comparison.runner import cells, run
from ropewalk.measure.comparison.store import Store
from ropewalk.measure.comparison.workers import side_by_side, workers_for
from ropewalk.measure.tasks import Context, Damage, Passkey, Task

from measure.subjects import subject

EXTENSIONS = [rw.Extension(), rw.parse("window:window=8"), rw.parse("yarn:factor=2")]
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux alone")


@dataclass(frozen=True, kw_only=True)
class Staying(Task):
    """Who measured what, in a folder; and what happens at the second sample."""

    name: ClassVar[str] = "staying"
    folder: Annotated[str, "where it is written down"]
    fate: Annotated[str, "of the one who measures the second sample"] = ""

    def measure(self, subject, length, sample):
        (Path(self.folder) / f"{os.getpid()}-{time.time_ns()}").write_text(f"{length} {sample}")
        if sample == 1 and self.fate:
            {"refused": refused, "killed": killed, "asleep": lambda: time.sleep(600)}[self.fate]()
        time.sleep(0.02)  # long enough for the others to take the next
        return {"threads": torch.get_num_threads()}

    def condense(self, measured):
        return {}


def refused():
    raise DoesNotFit("sample", "any but the second", 1)


def killed():
    if multiprocessing.parent_process() is not None:
        os.kill(os.getpid(), signal.SIGKILL)


def written(folder):
    return sorted(each.read_text() for each in folder.iterdir())


def measurers(folder):
    return {int(each.name.partition("-")[0]) for each in folder.iterdir()}


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "written"
    made.mkdir()
    return made


@pytest.mark.nightly
def test_the_numbers_are_those_of_one_process(tmp_path):
    who = subject(tmp_path, longest=200)
    tasks = [Context(samples=3), Damage(samples=2), Passkey(samples=2, filler="grass")]
    alone = run(who, EXTENSIONS, tasks, [100, 200], Store(tmp_path / "a.sqlite"))
    together = run(who, EXTENSIONS, tasks, [100, 200], Store(tmp_path / "b.sqlite"), measuring=side_by_side(3))
    for one, other in zip(alone, together, strict=True):
        assert one[:3] == other[:3]
        for name, expected in one.numbers.items():
            assert other.numbers[name].value == pytest.approx(expected.value, abs=1e-5)
    assert not hasattr(who.model, "_ropewalk_handle")


def test_each_cell_once_by_several_with_one_thread_each(tmp_path, folder):
    who, seen = subject(tmp_path), []
    task = Staying(folder=str(folder), samples=6)
    rows = run(
        who,
        EXTENSIONS,
        [task],
        [32, 64],
        Store(tmp_path / "a.sqlite"),
        measuring=side_by_side(2),
        progress=lambda cell, _: seen.append(cell),
    )
    assert written(folder) == sorted(
        f"{length} {sample}" for length in (32, 64) for sample in range(6) for _ in EXTENSIONS
    )
    assert len(measurers(folder)) == 2
    assert os.getpid() not in measurers(folder)
    assert sorted(map(str, seen)) == sorted(map(str, cells(EXTENSIONS, [task], [32, 64], 32)))
    assert {sample["threads"] for row in rows for sample in row.samples} == {1}


def test_a_refusal_is_raised_in_the_first_process(tmp_path, folder):
    task = Staying(folder=str(folder), samples=4, fate="refused")
    with pytest.raises(DoesNotFit, match="sample must be any but the second, got 1"):
        run(subject(tmp_path), EXTENSIONS, [task], [32], Store(tmp_path / "a.sqlite"), measuring=side_by_side(2))
    assert not multiprocessing.active_children()


def test_a_worker_that_dies_takes_nothing_with_it(tmp_path, folder, caplog):
    who, store = subject(tmp_path), Store(tmp_path / "a.sqlite")
    task = Staying(folder=str(folder), samples=8, fate="killed")
    mine = os.getpid()
    run(who, EXTENSIONS[:1], [task], [32], store, measuring=side_by_side(2))
    assert "1 of 2 workers died (exit status -9); the first process measures the remaining 1 cells" in caplog.text
    assert len(store.keys()) == 8
    assert sum(each == "32 1" for each in written(folder)) == 2  # it died of it, and the first process did not
    assert mine in measurers(folder)
    assert not multiprocessing.active_children()


def test_stopped_by_hand_nobody_works_on(tmp_path, folder):
    def stop(*_):
        raise KeyboardInterrupt

    task = Staying(folder=str(folder), samples=4, fate="asleep")
    with pytest.raises(KeyboardInterrupt):
        run(
            subject(tmp_path),
            EXTENSIONS,
            [task],
            [32],
            Store(tmp_path / "a.sqlite"),
            measuring=side_by_side(2),
            progress=stop,
        )
    assert not multiprocessing.active_children()


def test_when_the_first_process_is_killed_the_others_end(tmp_path, folder):
    who, task = subject(tmp_path), Staying(folder=str(folder), samples=2000, fate="asleep")
    given = (who, EXTENSIONS, [task], [32], Store(tmp_path / "a.sqlite"))
    first = multiprocessing.get_context("fork").Process(target=run, args=given, kwargs={"measuring": side_by_side(2)})
    first.start()
    assert until(lambda: len(measurers(folder)) == 2 and Store(tmp_path / "a.sqlite").keys())
    first.kill()
    first.join()
    assert until(lambda: not any(alive(each) for each in measurers(folder)))


def until(happened, seconds=60.0):
    end = time.monotonic() + seconds
    while time.monotonic() < end and not happened():
        time.sleep(0.05)
    return happened()


def alive(process):
    """Whether it runs; who has ended and is waited for by nobody does not."""
    with suppress(OSError):
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def test_how_many_serve_a_model_best(tmp_path, monkeypatch):
    who = subject(tmp_path)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    assert workers_for(who) == 4
    monkeypatch.setattr(torch, "get_num_threads", lambda: 64)
    assert workers_for(who) == module.MOST_WORKERS
    kept = 2 * 2 * 2 * 16 * who.longest * 4  # keys and values, layers, heads, their size, tokens, bytes
    for free, count in ((3 * module.CACHES_PER_WORKER * kept, 3), (3 * module.CACHES_PER_WORKER * kept - 1, 2), (0, 1)):
        monkeypatch.setattr(module, "free_bytes", lambda free=free: free)
        assert workers_for(who) == count
    monkeypatch.setattr(module, "SMALL_MODEL", 1000)
    assert workers_for(who) == 1
    monkeypatch.setattr(module, "SMALL_MODEL", 10**8)
    assert workers_for(replace(who, model=SimpleNamespace(parameters=list, device=torch.device("cuda")))) == 1
    monkeypatch.setattr(module.sys, "platform", "darwin")
    assert workers_for(who) == 1
    with pytest.raises(InvalidValue, match="2 workers need a model on the CPU of a Linux machine; leave out --workers"):
        run(who, EXTENSIONS, [Context(samples=2)], [32], Store(tmp_path / "a.sqlite"), measuring=side_by_side(2))
