"""Adapters that peft puts on an extended model: each is saved with the extension beside it.

peft's wrapper may be made after `extend`, and saves by its own methods. But it asks the model inside for its state, and
then each adapter's config to write itself. So hooks of the model find its adapters, and give each a config of its own,
which stores the extension where it is written; the caller's config may serve other models too.
"""

from __future__ import annotations

import copy
import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

SAVE = "save_pretrained"
INSIDE = "base_model."  # where the state of a model is in that of a wrapper that only adds a prompt

Store = Callable[[Path], None]


class StoringConfig:
    """`save_pretrained` of an adapter's config: stores the extension beside it."""

    def __init__(self, config: Any, store: Store, *, once: bool = False) -> None:
        self._config, self._store, self._once = config, store, once

    def __call__(self, save_directory: str | Path, **kwargs: Any) -> None:
        if self._once:
            self._config.__dict__.pop(SAVE, None)
        type(self._config).save_pretrained(self._config, save_directory, **kwargs)
        self._store(Path(save_directory))

    def __deepcopy__(self, memo: dict[int, Any]) -> StoringConfig:
        """A copied config of this adapter, which peft makes where it converts weights, stores it too."""
        return StoringConfig(copy.deepcopy(self._config, memo), self._store, once=self._once)

    def __reduce__(self) -> tuple[Any, ...]:
        """In another process there is no such model: the config's own method."""
        return getattr, (self._config, SAVE)


class AdapterConfigs:
    """The configs of the adapters on a model."""

    def __init__(self, host: PreTrainedModel, wrapper: nn.Module, store: Store) -> None:
        self._host, self._store = host, store
        self._wrappers: list[Any] = [wrapper] if wrapper is not host else []
        self._replaced: list[tuple[dict[str, Any], str, Any, Any]] = []
        self._lent: list[Any] = []

    def before_forward(self, *_: Any) -> None:
        """The hook before a forward."""
        if not torch.compiler.is_compiling():
            self.replace()

    def before_state(self, _: nn.Module, prefix: str, keep: bool) -> None:
        """The hook before the state is collected, as peft does in the middle of saving."""
        if prefix.endswith(INSIDE) and not self._wrappers:
            self._wrappers = list(_prompting(self._host))
        for original in self.replace():
            original.__dict__[SAVE] = StoringConfig(original, self._store, once=True)
            self._lent.append(original)

    def replace(self) -> list[Any]:
        """Give each adapter a config of its own, and return the configs that those replace."""
        self._end_lending()
        originals = []
        for configs in self._all():
            for name, config in list(configs.items()):
                if not isinstance(vars(config).get(SAVE), StoringConfig):
                    configs[name] = storing = copy.copy(config)
                    vars(storing)[SAVE] = StoringConfig(storing, self._store)
                    self._replaced.append((configs, name, config, storing))
                    originals.append(config)
        return originals

    def restore(self) -> None:
        """The caller's configs again."""
        self._end_lending()
        for configs, name, config, storing in self._replaced:
            if configs.get(name) is storing:
                configs[name] = config
            vars(storing).pop(SAVE, None)

    def _end_lending(self) -> None:
        for config in self._lent:
            vars(config).pop(SAVE, None)
        self._lent.clear()

    def _all(self) -> Iterator[dict[str, Any]]:
        inside = vars(self._host).get("peft_config")
        every = [inside, *(wrapper.peft_config for wrapper in self._wrappers)]
        yield from {id(configs): configs for configs in every if isinstance(configs, dict)}.values()


def adapters_storing(host: PreTrainedModel, base: nn.Module, wrapper: nn.Module, store: Store) -> ExitStack:
    """Have the adapters of a model saved with its extension, those that it has and those that come."""
    configs, undo = AdapterConfigs(host, wrapper, store), ExitStack()
    configs.replace()
    undo.callback(configs.restore)
    undo.callback(base.register_forward_pre_hook(configs.before_forward).remove)
    undo.callback(host.register_state_dict_pre_hook(configs.before_state).remove)  # type: ignore[no-untyped-call]
    return undo


def _prompting(host: PreTrainedModel) -> Iterator[Any]:
    """peft's wrappers that only add a prompt; they leave no mark on the model inside."""
    peft = sys.modules.get("peft")
    for thing in gc.get_objects() if peft else ():
        if issubclass(type(thing), peft.PeftModel) and thing._modules.get("base_model") is host:  # type: ignore[union-attr]
            yield thing
