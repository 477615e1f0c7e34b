"""The report: self-contained, the same numbers everywhere, advice that follows from them."""

import json
from dataclasses import replace
from html import unescape
from io import StringIO
from math import inf, nan
from pathlib import Path

import pytest
from full_disk import room
from rich.console import Console

from ropewalk.errors import InvalidValue
from ropewalk.hf.probe.facts import DROPPED
from ropewalk.measure.comparison.comparison import measure_candidates
from ropewalk.measure.comparison.runner import OUT_OF_MEMORY
from ropewalk.measure.comparison.store import Store
from ropewalk.measure.comparison.verdict import BREAKS, FEW, UNCLEAR, Verdict, why_not_finite
from ropewalk.measure.metrics.intervals import Estimate
from ropewalk.measure.report.advice import advice
from ropewalk.measure.report.comparison import as_json, on_a_line, page_of, write_report
from ropewalk.measure.report.drawing import name_of
from ropewalk.measure.report.drawing.names import visible
from ropewalk.measure.report.html_page import render_page
from ropewalk.measure.report.sections import parts
from ropewalk.measure.report.tables import (
    change_head,
    estimated,
    interval,
    notes,
    remarks,
    signed,
    size,
    table,
    terminal,
)
from ropewalk.measure.tasks import Context, Damage, Passkey, Perplexity, Repetition
from ropewalk.measure.tasks.task_line import NAMES as OF_TASKS, tasks_named

from measure.report.made_up import comparison
from measure.subjects import model, subject

LINES = ["yarn", "window:window=8", "rerope+log_n"]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    path = tmp_path_factory.mktemp("report")
    model().config.max_position_embeddings = 100
    try:
        who = subject(path, longest=200, words=200)
        tasks = [
            Context(samples=3),
            Repetition(samples=2),
            Passkey(samples=3),
            Damage(samples=2),
            Perplexity(samples=2),
        ]
        return measure_candidates(who, LINES, [200], Store(path / "cells"), tasks=tasks)
    finally:
        model().config.max_position_embeddings = 32


@pytest.fixture(scope="module")
def report(made, tmp_path_factory):
    return write_report(made, tmp_path_factory.mktemp("page"), command="ropewalk compare <here>")


@pytest.mark.nightly
def test_the_title_names_model_extensions_texts_corpus_and_date(made, report):
    page = page_of(replace(made, made={**made.made, "model": "a <model>", "when": "2026-11-05T01:02:03+00:00"}))
    assert page.title == "a <model> at 200: yarn, window:window=8 and rerope+log_n"
    assert page.date == "5 November 2026"
    assert dict(page.facts) == {
        "model": "a <model>",
        "extensions": "yarn, window:window=8, rerope+log_n",
        "corpus": "folder:texts",
        "texts": "3, from 3 projects",
        "lengths": "Trained on 100 tokens, measured at 100, 200",
    }
    assert "<title>a &lt;model&gt; at 200: yarn" in render_page(page)
    four = replace(made, candidates=(*made.candidates, replace(made.candidates[1], line="pi")))
    assert page_of(four).title.endswith(" at 200: four extensions")
    assert made.made["model"] == "LlamaForCausalLM"  # it was not loaded from anywhere


def test_the_numbers_are_the_measured_ones(made, report):
    stored = json.loads((report.parent / "results.json").read_text())
    assert stored == json.loads(json.dumps(as_json(made, "ropewalk compare <here>")))
    yarn = next(each for each in stored["candidates"] if each["line"] == "yarn")
    row = next(row for row in yarn["rows"] if row["task"] == "context" and row["length"] == 200)
    losses = [sample["loss"] for sample in row["samples"]]
    assert row["numbers"]["loss"]["value"] == pytest.approx(sum(losses) / 3)
    shown = dict(zip(table(made).head, next(r for r in table(made).rows if r[0] == "yarn"), strict=True))
    assert shown["loss at 200"] == f"{sum(losses) / 3:.2f}"
    assert {"weights", "tokenizer", "corpus", "seed"} <= set(stored["marks"])
    assert {"torch", "transformers", "ropewalk"} <= set(stored["made"]["versions"])
    assert len(set(stored["made"]["texts"])) >= 3


def test_a_terminal_of_80_columns_shows_it(made):
    out = StringIO()
    Console(file=out, width=80).print(terminal(made)[0])
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert {row[list(table(made).head).index("repeated")][-1] for row in table(made).rows} == {"%", "-"}
    columns = [list(column.cells) for column in terminal(made)[-1].columns]
    for row, verdict in zip(table(made).rows, zip(*columns, strict=True), strict=True):
        shown = next(line for line in lines if line.startswith(row[0] + " "))
        assert " ".join(row[1:3]) in shown  # the losses
        assert verdict == (row[0], row[list(table(made).head).index(change_head(made))], row[-1])  # with its interval
    out = StringIO()
    Console(file=out, width=80).print(terminal(made)[-1])
    assert max(map(len, out.getvalue().splitlines())) <= 80


