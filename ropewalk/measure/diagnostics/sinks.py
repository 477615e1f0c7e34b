"""What the first tokens are worth to a stream: loss by position with them, with others, and without.

    kept      attention reaches the first n_sink tokens and the last W
    replaced  the same, with the first n_sink tokens replaced by a meaningless one
    removed   attention reaches only the last n_sink + W tokens

With line breaks as sinks the loss rises little, without sinks a lot: their content does not matter, their presence does
(Xiao et al. 2023, StreamingLLM, arXiv:2309.17453, tables 1 and 2). Losses are of the tokens after the first n_sink,
which are the same in all three.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from torch import Tensor, nn

from ropewalk.errors import InvalidValue
from ropewalk.extension.extension import Extension
from ropewalk.hf.attach.handle import host_of
from ropewalk.hf.attach.trained_extension import TrainedExtension
from ropewalk.hf.probe.probe import device_of
from ropewalk.measure.metrics.losses import token_losses
from ropewalk.methods.reach import Sinks, Window


class SinkLosses(NamedTuple):
    """Losses in nats of the tokens after the sinks, [texts, tokens - n_sink]."""

    kept: Tensor
    replaced: Tensor
    removed: Tensor


def without_sinks(
    model: nn.Module, ids_bn: Tensor, *, stream: Extension, substitute: int, own: TrainedExtension | None = None
) -> SinkLosses:
    """The losses under a stream with sinks; `own` is the extension that the model was trained under."""
    reach = stream.reach
    if not isinstance(reach, Sinks):
        raise InvalidValue("stream", "an extension whose reach is sinks, such as streaming", str(reach))
    if ids_bn.shape[1] <= reach.n_sink + 1:
        raise InvalidValue("ids", f"texts of more than {reach.n_sink + 1} tokens", tuple(ids_bn.shape))
    window = replace(stream, reach=Window(window=reach.n_sink + reach.window))
    other = ids_bn.clone()
    other[:, : reach.n_sink] = substitute
    runs = ((ids_bn, stream), (other, stream), (ids_bn, window))
    base = own or TrainedExtension()
    return SinkLosses(*(_losses(model, ids, line, base)[:, reach.n_sink - 1 :] for ids, line in runs))


def _losses(model: nn.Module, ids_bn: Tensor, extension: Extension, base: TrainedExtension) -> Tensor:
    with base.under(model, extension):
        return token_losses(model, ids_bn.to(device_of(host_of(model)))).losses_bn.cpu()
