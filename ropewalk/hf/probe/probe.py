"""What a model does with positions, measured by a few tiny forwards with fake answers of its rotary module.

With cos = 1 and sin = 0 nothing rotates; NaN shows which dimensions do; 2 shows whether a norm follows; cos = 0 and
sin = 1 shows which dimensions form a pair. Nothing is looked up by architecture, and the model is left unchanged.

Legend: b batch, h head, n token, d head dimension.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.masking_utils import AttentionMaskInterface
from transformers.modeling_utils import AttentionInterface

from ropewalk.errors import DoesNotFit, RopewalkError
from ropewalk.hf.probe.cache_contents import CachedLayer, places, watch_growth
from ropewalk.hf.probe.capture import (
    CapturedCall,
    alone_with,
    fill_output,
    is_rotation,
    mark_output,
    record,
    recorded_mask,
    recording,
    require_finite,
    watching_masks,
    with_shown,
)
from ropewalk.hf.probe.inline_rotation import inline_layers
from ropewalk.hf.probe.probed_layer import ProbedLayer
from ropewalk.hf.probe.quantised import quantised_modules
from ropewalk.hf.probe.rotation import (
    PAST_EVERY_SWITCH,
    LongTable,
    NormsAfter,
    RotaryCall,
    axes_of,
    axis_of_pairs,
    layer_type,
    long_table,
    measure_table,
    norm_weight,
    rotation_along,
    watch_norms,
    watch_rotation,
)

PROBE_TOKENS = 5
PROBE_RTOL = 1e-3  # relative to the largest number: the error of half precision
NAME = "ropewalk_probe"
UNREADABLE = (AttributeError, IndexError, RuntimeError, TypeError, ValueError)  # what models raise without other inputs


class FakeRotary(NamedTuple):
    """A fake answer of the rotary modules, in all calls or in one."""

    cos: float
    sin: float
    only: int | None = None
    axis: int | None = None  # only the pairs that rotate by this one of several positions get `sin`


def probe(model: PreTrainedModel) -> list[ProbedLayer]:
    """Every attention layer in order, or a refusal with the reason."""
    _require_weights(model)
    with alone_with(model), quiet(model), attention_named(model, NAME, record, recorded_mask), torch.no_grad():
        with recording(), watch_rotation(model) as rotary:  # a model without one may still attend
            _read(model, _tokens(model))
        with watch_norms(model) as norms_of:
            unrotated, calls = _run(model, rotary, FakeRotary(1, 0))
        norms = [norms_of(call.q_bhnd, call.k_bhnd) for call in unrotated]
        if not unrotated:
            ids = _tokens(model)
            return inline_layers(model, ids, calls, watch_growth(model, ids, []))
        require_finite(model, unrotated)
        with watching_masks(unrotated) as shown:
            double, quarter = (_run(model, rotary, fake)[0] for fake in (FakeRotary(2, 0), FakeRotary(0, 1)))
        unrotated = with_shown(unrotated, shown)
        blanks = [_run(model, rotary, FakeRotary(math.nan, 0, only))[0] for only in range(len(calls))]
        # A model may have a rotary module and never call it.
        by_layer = zip(*blanks, strict=True) if calls else [()] * len(unrotated)
        rotated = [_rotated_dims(answers, calls) for answers in by_layer]
        by_axis = [_run(model, rotary, FakeRotary(1, math.nan, axis=axis))[0] for axis in axes_of(calls)]
        with recording() as recorded:
            cached = places(watch_growth(model, _tokens(model), recorded), recorded)
        parts = zip(unrotated, double, quarter, rotated, norms, cached or [None] * len(unrotated), strict=True)
        layers = [_layer(*part) for part in parts]
    if by_axis:
        triples = zip(layers, rotated, zip(*by_axis, strict=True), strict=True)
        layers = [
            layer._replace(axes=axis_of_pairs(turned.dims, layer.interleaved, [call.q_bhnd for call in marks]))
            for layer, turned, marks in triples
        ]
    return _once(layers)


def _require_weights(model: PreTrainedModel) -> None:
    """Refuse a model without numbers. Where accelerate keeps weights on disk, its hooks read them."""
    vocabulary = _vocabulary(model)
    if getattr(getattr(vocabulary, "weight", None), "is_meta", False) and not hasattr(vocabulary, "_hf_hook"):
        sentence = "the weights are on the device meta, which holds no numbers"
        raise DoesNotFit.because("model", sentence, remedy="load them first, by from_pretrained or load_state_dict")


def _once(layers: list[ProbedLayer]) -> list[ProbedLayer]:
    """Every module once, even if it attends several times in one forward, which it must do alike."""
    times: dict[nn.Module, list[ProbedLayer]] = {}
    for layer in layers:
        times.setdefault(layer.module, []).append(layer)
    once = []
    for first, *more in times.values():
        once.append(_layer_of_calls([first, *more]) if more else first)
    return once


def _layer_of_calls(calls: list[ProbedLayer]) -> ProbedLayer:
    """The layer of a module that attends several times, with all slots that it fills."""
    first, places = calls[0], [call.cached for call in calls if call.cached]
    if any(call._replace(cached=None) != first._replace(cached=None) for call in calls):
        return first._replace(unsupported=f"attention {len(calls)} times in one forward, not alike")
    growth = sum(place.growth for place in places)
    cached = first.cached and first.cached._replace(growth=growth)
    return first._replace(cached=cached, slots=len(places) or len(calls))


def _tokens(model: PreTrainedModel) -> Tensor:
    return torch.arange(PROBE_TOKENS, device=device_of(model))[None]


def _vocabulary(model: PreTrainedModel) -> Any:
    try:
        return model.get_input_embeddings()
    except NotImplementedError:  # of models that read no tokens
        return None


def device_of(model: PreTrainedModel) -> torch.device:
    """The device of input tokens. Where accelerate keeps weights on disk, it moves tokens itself."""
    vocabulary = getattr(_vocabulary(model), "weight", None)
    if not isinstance(vocabulary, Tensor):
        raise DoesNotFit.because("model", f"{type(model).__name__} has no single vocabulary")
    return torch.device("cpu") if vocabulary.device.type == "meta" else torch.device(vocabulary.device)


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


def _run(
    model: PreTrainedModel, rotary: list[nn.Module], fake: FakeRotary
) -> tuple[list[CapturedCall], list[RotaryCall]]:
    """The inputs of attention under fake rotary answers, and the calls of the rotary modules."""
    calls: list[RotaryCall] = []

    def answer(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
        if not is_rotation(output):
            sentence = f"{type(module).__name__} returns neither cos and sin nor complex numbers"
            raise DoesNotFit.because("rotary module", sentence)
        calls.append(RotaryCall(module, args, kwargs))
        if fake.only not in (None, len(calls) - 1):
            return output
        if fake.axis is not None:
            return mark_output(output, rotation_along(calls[-1], fake.axis), fake.sin)
        return fill_output(output, fake.cos, fake.sin)

    hooks = [module.register_forward_hook(answer, with_kwargs=True) for module in rotary]
    try:
        with recording() as recorded:
            _read(model, _tokens(model))
    finally:
        for hook in hooks:
            hook.remove()
    return recorded, calls


def _read(model: PreTrainedModel, ids: Tensor) -> None:
    """One forward of a short text; refused where the model needs more than that."""
    try:
        model(input_ids=ids, use_cache=False)
    except RopewalkError:
        raise
    except UNREADABLE as reason:
        lines = str(reason).splitlines() or [type(reason).__name__]
        sentence = f"{type(model).__name__} does not read a text by itself: {lines[0][:200]}"
        raise DoesNotFit.because("model", sentence) from reason


class RotatedDims(NamedTuple):
    """The dimensions that a layer rotates, and by which table."""

    dims: list[int]
    inv_freq: tuple[float, ...] = ()
    temperature: float = 1.0
    varies: bool = False
    long_table: LongTable | None = None
    call: RotaryCall | None = None


def _rotated_dims(blanks: Sequence[CapturedCall], calls: Sequence[RotaryCall]) -> RotatedDims:
    """The dimensions that NaN in cos and sin reaches, and the table of the call that had it."""
    for blank, call in zip(blanks, calls, strict=True):
        dims = torch.isnan(blank.q_bhnd).flatten(0, -2).any(0).nonzero().flatten().tolist()
        if dims:
            short, long = (measure_table(call, len(dims), last) for last in (1, PAST_EVERY_SWITCH))
            if 2 * len(short[0]) != len(dims):
                got = f"{len(dims)} dimensions of queries change with {len(short[0])} pairs"
                got = "values are rotated too" if blank.v_bhnd.isnan().any() else got
                sentence = f"the rotary module does more than rotate queries and keys: {got}"
                raise DoesNotFit.because("rotary module", sentence)
            second = long_table(call, len(dims), short, long) if short != long else None
            return RotatedDims(dims, *short, varies=short != long, long_table=second, call=call)
    return RotatedDims([])


def _layer(
    unrotated: CapturedCall,
    double: CapturedCall,
    quarter: CapturedCall,
    rotated: RotatedDims,
    norms: NormsAfter,
    cached: CachedLayer | None,
) -> ProbedLayer:
    still = _without_rotation(unrotated, cached)
    if not rotated.dims:
        return still
    once, twice, turned = (
        (recorded.q_bhnd[..., rotated.dims], recorded.k_bhnd[..., rotated.dims])
        for recorded in (unrotated, double, quarter)
    )
    linear = all(_close(two, 2 * one) for one, two in zip(once, twice, strict=True))
    norms = NormsAfter() if linear else norms
    weights = [norm_weight(norm, still.head_dim) for norm in norms]
    weights = [weight[rotated.dims] if weight.dim() else weight for weight in weights]
    # A weighted norm rounds, and dividing by its weight does not undo that; mistakes are as large as the numbers.
    rounding = 4 * torch.finfo(unrotated.q_bhnd.dtype).eps if any(norms) else 0.0
    interleaved, clockwise = _pairs(_plain(once, weights), _plain(turned, weights), max(PROBE_RTOL, rounding))
    return still._replace(
        first=rotated.dims[0],
        rotating=len(rotated.dims),
        interleaved=interleaved,
        clockwise=clockwise,
        norm_follows=not linear,
        norms=norms,
        inv_freq=rotated.inv_freq,
        temperature=rotated.temperature if linear else 1.0,  # a norm undoes it
        varies=rotated.varies,
        long_table=rotated.long_table,
        rotary=rotated.call.module if rotated.call else None,
        layer_type=layer_type(rotated.call),
    )


def _without_rotation(unrotated: CapturedCall, cached: CachedLayer | None) -> ProbedLayer:
    """What a layer's call says of it, apart from its rotation."""
    q_bhnd = unrotated.q_bhnd
    return ProbedLayer(
        module=unrotated.module,
        heads=q_bhnd.shape[1],
        groups=unrotated.k_bhnd.shape[1],
        head_dim=q_bhnd.shape[-1],
        value_dim=unrotated.v_bhnd.shape[-1],
        scaling=unrotated.scaling,
        window=unrotated.seen.window,
        chunk=unrotated.seen.chunk,
        softcap=unrotated.arguments.get("softcap"),
        sinks=_sinks(unrotated),
        cached=cached,
        own_mask=unrotated.own_mask,
        unsupported=unrotated.unsupported,
    )


