"""The fifteen findings: their figures follow from the records, their pictures and pages are of today."""

import ast
import gzip
import json
import random
import re
import shutil
from pathlib import Path
from statistics import fmean, median

import pytest
from PIL import Image

from ropewalk.measure.metrics.intervals import Estimate

from studies.catalog import STUDIES
from studies.findings import far_text, page, picture as pictures
from studies.findings.errors import errors
from studies.findings.finding import AGREES, CHINESE, DISAGREES, UNDECIDED, kind_of, more, nats, percent, points
from studies.findings.listing import GROUPS, findings, measured, picture
from studies.findings.measured import DOCS, RESULTS, Measured, ThreeLayers, Tuned, read
from studies.findings.picture import COLOURS, Bars, Curves, Line, Picture, Row
from studies.frozen import frozen

DECIMAL = re.compile(r"\d+\.\d+")
# (0.1 ln 8 + 1) ** 2; and tokens of all steps in millions, of whole numbers: 1,000 x 1 x 4,096 and 1,000 x 2 x 512
BY_FORMULA = {"1.46", "4.1", "1.0"}
LARGEST = 40_000  # bytes of a picture
FIFTEEN = range(1, 16)


def finding(number):
    return findings()[number - 1]


def test_there_are_fifteen_in_both_languages():
    assert [one.number for one in findings()] == list(FIFTEEN)
    for one in findings():
        assert all((one.english.title, one.english.effect, one.english.text, one.english.models))
        assert all((one.chinese.title, one.chinese.text, one.chinese.models))
        assert 3 <= one.english.text.count(". ") + 1 <= 9
        assert one.verdicts
        assert {verdict.kind for verdict in one.verdicts} <= set(CHINESE)
    assert len(CHINESE) == 6


@pytest.mark.parametrize(
    ("intervals", "kind"),
    [
        ([(0.1, 0.2), (0.01, 0.4)], AGREES),
        ([(0.1, 0.2), (-0.01, 0.4)], UNDECIDED),
        ([(0.1, 0.2), (0.0, 0.4)], UNDECIDED),
        ([(-0.2, -0.1), (0.01, 0.4)], DISAGREES),
    ],
)
def test_a_verdict_follows_from_all_intervals(intervals, kind):
    assert kind_of([Estimate((low + high) / 2, low, high, 9) for low, high in intervals]) == kind


def test_how_figures_are_written():
    one = Estimate(-0.0004, -0.0123, 0.0156, 9)
    assert nats(one, 3) == "0.000 [-0.012, 0.016]"  # nothing is written as minus zero
    assert more(one, 3) == "0.000 [-0.012, +0.016]"
    assert points(Estimate(0.1004, 0.044, 0.157, 9)) == "+10.0 [+4.4, +15.7]"
    assert percent(Estimate(0.438, 0.422, 0.454, 9)) == "43.8 % [42.2, 45.4]"


# What the table says, computed from the records in another way.


def real(line, length):
    content = json.loads(gzip.decompress((DOCS / "real" / "SmolLM2-135M-Instruct.json.gz").read_bytes()))
    rows = next(one for one in content["candidates"] if one["line"] == line)["rows"]
    return next(row for row in rows if (row["task"], row["length"]) == ("context", length))["samples"]


def zoo(method, times, kind="non-repeated"):
    """The mean of the seeds' accuracies, in percent."""
    places = (RESULTS / "zoo" / "measured").glob(f"{method}-[0-9].json.gz")
    seeds = [json.loads(gzip.decompress(place.read_bytes())) for place in places]
    assert len(seeds) in (3, 5)
    rows = [next(row for row in one["figures"] if (row["times"], row["kind"]) == (times, kind)) for one in seeds]
    return 100 * fmean(row["accuracy"] for row in rows)


def test_the_collapse():
    losses = [fmean(sample["loss"] for sample in real("bare", length)) for length in (8192, 16384, 32768)]
    shown = [f"{loss:.2f} [" for loss in losses] + [f"{zoo('rope', times):.1f} % [" for times in (1, 2, 8)]
    assert all(text in finding(1).english.effect for text in shown)


