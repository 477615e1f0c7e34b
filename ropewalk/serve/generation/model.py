"""One set of weights under several extensions at once: a step computes the tokens of many requests in one pass.

All tokens of a step lie in one row. What a model computes for each token by itself runs on the row as it is. Attention
takes it apart: each request's tokens see that request's pages, under its own extension. A row is padded to a multiple
of 16 tokens: with fewer, a matrix product may round differently, and an answer would depend on its neighbours.

Legend: t token of the step, h query head, g key head, d head dimension, o output row, v word.
"""

from __future__ import annotations

import inspect
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from contextvars import ContextVar
from functools import partial
from itertools import accumulate, groupby
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import pad
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel

from ropewalk.attention.layout.retention import Retention
from ropewalk.attention.paged import PagedBatch, PagedLayer
from ropewalk.attention.paged.rows import PageStages
from ropewalk.attention.problem import layer_terms
from ropewalk.attention.scoped import scoped
from ropewalk.errors import DoesNotFit
from ropewalk.extension.extension import Extension
from ropewalk.extension.notation import BARE
from ropewalk.extension.static import freeze, is_dynamic, request_lengths
from ropewalk.hf.attach.attention import attending_configs
from ropewalk.hf.attach.extend import Modes, plan_extension
from ropewalk.hf.attach.handle import ATTENTION, handle_of, main_facts
from ropewalk.hf.probe.capture import OWN_MASK
from ropewalk.hf.probe.host import attention_named, device_of
from ropewalk.hf.probe.probed_layer import ProbedLayer
from ropewalk.hf.runtime.hooks import identity_rotation
from ropewalk.hf.runtime.layer import LISTENER, ExtendedLayer, freeze_layer, prepare_for_rotation
from ropewalk.methods.facts import Facts
from ropewalk.methods.reach.reach import furthest
from ropewalk.serve.generation.pages import PagePool

NAME = "ropewalk_serve"  # of our attention function in transformers' registry
MULTIPLE = 16  # of tokens in a pass; oneDNN lays weights out for as many, and rounds all rows of a product alike
SHORT_TEXT = 16  # tokens of a short text
ELSEWHERE = "use rw.extend and model.generate, or export it for another engine"
LONGER_THAN_ANY = 2**40  # tokens: longer than any text
_DEPTH = "_ropewalk_depth"  # of an attention module: its number
PRODUCT_ATOL = {torch.float32: 1e-4, torch.bfloat16: 0.05}  # of the largest number: sums in another order


class ServedExtension:
    """The layers of the model under one extension, and what they need of pages.

    With `by_length`, nothing is computed under the extension itself: a request is computed under the first static one
    whose length it does not exceed.
    """

    by_length: Sequence[tuple[int, str]] = ()  # growing lengths, and the names of what computes them

    def __init__(self, extension: Extension, layers: Sequence[ExtendedLayer]) -> None:
        self.extension, self.layers = extension, layers
        self.facts: Facts = main_facts(layers)
        self.paged = _paged_layers(layers)
        self.lanes = max(layer.lanes for layer in self.paged)
        self.retention = Retention()
        for layer in self.paged:
            self.retention |= layer.retention
        lengths = [_max_len(layer) for layer in layers]
        self.max_len = min((length for length in lengths if length is not None), default=None)


def served_extensions(
    host: PreTrainedModel,
    lines: Mapping[str, str | Extension],
    *,
    target_len: int | None = None,
    request_factors: Sequence[float] = (),
) -> dict[str, ServedExtension]:
    """The extensions of a model by name, the base model among them.

    A model that was saved under an extension loses it here, and has it again under the name that `lines` give it.

    Args:
        host: the model.
        lines: the extensions, by the name that requests ask for.
        target_len: the longest text, in tokens.
        request_factors: growing factors. Each dynamic extension is computed under the smallest of them that covers a
            request with its answer, for all of its tokens.
    """
    served: dict[str, ServedExtension] = {}
    handle = handle_of(host)
    if handle is not None:
        saved = ServedExtension(handle.extension, handle.layers)  # before its learned numbers are removed
        served = {name: saved for name, line in lines.items() if line == handle.extension}
        handle.remove()
    for name, line in {BARE: Extension(), **lines}.items():
        if name not in served:
            plan = plan_extension(host, line, target_len=None if name == BARE else target_len)
            if name == BARE:
                Modes(host, plan.base).require(ATTENTION)
            served[name] = ServedExtension(plan.extension, plan.layers)
    if not request_factors:
        return served
    require_dynamic(one.extension for one in served.values())
    return {**served, **_by_factor(served, request_factors)}


