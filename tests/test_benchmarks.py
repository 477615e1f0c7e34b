"""The benchmarks of a GPU without one: every step with tiny shapes, and how results are kept."""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from ropewalk.extension.parsing import read_line

ROOT = Path(__file__).parents[1]


@pytest.mark.nightly
def test_a_dry_run_takes_every_step(tmp_path):
    """Every name and shape is right; nothing is added to the results of the repository."""
    pytest.importorskip("transformers")
    stored = ROOT / "benchmarks" / "results" / "gpu.jsonl"
    before = stored.read_bytes() if stored.exists() else None
    command = ["make", "gpu", f"PYTHON={sys.executable}", "DRY=1", f"OUT={tmp_path}"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment, check=False)
    log = (tmp_path / "gpu.log").read_text() if (tmp_path / "gpu.log").exists() else ""
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{log[-3000:]}"
    records = [json.loads(line) for line in (tmp_path / "dry-run.jsonl").read_text().splitlines()]
    statuses = {record["step"]: record["status"] for record in records}
    assert statuses.pop("vllm") == "skipped"
    assert statuses == dict.fromkeys(("tests", "attention", "decode", "compiled", "training", "streaming"), "measured")
    methods = {row["method"] for record in records for row in record["rows"] if "median" in row}
    assert methods >= {"plain", "attend", "flash", "dense", "flex", "dynamic_yarn"}
    assert "9 cases: 8 measured, 1 skipped." in done.stdout
    assert (stored.read_bytes() if stored.exists() else None) == before


def test_every_line_that_make_real_measures_is_one_that_both_models_take(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "tools")
    real = importlib.import_module("real")
    for line in map(read_line, (*real.MAIN, *real.OTHERS)):
        line.build(trained_len=8192, target_len=32768, layers=30, key_heads=3)  # SmolLM2
        line.build(trained_len=32768, target_len=65536, layers=18, key_heads=1)  # Gemma 3


# How results are kept.

WORKER = """
import json, os, sys, time

def say(**event):
    print(json.dumps({"step": "decode", **event}), flush=True)

orders, hangs = json.loads(sys.stdin.read()), sys.argv[1] == "hangs"
cases = ["fine", "fails", "dies", "hangs", "after"]
say(cases=cases)
for case in cases:
    if case in orders["done"].get("decode", []):
        continue
    say(begun=case)
    if case == "dies":
        sys.exit("a kernel failed")
    if case == "hangs" and hangs:
        time.sleep(600)
    say(case=case, status="failed" if case == "fails" else "measured", why="", seconds=1.5, rows=[{"method": case}])
"""