def changed(made, **changes):
    """The comparison with other losses."""
    candidates = tuple(
        replace(
            each,
            change=Estimate(changes[each.line], changes[each.line] - 0.01, changes[each.line] + 0.01, 3),
            verdict=Verdict("breaks" if changes[each.line] > 1 else "better with context", "w"),
            rows=tuple(row._replace(samples=lost(row, changes[each.line])) for row in each.rows),
        )
        for each in made.candidates
    )
    return replace(made, candidates=candidates)


def lost(row, change):
    """Samples that differ from text to text, and between methods by a change and a hundredth."""
    return tuple({**each, "loss": k + change + 0.01 * (k % 2)} for k, each in enumerate(row.samples))


def with_losses(made, yarn, rerope, window, bare=3.0):
    return changed(made, **{"bare": bare, "yarn": yarn, "rerope+log_n": rerope, "window:window=8": window})


def judged(made, kind, words="", first=4):
    """The comparison with this verdict on the first so many."""
    said, candidates = Verdict(kind, words or kind), made.candidates
    return replace(made, candidates=(*(replace(one, verdict=said) for one in candidates[:first]), *candidates[first:]))


def finding(made, least=None, **shares):
    """The comparison, in which each candidate finds this share of passkeys, surely more than the least."""
    candidates = []
    for one in made.candidates:
        share = shares.get(one.line.partition("+")[0], 0.0)
        right = Estimate(share, share if least is None else least * (share > 0), share, 8)
        rows = [row._replace(numbers={"right": right}) if row.task.name == "passkey" else row for row in one.rows]
        candidates.append(replace(one, rows=tuple(rows)))
    return replace(made, candidates=tuple(candidates))


def unasked(made):
    rows = ([row for row in one.rows if row.task.name != "passkey"] for one in made.candidates)
    return replace(made, candidates=tuple(map(lambda one, kept: replace(one, rows=tuple(kept)), made.candidates, rows)))


def with_chance(made):
    """The base model's losses go far up and down from text to text."""
    bare, *others = made.candidates
    lost = (tuple({**each, "loss": 3.0 * k} for k, each in enumerate(row.samples)) for row in bare.rows)
    rows = tuple(row._replace(samples=samples) for row, samples in zip(bare.rows, lost, strict=True))
    return replace(made, candidates=(replace(bare, rows=rows), *others))


def idle(made):
    base, first, *others = made.candidates
    return replace(made, candidates=(base, replace(first, idle=("reach",)), *others))


ADVICE = {
    "the lowest loss, and the best small cache": lambda made: with_losses(made, 0.1, -0.2, 0.05),
    "no small cache that holds": lambda made: with_losses(made, 0.1, -0.2, 2.0),
    "none better than the base model": lambda made: with_losses(made, 0.1, -0.2, 0.05, bare=-1.0),
    "all break": lambda made: judged(with_losses(made, 1.1, 1.2, 1.3), BREAKS),
    "better by rounding": lambda made: with_losses(made, -1e-8, 0.2, 0.3, bare=0.0),
    "worse by rounding": lambda made: with_losses(made, 1e-8, 0.2, 0.3, bare=0.0),
    "better by more than rounding": lambda made: with_losses(made, -0.1, 0.2, 0.3, bare=0.0),
    "nothing gained from afar, and found": lambda made: finding(with_losses(made, 0.2, 0.0, 0.05), 0.6, yarn=0.9),
    "nothing gained from afar, perhaps found": lambda made: finding(with_losses(made, 0.2, 0.0, 0.05), 0.0, yarn=0.9),
    "nothing gained from afar, and nobody asked": lambda made: unasked(with_losses(made, 0.2, 0.1, 0.05)),
    "gained, and another one finds": lambda made: finding(with_losses(made, 0.2, -0.2, 0.05), 0.6, yarn=0.9),
    "equal, and one finds more": lambda made: finding(with_losses(made, -0.1, -0.1, 0.5), yarn=0.5, rerope=1.0),
    "equal, and both find": lambda made: finding(with_losses(made, -0.1, -0.1, 0.5), yarn=0.5, rerope=0.5),
    "one finds more, and is worse": lambda made: finding(with_losses(made, -0.1, 0.1, 0.5), yarn=0.5, rerope=1.0),
    "a lead that may be chance": lambda made: with_chance(with_losses(made, -0.1, 0.1, 0.2, bare=0.0)),
    "too few texts": lambda made: judged(made, UNCLEAR),
    "too few projects": lambda made: replace(judged(made, FEW), projects=("one", "two", "one")),
    "the best without a verdict": lambda made: judged(
        with_losses(made, -0.1, 0.1, 0.2, bare=0.0), UNCLEAR, f"{UNCLEAR}, finds passkeys", first=2
    ),
}
REMARKS = {
    "nothing": lambda made: made,
    "a schedule of its own": lambda made: replace(made, own_schedule="llama3, factor 8"),
    "a rotation that was dropped": lambda made: replace(made, own_schedule=DROPPED),
    "a part that no layer uses": idle,
    "too few projects": lambda made: replace(made, projects=("one", "two", "one")),
    "forty lines": lambda made: comparison([f"line_{n}" for n in range(40)]),
}


