"""The frame itself: a difference is seen, and a process that fails says why."""

import json

import pytest
import torch

from real_engines import models
from real_engines.process import ask
from real_engines.reading import CHUNK, read_and_write
from real_engines.real import OwnAnswer
from real_engines.record import Difference, Record, difference


def test_a_difference_is_told_inside_and_beyond():
    ours = torch.zeros(4, 3)
    theirs = ours.clone()
    theirs[1, 2], theirs[3, 0] = 0.25, -0.5
    assert difference(ours, theirs, 2) == (0.25, 0.5)
    assert difference(ours[:2], theirs[:2], 2) == (0.25, 0.0)
    at = torch.tensor([[0], [2], [0], [0]])
    assert difference(ours, theirs.gather(-1, at), 2, at) == (0.25, 0.5)


def test_numbers_that_are_none_are_seen():
    with pytest.raises(AssertionError, match="numbers that are none"):
        difference(torch.zeros(2, 2), torch.full((2, 2), torch.nan), 1)


def test_a_process_that_fails_says_why(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("raise SystemExit('no such model')")
    with pytest.raises(AssertionError, match="no such model"):
        ask("llama.cpp", script, {}, tmp_path)


def test_a_record_is_read_back(tmp_path):
    record = Record("llama.cpp", "b1")
    record.ran(
        "llama", "yarn:factor=8", "float32", difference(torch.zeros(2, 1), torch.full((2, 1), 1.234e-3), 1), 5e-3
    )
    record.refused("phi", "pi:factor=4", "a reason.")
    record.write(tmp_path)
    first, second = json.loads((tmp_path / "llama_cpp.json").read_text())["rows"]
    assert (first["inside"], first["beyond"]) == (1.2e-3, 1.2e-3)
    assert second["refused"] == "a reason."


def test_a_record_keeps_what_was_not_run_again_and_nothing_above_its_bound(tmp_path):
    first, again = Record("vllm", "1"), Record("vllm", "2")
    for record, gap, methods in ((first, 1e-3, "ab"), (again, 1e-4, "b"), (again, 6e-3, "c")):
        for method in methods:
            record.ran("llama", method, "float32", Difference(gap, gap), bound=5e-3)
    first.refused("llama", "b", "it is refused no more")
    first.write(tmp_path)
    again.write(tmp_path)
    written = json.loads((tmp_path / "vllm.json").read_text())
    assert written["version"] == "2"
    assert {row["method"]: row["inside"] for row in written["rows"]} == {"a": 1e-3, "b": 1e-4}


def test_a_text_is_read_in_pieces_and_written_on():
    """A model whose next token depends on the last one alone."""
    table = torch.randn(9, 9, generator=torch.Generator().manual_seed(0))
    ids, begun = [n % 9 for n in range(2 * CHUNK + 3)], []

    def step(part, start):
        begun.append(start)
        return table[part].numpy()

    said, chosen, among = read_and_write(step, ids, 3)
    expected, last = table.log_softmax(-1), ids[-1]
    assert said == pytest.approx(expected[ids[:-1], ids[1:]].numpy(), abs=1e-6)
    for token, row in zip(chosen, among, strict=True):
        assert row == pytest.approx(expected[last].numpy(), abs=1e-6)
        last = int(expected[last].argmax())
        assert token == last
    assert begun == [0, CHUNK, 2 * CHUNK, len(ids), len(ids) + 1]


def test_the_first_other_token_is_named():
    among = torch.tensor([[0.0, -1.0, -2.0], [-0.5, -0.51, -3.0]]).numpy()
    ours = OwnAnswer(among[0], [0, 0], among)
    assert ours.greedy([0, 0]) == "2 equal"
    assert ours.greedy([0, 1]) == "1 equal, then a near tie: 1.0e-02 apart"
    assert ours.greedy([2, 0]) == "0 equal, then another: 2.0e+00 apart"


def test_prompts_and_models_are_the_same_every_time():
    assert models.random_prompt(9) == models.random_prompt(9)
    assert len(models.prompt()) == models.LONGEST
    ids = models.random_prompt(40)
    first, second = (models.log_probabilities(models.small("qwen3"), ids) for _ in range(2))
    torch.testing.assert_close(first, second, rtol=0, atol=0)
