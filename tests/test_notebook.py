"""The notebooks: their cells run, wherever they lie, and show what they show."""

import json
import re
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))

import notebooks

from ropewalk.models import DEFAULT

NUMBER = re.compile(r"-?\d+\.\d+")


def text_of(output):
    return "".join(output["text"] if output["output_type"] == "stream" else output["data"]["text/plain"])


def stored(notebook):
    return [cell["outputs"] for cell in notebooks.cells(notebook) if cell["cell_type"] == "code"]


def numbers(text):
    return [float(number) for number in NUMBER.findall(text)]


@pytest.mark.nightly
def test_a_method_of_ones_own_prints_what_is_shown(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    outputs = notebooks.outputs_of(notebooks.OWN_METHOD)
    for ran, shown in zip(outputs, stored(notebooks.OWN_METHOD), strict=True):
        texts = ["".join(map(text_of, cell)) for cell in (ran, shown)]
        assert NUMBER.sub("_", texts[0]) == NUMBER.sub("_", texts[1])
        # Losses are printed to two places: processors may round the last one differently.
        assert numbers(texts[0]) == pytest.approx(numbers(texts[1]), abs=0.02)


class Table(HTMLParser):
    """The cells of a table, row by row."""

    def __init__(self, html):
        super().__init__()
        self.rows, self.cell = [], None
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
            self.cell = tag

    def handle_endtag(self, tag):
        self.cell = None if tag == self.cell else self.cell

    def handle_data(self, data):
        if self.cell:
            self.rows[-1][-1] += data


@pytest.fixture(scope="module")
def comparison(tmp_path_factory):
    """What the cells show now, beside what is stored: pairs of outputs."""
    before = list(Path().glob("ropewalk-*"))  # of `make demo`, as a newcomer runs it before the tests
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("elsewhere"))
        outputs = notebooks.outputs_of(notebooks.COMPARE)
    assert list(Path().glob("ropewalk-*")) == before
    pairs = zip(outputs, stored(notebooks.COMPARE), strict=True)
    return [(ran, shown) for cells in pairs for ran, shown in zip(*cells, strict=True)]


@pytest.mark.nightly
def test_the_comparison_shows_the_tables_that_are_stored(comparison):
    """Time decides how far a search comes, and the version of Python what the texts are: losses may differ a little."""
    tables = 0
    for ran, shown in comparison:
        if "<table>" not in "".join(shown.get("data", {}).get("text/html", [])):
            continue
        now, then = (Table("".join(output["data"]["text/html"])).rows for output in (ran, shown))
        assert now[0] == then[0]
        if "verdict" in now[0]:
            assert {row[0] for row in now} == {row[0] for row in then}
            losses = {row[0]: row[2] for row in then[1:]}
            assert all(float(row[2]) == pytest.approx(float(losses[row[0]]), abs=0.5) for row in now[1:])
            assert next(row[-1] for row in now if row[0] == "base model") == "breaks"
        if now[0][0] == "mean":
            assert [row[0] for row in now] == [row[0] for row in then]
        tables += 1
    assert tables == 3


@pytest.mark.nightly
def test_the_comparison_prints_what_is_stored(comparison):
    printed = [(text_of(ran), text_of(shown)) for ran, shown in comparison]
    assert printed[0][0] == printed[0][1]  # the model
    assert printed[-1] == ("after 1,282 tokens: 71432\n",) * 2
    for ran, _ in comparison:
        for line in text_of(ran).splitlines():
            assert len(line) < 220


@pytest.mark.nightly
def test_a_choice_is_made_from_what_was_measured_and_works(tmp_path, monkeypatch):
    """On the carried model, which takes seconds: the choice answers from beyond the trained length, and is exported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MODEL", str(DEFAULT))
    texts = ["".join(map(text_of, cell)) for cell in notebooks.outputs_of(notebooks.WHICH)]
    assert texts[0] == "trained on 512 tokens, to read 640\n"
    choice = re.search(r"the choice: (.*)", texts[3])[1]
    found = dict(re.findall(r"^(\S+) +loss .* found (\d+)%$", texts[3], re.M))
    assert found.keys() == {"bare", "yarn", "self_extend+log_n"}
    assert int(found[choice]) == max(map(int, found.values())) > int(found["bare"])
    unchanged, extended = re.findall(r"^.*: (['\"].*['\"])$", texts[4], re.M)
    assert "71432" in extended
    assert "71432" not in unchanged
    assert (tmp_path / "extended-model" / "config.json").exists()
    assert "@misc{" in texts[5]


@pytest.mark.parametrize(
    "notebook", [notebooks.OWN_METHOD, notebooks.COMPARE, notebooks.WHICH], ids=lambda path: path.stem
)
def test_a_notebook_is_small_and_of_its_format(notebook):
    assert notebook.stat().st_size < 25_000
    content = json.loads(notebook.read_text())
    assert (content["nbformat"], content["nbformat_minor"]) == (4, 5)
    assert len({cell["id"] for cell in content["cells"]}) == len(content["cells"])
    assert "/work" not in notebook.read_text()
    assert all(cell["outputs"] for cell in content["cells"] if cell["cell_type"] == "code")
