"""Ways to read one text that must give the same logits: in chunks, in a padded batch, by generate with each cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

PADDING, STEPS, NEW = 28, 4, 6  # tokens: of padding, read one by one, generated


class Rows(NamedTuple):
    """A model and two texts; the second is shorter, and padded on the left in a batch with the first."""

    model: Any
    text: dict[str, Tensor]
    other: dict[str, Tensor]

    @property
    def tokens(self) -> int:
        """Of the longer text."""
        return int(self.text["input_ids"].shape[1])

    @torch.no_grad()
    def whole(self, text: dict[str, Tensor] | None = None) -> Tensor:
        """The logits of a text by itself, at once and without a cache."""
        return self.model(**(text or self.text), use_cache=False).logits

    @torch.no_grad()
    def through_cache(self, text: dict[str, Tensor], sizes: list[int]) -> Tensor:
        """The logits of a text that is read in chunks of these sizes, through the model's own cache or ours."""
        cache, parts, first = None, [], 0
        for size in sizes:
            past = {} if cache is None else {"past_key_values": cache}
            answer = self.model(**chunk(text, first, first + size), use_cache=True, **past)
            cache, first = answer.past_key_values, first + size
            assert cache is not None, "no cache came back"
            parts.append(answer.logits)
        return torch.cat(parts, 1)

    def chunks(self) -> list[int]:
        """The sizes of two chunks and some single tokens."""
        return [30, self.tokens - 30 - STEPS, *[1] * STEPS]

    def padded(self, *, numbered: bool) -> dict[str, Tensor]:
        """Both texts as one batch, the positions counted from each row's first token where `numbered`."""
        short, tokens = self.other["input_ids"].shape[1], self.tokens
        batch = {}
        for name, value in self.text.items():
            second = self.other[name]
            if value.shape[:2] == (1, tokens):
                second = torch.cat([second.new_zeros(1, tokens - short, *second.shape[2:]), second], 1)
            batch[name] = torch.cat([value, second])
        mask = torch.ones(2, tokens, dtype=torch.long)
        mask[1, : tokens - short] = 0
        batch["attention_mask"] = mask
        if numbered:
            batch["position_ids"] = (mask.cumsum(1) - 1).clamp(min=0)
        return batch

    def alone(self, *, numbered: bool = False) -> Tensor:
        """The logits of each text by itself, all tokens one after the other; positions from 0 where `numbered`."""
        texts = [self.text, self.other]
        if numbered:  # PaliGemma counts from 1 by itself
            texts = [{**text, "position_ids": torch.arange(text["input_ids"].shape[1])[None]} for text in texts]
        return torch.cat([self.whole(text)[0] for text in texts])

    def of_batch(self, logits: Tensor) -> Tensor:
        """The same of a batch, without those of the padding."""
        return torch.cat([logits[0], logits[1, self.tokens - self.other["input_ids"].shape[1] :]])

    @torch.no_grad()
    def generated(self, text: dict[str, Tensor], **how: Any) -> tuple[Tensor, Tensor]:
        """What greedy generation appends to the beginning of a text, and the logits that it was chosen from.

        Not the token of padding, which some models take as padding wherever it comes.
        """
        prompt = chunk(text, 0, text["input_ids"].shape[1] - NEW)
        greedy: dict[str, Any] = {"do_sample": False, "min_new_tokens": NEW, "max_new_tokens": NEW, "pad_token_id": 0}
        greedy["suppress_tokens"] = [0, *(self.model.generation_config.suppress_tokens or [])]
        answer = self.model.generate(**prompt, **greedy, **how, return_dict_in_generate=True, output_logits=True)
        return answer.sequences[:, -NEW:], torch.stack(answer.logits, 1)


def chunk(text: dict[str, Tensor], first: int, stop: int) -> dict[str, Tensor]:
    """A part of a text. Its mask reaches back to the beginning; what belongs to no token comes with the first part."""
    shape, part = text["input_ids"].shape, {}
    for name, value in text.items():
        if name == "attention_mask":
            part[name] = value[:, :stop]
        elif value.shape[:2] == shape:
            part[name] = value[:, first:stop]
        elif first == 0:
            part[name] = value
    return part


def in_chunks(rows: Rows) -> tuple[Tensor, Tensor]:
    """Two chunks and single tokens."""
    return rows.through_cache(rows.text, rows.chunks()), rows.whole()


def token_by_token(rows: Rows) -> tuple[Tensor, Tensor]:
    """The last tokens one by one, as in generation."""
    return rows.through_cache(rows.text, [rows.tokens - STEPS, *[1] * STEPS]), rows.whole()


def in_a_batch(rows: Rows) -> tuple[Tensor, Tensor]:
    """A batch with padding and no positions: the model, or Ropewalk, counts them."""
    batch = rows.padded(numbered=False)
    with torch.no_grad():
        return rows.of_batch(rows.model(**batch, use_cache=False).logits), rows.alone()


def in_a_numbered_batch(rows: Rows) -> tuple[Tensor, Tensor]:
    """The same with positions."""
    batch = rows.padded(numbered=True)
    with torch.no_grad():
        return rows.of_batch(rows.model(**batch, use_cache=False).logits), rows.alone(numbered=True)


def in_a_batch_token_by_token(rows: Rows) -> tuple[Tensor, Tensor]:
    """A batch through the cache, as generate reads it."""
    batch = rows.padded(numbered=True)
    return rows.of_batch(rows.through_cache(batch, [rows.tokens - STEPS, *[1] * STEPS])), rows.alone(numbered=True)


def by_generate(rows: Rows) -> tuple[Tensor, Tensor]:
    """Greedy, with the model's own cache and without any."""
    return as_long_as_equal(rows.generated(rows.text), rows.generated(rows.text, use_cache=False))


def by_generate_in_a_static_cache(rows: Rows) -> tuple[Tensor, Tensor]:
    """Greedy, with transformers' cache of a fixed size."""
    static = rows.generated(rows.text, cache_implementation="static")
    return as_long_as_equal(static, rows.generated(rows.text, use_cache=False))


def by_generate_in_a_batch(rows: Rows) -> tuple[Tensor, Tensor]:
    """Greedy for a padded batch, and for its shorter row alone."""
    tokens, logits = rows.generated(rows.padded(numbered=False))
    return as_long_as_equal((tokens[1:], logits[1:]), rows.generated(rows.other))


def as_long_as_equal(one: tuple[Tensor, Tensor], two: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """The logits of both, up to the first token that differs: if these are equal, it was a tie."""
    differ = (one[0] != two[0]).any(0).nonzero()
    count = int(differ[0]) + 1 if len(differ) else one[0].shape[1]
    return one[1][:, :count], two[1][:, :count]


Reading = Callable[[Rows], tuple[Tensor, Tensor]]
READINGS: dict[str, Reading] = {  # by what a row of the page calls them
    "chunks": in_chunks,
    "token by token": token_by_token,
    "padding": in_a_batch,
    "padding with positions": in_a_numbered_batch,
    "padding through the cache": in_a_batch_token_by_token,
    "generate": by_generate,
    "generate in a static cache": by_generate_in_a_static_cache,
    "generate with padding": by_generate_in_a_batch,
}
