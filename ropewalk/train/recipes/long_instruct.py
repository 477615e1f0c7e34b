"""`long_instruct`: teach a model to answer questions about long documents, with pairs that it made itself.

Source: Xiong et al. 2023 (Llama 2 Long), arXiv:2309.16039, sec. 2.2: the loss covers the documents as well as the
answers, and short texts are filled up to the target length.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from random import Random
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ropewalk.errors import DoesNotFit
from ropewalk.hf.attach.extend import extend
from ropewalk.hf.checkpoint.tokens import begin_tokens, token_ids
from ropewalk.hf.load_options import UNSTATED, LoadOptions
from ropewalk.methods.record import AT_LEAST_ONE
from ropewalk.texts.corpora import Document, documents
from ropewalk.train.data.packs import IGNORED, Row, row_of
from ropewalk.train.data.puzzles import Ask, QuestionAnswer, asker, pairs_of
from ropewalk.train.data.tokens import Numbers, end_token
from ropewalk.train.recipes.building_blocks import GENTLE, checkpoint, rows_of, set_max_length, train_and_save
from ropewalk.train.recipes.recipe import Characters, Corpus, Model, Rank, RecipeSettings
from ropewalk.train.train import PLAN

QUESTIONS = "questions.jsonl"
ASKED = "\n\nQuestion: {question}\nAnswer:"


@dataclass(frozen=True, kw_only=True)
class LongInstructSettings(RecipeSettings):
    """Which questions are made, and how they are taught."""

    model: Model
    length: Annotated[int, AT_LEAST_ONE, "tokens of a row"]
    extension: Annotated[str, "extension that the model is trained under; empty for none"] = ""
    pairs: Annotated[int, AT_LEAST_ONE, "question-answer pairs at most"] = 200
    passage: Annotated[int, AT_LEAST_ONE, "tokens that a question is made from"] = 256
    answers_only: Annotated[bool, "learn from the answers alone, not from the documents too"] = False
    lora: Rank = 0
    corpus: Corpus = "python"
    characters: Characters = 6_000_000

    plan_defaults: ClassVar[Mapping[str, Any]] = GENTLE
    costly: ClassVar[tuple[str, ...]] = (PLAN, QUESTIONS)


def long_instruct(out: str | Path, settings: LongInstructSettings, options: LoadOptions = UNSTATED) -> PreTrainedModel:
    """Let a model make and verify questions about long documents, and train it on them at a given length.

    Args:
        out: the folder of the run; the model is saved in its folder `model`.
        settings: how questions are made, and how long the model is trained on them.
        options: how the checkpoint is loaded.
    """
    folder, plan = Path(out), settings.plan
    line, length = settings.extension, settings.length
    model, tokenizer = checkpoint(settings.model, folder, options, extension=line, length=length)
    folder.mkdir(parents=True, exist_ok=True)
    texts = {text.name: text for text in documents(settings.corpus, "train", most=settings.characters)}
    pairs = _verified_pairs(settings, texts, tokenizer, asker(model, tokenizer), folder / QUESTIONS)
    rows = AnsweredRows(
        pairs,
        texts,
        tokenizer,
        length=settings.length,
        count=rows_of(plan),
        passage=settings.passage,
        answers_only=settings.answers_only,
        seed=plan.seed,
    )
    if settings.extension:
        extend(model, settings.extension, target_len=settings.length)
    else:
        set_max_length(model, settings.length)
    return train_and_save(rows, model, tokenizer, plan, folder, lora=settings.lora)


def _verified_pairs(
    settings: LongInstructSettings,
    texts: Mapping[str, Document],
    tokenizer: PreTrainedTokenizerBase,
    ask: Ask,
    file: Path,
) -> list[QuestionAnswer]:
    made = pairs_of(texts.values(), tokenizer, ask, passage=settings.passage, file=file)
    pairs = list(islice(made, settings.pairs))
    if not pairs:
        sentence = "the model verified none of its questions and answers"
        raise DoesNotFit.because("pairs", sentence, remedy="take a model that answers questions, or more documents")
    return pairs


class AnsweredRows(Dataset[Row]):
    """Rows filled with documents, each followed by its question and answer."""

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
        self._begin = begin_tokens(tokenizer)
        self._tokens = {pair.document: self._encoded(texts[pair.document].text) for pair in pairs}
        self._length, self._count, self._passage = length, count, passage
        self._answers_only, self._seed = answers_only, seed
        longest = max(len(question) + len(answer) for question, answer in map(self._words, pairs)) + len(self._begin)
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
        return question, [*self._encoded(f" {pair.answer}"), end_token(self._tokenizer)]

    def _encoded(self, text: str) -> list[int]:
        return token_ids(self._tokenizer, text).tolist()

    def _text(self, pair: QuestionAnswer, random: Random, left: int) -> tuple[list[int], int]:
        """As much of the document as fits, with the passage at any depth, then question and answer; and the answer's
        number of tokens. Where no room is left for the passage, the document alone fills the row."""
        question, answer = self._words(pair)
        tokens = self._tokens[pair.document]
        room = left - len(self._begin) - len(question) - len(answer)
        if room < self._passage:
            return [*self._begin, *tokens][:left], 0
        first = max(0, pair.begin + self._passage - room)
        begin = random.randint(first, max(first, min(pair.begin, len(tokens) - room)))
        return [*self._begin, *tokens[begin : begin + room], *question, *answer], len(answer)
