"""Texts with their key tokens, as a reference chose them: made, written to a file, read, and carried to a tokenizer.

A reference is a model under an extension. It reads a text twice: in windows of its trained length that advance by half
of it (near), and whole (far). Key tokens are those whose loss falls by more than `gain` nats from near to far, and is
below `most` nats with the far context (measure/metrics/perplexity.py). They are stored as intervals of
characters beside the text, so that a model with another tokenizer is judged on the same characters, and no judged model
chooses what it is judged on. A token of another tokenizer is a key token if all its characters are in one interval.

Source: Fang et al. 2025, arXiv:2410.23771, sec. 3; PKU-ML/LongPPL, longppl.py. Deviations: the last short window
ends with the text and is as long as the others; intervals are JSON, not text that is evaluated.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from functools import lru_cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from ropewalk.errors import DoesNotFit, Unreadable
from ropewalk.extension.extension import Extension
from ropewalk.files import holds, read_record
from ropewalk.folders import write_whole
from ropewalk.measure.material.subject import Subject, without_extension
from ropewalk.measure.metrics.perplexity import is_key, strided_losses
from ropewalk.methods.spec import Json

KEY_TEXTS_VERSION = 1  # of the file
RULE = "a file of key tokens, as `ropewalk compare --tasks longppl` writes it"
HOLDS = 0.25  # nats: a reference whose loss rises by more on the whole text does not read it
LEAST_SHARE = 0.5  # share of the key characters that must be in tokens of the judged model

Interval = tuple[int, int]


class KeyText(NamedTuple):
    """A text, the intervals of its key characters in order, and the reference's mean losses of all its tokens."""

    text: str
    keys: tuple[Interval, ...]
    near: float
    far: float

    @property
    def mark(self) -> str:
        """A hash of what a judged model's numbers depend on."""
        return hash_of(json.dumps([self.text, self.keys]))


class KeyRule(NamedTuple):
    """Who chooses the key tokens, and by which thresholds in nats."""

    reference: Extension
    gain: float
    most: float


class CarriedText(NamedTuple):
    """A text under a tokenizer."""

    ids: Tensor  # [tokens]
    keys: Tensor  # which of the losses, that of the second token first, are of key tokens
    share: float  # of the key characters that are in key tokens


def key_text(subject: Subject, sample: int, rule: KeyRule) -> KeyText:
    """A passage of a subject with the key tokens of its model under the rule's reference.

    text = key_text(subject, 0, KeyRule(rw.parse("rerope:window=256+log_n"), gain=2.0, most=2.0))
    print([text.text[begin:end] for begin, end in text.keys])
    """
    text = str(subject.tokenizer.decode(subject.passages(sample + 1)[sample]))
    ids, offsets = _tokenise(text, subject.tokenizer)
    window, ids = subject.facts.trained_len, ids.to(subject.device)
    with without_extension(subject.model), subject.under(rule.reference):
        read = partial(strided_losses, subject.model, ids, begin=subject.begin)
        near, whole = read(window=window, stride=near_stride(window)), len(ids) - 1 + len(subject.begin)
        far = read(window=whole, stride=whole)
    chosen = is_key(far, near, gain=rule.gain, most=rule.most).nonzero().flatten().tolist()
    keys = merge([offsets[loss + 1] for loss in chosen])
    return KeyText(text, keys, float(near.double().mean()), float(far.double().mean()))


