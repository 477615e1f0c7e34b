"""Pages of the claims: what they say is what the records say."""

import json
import re
from pathlib import Path

import pytest
from PIL import Image

from ropewalk.measure.comparison.predictors import predictions_in
from ropewalk.measure.metrics.intervals import Estimate

from studies import computed, contexts, generation, kv_heads, order, pages, restricted, switches, thresholds, untrained
from studies.claims import NATS, POINTS, Claim, JudgedClaim, in_words, judged
from studies.tuned.claims import CLAIMS as TUNED, FAR_CLAIMS, STABLE, verdicts as of_tuned
from studies.zoo.claims import CLAIMS as ZOO, verdicts as of_zoo
from studies.zoo.figures import AccuracyTerm
from studies.zoo.inside.entropy_claims import CLAIMS as ENTROPIES
from studies.zoo.inside.logit_claims import CLAIMS as LOGITS

RESULTS = Path(pages.__file__).parent / "results"
SAID = ("name", "claim", "source", "theirs", "note", "verdict", "sums", "bound", "intervals")


def records():
    pair = (AccuracyTerm(-0.25, "old", 2, "repeated"), AccuracyTerm(1, "new", 8))
    held = Claim("held", "It holds.", "a source", (pair, ("new at 8x",)), -0.01, "48 %")
    above = [Estimate(0.03, 0.02, 0.04, 9), Estimate(0.5, 0.1, 0.9, 9)]
    curves = {"new": [(1, Estimate(0.4, 0.3, 0.5, 9)), (8, Estimate(0.45, 0.35, 0.55, 9))]}
    axes = ("length", "accuracy, percent")
    lost = Claim("lost", "Not measured yet.", "another", (("new",),))
    return [
        JudgedClaim(claim=held, word="reproduced", unit=POINTS, above=above, axes=axes, curves=curves).record,
        JudgedClaim(claim=lost, word="not measured", unit=NATS).record,
    ]


@pytest.fixture
def results(tmp_path):
    (tmp_path / "zoo").mkdir()
    (tmp_path / "zoo" / "zoo.json").write_text(json.dumps({"claims": records()}))
    (tmp_path / "README.md").write_text("# Results\n\n<!-- generated: claims -->\nold\n<!-- end -->\n\nMore.\n")
    return tmp_path


def test_the_summary_has_every_claim(results):
    page = pages.results_page(results)
    without = len(pages.UNMEASURED)
    assert page.startswith(
        "# Results\n\n<!-- generated: claims -->\n2 claims: 1 not measured, 1 reproduced. "
        f"At the end are {without} without a verdict.\n\n### From"
    )
    assert page.count("\n| ") == 2 + len(records()) + without  # two heads
    assert (
        "### From small models, trained on 64 tokens\n\n`python -m studies zoo --out studies/results/zoo`\n\n| claim |"
        in page
    )
    assert page.endswith("<!-- end -->\n\nMore.\n")
    held = "| [It holds.](claims/zoo-held.md) | a source | 48 % | -1 | +3.0 [+2.0, +4.0]; +50.0 [+10.0, +90.0] points |"
    assert f"{held} reproduced |" in page
    assert "| [Not measured yet.](claims/zoo-lost.md) | another |  |  |  | not measured |" in page
    assert "old\n" not in page


def test_a_page_has_the_figures_and_the_command(results):
    every = {path.name: text for path, text in pages.claim_pages(results).items()}
    held = every["zoo-held.md"]
    assert "Verdict: **reproduced**" in held
    assert "Each of these must be above -1 points:" in held
    assert "| new at 8x, minus 0.25 times old at 2x of repeated text | +3.0 [+2.0, +4.0] |" in held
    assert "| new | 40.0 [30.0, 50.0] | 45.0 [35.0, 55.0] |" in held
    assert "`python -m studies zoo --out studies/results/zoo`" in held
    assert "](zoo-held.png)" in held
    assert "png" not in every["zoo-lost.md"]


def test_a_picture_for_each_claim_with_figures(results):
    pages.draw_claims(results)
    assert [path.name for path in (results / "claims").iterdir()] == ["zoo-held.png"]
    with Image.open(results / "claims" / "zoo-held.png") as picture:
        assert picture.width > 400


