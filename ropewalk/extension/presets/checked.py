"""The types of a preset's values, checked before it computes with them."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec

from ropewalk.extension.extension import Extension
from ropewalk.methods.record import require_arguments

Given = ParamSpec("Given")


def checked_arguments(preset: Callable[Given, Extension]) -> Callable[Given, Extension]:
    """A preset whose values are refused before it runs where they are not of the declared types."""

    @wraps(preset)
    def checked(*args: Given.args, **values: Given.kwargs) -> Extension:
        require_arguments(preset, values)
        return preset(*args, **values)

    return checked
