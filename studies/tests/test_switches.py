"""The claim about the loss at a switch to longer rows, from made-up logs."""

import json

import pytest

from studies import switches as module


def logged(folder, name, loss, every=10):
    """A log of 1,000 steps; `loss` is a function of the step."""
    place = folder / "models" / name
    place.mkdir(parents=True)
    rows = [{"step": step, "loss": loss(step), "grad_norm": 1.0} for step in range(every, 1000 + every, every)]
    (place / "losses.json").write_text(json.dumps({"rows": rows}))


def collected(folder, falls, slope=0.001):
    """Two trainings for each seed, after 40 and 80 % of the steps; each falls by one of `falls` there, and all of them
    fall steadily besides."""
    for seed, fall in enumerate(falls):
        for share in (40, 80):
            loss = lambda step, at=10 * share, fall=fall: 5 - slope * step - fall * (step > at)  # noqa: E731
            logged(folder, f"longer_from_{share}-{seed}", loss)
    logged(folder, "longer_from_0-0", lambda step: 9.0)  # it has no switch
    return module.collect(folder)


def test_a_steady_fall_is_no_fall_at_a_switch(tmp_path):
    kept = collected(tmp_path, (0.0, 0.0, 0.0))
    assert len(kept[module.TRAININGS]) == 6
    assert module.fall(kept[module.TRAININGS][0], 0.4) == pytest.approx(0.05)
    assert module.falls(kept[module.TRAININGS]) == pytest.approx([0, 0, 0], abs=1e-4)
    assert module.verdicts(kept)[0].word == "undecided"


def test_the_fall_is_that_at_the_switches_by_seed(tmp_path):
    kept = collected(tmp_path, (0.1, 0.2, 0.3))
    assert module.falls(kept[module.TRAININGS]) == pytest.approx([0.1, 0.2, 0.3], abs=1e-4)
    (judged,) = module.verdicts(kept)
    assert judged.above[0].value == pytest.approx(0.2, abs=1e-4)
    assert judged.above[0].of == 3
    (with_one, without) = (dict(points) for points in judged.curves.values())
    assert list(with_one) == list(without) == [-9, -7, -5, -3, -1, 1, 3, 5, 7, 9]
    # Both fall steadily, by 0.02 a point; the switching ones by 0.2 more, as the mean over seeds.
    gaps = [with_one[place].value - without[place].value for place in with_one]
    assert gaps[:5] == pytest.approx([gaps[0]] * 5, abs=1e-3)
    assert [gap - gaps[0] for gap in gaps[5:]] == pytest.approx([-0.2] * 5, abs=1e-3)


def test_only_the_steps_near_it_count(tmp_path):
    """Five hundredths of the steps on either side, as many logs on each."""
    losses = {350: 100.0, 360: 4.0, 450: 1.0, 460: 100.0}
    logged(tmp_path, "longer_from_40-0", lambda step: losses.get(step, 2.0))
    (training,) = module.collect(tmp_path)[module.TRAININGS]
    assert module.fall(training, 0.4) == pytest.approx((4 + 4 * 2) / 5 - (1 + 4 * 2) / 5)


@pytest.mark.parametrize(
    ("falls", "word"),
    [
        ((0.10, 0.11, 0.12), "agrees"),
        ((-0.10, -0.11, -0.12), "disagrees at this size"),
        ((-0.3, 0.1, 0.4), "undecided"),
        ((0.1,), "a single seed"),
    ],
)
def test_the_verdict(tmp_path, falls, word):
    (judged,) = module.verdicts(collected(tmp_path, falls))
    assert (judged.reason or judged.word) == word


def test_a_training_without_another_to_compare_with_is_not_judged(tmp_path):
    for seed in range(3):
        logged(tmp_path, f"longer_from_40-{seed}", lambda step: 2.0)
    assert module.verdicts(module.collect(tmp_path))[0].reason == "not measured"


def test_logs_that_are_too_coarse_are_refused(tmp_path):
    logged(tmp_path, "longer_from_40-0", lambda step: 2.0, every=100)
    (training,) = module.collect(tmp_path)[module.TRAININGS]
    with pytest.raises(SystemExit, match="log the loss more often: --set log_every=3"):
        module.fall(training, 0.45)


def test_a_folder_without_logs_is_refused(tmp_path):
    with pytest.raises(SystemExit, match="has no log of a training whose rows become longer"):
        module.collect(tmp_path)
