"""The values of presets: their types, checked before a preset computes with them, and how they follow from lengths."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec

from ropewalk.errors import InvalidValue
from ropewalk.extension.extension import Extension
from ropewalk.methods.record import require_arguments

MOST_LAYERS = 10_000  # a hundred times those of the deepest models
MOST_HEADS = 20_000  # key heads of a whole model
Length = int | None
Given = ParamSpec("Given")


def checked_arguments(preset: Callable[Given, Extension]) -> Callable[Given, Extension]:
    """A preset whose values are refused before it runs where they are not of the declared types."""

    @wraps(preset)
    def checked(*args: Given.args, **values: Given.kwargs) -> Extension:
        require_arguments(preset, values)
        return preset(*args, **values)

    return checked


def require_whole(name: str, value: object) -> None:
    """Refuse a length or a number of layers that is not a whole number above 0."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not 1 <= value < 2**62):
        raise InvalidValue(name, "a whole number, at least 1", value)


def require_countable(layers: int, key_heads: int = 1) -> None:
    """Refuse more layers, or more key heads in them, than a preset states one by one."""
    require_whole("layers", layers)
    require_whole("key_heads", key_heads)
    if layers > MOST_LAYERS:
        raise InvalidValue("layers", f"at most {MOST_LAYERS:,}", layers)
    if layers * key_heads > MOST_HEADS:
        raise InvalidValue("key_heads", f"at most {MOST_HEADS // layers:,} in each of {layers:,} layers", key_heads)


def stretch(preset: str, factor: float | None, trained_len: Length, target_len: Length) -> float:
    """The factor, by default target length over trained length."""
    if factor is not None:
        return factor
    if trained_len is None or target_len is None:
        lengths = "trained_len and target_len" if trained_len is None else "target_len, the target length (--to)"
        remedy = f"write {preset}:factor=..., or give {lengths}"
        raise InvalidValue.because("factor", f"{preset} needs factor", remedy=remedy)
    _require_lengths(trained_len, target_len)
    if target_len < trained_len:
        raise InvalidValue("target_len", f"at least trained_len ({trained_len})", target_len)
    return target_len / trained_len


def share_of(preset: str, name: str, value: int | None, trained_len: Length, share: float = 1.0, less: int = 0) -> int:
    """The value, by default a share of the trained length minus `less`."""
    if value is not None:
        return value
    if trained_len is None:
        remedy = f"write {preset}:{name}=..., or give trained_len"
        raise InvalidValue.because(name, f"{preset} needs {name}", remedy=remedy)
    _require_lengths(trained_len, None)
    return max(int(share * trained_len) - less, 1)


def target_or(preset: str, name: str, value: int | None, target_len: Length, times: int = 1) -> int:
    """The value, by default a multiple of the target length."""
    if value is not None:
        return value
    if target_len is None:
        raise InvalidValue.because(name, f"{preset} needs {name}", remedy="give target_len (--to)")
    _require_lengths(None, target_len)
    return times * target_len


def squeeze(window: int, share: float, trained_len: Length, target_len: Length) -> float | None:
    """Tokens per step beyond the window, so that the longest text spans this share of the trained length."""
    if trained_len is None or target_len is None:
        return None
    _require_lengths(trained_len, target_len)
    longest = share * trained_len
    if longest <= window:
        raise InvalidValue("window", f"below {longest:g}, the distance that the longest text is compressed to", window)
    return max((target_len - window) / (longest - window), 1.0)


def _require_lengths(trained_len: Length, target_len: Length) -> None:
    require_whole("trained_len", trained_len)
    require_whole("target_len", target_len)