def _by_factor(served: Mapping[str, ServedExtension], factors: Sequence[float]) -> dict[str, ServedExtension]:
    """The static extensions that requests to the dynamic ones are computed under."""
    computed: dict[str, ServedExtension] = {}
    for name, one in served.items():
        if is_dynamic(one.extension):
            lengths = request_lengths(factors, one.facts)
            one.by_length, one.max_len = [(length, f"{name} to {length}") for length in lengths], lengths[-1]
            for length, of_length in one.by_length:
                layers = [freeze_layer(layer, length) for layer in one.layers]
                computed[of_length] = ServedExtension(freeze(one.extension, one.facts, length), layers)
    return computed


def require_dynamic(extensions: Iterable[Extension]) -> None:
    """Refuse factors for each request where no extension could take them."""
    if not any(map(is_dynamic, extensions)):
        sentence = "a factor for each request needs a dynamic extension, and none is served"
        raise DoesNotFit.because("request_factors", sentence, remedy="serve one, such as dynamic_yarn, or leave it out")


def _paged_layers(layers: Sequence[ExtendedLayer]) -> list[PagedLayer]:
    """One per layer; equal layers without learned numbers share one, and with it what a step computes once."""
    shared: dict[Any, PagedLayer] = {}
    paged = []
    for layer in layers:
        key = layer.extension, layer.facts, layer.depth if layer.weights else -1
        if key not in shared:
            weights = {name: {part: x.detach() for part, x in group.items()} for name, group in layer.weights.items()}
            shared[key] = PagedLayer(layer_terms(layer.extension, layer.facts, weights))
        paged.append(shared[key])
    return paged


def _max_len(layer: ExtendedLayer) -> int | None:
    """The longest text in which every effective distance is one that the schedule carries; None without a limit."""
    theta, reach = layer.extension.frequencies_or_rope, layer.extension.reach_or_causal
    familiar = layer.facts.trained_len * theta.stretch
    if math.isinf(familiar) or not layer.probed.rotating or furthest(reach, LONGER_THAN_ANY) < familiar:
        return None
    low, high = 1, LONGER_THAN_ANY
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if furthest(reach, middle - 1) < familiar else (low, middle)
    return low


class Part(NamedTuple):
    """The new tokens of one request in a step."""

    extension: str  # that computes it
    ids: Sequence[int]
    length: int  # tokens of the request with the new ones
    pages: Tensor  # [places]: the page of every `size` tokens
    wanted: slice = slice(-1, None)  # the new tokens whose logits are returned


class Group(NamedTuple):
    """The requests of a step under one extension: their tokens lie next to each other."""

    served: ServedExtension
    tokens: slice
    batch: PagedBatch
    pages: Sequence[Tensor]  # of each layer
    stages: Sequence[PageStages | None]


STEP: ContextVar[Sequence[Group]] = ContextVar("step")


