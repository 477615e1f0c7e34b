"""Sources of text, and their splits."""

import hashlib
import json
import os
import re
import textwrap
import tracemalloc
from collections import Counter
from itertools import islice
from random import Random

import pytest
from datasets import Dataset
from hypothesis import given, settings, strategies as st

from ropewalk.errors import DoesNotFit, InvalidValue, RopewalkError, Unreadable
from ropewalk.texts import corpora
from ropewalk.texts.corpora import ONE_IN, documents, project_of, projects_in_turn, split_of

from train.texts import WORDS, folder_of, text


def test_every_document_is_in_one_split(tmp_path):
    source = folder_of(tmp_path)
    train, held_out, every = (list(documents(source, split)) for split in ("train", "held out", None))
    assert {each.name for each in every} == {f"{n:03}.txt" for n in range(40)}
    assert sorted([*train, *held_out]) == sorted(every)
    assert all(split_of(each.name) == "train" for each in train)


@pytest.mark.parametrize(
    ("name", "project"),
    [
        ("stdlib/json/decoder.py", "stdlib/json"),
        ("stdlib/test/test_json/test_scanstring.py", "stdlib/json"),
        ("stdlib/test/test_heapq.py", "stdlib/heapq"),
        ("stdlib/heapq.py", "stdlib/heapq"),
        ("stdlib/_weakrefset.py", "stdlib/weakrefset"),
        ("purelib/torch/nn/modules/linear.py", "purelib/torch"),
        ("purelib/six.py", "purelib/six"),
        ("some/folder/file.txt", "some"),
        ("file.txt", "file.txt"),
        ("C#/program.txt", "C#"),
        ("C#/part/program.txt", "C#"),
        ("notes#12.txt", "notes#12.txt"),
    ],
)
def test_a_module_and_its_tests_are_one_project(name, project):
    assert project_of(name) == project


def rows_in(path, texts):
    """A file of rows, by its ending, or a data set's folder; as a source."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps({"text": each}) + "\n" for each in texts))
        return str(path)
    Dataset.from_dict({"text": texts}).to_parquet(str(path))
    return str(path) if path.parent.name != "hub" else f"hub:{path.parent}:text"


ROWS = [text(n) for n in range(400)]


@pytest.mark.sampled(cases=2)
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 999), name=st.sampled_from(["a", "b", "C#", "x#7"]))
@pytest.mark.parametrize("place", ["{}.jsonl", "{}.parquet", "{}/c.jsonl", "hub/{}.parquet"])
def test_a_row_is_in_one_split_whatever_its_file_is_called_and_wherever_it_stands(place, seed, name, tmp_path_factory):
    folder = tmp_path_factory.mktemp("rows")
    source, first = (
        rows_in(folder / place.format(name), Random(seed).sample(ROWS, 400)),
        rows_in(folder / "1.jsonl", ROWS),
    )
    train, held_out = ({each.text for each in documents(source, split)} for split in ("train", "held out"))
    assert train | held_out == set(ROWS)
    assert not train & held_out
    assert held_out == {each.text for each in documents(first, "held out")}
    assert len(held_out) == pytest.approx(400 / ONE_IN, abs=12)  # 2.5 standard deviations
    assert len({each.project for each in documents(source)}) == 400


def test_a_number_sign_in_a_path_marks_no_row(tmp_path):
    """A folder C# is one project, as any other."""
    for nth, name in enumerate(("C#", "b#1", "c")):
        (tmp_path / name).mkdir()
        for n in range(30):
            (tmp_path / name / f"{n}#{n}.txt").write_text(text(30 * nth + n))
    for name in ("C#", "b#1", "c"):
        found = [each for each in documents(f"folder:{tmp_path}") if each.name.startswith(f"{name}/")]
        assert {each.project for each in found} == {name}
        assert {each.split for each in found} == {split_of(f"{name}/0.txt")}


