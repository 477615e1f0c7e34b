"""Claims about reading without training, from made-up results of `ropewalk compare`."""

from collections import defaultdict

import pytest

from ropewalk.measure.metrics.intervals import crossed_mean

from studies import untrained as module
from studies.catalog import REAL

SMOLLM2 = REAL / "SmolLM2-135M-Instruct.json.gz"
WITH_LOG_N = (*module.WITH_LOG_N, *(f"{line}+log_n" for line in module.WITH_LOG_N))
CLAIMS = list(module.claims_at(8, [*module.STATIC, *WITH_LOG_N]))
LINES = {term.line for claim in CLAIMS for terms in claim.sums for term in terms}
LENGTHS = module.TIMES
AT = [(line, times, what) for line in LINES for times in LENGTHS for what in (module.LOSS, module.LARGEST)]


def verdicts(figure, projects="abcde"):
    """Of five texts that differ a little; `figure` is a function of line, trained lengths and kind."""
    candidates = [
        {
            "line": "bare" if line == module.BASE else line,
            "rows": [
                {"task": "passkey", "length": 512, "samples": []},
                *(
                    {
                        "task": "context",
                        "length": 512 * times,
                        "samples": [{"loss": figure(line, times, module.LOSS) + 0.001 * text} for text in range(5)],
                    }
                    for times in LENGTHS
                ),
            ],
        }
        for line in LINES
    ]
    largest = {
        line: {str(times): [figure(line, times, module.LARGEST)] * 5 for times in module.TIMES} for line in LINES
    }
    figures = module.figures_of({"trained_len": 512, "candidates": candidates}, largest)
    kept = {module.FIGURES: figures, "projects": projects}
    return {one.claim.name: one for one in module.verdicts(kept)}


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.name)
def test_a_claim_can_hold_and_can_fail(claim):
    weights = defaultdict(float)
    for term in (term for terms in claim.sums for term in terms):
        weights[term.line, term.times, term.what] += term.weight
    best, worst = (verdicts(lambda *at, sign=sign: 9 + sign * (2 * weights[at] + 0.1 * at[1])) for sign in (1, -1))
    assert (best[claim.name].word, worst[claim.name].word) == ("agrees", "disagrees at this size")


def test_texts_of_a_project_are_drawn_together():
    figure = lambda line, times, what: {"rope": 3.0, "pi": 2.0}.get(line, 1.0)  # noqa: E731
    claim = next(one for one in CLAIMS if one.name == "lm-infinite-flat")
    curves = [verdicts(figure, projects)[claim.name].curves["rope"][0][1] for projects in ("abcde", "aabcd")]
    assert curves[0] == pytest.approx(crossed_mean([[3.0, 3.001, 3.002, 3.003, 3.004]]))
    assert curves[1] == pytest.approx(crossed_mean([[3.0, 3.001, 3.002, 3.003, 3.004]], groups="aabcd"))
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
    assert kept == {"loss": {"rope": {"2": [2.5]}}, module.LAST_HALF: {}, "largest logit": {"rope": {"4": [30.0]}}}
    results["candidates"][0]["rows"][0]["samples"][0]["curve"] = [9.0, 9.0, 1.0, 2.0]
    assert module.figures_of(results, {})[module.LAST_HALF] == {"rope": {"2": [1.5]}}


def halves(ntk, pi):
    """NTK is better at the end of each text; over the last half as it is said."""
    losses = {"ntk": 2.0, "pi": 2.5}
    readings = {
        module.LOSS: {line: {"8": [loss] * 5} for line, loss in losses.items()},
        module.LAST_HALF: {"ntk": {"8": [ntk] * 5}, "pi": {"8": [pi] * 5}},
    }
    kept = {module.FIGURES: readings, "projects": "abcde"}
    return {one.claim.name: one for one in module.verdicts(kept)}["ntk-untrained"]


def test_losses_are_judged_over_the_last_half_of_the_texts_too():
    assert halves(2.0, 2.5).last_half.verdict == halves(2.0, 2.5).verdict == "agrees (one model)"
    assert halves(2.5, 2.0).last_half.word == "disagrees at this size"
    assert halves(2.5, 2.0).record["last half"] == "disagrees at this size"


def test_other_text_is_not_compared_with_the_last_half():
    """At the trained length and beyond it; and of logits there is no such loss."""
    ours = module.Readings({module.LOSS: {}, module.LAST_HALF: {}}, "abcde")
    for name in ("streaming-flat", "static-harm", "logits-grow"):
        assert module.over_last_half(next(one for one in CLAIMS if one.name == name), ours) is None


def test_curves_are_by_length():
    curves = verdicts(lambda line, times, what: 2.0 + times / 10)["pi-over-none"].curves
    assert list(curves) == ["rope", "pi"]
    assert [(times, round(one.value, 3)) for times, one in curves["pi"]] == [
        (1, 2.102),
        (2, 2.202),
        (4, 2.402),
        (8, 2.802),
    ]


def test_a_model_that_was_read_under_fewer_lines_has_fewer_claims():
    """SmolLM2's results have no PI and no NTK: what needs them is left out, and what names lines names those it has."""
    claims = {one.claim.name: one.claim for one in module.verdicts(module.of_results(SMOLLM2))}
    assert set(claims) == {"rope-fails", "static-harm", "streaming-flat"}
    assert "YaRN by more than 0.02" in claims["static-harm"].text
    assert "at 4x" in claims["streaming-flat"].text


def test_a_real_model_is_judged_by_the_figures_of_its_page():
    """README.md of the real models: yarn is 0.103 above the last 8k alone at 32k, and streaming 0.001 below it."""
    kept = module.of_results(SMOLLM2)
    ours = module.Readings(kept[module.FIGURES], kept["projects"])
    page = (SMOLLM2.parent / "README.md").read_text()
    for line in ("yarn", "streaming"):
        one = ours.sum([module.Reading(1, line, 4), module.Reading(-1, module.BASE, 1)])
        assert f"{one.value:+.3f} [{one.low:+.3f}, {one.high:+.3f}]" in next(
            row for row in page.splitlines() if row.startswith(f"| `{line}` |")
        )
