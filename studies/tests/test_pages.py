"""Pages of the claims: what they say is what the records say, and bounds are those that were frozen."""

import json
import re
import subprocess
import sys

import pytest
from PIL import Image

from ropewalk.measure.comparison.predictors import predictions_in
from ropewalk.measure.metrics.intervals import Estimate

from studies import catalog, frozen, pages
from studies.catalog import RESULTS, STUDIES, judged
from studies.claim_pictures import draw
from studies.claims import AGREES, DISAGREES, KINDS, NATS, POINTS, STATED, UNDECIDED, Claim, chance_of, in_words, judge
from studies.sortable import sortable
from studies.tuned.claims import CLAIMS as TUNED, FAR_CLAIMS, STABLE
from studies.zoo.claims import CLAIMS as ZOO
from studies.zoo.figures import FAR, PLAIN, REPEATED, AccuracyTerm
from studies.zoo.inside.entropy_claims import CLAIMS as ENTROPIES
from studies.zoo.inside.logit_claims import CLAIMS as LOGITS

EVERY = [*ZOO, *LOGITS, *ENTROPIES, *TUNED, *FAR_CLAIMS, STABLE]
NEW, OLD = AccuracyTerm(1, "new", 8), AccuracyTerm(-0.25, "old", 2, "repeated")


def estimates(low, high, wider=0.0):
    """An interval of 95 %, and how much wider it is on each side at higher levels."""
    return lambda terms, level: Estimate(
        (low + high) / 2, low - (level > 0.95) * wider, high + (level > 0.95) * wider, 9
    )


def of_terms(terms, level):
    value = sum({"new": 0.48, "old": 0.2}[term.method] * term.weight for term in terms)
    return Estimate(value, value - 0.01, value + 0.01, 9)


@pytest.mark.parametrize("of_study", [(*ZOO, *LOGITS, *ENTROPIES), TUNED, (*FAR_CLAIMS, STABLE)])
def test_the_names_of_pages_are_unique(of_study):
    assert len({claim.name for claim in of_study}) == len(of_study)


@pytest.mark.parametrize("claim", EVERY, ids=lambda claim: claim.name)
def test_what_is_compared_is_in_words(claim):
    for terms in claim.sums:
        words = in_words(terms)
        assert "Term(" not in words
        assert words.count("minus ") == sum(term.weight < 0 for term in terms)
        assert words.count(" times ") == sum(abs(term.weight) != 1 for term in terms)


@pytest.mark.parametrize(
    ("intervals", "word"),
    [
        ([(0.2, 0.3), (0.11, 0.4)], AGREES),
        ([(0.2, 0.3), (0.05, 0.4)], UNDECIDED),
        ([(0.05, 0.4), (-0.3, 0.09)], DISAGREES),
    ],
)
def test_a_verdict_needs_every_sum(intervals, word):
    of = {(f"sum {n}",): interval for n, interval in enumerate(intervals)}
    claim = Claim("one", "It holds.", "a source", tuple(of), 0.1)
    assert judge(claim, lambda terms, level: estimates(*of[terms])(terms, level), NATS).word == word


def test_one_of_several_comparisons_is_below_only_with_95_percent_for_all_of_them():
    """Two chances to be below: each interval is one of 97.5 %. To be above, both have to be, so 95 % is enough."""
    one, two = (Claim("c", "It holds.", "a source", tuple((f"{n}",) for n in range(count))) for count in (1, 2))
    below, above = estimates(-0.3, -0.01, wider=0.05), estimates(0.01, 0.3, wider=0.05)
    assert [judge(claim, below, NATS).word for claim in (one, two)] == [DISAGREES, UNDECIDED]
    assert [judge(claim, above, NATS).word for claim in (one, two)] == [AGREES, AGREES]


def test_figures_are_raw_and_the_bound_stands_beside_them():
    said = judge(Claim("c", "It holds.", "a source", ((NEW, OLD),), -0.01, "48 %"), of_terms, POINTS)
    assert said.figures == ["48.0 against 5.0, less 1.0"]
    assert said.record["comparisons"][0]["compared"] == ["new at 8x", "0.25 times old at 2x of repeated text"]
    assert said.record["comparisons"][0]["above"] == pytest.approx([44.0, 43.0, 45.0])
    assert said.verdict == "agrees (one model)"
    alone = judge(Claim("c", "It holds.", "a source", ((NEW,),), 0.5), of_terms, POINTS)
    assert (alone.figures, alone.word) == (["48.0 against 50.0"], DISAGREES)


def test_what_is_shown_of_two_methods_differs_by_what_is_said():
    """One with five seeds and one with three are compared over three, and shown so."""
    for study, one in judged():
        for each in one.comparisons:
            shown = each.left - (each.right or 0.0) - one.claim.bound
            assert shown == pytest.approx(each.above.value, rel=1e-6, abs=1e-9), (study.name, one.claim.name)


@pytest.mark.parametrize("chance", [0.2, 0.03, 0.001])
def test_the_chance_is_that_of_the_widest_interval_that_excludes_the_bound(chance):
    """An interval that reaches 0 at exactly this level."""
    found = chance_of(lambda level: Estimate(1.0, 1.0 if level < 1 - chance else -1.0, 2.0, 9), 0.0)
    assert found == pytest.approx(chance, rel=0.02)
    assert chance_of(lambda level: Estimate(0.0, -1.0, 1.0, 9), 0.0) == 1


def test_every_verdict_is_of_one_of_six_kinds_and_stated_ones_have_a_reason():
    assert {one.word for _, one in judged()} == set(KINDS)
    assert all(one.reason for _, one in judged() if one.word in STATED)
    assert len({study.name for study in STUDIES}) == len(STUDIES)


