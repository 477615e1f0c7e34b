"""What a tokenizer puts before a text, around a chat, and into ids; and the text of tokens while they arrive."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ropewalk.errors import DoesNotFit
from ropewalk.files import why

# The tokens that a tokenizer puts before every text, such as Llama's begin-of-text token; often there are none.
#
# A model that was trained with them reads no text well without them: the first one is its attention sink.


def begin_tokens(tokenizer: Any) -> tuple[int, ...]:
    """What stands before a letter when special tokens are added to it."""
    return tokens_around(tokenizer)[0]


def tokens_around(tokenizer: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """What stands before and behind a letter when special tokens are added to it."""
    plain, whole = (
        list(tokenizer("a", add_special_tokens=added, verbose=False)["input_ids"]) for added in (False, True)
    )
    places = range(len(whole) - len(plain) + 1)
    place = next((place for place in places if whole[place:][: len(plain)] == plain), None)
    return ((), ()) if place is None else (tuple(whole[:place]), tuple(whole[place + len(plain) :]))


def add_begin_tokens(ids_n: Tensor, begin: Sequence[int], length: int) -> Tensor:
    """The last tokens of a text, after those that begin one: at most `length` in all.

    begun(torch.tensor([5, 6, 7, 8]), (1,), 3)    # 1, 7, 8
    """
    first = torch.tensor(begin[:length], dtype=ids_n.dtype, device=ids_n.device)
    return torch.cat([first, ids_n[max(0, len(ids_n) - length + len(first)) :]])


# A user's message in a chat template: a program that came with the model, and may raise whatever it likes.


def chat_prompt(tokenizer: Any, message: str) -> str:
    """The text that the model reads; refused where its template refuses the message."""
    turn = [{"role": "user", "content": message}]
    try:
        return str(tokenizer.apply_chat_template(turn, tokenize=False, add_generation_prompt=True))
    except MemoryError:
        raise
    except Exception as wrong:
        sentence = f"the model's chat template cannot write the message: {type(wrong).__name__}: {why(wrong)}"
        raise DoesNotFit.because("chat template", sentence, remedy="correct the template beside the model") from wrong


# The token ids of a long text, tokenised in pieces: a tokenizer needs some hundred bytes for each character at once.
#
# Two neighbouring pieces overlap, and are joined in the middle of the tokens that both have there, far from the end of
# the one and from the beginning of the other. So the ids are those of the whole text. Where pieces have too little in
# common, as in a run of one letter, longer ones are taken, up to the whole text.


CHARACTERS_AT_ONCE, OVERLAP = 2**16, 2**11  # characters that are tokenised at once, and that two pieces share
SHARED = 32  # tokens that two pieces must have in common

Progress = Callable[[float, float], None]


class _Piece(NamedTuple):
    """A part of a text: its first character and the one after its last, its ids, and the characters of each token."""

    start: int
    stop: int
    ids: list[int]
    places: list[tuple[int, int]]


def token_ids(
    tokenizer: Any, text: str, most: int | None = None, *, progress: Progress = lambda done, total: None
) -> Tensor:
    """The ids of a text without special tokens; of the first `most` tokens, no more of the text is read than needed.

    `progress` is told how many characters of a long text are done.
    """
    parts, count = [torch.zeros(0, dtype=torch.long)], 0
    for ids, done in _pieces(tokenizer, text):
        parts.append(torch.tensor(ids, dtype=torch.long))
        count += len(ids)
        if done < len(text):
            progress(done, len(text))
        if most is not None and count >= most:
            break
    return torch.cat(parts)[:most]


def prompt_ids(tokenizer: Any, text: str, *, progress: Progress = lambda done, total: None) -> Tensor:
    """The ids of a text with the tokens that begin and end every text."""
    begin, end = tokens_around(tokenizer)
    return torch.cat(
        [torch.tensor(begin).long(), token_ids(tokenizer, text, progress=progress), torch.tensor(end).long()]
    )


def _pieces(tokenizer: Any, text: str) -> Iterator[tuple[list[int], int]]:
    """Ids that follow each other, and the characters read so far. A tokenizer without offsets reads the whole text."""
    if len(text) <= CHARACTERS_AT_ONCE or not tokenizer.is_fast:
        yield list(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]), len(text)
        return
    left, first = _piece(tokenizer, text, 0, CHARACTERS_AT_ONCE), 0
    while left.stop < len(text):
        right = _piece(tokenizer, text, left.stop - OVERLAP, left.stop - OVERLAP + CHARACTERS_AT_ONCE)
        joint = _joint(left, right)
        if joint is None:
            left = _piece(tokenizer, text, left.start, 2 * left.stop - left.start)
            continue
        yield left.ids[first : joint[0]], left.stop
        left, first = right, joint[1]
    yield left.ids[first:], len(text)


def _piece(tokenizer: Any, text: str, start: int, stop: int) -> _Piece:
    stop = min(stop, len(text))
    how = {"add_special_tokens": False, "return_offsets_mapping": True, "verbose": False}
    encoded = tokenizer(text[start:stop], **how)
    places = [(start + begin, start + end) for begin, end in encoded["offset_mapping"]]
    return _Piece(start, stop, encoded["input_ids"], places)


def _joint(left: _Piece, right: _Piece) -> tuple[int, int] | None:
    """The middle of the longest run of tokens that two pieces share, in each of them; None where it is short."""
    known = {(place, token): number for number, (place, token) in enumerate(zip(right.places, right.ids, strict=True))}
    best = length = 0
    end, last = (0, 0), -1
    for number in range(len(left.ids)):
        other = known.get((left.places[number], left.ids[number]))
        length = 0 if other is None else length + 1 if other == last + 1 else 1
        last = -1 if other is None else other
        if length > best:
            best, end = length, (number + 1, last + 1)
    return (end[0] - best // 2, end[1] - best // 2) if best >= SHARED else None


# Text as it grows: the tokens of a model, one by one, as pieces of text with whole characters.


INCOMPLETE = "\ufffd"  # what an incomplete character is decoded to
MOST_WAITING = 8  # tokens that may wait for the rest of a character; none has more bytes than 4
CONTEXT = 6  # tokens that are decoded again with the next: a decoder drops the space before the first
CHARACTER = 4  # tokens of one character, at most: the context may have to begin so many earlier
MOST_DECODED = 48  # tokens that are decoded together, at most


class GrowingText:
    """The text of tokens while they arrive.

    text = GrowingText(tokenizer)
    for token in tokens: print(text.push(token), end="")
    print(text.rest())
    """

    def __init__(self, tokenizer: Any, *, skip_special: bool = True) -> None:
        self._tokenizer, self._skip_special = tokenizer, skip_special
        self._ids: list[int] = []  # the last tokens
        self._shown = 0  # characters of their text that were returned
        self._waiting = 0  # tokens since then

    def push(self, token: int) -> str:
        """The text that is certain with one more token; an incomplete character waits for its other tokens."""
        self._ids.append(token)
        self._waiting += 1
        text = self._decode(self._ids)
        if text.endswith(INCOMPLETE) and self._waiting < MOST_WAITING:
            return ""
        new, self._shown, self._waiting = text[self._shown :], max(self._shown, len(text)), 0
        if len(self._ids) >= 2 * CONTEXT:
            self._forget_beginning(text)
        return new

    def rest(self) -> str:
        """What waits, at the end."""
        return self._decode(self._ids)[self._shown :]

    def _forget_beginning(self, text: str) -> None:
        """Keep the last tokens, from the beginning of a character: so their text is the end of the whole one."""
        for count in range(CONTEXT, CONTEXT + CHARACTER):
            kept = self._decode(self._ids[-count:])
            if text.endswith(kept) or len(self._ids) >= MOST_DECODED:
                self._ids, self._shown = self._ids[-count:], len(kept)
                return

    def _decode(self, ids: list[int]) -> str:
        text: str = self._tokenizer.decode(
            ids, skip_special_tokens=self._skip_special, clean_up_tokenization_spaces=False
        )
        return text
