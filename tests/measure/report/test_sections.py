"""What was measured beyond the default has its column, its section, its figures."""

import csv
import json

import pytest

from ropewalk.measure.comparison.comparison import measure_candidates, reach
from ropewalk.measure.comparison.store import Store
from ropewalk.measure.metrics.correlation import effective_length
from ropewalk.measure.metrics.intervals import Estimate
from ropewalk.measure.report.comparison import as_json, write_report
from ropewalk.measure.report.sections import parts
from ropewalk.measure.report.tables import estimated, extra_tasks, table, terminal
from ropewalk.measure.tasks import Context, Needle, QuantisedCache, Ruler, StreamEval

from measure import oracles
from measure.subjects import model, subject

SHORT, LONG = 900, 1400
TASKS = [
    Context(samples=2),
    Needle(samples=4, depths=2),
    Ruler(kind="niah_single_1", samples=2),
    Ruler(kind="vt", samples=2),
    StreamEval(samples=2, every=2, back=2),
]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """All needles are found, but not those at the beginning of the long text; of chains none."""
    path = tmp_path_factory.mktemp("sections")
    model().config.max_position_embeddings = SHORT
    with pytest.MonkeyPatch.context() as patch:
        try:
            who = subject(path, longest=LONG, words=1200)

            def read(text):
                if "VAR" in text:
                    return ""
                if "The best" not in text:
                    return oracles.needles(text)
                far = len(who.tokenizer.encode(text)) > SHORT
                return "" if far and text.index("The best thing") < len(text) / 2 else oracles.advice(text)

            oracles.put(patch, who, read)
            return measure_candidates(who, ["yarn"], [LONG], Store(path / "cells"), tasks=TASKS)
        finally:
            model().config.max_position_embeddings = 32


@pytest.mark.nightly
def test_tasks_have_their_columns_and_tables(made):
    assert [task.title for task in extra_tasks(made)] == ["needle", "niah_single_1", "vt", "stream"]
    shown = dict(zip(table(made).head, table(made).rows[0], strict=True))
    assert (shown["needle"], shown["niah_single_1"], shown["vt"]) == ("100% 50%", "100% 100%", "0% 0%")
    assert "passkey" not in shown
    _, *tables, _ = terminal(made)
    assert [each.title.partition(":")[0] for each in tables] == ["needle", "niah_single_1", "vt", "stream"]
    assert list(tables[0].columns[2].cells) == ["50%", "50%"]


def test_a_section_has_every_number_at_every_length(made):
    found = {each.name: each.numbers for each in parts(made)}
    assert list(found) == ["context", "needle", "niah_single_1", "vt", "stream", "effective length", "formulas"]
    needle = found["needle"]
    assert needle.head == ("extension", "number", "900", "1,400")
    assert {(row[0], row[1]) for row in needle.rows} == {
        (line, number) for line in ("base model", "yarn") for number in ("right", "words", "loss")
    }
    # Four of four and two of four, with Wilson's intervals worked by hand.
    assert needle.rows[0][2:] == ("1.00 [0.51, 1.00]", "0.50 [0.15, 0.85]")
    assert parts(made)[1].about.startswith("A sentence hidden")


def test_how_far_each_gets(made):
    found = {(row[0], row[1]): row[2:] for row in parts(made)[-2].numbers.rows}
    # Means of RULER's kinds, one found and one not: 1/2 and 1/2, a bar of one's own of 0.425.
    assert found["yarn", "ruler"] == ("0.50", "0.50", "below 900", "1,400")
    # 1 and 1/2: (1 + 2 / 2) / 3 and (2 + 1 / 2) / 3.
    assert found["yarn", "needle"] == ("0.67", "0.83", "900", "900")
    assert reach(made, made.candidates[1], "needle") == effective_length({SHORT: 1.0, LONG: 0.5}, standard=1.0)


def test_maps_by_depth_and_curves_by_length(made, tmp_path):
    names = [figure.name for part in parts(made) for figure in part.figures]
    needles = ["needle_by_length", "needle_by_depth", "needle_loss_by_depth"]
    assert names[:-2] == ["loss_by_length", *needles, "stream_by_length", "ruler_by_length"]
    page = write_report(made, tmp_path).read_text()
    assert page.count("<figure id=") == len(names) + 2  # those of the headline
    cells = list(csv.DictReader((tmp_path / "needle_by_depth.csv").read_text().splitlines()))
    far = {float(row["depth"]): row for row in cells if row["extension"] == "yarn" and row["length"] == str(LONG)}
    assert (far[0.0]["right"], far[1.0]["right"]) == ("0.0", "1.0")
    assert float(far[1.0]["low"]) == pytest.approx(0.342, abs=1e-3)  # of two samples
    for each in parts(made):
        assert f"<h2>{each.name}</h2>" in page
    named = [each.numbers.rows[0][0] for each in parts(made) if each.numbers]
    assert all(page.count(f"<span>{name}</span>") >= len(named) for name in named)


def test_results_keep_each_kind_and_how_far_it_goes(made):
    stored = json.loads(json.dumps(as_json(made)))["candidates"][1]
    assert {row["task"] for row in stored["rows"]} == {task.title for task in TASKS}
    assert stored["reach"]["needle"]["own"] == SHORT
    wrote = next(row for row in stored["rows"] if row["task"] == "niah_single_1")["samples"][0]["wrote"]
    assert wrote.strip().isdigit()


@pytest.mark.nightly
def test_quantised_caches_have_a_table(tmp_path):
    """A row for each extension and cache at the longest length: the loss, what is added to the exact one's, answers."""
    kinds = [QuantisedCache(kind=kind, samples=2, questions=4) for kind in ("int8", "int4")]
    who = subject(tmp_path, longest=128)
    measured = measure_candidates(who, ["rerope:window=16"], [64, 128], Store(tmp_path / "cells"), tasks=kinds)
    assert [task.title for task in measured.tasks] == ["context", "cache_int8", "cache_int4"]
    _, caches, _ = terminal(measured)
    assert [column.header for column in caches.columns][2:] == ["loss at 128", "minus exact [95% CI]", "far found"]
    assert sorted(zip(*(column.cells for column in caches.columns[:2]), strict=True)) == [
        *(("base model", "int4"), ("base model", "int8")),
        *(("rerope:window=16", "int4"), ("rerope:window=16", "int8")),
    ]
    stored = json.loads(json.dumps(as_json(measured)))["candidates"][1]
    losses = {row["task"]: [one["loss"] for one in row["samples"]] for row in stored["rows"] if row["length"] == 128}
    for kind in ("int8", "int4"):
        added = [a - b for a, b in zip(losses[f"cache_{kind}"], losses["context"], strict=True)]
        assert stored["change_by_cache"][kind]["value"] == pytest.approx(sum(added) / 2)
    assert {row["length"] for row in stored["rows"] if row["task"] == "cache_int8"} == {32, 128}
    assert "quantised caches" in [part.name for part in parts(measured)]
    again = measure_candidates(who, ["rerope:window=16"], [128], Store(tmp_path / "cells"), tasks=kinds[:1])
    assert as_json(again)["candidates"][1]["change_by_cache"]["int8"] == stored["change_by_cache"]["int8"]


def test_a_number_without_an_interval_stands_alone():
    assert estimated(Estimate(2.0, float("-inf"), float("inf"), 1)) == "2.00"
    assert estimated(Estimate(2.0, 1.5, 2.25, 4)) == "2.00 [1.50, 2.25]"
