"""What `/v1/completions` is asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

from ropewalk.errors import InvalidValue
from ropewalk.methods.record import NOT_NEGATIVE, parameters
from ropewalk.serve.api.requests.fields import ALTERNATIVES, RequestFields, unpacked
from ropewalk.serve.api.requests.parameters import accepted

MOST_PROMPTS = 64
FORMS = "a text, a list of texts, a list of token ids, or a list of such lists"
USUAL = 16  # tokens of an answer, as OpenAI has it

Prompt = str | tuple[int, ...]


class Prompts(NamedTuple):
    """A text, a list of texts, a list of token ids, or a list of such lists."""

    items: tuple[Prompt, ...]


@dataclass(frozen=True, kw_only=True)
class CompletionRequest(RequestFields):
    """Continue one or several texts."""

    prompt: Annotated[Prompts, "what is continued"]
    max_tokens: Annotated[int | None, NOT_NEGATIVE, "tokens of the answer at most; 0 with echo alone"] = None
    echo: Annotated[bool, "repeat the prompt before the answer"] = False
    logprobs: Annotated[int | None, ALTERNATIVES, "how many likeliest tokens come with every token"] = None

    def check(self) -> None:
        """Rules between fields."""
        super().check()
        several = len(self.prompt.items) > 1
        if several and self.session is not None:
            raise InvalidValue("prompt", "one text under a session", f"{len(self.prompt.items)} texts")
        if self.max_tokens == 0 and not self.echo:
            raise InvalidValue("max_tokens", "at least 1 without echo", 0)
        if self.contexts is None:
            return
        if several or not isinstance(self.prompt.items[0], str):
            raise InvalidValue.because("prompt", "with contexts the prompt must be one text, the question")
        if self.echo:
            raise InvalidValue.because("echo", "echo is not supported with contexts", remedy="leave it out")


def read_completion(values: Mapping[str, Any]) -> CompletionRequest:
    """The request, or a refusal of its first wrong field.

    read_completion({"prompt": "Once", "max_tokens": 8}).prompt.items == ("Once",)
    """
    names = [parameter.name for parameter in parameters(CompletionRequest) if parameter.name != "include_usage"]
    fields = unpacked(accepted(values, [*names, "stream_options"]))
    if "prompt" not in fields:
        raise InvalidValue.because("prompt", "prompt is missing", remedy=f"send {FORMS}")
    fields["prompt"] = read_prompts(fields["prompt"])
    return CompletionRequest(**fields)


def read_prompts(value: Any) -> Prompts:
    """The prompts in any of their forms."""
    if isinstance(value, str):
        return Prompts((value,))
    if isinstance(value, list) and value:
        if _are_ids(value):
            return Prompts((tuple(value),))
        if len(value) > MOST_PROMPTS:
            raise InvalidValue("prompt", f"a list of at most {MOST_PROMPTS} prompts", f"{len(value):,}")
        if all(isinstance(item, str) for item in value):
            return Prompts(tuple(value))
        if all(isinstance(item, list) and item and _are_ids(item) for item in value):
            return Prompts(tuple(map(tuple, value)))
    raise InvalidValue("prompt", FORMS, value)


def _are_ids(items: list[Any]) -> bool:
    return set(map(type, items)) == {int}
