"""Requests as they are read: a bounded body, JSON without surprises, and every field with its rule and its meaning."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple, TypeVar

from starlette.requests import Request

from ropewalk.errors import InvalidValue, UnknownName, Unreadable
from ropewalk.extension.notation import FILE
from ropewalk.files import read_json, require_text
from ropewalk.methods.record import A_SHARE, AT_LEAST_ONE, NOT_NEGATIVE, Checked, Rule, parameters
from ropewalk.serve.generation.request import Sampling
from ropewalk.serve.refusals import ClientGone, Refusal

SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")  # half of a character, which no text may have alone
DROPPED = 2**25  # bytes of a body that is too large, which are read and dropped so that its client reads why
KINDS = {list: "a list", str: "text", bool: "true or false", int: "a number", float: "a number"}
MOST_CHOICES, MOST_STOPS, MOST_CONTEXTS, MOST_LOGPROBS, MOST_PROMPTS, MOST_MESSAGES = 16, 16, 64, 20, 64, 10_000
LONGEST_STOP = 1_000  # characters
SESSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
SEEDS = 2**62
ROLES = ("system", "developer", "user", "assistant")
PROMPT_FORMS = "a text, a list of texts, a list of token ids, or a list of such lists"

# They say something about the request, and nothing about the answer.
HARMLESS = {"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key"}
HARMLESS |= {"prompt_cache_retention", "parallel_tool_calls"}
# Parameters of OpenAI and of other servers that are not supported, and the values that ask for nothing.
UNSUPPORTED: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("presence_penalty", "frequency_penalty", "min_p", "min_tokens"), (0, 0.0)),
    **dict.fromkeys(("best_of", "repetition_penalty"), (1, 1.0)),
    **dict.fromkeys(("tools", "functions", "stop_token_ids"), ([],)),
    **dict.fromkeys(("tool_choice", "function_call"), ("none", "auto")),
    "suffix": ("",),
    "logit_bias": ({},),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    **dict.fromkeys(("audio", "prediction", "web_search_options", "moderation", "reasoning_effort", "verbosity"), ()),
    **dict.fromkeys(("guided_json", "guided_regex", "guided_grammar"), ()),
}
ANSWER_FIELDS = {"refusal", "audio", "function_call", "tool_calls", "annotations"}  # of an answer that is sent back

_UP_TO_TWO = Rule("from 0 to 2", lambda value: 0 <= value <= 2)
_CHOICES = Rule(f"from 1 to {MOST_CHOICES}", lambda value: 1 <= value <= MOST_CHOICES)
_SESSION = Rule(
    "a name of at most 128 letters, digits, dots, dashes and underscores", lambda value: bool(SESSION.fullmatch(value))
)
_STOP = Rule(f"texts of 1 to {LONGEST_STOP:,} characters", lambda value: 0 < len(value) <= LONGEST_STOP)
_ALTERNATIVES = Rule(f"from 0 to {MOST_LOGPROBS}", lambda value: 0 <= value <= MOST_LOGPROBS)
_NOT_EMPTY = Rule("texts that are not empty", bool)
_MAX_TOKENS = Annotated[int | None, AT_LEAST_ONE, "tokens of the answer at most"]

Prompt = str | tuple[int, ...]
Message = dict[str, str]  # role, content and perhaps a name: what a chat template reads
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Result = TypeVar("Result")


async def read_body(request: Request, limit: int, seconds: float) -> dict[str, Any]:
    """The JSON object in a body of at most `limit` bytes, which must arrive within `seconds`."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        sentence = f"the content type must be application/json, got {kind[:100]!r}"
        raise Refusal(415, f"{sentence}; send the header Content-Type: application/json", code="content_type")
    try:
        body = await asyncio.wait_for(_read(request.receive, limit), seconds)
    except asyncio.TimeoutError:
        sentence = f"the body did not arrive within {seconds:g} seconds, so the connection is closed"
        raise Refusal(408, sentence, code="timeout", headers={"Connection": "close"}) from None
    return parse_body(body)


