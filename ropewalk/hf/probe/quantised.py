"""Quantised weights: recognized by what the tensors are, and refused where their values have to be changed.

An extension changes positions, masks and attention, none of which is quantised. Only a new value for a weight needs
weights that can be computed with: surgery on weights, a temperature folded into the queries, a GGUF file.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from ropewalk.errors import DoesNotFit

FIRST = "do that with the model as it was before quantisation, and quantise the result"


def format_of(host: nn.Module) -> str:
    """What quantised the weights, such as bitsandbytes or torchao; else the class that holds them; empty for none.

    format_of(model)  # "bitsandbytes"
    """
    config = getattr(getattr(host, "config", None), "quantization_config", None)
    if config is not None:
        method = config.get("quant_method") if isinstance(config, dict) else getattr(config, "quant_method", None)
        return str(getattr(method, "value", method) or "a format without a name")
    return next((_holder(module) for module in host.modules() if _holder(module)), "")


def _holder(module: nn.Module) -> str:
    """The class that holds quantised weights of this module itself; empty where there are none."""
    weight = getattr(module, "weight", None)
    if callable(weight) and not isinstance(weight, nn.Module | Tensor):  # torch's own quantised layers
        return type(module).__name__
    for value in module.parameters(recurse=False):
        if is_quantised(value):
            plain = type(value) in (Tensor, nn.Parameter)
            return type(module).__name__ if plain else type(value).__name__
    return ""


def _still_quantised(host: nn.Module) -> bool:
    """Whether any quantised weight is left: compressed-tensors decompresses all in the first forward pass."""
    tables = (value for value in host.buffers() if value.dim() > 1 and value.dtype == torch.int32)  # GPTQ, AWQ
    return any(_holder(module) for module in host.modules()) or any(True for _ in tables)


def _state(module: nn.Module) -> Any:
    """What bitsandbytes knows of the 4-bit weights of a module; None for any other."""
    return getattr(getattr(module, "weight", None), "quant_state", None)


def is_quantised(value: Tensor) -> bool:
    """Whether a weight has less than two bytes a number, or knows how to undo its quantisation."""
    return value.dtype.itemsize < 2 or type(value).dequantize is not Tensor.dequantize


def require_plain(host: PreTrainedModel, task: str, remedy: str = FIRST) -> None:
    """Refuse quantised weights for what computes new values of weights."""
    if reason := why_not_plain(host, task, remedy):
        raise reason


def why_not_plain(host: PreTrainedModel, task: str, remedy: str = FIRST) -> DoesNotFit | None:
    """Why a task cannot compute new values of weights: they are quantised. None where they are plain."""
    if kind := format_of(host):
        sentence = f"{task} computes with weights, and these are quantised ({kind})"
        return DoesNotFit.because("model", sentence, remedy=remedy)
    return None


def require_savable(host: PreTrainedModel) -> None:
    """Refuse quantised weights that transformers cannot write, or could not read again."""
    kind, quantiser = format_of(host), getattr(host, "hf_quantizer", None)
    if not kind:
        return
    if quantiser is not None and not _still_quantised(host):
        sentence = f"transformers has undone the quantisation ({kind}) to run the model, and would write plain weights"
        raise DoesNotFit.because("model", sentence, remedy=FIRST)
    if any(getattr(_state(module), "packing_format_for_cpu", False) for module in host.modules()):
        sentence = (
            "the model has generated, for which bitsandbytes packed its weights, and it cannot unpack them exactly"
        )
        raise DoesNotFit.because("model", sentence, remedy="load the model again, and save it before it generates")
    if quantiser is None:
        sentence = f"the weights are quantised in memory ({kind}), and the config does not say how"
        remedy = "pass quantization_config to from_pretrained instead, which is saved with the model"
        raise DoesNotFit.because("model", sentence, remedy=remedy)
    if not quantiser.is_serializable():
        sentence = f"transformers cannot save weights quantised by {kind}"
        remedy = "save the model as it was before quantisation, and quantise it when it is loaded"
        raise DoesNotFit.because("model", sentence, remedy=remedy)


def quantised_modules(model: nn.Module) -> list[nn.Module]:
    """The modules that hold quantised weights, of a model that was loaded with them."""
    if getattr(getattr(model, "config", None), "quantization_config", None) is None:
        return []
    return [module for module in model.modules() if _holder(module)]


def loadable_config(host: PreTrainedModel) -> Any:
    """A copy of the config, as from_pretrained takes it: there the quantisation is a dict, on a model an object."""
    config = copy.deepcopy(host.config)
    quantisation = getattr(config, "quantization_config", None)
    if quantisation is not None and not isinstance(quantisation, dict):
        config.quantization_config = quantisation.to_dict()
    return config
