"""The report of a long text: the same numbers in the table, the words and the files."""

import csv
import json
from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from ropewalk.measure.metrics.streaming import StreamResult, StreamSection
from ropewalk.measure.report.streaming import summary, table, write_streamed

from measure.report.made_up_stream import STRETCHES, streamed


def drawn(result):
    return table(result).for_terminal(words=(), space=2)


@pytest.fixture
def found():
    return streamed()


def test_the_files_have_every_stretch(found, tmp_path):
    write_streamed(
        found, tmp_path, trained_len=512, settings={"corpus": "stdlib", "line": "streaming", "model": "small"}
    )
    stored = json.loads((tmp_path / "stream.json").read_text())
    assert (stored["corpus"], stored["trained_len"], stored["tokens"]) == ("stdlib", 512, 4001)
    assert [tuple(each.values()) for each in stored["stretches"]] == [tuple(each) for each in STRETCHES]
    rows = list(csv.reader((tmp_path / "stream.csv").read_text().splitlines()))
    assert rows[0] == ["stop", "loss", "accuracy", "milliseconds", "cache_bytes"]
    assert [tuple(map(float, row)) for row in rows[1:]] == [tuple(each) for each in STRETCHES]
    assert not list(tmp_path.glob("*.svg"))
    page = (tmp_path / "stream.html").read_text()
    assert "small under streaming, reading 4,001 tokens of stdlib" in page
    assert page.count("<figure id=") == 3
    for words in summary(found):
        assert words in page


def test_the_table_is_short_and_has_every_stretch(found):
    out = StringIO()
    Console(file=out, width=80).print(drawn(found))
    lines = out.getvalue().splitlines()
    assert len(lines) == 9
    assert lines[1].split() == ["501", "3.300", "0.500", "0.250", "4", "KiB"]
    assert lines[-1].split()[:2] == ["4,001", "6.800"]
    mean = sum(float(line.split()[1]) for line in lines[1:]) / 8
    assert mean == pytest.approx(sum(each.loss for each in STRETCHES) / 40, abs=1e-3)
    short = replace(found, stretches=(StreamSection(101, 3.0, 0.5, 1.0, 1), StreamSection(111, 5.0, 0.5, 1.0, 1)))
    out = StringIO()
    Console(file=out, width=80).print(drawn(short))
    assert [line.split()[1] for line in out.getvalue().splitlines()[1:]] == ["3.000", "5.000"]


def test_a_row_weighs_its_stretches_by_their_tokens(found, monkeypatch):
    monkeypatch.setattr("ropewalk.measure.report.streaming.STREAM_ROWS", 1)
    out = StringIO()
    uneven = replace(found, stretches=(StreamSection(91, 3.0, 0.5, 1.0, 1), StreamSection(101, 5.0, 0.5, 1.0, 1)))
    Console(file=out, width=80).print(drawn(uneven))
    assert out.getvalue().splitlines()[1].split()[:2] == ["101", "3.200"]


def test_the_words(found):
    said = "\n".join(summary(found))
    assert "4,001 tokens in 1.0 s (1.9 s of processor time): 0.250 ms per token" in said
    assert "5.050 nats per token, 2.100 bits per byte" in said
    assert "largest cache 4 KiB, whole process 600 MiB" in said
    assert "its 3 documents were read 2.5 times" in said
    unknown = StreamResult(**{**vars(found), "rounds": 0.5, "process_bytes": 0})
    assert "process" not in summary(unknown)[2]
    assert len(summary(unknown)) == 3