async def _read(receive: Receive, limit: int) -> bytes:
    body, size, more = bytearray(), 0, True
    while more and size <= limit + DROPPED:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        chunk, more = message.get("body", b""), message.get("more_body", False)
        size += len(chunk)
        body += chunk if size <= limit else b""
    if size > limit:
        sentence = f"the body must be at most {limit:,} bytes; send a shorter text"
        raise Refusal(413, sentence, code="too_large", headers={"Connection": "close"})
    return bytes(body)


def parse_body(body: bytes) -> dict[str, Any]:
    """The object that a JSON text holds; NaN, infinity, a key twice and halves of characters are refused."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        raise Unreadable.because("body", "the body must be text in UTF-8", remedy="encode it as UTF-8") from None
    value = read_json(text, "body")
    if SURROGATE.search(body):
        try:
            require_text(json.dumps(value, ensure_ascii=False), "body")
        except RecursionError:
            raise Unreadable.because("body", "the body is nested too deeply", remedy="send a flat object") from None
    if not isinstance(value, dict):
        sentence = f"the body must be a JSON object, got {KINDS.get(type(value), 'null')}"
        raise InvalidValue.because("body", sentence, remedy='send {"model": ..., ...}')
    return value


async def unless_gone(wanted: Awaitable[Result], receive: Receive) -> Result:
    """The result, unless the client closes the connection first: then the work is cancelled."""
    work, gone = asyncio.ensure_future(wanted), asyncio.ensure_future(wait_until_gone(receive))
    try:
        await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            raise ClientGone
        return work.result()
    finally:
        gone.cancel()
        work.cancel()


async def wait_until_gone(receive: Receive) -> None:
    """Wait until the client closes the connection. The body must have been read."""
    while (await receive())["type"] != "http.disconnect":
        pass


class Prompts(NamedTuple):
    """A text, a list of texts, a list of token ids, or a list of such lists."""

    items: tuple[Prompt, ...]


class Messages(NamedTuple):
    """A list of messages, each with a role and a content."""

    items: tuple[Message, ...]


@dataclass(frozen=True, kw_only=True)
class RequestFields(Checked):
    """What completions and chats have in common."""

    model: Annotated[str | None, "name@extension; the name alone means the server's default extension"] = None
    stream: Annotated[bool, "whether the answer is streamed"] = False
    include_usage: bool = False
    n: Annotated[int, _CHOICES, "answers to every prompt"] = 1
    temperature: Annotated[float, _UP_TO_TWO, "0 takes the likeliest token"] = 1.0
    top_p: Annotated[float, A_SHARE, "share of probability to sample from"] = 1.0
    top_k: Annotated[int, NOT_NEGATIVE, "how many of the likeliest tokens to sample from; 0 takes all"] = 0
    seed: Annotated[int | None, "random seed; answer i of a prompt uses seed + i"] = None
    stop: Annotated[tuple[str, ...], _STOP, "texts that end the answer"] = ()
    ignore_eos: Annotated[bool, "continue past the model's end token"] = False
    session: Annotated[str | None, _SESSION, "continue this session; only what is new is sent"] = None
    new_session: Annotated[bool, "begin this session, which must not be there yet"] = False
    contexts: Annotated[tuple[str, ...] | None, _NOT_EMPTY, "texts that are read separately and answer together"] = None
    decoding: Annotated[str | None, "how contexts answer together, such as nbce:beta=0.25 or mean_pooling"] = None

    def check(self) -> None:
        """Rules between fields."""
        if self.include_usage and not self.stream:
            remedy = "set stream to true, or leave stream_options out"
            raise InvalidValue.because("stream_options", "stream_options needs stream", remedy=remedy)
        if self.new_session and self.session is None:
            raise InvalidValue.because("new_session", "new_session begins a session", remedy="name it by session")
        if self.session is not None and self.n > 1:
            raise InvalidValue("n", "1 with a session, which continues from a single answer", self.n)
        if self.decoding is not None and self.contexts is None:
            sentence = "decoding combines several contexts, and none were sent"
            raise InvalidValue.because("decoding", sentence, remedy="send contexts, or leave decoding out")
        if self.contexts == ():
            raise InvalidValue("contexts", "a list of at least one text", "none")
        if self.contexts is not None and self.session is not None:
            sentence = "a session continues one text, and contexts are several texts"
            raise InvalidValue.because("contexts", sentence, remedy="leave out session or contexts")

    def sampling(self, choice: int, max_tokens: int, alternatives: int | None) -> Sampling:
        """How the tokens of one answer are chosen."""
        return Sampling(
            max_tokens=max_tokens,
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=self.top_k,
            seed=None if self.seed is None else (self.seed + choice) % SEEDS,
            stop=self.stop,
            ignore_eos=self.ignore_eos,
            logprobs=alternatives,
        )


@dataclass(frozen=True, kw_only=True)
class CompletionRequest(RequestFields):
    """Continue one or several texts."""

    prompt: Annotated[Prompts, "what is continued"]
    max_tokens: Annotated[int | None, NOT_NEGATIVE, "tokens of the answer at most; 0 with echo alone"] = None
    echo: Annotated[bool, "repeat the prompt before the answer"] = False
    logprobs: Annotated[int | None, _ALTERNATIVES, "how many likeliest tokens come with every token"] = None

    def check(self) -> None:
        """Rules between fields."""
        super().check()
        several = len(self.prompt.items) > 1
        if several and self.session is not None:
            raise InvalidValue("prompt", "a single text with a session", f"{len(self.prompt.items)} texts")
        if self.max_tokens == 0 and not self.echo:
            raise InvalidValue("max_tokens", "at least 1 without echo", 0)
        if self.contexts is not None and (several or not isinstance(self.prompt.items[0], str)):
            raise InvalidValue.because("prompt", "with contexts the prompt must be one text, the question")
        if self.contexts is not None and self.echo:
            raise InvalidValue.because("echo", "echo is not supported with contexts", remedy="leave it out")


@dataclass(frozen=True, kw_only=True)
class ChatRequest(RequestFields):
    """Answer a conversation."""

    messages: Annotated[Messages, "the conversation; under a session, what is new of it"]
    max_tokens: _MAX_TOKENS = None
    max_completion_tokens: _MAX_TOKENS = None
    logprobs: Annotated[bool, "whether every token comes with its log-probability"] = False
    top_logprobs: Annotated[int | None, _ALTERNATIVES, "how many likeliest tokens come with every token"] = None

    def check(self) -> None:
        """Rules between fields."""
        super().check()
        if self.top_logprobs is not None and not self.logprobs:
            sentence = "top_logprobs needs logprobs"
            raise InvalidValue.because("top_logprobs", sentence, remedy="set logprobs to true, or leave it out")
        if len({self.max_tokens, self.max_completion_tokens} - {None}) > 1:
            sentence = f"max_tokens is {self.max_tokens} and max_completion_tokens {self.max_completion_tokens}"
            raise InvalidValue.because("max_completion_tokens", sentence, remedy="send one of them")
        if self.contexts is not None and self.messages.items[-1]["role"] != "user":
            raise InvalidValue.because("messages", "with contexts the last message must be the user's question")


def read_completion(values: Mapping[str, Any]) -> CompletionRequest:
    """The request, or a refusal of its first wrong field."""
    fields = _read_fields(values, CompletionRequest)
    if "prompt" not in fields:
        raise InvalidValue.because("prompt", "prompt is missing", remedy=f"send {PROMPT_FORMS}")
    return CompletionRequest(**{**fields, "prompt": _read_prompts(fields["prompt"])})


def read_chat(values: Mapping[str, Any]) -> ChatRequest:
    """The request, or a refusal of its first wrong field."""
    fields = _read_fields(values, ChatRequest)
    if "messages" not in fields:
        raise InvalidValue.because("messages", "messages is missing", remedy="send a list of messages")
    return ChatRequest(**{**fields, "messages": read_messages(fields["messages"])})


def names_a_file(line: str) -> bool:
    """Whether a line of notation would be read from a file, or run one: no client opens a file of the server's."""
    return line.strip().endswith(".json") or FILE in line


