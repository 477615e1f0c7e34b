"""How long a text may grow before a model meets distances it was never trained on. Reported once, when it is passed."""

from __future__ import annotations

import math
import sys
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from ropewalk.errors import DoesNotFit
from ropewalk.extension.extension import Extension
from ropewalk.hf.attach.handle import handle_of
from ropewalk.hf.probe.facts import corrected_len, lengths_of
from ropewalk.methods.facts import Facts
from ropewalk.methods.reach import furthest

NO_LIMIT = 2**40  # tokens: a limit beyond this counts as none


class LengthLimit(NamedTuple):
    """A number of tokens, and what sets it."""

    tokens: float
    words: str


def limit_of(host: Any, to: int | None, of_twin: Extension | None = None) -> LengthLimit:
    """The limit of a model, extended or not, or that of --to, whichever comes first; `of_twin` is what a twin of the
    model is under that reads for it."""
    config, handle = host.config.get_text_config(), handle_of(host)
    extension = handle.extension if handle else of_twin or Extension()
    try:
        trained, original = lengths_of(config, corrected=handle.trained_len if handle else corrected_len(host))
        facts = Facts(trained_len=trained, original_len=original, head_dim=2, layers=config.num_hidden_layers)
    except DoesNotFit:  # the trained length is unknown
        return LengthLimit(math.inf if to is None else to, "the length of --to")
    known = covered_length(extension, facts)
    if to is not None and to <= known:
        return LengthLimit(to, "the length of --to")
    plain = handle is None and extension == Extension()
    words = "the trained length of the model" if plain else "the length that the extension covers"
    return LengthLimit(known, f"{words}; for more use yarn or rerope+log_n, with --to")


def covered_length(extension: Extension, facts: Facts) -> float:
    """The longest text in which no head meets an effective distance beyond the trained ones, times its stretch."""
    layers = [extension.at_layer(layer, facts) for layer in range(facts.layers)]
    every = {part.extension for layer in dict.fromkeys(layers) for part in layer.head_parts(facts)}
    return min(
        _longest_below(layer, layer.builds_on(facts).trained_len * layer.frequencies_or_rope.stretch) for layer in every
    )


def _longest_below(extension: Extension, length: float) -> float:
    def exceeds(row: int) -> bool:
        return furthest(extension.reach_or_causal, row) + 1 > length

    return bisect_left(range(NO_LIMIT), True, key=exceeds) if exceeds(NO_LIMIT) else math.inf


def watched(tokens: Iterable[int], read: int, limit: LengthLimit) -> Iterator[int]:
    """Pass tokens on, and report once when the text, `read` tokens included, exceeds the limit."""
    reported = False
    for length, token in enumerate(tokens, read + 1):
        if length > limit.tokens and not reported:
            reported = True
            sys.stderr.write(f"ropewalk: the text now exceeds {limit.tokens:,.0f} tokens, {limit.words}\n")
        yield token
