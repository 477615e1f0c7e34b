"""`ropewalk eval`, as it is called."""

import json

import pytest
from cli.eval_task import write_task
from measured_folder import small_folder

from ropewalk.cli.main import run

from train.texts import text


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    path = small_folder(tmp_path_factory.mktemp("eval"), trained_len=128)
    write_task(path, [text(n, words=30) for n in range(3)])
    return path


def evaluate(place, *more):
    return run(["eval", str(place / "model"), "yarn:factor=4", "--include-path", str(place), *more])


def test_a_table_and_everything_as_json(place, tmp_path, capsys):
    pytest.importorskip("lm_eval", reason="the extra eval is not installed")
    given = ["--tasks", "own", "--to", "256", "--limit", "2", "--device", "cpu", "-o", str(tmp_path)]
    assert evaluate(place, *given) == 0
    said = capsys.readouterr().out
    results = json.loads((tmp_path / "results.json").read_text())
    assert [each["samples"] for each in results["scores"]] == [2]
    assert results["line"] == "yarn:factor=4"
    assert (results["longest"], results["lengths"], results["limit"]) == (256, [256], 2)
    assert results["extension"]["frequencies"]["name"] == "by_parts"
    row = next(line.split() for line in said.splitlines() if line.startswith("own"))
    assert row[:3] == ["own", "exact_match", f"{results['scores'][0]['value']:.4f}"]
    assert row[-1] == str(results["tasks"]["own"]["longest_request"])


def test_what_does_not_fit_is_left_out_and_answers_are_shortened(place, tmp_path, capsys):
    pytest.importorskip("lm_eval", reason="the extra eval is not installed")

    def measured(*more):
        assert evaluate(place, "--tasks", "own", "--device", "cpu", *more, "-o", str(tmp_path)) == 0
        results = json.loads((tmp_path / "results.json").read_text())
        return results["tasks"]["own"], results["scores"][0]["samples"]

    whole, samples = measured("--to", "256")
    assert (samples, "left_out" in whole) == (3, False)
    shorter, _ = measured("--to", "256", "--answer", "2")
    assert shorter["longest_request"] < whole["longest_request"]
    capsys.readouterr()
    part, samples = measured("--to", str(whole["longest_request"] - 1), "--fitting")
    assert part["left_out"] + samples == 3
    assert 1 <= samples < 3
    row = next(line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("own"))
    assert row[-3:] == [str(samples), str(part["left_out"]), str(part["longest_request"])]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([], "--tasks must be names of tasks, got ''"),
        (["--tasks", "own", "--to", "many"], "--to must be"),
        (["--tasks", "own", "--lengths", "1,b"], "--lengths must be"),
        (["--tasks", "own", "--limit", "-1"], "--limit"),
        (["--tasks", "own", "--to", "40"], "--to must be at least"),
    ],
)
def test_errors_are_one_line(place, tmp_path, capsys, given, words):
    pytest.importorskip("lm_eval", reason="the extra eval is not installed")
    assert evaluate(place, *given, "-o", str(tmp_path / "out")) == 2
    said = capsys.readouterr()
    assert words in said.err
    assert [line for line in said.err.splitlines() if line.startswith("ropewalk")] == [said.err.splitlines()[-1]]
    assert said.out == ""
    assert not (tmp_path / "out").exists()
