"""The rope parameters of a config, checked before any formula sees them: one sentence for a wrong value.

The ends of the ranges are far outside what models have; within them every formula gives finite numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ropewalk.errors import DoesNotFit, InvalidValue

TOKEN_LIMIT = 10**12  # tokens
LARGE, SMALLEST_NUMBER = 1e6, 1e-6
# `ropewalk export` divides by 1e20 where a pair does not rotate; tokenizers without a length state 1e30.
LARGEST_NUMBER = 1e31
LENGTH = "original_max_position_embeddings"
# Keys that configs state as null where they mean that there is none.
MAY_BE_NULL = frozenset(
    ("attention_factor", "mscale", "mscale_all_dim", "short_mscale", "long_mscale", LENGTH, "type", "mrope_section")
)
# Without these a schedule has no table.
NEEDED = {"llama3": ("low_freq_factor", "high_freq_factor"), "longrope": ("short_factor", "long_factor")}
LENGTHS = ("model_max_length", "max_sequence_length", "seq_length", "max_seq_len")  # which engines read first
QUERY_SCALE = "llama_4_scaling"
LISTS = ("short_factor", "long_factor")


def _is_number(value: Any, first: float, last: float) -> bool:
    """Whether a value is a finite number between two ends, both included."""
    return isinstance(value, int | float) and not isinstance(value, bool) and first <= value <= last


def _is_whole(value: Any, first: int, last: int) -> bool:
    return _is_number(value, first, last) and value == int(value)


Rule = tuple[str, Callable[[Any], bool]]
ABOVE_0: Rule = ("a number above 0 and at most 1,000,000", lambda value: _is_number(value, SMALLEST_NUMBER, LARGE))
FROM_0: Rule = ("a number from 0 to 1,000", lambda value: _is_number(value, 0, 1000))
TEXT: Rule = ("a name", lambda value: isinstance(value, str) and bool(value))
LIST: Rule = ("a list of numbers, one for each pair", lambda value: isinstance(value, list | tuple))
FLAG: Rule = ("true or false", lambda value: isinstance(value, bool))
TOKENS: Rule = ("a whole number of tokens, 2 at least", lambda value: _is_whole(value, 2, TOKEN_LIMIT))
RULES: dict[str, Rule] = {
    "rope_type": TEXT,
    "type": TEXT,
    "rope_theta": ("a number above 1", lambda value: _is_number(value, 1 + SMALLEST_NUMBER, LARGEST_NUMBER)),
    "factor": ("a number from 1 to 1,000,000", lambda value: _is_number(value, 1, LARGE)),
    "partial_rotary_factor": ("a number above 0 and at most 1", lambda value: _is_number(value, SMALLEST_NUMBER, 1)),
    LENGTH: TOKENS,
    **dict.fromkeys(("attention_factor", "attn_factor", "short_mscale", "long_mscale", "alpha"), ABOVE_0),
    **dict.fromkeys(("beta_fast", "beta_slow", "low_freq_factor", "high_freq_factor"), ABOVE_0),
    **dict.fromkeys(("mscale", "mscale_all_dim", "llama_4_scaling_beta", "extrapolation_factor"), FROM_0),
    **dict.fromkeys(("truncate", "apply_yarn_scaling", "mrope_interleaved"), FLAG),
    **dict.fromkeys(LISTS, LIST),
}


def require_object(parameters: Any) -> None:
    """Refuse rope parameters that are no object of keys."""
    if not isinstance(parameters, Mapping):
        raise InvalidValue("config.rope_parameters", "an object of keys and values", parameters)
    for key, (rule, _) in RULES.items():
        if isinstance(parameters.get(key), Mapping):  # which would be taken for a type of layer
            raise InvalidValue(f"config.rope_parameters.{key}", rule, parameters[key])


def explain(values: Mapping[str, Any]) -> None:
    """The error of the wrong rope parameter in a config as it is written, where there is one."""
    for holder in (values, *(inner for inner in values.values() if isinstance(inner, Mapping))):
        for field in ("rope_parameters", "rope_scaling"):
            stated = holder.get(field)
            if stated:
                require_object(stated)
                nested = {name: part for name, part in stated.items() if isinstance(part, Mapping)}
                for name, part in (nested or {"": stated}).items():
                    valid_part(name, part)


def valid_part(name: str, part: Mapping[str, Any]) -> dict[str, Any]:
    """One set of rope parameters without its nulls, or the error of the first key that breaks its rule."""
    where = f"config.rope_parameters.{name}." if name else "config.rope_parameters."
    for key, (rule, is_right) in RULES.items():
        if key in part and not (part[key] is None and key in MAY_BE_NULL) and not is_right(part[key]):
            raise InvalidValue(where + key, rule, part[key])
    kept = {key: value for key, value in part.items() if value is not None}
    kind = kept.get("rope_type", kept.get("type", "default"))
    for key in NEEDED.get("longrope" if kind == "su" else kind, ()):
        if key not in kept:
            raise InvalidValue.because(where + key, f"{where}{key} is not there, and {kind} needs it")
    return kept


def require_pairs(name: str, part: Mapping[str, Any], kind: str, head_dim: Any, dims: int) -> None:
    """Refuse heads that have no pairs, and divisors that are not one for each pair."""
    where = f"config.rope_parameters.{name}." if name else "config.rope_parameters."
    if dims < 4 or dims % 2:
        rule = f"a share that rotates an even number of the {head_dim} dimensions of a head, 4 at least"
        raise InvalidValue(where + "partial_rotary_factor", rule, part.get("partial_rotary_factor", 1.0))
    for key in LISTS if kind == "longrope" else ():
        values = part[key]
        rule = f"{dims // 2} numbers above 0, one for each pair"
        if len(values) != dims // 2:
            raise InvalidValue.because(where + key, f"{where}{key} must be {rule}, and has {len(values)}")
        for value in values:
            if not _is_number(value, SMALLEST_NUMBER, LARGEST_NUMBER):
                raise InvalidValue(where + key, rule, value)


def valid_size(field: str, value: Any) -> int:
    """A size of the model that is divided or halved."""
    if not _is_whole(value, 1, 10**6):
        raise InvalidValue(f"config.{field}", "a whole number of at least 1", value)
    return int(value)


def require_lengths(text: Mapping[str, Any]) -> None:
    """Refuse lengths beside the rope parameters that are no lengths; engines read these too."""
    for key in (LENGTH, *LENGTHS):
        if text.get(key) is not None and not _is_number(text[key], 2, LARGEST_NUMBER):
            raise InvalidValue(f"config.{key}", TOKENS[0], text[key])
    scaling = text.get(QUERY_SCALE)
    if scaling is None:
        return
    held = isinstance(scaling, Mapping) and FROM_0[1](scaling.get("beta")) and TOKENS[1](scaling.get(LENGTH))
    if not held:
        raise InvalidValue(f"config.{QUERY_SCALE}", f"an object of beta and {LENGTH}", scaling)


def require_longest(value: Any) -> int:
    """The max_position_embeddings of a config."""
    if not TOKENS[1](value):
        raise DoesNotFit("config.max_position_embeddings", TOKENS[0], value)
    return int(value)
