"""What a model does with positions, measured by a few tiny forwards with fake answers of its rotary module.

With cos = 1 and sin = 0 nothing rotates; NaN shows which dimensions do; 2 shows whether a norm follows; cos = 0 and
sin = 1 shows which dimensions form a pair. Nothing is looked up by architecture, and the model is left unchanged.

Legend: b batch, h head, n token, d head dimension.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.masking_utils import AttentionMaskInterface
from transformers.modeling_utils import AttentionInterface

from ropewalk.errors import DoesNotFit
from ropewalk.hf.probe.cache_contents import CachedLayer, grown, places
from ropewalk.hf.probe.capture import CapturedCall, masked, record, recording, require_finite

TOKENS = 5
FAR = 10_000_000  # a position beyond every length at which a model changes its table
CLOSE = 1e-3  # relative to the largest number: the error of half precision
NAME = "ropewalk_probe"


class RotaryCall(NamedTuple):
    """One call of a rotary module."""

    module: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class LongTable(NamedTuple):
    """The second table of a module that has two: one for short texts and this one for long texts."""

    above: int  # tokens of the longest short text
    inv_freq: tuple[float, ...]
    temperature: float


class ProbedLayer(NamedTuple):
    """What one attention layer does with positions."""

    module: nn.Module
    heads: int
    groups: int
    head_dim: int
    value_dim: int
    scaling: float
    first: int = 0  # the first rotating dimension, and how many rotate
    rotating: int = 0
    interleaved: bool | None = False  # None: its pairs are of no known kind
    norm_follows: bool = False
    inv_freq: tuple[float, ...] = ()  # its own table, radians per position
    temperature: float = 1.0  # the factor of its cos and sin
    varies: bool = False  # whether its table depends on the length of the text
    long_table: LongTable | None = None  # where it has one table for short texts and another for long ones
    plain_scaling: float | None = None  # `scaling` without the model's own schedule, where that was computed
    window: int | None = None
    softcap: float | None = None
    sinks: str | None = None  # the module's parameter with a logit per head; empty: it has sinks of another form
    rotary: nn.Module | None = None  # the rotary module with its table
    layer_type: str | None = None  # the layer type in calls of this module, where types have different tables
    clockwise: bool = False  # whether the second of a pair rotates towards the first
    cached: CachedLayer | None = None  # the place of its keys in the model's own cache; None without one
    unsupported: str = ""  # what it asks of attention that the equation does not have; empty: nothing


class FakeRotary(NamedTuple):
    """A fake answer of the rotary modules, in all calls or in one."""

    cos: float
    sin: float
    only: int | None = None


def probe(model: PreTrainedModel) -> list[ProbedLayer]:
    """Every attention layer in order, or a refusal with the reason."""
    rotary = rotary_modules(model)
    with quiet(model), attention_named(model, NAME, record, masked), torch.no_grad():
        unrotated, calls = _run(model, rotary, FakeRotary(1, 0))
        if not unrotated:
            sentence = f"{type(model).__name__} does not use transformers' attention interface"
            raise DoesNotFit.because("model", sentence)
        require_finite(model, unrotated)
        double, quarter = (_run(model, rotary, fake)[0] for fake in (FakeRotary(2, 0), FakeRotary(0, 1)))
        blanks = [_run(model, rotary, FakeRotary(math.nan, 0, only))[0] for only in range(len(calls))]
        # A model may have a rotary module and never call it.
        by_layer = zip(*blanks, strict=True) if calls else [()] * len(unrotated)
        rotated = [_rotated(answers, calls) for answers in by_layer]
        with recording() as recorded:
            cached = places(grown(model, _tokens(model), recorded), recorded)
    parts = zip(unrotated, double, quarter, rotated, cached or [None] * len(unrotated), strict=True)
    return _once([_layer(*part) for part in parts])


def _once(layers: list[ProbedLayer]) -> list[ProbedLayer]:
    """Every module once, even if it attends several times in one forward."""
    times: dict[nn.Module, list[ProbedLayer]] = {}
    for layer in layers:
        times.setdefault(layer.module, []).append(layer)
    once = []
    for first, *more in times.values():
        once.append(first._replace(unsupported=f"attention {len(more) + 1} times in one forward") if more else first)
    return once


def _tokens(model: PreTrainedModel) -> Tensor:
    return torch.arange(TOKENS, device=device_of(model))[None]


def rotary_modules(model: nn.Module) -> list[nn.Module]:
    """The modules that compute the model's cos and sin; refused where there are none."""
    modules = _rotary_modules(model)
    if not modules:
        raise DoesNotFit.because("model", f"{type(model).__name__} has no module with rotary position embeddings")
    return modules


