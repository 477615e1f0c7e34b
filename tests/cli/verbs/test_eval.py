"""`ropewalk eval`, as it is called."""

import json

import pytest

from ropewalk.cli.main import run
from ropewalk.lab.small_models import ModelShape, fresh

from lab.texts import text, tokenizer

TASK = """
dataset_path: json
dataset_kwargs: {{data_files: {{test: {place}/own.jsonl}}, cache_dir: {place}/cache}}
test_split: test
task: own
output_type: generate_until
doc_to_text: "{{{{question}}}}"
doc_to_target: "x"
generation_kwargs: {{until: [], max_gen_toks: 8, do_sample: false}}
metric_list: [{{metric: exact_match}}]
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    path = tmp_path_factory.mktemp("eval")
    fresh(ModelShape(vocabulary=300, width=32, inner=64, layers=2, heads=2, trained_len=128)).save_pretrained(
        path / "model"
    )
    tokenizer().save_pretrained(path / "model")
    (path / "own.jsonl").write_text("".join(json.dumps({"question": text(n, words=30)}) + "\n" for n in range(3)))
    (path / "own.yaml").write_text(TASK.format(place=path))
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
