"""Sources of text, and their splits."""

import json
from itertools import islice

import pytest
from datasets import Dataset

from ropewalk.corpora import ONE_IN, documents, split_of
from ropewalk.errors import DoesNotFit, InvalidValue, Unreadable

from lab.texts import folder_of, text


def test_every_document_is_in_one_split(tmp_path):
    source = folder_of(tmp_path)
    train, held_out, every = (list(documents(source, split)) for split in ("train", "held out", None))
    assert {each.name for each in every} == {f"{n:03}.txt" for n in range(40)}
    assert sorted([*train, *held_out]) == sorted(every)
    assert all(split_of(each.name) == "train" for each in train)


def test_all_of_a_source_where_it_is_said(tmp_path):
    source = folder_of(tmp_path, 5)
    assert len(list(documents(f"all:{source}", "held out"))) == len(list(documents(f"all:{source}", "train"))) == 5
    small = folder_of(tmp_path / "small", 3)
    with pytest.raises(DoesNotFit, match=r"one document in 16 is held out, by its name.*or all:folder:.* where"):
        list(documents(small, "held out"))


def test_one_in_sixteen_is_held_out_wherever_it_lies():
    names = [f"stdlib/{n}.py" for n in range(8000)]
    share = sum(split_of(name) == "held out" for name in names) / len(names)
    assert share == pytest.approx(1 / ONE_IN, rel=0.15)
    assert split_of("stdlib/argparse.py") == "train"  # by the name alone, so it stays so on any machine
    assert split_of("stdlib/heapq.py") == split_of("stdlib/heapq.py")


def test_a_text_comes_once(tmp_path):
    source = folder_of(tmp_path, 3)
    (tmp_path / "copy.txt").write_text(text(0))
    assert len(list(documents(source))) == 3


def test_so_many_characters_at_most(tmp_path):
    source = folder_of(tmp_path)
    some = list(documents(source, most=2000))
    assert sum(len(each.text) for each in some[:-1]) < 2000 <= sum(len(each.text) for each in some)


def test_the_standard_library_is_there_in_the_same_order():
    first = list(islice(documents("stdlib"), 5))
    assert [each.name for each in first] == [each.name for each in islice(documents("stdlib"), 5)]
    assert all(each.name.startswith("stdlib/") and "site-packages" not in each.name for each in first)


def test_lines_of_json(tmp_path):
    path = tmp_path / "some.jsonl"
    path.write_text("".join(json.dumps({"content": text(n)}) + "\n" for n in range(3)))
    assert [each.text for each in documents(str(path))] == [text(n) for n in range(3)]


def test_parquet_and_the_way_of_the_hub(tmp_path):
    rows = Dataset.from_dict({"text": [text(n) for n in range(3)], "other": ["x"] * 3})
    rows.to_parquet(str(tmp_path / "some.parquet"))
    assert [each.text for each in documents(str(tmp_path / "some.parquet"))] == [text(n) for n in range(3)]
    assert [each.text for each in documents(f"hub:{tmp_path}:text")] == [text(n) for n in range(3)]


@pytest.mark.parametrize(
    ("source", "error", "words"),
    [
        ("nonsense", InvalidValue, "one of python, stdlib"),
        ("", InvalidValue, "one of python, stdlib"),  # and not the folder one happens to be in
        ("folder:", Unreadable, "a path that exists"),
        ("folder:/no/such/place", Unreadable, "a path that exists"),
        ("missing.jsonl", Unreadable, "a path that exists"),
    ],
)
def test_sources_that_are_none(source, error, words):
    with pytest.raises(error, match=words):
        list(documents(source))


def test_an_empty_folder(tmp_path):
    with pytest.raises(DoesNotFit, match="documents of at least"):
        list(documents(f"folder:{tmp_path}"))


def test_rows_without_text(tmp_path):
    path = tmp_path / "some.jsonl"
    path.write_text('{"words": "none"}\n')
    with pytest.raises(Unreadable, match="text or content"):
        list(documents(str(path)))
    path.write_text('{"text": "never closed\n')
    with pytest.raises(Unreadable, match="line 1"):
        list(documents(str(path)))
