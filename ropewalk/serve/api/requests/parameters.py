"""Which parameters there are: those that are used, those that change nothing, and those of OpenAI that are refused."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ropewalk.errors import InvalidValue, UnknownName

# They say something about the request and nothing about the answer.
HARMLESS = frozenset(
    {
        "user",
        "metadata",
        "store",
        "service_tier",
        "safety_identifier",
        "prompt_cache_key",
        "prompt_cache_retention",
        "parallel_tool_calls",
    }
)


def _one_of(*neutral: Any) -> Callable[[Any], bool]:
    return lambda value: any(value == other and type(value) is type(other) for other in neutral)


_ZERO, _NOTHING = _one_of(0, 0.0), _one_of()
# Parameters of OpenAI and of other servers that are not supported, and the values that ask for nothing.
UNSUPPORTED: dict[str, Callable[[Any], bool]] = {
    "best_of": _one_of(1),
    "suffix": _one_of(""),
    "logit_bias": _one_of({}),
    "presence_penalty": _ZERO,
    "frequency_penalty": _ZERO,
    "repetition_penalty": _one_of(1, 1.0),
    "min_p": _ZERO,
    "min_tokens": _one_of(0),
    "tools": _one_of([]),
    "tool_choice": _one_of("none", "auto"),
    "functions": _one_of([]),
    "function_call": _one_of("none", "auto"),
    "response_format": _one_of({"type": "text"}),
    "modalities": _one_of(["text"]),
    "audio": _NOTHING,
    "prediction": _NOTHING,
    "web_search_options": _NOTHING,
    "moderation": _NOTHING,
    "reasoning_effort": _NOTHING,
    "verbosity": _NOTHING,
    "stop_token_ids": _one_of([]),
    "guided_json": _NOTHING,
    "guided_regex": _NOTHING,
    "guided_grammar": _NOTHING,
}


def accepted(values: Mapping[str, Any], known: Iterable[str], owner: str = "the request") -> dict[str, Any]:
    """The parameters that are used; null counts as left out, and nothing is ignored that would change the answer.

    accepted({"n": 2, "user": "me", "seed": None}, ["n", "seed"]) == {"n": 2}
    """
    names = list(known)
    kept = dict[str, Any]()
    for name, value in values.items():
        if name in names:
            if value is not None:
                kept[name] = value
        elif name in UNSUPPORTED:
            _require_neutral(name, value)
        elif name not in HARMLESS:
            unknown = UnknownName("parameter", name[:100], known=sorted(names), owner=owner)
            unknown.field = name[:100]  # what clients read as `param`
            raise unknown
    return kept


def _require_neutral(name: str, value: Any) -> None:
    if value is not None and not UNSUPPORTED[name](value):
        raise InvalidValue.because(name, f"{name} is not supported here", remedy="leave it out")
