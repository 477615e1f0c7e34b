"""Whatever a model reads begins as its tokenizer begins a text: Llama, Gemma and Mistral are never used otherwise."""

from contextlib import contextmanager
from copy import deepcopy
from functools import cache

import pytest
import torch
from hypothesis import given, strategies as st
from tokenizers import processors

from ropewalk.hf.checkpoint.tokens import add_begin_tokens, begin_tokens
from ropewalk.measure.diagnostics.diagnosis import measure_sides
from ropewalk.measure.material.subject import Subject
from ropewalk.measure.metrics.perplexity import strided_losses
from ropewalk.measure.metrics.streaming import long_text
from ropewalk.measure.tasks import ALL, ManyContexts, QuantisedCache, Ruler, StreamEval
from ropewalk.search.far_tokens import FarLoss, FarTokens
from ropewalk.search.gradients import MeasuredGradients
from ropewalk.texts.corpora import Document
from ropewalk.train.data.packs import PackedRows
from ropewalk.train.data.puzzles import QuestionAnswer, asker
from ropewalk.train.data.tokens import tokenise
from ropewalk.train.recipes.long_instruct import AnsweredRows

from measure.subjects import model
from train.texts import folder_of, text, tokenizer

LONGEST, TRAINED, SHORTEST = 1000, 256, 40
LAST = 16
MARK = 0  # a token that text does not have


@cache
def beginning(times=1, ends=False):
    """The tests' tokenizer, which now puts its first token before every text, and another one after it."""
    made = deepcopy(tokenizer())
    begin, end = made.convert_ids_to_tokens([MARK, 1])
    whole = " ".join([*[begin] * times, "$A", *[end] * ends])
    specials = [(begin, MARK), (end, 1)]
    made.backend_tokenizer.post_processor = processors.TemplateProcessing(single=whole, special_tokens=specials)
    return made


@contextmanager
def listening(read):
    """Every row of tokens that the model reads."""

    handle = model().get_input_embeddings().register_forward_pre_hook(lambda _, args: read.extend(args[0].tolist()))
    try:
        yield
    finally:
        handle.remove()


@pytest.fixture(scope="module")
def subject(tmp_path_factory):
    source = folder_of(tmp_path_factory.mktemp("begin") / "texts", count=120, words=900)
    model().config.max_position_embeddings = TRAINED
    yield Subject(model=model(), tokenizer=beginning(), corpus=source, longest=LONGEST)
    model().config.max_position_embeddings = 32


def require_begun(read):
    """Shorter rows are answers, read token by token, and what a model is probed with."""
    rows = [row for row in read if len(row) >= SHORTEST]
    assert rows
    for row in rows:
        assert row[0] == MARK
        assert MARK not in row[1:]


SHAPED = {ManyContexts: {"piece": 128}, StreamEval: {"every": 2, "back": 2}, Ruler: {"kind": "niah_single_1"}}
SHAPED[QuantisedCache] = {"kind": "int8", "questions": 0}  # questions follow a text through its cache
TASKS = [task(samples=1, **SHAPED.get(task, {})) for task in ALL]
TASKS += [FarTokens(samples=1, last=LAST), FarLoss(samples=1, last=LAST, places=((1, 5),))]
TASKS += [MeasuredGradients(samples=1, last=LAST)]


@pytest.mark.sampled(cases=5)
@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.title)
def test_every_task_reads_texts_that_begin(subject, task, tmp_path):
    read = []
    with subject.under(subject.own.extension), listening(read):
        ready = task.prepared(subject, tmp_path) if task.name != "longppl" else task
        ready.measure(subject, ready.at([LONGEST], TRAINED)[-1], 0)
    require_begun(read)
    assert max(map(len, read)) <= LONGEST


@pytest.mark.nightly
def test_a_diagnosis_reads_texts_that_begin(subject):
    read = []
    with listening(read):
        measure_sides(subject, "yarn", texts=1)
    whole = [row for row in read if len(row) == LONGEST]  # others are continued through a cache
    assert whole
    require_begun(whole)


