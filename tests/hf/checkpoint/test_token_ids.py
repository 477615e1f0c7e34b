"""A long text is tokenised in pieces, and the ids are those of the whole text; no verb gives a tokenizer all of it."""

from pathlib import Path
from random import Random

import pytest
from tokenizers import Tokenizer
from tokenizers.models import BPE
from tokenizers.normalizers import Replace
from tokenizers.pre_tokenizers import Split
from tokenizers.processors import TemplateProcessing
from tokenizers.trainers import BpeTrainer
from transformers import AutoTokenizer, PreTrainedTokenizerFast

import ropewalk as rw
from ropewalk.cli.verbs.generate import _prompt_ids
from ropewalk.hf.checkpoint import tokens as pieces
from ropewalk.hf.checkpoint.tokens import prompt_ids, token_ids
from ropewalk.measure.material.subject import Subject
from ropewalk.measure.metrics.losses import passages
from ropewalk.measure.metrics.streaming import long_text
from ropewalk.texts.corpora import Document
from ropewalk.train.data.tokens import tokenise

SOURCES = sorted(Path(rw.__file__).parent.rglob("*.py"))[:40]
CODE = "".join(path.read_text("utf-8") for path in SOURCES)
ODD = (
    "    " * 9,
    "\n\n\n",
    " \t ",
    "x" * 70,
    "=-" * 40,
    "héllo wörld ",
    "中文字符",
    "🙂👨\u200d👩",
    "<|endoftext|>",
    "e\u0301",
)
ODD += ("\r\n", "I'll  ", "1234567890 ")


def without_words():
    """As Gemma's: all of a text is one word, since spaces are letters before it is split at spaces."""
    own = Tokenizer(BPE(unk_token="<unk>"))
    own.normalizer, own.pre_tokenizer = Replace(" ", "▁"), Split(" ", "merged_with_previous")
    trainer = BpeTrainer(vocab_size=700, special_tokens=["<unk>", "<s>", "</s>"], max_token_length=16)
    own.train_from_iterator([line.replace(" ", "▁") for line in CODE[:60_000].splitlines(keepends=True)], trainer)
    own.post_processor = TemplateProcessing("<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)])
    return PreTrainedTokenizerFast(tokenizer_object=own, unk_token="<unk>", bos_token="<s>", eos_token="</s>")


@pytest.fixture(scope="module", params=["of words", "of one word"])
def tokenizer(request):
    if request.param == "of one word":
        return without_words()
    return AutoTokenizer.from_pretrained(Path(rw.__file__).parent / "models" / "default")


@pytest.fixture
def short_pieces(monkeypatch):
    monkeypatch.setattr(pieces, "CHARACTERS_AT_ONCE", 1500)
    monkeypatch.setattr(pieces, "OVERLAP", 400)


def texts():
    random = Random(3)
    yield CODE[:30_000]
    for _ in range(4):
        yield "".join(random.choice(ODD) * random.choice((1, 1, 2, 6)) for _ in range(400))
        begin = random.randrange(len(CODE) - 9000)
        yield CODE[begin : begin + 3000] + " " * random.randrange(4000) + CODE[begin : begin + 4000] + "x" * 3000
    yield "".join(chr(random.choice((32, 0x61, 0xE9, 0x4E00, 0x1F600)) + random.randrange(25)) for _ in range(6000))
    yield "x" * 20_000
    yield "short"
    yield ""


@pytest.mark.sampled(cases=1)
def test_the_ids_are_those_of_the_whole_text(tokenizer, short_pieces):
    random = Random(4)
    for text in texts():
        whole = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        assert token_ids(tokenizer, text).tolist() == whole
        assert prompt_ids(tokenizer, text).tolist() == tokenizer(text, verbose=False)["input_ids"]
        most = random.randrange(len(whole) + 9)
        assert token_ids(tokenizer, text, most).tolist() == whole[:most]


@pytest.fixture
def given(tokenizer, monkeypatch):
    """How many characters the tokenizer was given at once."""
    sizes, call = [], type(tokenizer).__call__

    def counted(self, text, *arguments, **options):
        sizes.append(sum(map(len, text)) if isinstance(text, list) else len(text))
        return call(self, text, *arguments, **options)

    monkeypatch.setattr(type(tokenizer), "__call__", counted)
    monkeypatch.setattr(
        type(tokenizer), "encode", lambda self, text, **options: counted(self, text, **options).input_ids
    )
    return sizes


def test_a_beginning_is_read_and_no_more(tokenizer, given, short_pieces):
    told = []
    token_ids(tokenizer, CODE[:90_000], 200, progress=lambda *done: told.append(done))
    assert sum(given) <= 2 * 1500
    assert told == [(1500, 90_000)]


@pytest.mark.parametrize("verb", ["compare", "stream", "study", "train", "generate"])
def test_no_verb_gives_a_tokenizer_a_long_text_at_once(tokenizer, given, short_pieces, tmp_path, monkeypatch, verb):
    text = CODE[:20_000]
    (tmp_path / "texts" / "project").mkdir(parents=True)
    (tmp_path / "texts" / "project" / "long.txt").write_text(text)
    corpus = f"all:folder:{tmp_path / 'texts'}"
    monkeypatch.setattr("ropewalk.train.data.tokens.CHARACTERS", 1500)
    whole = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
    del given[:]
    if verb == "compare":
        got = Subject(model=None, tokenizer=tokenizer, corpus=corpus, longest=300).passages(1)[0].tolist()
        assert got == whole[:300]
    elif verb == "stream":
        ids = long_text(tokenizer, corpus, 500).ids.tolist()
        assert whole[: len(ids) - 1] in (ids[1:], ids[:-1])
    elif verb == "study":
        middle = (len(whole) - 100) // 2
        got = passages([Document("a", text)], tokenizer, length=100, count=1).ids_bn
        assert got.tolist() == [whole[middle : middle + 100]]
    elif verb == "train":
        tokens = tokenise(corpus, "train", tokenizer, tmp_path / "cache")[0].tolist()
        begins = [1] if whole != tokens[: len(whole)] else []
        assert tokens == [*begins, *whole, tokenizer.eos_token_id]
    else:
        assert _prompt_ids(tokenizer, text, chat=False).tolist() == tokenizer(text, verbose=False)["input_ids"]
        del given[-1]
    assert given
    assert max(given) <= 2 * 1500
