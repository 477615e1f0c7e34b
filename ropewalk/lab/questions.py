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
from typing import NamedTuple

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ropewalk.corpora import Document
from ropewalk.hf import stream

Ask = Callable[[str], str]

ANSWER = 48  # tokens of an answer at most
QUESTION = "{passage}\n\nWrite one question that the text above answers.\nQuestion:"
REPLY = "{passage}\n\nQuestion: {question}\nAnswer:"
VERDICT = "{passage}\n\nQuestion: {question}\nAnswer: {answer}\nIs this answer right (yes or no)?"


class Pair(NamedTuple):
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
) -> Iterator[Pair]:
    """The pairs of each document that is longer than a passage; `kept` remembers which have been asked about."""
    known = _read(kept)
    for document in documents:
        if document.name not in known:
            made = _made(document, tokenizer, ask, passage)
            known[document.name] = made
            with kept.open("a") as lines:
                lines.write(json.dumps({"document": document.name, "pairs": [list(each) for each in made]}) + "\n")
        yield from known[document.name]


def _read(kept: Path) -> dict[str, list[Pair]]:
    """What an earlier run has made; a line that was cut off is made again."""
    found: dict[str, list[Pair]] = {}
    for line in kept.read_text().splitlines() if kept.is_file() else []:
        try:
            read = json.loads(line)
        except json.JSONDecodeError:
            continue
        found[read["document"]] = [Pair(*each) for each in read["pairs"]]
    return found


def _made(document: Document, tokenizer: PreTrainedTokenizerBase, ask: Ask, passage: int) -> list[Pair]:
    tokens = tokenizer.encode(document.text, add_special_tokens=False, verbose=False)
    if len(tokens) <= passage:
        return []
    begin = Random(document.name).randrange(len(tokens) - passage)
    text = str(tokenizer.decode(tokens[begin : begin + passage]))
    question = ask(QUESTION.format(passage=text))
    answer = ask(REPLY.format(passage=text, question=question))
    pair = Pair(document.name, begin, question, answer)
    return [pair] if _stands(pair, text, ask) else []


def _stands(pair: Pair, text: str, ask: Ask) -> bool:
    """Whether the model vouches for a pair, and needs the passage for it."""
    if not pair.question.endswith("?") or not pair.answer:
        return False
    given = {"question": pair.question, "answer": pair.answer}
    if not ask(VERDICT.format(passage=text, **given)).lower().startswith("yes"):
        return False
    return ask(REPLY.format(passage="", **given).strip()).lower() != pair.answer.lower()