def test_what_is_said_is_what_was_read_and_found_right(made):
    """Advice and remarks for every case: a sentence that is changed on purpose is read again in the file."""
    said = {
        "advice": {name: advice(make(made)) for name, make in ADVICE.items()},
        "remarks": {name: list(remarks(make(made))) for name, make in REMARKS.items()},
    }
    assert said == json.loads((Path(__file__).parent / "sentences.json").read_text())
    assert len(with_losses(made, 1e-8, 0.0, 0.3).ties) == 1  # a difference of rounding is no lead
    assert table(with_losses(made, 0.1, -0.2, 0.05)).rows[0][0] == "rerope+log_n"


def test_no_negative_zero():
    assert [signed(value) for value in (-0.001, 0.001, -0.006, 0.5)] == ["0.00", "0.00", "-0.01", "+0.50"]


def test_one_text_has_no_interval():
    assert interval(Estimate(0.5, -inf, inf, 1)) == "+0.50 [one text]"
    assert interval(Estimate(0.5, -inf, inf, 24)) == "+0.50 [too few projects]"


def test_a_terminal_shows_the_columns_that_were_measured(made):
    few = replace(made, tasks=tuple(task for task in made.tasks if task.name in ("context", "damage")))
    assert [column.header for column in terminal(few)[0].columns][2:] == ["short damage", "time", "cache"]


SIZES = [(512, "512 B"), (2048, "2 KiB"), (3 * 2**20, "3 MiB"), (2**33, "8 GiB"), (2**40, "1 TiB"), (1010, "0.986 KiB")]


@pytest.mark.parametrize(("count", "words"), SIZES)
def test_sizes(count, words):
    assert size(count) == words


def broken(made):
    """As if the base model had broken down."""
    bare, *others = made.candidates
    place = {"breakdown": Estimate(150.0, 140.0, 160.0, 2)}
    planted = (row.task.name == "perplexity" and row.length == 200 for row in bare.rows)
    rows = [
        row._replace(numbers={**row.numbers, **place}) if here else row
        for row, here in zip(bare.rows, planted, strict=True)
    ]
    return replace(made, candidates=(replace(bare, rows=tuple(rows)), *others))


def test_the_page_has_bits_per_byte_perplexity_and_breakdown(made):
    """Bits per byte at every length; a breakdown, where there is one, of the longest texts alone."""
    made = broken(made)
    context, perplexity = (each for each in parts(made) if each.name in ("context", "perplexity"))
    for each in made.candidates:
        shown = {row[1]: row[2:] for row in context.numbers.rows if row[0] == name_of(each.line)}
        bits = [each.at("context", length).numbers["bits_per_byte"] for length in made.lengths]
        assert shown["bits per byte"] == tuple(estimated(found) for found in bits)
        shown = {row[1]: row[2:] for row in perplexity.numbers.rows if row[0] == name_of(each.line)}
        found = each.at("perplexity", 200).numbers
        assert shown["strided"][-1] == estimated(found["strided"])
        assert shown.get("breakdown") == (("", "150.00 [140.00, 160.00]") if each.line == "bare" else None)
    (drawn,) = perplexity.figures
    assert (drawn.chart.panels[0].y.words, drawn.head[2]) == ("perplexity", "strided")
    beside = dict(zip(table(made).head, table(made).rows[0], strict=True))["perplexity"]
    best = made.best.at("perplexity", 200).numbers["strided"].value
    assert beside.split()[-1] == f"{best:.2f}"  # no percentage