def test_what_is_far():
    answers = [answer for sample in real("self_extend+log_n", 32768) for answer in sample["answers"] if answer["far"]]
    share = 100 * fmean(answer["right"] for answer in answers)
    assert f"{share:.0f} % [" in finding(7).english.effect
    copied = [fmean(sample["copied"] for sample in real(line, 32768)) for line in ("streaming", "yarn")]
    assert f"{100 * (copied[1] - copied[0]):+.1f} [" in finding(3).english.effect
    gain = zoo("hwfa", 8, "repeated from afar") - zoo("hwfa", 8)
    assert f"HWFA {gain:+.1f} [" in finding(3).english.effect


def test_the_loss_above_the_last_trained_length_alone():
    alone, yarn = (
        {sample["project"]: sample["loss"] for sample in real(*of)} for of in (("bare", 8192), ("yarn", 32768))
    )
    gap = fmean(yarn[project] - alone[project] for project in alone)
    assert f" / {gap:+.3f} [" in finding(7).english.effect


def test_the_biases_of_three_layers():
    def rows(method, what):
        kept = [json.loads((RESULTS / "qk-bias-3-layers" / f"{method}-{seed}.json").read_text()) for seed in range(3)]
        return {
            times: [
                row[what]
                for one in kept
                for row in one["figures"]
                if (row["times"], row["kind"]) == (times, "non-repeated")
            ]
            for times in (2, 4, 8)
        }

    for what, before in (("accuracy", "whole rows: "), ("last_accuracy", "alone: ")):
        plain, biased = rows("rope", what), rows("qk_bias", what)
        first = 100 * (fmean(biased[2]) - fmean(plain[2]))
        assert f"{before}{first:+.1f} [" in finding(13).english.effect
    plain, biased = rows("rope", "accuracy"), rows("qk_bias", "accuracy")
    assert all(min(biased[times]) > max(plain[times]) for times in plain)  # as its sentences say


def test_the_time_of_key_heads():
    runs = read(RESULTS / "kv-heads" / "kv-heads.json")["seconds of rounds by process"]
    of_rounds = [zip(run["all 16 key heads"], run["4 key heads"], strict=True) for run in runs]
    assert f"take {fmean(median(a / b for a, b in one) for one in of_rounds):.2f} [" in finding(14).english.effect


def test_the_last_position_of_interpolation():
    assert "3.5" in errors(measured())[0].is_so  # (8 - 1) * 4 / 8


def test_the_chinese_page_leads_from_an_article_to_commands():
    assert page.sources(finding(5)) == "文章 3、arXiv:2309.00071"
    assert page.sources(finding(6)) == "文章 1、kexue.fm/8823、kexue.fm/9706"
    assert page.sources(finding(13)).startswith("文章 4、kexue.fm/9577")  # which is article 4
    zoo = "`python -m studies zoo --out studies/results/zoo`（单核 11 小时，需要 `train`）"
    assert page.commands(finding(12)) == page.commands(finding(13)) == [zoo]
    assert "commit 3e18875 " in (page.RESULTS / "qk-bias-3-layers" / "settings.json").read_text()
    on_the_real_model = [number for number in FIFTEEN if "`make real`" in page.commands(finding(number))[0]]
    assert on_the_real_model == [1, 2, 3, 7, 8]
    assert len(page.commands(finding(14))) == 2
    text = page.CHINESE.read_text()
    every = {line for number in FIFTEEN for line in page.commands(finding(number))}
    letters = dict(re.findall(r"^- \*\*([A-Z])\*\* (.+)$", text, re.MULTILINE))
    assert set(letters.values()) == every
    zoo_letter = next(letter for letter, line in letters.items() if line == zoo)
    assert f"| {zoo_letter}（6 层；3 层的记录来自提交 3e18875" in text
    assert {study.time for study in STUDIES} == set(page.TIMES)


# No figure is typed.


def test_no_sentence_of_a_finding_has_a_typed_decimal():
    for group in {group.__module__ for group in GROUPS}:
        source = Path(page.__file__).parent / f"{group.rpartition('.')[2]}.py"
        texts = [node.value for node in ast.walk(ast.parse(source.read_text())) if isinstance(node, ast.Constant)]
        typed = [text for text in texts if isinstance(text, str) and " " in text and DECIMAL.search(text)]
        assert all("0.35 M, 3 layers" in text for text in typed)  # the size of a model


