"""How long a text may grow before a model, as it is extended, is shown what it was never trained on; said once."""

from __future__ import annotations

import math
import sys
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from ropewalk.errors import DoesNotFit
from ropewalk.extension import Extension
from ropewalk.facts import Facts
from ropewalk.hf.attach.handle import handle_of
from ropewalk.hf.probe.facts import lengths_of
from ropewalk.reach import furthest

FAR = 2**40  # tokens: what is not exceeded by then never is


class LengthLimit(NamedTuple):
    """So many tokens, and what they are."""

    tokens: float
    words: str


def limit_of(host: Any, to: int | None) -> LengthLimit:
    """Of a model as it is, bare or extended, and of the length that was said, whichever comes first."""
    config, handle = host.config.get_text_config(), handle_of(host)
    own = handle.extension if handle else Extension()
    try:
        trained, original = lengths_of(config, corrected=handle.trained_len if handle else None)
        facts = Facts(trained_len=trained, original_len=original, head_dim=2, layers=config.num_hidden_layers)
    except DoesNotFit:  # nobody knows
        return LengthLimit(math.inf if to is None else to, "the length of --to")
    known = familiar(own, facts)
    if to is not None and to <= known:
        return LengthLimit(to, "the length of --to")
    words = f"the length that {'its extension is made for' if handle else 'the model was trained on'}"
    return LengthLimit(known, f"{words}; yarn, rerope+log_n and others reach further, with --to")


def familiar(extension: Extension, facts: Facts) -> float:
    """The longest text in which no layer is shown a distance beyond the trained ones, times what its schedule slows."""
    every = {extension.at_layer(layer, facts) for layer in range(facts.layers)}
    return min(_familiar(each, each.ground(facts).trained_len * each.theta.stretch) for each in every)


def _familiar(own: Extension, length: float) -> float:
    def exceeds(row: int) -> bool:
        return furthest(own.spans, row) + 1 > length

    return bisect_left(range(FAR), True, key=exceeds) if exceeds(FAR) else math.inf


def watched(tokens: Iterable[int], read: int, limit: LengthLimit) -> Iterator[int]:
    """The same tokens, after so many that were read; that they are beyond the limit is said once."""
    said = False
    for length, token in enumerate(tokens, read + 1):
        if length > limit.tokens and not said:
            said = True
            sys.stderr.write(f"ropewalk: from here on beyond {limit.tokens:,.0f} tokens, {limit.words}\n")
        yield token
