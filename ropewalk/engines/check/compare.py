"""Compare what an engine computes for one type of layer with what the config says."""

from __future__ import annotations

import math
from typing import NamedTuple

from ropewalk.engines.rules.rotation import EngineRotation, QueryScale, RopeConfig
from ropewalk.methods.spec import Json

TABLE_RTOL = 1e-5  # relative: tables and temperatures in float32


class Difference(NamedTuple):
    """The largest difference of one kind in a text of one length."""

    what: str  # table, temperature or query scale
    text: int
    engine: float
    meant: float
    pair: int | None = None

    def __str__(self) -> str:
        where = f" in texts of {self.text:,} tokens"
        if self.what == "table":
            turned = abs(self.engine - self.meant) * self.text / (2 * math.pi)
            sizes = f"{self.engine:.6g} instead of {self.meant:.6g} radians per position"
            return f"pair {self.pair} rotates by {sizes}{where}: {turned:,.3g} rotations off at the last token"
        if self.what == "temperature":
            return f"logits are multiplied by {self.engine:.4f} instead of {self.meant:.4f}{where}"
        return f"queries at the end are multiplied by {self.engine:.4f} instead of {self.meant:.4f}{where}"

    def to_json(self) -> Json:
        """For programs."""
        return self._asdict()


def differences(engine: EngineRotation, meant: EngineRotation, text: int) -> tuple[Difference, ...]:
    """What differs in a text of this length; nothing where both are equal within rounding."""
    pair = _pair(engine, meant)
    table = () if pair is None else (_table(engine, meant, text, pair),)
    factors = (("temperature", engine.scale, meant.scale), ("query scale", *_scales_at_end(engine, meant, text)))
    return table + tuple(Difference(what, text, one, two) for what, one, two in factors if not _close(one, two))


def _pair(engine: EngineRotation, meant: EngineRotation) -> int | None:
    """The pair that differs most, relative to its speed; None where all are alike."""
    one, two = engine.inv_freq, meant.inv_freq
    if one.shape != two.shape:
        return min(len(one), len(two))
    apart = (one - two).abs() / two.abs().clamp(min=1e-30)
    worst = int(apart.argmax())
    return worst if float(apart[worst]) > TABLE_RTOL else None


def _table(engine: EngineRotation, meant: EngineRotation, text: int, pair: int) -> Difference:
    one, two = (float(side.inv_freq[pair]) if pair < len(side.inv_freq) else 0.0 for side in (engine, meant))
    return Difference("table", text, one, two, pair)


def _scales_at_end(engine: EngineRotation, meant: EngineRotation, text: int) -> tuple[float, float]:
    one, two = (_scale_at(side.query_scale, text - 1) for side in (engine, meant))
    return one, two


def _scale_at(scale: QueryScale | None, position: int) -> float:
    return 1.0 if scale is None else 1 + scale.beta * math.log(1 + position // scale.length)


def _close(one: float, two: float) -> bool:
    return math.isclose(one, two, rel_tol=TABLE_RTOL)


def texts_to_compare(config: RopeConfig, name: str, served: int) -> tuple[int, ...]:
    """A short text and the longest: a schedule may treat them differently."""
    return tuple(dict.fromkeys((min(config.original(name), served), served)))