def test_a_stream_begins_once():
    text = long_text(beginning(), "stdlib", 3000)
    assert len(text.ids) == 3000
    assert (text.ids == MARK).nonzero().flatten().tolist() == [0]
    assert torch.equal(text.ids[1:], long_text(tokenizer(), "stdlib", 3000).ids[:-1])


def test_documents_to_train_on_begin(tmp_path):
    source = folder_of(tmp_path / "texts", count=20)
    begin, plain = (tokenise(source, "train", made, tmp_path / "corpus") for made in (beginning(), tokenizer()))
    assert len(begin) == len(plain)
    for document, bare in zip(begin, plain, strict=True):
        assert document.tolist() == [MARK, *bare.tolist()]


def test_puzzles_to_train_on_begin(tmp_path):
    corpus = tokenise(folder_of(tmp_path / "texts"), "train", beginning(), tmp_path / "corpus")
    rows, plain = (
        PackedRows(corpus, made, length=64, count=20, puzzles={"passkey": 0.5, "recall": 0.5})
        for made in (beginning(), tokenizer())
    )
    for row, other in ((rows[n], plain[n]) for n in range(20)):
        first = row["position_ids"] == 0
        assert (row["input_ids"][first] == MARK).all()
        assert torch.equal(row["input_ids"][~first], other["input_ids"][~first])


def test_documents_with_questions_begin():
    pairs = [QuestionAnswer(name, 30, f"Which is {name}?", f"It is {name}.") for name in "012"]
    texts = {pair.document: Document(pair.document, text(int(pair.document))) for pair in pairs}
    rows = AnsweredRows(pairs, texts, beginning(), length=160, count=20, passage=40)
    for row in (rows[n] for n in range(20)):
        assert len(row["input_ids"]) == 160
        assert (row["input_ids"][row["position_ids"] == 0] == MARK).all()


@pytest.mark.parametrize("chat", [False, True])
def test_a_model_that_is_asked_reads_a_text_that_begins_once(chat):
    """A chat template writes the special tokens itself."""
    made, read = deepcopy(beginning()), []
    made.chat_template = "<|end|>{{ messages[0]['content'] }}" if chat else None
    with listening(read):
        asker(model(), made)("the long text reads a key")
    assert read[0].count(MARK) == 1
    assert read[0][0] == MARK


@pytest.mark.parametrize("times", [0, 1, 2])
@pytest.mark.parametrize("ends", [False, True])
def test_begin_tokens(times, ends):
    assert begin_tokens(beginning(times, ends)) == (MARK,) * times
    assert begin_tokens(tokenizer()) == ()


def test_marks_differ(subject):
    bare = Subject(model=model(), tokenizer=tokenizer(), corpus=subject.corpus, longest=LONGEST)
    assert bare.marks | {"begin": f"({MARK},)"} == subject.marks


@given(st.integers(0, 3), st.integers(1, 30), st.integers(4, 40))
def test_the_last_tokens_follow_the_begin(count, size, length):
    ids = add_begin_tokens(torch.arange(100, 100 + size), (7,) * count, length)
    assert ids.tolist() == [7] * count + list(range(100, 100 + size))[-max(0, length - count) :]


@pytest.mark.nightly
@given(st.integers(1, 2), st.integers(8, 20), st.integers(1, 20))
def test_windows_begin_and_every_token_is_read_once(count, window, stride):
    """As each token after the first is read alone, in its window."""
    stride, begin = min(stride, window), (MARK,) * count
    text = torch.randint(2, 300, (50,), generator=torch.Generator().manual_seed(window))
    losses = strided_losses(model(), text, window=window, stride=stride, begin=begin)
    assert len(losses) == len(text) - 1
    own = window - count
    ends = [*range(own, len(text) - 1, min(stride, own)), len(text) - 1]
    for token in (1, own, own + 1, 49):
        end = next(end for end in ends if end >= token)
        row = torch.tensor([*begin, *text[max(0, end - own) : token + 1].tolist()])[None]
        with torch.no_grad():
            logits = model()(input_ids=row[:, :-1]).logits[0, -1]
        assert losses[token - 1] == pytest.approx(float(-logits.log_softmax(-1)[row[0, -1]]), abs=1e-4)
