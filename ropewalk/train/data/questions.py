"""Questions about long documents, made and verified by the model itself.

From one passage of a document, which the model can read whole, it makes a question and an answer. A pair is kept where
the model confirms the answer, and where it answers differently without the passage: else nothing would have to be
looked up. The idea is that of Llama 2 Long (Xiong et al. 2023, arXiv:2309.16039, sec. 2.2).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ropewalk.errors import Unreadable
from ropewalk.files import read_json, read_text, why
from ropewalk.folders import refuse_full_disk, write_whole
from ropewalk.hf import stream
from ropewalk.hf.checkpoint.chat_template import chat_prompt
from ropewalk.hf.checkpoint.token_ids import token_ids
from ropewalk.methods.spec import Json
from ropewalk.texts.corpora import Document

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
    """The pairs of every document that is longer than a passage; `file` records them, so that none is made twice."""
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
