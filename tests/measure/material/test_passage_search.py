"""Texts that are longer than a corpus's documents: its files joined, project by project."""

import json
from collections import Counter
from dataclasses import replace
from itertools import islice
from random import Random

import pytest
from hypothesis import given, settings, strategies as st

from ropewalk.errors import DoesNotFit
from ropewalk.measure.material import passage_search as module
from ropewalk.measure.material.subject import Subject
from ropewalk.texts.corpora import documents, split_of
from ropewalk.train.data.packs import train_tokenizer

from measure.subjects import subject
from train.texts import text, tokenizer

LONG = 400  # tokens


def project_names(split, count):
    return list(islice((f"p{n}" for n in range(9999) if split_of(f"p{n}/x") == split), count))


def written(root, sizes, ending=".txt"):
    """Files by project and name, each with so many words; their texts."""
    texts = {}
    for number, (name, words) in enumerate(sizes.items()):
        path = root / f"{name}{ending}"
        path.parent.mkdir(parents=True, exist_ok=True)
        texts[f"{name}{ending}"] = text(1000 + number, words)
        path.write_text(texts[f"{name}{ending}"])
    return texts


def of(root, longest=LONG, **fields):
    return Subject(model=None, tokenizer=tokenizer(), corpus=f"all:folder:{root}", longest=longest, **fields)


def ids(words):
    return tokenizer().encode(words)


@pytest.mark.parametrize("ending", [".txt", ".py"])
def test_the_files_of_a_project_are_joined_in_the_order_of_their_paths(tmp_path, ending):
    """Those of a folder together, `a/z` before `a-b`; a source after a comment with its path."""
    order = ["a/b/x", "a/b/y", "a/z", "a-b/x", "b"]
    texts = written(tmp_path, {f"p/{name}": 60 for name in reversed(order)}, ending)
    head = "# {}\n" if ending == ".py" else ""
    whole = "".join(head.format(f"p/{name}{ending}") + texts[f"p/{name}{ending}"] + "\n" for name in order)
    assert LONG < len(ids(whole)) < 2 * LONG
    (got,) = of(tmp_path).passages(1)
    assert got.tolist() == ids(whole)[:LONG]
    with pytest.raises(DoesNotFit, match="it has 1; ask for fewer"):
        of(tmp_path).passages(2)


def test_a_large_project_gives_several_texts_that_share_no_document(tmp_path):
    texts = written(tmp_path, {f"p/{n:03}": 60 for n in range(100)})
    who = of(tmp_path)
    count = who.count(99)
    marks = [mark for passage in who._passages for mark in passage.joined]
    assert len(set(marks)) == len(marks) <= 100
    assert len(marks) > 90  # only the end of a project is left over
    names, begin = sorted(texts), 0
    for passage in who._passages:
        whole = "".join(texts[name] + "\n" for name in names[begin : begin + len(passage.joined)])
        assert passage.ids.tolist() == ids(whole)[:LONG]
        begin += len(passage.joined)
    assert count > 10
    assert who.projects(count) == ["p"] * count


def test_nothing_of_a_training_project_is_in_a_held_out_text(tmp_path):
    sizes = {f"{name}/{n}": 90 for name in project_names("train", 6) + project_names("held out", 6) for n in range(12)}
    written(tmp_path, sizes)
    who = replace(of(tmp_path), corpus=f"folder:{tmp_path}")
    assert who.count(99) >= 12
    held_out = {module.mark(document.text) for document in documents(who.corpus, "held out")}
    trained = {module.mark(document.text) for document in documents(who.corpus, "train")}
    joined = {mark for passage in who._passages for mark in passage.joined}
    assert trained
    assert joined <= held_out - trained
    assert {split_of(f"{project}/x") for project in who.projects(99)} == {"held out"}


def test_documents_that_are_long_enough_come_first_and_as_before(tmp_path):
    """Where they are of projects enough for an interval over projects."""
    long = {f"{name}/long{n}": 900 for name in "abcd" for n in range(2)}
    written(tmp_path / "before", long)
    written(tmp_path / "after", long | {f"{name}/{n}": 90 for name in "abcde" for n in range(20)})
    before, after = of(tmp_path / "before"), of(tmp_path / "after")
    assert before.count(99) == 8
    assert after.count(99) > 16
    first = {str(ids.tolist()) for ids in before.passages(8)}
    assert first == {str(ids.tolist()) for ids in after.passages(8)}
    joined = [passage.project for passage in after._passages[8:]]
    assert joined[:2] == ["e", "e"]  # it has none yet, and the others two


def test_joined_texts_of_other_projects_come_in_between_where_there_are_few(tmp_path):
    """Else eight texts might all be of one project, as long tables are."""
    long = {f"a/long{n}": 900 for n in range(8)}
    written(tmp_path, long | {f"{name}/{n}": 90 for name in "bcde" for n in range(20)})
    assert Counter(of(tmp_path).projects(10)) == dict.fromkeys("abcde", 2)


def test_shares_of_joined_texts_share_no_project(tmp_path):
    written(tmp_path, {f"{name}/{n}": 90 for name in "abcdefgh" for n in range(12)})
    halves = [of(tmp_path, every=2, first=first) for first in range(2)]
    one, other = (half.projects(half.count(99)) for half in halves)
    assert one
    assert len(set(one)) == len(set(other)) == 4
    assert not set(one) & set(other)


