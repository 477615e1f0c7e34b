"""`long_instruct`: a model taught to answer questions about long documents, with pairs that it made itself.

Source: Xiong et al. 2023 (Llama 2 Long), arXiv:2309.16039, sec. 2.2: the loss counts on the documents as well as on the
answers, and what is short is filled up to the target length.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from random import Random

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ropewalk.corpora import Document, documents
from ropewalk.errors import DoesNotFit
from ropewalk.hf import extend
from ropewalk.lab.data.packs import IGNORED, Row, row_of
from ropewalk.lab.data.questions import QuestionAnswer, asker, pairs_of
from ropewalk.lab.data.tokens import Numbers
from ropewalk.lab.recipes.keeping import checkpoint, knows, rows_of, trained_on
from ropewalk.lab.training.train import TrainingPlan

QUESTIONS = "questions.jsonl"
ASKED = "\n\nQuestion: {question}\nAnswer:"


def long_instruct(
    out: str | Path,
    plan: TrainingPlan,
    *,
    model: str | Path,
    length: int,
    extension: str = "",
    corpus: str = "python",
    characters: int = 6_000_000,
    pairs: int = 200,
    passage: int = 256,
    answers_only: bool = False,
    lora: int = 0,
) -> PreTrainedModel:
    """Let a model make and verify questions about long documents, and train it on them at a length."""
    folder = Path(out)
    own, tokenizer = checkpoint(model, folder)
    folder.mkdir(parents=True, exist_ok=True)
    texts = {each.name: each for each in documents(corpus, "train", most=characters)}
    made = pairs_of(texts.values(), tokenizer, asker(own, tokenizer), passage=passage, kept=folder / QUESTIONS)
    found = list(islice(made, pairs))
    if not found:
        remedy = "take a model that answers questions, or more documents"
        raise DoesNotFit("pairs", "at least one that the model vouches for", 0, remedy=remedy)
    rows = AnsweredRows(
        found,
        texts,
        tokenizer,
        length=length,
        count=rows_of(plan),
        passage=passage,
        answers_only=answers_only,
        seed=plan.seed,
    )
    if extension:
        extend(own, extension, target_len=length)
    else:
        knows(own, length)
    return trained_on(rows, own, tokenizer, plan, folder, lora=lora)


class AnsweredRows(Dataset[Row]):
    """Rows of documents, each followed by its question and answer, as many as fill the length."""

    def __init__(
        self,
        pairs: Sequence[QuestionAnswer],
        texts: Mapping[str, Document],
        tokenizer: PreTrainedTokenizerBase,
        *,
        length: int,
        count: int,
        passage: int,
        answers_only: bool = False,
        seed: int = 0,
    ) -> None:
        self._pairs, self._tokenizer = pairs, tokenizer
        self._tokens = {pair.document: self._encoded(texts[pair.document].text) for pair in pairs}
        self._length, self._count, self._passage = length, count, passage
        self._answers_only, self._seed = answers_only, seed
        longest = max(len(question) + len(answer) for question, answer in map(self._words, pairs))
        if passage + longest > length:
            raise DoesNotFit("length", f"at least {passage + longest}, a passage with its question and answer", length)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Row:
        random, texts, learning = Random(f"{self._seed}/{index}"), list[Numbers](), list[bool]()
        left = self._length
        while left:
            tokens, answer = self._text(self._pairs[random.randrange(len(self._pairs))], random, left)
            texts.append(np.asarray(tokens, dtype=np.int64))
            learning += [False] * (len(tokens) - answer) + [True] * answer
            left -= len(tokens)
        row = row_of(texts)
        if self._answers_only:
            row["labels"] = row["labels"].masked_fill(~torch.tensor(learning), IGNORED)
        return row

    def _words(self, pair: QuestionAnswer) -> tuple[list[int], list[int]]:
        question = self._encoded(ASKED.format(question=pair.question))
        return question, [*self._encoded(f" {pair.answer}"), self._tokenizer.eos_token_id]

    def _encoded(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False, verbose=False))

    def _text(self, pair: QuestionAnswer, random: Random, left: int) -> tuple[list[int], int]:
        """As much of the document as there is room for, the passage in it at any depth, question and answer; and how
        many tokens the answer has. Where the passage has no room any more, the document alone fills up."""
        question, answer = self._words(pair)
        tokens = self._tokens[pair.document]
        room = left - len(question) - len(answer)
        if room < self._passage:
            return tokens[:left], 0
        first = max(0, pair.begin + self._passage - room)
        begin = random.randint(first, max(first, min(pair.begin, len(tokens) - room)))
        return [*tokens[begin : begin + room], *question, *answer], len(answer)
