"""A running engine, asked over HTTP for the log-probabilities of a prompt, in whichever way it gives them.

echo         OpenAI's /v1/completions with echo and logprobs: vLLM, SGLang, `ropewalk serve`
n_probs      /completion, one token after every prefix, likeliest tokens alone: llama-server
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from contextlib import closing, suppress
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

from ropewalk.errors import DoesNotFit, InvalidValue, UnknownName, Unreadable
from ropewalk.files import read_json, why

FIELD = "--running"
KEY = "ROPEWALK_API_KEY"  # of the environment, for engines that want one
FINE, SERVER_ERROR, NOT_IMPLEMENTED = 200, 500, 501
SECONDS = 600.0  # a long prompt on a CPU
LIKELIEST = 5  # tokens after each prefix
EVERY = 4  # of the places: llama-server answers one prefix at a time
LONGEST_ANSWER = 300  # characters of an engine's own words
TOO_LONG = ("context", "too long", "maximum", "carries")  # words of a refusal that is about the length
FOREIGN = ("token id", "vocabulary", "invalid token", "tokens from 0")  # about tokens that it does not have
NOT_READY = 503


class SaidToken(NamedTuple):
    """The log-probability of one token after the first `place` tokens of a prompt, as the engine says it."""

    place: int
    token: int
    log_probability: float


class RunningEngine(NamedTuple):
    """Where it runs."""

    url: str

    @classmethod
    def at(cls, url: str) -> RunningEngine:
        """The address, with or without /v1."""
        with suppress(ValueError):  # of a port that is no number
            parts = urlsplit(url)
            if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
                return cls(url.rstrip("/").removesuffix("/v1"))
        raise InvalidValue(FIELD, "an address such as http://127.0.0.1:8000", url)

    def name_of(self, wanted: str) -> str:
        """The model that is meant, as the engine calls it."""
        said = self._ask("/v1/models")
        listed = said.get("data") if isinstance(said, dict) else None
        if not isinstance(listed, list):
            sentence = f"{self.url} does not answer as OpenAI's API does: /v1/models lists no models"
            raise DoesNotFit.because(FIELD, sentence, remedy="is it the address of the engine?")
        names = [str(one["id"]) for one in listed if isinstance(one, dict) and "id" in one]
        if wanted and wanted not in names and self._ask(f"/v1/models/{quote(wanted)}") is None:
            raise UnknownName("model", wanted, known=names, owner=self.url)
        if not wanted and len(names) != 1:
            sentence = f"{self.url} serves {len(names)} models"
            raise DoesNotFit.because("--model", sentence, known=names, remedy="say which by --model")
        return wanted or names[0]

    def log_probabilities(self, model: str, ids: Sequence[int], places: Sequence[int]) -> list[SaidToken]:
        """Of the tokens at these places, or of the likeliest ones there; nothing where the engine gives none."""
        return self._by_echo(model, ids, places) or self._by_prefixes(model, ids, places[::EVERY])

    def _by_echo(self, model: str, ids: Sequence[int], places: Sequence[int]) -> list[SaidToken]:
        body = {"model": model, "prompt": list(ids), "echo": True, "logprobs": 1, "max_tokens": 1, "temperature": 0}
        said = self._ask("/v1/completions", body)
        values = _inside(said, "choices", 0, "logprobs", "token_logprobs")
        if not isinstance(values, list) or len(values) < len(ids):
            return []
        return [SaidToken(place, ids[place], values[place]) for place in places if _is_number(values[place])]

    def _by_prefixes(self, model: str, ids: Sequence[int], places: Sequence[int]) -> list[SaidToken]:
        asked = []
        for place in places:  # ascending: each prefix is in its cache when the next one comes
            body = {"prompt": list(ids[:place]), "n_predict": 1, "n_probs": LIKELIEST, "cache_prompt": True}
            said = self._ask("/completion", {**body, "model": model, "temperature": 0})
            likeliest = _inside(said, "completion_probabilities", 0, "top_logprobs")
            if not isinstance(likeliest, list):
                return []
            pairs = ((_inside(one, "id"), _inside(one, "logprob")) for one in likeliest)
            asked += [
                SaidToken(place, token, said) for token, said in pairs if isinstance(token, int) and _is_number(said)
            ]
        return asked

    def _ask(self, path: str, body: Any = None) -> Any:
        """The JSON that it answers; None where it does not know what is asked."""
        head = {"Content-Type": "application/json"}
        head |= {"Authorization": f"Bearer {os.environ[KEY]}"} if os.environ.get(KEY) else {}
        at = urlsplit(self.url + path)
        connect = HTTPSConnection if at.scheme == "https" else HTTPConnection
        try:
            with closing(connect(str(at.hostname), at.port, timeout=SECONDS)) as connection:
                sent = None if body is None else json.dumps(body)
                connection.request("POST" if sent else "GET", at.path, sent, head)
                answer = connection.getresponse()
                words = answer.read()
        except (OSError, HTTPException) as reason:
            sentence = f"{self.url} cannot be reached: {why(reason)}"
            raise DoesNotFit.because(FIELD, sentence, remedy="start the engine there first") from reason
        if answer.status == FINE:
            return read_json(words, FIELD, "an address where an engine answers with JSON")
        self._judge(answer.status, words.decode(errors="replace"), len(body["prompt"]) if body else 0)
        return None

    def _judge(self, status: int, words: str, tokens: int) -> None:
        """Refuse with the engine's own words, unless they say that it does not know what is asked."""
        if status in (401, 403):
            raise DoesNotFit.because(FIELD, f"{self.url} wants a key", remedy=f"set {KEY} to it")
        said = " ".join(_message(words).split())[:LONGEST_ANSWER]
        if tokens and any(word in said.lower() for word in TOO_LONG):
            sentence = f"{self.url} refuses a prompt of {tokens:,} tokens: {said}"
            raise DoesNotFit.because("--to", sentence, remedy="--to takes a shorter one")
        if tokens and any(word in said.lower() for word in FOREIGN):
            sentence = f"{self.url} does not know the tokens of the checkpoint: {said}"
            raise DoesNotFit.because(FIELD, sentence, remedy="name the folder that it serves")
        if status == NOT_READY:
            raise DoesNotFit.because(FIELD, f"{self.url} is not ready: {said}", remedy="ask it again in a while")
        if status >= SERVER_ERROR and status != NOT_IMPLEMENTED:
            raise DoesNotFit.because(FIELD, f"{self.url} fails with status {status}: {said}")


def _message(words: str) -> str:
    """What OpenAI's form of an error says; words in another form as they are."""
    message = None
    with suppress(Unreadable):
        message = _inside(read_json(words, FIELD), "error", "message")
    return message if isinstance(message, str) else words


def _inside(value: Any, *path: str | int) -> Any:
    """What stands at a path of keys and places; None where nothing does."""
    for step in path:
        held = isinstance(value, dict if isinstance(step, str) else list)
        if not held or (step not in value if isinstance(step, str) else len(value) <= step):
            return None
        value = value[step]
    return value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
