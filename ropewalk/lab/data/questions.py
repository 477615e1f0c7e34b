"""Questions about long documents, made by the model itself and verified by it.

From one passage of a document that the model can read whole, it makes a question and an answer. A pair is kept where
the model, asked again, finds the answer right, and where it answers otherwise without the passage: else nothing would
have to be looked up. The idea is that of Llama 2 Long (Xiong et al. 2023, arXiv:2309.16039, sec. 2.2).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ropewalk.corpora import Document
from ropewalk.errors import Unreadable
from ropewalk.files import read_json, read_text, why
from ropewalk.folders import refusing_full, write_whole
from ropewalk.hf import stream
from ropewalk.spec import Json

Ask = Callable[[str], str]

RULE = "questions that a run has made"
ANSWER = 48  # tokens of an answer at most
QUESTION = "{passage}\n\nWrite one question that the text above answers.\nQuestion:"
REPLY = "{passage}\n\nQuestion: {question}\nAnswer:"
VERDICT = "{passage}\n\nQuestion: {question}\nAnswer: {answer}\nIs this answer right (yes or no)?"


class QuestionAnswer(NamedTuple):
    """A question with its answer, and where in its document (in tokens) it is answered."""

    document: str
    begin: int
    question: str
    answer: str


def asker(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> Ask:
    """A model as somebody who answers with one line, the likeliest."""
    ends = {tokenizer.eos_token_id}

    def ask(prompt: str) -> str:
        ids = torch.tensor([tokenizer.encode(_as_chat(prompt, tokenizer))], device=model.device)
        said: list[int] = []
        for token in stream(model, ids, max_new_tokens=ANSWER):
            said.append(int(token))
            text = str(tokenizer.decode(said, skip_special_tokens=True))
            if said[-1] in ends or "\n" in text.strip():
                break
        return str(tokenizer.decode(said, skip_special_tokens=True)).strip().partition("\n")[0].strip()

    return ask


def _as_chat(prompt: str, tokenizer: PreTrainedTokenizerBase) -> str:
    """As the model's own template has it, where it has one."""
    if not tokenizer.chat_template:
        return prompt
    turn = [{"role": "user", "content": prompt}]
    return str(tokenizer.apply_chat_template(turn, tokenize=False, add_generation_prompt=True))


def pairs_of(
    documents: Iterable[Document], tokenizer: PreTrainedTokenizerBase, ask: Ask, *, passage: int, kept: Path
) -> Iterator[QuestionAnswer]:
    """The pairs of each document that is longer than a passage; `kept` remembers which have been asked about."""
    known = _read(kept)
    for document in documents:
        if document.name not in known:
            made = _made(document, tokenizer, ask, passage)
            known[document.name] = made
            _append(kept, {"document": document.name, "pairs": [list(each) for each in made]})
        yield from known[document.name]


def _append(kept: Path, line: Json) -> None:
    with refusing_full(kept, "make room and start again: it goes on from what is kept"), kept.open("a") as lines:
        lines.write(json.dumps(line) + "\n")


def _read(kept: Path) -> dict[str, list[QuestionAnswer]]:
    """What an earlier run has made; a last line that was cut off is taken away, and made again."""
    if not kept.is_file():
        return {}
    text = read_text(kept, str(kept), RULE)
    whole, _, cut = text.rpartition("\n")
    if cut:
        write_whole(kept, f"{whole}\n" if whole else "")
    lines = (read_json(line, str(kept), RULE) for line in whole.splitlines())
    return dict(_kept(line, kept) for line in lines)


def _kept(line: Any, kept: Path) -> tuple[str, list[QuestionAnswer]]:
    try:
        document, made = line["document"], [QuestionAnswer(*each) for each in line["pairs"]]
        right = all(pair.document == document and pair.begin >= 0 and pair.question + pair.answer for pair in made)
    except (KeyError, TypeError) as wrong:
        raise Unreadable(str(kept), RULE, line, remedy=why(wrong)) from wrong
    if not isinstance(document, str) or not right:
        raise Unreadable(str(kept), RULE, line, remedy="remove the file, and they are made again")
    return document, made


def _made(document: Document, tokenizer: PreTrainedTokenizerBase, ask: Ask, passage: int) -> list[QuestionAnswer]:
    tokens = tokenizer.encode(document.text, add_special_tokens=False, verbose=False)
    if len(tokens) <= passage:
        return []
    begin = Random(document.name).randrange(len(tokens) - passage)
    text = str(tokenizer.decode(tokens[begin : begin + passage]))
    question = ask(QUESTION.format(passage=text))
    answer = ask(REPLY.format(passage=text, question=question))
    pair = QuestionAnswer(document.name, begin, question, answer)
    return [pair] if _stands(pair, text, ask) else []


def _stands(pair: QuestionAnswer, text: str, ask: Ask) -> bool:
    """Whether the model vouches for a pair, and needs the passage for it."""
    if not pair.question.endswith("?") or not pair.answer:
        return False
    given = {"question": pair.question, "answer": pair.answer}
    if not ask(VERDICT.format(passage=text, **given)).lower().startswith("yes"):
        return False
    return ask(REPLY.format(passage="", **given).strip()).lower() != pair.answer.lower()
