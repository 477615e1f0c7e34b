"""A cache belongs to the extension that filled it: under another, or under the bare model, it is refused.

Caches are known weakly; what is kept with a cache is a mark, and goes with it.
"""

from __future__ import annotations

import weakref
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import nn
from transformers import Cache

from ropewalk.errors import Conflict, InvalidValue
from ropewalk.extension import Extension

_MARK = "_ropewalk_owner"  # of a cache: who filled it
REMEDY = "begin with a new cache"


class OwnerMark(NamedTuple):
    """An extension and the way it was put in, which settles whether keys are kept turned."""

    extension: Extension
    mode: str


class NeverCopied:
    """What an extended model holds and no copy of it may: it would be tied to the model it was made for."""

    def __deepcopy__(self, memo: Any) -> Any:
        return self.__reduce_ex__(0)

    def __reduce_ex__(self, protocol: Any) -> Any:
        remedy = "remove the extension, copy, and extend both; rw.save writes an extended model"
        raise InvalidValue("model", "bare to be copied or pickled whole", "under an extension", remedy=remedy)


class Owner(NeverCopied):
    """One extended model, as the caches that it fills know it."""

    def __init__(self, extension: Extension, mode: str) -> None:
        self.mark = OwnerMark(extension, mode)
        self._caches: weakref.WeakSet[Any] = weakref.WeakSet()

    def before(self, _: nn.Module, args: tuple[Any, ...], given: dict[str, Any]) -> None:
        """The hook before a forward: no cache of somebody else's."""
        cache = _among((*args, *given.values()))
        if cache is not None:
            self.require(cache)

    def after(self, _: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        """The hook after it: a cache that the model has made is ours as well."""
        cache = _among(tuple(output.values()) if isinstance(output, dict) else output)
        if cache is not None and getattr(cache, _MARK, None) is not self.mark:
            self._claim(cache)

    def require(self, cache: Any) -> None:
        """Refuse a cache that was filled otherwise; any other is ours from now on."""
        mark = getattr(cache, _MARK, None)
        if mark is self.mark:
            return
        if mark != self.mark and cache.get_seq_length() > 0:
            filled = "by the bare model" if mark is None else f"under {mark.extension.to_json()}, by {mark.mode}"
            raise Conflict("past_key_values", "filled under this extension", filled, remedy=REMEDY)
        self._claim(cache)

    def _claim(self, cache: Any) -> None:
        """From now on it is ours."""
        cache.__dict__.pop("update", None)
        setattr(cache, _MARK, self.mark)
        if not torch.compiler.is_compiling():  # which knows no weak references
            self._caches.add(cache)

    def leave(self) -> None:
        """The extension is removed: what it has filled is nothing to the bare model."""
        for cache in self._caches:
            if getattr(cache, _MARK, None) is self.mark:
                cache.update = partial(_outlived, cache)


def _among(values: tuple[Any, ...]) -> Any:
    for value in values:
        if isinstance(value, Cache):
            return value
    return None


def _outlived(cache: Any, *args: Any, **given: Any) -> Any:
    """What a cache does for the bare model: refuse, unless it was emptied."""
    if cache.get_seq_length() > 0:
        raise Conflict("past_key_values", "used under the extension that filled it", "by the bare model", remedy=REMEDY)
    for name in ("update", _MARK):
        cache.__dict__.pop(name, None)
    return cache.update(*args, **given)
