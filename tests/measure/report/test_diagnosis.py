"""The page of a diagnosis: figures that have their numbers, a table, and sentences that follow from them."""

import json
import math
from dataclasses import replace

import pytest
import torch

import ropewalk as rw
from ropewalk.measure.diagnostics.diagnosis import StreamLosses, measure_sides
from ropewalk.measure.diagnostics.pass_states import Curves
from ropewalk.measure.report.diagnosis import as_json, findings, numbers, page_of, title
from ropewalk.measure.report.drawing.charts import styles_of
from ropewalk.measure.report.html_page import render_page
from ropewalk.measure.report.inside import headline, parts

from measure.subjects import model, subject

LINE = "window:window=8"


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    biased = rw.convert(model(), "qk_bias").eval()
    for name, value in biased.named_parameters():
        if name.endswith("bias"):
            value.data = torch.ones_like(value)
    return measure_sides(subject(tmp_path_factory.mktemp("inside"), longest=48, model_=biased), LINE)


@pytest.fixture(scope="module")
def drawn(found):
    return {
        each.name: each for each in (*headline(found), *(figure for part in parts(found) for figure in part.figures))
    }


def rows(drawn, *first):
    return [row[len(first) :] for row in drawn.numbers if row[: len(first)] == first]


def points(curves, layer):
    return list(zip(curves.at, curves.layers[layer], strict=True))


@pytest.mark.nightly
def test_every_diagnostic_has_its_figure(drawn):
    attention = ("mass_of_last", "entropy", "mass_of_first")
    maps = {f"{name}_by_layer" for name in (*attention, "logits")}
    lines = {"loss_change", "loss", "sinks", *attention, "logits_by_distance", "bias_terms", "turns_by_pair"}
    assert set(drawn) == lines | maps | {"states", "decay_by_distance"}
    for each in drawn.values():
        assert {len(row) for row in each.numbers} == {len(each.head)}
        assert each.caption.endswith((".", ")."))
        json.dumps(each.chart.to_json(), allow_nan=False)


@pytest.mark.nightly
def test_every_figure_has_its_place_on_the_page(found, drawn):
    page = page_of(found)
    assert {figure.name for figure in page.figures} == set(drawn)
    assert all(part.about.endswith(".") for part in page.parts)
    assert page.title == f"LlamaForCausalLM under {LINE}, diagnosed on 2 texts of folder:texts"


def test_the_numbers_are_those_of_the_diagnosis(found, drawn):
    for side in found.sides:
        for layer in range(2):
            assert rows(drawn["entropy_by_layer"], side.line, layer) == points(side.entropy, layer)
            grown = rows(drawn["logits_by_layer"], side.line, layer)
            for column, curves in enumerate(side.growth):
                assert [row[1 + column] for row in grown] == pytest.approx(curves.layers[layer], nan_ok=True)
        plane = side.planes[-1]
        assert [row[1:] for row in rows(drawn["states"], side.line, plane.layer - 1)] == list(plane.points)
    assert [value for _, _, value in rows(drawn["sinks"], "removed")] == list(found.streams.removed)
    assert rows(drawn["sinks"], "removed")[0][0] > 4  # the first ones are not scored
    assert rows(drawn["bias_terms"], "a b (both biases)", 1) == points(found.sides[0].terms.biases, 1)


def test_maps_and_planes_have_what_they_show(found, drawn):
    chart = drawn["entropy_by_layer"].chart
    for side, panel in zip(found.sides, chart.panels, strict=True):
        assert (panel.cells, panel.places) == (side.entropy.layers, side.entropy.at)
        assert panel.marks == ((32.0, ""),)
    values = [value for side in found.sides for layer in side.entropy.layers for value in layer]
    assert chart.shades == (min(values), max(values))
    assert drawn["logits_by_layer"].chart.panels[0].x.kind == "log"
    sides = [replace(side, entropy=Curves((0.0, 1.0), ((math.nan, math.nan),))) for side in found.sides]
    figures = [figure for part in parts(replace(found, sides=sides)) for figure in part.figures]
    assert [{*map(float, one.chart.ends)} for one in figures if one.name == "entropy_by_layer"] == [{0}]
    planes = [plane for side in found.sides for plane in side.planes]
    for plane, panel in zip(planes, drawn["states"].chart.panels, strict=True):
        dots = [place for one in panel.series for place in zip(one.x, one.y, strict=True)]
        assert sorted(dots) == sorted(plane.points)
        assert panel.series[0].colour == "c1"
        assert len(panel.series[0].x) == sum(at < 8 for at in plane.positions)  # a sixth of 48


