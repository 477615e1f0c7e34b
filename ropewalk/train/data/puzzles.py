"""Puzzles and questions that need what is far."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Annotated, Any, NamedTuple

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ropewalk.errors import InvalidValue, Unreadable
from ropewalk.files import read_json, read_text, why
from ropewalk.folders import refuse_full_disk, write_whole
from ropewalk.hf.checkpoint.tokens import chat_prompt, token_ids
from ropewalk.hf.use.long_text import stream
from ropewalk.methods.record import NOT_NEGATIVE, Checked
from ropewalk.methods.spec import Json
from ropewalk.texts.corpora import Document

# Synthetic documents that teach a small model to look back: passkeys, named values, repeated passages.
#
# Each has a length in tokens and is made of filler that the caller brings. Without such documents, early and of many
# lengths, a model of a few million parameters does not learn retrieval on a laptop (studies/log.md).


Encode = Callable[[str], list[int]]
Filler = Callable[[Random, int], list[int]]

SHORTEST_PUZZLE = 64  # tokens of a puzzle
GRASS = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again. "
INTRODUCTION = (
    "There is an important info hidden inside a lot of irrelevant text. Find it and memorize it. "
    "I will quiz you about the important information there.\n"
)
# The hidden fact, and the question for it; {key} is the answer.
WORDINGS = (
    (
        "\nThe pass key is {key}. Remember it. {key} is the pass key.\n",
        "\nWhat is the pass key? The pass key is {key}.",
    ),
    ("\nThe secret number is {key}.\n", "\nQuestion: what is the secret number? Answer: {key}."),
    ("\n# {name} is {key}\n", "\n# what is {name}? {name} is {key}"),
    ("\n{name} = {key}\n", "\nassert {name} == {key}\n"),
    ("\nOne of the special magic numbers for {name} is: {key}.\n", "\nThe special magic number for {name} is: {key}."),
)
Share = Annotated[float, NOT_NEGATIVE, "share of the rows"]
SYLLABLES = tuple("ba co du fe gi ho ju ka le mi no pa qu ro su ta ve wi xo zu".split())  # noqa: SIM905


@dataclass(frozen=True, kw_only=True)
class PuzzleShares(Checked):
    """The shares of puzzles among the rows of a training."""

    passkey: Share = 0.0
    named_values: Share = 0.0
    repeats: Share = 0.0
    recall: Share = 0.0

    def shares(self) -> dict[str, float]:
        """Those above 0, by kind."""
        return {name: share for name, share in vars(self).items() if share}


NO_PUZZLES = PuzzleShares()


class PuzzleMaker(NamedTuple):
    """What puzzles are made from."""

    encode: Encode
    filler: Filler
    vocabulary: int


def number(random: Random, digits: int = 5) -> str:
    """A number of so many digits."""
    return str(random.randrange(10 ** (digits - 1), 10**digits))


def name(random: Random) -> str:
    """A word that means nothing."""
    return "".join(random.choices(SYLLABLES, k=random.randint(2, 4)))


def passkey(maker: PuzzleMaker, random: Random, length: int) -> list[int]:
    """One fact somewhere in filler, and the question for it at the end."""
    hidden, asked = random.choice(WORDINGS)
    blanks = {"key": number(random, random.randint(4, 7)), "name": name(random)}
    fact, question = maker.encode(hidden.format(**blanks)), maker.encode(asked.format(**blanks))
    opening = maker.encode(INTRODUCTION) if length >= 2 * SHORTEST_PUZZLE and random.random() < 0.5 else []
    room = max(0, length - len(opening) - len(fact) - len(question))
    filler, cut = _filler(maker, random, room), round(room * random.betavariate(0.5, 0.5))  # more often near an end
    return [*opening, *filler[:cut], *fact, *filler[cut:], *question][:length]


def named_values(maker: PuzzleMaker, random: Random, length: int) -> list[int]:
    """A list of names with values, then some of them again in another order."""
    wording = random.choice(("{} = {}\n", "{}: {}\n", "register {} has content {}\n"))
    pairs, tokens = [], list[int]()
    while len(tokens) < 0.6 * length:
        pairs.append((name(random), number(random, random.randint(2, 5))))
        tokens += maker.encode(wording.format(*pairs[-1]))
    tokens += maker.encode("\n")
    for pair in random.sample(pairs, len(pairs)):
        tokens += maker.encode(wording.format(*pair))
    return tokens[:length]


def repeats(maker: PuzzleMaker, random: Random, length: int) -> list[int]:
    """A passage of random tokens or of real text, repeated until the length is full."""
    size = random.randint(8, max(8, length // 2))
    passage = (
        maker.filler(random, size) if random.random() < 0.5 else random.choices(range(1, maker.vocabulary), k=size)
    )
    return (passage * (length // size + 1))[:length]


def recall(maker: PuzzleMaker, random: Random, length: int) -> list[int]:
    """Real text, and one passage of it again at the end."""
    text = maker.filler(random, length)
    size = min(random.randint(16, 64), length // 3)
    begin = random.randint(0, length - 2 * size)
    return [*text[: length - size], *text[begin : begin + size]]


def _filler(maker: PuzzleMaker, random: Random, length: int) -> list[int]:
    if random.random() < 0.7:
        return maker.filler(random, length)
    grass = maker.encode(GRASS)
    return (grass * (length // len(grass) + 1))[:length]


KINDS = {"passkey": passkey, "named_values": named_values, "repeats": repeats, "recall": recall}


def pack(maker: PuzzleMaker, kind: str, random: Random, length: int) -> list[list[int]]:
    """Puzzles of one kind, of varied lengths, that fill a row together.

    Args:
        maker: what puzzles are made from.
        kind: one of `KINDS`.
        random: draws the lengths and the contents.
        length: tokens of the row.
    """
    if kind not in KINDS:
        raise InvalidValue("puzzle", f"one of {', '.join(KINDS)}", kind)
    puzzles: list[list[int]] = []
    left = length
    while left > 0:
        size = left if left < 2 * SHORTEST_PUZZLE else _size(random, left)
        puzzles.append(KINDS[kind](maker, random, size))
        left -= len(puzzles[-1])
    return puzzles


def _size(random: Random, most: int) -> int:
    """Log-uniform from the shortest to the longest; one in three is the longest."""
    if random.random() < 1 / 3:
        return most
    size = round(SHORTEST_PUZZLE * (most / SHORTEST_PUZZLE) ** random.random())
    return most if most - size < SHORTEST_PUZZLE else size


# Questions about long documents, made and verified by the model itself.
#
# From one passage of a document, which the model can read whole, it makes a question and an answer. A pair is kept
# where the model confirms the answer, and where it answers differently without the passage: else nothing would have to
# be looked up. The idea is that of Llama 2 Long (Xiong et al. 2023, arXiv:2309.16039, sec. 2.2).


Ask = Callable[[str], str]

RULE = "questions that a run has made"
ANSWER = 48  # tokens of an answer at most
QUESTION = "{passage}\n\nWrite one question that the text above answers.\nQuestion:"
REPLY = "{passage}\n\nQuestion: {question}\nAnswer:"
VERDICT = "{passage}\n\nQuestion: {question}\nAnswer: {answer}\nIs this answer right (yes or no)?"


class QuestionAnswer(NamedTuple):
    """A question with its answer, and where its passage begins in the document, in tokens."""

    document: str
    begin: int
    question: str
    answer: str


def asker(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> Ask:
    """A model as a function from a prompt to one line, decoded greedily."""
    ends = {tokenizer.eos_token_id}

    def ask(prompt: str) -> str:
        special = not tokenizer.chat_template  # which writes the special tokens itself
        asked = tokenizer.encode(prompt if special else chat_prompt(tokenizer, prompt), add_special_tokens=special)
        ids = torch.tensor([asked], device=model.device)
        answer: list[int] = []
        for token in stream(model, ids, max_new_tokens=ANSWER):
            answer.append(int(token))
            text = str(tokenizer.decode(answer, skip_special_tokens=True))
            if answer[-1] in ends or "\n" in text.strip():
                break
        return str(tokenizer.decode(answer, skip_special_tokens=True)).strip().partition("\n")[0].strip()

    return ask


def pairs_of(
    documents: Iterable[Document], tokenizer: PreTrainedTokenizerBase, ask: Ask, *, passage: int, file: Path
) -> Iterator[QuestionAnswer]:
    """The question-answer pairs of every document that is longer than a passage.

    Args:
        documents: what is asked about.
        tokenizer: the model's.
        ask: the model that makes and verifies the pairs, as `asker` returns it.
        passage: tokens that a question is made from.
        file: records the pairs of each document, so that none is made twice.
    """
    known = _read(file)
    for document in documents:
        if document.name not in known:
            known[document.name] = _make(document, tokenizer, ask, passage)
            _append(file, {"document": document.name, "pairs": [list(pair) for pair in known[document.name]]})
        yield from known[document.name]


def _append(file: Path, line: Json) -> None:
    with refuse_full_disk(file, "make room and start again; it resumes from this file"), file.open("a") as lines:
        lines.write(json.dumps(line) + "\n")


def _read(file: Path) -> dict[str, list[QuestionAnswer]]:
    """The pairs of an earlier run; a last line that was cut off is removed, and made again."""
    if not file.is_file():
        return {}
    text = read_text(file, str(file), RULE)
    whole, _, cut = text.rpartition("\n")
    if cut:
        write_whole(file, f"{whole}\n" if whole else "")
    lines = (read_json(line, str(file), RULE) for line in whole.splitlines())
    return dict(_pairs_in(line, file) for line in lines)


def _pairs_in(line: Any, file: Path) -> tuple[str, list[QuestionAnswer]]:
    try:
        document, pairs = line["document"], [QuestionAnswer(*fields) for fields in line["pairs"]]
        right = all(pair.document == document and pair.begin >= 0 and pair.question + pair.answer for pair in pairs)
    except (KeyError, TypeError) as wrong:
        raise Unreadable(str(file), RULE, line, remedy=why(wrong)) from wrong
    if not isinstance(document, str) or not right:
        raise Unreadable(str(file), RULE, line, remedy="remove the file, and they are made again")
    return document, pairs


def _make(document: Document, tokenizer: PreTrainedTokenizerBase, ask: Ask, passage: int) -> list[QuestionAnswer]:
    tokens = token_ids(tokenizer, document.text)
    if len(tokens) <= passage:
        return []
    begin = Random(document.name).randrange(len(tokens) - passage)
    text = str(tokenizer.decode(tokens[begin : begin + passage].tolist()))
    question = ask(QUESTION.format(passage=text))
    answer = ask(REPLY.format(passage=text, question=question))
    pair = QuestionAnswer(document.name, begin, question, answer)
    return [pair] if _is_verified(pair, text, ask) else []


def _is_verified(pair: QuestionAnswer, text: str, ask: Ask) -> bool:
    """Whether the model confirms a pair, and needs the passage for it."""
    if not pair.question.endswith("?") or not pair.answer:
        return False
    blanks = {"question": pair.question, "answer": pair.answer}
    if not ask(VERDICT.format(passage=text, **blanks)).lower().startswith("yes"):
        return False
    return ask(REPLY.format(passage="", **blanks).strip()).lower() != pair.answer.lower()
