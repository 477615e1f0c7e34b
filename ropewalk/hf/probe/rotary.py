"""What a model does with positions, found out by asking it: a few tiny forwards with a rotary module that lies.

With cos = 1 and sin = 0 nothing is turned; NaN shows which dimensions are; 2 shows whether a norm comes after; cos = 0
and sin = 1 shows which dimensions make a pair. Nothing is looked up by architecture, and nothing is left behind.

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
from ropewalk.hf.probe.capture import CapturedCall, listen, listening, masked, require_finite

TOKENS = 5
FAR = 10_000_000  # a position beyond every length at which a table of its own may change
CLOSE = 1e-3  # of the largest number: what half precision leaves
NAME = "ropewalk_probe"


class RotaryCall(NamedTuple):
    """How a rotary module was called."""

    module: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class LongTable(NamedTuple):
    """The other table of a module that has two: the one for short texts and this one for long texts."""

    above: int  # the longest text that is short
    inv_freq: tuple[float, ...]
    temperature: float


class ProbedLayer(NamedTuple):
    """One attention layer, as far as its positions go."""

    module: nn.Module
    heads: int
    groups: int
    head_dim: int
    value_dim: int
    scaling: float
    first: int = 0  # the rotating dimensions: from which on, and how many
    rotating: int = 0
    interleaved: bool | None = False  # nothing: its pairs are of no known kind
    norm_follows: bool = False
    inv_freq: tuple[float, ...] = ()  # its own, radians per position
    temperature: float = 1.0  # what its own cos and sin are multiplied by
    varies: bool = False  # whether its own table depends on how long the text is
    long_table: LongTable | None = None  # where it has one table for short texts and one for long ones
    plain_scaling: float | None = None  # scaling as it would be without the model's own schedule, where that is asked
    window: int | None = None
    softcap: float | None = None
    sinks: str | None = None  # the module's parameter that holds a logit for each head; empty where none does
    rotary: nn.Module | None = None  # the rotary module that has its table
    layer_type: str | None = None  # the type of layer that this module is told, where it has a table for each
    clockwise: bool = False  # whether the second of a pair is turned towards the first
    cached: CachedLayer | None = None  # where its keys stand in the model's own cache; nothing where it keeps none
    unsupported: str = ""  # what else it asks of attention than the equation has


class FakeRotary(NamedTuple):
    """What the rotary modules answer, all of them or one call of one only."""

    cos: float
    sin: float
    only: int | None = None


def probe(model: PreTrainedModel) -> list[ProbedLayer]:
    """Every attention layer in order, or a refusal that says what stands in the way."""
    rotary = rotary_modules(model)
    with quiet(model), attention_named(model, NAME, listen, masked), torch.no_grad():
        straight, calls = _ask(model, rotary, FakeRotary(1, 0))
        if not straight:
            rule = "one that attends through transformers' attention interface"
            raise DoesNotFit("model", rule, type(model).__name__)
        require_finite(model, straight)
        double, quarter = (_ask(model, rotary, lie)[0] for lie in (FakeRotary(2, 0), FakeRotary(0, 1)))
        blanks = [_ask(model, rotary, FakeRotary(math.nan, 0, only))[0] for only in range(len(calls))]
        # A model may have a rotary module and never call it.
        by_layer = zip(*blanks, strict=True) if calls else [()] * len(straight)
        turned = [_turned(own, calls) for own in by_layer]
        with listening() as heard:
            cached = places(grown(model, _tokens(model), heard), heard)
    told = zip(straight, double, quarter, turned, cached or [None] * len(straight), strict=True)
    return _once([_layer(*each) for each in told])


def _once(layers: list[ProbedLayer]) -> list[ProbedLayer]:
    """Each module once, though it may attend several times in one forward."""
    times: dict[nn.Module, list[ProbedLayer]] = {}
    for layer in layers:
        times.setdefault(layer.module, []).append(layer)
    found = []
    for first, *more in times.values():
        found.append(first._replace(unsupported=f"attention {len(more) + 1} times in one forward") if more else first)
    return found


def _tokens(model: PreTrainedModel) -> Tensor:
    return torch.arange(TOKENS, device=device_of(model))[None]


def rotary_modules(model: nn.Module) -> list[nn.Module]:
    """What makes the model's cos and sin."""
    found = _rotary_modules(model)
    if not found:
        rule = "one with rotary position embeddings that a module of its own makes"
        raise DoesNotFit("model", rule, f"{type(model).__name__}, which has none")
    return found