def test_json_has_every_number_and_is_json(found):
    stored = json.loads(json.dumps(as_json(found, "ropewalk diagnose"), allow_nan=False))
    assert stored["command"] == "ropewalk diagnose"
    assert stored["facts"]["trained_len"] == 32
    assert stored["sides"][1]["extension"] == found.sides[1].extension.to_json()
    assert stored["sides"][0]["entropy"]["layers"][1] == list(found.sides[0].entropy.layers[1])
    assert None in stored["sides"][1]["growth"]["mean"]["layers"][0]  # out of the window's reach
    assert "points" not in stored["sides"][0]["planes"][0]
    assert stored["findings"] == findings(found)


def flat(found, *, last, far):
    """The diagnosis of a base model with these numbers for each layer, within the trained length of 32 and beyond:
    attention on the last keys, and the largest far logit."""
    at = (10.0, 20.0, 40.0)
    side = found.sides[0]
    curve = Curves(at, tuple((known, known, beyond) for known, beyond in last))
    # What is near is left out: it is large everywhere.
    largest = Curves((5.0, *at), tuple((1000.0, known, known, beyond) for known, beyond in far))
    growth = side.growth._replace(largest=largest)
    return replace(found, sides=(replace(side, last=curve, growth=growth),))


def test_the_table_parts_what_is_known_from_what_is_beyond(found):
    made = flat(found, last=[(0.8, 0.2), (0.6, 0.4)], far=[(10, 30), (20, 10)])
    table = {row[0]: row[1:] for row in numbers(made).rows}
    assert numbers(made).head == ("mean", "base model, within 32", "base model, beyond 32")
    assert table["attention on the last 64 keys"] == ("0.70", "0.30")
    assert table["largest far logit"] == ("15.0", "20.0")
    both = {row[0]: row[1:] for row in numbers(found).rows}
    assert both["largest far logit"][3] == "-"  # a window of 8 reaches nothing beyond 32
    assert title(made).startswith("Trained on 32 tokens, diagnosed at 48: base model")


def test_sentences_name_the_layer_that_is_worst(found):
    words = "\n".join(findings(flat(found, last=[(0.8, 0.2), (0.6, 0.1)], far=[(10, 30), (20, 80)])))
    assert "most in layer 1: from 60% to 10%." in words
    assert "most in layer 1: up to 20 for keys at most 32 away, up to 80 for keys beyond" in words
    assert "\nbase model: logits" in words
    calm = "\n".join(findings(flat(found, last=[(0.8, 0.7), (0.6, 0.5)], far=[(10, 12), (20, 10)])))
    assert "most in layer" not in calm


def test_angles_and_sinks_have_their_sentences(found):
    pairs = found.sides[0].pairs
    unseen = [pair._replace(turns_trained=0.5, turns_asked=0.6) for pair in pairs[:3]]
    seen = [pair._replace(turns_trained=2, turns_asked=9) for pair in pairs[3:]]
    side = replace(found.sides[0], pairs=(*unseen, *seen), first=Curves((1.0, 40.0), ((0.25, 0.5),)))
    made = replace(found, sides=(side,), streams=StreamLosses((1.0, 2.0), (2.0,), (3.0, 4.0)))
    words = findings(made)
    angles = "pairs of dimensions meet angles in 48 tokens that did not occur in training."
    assert words[0] == f"base model: 3 of {len(pairs)} {angles}"
    assert "The first 4 tokens get 25.0% of" in words[-1]
    assert words[-1].endswith("is 1.50 with them, 2.00 with line breaks in their place, 3.50 without them.")


def test_what_is_no_extension_fades_on_its_own(found, drawn):
    """Streams and terms have keys of their own: isolating an extension neither shows nor hides one of them."""
    of_extensions = {one.key for one in drawn["loss"].chart.legend}
    assert of_extensions == {-1, styles_of([LINE])[LINE]}
    for name in ("sinks", "bias_terms"):
        others = [one.key for one in drawn[name].chart.legend]
        assert len(set(others)) == len(others) > 2
        assert not of_extensions & set(others)


def test_differences_are_those_of_the_losses(found, drawn):
    """Worked out here from the losses, bin by bin."""
    base, side = found.sides
    changes = [change for _, change in rows(drawn["loss_change"], side.line)]
    assert changes == pytest.approx([a - b for a, b in zip(side.losses, base.losses, strict=True)])
    assert {change for _, change in rows(drawn["loss_change"], base.line)} == {0.0}
    kept, _, removed = found.streams
    lost = [change for _, change, _ in rows(drawn["sinks"], "removed")]
    assert lost == pytest.approx([a - b for a, b in zip(removed, kept, strict=True)])
    assert as_json(found)["changes"] == {side.line: pytest.approx(changes)}


def test_a_base_model_alone_has_no_differences(found):
    alone = replace(found, sides=found.sides[:1])
    assert headline(alone) == []
    page = page_of(alone)
    assert page.title == "LlamaForCausalLM, diagnosed on 2 texts of folder:texts"
    assert {"loss", "entropy", "entropy_by_layer", "states"} <= {figure.name for figure in page.figures}
    assert render_page(page).count("<figure id=") == len(page.figures)