def test_the_legend_explains_the_columns_of_the_table_and_no_others(made):
    named = [columns.split(":")[0].split(", ") for columns in notes(made)[0].split(". ") if "share correct" in columns]
    assert named == [[name for name in table(made).head if name in ("passkey", "repeated")]]
    assert "share correct" not in notes(replace(made, tasks=(Context(samples=3),)))[0]


def starved(made):
    """As if one of them had run out of memory at the longest length."""

    def without(each):
        gone = tuple(
            row._replace(numbers={}, samples=(), failed="out of memory") for row in each.rows if row.length == 200
        )
        kept = tuple(row for row in each.rows if row.length != 200)
        nothing, verdict = Estimate(nan, nan, nan, 0), Verdict("out of memory", "out of memory at 200 tokens")
        return replace(each, rows=kept, failures=gone, change=nothing, slowdown=nan, verdict=verdict)

    return replace(made, candidates=tuple(without(each) if each.line == "yarn" else each for each in made.candidates))


def test_out_of_memory_is_shown(made, tmp_path):
    page = write_report(starved(made), tmp_path).read_text()
    row = dict(zip(table(starved(made)).head, table(starved(made)).rows[-1], strict=True))
    assert row["extension"] == "yarn"
    assert row["loss at 200"] == row["repeated"] == "mem"
    assert row["perplexity"].split()[-1] == "mem"
    bits = next(each for each in parts(starved(made))[0].numbers.rows if each[:2] == ("yarn", "bits per byte"))
    assert bits[-1] == "mem"
    assert (row[change_head(made)], row["time"]) == ("-", "-")
    assert "mem: out of memory" in page
    assert "mem: out of memory" not in write_report(made, tmp_path / "other").read_text()
    stored = json.loads((tmp_path / "results.json").read_text())
    yarn = next(each for each in stored["candidates"] if each["line"] == "yarn")
    assert {"task": "context", "length": 200, "why": "out of memory"} in yarn["failures"]
    assert yarn["change"]["value"] is None
    out = StringIO()
    Console(file=out, width=80).print(terminal(starved(made))[0])
    assert max(map(len, out.getvalue().splitlines())) <= 80
    assert "enough memory" not in advice(starved(made))


NAMES = [
    ("a$b$c.json", "_mine/$\\frac{$.json", "bytes \udcff.json"),
    ("<b>&\"'", "50%_{x}^", "\x01 r\u00e9sum\u00e9 \u202e"),
]


@pytest.mark.parametrize("names", NAMES, ids=ascii)
def test_a_file_of_an_extension_may_have_any_name(made, tmp_path, names):
    """Every figure of the page has it as text, written out where a page has no such character."""
    bare, *others = made.candidates
    called = (replace(each, line=name) for each, name in zip(others, names, strict=True))
    found = replace(made, candidates=(bare, *called))
    page = write_report(found, tmp_path, command=f"ropewalk compare {names}")
    assert page == tmp_path / "report.html"
    shown = page.read_text()
    for drawn in page_of(found).figures:
        part = shown[shown.index(f'<figure id="{drawn.name}">') :].partition("</figure>")[0]
        for name in names:
            written = "".join(each if each.isprintable() else repr(each)[1:-1] for each in name)
            assert visible(name) == written
            assert written in unescape(part), (drawn.name, name)


def test_a_report_is_whole_or_as_it_was(made, tmp_path):
    """The page, every figure and the numbers are of one run."""
    write_report(made, tmp_path, command="first")
    before = {each.name: each.read_bytes() for each in tmp_path.iterdir()}
    for most in (100, len(before["report.html"]) - 100):  # the data in it may be packed a little smaller
        with room(most), pytest.raises(InvalidValue, match=r"written whole, got .*File too large.*make room"):
            write_report(made, tmp_path, command="second")
        assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == before
    write_report(made, tmp_path, command="second")
    assert {each.name for each in tmp_path.iterdir()} == set(before)
    assert json.loads((tmp_path / "results.json").read_text())["command"] == "second"


def test_the_page_says_of_how_many_projects_the_texts_are(made):
    """Here each text is a project of its own."""
    assert len(set(made.projects)) == 3
    assert ("texts", "3, from 3 projects") in page_of(made).facts
    assert as_json(made)["projects"] == list(made.projects)
    assert not any("project" in note for note in notes(made))
    alike = replace(made, projects=("one", "two", "one", "one"))
    told = "The 4 texts are of 2 projects. Texts of one project are alike, so means over texts have an interval only"
    assert any(note.startswith(told) for note in notes(alike))
    several = replace(made, projects=("one", "two", "three", "four", "one", "two", "three"))
    told = "The 7 texts are of 4 projects. Intervals are over projects, since texts of one are alike."
    assert told in notes(several)
    assert not any("project" in note for note in notes(replace(made, projects=())))


