"""The claim about the loss at a switch to longer rows, from made-up logs."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "docs"))
import switch_claims as module


def logged(folder, name, loss):
    """A log of 1,000 steps, every 10; `loss` is a function of the step."""
    place = folder / "models" / name
    place.mkdir(parents=True)
    rows = [{"step": step, "loss": loss(step), "grad_norm": 1.0} for step in range(10, 1010, 10)]
    (place / "losses.json").write_text(json.dumps({"rows": rows}))


def collected(folder, drops):
    """Three trainings, which switch after 200, 400 and 800 steps; each falls by one of `drops` there."""
    for number, (share, fall) in enumerate(zip((20, 40, 80), drops, strict=True)):
        logged(folder, f"longer_from_{share}-{number}", lambda step, at=10 * share, fall=fall: 3 - fall * (step > at))
    logged(folder, "longer_from_0-0", lambda step: 9.0)  # it has no switch
    return module.collect(folder)


def test_the_drop_is_that_at_the_switch(tmp_path):
    kept = collected(tmp_path, (0.1, 0.2, 0.3))
    assert [(one["method"], one["seed"]) for one in kept[module.TRAININGS]] == [
        ("longer_from_20", 0), ("longer_from_40", 1), ("longer_from_80", 2),
    ]  # fmt: skip
    assert [module.drop(one) for one in kept[module.TRAININGS]] == pytest.approx([0.1, 0.2, 0.3])
    (judged,) = module.verdicts(kept)
    assert judged.above[0].value == pytest.approx(0.2)
    assert list(judged.curves) == ["longer_from_20, seed 0", "longer_from_40, seed 1", "longer_from_80, seed 2"]


def test_only_the_steps_near_it_count(tmp_path):
    """Five hundredths of the steps on either side."""
    logged(tmp_path, "longer_from_40-0", lambda step: {350: 100.0, 360: 4.0, 450: 1.0, 460: 100.0}.get(step, 2.0))
    (training,) = module.collect(tmp_path)[module.TRAININGS]
    assert module.drop(training) == pytest.approx((4 + 4 * 2) / 5 - (1 + 4 * 2) / 5)


@pytest.mark.parametrize(
    ("drops", "word"),
    [
        ((0.10, 0.11, 0.12), "reproduced"),
        ((-0.10, -0.11, -0.12), "not reproduced"),
        ((-0.3, 0.1, 0.4), "not settled"),
    ],
)
def test_the_verdict(tmp_path, drops, word):
    assert module.verdicts(collected(tmp_path, drops))[0].word == word


def test_a_folder_without_logs_is_refused(tmp_path):
    with pytest.raises(SystemExit, match="has no log of a training whose rows become longer"):
        module.collect(tmp_path)
