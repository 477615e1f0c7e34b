"""`rw.cite`: valid BibTeX, with what the sources say and nothing else."""

import json
import re
from pathlib import Path

import pytest
from extension.outsiders import HALF, method_file

import ropewalk as rw
from ropewalk.errors import UnknownName
from ropewalk.extension.citations import _papers
from ropewalk.extension.parsing import PRESETS
from ropewalk.extension.slots import SLOTS
from ropewalk.methods.docstrings import page_of

METHODS = {f"{slot}.{kind.name}": kind for slot, content in SLOTS.items() for kind in content.methods}
YARN = """\
@misc{peng2023-2309.00071,
  author = {Peng, Bowen and Quesnelle, Jeffrey and Fan, Honglu and Shippole, Enrico},
  title = {{YaRN: Efficient Context Window Extension of Large Language Models}},
  year = {2023},
  eprint = {2309.00071},
  archivePrefix = {arXiv},
  url = {https://arxiv.org/abs/2309.00071},
}
"""


def entries(bibtex):
    """The entries by their keys, read as BibTeX reads them: by counting braces from each @ on."""
    found = {}
    while (begin := bibtex.find("@")) >= 0:
        kind, key, body = re.match(r"@(\w+)\{([\w.:-]+),\n()", bibtex[begin:]).groups()
        place, depth = begin + len(f"@{kind}{{"), 1
        while depth:
            depth += {"{": 1, "}": -1}.get(bibtex[place], 0)
            place += 1
        body, bibtex = bibtex[begin:place], bibtex[place:]
        fields = re.findall(r"^  (\w+) = \{(.*)\},$", body, re.MULTILINE)
        assert body == f"@{kind}{{{key},\n" + "".join(f"  {name} = {{{value}}},\n" for name, value in fields) + "}"
        assert all(value.count("{") == value.count("}") for _, value in fields)
        assert not re.search(r"(?<!\\)[&%$#_]", "".join(value for name, value in fields if name != "url"))
        assert key not in found
        found[key] = dict(fields)
    return found


def test_a_paper_and_ropewalk():
    assert YARN in rw.cite("yarn")
    assert list(entries(rw.cite("yarn:factor=4"))) == ["peng2023-2309.00071", "ropewalk"]
    assert "\n% yarn: Peng et al. 2023, arXiv:2309.00071; jquesnelle/yarn (thr" in rw.cite("yarn")


def test_a_paper_of_several_lines_is_one_entry():
    """BibTeX stops at a key that stands twice."""
    assert list(entries(rw.cite("yarn", "by_parts+log_n"))) == [
        "peng2023-2309.00071",
        "su2021-8823",
        "su2023-9706",
        "ropewalk",
    ]


def test_ropewalk_is_cited_as_its_file_says():
    said = (Path(__file__).parents[2] / "CITATION.cff").read_text()
    own = entries(rw.cite("rope"))["ropewalk"]
    assert f'\ntitle: "{own["title"][1:-1]}"\n' in said
    assert f"\n  - name: {own['author'][1:-1]}\n" in said
    assert f"\ndate-released: {own['year']}-" in said
    assert own["note"] == f"Version {rw.__version__}"


@pytest.mark.parametrize(
    ("line", "keys"),
    [
        ("rerope+log_n", ["su2023-9708", "su2021-8823", "su2023-9706"]),
        ("by_parts:factor=2+yarn_temperature:factor=2", ["peng2023-2309.00071"]),  # one paper, once
        (
            "frequencies.dynamic:inner=(by_parts:factor=1)",
            ["emozilla2023-dynamically-scaled-rope", "peng2023-2309.00071"],
        ),
        ("ntk+instead", ["bloc972023-ntk-aware-scaled-rope", "peng2023-2309.00071"]),
        ("long_reach", ["peng2023-2309.00071", "su2023-9708", "su2021-8823", "su2023-9706"]),  # ours, of their parts
        ("reach.window", ["beltagy2020-2004.05150", "jiang2023-2310.06825"]),
        ("llama3", ["meta-llama-llama-models"]),
    ],
)
def test_what_a_line_names(line, keys):
    assert list(entries(rw.cite(line))) == [*keys, "ropewalk"]


