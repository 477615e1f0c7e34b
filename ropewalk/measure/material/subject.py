"""What is measured: a model with its tokenizer and texts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, islice
from random import Random
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ropewalk.errors import DoesNotFit
from ropewalk.extension.extension import Extension
from ropewalk.hf.attach.extend import extend
from ropewalk.hf.attach.handle import Handle, handle_of
from ropewalk.hf.attach.trained_extension import TrainedExtension
from ropewalk.hf.checkpoint.tokens import add_begin_tokens, begin_tokens
from ropewalk.hf.probe.facts import corrected_len
from ropewalk.hf.probe.host import device_of
from ropewalk.hf.runtime.layer import PREFIX
from ropewalk.hf.use.inspect import sizes
from ropewalk.measure.material.passage_search import Passage, PassageSearch, mark
from ropewalk.measure.metrics.intervals import FEW_PROJECTS
from ropewalk.measure.metrics.losses import HeldOutTexts, token_losses
from ropewalk.methods.facts import Facts
from ropewalk.methods.spec import Json
from ropewalk.models import named
from ropewalk.texts.corpora import documents, more_of

FILLERS = 8  # passages that make the filler
WARMING = 512  # tokens that are read before measuring


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A model, its tokenizer, and held-out passages of the longest length, the same for every extension.

    The model comes without an extension. If it was trained under one, that is `own`, and the base model has it.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    corpus: str
    longest: int
    own: TrainedExtension = field(default_factory=TrainedExtension)
    seed: int = 0
    every: int = 1  # take every n-th of the projects that have a long enough document, if there are several
    first: int = 0  # and begin with this one; subjects with another `first` share no document
    without: frozenset[str] = frozenset()  # the marks of what it leaves out, as another subject's `seen`
    _passages: list[Passage] = field(default_factory=list, repr=False, compare=False)

    @property
    def name(self) -> str:
        """The model's name on the hub, or the last part of its folder."""
        place = str(getattr(self.model.config, "_name_or_path", ""))
        return named(place) or type(self.model).__name__

    @property
    def device(self) -> torch.device:
        """Where the model takes its tokens; accelerate may keep weights elsewhere, even on disk."""
        return device_of(self.model)

    @cached_property
    def facts(self) -> Facts:
        """The facts of the model."""
        return sizes(self.model).facts

    @cached_property
    def begin(self) -> tuple[int, ...]:
        """The tokens that begin every text that the model reads; passages are without them."""
        return begin_tokens(self.tokenizer)

    def begun(self, ids_n: Tensor, length: int) -> Tensor:
        """The last tokens of a text, after those that begin one: `length` in all, on the model's device."""
        return add_begin_tokens(ids_n.to(self.device), self.begin, length)

    @cached_property
    def warm(self) -> bool:
        """Read a text without measuring: the first one in a process takes longer."""
        for passage in self._available(1):
            token_losses(self.model, passage.ids[None, :WARMING].to(self.device))
        return True

    def passages(self, count: int) -> list[Tensor]:
        """The first `count` held-out passages; every one has the longest length [tokens]."""
        passages = self._available(count)
        if len(passages) < count:
            part = f" in one of {self.every} parts of it" if self.every > 1 else ""
            rule = f"one with {count} held-out documents of {self.longest} tokens{part}"
            remedy = f"{self._has(count)}, or {more_of(self.corpus)}"
            raise DoesNotFit("corpus", rule, self.corpus, remedy=remedy)
        return [passage.ids for passage in passages]

    def projects(self, count: int) -> list[str]:
        """The projects of the first `count` passages: texts of one project are alike."""
        return [passage.project for passage in self._available(count)]

    def reading(self, texts: HeldOutTexts) -> Subject:
        """The same subject on texts that were chosen before."""
        chosen = [Passage(project, ids) for project, ids in zip(texts.projects, texts.ids_bn, strict=True)]
        return replace(self, _passages=chosen)

    def count(self, most: int) -> int:
        """How many passages there are, up to `most`."""
        return len(self._available(most))

    def _available(self, most: int) -> list[Passage]:
        """The beginnings of at most `most` documents that are long enough, of as many projects as there are."""
        while len(self._passages) < most:
            passage = next(self._long_documents, None)
            if passage is None:
                break
            self._passages.append(passage)
        return self._passages[:most]

    @cached_property
    def _long_documents(self) -> Iterator[Passage]:
        """Those of this subject's share of the projects; a few projects are shared out by document."""
        passages = iter(self._search)
        begin = list(islice(passages, FEW_PROJECTS * (self.every - 1)))
        by_project = len({passage.project for passage in begin}) == FEW_PROJECTS * (self.every - 1)
        places: dict[str, int] = {}
        for place, passage in enumerate(chain(begin, passages)):
            part = places.setdefault(passage.project, len(places)) if by_project else place
            if part % self.every == self.first:
                yield passage

    @cached_property
    def _search(self) -> PassageSearch:
        """The search for texts that are long enough."""
        return PassageSearch(documents(self.corpus, "held out"), self.tokenizer, self.longest, self.without)

    def longest_of(self, count: int) -> int:
        """The longest length, up to that of the passages, of which there are so many.

        0 if there is none, or if it is not known: for one of several shares, and for chosen or packed passages.
        """
        if len(self._available(count)) == count:
            return self.longest
        return self._search.longest_of(count) if self.every == 1 else 0

    def _has(self, count: int) -> str:
        """How many passages were found, in which documents if others were not read, and what may be asked for."""
        first = f"; only its first {self._search.read:,} held-out documents were searched" if self._search.left else ""
        length, alone = self.longest_of(count), self.longest_of(1)
        known = f"at most {length:,} tokens" if length else f"one text has {alone:,} tokens"
        shorter = f" ({known})" if length or 0 < alone < self.longest else ""
        return f"it has {self.count(count)}{first}; ask for fewer samples or a shorter length{shorter}"

    def tokens(self, text: str) -> int:
        """The number of tokens of a text."""
        return len(self.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])

    def packed(self, count: int) -> Subject:
        """A copy for another machine, which may not have the corpus: it contains the first `count` passages.

        Its model is on the CPU, which every machine has.
        """
        self._available(max(count, FILLERS))
        on_cpu = self.model if self.model.device.type == "cpu" else deepcopy(self.model).cpu()
        packed = replace(self, model=on_cpu)
        packed.__dict__["_long_documents"] = iter(())
        return packed

    def text_marks(self, count: int) -> list[str]:
        """A hash of the tokens of each passage: with the seed, these determine every prompt."""
        passages = self._available(max(count, FILLERS))
        self._marked.extend(mark(json.dumps(passage.ids.tolist())) for passage in passages[len(self._marked) :])
        return self._marked[: len(passages)]

    def described(self, count: int) -> Json:
        """The model and the passages, as records name them."""
        parameters = sum(weights.numel() for weights in self.model.parameters())
        return {"model": self.name, "parameters": parameters, "texts": self.text_marks(count)}

    @cached_property
    def _marked(self) -> list[str]:
        """The hashes so far: a search needs them at every step."""
        return []

    def seen(self, count: int) -> frozenset[str]:
        """The marks of the first `count` passages and of the filler, and of documents that were joined to these."""
        passages = self._available(max(count, FILLERS))
        return frozenset([*self.text_marks(count), *chain.from_iterable(passage.joined for passage in passages)])

    def filler(self, random: Random) -> str:
        """Held-out text to hide something in, from a random line on."""
        passages = self.passages(self.count(FILLERS) or 1)
        texts = self.tokenizer.batch_decode([ids.tolist() for ids in passages])
        lines = "".join(f"{text}\n" for text in texts).splitlines(keepends=True)
        begin = random.randrange(len(lines))
        return "".join(lines[begin:] + lines[:begin])

    def marks_at(self, sample: int) -> dict[str, str]:
        """Hashes of everything that the numbers of one sample depend on, with the texts that it may use."""
        texts = self.text_marks(sample + 1)
        return {**self.marks, "texts": " ".join([*texts[:FILLERS], *texts[sample : sample + 1]])}

    @cached_property
    def marks(self) -> dict[str, str]:
        """Hashes of what all numbers of this subject depend on."""
        text = {"corpus": self.corpus, "longest": str(self.longest), "seed": str(self.seed)}
        stated = corrected_len(self.model)
        text |= {} if stated is None else {"trained_len": str(stated)}
        text |= {"begin": str(self.begin)} if self.begin else {}
        share = {} if self.every == 1 else {"share": f"one in {self.every} from {self.first}"}
        return marks_of(self.model, self.tokenizer) | self._own_marks() | text | share

    def _own_marks(self) -> dict[str, str]:
        """Of the extension that the model was trained under, if any, and of its learned numbers."""
        if self.own == TrainedExtension():
            return {}
        state = {
            "extension": self.own.extension.to_json(),
            "lifts_windows": self.own.lifts_windows,
            "mode": self.own.mode,
        }
        learned = {name: value.tolist() for name, value in sorted(self.own.learned.items())}
        return {"trained under": mark(json.dumps({**state, "learned": learned}, sort_keys=True))}

    def under(self, line: Extension, **options: Any) -> AbstractContextManager[Handle]:
        """The model under a line, on top of what it was trained under, for as long as a block lasts."""
        return self.own.under(self.model, line, **options)

    @property
    def is_base(self) -> bool:
        """Whether the model is as it was trained, under no line."""
        handle = handle_of(self.model)
        return (handle.extension if handle else Extension()) == self.own.extension

    @contextmanager
    def as_trained(self) -> Iterator[None]:
        """The base model, for as long as a block lasts, whatever extension it is under now."""
        with (
            without_extension(self.model),
            nullcontext() if self.own == TrainedExtension() else self.under(Extension()),
        ):
            yield


