"""The fields that completions and chats have in common, each with its rule and its meaning."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from ropewalk.errors import InvalidValue
from ropewalk.methods.record import A_SHARE, AT_LEAST_ONE, NOT_NEGATIVE, Checked, Rule
from ropewalk.serve.api.requests.parameters import accepted
from ropewalk.serve.generation.request import Sampling

MOST_CHOICES, MOST_STOPS, MOST_CONTEXTS, MOST_LOGPROBS = 16, 16, 64, 20
LONGEST_STOP = 1_000  # characters
SESSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
SEEDS = 2**62

_UP_TO_TWO = Rule("from 0 to 2", lambda value: 0 <= value <= 2)
_CHOICES = Rule(f"from 1 to {MOST_CHOICES}", lambda value: 1 <= value <= MOST_CHOICES)
_SESSION = Rule(
    "a name of at most 128 letters, digits, dots, dashes and underscores", lambda value: bool(SESSION.fullmatch(value))
)
_STOP = Rule(f"texts of 1 to {LONGEST_STOP:,} characters", lambda value: 0 < len(value) <= LONGEST_STOP)
ALTERNATIVES = Rule(f"from 0 to {MOST_LOGPROBS}", lambda value: 0 <= value <= MOST_LOGPROBS)
_CONTEXT = Rule("texts that are not empty", bool)


@dataclass(frozen=True, kw_only=True)
class RequestFields(Checked):
    """What completions and chats have in common."""

    model: Annotated[str | None, "name@extension; the name alone is the extension of the start"] = None
    stream: Annotated[bool, "whether the answer comes piece by piece"] = False
    include_usage: bool = False
    n: Annotated[int, _CHOICES, "answers to every prompt"] = 1
    temperature: Annotated[float, _UP_TO_TWO, "0 takes the likeliest token"] = 1.0
    top_p: Annotated[float, A_SHARE, "share of probability to sample from"] = 1.0
    top_k: Annotated[int, NOT_NEGATIVE, "how many of the likeliest tokens to sample from; 0 takes all"] = 0
    seed: Annotated[int | None, "of sampling; the answers to one prompt count on from it"] = None
    stop: Annotated[tuple[str, ...], _STOP, "texts that end the answer"] = ()
    ignore_eos: Annotated[bool, "write on after the model's end token"] = False
    session: Annotated[str | None, _SESSION, "continue this session; only what is new is sent"] = None
    new_session: Annotated[bool, "begin this session, which must not be there yet"] = False
    contexts: Annotated[tuple[str, ...] | None, "texts that are read separately, and answer together"] = None
    decoding: Annotated[str | None, "how contexts answer together, such as nbce:beta=0.25 or mean_pooling"] = None

    def check(self) -> None:
        """Rules between fields."""
        if self.include_usage and not self.stream:
            sentence = "stream_options are for streamed answers, which stream asks for"
            raise InvalidValue.because("stream_options", sentence, remedy="set stream to true, or leave them out")
        if self.new_session and self.session is None:
            raise InvalidValue.because("new_session", "new_session begins a session", remedy="name it by session")
        if self.session is not None and self.n > 1:
            raise InvalidValue("n", "1 under a session, which continues with one answer", self.n)
        self._check_contexts()

    def _check_contexts(self) -> None:
        if self.decoding is not None and self.contexts is None:
            sentence = "decoding says how several contexts answer together, and there are none"
            raise InvalidValue.because("decoding", sentence, remedy="send contexts, or leave decoding out")
        if self.contexts is None:
            return
        if not self.contexts:
            raise InvalidValue("contexts", "a list of at least one text", "none")
        if not all(self.contexts):
            raise InvalidValue("contexts", "texts that are not empty", "")
        if self.session is not None:
            sentence = "a session reads one text, and contexts are several"
            raise InvalidValue.because("contexts", sentence, remedy="leave out session or contexts")

    def sampling(self, choice: int, max_tokens: int, logprobs: int | None) -> Sampling:
        """How the tokens of one answer are chosen."""
        return Sampling(
            max_tokens=max_tokens,
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=self.top_k,
            seed=None if self.seed is None else (self.seed + choice) % SEEDS,
            stop=self.stop,
            ignore_eos=self.ignore_eos,
            logprobs=logprobs,
        )


MAX_TOKENS = Annotated[int | None, AT_LEAST_ONE, "tokens of the answer at most"]


def unpacked(values: Mapping[str, Any]) -> dict[str, Any]:
    """Fields as the records have them: one stop text as a list, and the options of streaming by themselves."""
    fields = dict(values)
    if isinstance(fields.get("stop"), str):
        fields["stop"] = (fields["stop"],)
    for name, most in (("stop", MOST_STOPS), ("contexts", MOST_CONTEXTS)):
        if isinstance(fields.get(name), list) and len(fields[name]) > most:  # before any item is looked at
            raise InvalidValue(name, f"a list of at most {most} texts", f"{len(fields[name]):,} texts")
    seed = fields.get("seed")
    if type(seed) is int and not -SEEDS <= seed < SEEDS:
        raise InvalidValue("seed", "a whole number of at most 62 bits", seed)
    if "stream_options" in fields:
        fields["include_usage"] = _includes_usage(fields.pop("stream_options"))
    return fields


def _includes_usage(options: Any) -> Any:
    if not isinstance(options, dict):
        raise InvalidValue("stream_options", 'an object such as {"include_usage": true}', options)
    options = {name: value for name, value in options.items() if name != "include_obfuscation"}
    usage = accepted(options, ["include_usage"], "stream_options").get("include_usage", False)
    if not isinstance(usage, bool):
        raise InvalidValue("stream_options.include_usage", "true or false", usage)
    return usage
