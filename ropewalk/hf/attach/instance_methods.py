"""Methods that the instance of an extended model has instead of its class's: `generate` and `save_pretrained`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from torch import Tensor
from transformers import PreTrainedModel

from ropewalk.errors import InvalidValue
from ropewalk.hf.runtime.caches import SPARE
from ropewalk.hf.runtime.layer import PREFIX
from ropewalk.scoped import scoped

ASSISTED = ("prompt_lookup_num_tokens", "assistant_early_exit", "use_mtp", "is_assistant")
ROOM = 256  # tokens that may be proposed in vain at once; twice as many as stated where that is more

Keep = Callable[[Path, dict[str, Tensor]], None]


def replaced(host: PreTrainedModel, keep: Keep) -> ExitStack:
    """Put ours in the place of the class's; `keep` writes the extension into a folder."""
    undo = ExitStack()
    for name, method in (("generate", _generate(host)), ("save_pretrained", _save_pretrained(host, keep))):
        before = {name: host.__dict__[name]} if name in host.__dict__ else {}
        host.__dict__[name] = method
        undo.callback(host.__dict__.update, before)
        undo.callback(host.__dict__.pop, name)
    return undo


def _generate(host: PreTrainedModel) -> Callable[..., Any]:
    own: Any = host.generate

    @functools.wraps(own)
    def generate(*args: Any, **given: Any) -> Any:
        arguments = dict(inspect.signature(own).bind_partial(*args, **given).arguments)
        with scoped(SPARE, _spare(host, arguments)):
            return own(*args, **given)

    return generate


def _spare(host: PreTrainedModel, given: dict[str, Any]) -> int:
    """How many tokens may be taken back in this call: none, unless somebody proposes them."""
    given |= given.pop("kwargs", {})
    assistant = given.get("assistant_model")
    configs = [given.get("generation_config"), host.generation_config, getattr(assistant, "generation_config", None)]

    def stated(name: str) -> int:
        values = [given.get(name), *(getattr(config, name, None) for config in configs)]
        return next((int(value) for value in values if value), 0)

    if assistant is None and not any(map(stated, ASSISTED)):
        return 0
    return max(ROOM, 2 * stated("prompt_lookup_num_tokens"), 2 * stated("num_assistant_tokens"))


def _save_pretrained(host: PreTrainedModel, keep: Keep) -> Callable[..., Any]:
    own: Any = host.save_pretrained

    @functools.wraps(own)
    def save_pretrained(save_directory: str | Path, *args: Any, **given: Any) -> Any:
        if given.get("push_to_hub"):
            remedy = "save first, then upload the folder"
            raise InvalidValue("push_to_hub", "False under an extension", True, remedy=remedy)
        state = given.get("state_dict") or {}
        learned = {name: value for name, value in state.items() if PREFIX in name}  # transformers empties the state
        answer = own(save_directory, *args, **given)
        if given.get("is_main_process", True):
            keep(Path(save_directory), learned)
        return answer

    return save_pretrained
