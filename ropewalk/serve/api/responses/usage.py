"""What a request has cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ropewalk.serve.generation.request import Usage


def usage_of(usages: Sequence[Usage], n: int) -> dict[str, Any]:
    """The usage of all answers; `n` of them share a prompt, which counts once.

    usage_of([Usage(5, 3, 0)], 1)["total_tokens"] == 8
    """
    prompts = usages[::n]
    prompt, completion = sum(usage.prompt_tokens for usage in prompts), sum(u.completion_tokens for u in usages)
    shown: dict[str, Any] = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": sum(usage.cached_tokens for usage in prompts)},
    }
    if usages and usages[0].session_tokens is not None:
        shown["session"] = session_of(usages[0].session_tokens, usages[0].forgotten_tokens or 0)
    return shown


def session_of(tokens: int, forgotten: int) -> dict[str, int]:
    """What a session has read, and what of it no later token can see."""
    return {"tokens": tokens, "forgotten_tokens": forgotten}
