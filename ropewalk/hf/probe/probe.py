"""What a model does with positions, measured by a few tiny forwards with fake answers of its rotary module.

With cos = 1 and sin = 0 nothing rotates; NaN shows which dimensions do; 2 shows whether a norm follows; cos = 0 and
sin = 1 shows which dimensions form a pair. Nothing is looked up by architecture, and the model is left unchanged.

Legend: b batch, h head, n token, d head dimension.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from ropewalk.errors import DoesNotFit, RopewalkError
from ropewalk.hf.probe.capture import (
    CapturedCall,
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
from ropewalk.hf.probe.fope import require_rotation
from ropewalk.hf.probe.host import (
    alone_with,
    attention_named,
    device_of,
    format_of,
    quiet,
    state_of,
    vocabulary_of,
    why_not_finite,
)
from ropewalk.hf.probe.inline_rotation import inline_layers
from ropewalk.hf.probe.probed_layer import CachedLayer, ProbedLayer, places, watch_growth
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


class Known(NamedTuple):
    """What was found of a model, as long as nothing of it changes."""

    mark: Hashable
    layers: list[ProbedLayer]
    allowed: set[Hashable]  # what leaves its logits as they are; a refusal that was raised would keep the model alive


_KNOWN = WeakKeyDictionary[PreTrainedModel, Known]()


def known(model: PreTrainedModel) -> Known:
    """What `probe` says of a model; of one that was probed before, anew if anything of it has changed."""
    with alone_with(model):
        mark = state_of(model)
        if model not in _KNOWN or _KNOWN[model].mark != mark:
            _KNOWN[model] = Known(mark, probe(model), set())
        return _KNOWN[model]


def probe(model: PreTrainedModel) -> list[ProbedLayer]:
    """Every attention layer in order, or a refusal with the reason."""
    require_rotation(model.config)
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
    vocabulary = vocabulary_of(model)
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


# A mode is right for a model when the empty extension leaves its logits unchanged. This is tested first.


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
    """The logits, also of a classifier, or the last hidden states of a model without a head."""
    answer = host(input_ids=ids, use_cache=False)
    values: Tensor = answer.logits if "logits" in answer else answer.last_hidden_state
    return values.double()


def allowed_error(host: PreTrainedModel, dtype: torch.dtype, half: float = HALF_RTOL) -> float:
    """The relative error of logits that rounding explains. Quantised layers round activations too, to 16 or 8 bits."""
    return half if format_of(host) else IDENTITY_RTOL.get(dtype, half)


def length_to_test(host: PreTrainedModel, most: int) -> int:
    """The length of the test text: beyond every window, block and top-k of the config, as far as affordable."""
    wanted = max(SHORTEST_TEST, 2 * _reach(host.config.get_text_config()))
    return min(wanted, affordable_tokens(host), LONGEST_TEST, most)


def affordable_tokens(host: PreTrainedModel) -> int:
    """How many tokens a model reads in seconds, about."""
    weights = sum(value.numel() for value in host.parameters())
    return max(SHORTEST_TEST, WORK.get(device_of(host).type, ELSEWHERE) // max(weights, 1))


def _reach(config: Any) -> int:
    """The most tokens that a query sees, by the config; blocks count as often as they are kept."""
    stated = {name: value for name, value in vars(config).items() if type(value) is int and REACHES.search(name)}
    blocks = [value for name, value in stated.items() if "block" in name and "top" not in name]
    kept = [value for name, value in stated.items() if "block" in name and "top" in name]
    return max([*stated.values(), *(size * often for size in blocks for often in kept)], default=0)