def shaken(value, chance, name=""):
    """A record whose figures are others: each smaller by a share of its own, and one answer in three turned round."""
    if isinstance(value, dict):
        return {key: shaken(one, chance, key) for key, one in value.items()}
    if isinstance(value, list):
        return value if name in ("keys", "projects") else [shaken(one, chance, name) for one in value]
    if isinstance(value, bool):
        return (value != (chance.random() < 1 / 3)) if name == "right" else value
    return value * chance.uniform(0.55, 0.95) if isinstance(value, float) else value


@pytest.fixture(scope="module")
def others(tmp_path_factory):
    """The findings of records with other figures."""
    every = []
    for seed in range(3):  # with two, small figures were sometimes the same by chance
        folder, chance = tmp_path_factory.mktemp(f"others{seed}"), random.Random(seed)
        for root, below in ((RESULTS, "results"), (DOCS, "docs")):
            for place in (*root.glob("*/*.json"), *root.glob("*/measured/*.gz"), *root.glob("real/*.gz")):
                copy = folder / below / place.relative_to(root)
                copy.parent.mkdir(parents=True, exist_ok=True)
                if place.name in ("settings.json", "recipe.json", "base.json"):
                    shutil.copy(place, copy)
                    continue
                content = read(place)
                text = json.dumps(shaken(content, chance)).encode()
                copy.write_bytes(gzip.compress(text) if place.suffix == ".gz" else text)
        of_them = Measured(folder / "results", folder / "docs")
        every.append([one for group in GROUPS for one in group(of_them)])
    return every


@pytest.mark.parametrize("number", FIFTEEN)
def test_figures_follow_from_the_records(number, others):
    """With other records every figure is another one, but those that are zero by construction."""
    for where in ("english", "chinese"):
        for part in ("effect", "text"):
            of_today, *of_others = (
                DECIMAL.findall(getattr(getattr(one, where), part))
                for one in (finding(number), *(every[number - 1] for every in others))
            )
            assert {len(of_today)} == {len(figures) for figures in of_others}
            for figure, *another in zip(of_today, *of_others, strict=True):
                same = all(one == figure for one in another)
                assert not same or float(figure) in (0, 100) or figure in BY_FORMULA, (where, part, figure)


@pytest.mark.parametrize("number", FIFTEEN)
def test_a_picture_is_another_one_with_other_records(number, others):
    assert all(picture(every[number - 1]).mark != picture(finding(number)).mark for every in others)


@pytest.mark.parametrize("number", FIFTEEN)
def test_chinese_has_the_same_figures(number):
    one = finding(number)
    english = set(DECIMAL.findall(f"{one.english.effect} {one.english.text}"))
    chinese = set(DECIMAL.findall(one.chinese.text))
    assert chinese
    assert chinese <= english


def test_errors_have_the_same_figures_in_both_languages():
    for one in errors(measured()):
        assert set(DECIMAL.findall(one.is_so)) == set(DECIMAL.findall(one.is_so_chinese))
        assert one.verdict.kind in CHINESE


# What they rest on, and how they are shown.


@pytest.mark.parametrize("number", FIFTEEN)
def test_the_claims_that_a_finding_rests_on_exist(number):
    assert not set(finding(number).claims) - set(frozen())


@pytest.mark.parametrize("number", FIFTEEN)
def test_a_picture_is_small_and_of_today(number):
    place = page.PICTURES / finding(number).picture
    assert place.stat().st_size <= LARGEST
    with Image.open(place) as shown:
        assert shown.width > 1000
        assert shown.getpixel((0, 0)) == shown.getpixel((shown.width - 1, 0))
        assert shown.convert("RGB").getpixel((0, 0)) == (255, 255, 255)
    assert pictures.mark_of(place) == picture(finding(number)).mark


def test_a_method_has_a_colour_of_its_own():
    assert len(set(COLOURS.values())) == len(COLOURS)
    for one in findings():
        for panel in one.panels:
            used = {part.method for part in pictures._parts(panel)}
            apart = [_distance(COLOURS[a], COLOURS[b]) for a in used for b in used if a < b]
            assert min(apart, default=255) > 40, (one.label, used)