@pytest.fixture
def gpu(monkeypatch):
    """The modules of the benchmarks, by name."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return lambda name: importlib.import_module(f"gpu.{name}")


@pytest.fixture
def call(gpu, monkeypatch, tmp_path):
    """Run the step `decode` by the worker above; the records of this call."""
    run, record, case = gpu("run"), gpu("record"), gpu("case")
    monkeypatch.setattr(run, "GRACE", 0.0)
    (tmp_path / "worker.py").write_text(WORKER)

    def calling(how, seconds, **options):
        results = record.Results(tmp_path / "results" / "gpu.jsonl", "GPU A", tmp_path / "out")
        before = len(results.path.read_text().splitlines()) if results.path.exists() else 0
        worker = (sys.executable, str(tmp_path / "worker.py"), how)
        complete = run.Run(results, case.Place("cuda", False), worker=worker, **options).steps(["decode"], seconds)
        lines = results.path.read_text().splitlines()
        assert (tmp_path / "out" / "gpu.jsonl").read_text().splitlines() == lines
        return complete, {one["case"]: one for one in map(json.loads, lines[before:])}

    return calling


@pytest.mark.nightly
def test_a_step_that_fails_dies_or_hangs_costs_only_itself(call):
    complete, records = call("hangs", 3)
    assert not complete
    assert {case: record["status"] for case, record in records.items()} == {
        "fine": "measured",
        "fails": "failed",
        "dies": "failed",
        "hangs": "out of time",
        "after": "out of time",
    }
    assert records["dies"]["why"] == "its process ended: a kernel failed (gpu.log)"
    assert records["hangs"]["why"].startswith("stopped after ")
    assert records["fine"]["rows"] == [{"method": "fine"}]
    assert records["fine"]["machine"].endswith("GPU A")
    assert records["fine"].keys() >= {"date", "command", "torch", "triton", "transformers", "commit", "sources"}


@pytest.mark.nightly
def test_a_second_call_goes_on_where_the_first_was_stopped(call):
    call("hangs", 3)
    complete, records = call("works", 60)
    assert list(records) == ["hangs", "after"]
    assert {record["status"] for record in records.values()} == {"measured"}
    assert complete
    _, records = call("works", 60, again=True)
    assert list(records) == ["fine", "fails", "dies", "hangs", "after"]


def test_figures_of_other_code_or_of_another_device_do_not_count(gpu, monkeypatch, tmp_path):
    record = gpu("record")
    results = record.Results(tmp_path / "gpu.jsonl", "GPU A")
    results.append("decode", "one", "measured", 1.0)
    assert results.final("decode") == {"one"}
    assert record.Results(tmp_path / "gpu.jsonl", "GPU B").final("decode") == set()
    monkeypatch.setattr(record, "sources", lambda: "other")
    assert record.Results(tmp_path / "gpu.jsonl", "GPU A").final("decode") == set()


def test_a_step_that_cannot_start_is_a_failure(call, tmp_path):
    (tmp_path / "worker.py").write_text("raise SystemExit('no such module')")
    complete, records = call("works", 60)
    assert not complete
    assert records["start"]["why"] == "its process ended: no such module (gpu.log)"


def test_without_git_there_is_no_commit(gpu, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gpu("record").Results(tmp_path / "gpu.jsonl", "GPU A").here["commit"] == ""


def test_goals_that_are_missed_are_marked(gpu, tmp_path):
    table, results = gpu("table"), gpu("record").Results(tmp_path / "gpu.jsonl", "GPU A")
    goal = gpu("case").goal
    rows = [
        {"method": "slow", "median": 1.2, **goal("median", 1.08)},
        {"method": "fast", "median": 1.05, **goal("median", 1.08)},
        {"method": "idle", "share": 0.5, **goal("share", 0.8, higher=True)},
        {"method": "broken", "why": "out of memory"},
    ]
    results.append("attention", "forward", "measured", 1.0, rows=rows)
    results.append("decode", "cached", "failed", 1.0, why="a reason")
    lines = table.table(results, ["attention", "decode"]).splitlines()
    of = {name: next(line for line in lines if name in line) for name in ("slow", "fast", "idle", "broken", "FAILED")}
    assert "MISSED" in of["slow"]
    assert "met" in of["fast"]
    assert "MISSED" in of["idle"]
    assert "not run" in of["broken"]
    assert "decode, cached: a reason" in lines
    assert lines[-1] == "Goals: 1 met, 2 missed."


def test_a_case_is_not_begun_without_time_for_it_and_a_dead_device_ends_the_process(gpu, monkeypatch):
    worker, case = gpu("worker"), gpu("case")
    reports = []

    def raising(left):
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    cases = [case.Case("long", 100, lambda left: []), case.Case("dies", 1, raising), case.Case("never", 1, raising)]
    monkeypatch.setattr(case.Step, "cases", lambda self, place: cases)
    monkeypatch.setattr(worker, "_reporter", lambda: lambda **event: reports.append(event))
    for name in ("cleared", "settled"):
        monkeypatch.setattr(gpu("timing"), name, lambda *place: None)
    assert worker.work(["decode"], {}, case.Place("cuda", False), 10) == worker.BROKEN
    results = {event["case"]: event["status"] for event in reports if "case" in event}
    assert results == {"long": "out of time", "dies": "failed"}


def test_errors_that_leave_no_usable_device_are_told_from_others(gpu):
    is_fatal = gpu("timing").is_fatal
    assert is_fatal(RuntimeError("Triton Error [CUDA]: an illegal memory access was encountered"))
    assert is_fatal(RuntimeError("CUDA error: device-side assert triggered"))
    assert not is_fatal(torch.OutOfMemoryError("CUDA error: out of memory"))
    assert not is_fatal(RuntimeError("out of resource: shared memory, Required: 262144, Hardware limit: 232448"))


def test_an_older_torch_compiles_flex_attention_with_the_same_limits(gpu, monkeypatch):
    flex = importlib.import_module("ropewalk.attention.backends.flex")
    config = importlib.import_module("torch._dynamo").config
    monkeypatch.setattr(flex, "compile_call", flex.compile_call)
    monkeypatch.setattr(
        torch, "compile", lambda model=None, *, fullgraph=False, dynamic=None: (model, fullgraph, dynamic)
    )
    with config.patch(recompile_limit=8, fail_on_recompile_limit_hit=False):  # torch's own, which it takes back
        gpu("older_torch").adapt()
        assert flex.compile_call() == (flex.require_compiling, True, True)
        assert config.recompile_limit == flex.KINDS
        assert config.fail_on_recompile_limit_hit


INTERRUPTED = """
import os, signal, time
import pytest

def test_right(): pass
def test_wrong(): assert 1 == 2
def test_elsewhere(): pytest.skip("no such device")
def test_endless():
    os.kill(os.getppid(), signal.SIGINT)
    time.sleep(60)
"""


@pytest.mark.nightly
def test_outcomes_of_tests_that_are_interrupted_are_kept(gpu, tmp_path):
    """A process of pytest that is interrupted writes no report where others run the tests."""
    (tmp_path / "test_some.py").write_text(INTERRUPTED)
    outcomes = tmp_path / "outcomes.jsonl"
    environment = {**os.environ, gpu("kept_outcomes").FILE: str(outcomes), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "pytest", "test_some.py", "-n", "1", "-p", "benchmarks.gpu.kept_outcomes"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stdout  # interrupted
    row = gpu("tests").counted("some", outcomes)
    assert (row["passed"], row["failed"], row["skipped"]) == (1, 1, 1)
    assert row["failures"] == ["test_wrong: assert 1 == 2"]
    assert row["reasons"] == {"assert 1 == 2": 1}


BREAKS = """
import os, pytest
from benchmarks.gpu import kept_outcomes
broken = False
kept_outcomes.cuda_is_broken = lambda: broken

def test_breaks_the_device():
    global broken
    broken = True
    raise RuntimeError("an illegal memory access")

@pytest.mark.parametrize("after", range(3))
def test_of_something_else(after):
    assert not broken
"""


@pytest.mark.nightly
def test_a_test_that_breaks_the_device_fails_alone(gpu, tmp_path):
    """CUDA stays broken for the whole process: the tests after it need another."""
    (tmp_path / "test_some.py").write_text(BREAKS)
    outcomes = tmp_path / "outcomes.jsonl"
    environment = {**os.environ, gpu("kept_outcomes").FILE: str(outcomes), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "pytest", "test_some.py", "-n", "1", "-p", "benchmarks.gpu.kept_outcomes"]
    subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    row = gpu("tests").counted("some", outcomes)
    assert (row["passed"], row["failed"]) == (3, 1)
    assert row["failures"] == ["test_breaks_the_device: RuntimeError: an illegal memory access"]
