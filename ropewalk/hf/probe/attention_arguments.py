"""What a module asks of attention besides queries, keys and values: what is carried, and what would be dropped."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

# What attention of ours does: windows and masks are known beforehand, caps and sinks are facts of the model.
CARRIED = {"scaling", "dropout", "sliding_window", "softcap", "s_aux"}
SUPPORTED = "a causal mask, a window, a cap and sinks"
# What says nothing that attention does not know already.
IDLE = {"position_ids", "cache_position", "logits_to_keep", "ropewalk_pass"}


def unsupported_arguments(given: Mapping[str, Any], told: Collection[str] = ()) -> list[str]:
    """The names of what is neither carried nor idle, nor `told` by whoever called the model; flags say nothing, but
    that attention be causal."""
    odd = [name for name, value in given.items() if not _says_nothing(value) and name not in CARRIED | IDLE]
    odd += ["is_causal=False"] if given.get("is_causal") is False else []
    return [name for name in odd if name not in told]


def _says_nothing(value: Any) -> bool:
    return value is None or isinstance(value, bool | str)
