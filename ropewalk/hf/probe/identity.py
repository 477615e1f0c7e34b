"""A mode is right for a model when the empty extension leaves its logits unchanged. This is tested first."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from ropewalk.errors import DoesNotFit
from ropewalk.hf.probe.capture import why_not_finite
from ropewalk.hf.probe.probe import device_of, quiet
from ropewalk.hf.probe.quantised import format_of

# Relative to the logits' root mean square. Mistakes are above 0.1; half precision is 0.05 off in deep models. A model
# in float64 may be as far off as one in float32: transformers computes the angles of both in float32.
IDENTITY_RTOL = {torch.float32: 1e-3, torch.float64: 1e-3}
HALF_RTOL = 0.1
# Where layers choose keys: of two that score alike, rounding decides. transformers' own eager and sdpa are 0.13 apart.
HALF_CHOOSING = 0.2
SHORTEST_TEST = 24  # of the test text, at least
# The most weights times tokens: seconds on two cores. The mask and the keywords that the probe recorded show a longer
# window or block, at any length.
WORK = {"cpu": 2**35}
ELSEWHERE = 2**41
REACHES = re.compile("window|chunk|block|top_?k|budget|keep")  # config names of what a query sees, in tokens
LONGEST_TEST = 4096


def why_not_identical(
    host: PreTrainedModel, most: int, enter: Callable[[], AbstractContextManager[Any]], *, half: float = HALF_RTOL
) -> DoesNotFit | None:
    """How the logits of a model change inside `enter()`, on a text of at most `most` tokens; None where they do not.

    `half` is the largest error in half precision.
    """
    vocabulary: Any = host.get_input_embeddings().weight
    ids = torch.arange(length_to_test(host, most), device=device_of(host))[None] * 7 % len(vocabulary)
    with quiet(host), torch.no_grad():
        expected = _answer(host, ids)
        if not expected.isfinite().all():
            return DoesNotFit.because("model", f"the model's logits are not finite: {why_not_finite(host)}")
        with enter():
            got = _answer(host, ids)
    error = float((got - expected).square().mean().sqrt() / expected.square().mean().sqrt())
    if error <= allowed_error(host, vocabulary.dtype, half):
        return None
    sentence = f"an empty extension changes the logits of {type(host).__name__} by {error:.1e} of their size"
    return DoesNotFit.because("model", sentence)


def _answer(host: PreTrainedModel, ids: Tensor) -> Tensor:
    """The logits, or the last hidden states of a model without a head."""
    answer = host(input_ids=ids, use_cache=False)
    values: Tensor = answer.last_hidden_state if host.get_output_embeddings() is None else answer.logits  # type: ignore[no-untyped-call]
    return values.double()


def allowed_error(host: PreTrainedModel, dtype: torch.dtype, half: float = HALF_RTOL) -> float:
    """The relative error of logits that rounding explains. Quantised layers round activations too, to 16 or 8 bits."""
    return half if format_of(host) else IDENTITY_RTOL.get(dtype, half)


def length_to_test(host: PreTrainedModel, most: int) -> int:
    """The length of the test text: beyond every window, block and top-k of the config, as far as affordable."""
    config = host.config.get_text_config()
    weights = sum(value.numel() for value in host.parameters())
    affordable = WORK.get(device_of(host).type, ELSEWHERE) // max(weights, 1)
    wanted = max(SHORTEST_TEST, 2 * _reach(config))
    return min(wanted, max(SHORTEST_TEST, affordable), LONGEST_TEST, most)


def _reach(config: Any) -> int:
    """The most tokens that a query sees, by the config; blocks count as often as they are kept."""
    stated = {name: value for name, value in vars(config).items() if type(value) is int and REACHES.search(name)}
    blocks = [value for name, value in stated.items() if "block" in name and "top" not in name]
    kept = [value for name, value in stated.items() if "block" in name and "top" in name]
    return max([*stated.values(), *(size * often for size in blocks for often in kept)], default=0)
