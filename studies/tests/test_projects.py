"""Every claim is judged over projects: texts of one project are alike."""

from pathlib import Path

import pytest

from studies.models_table import table_in
from studies.tuned import claims as tuned
from studies.zoo.claims import verdicts as zoo_verdicts

RESULTS = Path(__file__).parents[1] / "results"
ALIKE = {
    "window-flat",
    "nope-window-flat",
    "window-reach",
    "qk-bias-term-falls",
    "streaming-no-far",
}  # their figures are the same for every text
OVER_METHODS = {"reruns-differ"}


@pytest.mark.parametrize(
    ("study", "verdicts"),
    [("zoo", zoo_verdicts), ("tuned-zoo", tuned.verdicts)],
    ids=["zoo", "tuned"],
)
def test_verdicts_are_over_projects(study, verdicts):
    """With one project for each text the intervals are those over texts; with pairs of texts they are others."""
    results = table_in(RESULTS / study)
    count = len(results["projects"])
    single, pairs = ([f"project {n // size}" for n in range(count)] for size in (1, 2))
    by_text, by_pair = (verdicts({**results, "projects": projects}) for projects in (single, pairs))
    judged = [(one, other) for one, other in zip(by_text, by_pair, strict=True) if one.above]
    assert len(judged) > 10
    for one, other in judged:
        assert [sum_.value for sum_ in one.above] == pytest.approx([sum_.value for sum_ in other.above])
        if one.claim.name not in ALIKE | OVER_METHODS:
            assert [sum_.low for sum_ in one.above] != [sum_.low for sum_ in other.above], one.claim.name