def accept(values: Mapping[str, Any], known: Iterable[str], owner: str = "the request") -> dict[str, Any]:
    """The parameters that are used; null counts as left out, and nothing is ignored that would change the answer."""
    names, kept = list(known), dict[str, Any]()
    for name, value in values.items():
        if name not in names and name not in HARMLESS and name not in UNSUPPORTED:
            unknown = UnknownName("parameter", name[:100], known=sorted(names), owner=owner)
            unknown.field = name[:100]  # what clients read as `param`
            raise unknown
        if value is None or name in HARMLESS:
            continue
        if name in names:
            kept[name] = value
        elif not any(value == neutral and type(value) is type(neutral) for neutral in UNSUPPORTED[name]):
            raise InvalidValue.because(name, f"{name} is not supported here", remedy="leave it out")
    return kept


def _read_fields(values: Mapping[str, Any], kind: type[RequestFields]) -> dict[str, Any]:
    """Fields as the records take them: a single stop text becomes a list, and stream_options become fields."""
    names = [parameter.name for parameter in parameters(kind) if parameter.name != "include_usage"]
    fields = accept(values, [*names, "stream_options"])
    if isinstance(fields.get("stop"), str):
        fields["stop"] = (fields["stop"],)
    for name, most in (("stop", MOST_STOPS), ("contexts", MOST_CONTEXTS)):
        if isinstance(fields.get(name), list) and len(fields[name]) > most:  # before any item is looked at
            raise InvalidValue(name, f"a list of at most {most} texts", f"{len(fields[name]):,} texts")
    seed = fields.get("seed")
    if type(seed) is int and not -SEEDS <= seed < SEEDS:
        raise InvalidValue("seed", "a whole number of at most 62 bits", seed)
    if "stream_options" in fields:
        options = fields.pop("stream_options")
        if not isinstance(options, dict):
            raise InvalidValue("stream_options", 'an object such as {"include_usage": true}', options)
        options = {name: value for name, value in options.items() if name != "include_obfuscation"}
        fields["include_usage"] = accept(options, ["include_usage"], "stream_options").get("include_usage", False)
        if not isinstance(fields["include_usage"], bool):
            raise InvalidValue("stream_options.include_usage", "true or false", fields["include_usage"])
    return fields


