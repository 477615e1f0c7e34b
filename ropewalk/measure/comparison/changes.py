"""Differences on the same texts: by the length of the context, by position in the longest text, and by the cache.

    by length:    loss of the last tokens at a length - the base model's at its trained length, or under a window of it
    by position:  loss of the tokens at a position    - the base model's at the same position
    by cache:     loss of the last tokens with rounded keys and values - that with exact ones
    area:         mean of the change by length, from the trained length to the longest, on an axis of log2(length)

Texts differ more than extensions do; what two losses of one text have in common cancels out.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from ropewalk.measure.comparison.comparison import Candidate, Comparison, difference_from
from ropewalk.measure.comparison.verdict import NO_ESTIMATE
from ropewalk.measure.metrics.intervals import Estimate, difference
from ropewalk.measure.tasks import Context, QuantisedCache


class PositionChange(NamedTuple):
    """The tokens around one position of the longest texts."""

    position: int  # the middle
    loss: float  # the mean over texts
    change: Estimate  # minus the base model's loss of the same tokens


def change_at(comparison: Comparison, candidate: Candidate, length: int) -> Estimate:
    """The change at one length; the verdict's at the longest. No estimate where the same tokens were not measured."""
    base = comparison.base.at(Context.name, comparison.trained_len)
    return difference_from(base, candidate.at(Context.name, length), comparison.standard_at(length))


def area(comparison: Comparison, candidate: Candidate) -> Estimate:
    """The area under the curve of the loss, by trapezoids between the lengths, over its width.

    Text by text, so that its interval is of differences. No estimate where a length has no row, or where lengths
    differ in the tokens that are scored.
    """
    lengths, base = comparison.lengths, comparison.base.at(Context.name, comparison.trained_len)
    rows = [candidate.at(Context.name, length) for length in lengths]
    same = all(comparison.standard_at(length) == "loss" for length in lengths)
    if base is None or len(lengths) < 2 or not same or not all(rows):
        return NO_ESTIMATE
    at = [math.log2(length) for length in lengths]
    ends = [at[0], *at, at[-1]]
    shares = [(ends[place + 2] - ends[place]) / (2 * (at[-1] - at[0])) for place in range(len(at))]
    by_text = zip(*([sample["loss"] for sample in row.samples] for row in rows if row), strict=True)
    curves = [sum(share * loss for share, loss in zip(shares, losses, strict=True)) for losses in by_text]
    return difference(curves, [sample["loss"] for sample in base.samples], groups=comparison.groups)


def change_by_cache(candidate: Candidate, cache: QuantisedCache, length: int) -> Estimate:
    """What a quantised cache adds to the loss at a length."""
    exact, rounded = (candidate.at(title, length) for title in (Context.name, cache.title))
    return difference_from(exact, rounded, "loss")


def changes_by_position(comparison: Comparison, candidate: Candidate) -> tuple[PositionChange, ...]:
    """The changes over the longest texts; none where they were not measured, no estimates where the base's were not."""
    bins, base_bins = (_bins(comparison, measured) for measured in (candidate, comparison.base))
    if not bins:
        return ()
    base_bins = base_bins or [()] * len(bins)
    width = comparison.lengths[-1] / len(bins)
    return tuple(
        PositionChange(
            position=round((place + 0.5) * width),
            loss=sum(losses) / len(losses),
            change=difference(losses, base_losses, groups=comparison.groups) if base_losses else NO_ESTIMATE,
        )
        for place, (losses, base_losses) in enumerate(zip(bins, base_bins, strict=True))
    )


def _bins(comparison: Comparison, candidate: Candidate) -> list[tuple[float, ...]]:
    """The losses of the longest texts at each position."""
    row = candidate.at(Context.name, comparison.lengths[-1])
    return list(zip(*(sample["curve"] for sample in row.samples), strict=True)) if row else []
