"""Numbers as JSON: it has no infinity and no NaN."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


def finite(value: float) -> float | None:
    """The number; None where it was not measured, or where an interval is open."""
    return value if math.isfinite(value) else None


def record_json(record: Mapping[str, Any]) -> dict[str, Any]:
    """A record with every number finite or null."""
    return {key: finite_json(part) for key, part in record.items()}


def finite_json(value: Any) -> Any:
    """A part of such a record."""
    if isinstance(value, Mapping):
        return record_json(value)
    if isinstance(value, list | tuple):
        return [finite_json(part) for part in value]
    return finite(value) if isinstance(value, float) else value