def _sinks(unrotated: CapturedCall) -> str | None:
    """The name of the parameter with the sinks; empty where it has another form, None without sinks."""
    sinks = unrotated.arguments.get("s_aux")
    parameters = unrotated.module.named_parameters(recurse=False)
    per_head = (name for name, value in parameters if value is sinks and len(value) == unrotated.q_bhnd.shape[1])
    return None if sinks is None else next(per_head, "")


def _plain(both: tuple[Tensor, Tensor], weights: Sequence[Tensor]) -> Tensor:
    """Queries and keys of one layer, one after the other, without the weights of norms."""
    return torch.cat([x / weight for x, weight in zip(both, weights, strict=True)], 1)


def _pairs(unrotated: Tensor, quarter: Tensor, close: float) -> tuple[bool | None, bool]:
    """Whether pairs are neighbours: every pair (a, b) has become (-b, a), or (b, -a), which is clockwise."""
    half = unrotated.shape[-1] // 2
    first, second = unrotated[..., :half], unrotated[..., half:]
    halves = torch.cat([-second, first], -1)
    neighbours = torch.stack([-unrotated[..., 1::2], unrotated[..., ::2]], -1).flatten(-2)
    for clockwise in (False, True):
        for interleaved, expected in ((False, halves), (True, neighbours)):
            if _close(quarter, -expected if clockwise else expected, close):
                return interleaved, clockwise
    return None, False


def _close(one: Tensor, other: Tensor, close: float = PROBE_RTOL) -> bool:
    return bool((one - other).abs().max() <= close * other.abs().max())