def turns(model: nn.Module) -> bool:
    """Whether there is anything that makes cos and sin."""
    return bool(_rotary_modules(model))


def _rotary_modules(model: nn.Module) -> list[nn.Module]:
    """By transformers' usual name, or by what they hold where nothing is called so."""
    modules = list(model.named_modules())
    named = [module for name, module in modules if name.rsplit(".", 1)[-1].startswith("rotary_emb")]
    return named or [module for _, module in modules if any(name.endswith("inv_freq") for name in module._buffers)]


def device_of(model: PreTrainedModel) -> torch.device:
    """Where tokens go in. Weights that accelerate keeps on disk are nowhere, and it moves tokens to where it works."""
    vocabulary: Any = model.get_input_embeddings().weight
    return torch.device("cpu") if vocabulary.device.type == "meta" else torch.device(vocabulary.device)


@contextmanager
def quiet(model: nn.Module) -> Iterator[None]:
    """Evaluation mode for a while; then every module is as it was."""
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
    """The model's attention and masks by other functions for a while; then every config is as it was.

    `only` are the configs of the parts that this is for, where others, such as what sees images, keep their own.
    """
    AttentionInterface.register(name, function)
    AttentionMaskInterface.register(name, masking)
    before = [(config, config._attn_implementation_internal) for config in configs(model)]
    try:
        model.set_attn_implementation(name)
        for config, own in before:
            if only is not None and all(config is not each for each in only):
                config._attn_implementation_internal = own
        yield
    finally:
        for config, own in before:
            config._attn_implementation_internal = own


def configs(model: nn.Module) -> list[Any]:
    """The configs of the model, of all models inside it and of their parts, each once."""
    found = [module.config for module in model.modules() if isinstance(module, PreTrainedModel)]
    for config in found:
        found += [part for key in config.sub_configs if (part := getattr(config, key, None)) is not None]
    return list({id(config): config for config in found}.values())


