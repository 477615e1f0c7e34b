"""The model that Ropewalk carries, as `ropewalk compare` reads it: in float32, though it is kept in bfloat16."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ropewalk.measure.opened_model import OpenedModel


def carried() -> OpenedModel:
    """On the CPU, for every study of it; weights in another precision would be another model's, with other figures."""
    from ropewalk.hf.load_options import LoadOptions
    from ropewalk.measure.opened_model import load_by_name
    from ropewalk.models import NAME

    return load_by_name(NAME, LoadOptions(device="cpu"))