def turns(model: nn.Module) -> bool:
    """Whether the model has a rotary module."""
    return bool(_rotary_modules(model))


def _rotary_modules(model: nn.Module) -> list[nn.Module]:
    """By transformers' usual name, or else by their buffers."""
    modules = list(model.named_modules())
    named = [module for name, module in modules if name.rsplit(".", 1)[-1].startswith("rotary_emb")]
    return named or [module for _, module in modules if any(name.endswith("inv_freq") for name in module._buffers)]


def device_of(model: PreTrainedModel) -> torch.device:
    """The device of input tokens. Where accelerate keeps weights on disk, it moves tokens itself."""
    vocabulary: Any = model.get_input_embeddings().weight
    return torch.device("cpu") if vocabulary.device.type == "meta" else torch.device(vocabulary.device)


@contextmanager
def quiet(model: nn.Module) -> Iterator[None]:
    """Evaluation mode inside the block; afterwards every module has its mode from before."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


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
        if not isinstance(output, tuple) or len(output) != 2 or any(part.is_complex() for part in output):
            raise DoesNotFit.because("rotary module", f"{type(module).__name__} does not return cos and sin")
        calls.append(RotaryCall(module, args, kwargs))
        if fake.only not in (None, len(calls) - 1):
            return output
        return torch.full_like(output[0], fake.cos), torch.full_like(output[1], fake.sin)

    hooks = [module.register_forward_hook(answer, with_kwargs=True) for module in rotary]
    try:
        with recording() as recorded:
            model(input_ids=_tokens(model), use_cache=False)
    finally:
        for hook in hooks:
            hook.remove()
    return recorded, calls


Measured = tuple[tuple[float, ...], float]  # frequencies, and the factor of cos and sin


class RotatedDims(NamedTuple):
    """The dimensions that a layer rotates, and by which table."""

    dims: list[int]
    inv_freq: tuple[float, ...] = ()
    temperature: float = 1.0
    varies: bool = False
    long_table: LongTable | None = None
    call: RotaryCall | None = None


def _rotated(blanks: Sequence[CapturedCall], calls: Sequence[RotaryCall]) -> RotatedDims:
    """The dimensions that NaN in cos and sin reaches, and the table of the call that had it."""
    for blank, call in zip(blanks, calls, strict=True):
        dims = torch.isnan(blank.q_bhnd).flatten(0, -2).any(0).nonzero().flatten().tolist()
        if dims:
            short, long = (_table(call, len(dims), last) for last in (1, FAR))
            if 2 * len(short[0]) != len(dims):
                got = f"{len(dims)} dimensions change with {len(short[0])} pairs"
                raise DoesNotFit.because("rotary module", f"the rotary module does more than rotate pairs: {got}")
            long_table = _long_table(call, len(dims), short, long) if short != long else None
            return RotatedDims(dims, *short, varies=short != long, long_table=long_table, call=call)
    return RotatedDims([])


def _long_table(call: RotaryCall, dims: int, short: Measured, long: Measured) -> LongTable | None:
    """The second of two tables and where it begins; None where the table changes with every length."""
    low, high = 1, FAR  # last positions at which the one and the other table is in force
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _table(call, dims, middle) == short else (low, middle)
    return LongTable(low + 1, *long) if _table(call, dims, high) == long else None


def _table(call: RotaryCall, dims: int, last: int) -> Measured:
    """The frequencies and the temperature of a rotary module for a text up to `last`: the answer of a copy of it at
    positions 0 and 1."""
    x = call.args[0]
    rest, kwargs = _other_arguments(call)
    positions = torch.tensor([[0, 1, last]], device=x.device)
    cos, sin = copy.deepcopy(call.module).forward(x.float(), positions, *rest, **kwargs)
    cos, sin = (part.double().reshape(3, -1)[:2] for part in (cos, sin))
    width = cos.shape[1]
    if width == dims:  # the two halves, or the two of a pair, are equal
        halves = torch.equal(sin[:, : width // 2], sin[:, width // 2 :])
        cos, sin = (part[:, : width // 2] if halves else part[:, ::2] for part in (cos, sin))
    return tuple(torch.atan2(sin[1], cos[1]).tolist()), float(cos[0, 0])


def _other_arguments(call: RotaryCall) -> tuple[list[Any], dict[str, Any]]:
    """The arguments of a rotary module besides the hidden states and the positions."""
    kwargs = {name: value for name, value in call.kwargs.items() if name not in ("x", "position_ids")}
    return list(call.args[2:]), kwargs


def _layer_type(call: RotaryCall | None) -> str | None:
    """The layer type among these arguments."""
    rest, kwargs = _other_arguments(call) if call else ([], {})
    return next((value for value in (*rest, *kwargs.values()) if isinstance(value, str)), None)


def _layer(
    unrotated: CapturedCall,
    double: CapturedCall,
    quarter: CapturedCall,
    rotated: RotatedDims,
    cached: CachedLayer | None,
) -> ProbedLayer:
    q = unrotated.q_bhnd
    plain = ProbedLayer(
        module=unrotated.module,
        heads=q.shape[1],
        groups=unrotated.k_bhnd.shape[1],
        head_dim=q.shape[-1],
        value_dim=unrotated.v_bhnd.shape[-1],
        scaling=unrotated.scaling,
        window=unrotated.window,
        softcap=unrotated.arguments.get("softcap"),
        sinks=_sinks(unrotated),
        cached=cached,
        unsupported=unrotated.unsupported,
    )
    if not rotated.dims:
        return plain
    pairs = [
        (recorded.q_bhnd[..., rotated.dims], recorded.k_bhnd[..., rotated.dims])
        for recorded in (unrotated, double, quarter)
    ]
    linear = all(_close(twice, 2 * once) for once, twice in zip(pairs[0], pairs[1], strict=True))
    interleaved, clockwise = _pairs(pairs[0][0], pairs[2][0])
    return plain._replace(
        first=rotated.dims[0],
        rotating=len(rotated.dims),
        interleaved=interleaved,
        clockwise=clockwise,
        norm_follows=not linear,
        inv_freq=rotated.inv_freq,
        temperature=rotated.temperature if linear else 1.0,  # a norm undoes it
        varies=rotated.varies,
        long_table=rotated.long_table,
        rotary=rotated.call.module if rotated.call else None,
        layer_type=_layer_type(rotated.call),
    )


def _sinks(unrotated: CapturedCall) -> str | None:
    """The name of the parameter with the sinks; empty where it has another form, None without sinks."""
    sinks = unrotated.arguments.get("s_aux")
    parameters = unrotated.module.named_parameters(recurse=False)
    per_head = (name for name, value in parameters if value is sinks and len(value) == unrotated.q_bhnd.shape[1])
    return None if sinks is None else next(per_head, "")


def _pairs(unrotated: Tensor, quarter: Tensor) -> tuple[bool | None, bool]:
    """Whether pairs are neighbours: every pair (a, b) has become (-b, a), or (b, -a), which is clockwise."""
    half = unrotated.shape[-1] // 2
    first, second = unrotated[..., :half], unrotated[..., half:]
    halves = torch.cat([-second, first], -1)
    neighbours = torch.stack([-unrotated[..., 1::2], unrotated[..., ::2]], -1).flatten(-2)
    for clockwise in (False, True):
        for interleaved, expected in ((False, halves), (True, neighbours)):
            if _close(quarter, -expected if clockwise else expected):
                return interleaved, clockwise
    return None, False


def _close(one: Tensor, other: Tensor) -> bool:
    return bool((one - other).abs().max() <= CLOSE * other.abs().max())
