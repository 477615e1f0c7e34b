"""JSON without spaces, as it goes over the wire."""

from __future__ import annotations

import json
from typing import Any


def compact_json(value: Any) -> str:
    """A value as JSON.

    compact_json({"a": 1, "b": "é"}) == '{"a":1,"b":"é"}'
    """
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