def without_loss(made, value, *lines):
    """The same comparison, in which some candidates have no finite loss at the longest length."""
    gone, longest = Estimate(value, nan, nan, 3), made.lengths[-1]
    kind = why_not_finite([value])

    def broken(one):
        rows = (
            row._replace(
                numbers={**row.numbers, "loss": gone},
                samples=tuple({**each, "loss": value, "curve": [value] * len(each["curve"])} for each in row.samples),
            )
            if row.task.name == "context" and row.length == longest
            else row
            for row in one.rows
        )
        said = Verdict(kind, f"{kind} at {longest} tokens")
        return replace(one, rows=tuple(rows), change=gone, over_window=gone, verdict=said)

    return replace(made, candidates=tuple(broken(one) if one.line in lines else one for one in made.candidates))


@pytest.mark.parametrize(("value", "kind"), [(nan, "NaN loss"), (inf, "infinite loss")])
@pytest.mark.parametrize("lines", [("yarn",), ("bare",), ("bare", *LINES)], ids=["one", "base", "all"])
def test_losses_that_are_no_numbers_are_called_so_everywhere(made, tmp_path, value, kind, lines):
    found = without_loss(made, value, *lines)
    said = advice(found)
    assert "memory" not in " ".join([said, *notes(found)])
    assert not any(said.startswith(f"Use {name_of(line)}") for line in lines)
    assert any(note.startswith("NaN loss, infinite loss: ") for note in notes(found))
    if len(lines) == len(found.candidates):
        assert said == f"No candidate has a finite loss at 200 tokens ({kind}): try another dtype, or a shorter length."
    rows = {row[0]: row for row in table(found).rows}
    for line in lines:
        assert rows[name_of(line)][-1] == f"{kind} at 200 tokens"
        assert rows[name_of(line)][3] == "-"
    page = write_report(found, tmp_path).read_text()
    assert f"{kind} at 200 tokens" in page
    stored = json.loads((tmp_path / "results.json").read_text(), parse_constant=lambda name: pytest.fail(name))
    assert [one["line"] for one in stored["candidates"] if one["change"]["value"] is None] == [
        one.line for one in found.candidates if one.line in lines
    ]


def test_only_memory_is_called_memory(made):
    """Among lines without a loss, the reason of each is said; memory alone where all ran out of it."""
    short = Verdict(OUT_OF_MEMORY, f"{OUT_OF_MEMORY} at 200 tokens")
    broken = without_loss(made, nan, "bare", *LINES)
    first = replace(broken.candidates[0], verdict=short)
    said = advice(replace(broken, candidates=(first, *broken.candidates[1:])))
    assert said.startswith("No candidate has a finite loss at 200 tokens (out of memory, NaN loss)")
    everyone = tuple(replace(one, verdict=short) for one in broken.candidates)
    assert advice(replace(broken, candidates=everyone)).startswith("No candidate had enough memory for 200 tokens")


def test_that_lengths_differ_in_their_tokens_is_said_wherever_they_are_compared(tmp_path):
    """In the heading, below the table, in every caption of a difference, in the sentences and in JSON."""
    plain = comparison(["yarn", "pi"])
    more = replace(plain, tasks=(Context(samples=3, last=200), *plain.tasks[1:]))
    assert (plain.by_window, more.by_window) == (False, True)
    assert (change_head(plain), change_head(more)) == (
        "loss minus base at 64 [95% CI]",
        "loss minus base under a window of 64 [95% CI]",
    )
    counts = "63 at 64, 127 at 128, 200 at 256"
    assert any(counts in note and "under a window of 64" in note for note in notes(more))
    assert not any("window of 64" in note or "too short" in note for note in notes(plain))
    assert "the same final tokens" in notes(plain)[0]
    assert "the same final tokens" not in notes(more)[0]
    assert next(one for one in parts(more) if one.name == "context").about.count(counts) == 1
    for made, standard in ((plain, "trained length"), (more, "window")):
        page = write_report(made, tmp_path / standard).read_text()
        assert (counts in page) == (made is more)
        assert ("Loss of the same last tokens after more and more context" in page) == (made is plain)
        assert json.loads((tmp_path / standard / "results.json").read_text())["standard"] == standard


@pytest.mark.parametrize("line", [*OF_TASKS, "passkey:samples=4", "context:questions=2", "needle:depths=4"])
def test_tasks_are_written_as_the_command_takes_them(line):
    """Those that a command measures again, also where a task has to be told its kind."""
    tasks = tasks_named(line, 8)
    assert tasks_named(",".join(on_a_line(task, 8) for task in tasks), 8) == tasks