def _ask(
    model: PreTrainedModel, rotary: list[nn.Module], lie: FakeRotary
) -> tuple[list[CapturedCall], list[RotaryCall]]:
    """What the layers hand to attention when the rotary modules lie, and how these were called."""
    calls: list[RotaryCall] = []

    def tell(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
        if not isinstance(output, tuple) or len(output) != 2 or any(part.is_complex() for part in output):
            raise DoesNotFit("rotary module", "one that answers cos and sin", type(module).__name__)
        calls.append(RotaryCall(module, args, kwargs))
        if lie.only not in (None, len(calls) - 1):
            return output
        return torch.full_like(output[0], lie.cos), torch.full_like(output[1], lie.sin)

    hooks = [module.register_forward_hook(tell, with_kwargs=True) for module in rotary]
    try:
        with listening() as heard:
            model(input_ids=_tokens(model), use_cache=False)
    finally:
        for hook in hooks:
            hook.remove()
    return heard, calls


Measured = tuple[tuple[float, ...], float]  # frequencies, and what cos and sin are multiplied by


class RotatedDims(NamedTuple):
    """Which dimensions a layer turns, and by what."""

    dims: list[int]
    inv_freq: tuple[float, ...] = ()
    temperature: float = 1.0
    varies: bool = False
    long_table: LongTable | None = None
    call: RotaryCall | None = None


def _turned(blanks: Sequence[CapturedCall], calls: Sequence[RotaryCall]) -> RotatedDims:
    """The dimensions that a blank makes blank; the call that does so has the table."""
    for blank, call in zip(blanks, calls, strict=True):
        dims = torch.isnan(blank.q_bhnd).flatten(0, -2).any(0).nonzero().flatten().tolist()
        if dims:
            short, long = (_table(call, len(dims), last) for last in (1, FAR))
            if 2 * len(short[0]) != len(dims):
                got = f"{len(dims)} dimensions that change with {len(short[0])} of its pairs"
                raise DoesNotFit("rotary module", "one that turns queries and keys alone", got)
            long_table = _long_table(call, len(dims), short, long) if short != long else None
            return RotatedDims(dims, *short, varies=short != long, long_table=long_table, call=call)
    return RotatedDims([])


def _long_table(call: RotaryCall, dims: int, short: Measured, long: Measured) -> LongTable | None:
    """The second of two tables and where it begins; nothing where a table changes with every length."""
    low, high = 1, FAR  # last positions at which the one and the other table is in force
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _table(call, dims, middle) == short else (low, middle)
    return LongTable(low + 1, *long) if _table(call, dims, high) == long else None


def _table(call: RotaryCall, dims: int, last: int) -> Measured:
    """The frequencies and the temperature of a rotary module for a text up to `last`: its answer at positions 0 and 1,
    from a copy of it."""
    x = call.args[0]
    rest, given = _besides(call)
    positions = torch.tensor([[0, 1, last]], device=x.device)
    cos, sin = copy.deepcopy(call.module).forward(x.float(), positions, *rest, **given)
    cos, sin = (part.double().reshape(3, -1)[:2] for part in (cos, sin))
    width = cos.shape[1]
    if width == dims:  # either each half or each pair holds the same twice
        halves = torch.equal(sin[:, : width // 2], sin[:, width // 2 :])
        cos, sin = (part[:, : width // 2] if halves else part[:, ::2] for part in (cos, sin))
    return tuple(torch.atan2(sin[1], cos[1]).tolist()), float(cos[0, 0])


def _besides(call: RotaryCall) -> tuple[list[Any], dict[str, Any]]:
    """What a rotary module was told besides the hidden states and the positions."""
    given = {name: value for name, value in call.kwargs.items() if name not in ("x", "position_ids")}
    return list(call.args[2:]), given


def _layer_type(call: RotaryCall | None) -> str | None:
    """The type of layer among it."""
    rest, given = _besides(call) if call else ([], {})
    return next((each for each in (*rest, *given.values()) if isinstance(each, str)), None)


def _layer(
    straight: CapturedCall, double: CapturedCall, quarter: CapturedCall, turned: RotatedDims, cached: CachedLayer | None
) -> ProbedLayer:
    q = straight.q_bhnd
    plain = ProbedLayer(
        module=straight.module,
        heads=q.shape[1],
        groups=straight.k_bhnd.shape[1],
        head_dim=q.shape[-1],
        value_dim=straight.v_bhnd.shape[-1],
        scaling=straight.scaling,
        window=straight.window,
        softcap=straight.given.get("softcap"),
        sinks=_sinks(straight),
        cached=cached,
        unsupported=straight.unsupported,
    )
    if not turned.dims:
        return plain
    pairs = [(each.q_bhnd[..., turned.dims], each.k_bhnd[..., turned.dims]) for each in (straight, double, quarter)]
    linear = all(_close(twice, 2 * once) for once, twice in zip(pairs[0], pairs[1], strict=True))
    interleaved, clockwise = _pairs(pairs[0][0], pairs[2][0])
    return plain._replace(
        first=turned.dims[0],
        rotating=len(turned.dims),
        interleaved=interleaved,
        clockwise=clockwise,
        norm_follows=not linear,
        inv_freq=turned.inv_freq,
        temperature=turned.temperature if linear else 1.0,  # which a norm undoes
        varies=turned.varies,
        long_table=turned.long_table,
        rotary=turned.call.module if turned.call else None,
        layer_type=_layer_type(turned.call),
    )


def _sinks(straight: CapturedCall) -> str | None:
    """What the sinks that attention was handed are called."""
    handed = straight.given.get("s_aux")
    own = straight.module.named_parameters(recurse=False)
    per_head = (name for name, value in own if value is handed and len(value) == straight.q_bhnd.shape[1])
    return None if handed is None else next(per_head, "")


def _pairs(straight: Tensor, quarter: Tensor) -> tuple[bool | None, bool]:
    """Whether pairs are neighbours, where each pair (a, b) has become (-b, a), or (b, -a) which is clockwise."""
    half = straight.shape[-1] // 2
    first, second = straight[..., :half], straight[..., half:]
    halves = torch.cat([-second, first], -1)
    neighbours = torch.stack([-straight[..., 1::2], straight[..., ::2]], -1).flatten(-2)
    for clockwise in (False, True):
        for interleaved, turned in ((False, halves), (True, neighbours)):
            if _close(quarter, -turned if clockwise else turned):
                return interleaved, clockwise
    return None, False


def _close(one: Tensor, other: Tensor) -> bool:
    return bool((one - other).abs().max() <= CLOSE * other.abs().max())