def marks_of(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> dict[str, str]:
    """Hashes of a model without extension, and of its tokenizer."""
    digest = hashlib.sha256()
    for name, value in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(value.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes())  # a scale has no dimension
    elsewhere = {"_name_or_path": "", "transformers_version": ""}  # wherever it lies, whoever wrote it
    config: dict[str, Any] = {**model.config.to_dict(), **elsewhere}
    return {
        "weights": digest.hexdigest()[:16],
        "config": mark(json.dumps(config, sort_keys=True, default=str)),
        "tokenizer": mark(json.dumps(tokenizer.get_vocab(), sort_keys=True)),
        "dtype": str(model.dtype),
    }


@contextmanager
def without_extension(model: PreTrainedModel) -> Iterator[None]:
    """The model without its extension, for as long as a block lasts; learned numbers are kept."""
    handle = handle_of(model)
    if handle is None:
        yield
        return
    before = {name: value.detach().clone() for name, value in model.named_parameters() if PREFIX in name}
    handle.remove()
    try:
        yield
    finally:
        how: dict[str, Any] = {
            "lift_windows": handle.lifts_windows,
            "mode": handle.mode,
            "trained_len": handle.trained_len,
            "target_len": handle.target_len,
        }
        again = extend(model, handle.extension, **how)
        for name, value in before.items():
            model.get_parameter(name).data.copy_(value)
        handle.undo.callback(again.remove)  # removing the old handle removes the new one too
