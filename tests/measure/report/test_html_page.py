"""The page around the figures: what it escapes, what its tables are sorted by, what its script may do."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser

import pytest

from ropewalk.measure.report.comparison import page_of
from ropewalk.measure.report.drawing.charts import Chart, style_of
from ropewalk.measure.report.html_page import MOST_ROWS, render_page, sort_key

from measure.report.made_up import HOSTILE, comparison

KINDS = ("svg", "pdf")


@pytest.mark.parametrize(
    ("cell", "key"),
    [
        ("2.23", "2.23"),
        ("-0.13 [-0.24, -0.01]", "-0.13"),
        ("+0.50 [one text]", "0.5"),
        ("100% 50% 25%", "25"),  # the longest length
        ("87%", "87"),
        ("1,024", "1024"),
        ("49.5 MiB", str(49.5 * 2**20).removesuffix(".0")),
        ("1.5 GiB", str(3 * 2**29)),
        ("1.1x", "1.1"),
        ("Yarn:factor=4", "yarn:factor=4"),
        ("-", ""),
        ("mem", ""),
        ("died", ""),
        ("", ""),
        ("nan", ""),
        ("inf", "1e999"),
    ],
)
def test_a_cell_is_sorted_by_its_number(cell, key):
    assert sort_key(cell) == key


class Elements(HTMLParser):
    """Every element of a page, with its attributes."""

    def __init__(self, page):
        super().__init__()
        self.all = []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.all.append((tag, dict(attributes)))


def test_names_of_users_stay_text():
    """As model, corpus, extension and command: no element and no handler comes of them."""
    names = [
        HOSTILE,
        "\"'><script>alert(1)</script>",
        "</title></style></script><b onclick=x>",
        "' autofocus onfocus='x",
    ]
    made = comparison(names, model=HOSTILE, corpus=HOSTILE)
    elements = Elements(render_page(page_of(made, command=f"ropewalk compare {HOSTILE}"))).all
    scripts = [attributes.get("type") for tag, attributes in elements if tag == "script"]
    assert scripts == ["application/json", None]
    assert not {"img", "b", "iframe", "link"} & {tag for tag, _ in elements}
    assert not [
        name for _, attributes in elements for name in attributes if name.startswith("on") or name == "autofocus"
    ]
    plain = render_page(page_of(comparison(["a", "b", "c", "d"]), command="ropewalk compare"))
    assert [tag for tag, _ in elements] == [tag for tag, _ in Elements(plain).all]


def test_the_script_is_the_only_one_that_may_run():
    page = render_page(page_of(comparison(["yarn"])))
    script = re.search(r"<script>(.*?)</script>", page, re.S)[1]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'" in page.replace("&#39;", "'")


def test_every_figure_has_its_files_its_switch_and_its_numbers():
    made = page_of(comparison(["yarn", "pi"]))
    files = {f"{figure.name}.{kind}": f"{kind} of {figure.name}".encode() for figure in made.figures for kind in KINDS}
    page = render_page(made, KINDS, files)
    for figure in made.figures:
        part = page[page.index(f'<figure id="{figure.name}">') :].partition("</figure>")[0]
        assert ('class="switch"' in part) == figure.has_log
        links = re.findall(rf'href="data:[\w/+]+;base64,([^"]*)" download="{figure.name}\.(\w+)"', part)
        assert [kind for _, kind in links] == [*KINDS, "csv"]
        carried = [base64.b64decode(content) for content, _ in links]
        assert carried == [*(files[f"{figure.name}.{kind}"] for kind in KINDS), figure.csv().encode()]
        table = part.partition("<details>")[2]
        assert table.count("<tr") - 1 == (len(figure.shown) or len(figure.numbers))


def test_numbers_that_are_too_many_for_a_table_are_in_their_file():
    made = page_of(comparison([f"m{n}" for n in range(40)]))
    long = [figure for figure in made.figures if len(figure.numbers) > MOST_ROWS and not figure.shown]
    assert long
    page = render_page(made)
    for figure in long:
        assert f"Its {len(figure.numbers):,} numbers are in {figure.name}.csv." in page


def test_the_page_carries_what_its_charts_draw():
    made = page_of(comparison(["yarn", HOSTILE, "</script><b>"]))
    page = render_page(made)
    stored = json.loads(re.search(r'<script type="application/json" id="charts">(.*?)</script>', page)[1])
    charts = {figure.name: figure.chart.to_json() for figure in made.figures if isinstance(figure.chart, Chart)}
    assert stored == json.loads(json.dumps(charts))
    assert set(re.findall(r'data-chart="(\w+)"', page)) == set(charts)


def test_a_method_has_one_style_on_the_whole_page():
    made = page_of(comparison(["yarn", "pi", "ntk"]))
    page = render_page(made)
    for key, name in ((0, "yarn"), (7, "ntk"), (-1, "base model")):
        drawn = [one for figure in made.figures if isinstance(figure.chart, Chart)
                 for panel in figure.chart.panels for one in panel.series if one.name == name]  # fmt: skip
        assert len(drawn) >= 6
        colour, dash = style_of(key)
        assert {(one.key, one.style["colour"], one.style["dash"]) for one in drawn} == {(key, colour, dash)}
        assert f'data-series="{key}" data-name="{name}"' in page


def test_who_gets_a_link_reads_what_was_found():
    """The title has the model, the length and the extensions; the line below it has the figures."""
    made = page_of(comparison(["yarn", "pi", "ntk", "window"], model="SmolLM2", lengths=(64, 32768)))
    shown = {of.get("property", of.get("name")): of.get("content") for tag, of in Elements(render_page(made)).all
             if tag == "meta"}  # fmt: skip
    assert made.title == shown["og:title"] == "SmolLM2 at 32k: four extensions"
    found = "Trained on 64 tokens, reading 32,768: yarn 1.60, base model 11.05 nats per token"
    assert found == shown["og:description"] == shown["description"]
    worse = Elements(render_page(page_of(comparison(["yarn"], rates=[2.0]))))
    found = "Trained on 64 tokens, reading 256: yarn 6.05, base model 4.05 nats per token"
    assert ("meta", {"name": "description", "content": found}) in worse.all
    assert page_of(comparison([])).title == "small at 256: no extension"
    assert page_of(comparison(["yarn"], model="default")).title == "Ropewalk's small model at 256: yarn"
