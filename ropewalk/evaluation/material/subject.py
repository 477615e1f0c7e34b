"""What is measured: a model with its tokenizer, and the text that it is measured on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from random import Random
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ropewalk.corpora import documents, more_of
from ropewalk.errors import DoesNotFit
from ropewalk.evaluation.metrics.losses import token_losses
from ropewalk.extension import Extension
from ropewalk.facts import Facts
from ropewalk.hf import inspect
from ropewalk.hf.attach.extend import extend
from ropewalk.hf.attach.handle import Handle, handle_of
from ropewalk.hf.attach.trained_extension import TrainedExtension
from ropewalk.hf.probe.facts import corrected
from ropewalk.hf.runtime.layer import PREFIX

FILLERS = 8  # passages that filler is taken from
WARMING = 512  # tokens that are read before anything is measured
ENOUGH = 4096  # documents are looked through for long ones, no more


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A model, its tokenizer, and passages of held-out text of one longest length, the same for every method.

    The model comes bare. Where it was trained under an extension, that is `own`, what everything is compared with.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    corpus: str
    longest: int
    own: TrainedExtension = field(default_factory=TrainedExtension)
    seed: int = 0
    every: int = 1  # of the documents that are long enough, one in so many is read,
    first: int = 0  # from this one on: subjects that begin elsewhere share no document
    _passages: list[Tensor] = field(default_factory=list, repr=False, compare=False)

    @cached_property
    def facts(self) -> Facts:
        """What the model brings."""
        return inspect(self.model).facts

    @cached_property
    def warm(self) -> bool:
        """Read once what is not measured: a process's first reading takes longer, and would be the bare model's."""
        for ids in self._found(1):
            token_losses(self.model, ids[None, :WARMING].to(self.model.device))
        return True

    def passages(self, count: int) -> list[Tensor]:
        """The first so many held-out passages, [tokens] of the longest length each."""
        found = self._found(count)
        if len(found) < count:
            rule = f"one with {count} held-out documents of {self.longest} tokens"
            remedy = f"it has {len(found)}; name fewer samples or a shorter length; {more_of(self.corpus)}"
            raise DoesNotFit("corpus", rule, self.corpus, remedy=remedy)
        return found

    def _found(self, most: int) -> list[Tensor]:
        """The beginnings of documents that are long enough, as many as there are up to a number."""
        while len(self._passages) < most:
            ids = next(self._long_ones, None)
            if ids is None:
                break
            self._passages.append(ids)
        return self._passages[:most]

    @cached_property
    def _long_ones(self) -> Iterator[Tensor]:
        yield from islice(self._every_long_one(), self.first, None, self.every)

    def _every_long_one(self) -> Iterator[Tensor]:
        for each in islice(documents(self.corpus, "held out"), ENOUGH):
            ids = self.tokenizer(each.text, add_special_tokens=False, verbose=False)["input_ids"]
            if len(ids) >= self.longest:
                yield torch.tensor(ids[: self.longest])

    def tokens(self, text: str) -> int:
        """How many a text has."""
        return len(self.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])

    def packed(self, count: int) -> Subject:
        """For another process, where the corpus may not be: what is read of it now, so many passages, is all there is.

        The model in it is on the CPU, where every machine can take it from.
        """
        self._found(max(count, FILLERS))
        on_cpu = self.model if self.model.device.type == "cpu" else deepcopy(self.model).cpu()
        packed = replace(self, model=on_cpu)
        packed.__dict__["_long_ones"] = iter(())
        return packed

    def text_marks(self, count: int) -> list[str]:
        """Hashes of the tokens of each passage: with the seed they settle every prompt that is made of them."""
        found = self._found(max(count, FILLERS))
        self._marked.extend(_mark(json.dumps(ids.tolist())) for ids in found[len(self._marked) :])
        return self._marked[: len(found)]

    @cached_property
    def _marked(self) -> list[str]:
        """Those that are known: a search asks for them at every step."""
        return []

    def filler(self, random: Random) -> str:
        """Held-out text to hide something in, begun at any line."""
        found = self._found(FILLERS) or self.passages(1)
        texts = self.tokenizer.batch_decode([ids.tolist() for ids in found])
        lines = "".join(f"{text}\n" for text in texts).splitlines(keepends=True)
        begin = random.randrange(len(lines))
        return "".join(lines[begin:] + lines[:begin])

    def marks_at(self, sample: int) -> dict[str, str]:
        """Hashes of everything that the number of one sample depends on: the texts it may be made of among it."""
        texts = self.text_marks(sample + 1)
        return {**self.marks, "texts": " ".join([*texts[:FILLERS], *texts[sample : sample + 1]])}

    @cached_property
    def marks(self) -> dict[str, str]:
        """Hashes of what all numbers measured here depend on."""
        text = {"corpus": self.corpus, "longest": str(self.longest), "seed": str(self.seed)}
        stated = corrected(self.model)
        text |= {} if stated is None else {"trained_len": str(stated)}
        share = {} if self.every == 1 else {"share": f"one in {self.every} from {self.first}"}
        return marks_of(self.model, self.tokenizer) | self._own_marks() | text | share

    def _own_marks(self) -> dict[str, str]:
        """Of the extension that the model was trained under, where there is one, and of what that has learned."""
        if self.own == TrainedExtension():
            return {}
        said = {
            "extension": self.own.extension.to_json(),
            "lifts_windows": self.own.lifts_windows,
            "way": self.own.mode,
        }
        learned = {name: value.tolist() for name, value in sorted(self.own.learned.items())}
        return {"trained under": _mark(json.dumps({**said, "learned": learned}, sort_keys=True))}

    def under(self, line: Extension, **given: Any) -> AbstractContextManager[Handle]:
        """The model under a line, over what it was trained under, for as long as a block lasts."""
        return self.own.under(self.model, line, **given)

    @contextmanager
    def as_trained(self) -> Iterator[None]:
        """The model as it was trained, for as long as a block lasts, whatever it is under now."""
        with (
            without_extension(self.model),
            nullcontext() if self.own == TrainedExtension() else self.under(Extension()),
        ):
            yield


def marks_of(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> dict[str, str]:
    """Hashes of a model, bare, and of its tokenizer."""
    digest = hashlib.sha256()
    for name, value in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(value.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    config: dict[str, Any] = {**model.config.to_dict(), "_name_or_path": ""}  # wherever it lies
    return {
        "weights": digest.hexdigest()[:16],
        "config": _mark(json.dumps(config, sort_keys=True, default=str)),
        "tokenizer": _mark(json.dumps(tokenizer.get_vocab(), sort_keys=True)),
        "dtype": str(model.dtype),
    }


@contextmanager
def without_extension(model: PreTrainedModel) -> Iterator[None]:
    """The model without its extension, for as long as a block lasts; what the extension has learned is kept."""
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
        }
        again = extend(model, handle.extension, **how)
        for name, value in before.items():
            model.get_parameter(name).data.copy_(value)
        handle.undo.callback(again.remove)  # whoever removes the one has removed the other


def _mark(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
