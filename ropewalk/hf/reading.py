"""Reading long texts and writing without end: pieces through a cache, never more at once than a piece needs.

Legend: b batch, n token, d hidden dimension, v word.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from transformers import DynamicCache, LogitsProcessorList, PreTrainedModel
from transformers.generation.logits_process import (
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from ropewalk.attention import nll
from ropewalk.errors import Conflict, InvalidValue
from ropewalk.hf.extending import HANDLE, host_of
from ropewalk.hf.probe import quiet

PIECE = 2048  # tokens read at once
PROBED = 8  # tokens on which the head is compared with the model's own logits
CLOSE = 2e-2  # of the largest logit, for half precision's sake


def score(model: nn.Module, ids: Tensor, *, piece: int = PIECE) -> Tensor:
    """The loss in nats of each token of [batch, tokens] given all before it, [batch, tokens - 1].

    Neither the logits of all tokens nor the square of attention is ever held.
    """
    host = host_of(model)
    _check(ids, piece, least=2)
    with quiet(host), torch.no_grad():
        scale = _head_scale(host, ids[:, :PROBED])
        head: Any = host.get_output_embeddings()  # type: ignore[no-untyped-call]
        cache, losses = DynamicCache(config=host.config), []
        for first in range(0, ids.shape[1] - 1, piece):
            part = ids[:, first : first + piece]
            targets = ids[:, first + 1 : first + piece + 1]
            if scale is None:
                losses.append(_from_logits(host(input_ids=part, past_key_values=cache, use_cache=True).logits, targets))
                continue
            hidden = _base(host)(input_ids=part, past_key_values=cache, use_cache=True).last_hidden_state
            hidden = hidden[:, : targets.shape[1]] * scale
            losses.append(nll(hidden.to(head.weight.device), head.weight, targets, head.bias))
        return torch.cat(losses, 1)


def stream(
    model: nn.Module,
    ids: Tensor,
    *,
    max_new_tokens: int | None = None,
    temperature: float = 0.0,
    top_k: int = 0,
    top_p: float = 1.0,
    seed: int = 0,
    piece: int = PIECE,
) -> Iterator[Tensor]:
    """Tokens [batch] one after the other, without end unless one is given; at temperature 0 the likeliest.

    Under an extension whose reach forgets (a window, sinks) memory and time per token stay what they are.
    """
    host = host_of(model)
    _check(ids, piece)
    choose = sampler(temperature, top_k, top_p, torch.Generator(device=ids.device).manual_seed(seed))
    return _written(host, ids, choose, max_new_tokens, piece)


def _written(host: PreTrainedModel, ids: Tensor, choose: Any, count: int | None, piece: int) -> Iterator[Tensor]:
    handle = host.__dict__.get(HANDLE)
    cache, made = DynamicCache(config=host.config), 0
    for first in range(0, ids.shape[1], piece):
        logits_bv = _next(host, ids[:, first : first + piece], cache)
    while count is None or made < count:
        token_b = choose(logits_bv)
        yield token_b
        if host.__dict__.get(HANDLE) is not handle:
            raise Conflict("stream", "read under the extension it began under", "another, or none")
        made += 1
        if count is None or made < count:
            logits_bv = _next(host, token_b[:, None], cache)


def _check(ids: Any, piece: int, least: int = 1) -> None:
    if not isinstance(ids, Tensor) or ids.dim() != 2 or ids.is_floating_point() or ids.shape[1] < least:
        got = f"{ids.dtype} {tuple(ids.shape)}" if isinstance(ids, Tensor) else ids
        raise InvalidValue("ids", f"whole numbers of shape [batch, at least {least} tokens]", got)
    if piece < 1:
        raise InvalidValue("piece", "at least 1", piece)


def _base(host: PreTrainedModel) -> Any:
    return host.base_model


def _head_scale(host: PreTrainedModel, ids: Tensor) -> float | None:
    """What makes hidden states times the head the model's logits; nothing where no number will do."""
    head: Any = host.get_output_embeddings()  # type: ignore[no-untyped-call]
    hidden = _base(host)(input_ids=ids, use_cache=False).last_hidden_state
    own, theirs = head(hidden).double(), host(input_ids=ids, use_cache=False).logits.double()
    scale = float((own * theirs).sum() / own.square().sum())
    close = (own * scale - theirs).abs().max() <= CLOSE * theirs.abs().max()
    return scale if close and (head.bias is None or abs(scale - 1) < CLOSE) else None


def _from_logits(logits_bnv: Tensor, targets_bn: Tensor) -> Tensor:
    logits = logits_bnv[:, : targets_bn.shape[1]].float()
    return torch.nn.functional.cross_entropy(logits.transpose(1, 2), targets_bn, reduction="none")


@torch.no_grad()
def _next(host: PreTrainedModel, ids: Tensor, cache: DynamicCache) -> Tensor:
    """The logits after the last of these tokens."""
    with quiet(host):
        logits: Tensor = host(input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1).logits[:, -1]
    return logits


def sampler(temperature: float, top_k: int, top_p: float, generator: torch.Generator) -> Any:
    """What draws a token from logits [batch, vocabulary]; at temperature 0 it takes the likeliest."""
    if not temperature >= 0:
        raise InvalidValue("temperature", "0 or above", temperature)
    if temperature == 0:
        return lambda logits_bv: logits_bv.argmax(-1)
    for name, value, rule in (("top_k", top_k, top_k >= 0), ("top_p", top_p, 0 < top_p <= 1)):
        if not rule:
            raise InvalidValue(name, "0 (all) or above" if name == "top_k" else "above 0 and at most 1", value)
    warpers = LogitsProcessorList([TemperatureLogitsWarper(float(temperature))])
    if top_k:
        warpers.append(TopKLogitsWarper(top_k))
    if top_p < 1:
        warpers.append(TopPLogitsWarper(top_p))

    def draw(logits_bv: Tensor) -> Tensor:
        unasked: Any = None  # what came before, which none of these looks at
        share = warpers(unasked, logits_bv.float()).softmax(-1)
        return torch.multinomial(share, 1, generator=generator)[:, 0]

    return draw
