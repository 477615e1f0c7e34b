"""A transformers model that is looked into or changed: alone, in evaluation mode, by other functions; its parts.

Quantised weights are recognized by what the tensors are. An extension changes positions, masks and attention, none of
which is quantised. Only a new value for a weight needs weights that can be computed with: surgery on weights, a
temperature folded into the queries, a GGUF file.
"""

from __future__ import annotations

import copy
import inspect
import threading
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.masking_utils import AttentionMaskInterface
from transformers.modeling_utils import AttentionInterface

from ropewalk.errors import Conflict, DoesNotFit

# What several threads do with one model: one at a time changes it or looks into it, and no forward is caught halfway.
#
# To look into a model is to run it with other functions for a moment, which a forward of another thread would meet.


CHANGES = threading.RLock()  # of models, by one thread at a time: attention functions are registered for all of them
FORWARD_TIMEOUT = 600.0  # seconds that the end of another thread's forward is waited for
_CLOSED = set[nn.Module]()  # to other threads


@contextmanager
def alone_with(model: nn.Module) -> Iterator[None]:
    """Let no other thread change the model or look into it, and refuse its forwards."""
    with CHANGES, ExitStack() as undo:
        if model not in _CLOSED:
            _CLOSED.add(model)
            undo.callback(_CLOSED.discard, model)
            mine = threading.get_ident()

            def refuse(*_: Any) -> None:
                if not torch.compiler.is_compiling() and threading.get_ident() != mine:
                    raise interrupted()

            for module in model.modules():
                undo.callback(module.register_forward_pre_hook(refuse).remove)
        yield


def interrupted() -> Conflict:
    """The refusal of a forward that meets a model in the middle of a change."""
    sentence = "another thread extends this model, looks into it, or takes its extension off"
    return Conflict.because("model", sentence, remedy="run the model when that has ended")


class Forwards:
    """The forwards that run under an extension, by their threads."""

    def __init__(self) -> None:
        self._changed, self._running, self._open = threading.Condition(), set[int](), True

    def begin(self, *_: Any) -> None:
        """The hook before a forward: refuse it where the extension is being taken off."""
        if torch.compiler.is_compiling():
            return
        with self._changed:
            if not self._open:
                raise interrupted()
            self._running.add(threading.get_ident())

    def end(self, *_: Any) -> None:
        """The hook after a forward, also after one that failed."""
        if not torch.compiler.is_compiling():
            with self._changed:
                self._running.discard(threading.get_ident())
                self._changed.notify_all()

    def close(self) -> None:
        """Let none begin any more, and wait for those of other threads."""
        with self._changed:
            self._open = False
            if not self._changed.wait_for(lambda: self._running <= {threading.get_ident()}, FORWARD_TIMEOUT):
                self._open = True
                remedy = "remove the extension when that has ended"
                raise Conflict.because("model", "another thread computes with this model", remedy=remedy)


# How a model is run to look into it.


class quiet:  # noqa: N801 - it reads as a verb: `with quiet(model):`
    """Evaluation mode inside the block; afterwards every module has its mode from before.

    Quantised layers are in training mode, which computes the same: in evaluation bitsandbytes packs 4-bit weights for
    the CPU, and packed ones give no gradients and cannot be saved.

    What generates makes one, and enters it at every token, since a caller may train the model between two: that costs a
    look at each module's mode, and not a walk through the model.
    """

    def __init__(self, model: nn.Module) -> None:
        quantised = set(quantised_modules(model))
        self._model, self._modes = model, [(module, module in quantised) for module in model.modules()]
        self._before: list[list[tuple[nn.Module, bool]]] = []  # of the modules in another mode, at each entry

    def __enter__(self) -> None:
        before = [(module, module.training) for module, training in self._modes if module.training is not training]
        self._before.append(before)
        if before:
            self._model.eval()
            for module, training in self._modes:
                module.training = training

    def __exit__(self, *_: object) -> None:
        for module, training in self._before.pop():
            module.training = training


