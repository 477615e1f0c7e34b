"""What this Python has installed, as corpora."""

import importlib
import sys

import pytest

from ropewalk.errors import DoesNotFit, InvalidValue
from ropewalk.texts.corpora import documents, split_of

from train.texts import text


def test_descriptions_are_those_of_installed_packages():
    found = {document.name: document.text for document in documents("all:descriptions")}
    assert found["purelib/ropewalk/METADATA"].startswith("# Ropewalk\n")  # our own README
    assert not any(text.startswith("Metadata-Version") for text in found.values())
    assert list(found) != sorted(found)  # the first are a sample of all


def test_a_package_without_a_name_has_no_description(tmp_path, monkeypatch):
    """Such as what an install that broke off leaves behind."""
    (tmp_path / "left_behind-1.0.dist-info").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    assert len(list(documents("all:descriptions"))) > 10


def test_prose_is_the_reference_of_the_language_and_the_descriptions():
    found = {document.name: document for document in documents("all:prose")}
    assert {document.text for document in documents("all:descriptions")} < {each.text for each in found.values()}
    topic = found["stdlib/pydoc_data/topics/compound"]
    assert topic.text == importlib.import_module("pydoc_data.topics").topics["compound"]
    assert topic.project == "stdlib/pydoc_data"  # whose file is of the standard library, and in one split with it
    assert topic.split == split_of("stdlib/pydoc_data/topics.py")


def test_prose_without_the_reference(monkeypatch):
    """Some distributions of Python leave it out."""
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", None)
    found = [document.name for document in documents("all:prose")]
    assert found == [document.name for document in documents("all:descriptions")]


def installed_as(root, files, monkeypatch):
    """The packages of this Python are these files."""
    for name, head in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{head}\n{text(len(name))}{name}")
    monkeypatch.setattr("ropewalk.texts.installed_texts.sysconfig.get_path", lambda kind: str(root))


HEADS = {
    "a/new.py": "# Copyright 2026 The authors.",
    "a/newer.py": '"""Something.\n\nCOPYRIGHT (c) 2027, 2028 by them"""',
    "b/sign.py": "# \u00a9 2026-2027 us",
    "b/last_year.py": "# Copyright 2025 The authors.",
    "b/range.py": "# Copyright (C) 2012-2026 The authors.",
    "c/copied.py": "# Copyright 2026 us\n# Copyright 2018 them",
    "c/of_others.py": "# Copyright 2026 us\n# some of it (C) 2019 them",
    "c/none.py": "# written in 2026",
    "c/number.py": "# Copyright us, part 12026",
    "c/late.py": "#\n" * 2000 + "# Copyright 2026 us",
}


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("recent", {"a/new", "a/newer", "b/sign"}),
        ("recent:2027", {"a/newer"}),
        ("recent:2025", {"a/new", "a/newer", "b/sign", "b/last_year"}),
    ],
)
def test_recent_sources_are_those_that_name_no_earlier_year(tmp_path, monkeypatch, source, found):
    installed_as(tmp_path, HEADS, monkeypatch)
    assert {each.name for each in documents(f"all:{source}")} == {f"purelib/{name}.py" for name in found}
    assert {each.project for each in documents(f"all:{source}")} <= {"purelib/a", "purelib/b"}


def test_no_recent_source(tmp_path, monkeypatch):
    installed_as(tmp_path, HEADS, monkeypatch)
    with pytest.raises(DoesNotFit, match="got 'all:recent:2030'; it has none at all"):
        list(documents("all:recent:2030"))


@pytest.mark.parametrize("year", ["soon", "26", "-2026", "20266", "\u0662\u0660\u0662\u0666"])
def test_a_year_is_four_digits(year):
    with pytest.raises(InvalidValue, match="corpus must be recent or recent:YEAR, as recent:2026"):
        list(documents(f"recent:{year}"))