@pytest.mark.parametrize("name", [*PRESETS, *METHODS])
def test_everything_says_what_to_cite(name):
    """Each paper that a source numbers, with an author and the year in which its number was given."""
    source, found = page_of(PRESETS.get(name) or METHODS[name]).source, entries(rw.cite(name))
    assert {one["eprint"] for one in found.values() if "eprint" in one} >= set(re.findall(r"arXiv:([\d.]+\d)", source))
    for number in re.findall(r"kexue\.fm/(\d+)", source):
        assert any(one.get("url") == f"https://kexue.fm/archives/{number}" for one in found.values())
    assert len(found) > 1
    for key, one in found.items():
        assert "author" in one or one["url"].startswith("https://github.com/"), key
        assert one.get("eprint", one.get("year", "")[2:])[:2] == one.get("year", "")[2:], key
        assert one["title"], key  # most styles of LaTeX warn where there is none


def test_an_object_and_a_file_are_cited_by_their_methods(tmp_path):
    extension = rw.parse("yarn:factor=4+log_n")
    (tmp_path / "extension.json").write_text(json.dumps(extension.to_json()))
    assert rw.cite(extension) == rw.cite(str(tmp_path / "extension.json"))
    assert list(entries(rw.cite(extension))) == ["peng2023-2309.00071", "su2021-8823", "su2023-9706", "ropewalk"]


@pytest.mark.parametrize(
    ("source", "comment", "keys"),
    [
        ("", "names no source", []),
        ("Source: In 2024 we tried it @misc{x.\n", ": In 2024 we tried it (at)misc{x.", []),
        ('Source: O_R 2025, "50% {a} & #b", arXiv:2501.00001.\n', ': O_R 2025, "50% {a} & #b"', ["o-r2025-2501.00001"]),
        ("Source: Doe & Müller 2025, arXiv:2501.00001.\n", ": Doe & Müller 2025", ["doe-muller2025-2501.00001"]),
        ("Source: arXiv:2501.00001v2, eq. 3.\n", ": arXiv:2501.00001v2, eq. 3.", ["arxiv-2501.00001"]),
    ],
)
def test_a_method_of_a_file(tmp_path, source, comment, keys):
    path = method_file(tmp_path, HALF.replace("Source: an experiment.\n", source))
    said = rw.cite(f"{path}:Half:factor=2")
    assert list(entries(said)) == [*keys, "ropewalk"]
    assert f"% {path}:Half{comment if comment[0] == ':' else f' {comment}'}" in said
    if "Doe" in comment:
        assert entries(said)[keys[0]]["author"] == "Doe and Müller"
    if "{a}" in comment:
        assert entries(said)[keys[0]]["title"] == r"{50\% \textbraceleft{}a\textbraceright{} \& \#b}"


def test_papers_are_those_that_something_names():
    """The surname in a docstring is of the first author."""
    sources = [page_of(one).source for one in (*PRESETS.values(), *METHODS.values())]
    assert _papers().keys() == {number for source in sources for number in re.findall(r"arXiv:([\d.]+\d)", source)}
    for paper in _papers().values():
        assert paper["title"].isascii()
        assert all(text == " ".join(text.split()) for text in paper.values())
        names = paper["authors"].split(" and ")
        assert len(names) <= 12
        assert all(", " in name or name == "others" or name.startswith("{") for name in names)
    first = re.compile(r"([\w-]+) et al\. \d{4},? \(?.{0,40}?arXiv:([\d.]+\d)")
    found = [(one[1], one[2]) for source in sources for one in first.finditer(source)]
    assert len(found) > 30
    assert all(_papers()[number]["authors"].startswith(f"{surname}, ") for surname, number in found)


def test_an_unknown_name():
    with pytest.raises(UnknownName, match="did you mean 'yarn'"):
        rw.cite("yern")