def test_what_another_subject_has_seen_is_not_joined(tmp_path):
    """Copies under other names among documents of others."""
    own = written(tmp_path / "own", {f"p/{n:02}": 90 for n in range(30)})
    written(tmp_path / "other", {f"q/{n:02}": 70 for n in range(30)})
    for name, words in own.items():
        (tmp_path / "other" / "q" / f"copy-{name.replace('/', '-')}").write_text(words)
    seen = of(tmp_path / "own").seen(2)
    free, careful = of(tmp_path / "other"), of(tmp_path / "other", without=seen)
    assert seen & {mark for passage in free._available(99) for mark in passage.joined}
    assert careful.count(99) > 5
    assert not seen & {mark for passage in careful._passages for mark in passage.joined}


def test_rows_are_not_joined(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps({"text": text(n, 90)}) + "\n" for n in range(50)))
    who = replace(subject(tmp_path), corpus=f"all:{path}", longest=LONG)
    assert who.count(1) == 0
    assert replace(who, longest=who.longest_of(20), _passages=[]).count(20) == 20


@pytest.mark.nightly
@settings(max_examples=25, deadline=None)
@given(
    sizes=st.lists(st.lists(st.integers(60, 500), min_size=1, max_size=9), min_size=1, max_size=6),
    count=st.integers(1, 9),
)
def test_the_longest_length_of_so_many_texts(sizes, count, tmp_path_factory):
    """There are so many of it, and not of one that is much longer; nothing is read again for it."""
    folder = tmp_path_factory.mktemp("sizes")
    written(folder, {f"p{p}/{n}": words for p, project in enumerate(sizes) for n, words in enumerate(project)})
    who = of(folder, longest=100_000)
    assert who.count(count) == 0
    length = who.longest_of(count)
    there = sum(map(len, sizes))
    assert (length == 0) == (count > there)  # a document is in one text at most
    if length:
        assert of(folder, longest=length).count(count) == count
        assert of(folder, longest=length * 2).count(count) < count
        with pytest.raises(DoesNotFit, match=rf"it has 0; .* shorter length \(at most {length:,} tokens\)"):
            who.passages(count)
    assert who._search.read == there


def test_fewer_texts_than_asked_for_at_every_length(tmp_path):
    written(tmp_path, {"p/a": 100, "p/b": 100})
    one = of(tmp_path, longest=1000).longest_of(1)
    assert 150 < one <= len(ids(text(1000, 100) + "\n" + text(1001, 100)))
    with pytest.raises(DoesNotFit, match=rf"it has 0; .* shorter length \(one text has {one} tokens\)"):
        of(tmp_path, longest=1000).passages(3)


def test_what_is_kept_for_joining_is_bounded(tmp_path, monkeypatch):
    """A folder may be larger than the memory."""
    written(tmp_path, {f"p{n % 5}/{n}": 90 for n in range(200)})
    every = of(tmp_path).count(999)
    monkeypatch.setattr(module, "KEPT_BYTES", 20_000)
    few = of(tmp_path)
    assert 0 < few.count(999) < every / 3
    assert sum(len(document.text) for series in few._search._series.values() for document in series) < 21_000


CODE = "def {0}_{1}(self, {2}: int, {1}: str) -> {0}:\n    return self.{2}[{1}] if {0} else {3}()\n\n\n"
NAMES = "model layer cache token weight result value index state config batch length query".split()  # noqa: SIM905


def test_texts_of_32k_tokens_from_files_of_a_few_thousand_characters(tmp_path):
    """As real models read them: about four characters to a token."""
    random = Random(0)
    for project in "abcd":
        (tmp_path / project).mkdir()
        for n in range(70):
            lines = (CODE.format(*random.sample(NAMES, 4)) for _ in range(60))
            (tmp_path / project / f"{n:02}.py").write_text("".join(lines))
    whole = "".join(path.read_text() for path in sorted((tmp_path / "a").iterdir()))
    own = train_tokenizer([whole[:50_000]], size=600)
    assert 3 < len(whole[:50_000]) / len(own.encode(whole[:50_000])) < 7
    who = Subject(model=None, tokenizer=own, corpus=f"all:folder:{tmp_path}", longest=32_768)
    assert sorted(who.projects(4)) == list("abcd")
    assert [len(ids) for ids in who.passages(4)] == [32_768] * 4
    assert who._search.tokenised == 0  # no file alone
    assert own.decode(who.passages(1)[0][:8]).startswith("# ")


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("corpus", "longest"), [("all:stdlib", 32_768), ("all:stdlib", 131_072), ("all:prose", 16_384)]
)
def test_what_every_python_has_is_enough_for_eight_long_texts(corpus, longest):
    """Of at least four projects, so that there is an interval over projects; most documents are not tokenised."""
    some = "".join(document.text for document in documents("all:stdlib", most=1_000_000))
    own, given = train_tokenizer([some], size=8000), []

    def counting(words, **options):
        given.append(len(words))
        return own(words, **options)

    counting.is_fast = True
    who = Subject(model=None, tokenizer=counting, corpus=corpus, longest=longest)
    texts = who.passages(8)
    assert [len(ids) for ids in texts] == [longest] * 8
    assert len(set(who.projects(8))) >= 4
    assert len({str(ids.tolist()) for ids in texts}) == 8
    assert sum(given) < 60_000_000
