"""The arguments of attention besides queries, keys and values: which we support, and which would be ignored."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

# Supported by our attention: windows and masks are known beforehand, caps and sinks are facts of the model.
KNOWN = {"scaling", "dropout", "sliding_window", "softcap", "s_aux"}
SUPPORTED = "a causal mask, a window, a cap and sinks"
OWN_MASK = "makes a mask of its own, or chooses its keys"  # a layer, in refusals
MASK = "attention_mask"  # the argument of an attention module
# The keys that a module has chosen for every query, [batch, queries, chosen]: a mask of its own.
CHOSEN = "indices"
# Without new information for attention.
IDLE = {"position_ids", "cache_position", "logits_to_keep", "ropewalk_pass"}


def unsupported_arguments(kwargs: Mapping[str, Any], expected: Collection[str] = ()) -> list[str]:
    """The names of arguments that are neither supported, nor idle, nor among `expected`.

    Flags and words carry no request, except is_causal=False.
    """
    odd = [name for name, value in kwargs.items() if not _is_flag(value) and name not in KNOWN | IDLE]
    odd += ["is_causal=False"] if kwargs.get("is_causal") is False else []
    return [name for name in odd if name not in expected]


def _is_flag(value: Any) -> bool:
    return value is None or isinstance(value, bool | str)
