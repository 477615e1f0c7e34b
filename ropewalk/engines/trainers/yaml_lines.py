"""Settings as lines of YAML."""

from __future__ import annotations

from typing import Any

import yaml


def yaml_lines(values: dict[str, Any]) -> str:
    """The lines, in order; numbers are written so that YAML reads them as numbers."""
    nested = any(isinstance(value, dict) for value in values.values())
    style = None if nested else False  # lists of numbers on as few lines as they need
    lines: str = yaml.safe_dump(values, sort_keys=False, default_flow_style=style, width=120)
    return lines.rstrip()