@contextmanager
def attention_named(
    model: PreTrainedModel,
    name: str,
    function: Callable[..., Any],
    masking: Callable[..., Any],
    only: Sequence[Any] | None = None,
) -> Iterator[None]:
    """Other functions for attention and masks inside the block; afterwards every config is restored.

    `only` are the configs of the parts that change; others, such as an image encoder, keep their attention.
    """
    AttentionInterface.register(name, function)
    AttentionMaskInterface.register(name, masking)
    before = [(config, config._attn_implementation_internal) for config in configs(model)]
    try:
        model.set_attn_implementation(name)
        for config, name_before in before:
            if only is not None and all(config is not part for part in only):
                config._attn_implementation_internal = name_before
        yield
    finally:
        for config, name_before in before:
            config._attn_implementation_internal = name_before


def configs(model: nn.Module) -> list[Any]:
    """The configs of the model, of all models inside it and of their parts, without repetition."""
    every = [module.config for module in model.modules() if isinstance(module, PreTrainedModel)]
    for config in every:
        every += [part for key in config.sub_configs if (part := getattr(config, key, None)) is not None]
    return list({id(config): config for config in every}.values())


def vocabulary_of(model: PreTrainedModel) -> Any:
    """The module of a model's input embeddings; None where it reads no tokens."""
    try:
        return model.get_input_embeddings()
    except NotImplementedError:
        return None


def device_of(model: PreTrainedModel) -> torch.device:
    """The device of input tokens. Where accelerate keeps weights on disk, it moves tokens itself."""
    vocabulary = getattr(vocabulary_of(model), "weight", None)
    if not isinstance(vocabulary, Tensor):
        raise DoesNotFit.because("model", f"{type(model).__name__} has no single vocabulary")
    return torch.device("cpu") if vocabulary.device.type == "meta" else torch.device(vocabulary.device)


READS = {"inputs_embeds", "past_key_values"}  # the arguments of a forward that reads a text


def called_base(host: PreTrainedModel, attending: Collection[nn.Module]) -> PreTrainedModel:
    """The innermost model with all attention modules.

    A model that sees images calls it with positions that `host` itself does not know, and some models bypass
    `base_model`.
    """
    models = [part for part in host.modules() if isinstance(part, PreTrainedModel)]
    inside = [part for part in models if inspect.signature(part.forward).parameters.keys() >= READS]
    return [part for part in inside if set(attending) <= set(part.modules())][-1]


def why_not_finite(model: nn.Module) -> str:
    """The first parameter that holds NaN or infinity, and how many."""
    for name, value in model.named_parameters():
        bad = 0 if value.device.type == "meta" else int((~value.isfinite()).sum())
        if bad:
            return f"{bad} of {value.numel()} weights of {name} that are NaN or infinite"
    return "NaN or infinity, though its weights are finite"


def state_of(model: PreTrainedModel) -> Hashable:
    """All that an answer depends on, to see whether it changed: configs, modules, and versions of their numbers."""
    numbers = tuple((id(x), x.dtype, x.device, _version(x)) for x in (*model.parameters(), *model.buffers()))
    names = [config._attn_implementation_internal for config in configs(model)]
    return str(model.config.to_dict()), *names, *map(_settings, model.modules()), numbers


def _settings(module: nn.Module) -> Hashable:
    """What a module does: its function, its hooks, numbers and names in it by their values, all else by identity."""
    plain, held = (bool, int, float, str), vars(module).items()
    values = frozenset((key, one if type(one) in plain else id(one), _version(one)) for key, one in held)
    return id(module), type(module).forward, len(module._forward_hooks), len(module._forward_pre_hooks), values


def _version(value: Any) -> int:
    """How often a tensor was changed in place."""
    return value._version if isinstance(value, Tensor) and not value.is_inference() else 0


# Quantised weights.


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
    states = (getattr(getattr(module, "weight", None), "quant_state", None) for module in host.modules())
    if any(getattr(state, "packing_format_for_cpu", False) for state in states):  # of bitsandbytes' 4-bit weights
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