def near_stride(window: int) -> int:
    """By how much the windows of the near context advance."""
    return max(1, window // 2)


def merge(intervals: Sequence[Interval]) -> tuple[Interval, ...]:
    """Intervals in order, those that touch or overlap as one; empty ones left out."""
    joined: list[Interval] = []
    for begin, end in intervals:
        if joined and begin <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        elif begin < end:
            joined.append((begin, end))
    return tuple(joined)


def require_reader(texts: Sequence[KeyText], reference: str) -> None:
    """Refuse a reference that reads whole texts worse than windows of them, or finds no key token."""
    rise = sum(text.far - text.near for text in texts) / len(texts)
    remedy = "name another, such as reference=self_extend, or take shorter texts"
    if not rise <= HOLDS:
        sentence = f"the reference {reference} does not read these texts: its loss is {rise:.2f} nats higher on"
        sentence += f" the whole text than in windows of the trained length, and may rise by {HOLDS}"
        raise DoesNotFit.because("reference", sentence, remedy=remedy)
    if not any(text.keys for text in texts):
        sentence = f"the reference {reference} finds no key token in {len(texts)} texts"
        raise DoesNotFit.because("reference", sentence, remedy="take longer texts, a lower gain or a higher most")


def write_key_texts(place: Path, texts: Sequence[KeyText], made: Json) -> None:
    """Write texts with their key tokens; `made` says by whom and how they were chosen."""
    rows = [{"hash": hash_of(text.text), **text._asdict()} for text in texts]
    write_whole(place, json.dumps({"version": KEY_TEXTS_VERSION, **made, "texts": rows}, indent=1) + "\n")


def read_key_texts(path: str) -> tuple[KeyText, ...]:
    """The texts of a file; it is read again when it has changed."""
    place = Path(path)
    if not holds(place.is_file):
        raise Unreadable("keys", "a file that exists", path)
    return _read(place, place.stat().st_mtime_ns)


@lru_cache(maxsize=4)
def _read(place: Path, changed: int) -> tuple[KeyText, ...]:
    record = read_record(place, RULE)
    if record.get("version") != KEY_TEXTS_VERSION:
        raise Unreadable("keys", f"{RULE}, of version {KEY_TEXTS_VERSION}", record.get("version"))
    rows = record.get("texts")
    if not isinstance(rows, list) or not rows:
        raise Unreadable("keys", f"{RULE}, with texts", rows)
    return tuple(_key_text(row, f"{place.name}, text {number}") for number, row in enumerate(rows))


def _key_text(row: Any, where: str) -> KeyText:
    """A row of a file; whatever was changed by hand is refused."""
    fields = row if isinstance(row, dict) else {}
    text, keys, near, far = (fields.get(name) for name in ("text", "keys", "near", "far"))
    if not (isinstance(text, str) and isinstance(keys, list) and isinstance(near, float) and isinstance(far, float)):
        raise Unreadable(where, "an object with hash, text, keys, near and far", row)
    if hash_of(text) != fields.get("hash"):
        sentence = f"{where}: the text is not the one whose key tokens were chosen"
        raise Unreadable.because(where, sentence, remedy="make the file again")
    return KeyText(text, _intervals(keys, len(text), where), near, far)


def _intervals(keys: list[Any], characters: int, where: str) -> tuple[Interval, ...]:
    """Pairs of whole numbers in order, none empty, none outside the text."""
    ends = [end for pair in keys if isinstance(pair, list) for end in pair]
    pairs = len(ends) == 2 * len(keys) and all(isinstance(pair, list) and len(pair) == 2 for pair in keys)
    if not pairs or not all(type(end) is int for end in ends):
        raise Unreadable(where, "keys that are pairs of whole numbers", keys)
    rising = all(a < b for a, b in pairwise(ends))
    if not rising or (ends and not 0 <= ends[0] <= ends[-1] <= characters):
        raise Unreadable(where, f"keys in order, apart, and within the {characters} characters of the text", keys)
    return tuple(zip(ends[::2], ends[1::2], strict=True))


def carry_over(key: KeyText, tokenizer: PreTrainedTokenizerBase) -> CarriedText:
    """The key tokens of a text under any tokenizer: those that are wholly in an interval of key characters."""
    ids, offsets = _tokenise(key.text, tokenizer)
    inside = [_is_inside(offset, key.keys) for offset in offsets]
    kept = merge([offset for offset, in_keys in zip(offsets, inside, strict=True) if in_keys])
    share = _characters(kept) / max(1, _characters(key.keys))
    if key.keys and share < LEAST_SHARE:
        sentence = (
            f"only {share:.0%} of the key characters are in whole tokens of this tokenizer, {LEAST_SHARE:.0%} must be"
        )
        raise DoesNotFit.because("keys", sentence, remedy="make the file with a reference whose tokens are as long")
    return CarriedText(ids, torch.tensor(inside[1:], dtype=torch.bool), share)


def _is_inside(offset: Interval, keys: Sequence[Interval]) -> bool:
    """Whether all characters of a token, and at least one, are in one interval."""
    begin, end = offset
    return begin < end and any(first <= begin and end <= last for first, last in keys)


def _characters(intervals: Sequence[Interval]) -> int:
    return sum(end - begin for begin, end in intervals)


def _tokenise(text: str, tokenizer: PreTrainedTokenizerBase) -> tuple[Tensor, list[Interval]]:
    """The tokens of a text, and the characters of each."""
    if not tokenizer.is_fast:
        rule = "a fast one, which knows the characters of each token"
        raise DoesNotFit("tokenizer", rule, type(tokenizer))
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    return torch.tensor(encoded["input_ids"]), [(begin, end) for begin, end in encoded["offset_mapping"]]


def hash_of(text: str) -> str:
    """A short hash of a text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
