"""Claims about reading without training, from made-up results of `ropewalk compare`."""

import json
from collections import defaultdict

import pytest

from ropewalk.measure.metrics.intervals import crossed_mean

from studies import untrained as module

CLAIMS = (*module.CLAIMS, *module.FAR_CLAIMS)
LINES = {term.line for claim in CLAIMS for terms in claim.sums for term in terms}
LENGTHS = (*module.TIMES, module.FARTHEST)
AT = [(line, times, what) for line in LINES for times in LENGTHS for what in (module.LOSS, module.LARGEST)]


def verdicts(figure, projects=("a", "b", "c")):
    """Of three texts that differ a little; `figure` is a function of line, trained lengths and kind."""
    candidates = [
        {
            "line": "bare" if line == module.BASE else line,
            "rows": [
                {"task": "passkey", "length": 512, "samples": []},
                *(
                    {
                        "task": "context",
                        "length": 512 * times,
                        "samples": [{"loss": figure(line, times, module.LOSS) + 0.001 * text} for text in range(3)],
                    }
                    for times in LENGTHS
                ),
            ],
        }
        for line in LINES
    ]
    largest = {
        line: {str(times): [figure(line, times, module.LARGEST)] * 3 for times in module.TIMES} for line in LINES
    }
    figures = module.figures_of({"trained_len": 512, "candidates": candidates}, largest)
    kept = {module.FIGURES: figures, "projects": projects}
    return {one.claim.name: one for one in module.verdicts({**kept, module.FAR: kept})}


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.name)
def test_a_claim_can_hold_and_can_fail(claim):
    weights = defaultdict(float)
    for term in (term for terms in claim.sums for term in terms):
        weights[term.line, term.times, term.what] += term.weight
    best, worst = (verdicts(lambda *at, sign=sign: 9 + sign * (weights[at] + 0.1 * at[1])) for sign in (1, -1))
    assert (best[claim.name].word, worst[claim.name].word) == ("reproduced", "not reproduced")


def test_texts_of_a_project_are_drawn_together():
    figure = lambda line, times, what: {"rope": 3.0, "pi": 2.0}.get(line, 1.0)  # noqa: E731
    claim = next(one for one in module.CLAIMS if one.name == "lm-infinite-flat")
    curves = [verdicts(figure, projects)[claim.name].curves["rope"][0][1] for projects in ("abc", "aab")]
    assert curves[0] == pytest.approx(crossed_mean([[3.0, 3.001, 3.002]]))
    assert curves[1] == pytest.approx(crossed_mean([[3.0, 3.001, 3.002]], groups="aab"))
    assert curves[1].low < curves[0].low


def test_figures_are_of_the_lines_and_lengths_that_a_claim_names():
    figures = {at: 2 + 0.1 * n for n, at in enumerate(sorted(AT))}
    found = verdicts(lambda *at: figures[at])
    for claim in CLAIMS:
        above = [sum(t.weight * figures[t.line, t.times, t.what] for t in terms) - claim.bound for terms in claim.sums]
        assert [one.value for one in found[claim.name].above] == pytest.approx(above)


def test_every_figure_is_kept():
    results = {
        "trained_len": 512,
        "candidates": [{"line": "bare", "rows": [{"task": "context", "length": 1024, "samples": [{"loss": 2.5}]}]}],
    }
    kept = module.figures_of(results, {"rope": {"4": [30.0]}})
    assert kept == {"loss": {"rope": {"2": [2.5]}}, "largest logit": {"rope": {"4": [30.0]}}}


def test_curves_are_by_length():
    curves = verdicts(lambda line, times, what: 2.0 + times / 10)["pi-over-none"].curves
    assert list(curves) == ["rope", "pi"]
    assert [(times, round(one.value, 3)) for times, one in curves["pi"]] == [
        (1, 2.101),
        (2, 2.201),
        (4, 2.401),
        (8, 2.801),
        (16, 3.601),
    ]


def test_figures_at_16_trained_lengths_are_of_their_own_texts(tmp_path, monkeypatch):
    """They are added to what is stored; a new measurement of the other lengths keeps them."""
    near = module.figures_of({"trained_len": 512, "candidates": []}, {})
    stored = {"made": {}, "marks": {}, "projects": ["a"], "command": "ropewalk compare", module.FIGURES: near}
    monkeypatch.setattr(module, "PLACE", tmp_path / "untrained.json")
    module.PLACE.write_text(json.dumps(stored))
    rows = [{"task": "context", "length": 8192, "samples": [{"loss": 2.5}]}]
    results = {
        "made": {"when": "now"},
        "marks": {"corpus": "python"},
        "projects": ["b"],
        "command": "ropewalk compare --out /tmp/x",
        "trained_len": 512,
        "candidates": [{"line": "long_reach", "rows": rows}],
    }
    (tmp_path / "results.json").write_text(json.dumps(results))
    kept = module.collect_far(tmp_path)
    assert {name: kept[name] for name in stored} == stored
    assert kept[module.FAR]["command"] == "ropewalk compare --out FOLDER"
    assert kept[module.FAR][module.FIGURES][module.LOSS] == {"long_reach": {"16": [2.5]}}
    module.PLACE.write_text(json.dumps(kept))
    monkeypatch.setattr(module, "largest_logits", lambda _: {})
    assert module.collect(tmp_path)[module.FAR] == kept[module.FAR]


def test_without_the_farthest_length_the_others_are_judged():
    near = module.figures_of({"trained_len": 512, "candidates": []}, {})
    figures = {what: {line: {str(t): [1.0] * 3 for t in LENGTHS} for line in LINES} for what in near}
    kept = {module.FIGURES: figures, "projects": "abc"}
    assert [one.claim for one in module.verdicts(kept)] == list(module.CLAIMS)