def _distance(one, other):
    parts = [[int(colour[at : at + 2], 16) for at in (1, 3, 5)] for colour in (one, other)]
    return sum((a - b) ** 2 for a, b in zip(*parts, strict=True)) ** 0.5


def test_a_picture_is_marked_by_its_data(tmp_path):
    def drawn(value):
        rows = (Row("one", "yarn", Estimate(value, 0.1, 0.5, 9)),)
        line = Line("one", "yarn", ((1, Estimate(value, 0.1, 0.5, 9)), (2, Estimate(0.3, 0.1, 0.5, 9))))
        return Picture("It holds", (Bars("nats", rows), Curves("length", "nats", (line,))))

    drawn(0.2).save(tmp_path / "one.png")
    assert pictures.mark_of(tmp_path / "one.png") == drawn(0.2).mark != drawn(0.21).mark
    assert pictures.mark_of(tmp_path / "none.png") == ""


def test_the_pages_are_of_today():
    assert page.stale() == []


def test_a_changed_page_is_stale(tmp_path, monkeypatch):
    for name in ("ENGLISH", "CHINESE"):
        copy = tmp_path / getattr(page, name).name
        copy.write_text(getattr(page, name).read_text().replace("SmolLM2", "another", 3))
        monkeypatch.setattr(page, name, copy)
    assert page.stale() == ["findings.md", "findings.zh.md"]
    page.write()
    assert page.stale() == []


def test_the_first_screen_is_of_the_real_model():
    first = page.ENGLISH.read_text()[:2500]
    assert "No training-free extension reads" in first
    assert "`yarn` costs a tenth of a nat" in first
    assert first.index("SmolLM2") < first.index("31 million")


@pytest.mark.parametrize("number", FIFTEEN)
def test_a_finding_says_whether_a_real_model_was_measured(number):
    assert "SmolLM2" in finding(number).english.models or "a real model" in finding(number).english.models


# How records are read.


def test_untrained_readings_stand_for_every_seed():
    rows = {"times": 8, "losses": [2.0, 4.0, 3.0, 5.0]}
    models = [{"method": "yarn", "steps": 0, "seed": 0, "figures": [rows]}]
    models += [
        {"method": "yarn", "steps": 10, "seed": seed, "figures": [{"times": 8, "losses": losses}]}
        for seed, losses in enumerate([[1.0, 2.0, 2.0, 3.0], [0.0, 2.0, 1.0, 2.0]])
    ]
    plan = {"models": models, "projects": list("abcd"), "longest_text": 512, "plan": {}}
    gained = Tuned(plan).over(("yarn", 0, 8), ("yarn", 10, 8))
    assert gained.value == pytest.approx((1 + 2 + 1 + 2 + 2 + 2 + 2 + 3) / 8)


def test_three_layers_are_read_by_seed(tmp_path):
    (tmp_path / "settings.json").write_text("{}")
    for method, accuracies in (("rope", (0.2, 0.3, 0.4)), ("qk_bias", (0.3, 0.4, 0.6))):
        for seed, accuracy in enumerate(accuracies):
            rows = [{"times": 2, "kind": "non-repeated", "last_accuracy": accuracy}]
            rows.append({"times": 2, "kind": "repeated", "last_accuracy": 0.9})
            (tmp_path / f"{method}-{seed}.json").write_text(json.dumps({"figures": rows}))
    three = ThreeLayers(tmp_path)
    assert three.seeds("rope", 2) == [0.2, 0.3, 0.4]
    gained = three.over("qk_bias", "rope", 2)
    assert gained.value == pytest.approx(0.4 / 3)
    half = 4.303 * (0.2 / 3 * 3**-0.5 * 0.75**0.5)  # Student's t, of the gains 0.1, 0.1 and 0.2
    assert gained.high - gained.value >= half - 1e-9


def test_none_found_has_an_interval():
    found = measured().real.far_found("bare", 32768)
    assert found.value == found.low == 0
    assert 0.02 < found.high < 0.06  # Wilson's, of 96 answers: 3.8 %


def test_colours_are_known():
    for name in (*far_text.GAINS, *far_text.READ_FAR, *far_text.ON_BOARD):
        assert far_text.colour(name) in COLOURS
