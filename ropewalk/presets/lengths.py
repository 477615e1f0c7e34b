"""Where presets get their numbers from when only lengths are given."""

from __future__ import annotations

from ropewalk.errors import InvalidValue

Length = int | None


def require_whole(name: str, value: object) -> None:
    """Refuse a length, or a number of layers, that is none."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not 1 <= value < 2**62):
        raise InvalidValue(name, "a whole number, at least 1", value)


def stretch(factor: float | None, trained_len: Length, target_len: Length) -> float:
    """The factor as given, or target over trained length."""
    if factor is not None:
        return factor
    if trained_len is None or target_len is None:
        lengths = "trained_len and target_len" if trained_len is None else "target_len, the length to reach (--to)"
        raise InvalidValue("factor", "given", factor, remedy=f"write factor=..., or give {lengths}")
    _require_lengths(trained_len, target_len)
    if target_len < trained_len:
        raise InvalidValue("target_len", f"at least trained_len ({trained_len})", target_len)
    return target_len / trained_len


def share_of(name: str, value: int | None, trained_len: Length, share: float = 1.0, less: int = 0) -> int:
    """The value as given, or a share of the trained length less a few."""
    if value is not None:
        return value
    if trained_len is None:
        raise InvalidValue(name, "given", None, remedy=f"write {name}=..., or give trained_len")
    _require_lengths(trained_len, None)
    return max(int(share * trained_len) - less, 1)


def target_or(name: str, value: int | None, target_len: Length, times: int = 1) -> int:
    """The value as given, or a multiple of the target length."""
    if value is not None:
        return value
    if target_len is None:
        raise InvalidValue(name, "given", None, remedy="give target_len")
    _require_lengths(None, target_len)
    return times * target_len


def squeeze(window: int, share: float, trained_len: Length, target_len: Length) -> float | None:
    """How many tokens must share a step beyond the window for the longest text to span a share of the trained one."""
    if trained_len is None or target_len is None:
        return None
    _require_lengths(trained_len, target_len)
    longest = share * trained_len
    if longest <= window:
        raise InvalidValue("window", f"below {longest:g}, the distance that the text is to span", window)
    return max((target_len - window) / (longest - window), 1.0)


def _require_lengths(trained_len: Length, target_len: Length) -> None:
    require_whole("trained_len", trained_len)
    require_whole("target_len", target_len)
