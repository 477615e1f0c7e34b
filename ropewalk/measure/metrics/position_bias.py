"""Position bias: how the loss of an answer depends on where in the text it stands.

    band b         depths from b / 5 to (b + 1) / 5 of the text, the last one with its end; 0 is far from the question
    middle         loss(band 2) - mean(loss(band 0), loss(band 4))       above 0: lost in the middle
    far            loss(band 0) - loss(band 4)                           above 0: the beginning is harder than the end

Intervals of differences are made from those of their parts, which have no sample in common.

Source: the shape is Liu et al. 2024, arXiv:2307.03172 (lost in the middle), there of accuracy over the order of
documents.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ropewalk.errors import InvalidValue
from ropewalk.measure.metrics.intervals import Estimate, mean, minus
from ropewalk.methods.spec import Json

BANDS = 5  # of a text


class PositionBias(NamedTuple):
    """The loss in each band of depth that has samples, and what the bands have to say together."""

    bands: Mapping[int, Estimate]
    middle: Estimate | None  # None where a band that it needs has no samples
    far: Estimate | None

    def to_json(self) -> Json:
        """Bands by their beginning and end, and the differences that are known."""
        bands = [
            {"from": band / BANDS, "to": (band + 1) / BANDS, **loss.to_json()} for band, loss in self.bands.items()
        ]
        known = {"middle": self.middle, "far": self.far}
        return {"bands": bands, **{name: value and value.to_json() for name, value in known.items()}}


def position_bias(samples: Sequence[Mapping[str, Any]]) -> PositionBias:
    """From samples that have a depth and the loss of the right answer.

    bias = position_bias([{"depth": 0.1, "loss": 2.0}, {"depth": 0.5, "loss": 3.0}, {"depth": 0.9, "loss": 1.0}])
    bias.middle.value  # 1.5, with an interval that one sample for each band leaves open
    """
    by_band: dict[int, list[float]] = {}
    for sample in samples:
        by_band.setdefault(band_of(sample["depth"]), []).append(sample["loss"])
    bands = {band: mean(losses, least=0.0) for band, losses in sorted(by_band.items())}
    first, middle, last = (bands.get(band) for band in (0, BANDS // 2, BANDS - 1))
    far = minus(first, last) if first and last else None
    return PositionBias(bands, minus(middle, _half_of_both(first, last)) if middle and first and last else None, far)


def band_of(depth: float) -> int:
    """The band of a depth."""
    if not 0 <= depth <= 1:
        raise InvalidValue("depth", "from 0 to 1", depth)
    return min(int(depth * BANDS), BANDS - 1)


def _half_of_both(a: Estimate, b: Estimate) -> Estimate:
    """The mean of two independent estimates."""
    value, below = (a.value + b.value) / 2, math.hypot(a.value - a.low, b.value - b.low) / 2
    return Estimate(value, value - below, value + math.hypot(a.high - a.value, b.high - b.value) / 2, a.of + b.of)
