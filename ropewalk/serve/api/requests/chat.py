"""What `/v1/chat/completions` is asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

from ropewalk.errors import InvalidValue
from ropewalk.methods.record import parameters
from ropewalk.serve.api.requests.fields import ALTERNATIVES, MAX_TOKENS, RequestFields, unpacked
from ropewalk.serve.api.requests.parameters import accepted

ROLES = ("system", "developer", "user", "assistant")
MOST_MESSAGES = 10_000
BESIDE = {
    "refusal",
    "audio",
    "function_call",
    "tool_calls",
    "annotations",
}  # what clients send back of an answer, empty

Message = dict[str, str]  # role, content and perhaps a name: what a chat template reads


class Messages(NamedTuple):
    """A list of messages, each with a role and a content."""

    items: tuple[Message, ...]


@dataclass(frozen=True, kw_only=True)
class ChatRequest(RequestFields):
    """Answer a conversation."""

    messages: Annotated[Messages, "the conversation; under a session, what is new of it"]
    max_tokens: MAX_TOKENS = None
    max_completion_tokens: MAX_TOKENS = None
    logprobs: Annotated[bool, "whether every token comes with its log-probability"] = False
    top_logprobs: Annotated[int | None, ALTERNATIVES, "how many likeliest tokens come with every token"] = None

    def check(self) -> None:
        """Rules between fields."""
        super().check()
        if self.top_logprobs is not None and not self.logprobs:
            sentence = "top_logprobs needs logprobs"
            raise InvalidValue.because("top_logprobs", sentence, remedy="set logprobs to true, or leave it out")
        lengths = {self.max_tokens, self.max_completion_tokens} - {None}
        if len(lengths) > 1:
            sentence = f"max_tokens is {self.max_tokens} and max_completion_tokens {self.max_completion_tokens}"
            raise InvalidValue.because("max_completion_tokens", sentence, remedy="send one of them")
        if self.contexts is not None and self.messages.items[-1]["role"] != "user":
            raise InvalidValue.because("messages", "with contexts the last message must be the user's question")

    @property
    def most(self) -> int | None:
        """Tokens of the answer at most, by either name."""
        return self.max_tokens or self.max_completion_tokens


def read_chat(values: Mapping[str, Any]) -> ChatRequest:
    """The request, or a refusal of its first wrong field.

    read_chat({"messages": [{"role": "user", "content": "Hello"}]}).messages.items[0]["role"] == "user"
    """
    names = [parameter.name for parameter in parameters(ChatRequest) if parameter.name != "include_usage"]
    fields = unpacked(accepted(values, [*names, "stream_options"]))
    if "messages" not in fields:
        raise InvalidValue.because("messages", "messages is missing", remedy="send a list of messages")
    fields["messages"] = read_messages(fields["messages"])
    return ChatRequest(**fields)


def read_messages(value: Any) -> Messages:
    """The messages; contents in parts are joined."""
    if not isinstance(value, list) or not value:
        raise InvalidValue("messages", "a list of messages, at least one", value)
    if len(value) > MOST_MESSAGES:
        raise InvalidValue("messages", f"a list of at most {MOST_MESSAGES:,} messages", f"{len(value):,}")
    return Messages(tuple(_message(item, f"messages[{place}]") for place, item in enumerate(value)))


def _message(value: Any, field: str) -> Message:
    if not isinstance(value, dict):
        raise InvalidValue(field, 'an object such as {"role": "user", "content": "Hello"}', value)
    filled = {name: part for name, part in value.items() if part is not None and not (name in BESIDE and not part)}
    fields = accepted(filled, ["role", "content", "name"], field)
    role, content = fields.get("role"), fields.get("content")
    if role not in ROLES:
        raise InvalidValue(f"{field}.role", f"one of {', '.join(ROLES)}", role)
    message = {"role": role, "content": _content(content, f"{field}.content")}
    if "name" in fields:
        if not isinstance(fields["name"], str):
            raise InvalidValue(f"{field}.name", "text", fields["name"])
        message["name"] = fields["name"]
    return message


def _content(value: Any, field: str) -> str:
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise InvalidValue(field, "text, or a list of parts of type text", value)
    return "".join(_part(part, f"{field}[{place}]") for place, part in enumerate(value))


def _part(value: Any, field: str) -> str:
    kind = value.get("type") if isinstance(value, dict) else None
    if kind != "text":
        raise InvalidValue(f"{field}.type", "text, the only kind of part that is supported", kind)
    if not isinstance(value.get("text"), str):
        raise InvalidValue(f"{field}.text", "text", value.get("text"))
    if len(value) > 2:
        beside = next(name for name in value if name not in ("type", "text"))
        raise InvalidValue.because(field, f"a part of type text has no {beside[:100]!r}", remedy="leave it out")
    text: str = value["text"]
    return text