def test_a_study_without_records_has_no_page(tmp_path):
    assert not list(pages.claims(tmp_path))
    assert pages.claim_pages(tmp_path) == {}


@pytest.mark.parametrize("of_study", [(*ZOO, *LOGITS, *ENTROPIES), TUNED, (*FAR_CLAIMS, STABLE)])
def test_the_names_of_pages_are_unique(of_study):
    assert len({claim.name for claim in of_study}) == len(of_study)


@pytest.mark.parametrize(
    "claim", [*ZOO, *LOGITS, *ENTROPIES, *TUNED, *FAR_CLAIMS, STABLE], ids=lambda claim: claim.name
)
def test_what_is_compared_is_in_words(claim):
    for terms in claim.sums:
        words = in_words(terms)
        assert "Term(" not in words
        assert words.count("minus ") == sum(term.weight < 0 for term in terms)
        assert words.count(" times ") == sum(abs(term.weight) != 1 for term in terms)


@pytest.mark.parametrize(
    ("intervals", "word"),
    [
        ([(0.2, 0.3), (0.11, 0.4)], "reproduced"),
        ([(0.2, 0.3), (0.05, 0.4)], "not settled"),
        ([(0.05, 0.4), (-0.3, 0.09)], "not reproduced"),
    ],
)
def test_a_verdict_needs_every_sum(intervals, word):
    assert judged([Estimate((low + high) / 2, low, high, 3) for low, high in intervals], 0.1) == word


def published(name):
    return json.loads((RESULTS / name).read_text())


def said(records):
    return [{part: record[part] for part in SAID} for record in records]


@pytest.mark.parametrize(
    ("name", "verdicts"),
    [
        ("zoo/zoo.json", of_zoo),
        ("tuned-zoo/tuned.json", of_tuned),
        ("tuned-default/tuned.json", of_tuned),
        ("tuned-far/tuned.json", of_tuned),
        ("untrained/untrained.json", untrained.verdicts),
        ("contexts/contexts.json", contexts.verdicts),
        ("order/order.json", order.verdicts),
        ("thresholds/thresholds.json", thresholds.verdicts),
        ("generation/generation.json", generation.verdicts),
        ("computed/computed.json", lambda _: computed.verdicts()),
        ("kv-heads/kv-heads.json", lambda kept: kv_heads.verdicts(kept[kv_heads.SECONDS])),
        (
            "restricted/restricted.json",
            lambda kept: restricted.verdicts(kept[restricted.SECONDS], kept[restricted.BYTES]),
        ),
        ("switches/switches.json", switches.verdicts),
    ],
)
def test_what_is_published_follows_from_the_figures_beside_it(name, verdicts):
    """Every claim of the code, in its words. The study's command judges again what is measured already."""
    kept = published(name)
    assert said(one.record for one in verdicts(kept)) == said(kept["claims"])


def test_pages_are_what_the_records_say():
    stale = [path.name for path, text in pages.pages().items() if path.read_text() != text]
    assert stale == []


def test_the_page_on_longppl_shows_what_its_numbers_say():
    folder = RESULTS / "longppl"
    page, results = (folder / "README.md").read_text(), json.loads((folder / "results.json").read_text())
    assert "\n".join(map(str, predictions_in(folder / "results.json")[:9])) in page
    for candidate in results["candidates"]:
        at_end = {row["task"]: row["numbers"] for row in candidate["rows"] if row["length"] == 4096}
        losses = [at_end["longppl"][name]["value"] for name in ("perplexity", "longppl")]
        name = "base model" if candidate["line"] == "bare" else f"`{candidate['line']}`"
        assert f"| {name} | {losses[0]:.2f} | {losses[1]:.2f} | {at_end['passkey']['right']['value']:.0%} |" in page


def test_every_link_leads_to_a_file():
    broken = [
        f"{page}: {link}"
        for page in RESULTS.parent.rglob("*.md")
        for link in re.findall(r"\]\(([^)#\s]+)", page.read_text())
        if "://" not in link and not (page.parent / link).exists()
    ]
    assert broken == []
