"""A tokenised corpus on a disk without room, and one that was changed."""

import pytest
from full_disk import room

from ropewalk.errors import DoesNotFit, RopewalkError
from ropewalk.texts.corpora import documents
from ropewalk.train.data import tokens as module
from ropewalk.train.data.tokens import tokenise

from train.texts import folder_of, tokenizer


def every(path):
    found = tokenise(folder_of(path / "texts"), "train", tokenizer(), path / "kept")
    return [found[index].tolist() for index in range(len(found))]


def test_a_full_disk_is_one_line_and_leaves_nothing_that_is_read_again(tmp_path):
    with (
        room(2000),
        pytest.raises(DoesNotFit, match=r"disk must be large enough to write to .*kept, got 'File too large"),
    ):
        every(tmp_path)
    assert not [each for each in (tmp_path / "kept").rglob("*") if each.is_file() and each.stat().st_size]
    assert len(every(tmp_path)) > 30


@pytest.mark.parametrize("most", [1, 2000, 10**9])
def test_documents_are_tokenised_few_at_a_time_where_they_are_long(tmp_path, monkeypatch, most):
    """A batch of books would not fit into memory; what is tokenised does not depend on it."""
    batches = []
    encoded = module._encode
    monkeypatch.setattr(module, "CHARACTERS", most)
    monkeypatch.setattr(module, "_encode", lambda texts, _: batches.append(texts) or encoded(texts, tokenizer()))
    found = every(tmp_path)
    assert found == [
        [*tokenizer().encode(each.text), tokenizer().eos_token_id]
        for each in documents(folder_of(tmp_path / "texts"), "train")
    ]
    assert all(sum(map(len, batch[:-1])) < most for batch in batches)
    assert (len(batches) <= 2) == (most > 10**6)


def test_a_tokenizer_without_an_end_token_is_refused_by_name(tmp_path):
    endless = tokenizer.__wrapped__()
    endless.eos_token = None
    with pytest.raises(DoesNotFit, match="tokenizer must be one with an end token"):
        tokenise(folder_of(tmp_path / "texts"), "train", endless, tmp_path / "kept")


def test_a_corpus_that_was_changed_is_refused_by_name(tmp_path):
    whole = every(tmp_path)
    files = [each for each in (tmp_path / "kept").rglob("*") if each.is_file() and each.stat().st_size]
    assert any(each.suffix == ".arrow" for each in files)
    for file in files:
        good = file.read_bytes()
        for content in (b"", b"garbage", good[: len(good) // 2], b"[" * 100_000):
            file.write_bytes(content)
            try:
                assert every(tmp_path) == whole  # of what is in that file nothing is asked
            except RopewalkError as refused:
                assert "tokenised again" in str(refused)  # noqa: PT017
        file.write_bytes(good)
    assert every(tmp_path) == whole
