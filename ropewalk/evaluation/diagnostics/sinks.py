"""What the first tokens are worth to a stream: loss by position with them, with others in their place, without any.

    kept      the n_sink first tokens and the last W
    replaced  the same, after the first n_sink tokens were replaced by a meaningless one
    removed   the last n_sink + W tokens alone

With sinks replaced by line breaks a stream loses little, without sinks much: what they are does not matter, that they
are there does (Xiao et al. 2023, StreamingLLM, arXiv:2309.17453, tables 1 and 2). Judged are the tokens after the
first n_sink, which are the same in all three.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from torch import Tensor, nn

from ropewalk.errors import InvalidValue
from ropewalk.evaluation.metrics.losses import token_losses
from ropewalk.extension import Extension
from ropewalk.hf.attach.handle import host_of
from ropewalk.hf.attach.trained_extension import TrainedExtension
from ropewalk.hf.probe.rotary import device_of
from ropewalk.reach import Sinks, Window


class SinkLosses(NamedTuple):
    """Losses in nats of each token after the sinks, [texts, tokens - n_sink]."""

    kept: Tensor
    replaced: Tensor
    removed: Tensor


def without_sinks(
    model: nn.Module, ids_bn: Tensor, *, stream: Extension, substitute: int, own: TrainedExtension | None = None
) -> SinkLosses:
    """Under a stream with sinks; the model comes without an extension, `own` is the one that it was trained under."""
    reach = stream.reach
    if not isinstance(reach, Sinks):
        raise InvalidValue("stream", "an extension whose reach is sinks, such as streaming", str(reach))
    if ids_bn.shape[1] <= reach.n_sink + 1:
        raise InvalidValue("ids", f"texts of more than {reach.n_sink + 1} tokens", tuple(ids_bn.shape))
    window = replace(stream, reach=Window(window=reach.n_sink + reach.window))
    other = ids_bn.clone()
    other[:, : reach.n_sink] = substitute
    runs = ((ids_bn, stream), (other, stream), (ids_bn, window))
    return SinkLosses(
        *(_losses(model, ids, extension, own or TrainedExtension())[:, reach.n_sink - 1 :] for ids, extension in runs)
    )


def _losses(model: nn.Module, ids_bn: Tensor, extension: Extension, own: TrainedExtension) -> Tensor:
    with own.under(model, extension):
        return token_losses(model, ids_bn.to(device_of(host_of(model)))).losses_bn.cpu()
