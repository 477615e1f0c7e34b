"""What transformers and peft call on an extended model, and what of it they save: always with the extension.

`save_pretrained`, `generate` and continuous batching are replaced on the instance. An extension goes into the config
where that can say it, else into the sidecar.

peft's wrapper may be made after `extend`, and saves by its own methods. But it asks the model inside for its state, and
then each adapter's config to write itself. So hooks of the model find its adapters, and give each a config of its own,
which stores the extension where it is written; the caller's config may serve other models too.
"""

from __future__ import annotations

import copy
import functools
import gc
import inspect
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from ropewalk.attention.scoped import scoped
from ropewalk.errors import DoesNotFit, InvalidValue
from ropewalk.extension.extension import Extension
from ropewalk.extension.static import static_table
from ropewalk.hf.attach.handle import ATTENTION, Handle
from ropewalk.hf.attach.tables import TABLE_RTOL, table_slot
from ropewalk.hf.checkpoint import sidecar
from ropewalk.hf.checkpoint.closed_config import FILE, close
from ropewalk.hf.checkpoint.config_schedule import standard_config, temperature_of, why_not_expressible
from ropewalk.hf.checkpoint.fetch import runs_own_code
from ropewalk.hf.runtime.caches import SPARE, generating
from ropewalk.hf.runtime.forward_pass import CONTINUOUS, STATIC_OR_GENERATE, by_name
from ropewalk.hf.runtime.layer import PREFIX, ExtendedLayer

ASSISTED = ("prompt_lookup_num_tokens", "assistant_early_exit", "use_mtp", "is_assistant")
REJECTABLE_TOKENS = 256  # proposed tokens that may be rejected at once; twice the stated number where that is more
SAVE = "save_pretrained"
INSIDE = "base_model."  # where the state of a model is in that of a wrapper that only adds a prompt


def replace_methods(handle: Handle) -> ExitStack:
    """Replace the methods of a model that runs or saves it."""
    host, undo = handle.model, ExitStack()
    methods = {"save_pretrained": _save_pretrained(handle)}
    if hasattr(host, "generate"):  # not a language model without its head
        methods["generate"] = _generate(host)
    if handle.mode == ATTENTION:
        methods["init_continuous_batching"] = _refuse_continuous_batching
    for name, method in methods.items():
        before = {name: host.__dict__[name]} if name in host.__dict__ else {}
        host.__dict__[name] = method
        undo.callback(host.__dict__.update, before)
        undo.callback(host.__dict__.pop, name)
    return undo


def _generate(host: PreTrainedModel) -> Callable[..., Any]:
    of_class: Any = host.generate

    @functools.wraps(of_class)
    def generate(*args: Any, **kwargs: Any) -> Any:
        arguments = by_name(inspect.signature(of_class), args, kwargs)
        with scoped(SPARE, _spare(host, arguments)), generating(arguments):
            return of_class(*args, **kwargs)

    return generate


def _spare(host: PreTrainedModel, arguments: dict[str, Any]) -> int:
    """How many tokens may be removed again in this call: none, unless an assistant proposes them."""
    assistant = arguments.get("assistant_model")
    configs = [
        arguments.get("generation_config"),
        host.generation_config,
        getattr(assistant, "generation_config", None),
    ]

    def stated(name: str) -> int:
        values = [arguments.get(name), *(getattr(config, name, None) for config in configs)]
        return next((int(value) for value in values if value), 0)

    if assistant is None and not any(map(stated, ASSISTED)):
        return 0
    return max(REJECTABLE_TOKENS, 2 * stated("prompt_lookup_num_tokens"), 2 * stated("num_assistant_tokens"))


def _refuse_continuous_batching(*_: Any, **__: Any) -> Any:
    """`generate_batch` and `continuous_batching_context_manager` begin here."""
    raise DoesNotFit.because("continuous batching", CONTINUOUS, remedy=STATIC_OR_GENERATE)


