"""A cache belongs to the extension that filled it: under another, or under the base model, it is refused.

Caches are referenced weakly; the mark of its owner is an attribute of the cache.
"""

from __future__ import annotations

import weakref
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import nn
from transformers import Cache

from ropewalk.errors import Conflict, InvalidValue
from ropewalk.extension.extension import Extension

_MARK = "_ropewalk_owner"  # of a cache: who filled it
REMEDY = "begin with a new cache"
REMOVED = "past_key_values was filled under an extension, and cannot be used by the base model"


class OwnerMark(NamedTuple):
    """An extension and its mode, which decides whether cached keys are rotated."""

    extension: Extension
    mode: str


class NeverCopied:
    """An object of an extended model that must not be copied: it is tied to that model."""

    def __deepcopy__(self, memo: Any) -> Any:
        return self.__reduce_ex__(0)

    def __reduce_ex__(self, protocol: Any) -> Any:
        remedy = "remove the extension, copy, and extend both; rw.save writes an extended model"
        raise InvalidValue.because("model", "a model under an extension cannot be copied or pickled", remedy=remedy)


class Owner(NeverCopied):
    """One extended model, as the owner of the caches that it fills."""

    def __init__(self, extension: Extension, mode: str) -> None:
        self.mark = OwnerMark(extension, mode)
        self._caches: weakref.WeakSet[Any] = weakref.WeakSet()

    def before(self, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """The hook before a forward: refuse a cache of another owner."""
        cache = _find_cache((*args, *kwargs.values()))
        if cache is not None:
            self.require(cache)

    def after(self, _: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        """The hook after a forward: own the cache that the model has made."""
        cache = _find_cache(tuple(output.values()) if isinstance(output, dict) else output)
        if cache is not None and getattr(cache, _MARK, None) is not self.mark:
            self._claim(cache)

    def require(self, cache: Any) -> None:
        """Refuse a cache that another owner filled; own any other."""
        mark = getattr(cache, _MARK, None)
        if mark is self.mark:
            return
        if mark != self.mark and cache.get_seq_length() > 0:
            filled = "by the base model" if mark is None else f"under {mark.extension.to_json()}, mode {mark.mode}"
            raise Conflict.because("past_key_values", f"past_key_values was filled {filled}", remedy=REMEDY)
        self._claim(cache)

    def _claim(self, cache: Any) -> None:
        """Mark the cache with this owner."""
        cache.__dict__.pop("update", None)
        setattr(cache, _MARK, self.mark)
        if not torch.compiler.is_compiling():  # which has no weak references
            self._caches.add(cache)

    def release(self) -> None:
        """The extension is removed: the base model must not use the caches that it filled."""
        for cache in self._caches:
            if getattr(cache, _MARK, None) is self.mark:
                cache.update = partial(_refuse_after_removal, cache)


def _find_cache(values: tuple[Any, ...]) -> Any:
    for value in values:
        if isinstance(value, Cache):
            return value
    return None


def _refuse_after_removal(cache: Any, *args: Any, **kwargs: Any) -> Any:
    """`update` of a cache whose extension was removed: refused, unless the cache was emptied."""
    if cache.get_seq_length() > 0:
        raise Conflict.because("past_key_values", REMOVED, remedy=REMEDY)
    for name in ("update", _MARK):
        cache.__dict__.pop(name, None)
    return cache.update(*args, **kwargs)