class ServedModel:
    """A model whose attention reads pages. `close` restores it."""

    def __init__(
        self, host: PreTrainedModel, extensions: Mapping[str, ServedExtension], *, size: int, limit: int
    ) -> None:
        self.host, self.size = host, size
        computed = {name: served for name, served in extensions.items() if not served.by_length}
        parts = {name for served in extensions.values() for _, name in served.by_length}
        self.extensions = {name: served for name, served in extensions.items() if name not in parts}  # to be asked for
        self.computed = computed  # of these, and the static ones of those that have a factor for each request
        vocabulary: Any = host.get_input_embeddings().weight
        self.words = len(vocabulary)
        layers = [layer.probed for layer in next(iter(extensions.values())).layers]
        _require_only_attention(host, layers)
        shapes = [(layer.groups, layer.head_dim) for layer in layers]
        lanes = max(served.lanes for served in computed.values())
        self.device = device_of(host)
        self.pool = PagePool(shapes, lanes, size=size, limit=limit, dtype=host.dtype, device=self.device)
        self._pages: dict[str, list[Tensor]] = {}  # of each extension, layer by layer, in the lanes that it needs
        self._stages: dict[str, list[PageStages | None]] = {}
        for name, served in computed.items():
            pages = zip(self.pool.buffers, served.paged, strict=True)
            self._pages[name] = [buffer[:, :, : layer.lanes] for buffer, layer in pages]
            self._stages[name] = [PageStages(self.pool.count) if layer.has_stages else None for layer in served.paged]
        self._keeps = "logits_to_keep" in inspect.signature(host.forward).parameters
        self._undo = ExitStack()
        short = torch.arange(SHORT_TEXT, device=self.device)[None]
        self._undo.enter_context(packed_linears(host, lambda: host(input_ids=short, use_cache=False).logits))
        self._undo.enter_context(self._attach(layers))

    def close(self) -> None:
        """Restore the model."""
        self._undo.close()

    @torch.inference_mode()
    def step(self, parts: Sequence[Part]) -> list[Tensor]:
        """Store the new tokens of all parts; the logits that each part wants, [wanted, words]."""
        order = sorted(range(len(parts)), key=lambda n: parts[n].extension)
        chosen = [parts[n] for n in order]
        ids = [token for part in chosen for token in part.ids]
        numbers = [n for part in chosen for n in range(part.length - len(part.ids), part.length)]
        wanted = [range(len(part.ids))[part.wanted] for part in chosen]
        starts = [0, *accumulate(len(part.ids) for part in chosen)]
        rows = [start + n for start, some in zip(starts, wanted, strict=False) for n in some]
        ids_t, number_t, row_o = (_padded(x, self.device) for x in (ids, numbers, rows))
        inputs = {"input_ids": ids_t[None], "position_ids": number_t[None], "use_cache": False}
        with scoped(STEP, self._groups(chosen, starts)):
            if self._keeps:
                logits_ov = self.host(**inputs, logits_to_keep=row_o).logits[0]
            else:
                logits_ov = self.host(**inputs).logits[0, row_o]
        split = torch.split(logits_ov[: len(rows)], [len(some) for some in wanted])
        by_part = dict(zip(order, split, strict=True))
        return [by_part[n] for n in range(len(parts))]

    def _groups(self, parts: Sequence[Part], starts: Sequence[int]) -> list[Group]:
        """The parts of each extension, which lie next to each other."""
        groups, end = [], 0
        for name, some in groupby(parts, key=lambda part: part.extension):
            batch = _batch(members := list(some), self.size, self.device)
            first, end = end, end + len(members)
            tokens = slice(starts[first], starts[end])
            groups.append(Group(self.computed[name], tokens, batch, self._pages[name], self._stages[name]))
        return groups

    def _attach(self, layers: Sequence[ProbedLayer]) -> ExitStack:
        with ExitStack() as undo:
            configs = attending_configs(self.host, layers)
            undo.enter_context(attention_named(self.host, NAME, attention, _no_mask, configs))
            for depth, layer in enumerate(layers):
                layer.module.__dict__[_DEPTH] = depth
                undo.callback(layer.module.__dict__.pop, _DEPTH)
            for rotary in {layer.rotary for layer in layers if layer.rotary}:
                undo.callback(rotary.register_forward_hook(identity_rotation, with_kwargs=True).remove)
            return undo.pop_all()


@torch.compiler.disable  # type: ignore[untyped-decorator]
def attention(
    module: Any, q_bhid: Tensor, k_bgjd: Tensor, v_bgjd: Tensor, attention_mask: Any = None, **kwargs: Any
) -> tuple[Tensor, None]:
    """The function that transformers calls instead of its own attention."""
    depth, groups = module.__dict__[_DEPTH], STEP.get()
    out_thd = q_bhid.new_zeros(q_bhid.shape[2], q_bhid.shape[1], v_bgjd.shape[3])
    for group in groups:
        layer, pages = group.served.layers[depth], group.pages[depth]
        q, k, v = (x[:, :, group.tokens] for x in (q_bhid, k_bgjd, v_bgjd))
        q, k = prepare_for_rotation(q, k, layer)
        if (listener := LISTENER.get()) is not None:
            listener(layer, q, k, None)
        inputs = (_flat(x, pages.shape[-1]) for x in (q, k, v))
        out = group.served.paged[depth].read(pages, *inputs, group.batch, group.stages[depth])
        out_thd[group.tokens] = out[..., : v_bgjd.shape[3]]
    return out_thd[None], None