def _save_pretrained(handle: Handle) -> Callable[..., Any]:
    of_class: Any = handle.model.save_pretrained

    @functools.wraps(of_class)
    def save_pretrained(save_directory: str | Path, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("push_to_hub"):
            remedy = "rw.push_to_hub(model, 'owner/name') uploads it with its extension"
            raise InvalidValue("push_to_hub", "False for a model under an extension", True, remedy=remedy)
        state = kwargs.get("state_dict") or {}
        learned = {name: value for name, value in state.items() if PREFIX in name}  # transformers empties `state`
        answer = of_class(save_directory, *args, **kwargs)
        if kwargs.get("is_main_process", True):
            store_unchecked(handle, Path(save_directory), learned)
        return answer

    return save_pretrained


# The extension in a folder of weights.


def store_unchecked(handle: Handle, place: Path, state: dict[str, Tensor] | None = None) -> None:
    """Store it beside what transformers or peft wrote. No weights are loaded to compare.

    So the config states the schedule only where its rotary modules, built anew, have the tables that are in force.
    """
    if (place / FILE).is_file() and not runs_own_code(handle.model):
        is_stated = handle.target_len is not None or math.isfinite(handle.extension.frequencies_or_rope.stretch)
        config = config_with_extension(handle, handle.target_len if is_stated else handle.facts.trained_len)
        if not isinstance(config, DoesNotFit) and _are_followed(handle, config.get_text_config()):
            sidecar.remove(place)
            config.save_pretrained(place)
            return
    handle.keep(place, state)
    close(place)


def config_with_extension(handle: Handle, target_len: int | None) -> Any | DoesNotFit:
    """The model's config with the extension, or the reason why no config holds it."""
    reason = why_not_expressible(handle.extension, handle.layers)
    if reason is not None:
        return reason
    config = standard_config(handle.model.config, handle.extension, handle.layers, target_len)
    if not isinstance(config, DoesNotFit):
        config.architectures = [type(handle.model).__name__]
    return config


def _are_followed(handle: Handle, text: Any) -> bool:
    """Whether the rotary modules that are made of a config have the tables that are in force."""
    ruled = [layer for layer in handle.layers if layer.probed.rotating and not layer.left_alone]
    return all(_follows(layer, handle.extension, text) for layer in ruled)


def _follows(layer: ExtendedLayer, extension: Extension, text: Any) -> bool:
    slot = table_slot(layer.probed)
    try:
        module: Any = type(slot.module)(config=text)
        made = module._buffers[f"{slot.prefix}inv_freq"].double().cpu()
        temperature = float(getattr(module, f"{slot.prefix}attention_scaling"))
    except Exception:  # a class with other arguments, or one that refuses the config: whatever it raises
        return False
    wanted = static_table(extension, layer.facts).double()
    alike = made.shape == wanted.shape and torch.allclose(made, wanted, rtol=TABLE_RTOL, atol=1e-9)
    return alike and math.isclose(temperature, temperature_of(extension, layer), rel_tol=TABLE_RTOL)


# Adapters of peft.


class StoringConfig:
    """`save_pretrained` of an adapter's config: stores the extension beside it."""

    def __init__(self, config: Any, handle: Handle, *, once: bool = False) -> None:
        self._config, self._handle, self._once = config, handle, once

    def __call__(self, save_directory: str | Path, **kwargs: Any) -> None:
        if self._once:
            self._config.__dict__.pop(SAVE, None)
        type(self._config).save_pretrained(self._config, save_directory, **kwargs)
        store_unchecked(self._handle, Path(save_directory))

    def __deepcopy__(self, memo: dict[int, Any]) -> StoringConfig:
        """A copied config of this adapter, which peft makes where it converts weights, stores it too."""
        return StoringConfig(copy.deepcopy(self._config, memo), self._handle, once=self._once)

    def __reduce__(self) -> tuple[Any, ...]:
        """In another process there is no such model: the config's own method."""
        return getattr, (self._config, SAVE)


class AdapterConfigs:
    """The configs of the adapters on a model."""

    def __init__(self, handle: Handle, wrapper: nn.Module) -> None:
        self._host, self._handle = handle.model, handle
        self._wrappers: list[Any] = [wrapper] if wrapper is not handle.model else []
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
            original.__dict__[SAVE] = StoringConfig(original, self._handle, once=True)
            self._lent.append(original)

    def replace(self) -> list[Any]:
        """Give each adapter a config of its own, and return the configs that those replace."""
        self._end_lending()
        originals = []
        for configs in self._all():
            for name, config in list(configs.items()):
                if not isinstance(vars(config).get(SAVE), StoringConfig):
                    configs[name] = storing = copy.copy(config)
                    vars(storing)[SAVE] = StoringConfig(storing, self._handle)
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


def store_with_adapters(handle: Handle, base: nn.Module, wrapper: nn.Module) -> ExitStack:
    """Have the adapters of a model saved with its extension, those that it has and those that come."""
    configs, undo = AdapterConfigs(handle, wrapper), ExitStack()
    configs.replace()
    undo.callback(configs.restore)
    undo.callback(base.register_forward_pre_hook(configs.before_forward).remove)
    undo.callback(handle.model.register_state_dict_pre_hook(configs.before_state).remove)  # type: ignore[no-untyped-call]
    return undo


def _prompting(host: PreTrainedModel) -> Iterator[Any]:
    """peft's wrappers that only add a prompt; they leave no mark on the model inside."""
    peft = sys.modules.get("peft")
    for thing in gc.get_objects() if peft else ():
        if issubclass(type(thing), peft.PeftModel) and thing._modules.get("base_model") is host:  # type: ignore[union-attr]
            yield thing