@pytest.mark.parametrize("source", ["stdlib", "folder"])
def test_no_project_is_in_both_splits(source, tmp_path):
    if source == "folder":
        source = folder_of(tmp_path, 200)
        for path in list(tmp_path.rglob("*.txt")):
            place = path.with_name(str(int(path.stem) // 2)) / path.name  # two to a folder
            place.parent.mkdir(exist_ok=True)
            path.rename(place)
    train, held_out = ({each.project for each in documents(source, split)} for split in ("train", "held out"))
    assert train
    assert held_out
    assert not train & held_out


def test_what_stands_in_the_training_part_is_not_held_out(tmp_path):
    """A copy with another head, and a text that only quotes a line."""
    names = (f"{n}.txt" for n in range(10**6))
    held_out = list(islice((name for name in names if split_of(name) == "held out"), 2))
    lines = [f"A line of text that has its number, {n}, and is long enough to count." for n in range(40)]
    trained = next(f"{n}.txt" for n in range(10**6) if split_of(f"{n}.txt") == "train")
    (tmp_path / trained).write_text("\n".join(lines))
    (tmp_path / held_out[0]).write_text("\n".join(["Another head.", *lines]))
    own = [line.replace("its number", "a number") for line in lines]
    (tmp_path / held_out[1]).write_text("\n".join([*own, lines[0]]))
    assert [each.name for each in documents(f"folder:{tmp_path}", "held out")] == [held_out[1]]
    assert len(list(documents(f"folder:{tmp_path}", "train"))) == 1


def of_width(width):
    return lambda words, mark: textwrap.fill(" ".join([*words, mark]), width)


LAYOUTS = {
    "one line": of_width(10**6),
    "a poem": of_width(30),  # no line is long
    "short lines of every width": lambda words, mark: textwrap.fill(" ".join([mark, *words]), 30 + int(mark) % 9),
    "every line has its number": lambda words, mark: re.sub(r"(?m)$", f" {mark}", textwrap.fill(" ".join(words), 100)),
    "without spaces": lambda words, mark: "".join([*words, mark]),
    "Chinese": lambda words, mark: "".join(chr(0x4E00 + hash_of(word) % 9000) for word in words * 5) + mark,
    "spaces of every kind": lambda words, mark: "\u00a0 ".join([*words, mark]),
}


def hash_of(word):
    return int(hashlib.sha256(word.encode()).hexdigest()[:8], 16)


@pytest.mark.sampled(cases=4)
@settings(deadline=None, max_examples=4)
@given(seed=st.integers(0, 999), begin=st.booleans())
@pytest.mark.parametrize("layout", LAYOUTS)
def test_rows_that_differ_in_a_number_are_copies_however_their_lines_break(layout, seed, begin, tmp_path_factory):
    """Rows of one template are in both parts; none of them may be measured on. Rows of their own may."""
    random = Random(seed)
    template = random.choices([f"{one}{other}" for one in WORDS for other in WORDS], k=60)
    rows = [LAYOUTS[layout](template, str(1000 + n)) for n in range(200)]
    unlike = [text(1000 * seed + n) for n in range(200)]
    source = rows_in(tmp_path_factory.mktemp("rows") / "some.jsonl", [*unlike, *rows] if begin else [*rows, *unlike])
    assert {each.text for each in documents(source, "train")} & set(rows)
    held_out = {each.text for each in documents(source, "held out")}
    assert held_out == {each.text for each in documents(f"all:{source}") if each.split == "held out"} - set(rows)
    assert held_out


@pytest.mark.parametrize("swapped", [False, True])
def test_copies_are_told_from_documents_of_the_same_name_elsewhere(tmp_path, swapped):
    held_out = next(name for name in (f"{n}.txt" for n in range(10**6)) if split_of(name) == "held out")
    trained = next(name for name in (f"{n}.txt" for n in range(10**6)) if split_of(name) == "train")
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
    lines = "\n".join(f"A line of text that has its number, {n}, and is long enough to count." for n in range(40))
    (tmp_path / "a" / trained).write_text(lines)
    (tmp_path / "a" / held_out).write_text(f"Another head.\n{lines}")
    (tmp_path / "b" / held_out).write_text(text(1))
    parts = [f"folder:{tmp_path / folder}" for folder in ("ba" if swapped else "ab")]
    assert [each.text for each in documents("+".join(parts), "held out")] == [text(1)]


def test_several_sources_in_turns_of_equally_many_characters(tmp_path):
    small, large = folder_of(tmp_path / "a", 10), folder_of(tmp_path / "b", 40)
    for source in (f"{small}+{large}", f"{large}+{small}"):
        all_texts = [document.text for document in documents(source, "train", most=10**9)]
        half = sum(map(len, (document.text for document in documents(small, "train"))))
        few = [document.text for document in documents(source, "train", most=half)]
        assert set(all_texts) == {d.text for part in (small, large) for d in documents(part, "train")}
        own = {document.text for document in documents(small, "train")}
        share = sum(len(each) for each in few if each in own) / sum(map(len, few))
        assert share == pytest.approx(0.5, abs=0.1)


def test_a_folder_may_have_a_plus_sign_in_its_name(tmp_path):
    source, other = folder_of(tmp_path / "c++", 5), folder_of(tmp_path / "d", 3, words=60)
    assert len(list(documents(f"all:{source}"))) == 5
    assert len(list(documents(f"all:{source}+{other}"))) == len(list(documents(f"all:{other}+{source}"))) == 8


def test_a_folder_is_not_read_in_the_order_of_its_paths(tmp_path):
    """The first documents would be those of one project."""
    names = [document.name for document in documents(f"all:{folder_of(tmp_path)}")]
    assert names != sorted(names)
    assert sorted(names) == [f"{n:03}.txt" for n in range(40)]


def test_all_of_a_source_with_the_prefix_all(tmp_path):
    source = folder_of(tmp_path, 5)
    assert len(list(documents(f"all:{source}", "held out"))) == len(list(documents(f"all:{source}", "train"))) == 5
    small = folder_of(tmp_path / "small", 3)
    with pytest.raises(DoesNotFit, match=r"one project in 16 is held out.*or all:folder:.* if the model was not"):
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
    some = list(documents(folder_of(tmp_path), most=2000))
    assert sum(len(each.text) for each in some[:-1]) < 2000 <= sum(len(each.text) for each in some)


def test_the_standard_library_is_there_in_the_same_order():
    first = list(islice(documents("stdlib"), 5))
    assert [each.name for each in first] == [each.name for each in islice(documents("stdlib"), 5)]
    assert all(each.name.startswith("stdlib/") and "site-packages" not in each.name for each in first)


def test_lines_of_json(tmp_path):
    path = tmp_path / "some.jsonl"
    path.write_text("".join(json.dumps({"content": text(n)}) + "\n" for n in range(3)))
    assert [each.text for each in documents(str(path))] == [text(n) for n in range(3)]


BLANK = st.text(" \t\r\x0b\x0c", max_size=3)


@settings(deadline=None)  # files are written
@given(blanks=st.lists(st.tuples(BLANK, BLANK, BLANK), min_size=4, max_size=4))
def test_lines_of_white_space_are_no_rows(blanks, tmp_path_factory):
    """Wherever they stand: editors leave one at the end."""
    path = tmp_path_factory.mktemp("blank") / "some.jsonl"
    rows = [json.dumps({"text": text(n)}) for n in range(3)]
    lines = [line for row, before in zip([*rows, ""], blanks, strict=True) for line in (*before, row)]
    path.write_bytes("\n".join(lines).encode())
    assert [each.text for each in documents(str(path))] == [text(n) for n in range(3)]
    path.write_bytes("\n".join([*lines, "garbage"]).encode())
    with pytest.raises(Unreadable, match=f"line {len(lines) + 1} "):  # counted as editors count
        list(documents(str(path)))


TEXTS_OF_FIELDS = st.dictionaries(
    st.sampled_from(["text", "content", "document", "body"]), st.sampled_from(["", " \n", None, 5, text(1), text(2)])
)


@settings(deadline=None)  # files are written
@given(row=TEXTS_OF_FIELDS)
def test_the_text_of_a_row_is_the_first_that_is_not_empty(row, tmp_path_factory):
    path = tmp_path_factory.mktemp("fields") / "some.jsonl"
    path.write_text(json.dumps(row) + "\n" + json.dumps({"text": text(3)}) + "\n")
    texts = [row[name] for name in ("text", "content", "document", "body") if isinstance(row.get(name), str)]
    if not texts:
        with pytest.raises(Unreadable, match="one with text under text or content"):
            list(documents(str(path)))
        return
    full = [each for each in texts if each.strip()]
    assert [each.text for each in documents(str(path))] == [*full[:1], text(3)]


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
    with pytest.raises(DoesNotFit, match=r"documents of at least 200 characters, got 'folder:.*; it has none at all"):
        list(documents(f"folder:{tmp_path}"))


def test_nothing_to_read_is_said_with_its_reason(tmp_path):
    """Each reason alone, and all together."""
    names = {split: [f"{n}.txt" for n in range(99) if split_of(f"{n}.txt") == split] for split in ("train", "held out")}
    lines = "\n".join(f"A line of text that has its number, {n}, and is long enough to count." for n in range(40))
    source = f"folder:{tmp_path}"

    def refused(split):
        with pytest.raises(DoesNotFit) as error:
            list(documents(source, split))
        return str(error.value).partition("; ")[2].partition(";")[0]

    for n in range(3):
        (tmp_path / names["held out"][n]).write_text("too short" * n)
    assert refused("held out") == refused("train") == "it has 3 that are shorter"
    (tmp_path / names["train"][0]).write_text(lines)
    assert refused("held out") == "it has 3 that are shorter, 1 in its train part"
    (tmp_path / names["held out"][0]).write_text(f"Another head.\n{lines}")
    assert refused("held out") == "it has 2 that are shorter, 1 in its train part, 1 near copies of these"


@pytest.mark.parametrize("kind", ["folder", "jsonl", "parquet"])
def test_a_whole_book_is_a_document(kind, tmp_path):
    book = "".join(
        f"Sentence {n} of a book of two million and four hundred thousand characters.\n" for n in range(32_000)
    )
    assert len(book) > 2_400_000
    if kind == "folder":
        (tmp_path / "book.txt").write_text(book)
    source = f"folder:{tmp_path}" if kind == "folder" else rows_in(tmp_path / f"books.{kind}", [book])
    assert [each.text for each in documents(f"all:{source}")] == [book]


@settings(deadline=None)
@given(
    sizes=st.lists(st.integers(1, 2500), min_size=1, max_size=4),
    kind=st.sampled_from(["folder", "jsonl"]),
    end=st.sampled_from(["\n", "\r\n"]),
)
def test_what_is_too_long_is_cut_and_nothing_lost(sizes, kind, end, tmp_path_factory):
    """Into documents of one project, each with a name of its own."""
    folder, lines = tmp_path_factory.mktemp("long"), ("".join(map(chr, range(97, 123))) * 100).split("e")
    texts = [f"{n}{end}{end.join(lines)}"[:size] for n, size in enumerate(sizes)]
    for n, each in enumerate(texts):
        (folder / f"{n}.txt").write_bytes(each.encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(corpora, "LONGEST_TEXT", 700)
        source = f"folder:{folder}" if kind == "folder" else rows_in(folder / "some.jsonl", texts)
        try:
            found = list(documents(f"all:{source}"))
        except DoesNotFit:
            found = []
    assert max((len(each.text) for each in found), default=0) <= 700
    assert len({each.name for each in found}) == len(found)
    whole = [each.replace("\r\n", "\n").replace("\r", "\n") if kind == "folder" else each for each in texts]
    pieces = [each[n : n + 700] for each in whole for n in range(0, len(each), 700)]
    assert {each.text for each in found} == {piece for piece in pieces if len(piece) >= 200}
    assert len({each.project for each in found}) <= len(set(whole))
    assert kind == "jsonl" or all(each.name.startswith(each.project) for each in found)


def test_the_pieces_of_a_file_are_read_one_by_one(tmp_path, monkeypatch):
    """A file may be larger than the memory."""
    monkeypatch.setattr(corpora, "LONGEST_TEXT", 1000)
    with (tmp_path / "large.txt").open("w") as file:
        file.writelines(f"{n}\n" for n in range(1_000_000))
    tracemalloc.start()
    found = sum(1 for _ in documents(f"all:folder:{tmp_path}"))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found == -(-(tmp_path / "large.txt").stat().st_size // 1000)
    assert peak < 4_000_000  # of a file of 6.9 million: what is kept are the marks and the names of the pieces


def test_rows_without_text(tmp_path):
    path = tmp_path / "some.jsonl"
    path.write_text('{"words": "none"}\n')
    with pytest.raises(Unreadable, match="text or content"):
        list(documents(str(path)))
    path.write_text('{"text": "never closed\n')
    with pytest.raises(Unreadable, match="line 1"):
        list(documents(str(path)))


BAD_NAMES = [
    "null\0byte",
    "half a pair \ud800",
    "x" * 300,
    "/".join(["y" * 200] * 40),
    "~nobody-of-this-name/x",
    "missing",
]
KINDS = ["folder:{}", "{}.jsonl", "{}.parquet", "all:folder:{}", "all:{}.parquet", "{}"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", BAD_NAMES, ids=ascii)
def test_names_that_no_file_can_have(kind, name):
    with pytest.raises(RopewalkError, match="corpus must be"):
        list(documents(kind.format(name)))


def test_what_is_of_the_wrong_kind(tmp_path):
    for name in ("a.jsonl", "a.parquet"):
        (tmp_path / name).mkdir()
        with pytest.raises(Unreadable, match="corpus must be"):
            list(documents(str(tmp_path / name)))
    (tmp_path / "file").touch()
    with pytest.raises(Unreadable, match="corpus must be a folder"):
        list(documents(f"folder:{tmp_path / 'file'}"))


@pytest.mark.parametrize(
    "line",
    [
        b"[" * 100_000,
        b'{"text": "\xff"}',
        b"\0",
        b'{"text": "x", "n": ' + b"9" * 5000 + b"}",
        b"\xc2\xa0",  # white space for Python's str, and for JSON none
        b"{} {}",
        b"5",
        b"null",
    ],
    ids=range(8),
)
def test_lines_that_are_no_documents_are_named(tmp_path, line):
    path = tmp_path / "some.jsonl"
    path.write_bytes(json.dumps({"text": text(0)}).encode() + b"\n" + line + b"\n")
    with pytest.raises(Unreadable, match=r"some\.jsonl, line 2|a row of .*some\.jsonl"):
        list(documents(str(path)))


def test_half_of_a_pair_of_surrogates_is_no_text(tmp_path):
    """No tokenizer reads it, so the error must say where it is."""
    path = tmp_path / "some.jsonl"
    path.write_text(json.dumps({"text": text(0)}) + "\n" + json.dumps({"text": text(1) + "\ud800"}) + "\n")
    with pytest.raises(Unreadable, match=r"some\.jsonl#1 must be text, got '\\ud800'; a lone surrogate"):
        list(documents(str(path)))
    path.write_text(json.dumps({"text": text(1) + "\U0001f600"}) + "\n")  # which JSON writes as a whole pair
    assert len(list(documents(str(path)))) == 1


def test_a_file_may_have_bytes_for_a_name(tmp_path):
    (tmp_path / os.fsdecode(b"\xff.txt")).write_text(text(0))
    (found,) = documents(f"folder:{tmp_path}")
    assert split_of(found.name) in ("train", "held out")
    assert split_of("\xe9") == split_of("\xe9")


@pytest.mark.nightly
def test_garbage_for_parquet(tmp_path):
    """Any byte of a file may be another: it is read, or refused by name."""
    path = tmp_path / "some.parquet"
    Dataset.from_dict({"text": [text(n) for n in range(3)]}).to_parquet(str(path))
    good, random = path.read_bytes(), Random(0)
    broken = [b"", b"garbage", b"PAR1garbagePAR1", good[:-1], good[: len(good) // 2]]
    for _ in range(60):
        place = random.randrange(len(good))
        broken.append(good[:place] + bytes([random.randrange(256)]) + good[place + 1 :])
    refused = 0
    for each in broken:
        path.write_bytes(each)
        try:
            list(documents(str(path)))
        except RopewalkError:
            refused += 1
    assert refused >= 5


@pytest.mark.parametrize("source", ["hub:", "hub:/no/such/place", "hub:{}:words", "hub:{}:number"])
def test_data_sets_that_are_none(tmp_path, source):
    Dataset.from_dict({"text": [text(0)], "number": [1]}).to_parquet(str(tmp_path / "some.parquet"))
    with pytest.raises(Unreadable, match=r"corpus must be an existing data set|text under (words|number)"):
        list(documents(source.format(tmp_path)))


KINDS = st.sampled_from(["stdlib", "purelib"])
NAMES = st.builds("{}/{}/{}.py".format, KINDS, st.sampled_from("abcd"), st.integers(0, 9))


@given(st.lists(NAMES, max_size=30))
def test_projects_come_in_turn(names):
    """Every item once; the n-th item of a project only after the n-1-th of every project that has one."""
    got = list(projects_in_turn((project_of(name), place) for place, name in enumerate(names)))
    assert sorted(place for _, place in got) == list(range(len(names)))
    assert all(project_of(names[place]) == project for project, place in got)
    rounds, seen = [], Counter[str]()
    for project, place in got:
        assert place == [n for n, name in enumerate(names) if project_of(name) == project][seen[project]]
        rounds.append(seen[project])
        seen[project] += 1
    assert rounds == sorted(rounds)


def test_a_stream_of_projects_is_read_only_as_far_as_asked():
    read = []

    def stream():
        for n in range(10**9):
            read.append(n)
            yield f"{n}.txt", n

    assert [item for _, item in islice(projects_in_turn(stream()), 3)] == [0, 1, 2]
    assert read == [0, 1, 2]


def test_all_is_not_advised_where_nothing_else_could_be_read(tmp_path):
    """A folder of short texts has none under another name either."""
    (tmp_path / "a.txt").write_text("short")
    with pytest.raises(DoesNotFit, match=r"1 that are shorter; give another$"):
        list(documents(f"folder:{tmp_path}", "held out"))
