"""`generate`, `save_pretrained` and continuous batching of an extended model, replaced on the instance."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from torch import Tensor
from transformers import PreTrainedModel

from ropewalk.attention.scoped import scoped
from ropewalk.errors import DoesNotFit, InvalidValue
from ropewalk.hf.runtime.caches import SPARE
from ropewalk.hf.runtime.forward_pass import CONTINUOUS, STATIC_OR_GENERATE
from ropewalk.hf.runtime.layer import PREFIX

ASSISTED = ("prompt_lookup_num_tokens", "assistant_early_exit", "use_mtp", "is_assistant")
REJECTABLE_TOKENS = 256  # proposed tokens that may be rejected at once; twice the stated number where that is more

Store = Callable[[Path, dict[str, Tensor]], None]


def replace_methods(host: PreTrainedModel, store: Store, *, ours: bool) -> ExitStack:
    """Replace the methods; `store` writes the extension into a folder, `ours` says whether our attention runs."""
    undo = ExitStack()
    methods = {"save_pretrained": _save_pretrained(host, store)}
    if hasattr(host, "generate"):  # not a language model without its head
        methods["generate"] = _generate(host)
    if ours:
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
        arguments = dict(inspect.signature(of_class).bind_partial(*args, **kwargs).arguments)
        with scoped(SPARE, _spare(host, arguments)):
            return of_class(*args, **kwargs)

    return generate


def _spare(host: PreTrainedModel, arguments: dict[str, Any]) -> int:
    """How many tokens may be removed again in this call: none, unless an assistant proposes them."""
    arguments |= arguments.pop("kwargs", {})
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


def _save_pretrained(host: PreTrainedModel, store: Store) -> Callable[..., Any]:
    of_class: Any = host.save_pretrained

    @functools.wraps(of_class)
    def save_pretrained(save_directory: str | Path, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("push_to_hub"):
            remedy = "save first, then upload the folder"
            raise InvalidValue("push_to_hub", "False for a model under an extension", True, remedy=remedy)
        state = kwargs.get("state_dict") or {}
        learned = {name: value for name, value in state.items() if PREFIX in name}  # transformers empties `state`
        answer = of_class(save_directory, *args, **kwargs)
        if kwargs.get("is_main_process", True):
            store(Path(save_directory), learned)
        return answer

    return save_pretrained