def _flat(x_bhtd: Tensor, width: int) -> Tensor:
    """[tokens, heads, width]: values may be narrower than the pages."""
    x_thd = x_bhtd[0].transpose(0, 1)
    missing = width - x_thd.shape[-1]
    return pad(x_thd, (0, missing)) if missing else x_thd


def _no_mask(**_: Any) -> None:
    """Pages hold one request each, and the reach says what a token sees."""


def _require_only_attention(host: PreTrainedModel, layers: Sequence[ProbedLayer]) -> None:
    """Refuse models that remember a text elsewhere than in the keys of each layer's own attention."""
    masking = next((depth for depth, layer in enumerate(layers) if layer.own_mask), None)
    if masking is not None:
        remedy = "use rw.extend and model.generate, or a static schedule in another engine"
        raise DoesNotFit.because("model", f"layer {masking} {OWN_MASK}, which pages do not carry", remedy=remedy)
    places = [layer.cached for layer in layers]
    slots = sorted(place.slot for place in places if place)
    shared = any(place and place.slot != place.source for place in places)
    wide, repeated = (any(layer.value_dim > layer.head_dim for layer in layers), any(layer.slots for layer in layers))
    for wrong, why in (
        (wide, "has values wider than its keys, and a page has room for the width of a key only"),
        (repeated, "attends several times in one forward pass, and a page holds the keys of each layer only once"),
        (shared or slots != list(range(len(layers))), "has layers without keys of their own, which pages cannot hold"),
    ):
        if wrong:
            raise DoesNotFit.because("model", f"{type(host).__name__} {why}", remedy=ELSEWHERE)


def _batch(parts: Sequence[Part], size: int, device: torch.device) -> PagedBatch:
    slots = []  # where each new token is stored: page * size + offset
    for part in parts:
        first = part.length - len(part.ids)
        pages = part.pages[first // size :].tolist()
        slots += [pages[n // size - first // size] * size + n % size for n in range(first, part.length)]
    starts, lengths = [0, *accumulate(len(part.ids) for part in parts)], [part.length for part in parts]
    table_rp = pad_sequence([part.pages for part in parts], batch_first=True)
    return PagedBatch(starts, lengths, table_rp.to(device), torch.tensor(slots, device=device), size=size)


def _padded(numbers: list[int], device: torch.device) -> Tensor:
    missing = -len(numbers) % MULTIPLE
    return torch.tensor(numbers + [0] * missing, device=device)


@torch.no_grad()
def packed_linears(model: nn.Module, run: Callable[[], Tensor]) -> ExitStack:
    """Pack the model's linear layers on a CPU, as oneDNN's kernels read them; closing what is returned unpacks them.

    Twice as fast in float32, and a row of a product is rounded alike however many rows there are: no answer depends on
    its neighbours (but last digits do in bfloat16 on a CPU with AMX). The plain weights are dropped meanwhile.

    `run` computes something by all of them. Where packing changes it, the model reads weights in a way of its own, and
    is left as it is.
    """
    plain, undo = run(), ExitStack()
    try:
        if torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
            _pack(model, undo)
        packed = run()
        close = bool((packed - plain).abs().max() <= PRODUCT_ATOL.get(plain.dtype, 0) * plain.abs().max())
    except RuntimeError:  # of a weight that is not there, or of a kernel that this CPU lacks
        close = False
    if not close:
        undo.close()
    return undo


def _pack(model: nn.Module, undo: ExitStack) -> None:
    """Pack all plain layers; a weight that other modules share, such as the embedding's, stays beside it."""
    users = Counter(id(weight) for module in model.modules() for weight in module._parameters.values())
    for module in model.modules():
        if type(module) is not nn.Linear or "forward" in module.__dict__ or module.weight.dim() != 2:
            continue  # something has changed it
        weight = module.weight
        if weight.dtype in PRODUCT_ATOL and weight.device.type == "cpu":
            packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), MULTIPLE)
            module.__dict__["forward"] = partial(_linear, packed, module.bias)
            undo.callback(module.__dict__.pop, "forward")
            if users[id(weight)] == 1:
                weight.data = weight.data.new_empty(0, weight.shape[1])
                undo.callback(_unpack, weight, packed)


def _linear(packed: Tensor, bias: Tensor | None, x: Tensor) -> Tensor:
    y: Tensor = torch.ops.mkldnn._linear_pointwise(x, packed, bias, "none", [], "")
    return y


def _unpack(weight: Tensor, packed: Tensor) -> None:
    weight.data = packed.to_dense()
