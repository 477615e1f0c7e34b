"""What each recipe is told beside its plan: fields with rules and meanings, from which the command line is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ropewalk.lab.recipes.zoo import EVERY
from ropewalk.record import AT_LEAST_ONE, NOT_NEGATIVE, Checked

Corpus = Annotated[str, "python, stdlib, folder:PATH, FILE.jsonl, FILE.parquet or hub:NAME:FIELD"]
Characters = Annotated[int, AT_LEAST_ONE, "of the corpus at most"]
Model = Annotated[str, "a folder with a model and its tokenizer, a name on the hub, or default"]
Share = Annotated[float, NOT_NEGATIVE, "share of the rows"]
Rank = Annotated[int, NOT_NEGATIVE, "rank of the adapters that are trained in place of the weights; 0 trains these"]


@dataclass(frozen=True, kw_only=True)
class Pretrain(Checked):
    """What a fresh model is trained under and on."""

    extension: Annotated[str, "such as alibi or hwfa; nothing leaves the model as it is"] = ""
    packed: Annotated[bool, "documents one after the other in a row, or one passage a row"] = True
    corpus: Corpus = "python"
    characters: Characters = 60_000_000


@dataclass(frozen=True, kw_only=True)
class CarryOn(Checked):
    """What a checkpoint is trained on under and on."""

    model: Model
    extension: Annotated[str, "such as pi, ntk, yarn or abf:new_base=500000; rope for none"]
    length: Annotated[int, AT_LEAST_ONE, "tokens of a row"]
    lora: Rank = 0
    corpus: Corpus = "python"
    characters: Characters = 60_000_000


@dataclass(frozen=True, kw_only=True)
class UptrainGQA(Checked):
    """How many key heads remain, and what they are trained on with."""

    model: Model
    kv_heads: Annotated[int, AT_LEAST_ONE, "key and value heads that remain"]
    length: Annotated[int | None, AT_LEAST_ONE, "tokens of a row; the trained length where not given"] = None
    corpus: Corpus = "python"
    characters: Characters = 60_000_000


@dataclass(frozen=True, kw_only=True)
class LongInstruct(Checked):
    """Which questions are made, and how they are taught."""

    model: Model
    length: Annotated[int, AT_LEAST_ONE, "tokens of a row"]
    extension: Annotated[str, "that the model is taught under; nothing leaves it as it is"] = ""
    pairs: Annotated[int, AT_LEAST_ONE, "of question and answer at most"] = 200
    passage: Annotated[int, AT_LEAST_ONE, "tokens that a question is made from"] = 256
    answers_only: Annotated[bool, "learn from the answers alone, not from the documents as well"] = False
    lora: Rank = 0
    corpus: Corpus = "python"
    characters: Characters = 6_000_000


@dataclass(frozen=True, kw_only=True)
class Zoo(Checked):
    """Which methods are trained, how often, and what they are read on."""

    methods: Annotated[str, "names, with commas between"] = EVERY
    seeds: Annotated[int, AT_LEAST_ONE, "models of each method"] = 3
    texts: Annotated[int, AT_LEAST_ONE, "held-out texts, each eight times the trained length"] = 32
    corpus: Corpus = "python"
    characters: Characters = 60_000_000


@dataclass(frozen=True, kw_only=True)
class Puzzles(Checked):
    """How much of what is read teaches to look back."""

    passkey: Share = 0.0
    named_values: Share = 0.0
    repeats: Share = 0.0
    recall: Share = 0.0
