"""The part of a model that reads a text: where a forward pass of its attention layers begins."""

from __future__ import annotations

import inspect
from collections.abc import Collection

from torch import nn
from transformers import PreTrainedModel

READS = {"inputs_embeds", "past_key_values"}  # the arguments of a forward that reads a text


def called_base(host: PreTrainedModel, attending: Collection[nn.Module]) -> PreTrainedModel:
    """The innermost model with all attention modules.

    A model that sees images calls it with positions that `host` itself does not know, and some models bypass
    `base_model`.
    """
    inside = [part for part in host.modules() if isinstance(part, PreTrainedModel) and _reads(part)]
    return [part for part in inside if set(attending) <= set(part.modules())][-1]


def _reads(part: PreTrainedModel) -> bool:
    return inspect.signature(part.forward).parameters.keys() >= READS