def _read_prompts(value: Any) -> Prompts:
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
    raise InvalidValue("prompt", PROMPT_FORMS, value)


def _are_ids(items: list[Any]) -> bool:
    return set(map(type, items)) == {int}


def read_messages(value: Any) -> Messages:
    """The messages; contents in parts are joined."""
    if not isinstance(value, list) or not value:
        raise InvalidValue("messages", "a list of messages, at least one", value)
    if len(value) > MOST_MESSAGES:
        raise InvalidValue("messages", f"a list of at most {MOST_MESSAGES:,} messages", f"{len(value):,}")
    return Messages(tuple(_read_message(item, f"messages[{place}]") for place, item in enumerate(value)))


def _read_message(value: Any, field: str) -> Message:
    if not isinstance(value, dict):
        raise InvalidValue(field, 'an object such as {"role": "user", "content": "Hello"}', value)
    filled = {name: part for name, part in value.items() if part or name not in ANSWER_FIELDS}
    fields = accept(filled, ["role", "content", "name"], field)
    if fields.get("role") not in ROLES:
        raise InvalidValue(f"{field}.role", f"one of {', '.join(ROLES)}", fields.get("role"))
    if not isinstance(fields.get("name", ""), str):
        raise InvalidValue(f"{field}.name", "text", fields["name"])
    content = fields.get("content")
    if isinstance(content, list):
        content = "".join(_read_part(part, f"{field}.content[{place}]") for place, part in enumerate(content))
    if not isinstance(content, str):
        raise InvalidValue(f"{field}.content", "text, or a list of parts of type text", content)
    return {**fields, "content": content}


def _read_part(value: Any, field: str) -> str:
    kind = value.get("type") if isinstance(value, dict) else None
    if kind != "text":
        raise InvalidValue(f"{field}.type", "text, the only kind of part that is supported", kind)
    text = value.get("text")
    if not isinstance(text, str):
        raise InvalidValue(f"{field}.text", "text", text)
    if len(value) > 2:
        extra = next(name for name in value if name not in ("type", "text"))
        raise InvalidValue.because(field, f"a part of type text has no {extra[:100]!r}", remedy="leave it out")
    return text
