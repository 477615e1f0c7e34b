"""Several contexts and one question: every context is read separately, and every token is chosen from all of them.

Contexts are rows of a batch, padded on the left and followed by the same question; one more row has only the question.
Their next-token distributions become one by a rule of decoding/ (NBCE, or the mean of parallel windows), and the chosen
token continues every row.

Legend: b row, n token, v word.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import DynamicCache, PreTrainedModel

from ropewalk.errors import InvalidValue
from ropewalk.extension.parsing import parse
from ropewalk.hf.attach.handle import host_of
from ropewalk.hf.probe.host import device_of, quiet
from ropewalk.hf.runtime.caches import writing
from ropewalk.hf.use.long_text import CHUNK_LEN, Progress, sampler
from ropewalk.methods.decoding import Decoding


class ContextToken(NamedTuple):
    """One token of the answer, and the context that the rule chose for it (from 0), or None."""

    id: int
    context: int | None


class ContextAnswer(NamedTuple):
    """The answer as text, and its tokens."""

    text: str
    tokens: tuple[ContextToken, ...]


def nbce_generate(
    model: nn.Module, tokenizer: Any, contexts: Sequence[str], question: str, **kwargs: Any
) -> ContextAnswer:
    """The answer to a question about several contexts.

        answer = rw.nbce_generate(model, tokenizer, ["first context", "second context"], "Question?")
        print(answer.text)

    Args:
        model: a loaded model.
        tokenizer: of the model.
        contexts: texts, each of which fits the model.
        question: asked about all of them.
        kwargs: those of `nbce_stream`.

    Returns:
        A `ContextAnswer`: the text, and its tokens with their contexts.
    """
    tokens = tuple(nbce_stream(model, tokenizer, contexts, question, **kwargs))
    return ContextAnswer(tokenizer.decode([token.id for token in tokens], skip_special_tokens=True), tokens)


def nbce_stream(
    model: nn.Module,
    tokenizer: Any,
    contexts: Sequence[str],
    question: str,
    *,
    decoding: Decoding | str = "nbce",
    max_new_tokens: int = 64,
    rows_at_once: int | None = None,
    temperature: float = 0.0,
    top_k: int = 0,
    top_p: float = 1.0,
    seed: int = 0,
    progress: Progress | None = None,
) -> Iterator[ContextToken]:
    """The tokens of the answer one by one, each a `ContextToken`.

        for token in rw.nbce_stream(model, tokenizer, ["first context", "second context"], "Question?"):
            print(tokenizer.decode([token.id]), token.context)

    Args:
        model: a loaded model.
        tokenizer: of the model.
        contexts: texts, each of which fits the model.
        question: asked about all of them.
        decoding: the rule that combines the contexts, or its name.
        max_new_tokens: of the answer, at most.
        rows_at_once: contexts that are read together; by default as many as there are.
        temperature: 0 takes the likeliest token.
        top_k: so many likeliest tokens are drawn from; 0: all.
        top_p: the likeliest tokens of this share in sum are drawn from.
        seed: of the draw.
        progress: called with the tokens that are read and those in all, of all rows with their padding.
    """
    host, rule = host_of(model), _decoding(decoding)
    if not contexts or isinstance(contexts, str):
        raise InvalidValue("contexts", "a list of texts, at least one", contexts)
    if rows_at_once is not None and rows_at_once < 1:
        raise InvalidValue("rows_at_once", "at least 1", rows_at_once)
    rows = _rows(tokenizer, contexts, question)
    choose = sampler(temperature, top_k, top_p, torch.Generator().manual_seed(seed))
    begun = partial(_groups, host, rows, rows_at_once or len(rows), progress)
    return _answer(begun, rule, choose, end_tokens(host, tokenizer), max_new_tokens)


def _answer(
    begun: Callable[[], list[_RowGroup]], rule: Decoding, choose: Any, ends: set[int], count: int
) -> Iterator[ContextToken]:
    """Token by token. No mode of the model or of torch stays set between two tokens: a caller may train meanwhile."""
    groups = begun()
    last: int | None = None
    for _ in range(count):
        logp_bv = torch.cat([group.logits_bv.float().cpu() for group in groups]).log_softmax(-1)
        combined = rule.combine(logp_bv, last)
        last, token = combined.chosen, int(choose(combined.logp[None])[0])
        if token in ends:
            return
        yield ContextToken(token, None if last is None else last - 1)
        for group in groups:
            with writing():
                group.read(torch.full((len(group.mask), 1), token))


class _RowGroup:
    """Rows that are read together, with their cache."""

    def __init__(self, host: PreTrainedModel, rows: Sequence[Sequence[int]]) -> None:
        self._host, self._cache, self._evaluating = host, DynamicCache(config=host.config), quiet(host)
        longest = max(map(len, rows))
        self.begins = torch.tensor([[0] * (longest - len(row)) + list(row) for row in rows])
        self._real = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in rows])
        self.mask = self._real[:, :0]

    def begin(self) -> Iterator[int]:
        """Read the beginnings of the rows; yields the number of tokens of every chunk."""
        for first in range(0, self.begins.shape[1], CHUNK_LEN):
            part = self.begins[:, first : first + CHUNK_LEN]
            self.read(part, self._real[:, first : first + CHUNK_LEN])
            yield part.numel()

    def read(self, ids: Tensor, real: Tensor | None = None) -> None:
        """Read these tokens in every row, and store the logits after them."""
        device = device_of(self._host)
        self.mask = torch.cat([self.mask, torch.ones_like(ids) if real is None else real], 1)
        places = (self.mask.cumsum(1) - 1).clamp(min=0)[:, -ids.shape[1] :]
        inputs = {"attention_mask": self.mask.to(device), "position_ids": places.to(device), "logits_to_keep": 1}
        cached = {"past_key_values": self._cache, "use_cache": True}
        with self._evaluating, torch.no_grad():
            self.logits_bv: Tensor = self._host(input_ids=ids.to(device), **inputs, **cached).logits[:, -1]


def _groups(host: PreTrainedModel, rows: list[list[int]], size: int, progress: Progress | None) -> list[_RowGroup]:
    """All rows in groups of `size`, with their beginnings read."""
    groups = [_RowGroup(host, rows[first : first + size]) for first in range(0, len(rows), size)]
    done, total = 0, sum(group.begins.numel() for group in groups)
    for group in groups:
        for count in group.begin():
            done += count
            if progress:
                progress(done, total)
    return groups


def _decoding(decoding: Decoding | str) -> Decoding:
    if isinstance(decoding, str):
        parsed = parse(decoding)
        rest = [name for name in parsed.specs if name != "decoding"]
        if rest:
            raise InvalidValue(
                "decoding", "a rule of decoding alone", decoding, remedy=f"extend the model by {rest[0]}"
            )
        decoding = parsed.decoding or decoding
    if not isinstance(decoding, Decoding):
        raise InvalidValue("decoding", "a rule of decoding, such as nbce or parallel_windows", decoding)
    if not decoding.of_contexts:
        remedy = "use rw.contrast_stream"
        raise InvalidValue.because("decoding", f"{decoding.name} combines readings of one text", remedy=remedy)
    if decoding.of_attention:
        sentence = f"{decoding.name} joins contexts in attention, and not their distributions"
        raise InvalidValue.because("decoding", sentence, remedy="use rw.ape_stream")
    return decoding


def _rows(tokenizer: Any, contexts: Sequence[str], question: str) -> list[list[int]]:
    """The question alone, and after every context; the tokenizer's special first tokens begin every row."""
    asked = tokenizer(question, add_special_tokens=False)["input_ids"]
    if not asked:
        raise InvalidValue("question", "not empty", question)
    return [[*tokenizer(context)["input_ids"], *asked] for context in ("", *contexts)]


def end_tokens(host: PreTrainedModel, tokenizer: Any) -> set[int]:
    """The tokens that end an answer, by the model's generation config and the tokenizer."""
    stated: Any = getattr(host.generation_config, "eos_token_id", None)
    ends = stated if isinstance(stated, list) else [stated]
    return {end for end in (*ends, tokenizer.eos_token_id) if end is not None}
