"""The report: self-contained, the same numbers everywhere, advice that follows from them."""

import csv
import json
import re
from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from ropewalk.evaluation.comparison import Verdict, compare
from ropewalk.evaluation.scores import Estimate
from ropewalk.evaluation.store import Store
from ropewalk.evaluation.tasks import Context, Damage, Passkey, Repetition
from ropewalk.report.figures import figures
from ropewalk.report.formulas import formulas
from ropewalk.report.page import as_json, write_report
from ropewalk.report.tables import advice, size, table, terminal, verdicts

from evaluation.subjects import model, subject

LINES = ["yarn", "window:window=8", "rerope+log_n"]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    path = tmp_path_factory.mktemp("report")
    model().config.max_position_embeddings = 100
    try:
        who = subject(path, longest=200, words=200)
        tasks = [Context(samples=3), Repetition(samples=2), Passkey(samples=3), Damage(samples=2)]
        return compare(who, LINES, [200], Store(path / "cells"), tasks=tasks)
    finally:
        model().config.max_position_embeddings = 32


def foreign(page):
    """What a browser would fetch: everything but data within the page, and files beside it that a reader asks for."""
    found = re.findall(r"(?:src|href|srcset|action)\s*=\s*[\"']?([^\"'\s>]+)", page) + re.findall(
        r"url\(([^)]+)\)", page
    )
    files = r"[a-z_]+\.(?:png|svg|csv)"
    assert not re.findall(r"<(?:link|script|iframe|object|embed)\b|@import", page)
    return [each for each in found if not each.startswith("data:image/png;base64,") and not re.fullmatch(files, each)]


@pytest.fixture(scope="module")
def report(made, tmp_path_factory):
    return write_report(made, tmp_path_factory.mktemp("page"), command="ropewalk compare <here>")


def test_the_page_needs_nothing_from_elsewhere(report):
    page = report.read_text()
    assert page.count("<img") == page.count('src="data:image/png;base64,') == 7
    assert foreign(page) == []
    assert "ropewalk compare &lt;here&gt;" in page
    assert 'name="viewport"' in page
    table = page[page.index("<table") : page.index("</table>")]
    for line in ("bare", *LINES):
        assert table.count(f'<th scope="row">{line}</th>') == 1


def test_what_is_wide_scrolls_within_itself(report):
    """A phone is narrower than any table: nothing but these may be wider than it."""
    page = report.read_text()
    assert page.count("<table") == page.count('<div class="wide"><table') > 2
    assert "img { width: 100%;" in page
    for rule in (".wide { overflow-x: auto;", "pre { overflow-x: auto;"):
        assert rule in page


def test_every_figure_is_a_file_of_each_kind(made, report):
    page, folder = report.read_text(), report.parent
    extensions = {each.line: each.extension for each in made.contenders}
    drawn = [*figures(made), *formulas(extensions, made.facts, 200)]
    assert sorted(re.findall(r'href="(\w+)\.csv"', page)) == sorted(each.name for each in drawn)
    for each in drawn:
        assert (folder / f"{each.name}.png").read_bytes().startswith(b"\x89PNG")
        assert "<svg" in (folder / f"{each.name}.svg").read_text()
        rows = list(csv.reader((folder / f"{each.name}.csv").read_text().splitlines()))
        assert tuple(rows[0]) == each.head
        assert len(rows) == len(each.numbers) + 1
        assert {len(row) for row in rows} == {len(each.head)}


def test_the_numbers_are_the_measured_ones(made, report):
    stored = json.loads((report.parent / "results.json").read_text())
    assert stored == json.loads(json.dumps(as_json(made, "ropewalk compare <here>")))
    yarn = next(each for each in stored["contenders"] if each["line"] == "yarn")
    row = next(row for row in yarn["rows"] if row["task"] == "context" and row["length"] == 200)
    losses = [sample["loss"] for sample in row["samples"]]
    assert row["numbers"]["loss"]["value"] == pytest.approx(sum(losses) / 3)
    shown = dict(zip(table(made).head, next(r for r in table(made).rows if r[0] == "yarn"), strict=True))
    assert shown["loss 2x"] == f"{sum(losses) / 3:.2f}"
    assert {"weights", "tokenizer", "corpus", "seed"} <= set(stored["marks"])
    assert {"torch", "transformers", "ropewalk"} <= set(stored["made"]["versions"])
    assert len(set(stored["made"]["texts"])) >= 3


def test_a_terminal_of_80_columns_shows_it(made):
    out = StringIO()
    Console(file=out, width=80).print(terminal(made))
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    for row, verdict in zip(table(made).rows, verdicts(made), strict=True):
        shown = next(line for line in lines if line.startswith(row[0] + " "))
        assert " ".join(row[1:3]) in shown  # the losses
        assert verdict.startswith(row[0])
        assert verdict.endswith(row[-1])


def changed(made, **changes):
    """The comparison with other losses."""
    contenders = tuple(
        replace(
            each,
            change=Estimate(changes[each.line], changes[each.line] - 0.01, changes[each.line] + 0.01, 3),
            verdict=Verdict("breaks" if changes[each.line] > 1 else "uses more text", "w"),
        )
        for each in made.contenders
    )
    return replace(made, contenders=contenders)


def test_advice_names_the_lowest_loss_and_the_best_small_cache(made):
    losses = {"bare": 3.0, "yarn": 0.1, "rerope+log_n": -0.2, "window:window=8": 0.05}
    words = advice(changed(made, **losses))
    assert words.startswith("Use rerope+log_n")
    assert "Where memory must not grow, window:window=8" in words
    assert "memory must not grow" not in advice(changed(made, **{**losses, "window:window=8": 2.0}))
    assert "use none" in advice(changed(made, **{**losses, "bare": -1.0}))
    assert table(changed(made, **losses)).rows[0][0] == "rerope+log_n"


@pytest.mark.parametrize(("count", "words"), [(512, "512 B"), (2048, "2 KiB"), (3 * 2**20, "3 MiB"), (2**33, "8 GiB")])
def test_sizes(count, words):
    assert size(count) == words