def test_a_claim_of_one_model_says_so():
    of_carried = [one for study, one in judged() if study.name == "untrained" and one.word in (AGREES, DISAGREES)]
    assert of_carried
    assert all("one model" in one.verdict for one in of_carried)


def test_a_claim_on_copying_needs_five_seeds():
    (study,) = (study for study in STUDIES if study.name == "zoo")
    every = study.read(study.place)
    for seeds in (3, 5):
        kept = {**every, "models": [model for model in every["models"] if model["seed"] < seeds]}
        copying = [
            one
            for one in study.verdicts(kept)
            if any(getattr(term, "kind", PLAIN) in (REPEATED, FAR) for terms in one.claim.sums for term in terms)
        ]
        assert f"{seeds} seeds" in {one.drawn for one in copying}
        for one in copying:
            assert ("too few seeds" in one.reason) == (one.drawn == "3 seeds"), one.claim.name


@pytest.fixture
def bounds(tmp_path, monkeypatch):
    """Frozen bounds that a test may change."""
    place = tmp_path / "bounds.json"
    place.write_text(frozen.PLACE.read_text())
    monkeypatch.setattr(frozen, "PLACE", place)
    frozen.frozen.cache_clear()
    yield place
    frozen.frozen.cache_clear()


def said_of(bound):
    return judge(Claim("rope-fails", "It holds.", "a source", ((NEW, OLD),), bound), of_terms, POINTS)


def test_a_claim_that_was_not_frozen_is_not_judged(bounds):
    with pytest.raises(SystemExit, match=r"nowhere/rope-fails is not in bounds.json: freeze its bound before"):
        frozen.settled("nowhere", said_of(0.1))


def test_a_bound_that_moved_is_refused_until_the_change_is_dated(bounds):
    entries = frozen.freeze({"here/rope-fails": said_of(0.1).claim})
    bounds.write_text(json.dumps(entries))
    frozen.frozen.cache_clear()
    assert frozen.settled("here", said_of(0.1)).word == AGREES
    with pytest.raises(
        SystemExit, match=r"here/rope-fails has another bound than bounds.json; date the change: python -m"
    ):
        frozen.settled("here", said_of(0.2))
    bounds.write_text(json.dumps(frozen.freeze({"here/rope-fails": said_of(0.2).claim}, ["here/rope-fails"], "a slip")))
    frozen.frozen.cache_clear()
    assert frozen.settled("here", said_of(0.2)).word == AGREES
    (change,) = frozen.frozen()["here/rope-fails"]["changes"]
    assert (change["was"], change["why"]) == ({"bound": 0.1}, "a slip")


def test_what_is_frozen_is_what_is_judged():
    names = {f"{study.name}/{one.claim.name}" for study, one in judged()}
    assert set(frozen.frozen()) == names


def test_false_findings_are_those_of_benjamini_and_hochberg(monkeypatch):
    """Of four claims with chances 0.001, 0.012, 0.04 and 0.8: 3 decided, 0.04 * 4 / 3 of them false; 5 % keeps two."""
    study = STUDIES[0]

    def one(name, chance, word):
        said = judge(Claim(name, "It holds.", "a source", ((NEW, OLD),)), of_terms, POINTS)
        (compared,) = said.comparisons
        return study, catalog.JudgedClaim(
            **{**vars(said), "word": word, "comparisons": [compared._replace(chance=chance)]}
        )

    rows = [one("a", 0.001, AGREES), one("b", 0.012, AGREES), one("c", 0.04, AGREES), one("d", 0.8, UNDECIDED)]
    monkeypatch.setattr(pages, "judged", lambda: tuple(rows))
    decided, share, dropped = pages.false_findings()
    assert (decided, dropped) == (3, [f"{study.name}/c"])
    assert share == pytest.approx(0.04 * 4 / 3)


def test_a_page_has_the_figures_and_the_command():
    page = pages.claim_page("static-harm", dict(catalog.by_name())["static-harm"])
    assert page.startswith("# Without training a static schedule harms texts of the trained length: PI, NTK")
    assert "## SmolLM2, 135 M, 8k:" in page
    assert "Verdict: **agrees (one model)**, from SmolLM2-135M-Instruct, read without training." in page
    assert "The first has to be above the second plus 0.020, in nats:" in page
    assert "| yarn at 1x | 1.810 | rope at 1x | 1.680 |" in page
    assert "`make real`" in page


def test_a_picture_is_drawn_of_every_kind_of_figures(tmp_path):
    """One of each study."""
    drawn = {study.name: one for study, one in judged() if one.curves}
    assert len(drawn) > 8
    for name, one in drawn.items():
        draw(one, tmp_path / f"{name}.png")
        with Image.open(tmp_path / f"{name}.png") as picture:
            assert picture.width > 400


def test_the_table_has_a_row_for_each_claim_and_a_column_for_each_model():
    header, _, *rows = pages.claims_table().splitlines()
    assert header.startswith("| claim | source | its figures | SmolLM2")
    assert len(rows) == len({one.claim.name for _, one in judged()})
    assert {row.count(" | ") for row in rows} >= {header.count(" | ")}


def test_the_page_that_sorts_is_whole_and_escapes_what_it_shows():
    page = sortable(
        "A <table>", ["claim", "model"], [[("a < b", "x.md"), "small"], [("c", "y.md"), "large"]], ["model"]
    )
    assert "<title>A &lt;table&gt;</title>" in page
    assert "<a href='x.md'>a &lt; b</a>" in page
    assert "<option>large</option><option>small</option>" in page
    assert not re.findall(r"(?:src|href)='https?:", page)  # it works when it is sent alone


def test_pages_are_what_the_records_say():
    checked = subprocess.run([sys.executable, "-m", "studies.pages", "--check"], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr


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
