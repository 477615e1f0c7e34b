"""One set of weights under several extensions at once: a step computes the tokens of many requests in one pass.

All tokens of a step lie in one row. What a model computes for each token by itself runs on the row as it is. Attention
takes it apart: each request's tokens see that request's pages, under its own extension. A row is padded to a multiple
of 16 tokens: with fewer, a matrix product may round differently, and an answer would depend on its neighbours.

Legend: t token of the step, h query head, g key head, d head dimension, o output row, v word.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from contextvars import ContextVar
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel

from ropewalk.attention.paged import PagedBatch
from ropewalk.attention.paged.stages import PageStages
from ropewalk.errors import DoesNotFit
from ropewalk.hf.attach.modes import attending_configs
from ropewalk.hf.probe.attention_arguments import OWN_MASK
from ropewalk.hf.probe.probe import attention_named, device_of
from ropewalk.hf.probe.probed_layer import ProbedLayer
from ropewalk.hf.runtime.hooks import identity_rotation
from ropewalk.hf.runtime.layer import LISTENER, before_rotation
from ropewalk.scoped import scoped
from ropewalk.serve.generation.memory.page_pool import CellShape, SlabPool
from ropewalk.serve.generation.model.packed_linear import packed_linears
from ropewalk.serve.generation.model.served_extension import ServedExtension

NAME = "ropewalk_serve"  # of our attention function in transformers' registry
MULTIPLE = 16  # of tokens in a pass: from there on every row of a matrix product is rounded alike
SHORT_TEXT = 16  # tokens of a short text
ELSEWHERE = "use rw.extend and model.generate, or export it for another engine"
_DEPTH = "_ropewalk_depth"  # of an attention module: its number


class Part(NamedTuple):
    """The new tokens of one request in a step."""

    extension: str
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
        self.host, self.extensions, self.size = host, extensions, size
        layers = [layer.probed for layer in next(iter(extensions.values())).layers]
        _require_only_attention(host, layers)
        shapes = [CellShape(layer.groups, layer.head_dim) for layer in layers]
        lanes = [served.lanes for served in extensions.values()]
        self.device = device_of(host)
        self.pool = SlabPool(shapes, lanes, size=size, limit=limit, dtype=host.dtype, device=self.device)
        self._pages = {name: self._cut(served) for name, served in extensions.items()}
        self._stages = {
            name: [
                PageStages(len(pages)) if layer.has_stages else None
                for layer, pages in zip(served.paged, self._pages[name], strict=True)
            ]
            for name, served in extensions.items()
        }
        self._keeps = "logits_to_keep" in inspect.signature(host.forward).parameters
        self._undo = ExitStack()
        self._undo.enter_context(packed_linears(host, lambda: _few_logits(host)))
        self._undo.enter_context(self._attached(layers))

    @property
    def words(self) -> int:
        """The size of the vocabulary."""
        vocabulary: Any = self.host.get_input_embeddings().weight
        return len(vocabulary)

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
        starts = _starts([len(part.ids) for part in chosen])
        rows = [start + n for start, some in zip(starts, wanted, strict=False) for n in some]
        with scoped(STEP, self._groups(chosen, starts)):
            logits_ov = self._forward(ids, numbers, rows)
        split = torch.split(logits_ov[: len(rows)], [len(some) for some in wanted])
        by_part = dict(zip(order, split, strict=True))
        return [by_part[n] for n in range(len(parts))]

    def _forward(self, ids: list[int], numbers: list[int], rows: list[int]) -> Tensor:
        ids_t, number_t, row_o = (_padded(x, self.device) for x in (ids, numbers, rows))
        inputs = {"input_ids": ids_t[None], "position_ids": number_t[None], "use_cache": False}
        if self._keeps:
            kept: Tensor = self.host(**inputs, logits_to_keep=row_o).logits
            return kept[0]
        logits: Tensor = self.host(**inputs).logits
        return logits[0, row_o]

    def _groups(self, parts: Sequence[Part], starts: Sequence[int]) -> list[Group]:
        """The parts of each extension, which lie next to each other."""
        groups, first = [], 0
        while first < len(parts):
            name = parts[first].extension
            end = next((n for n in range(first, len(parts)) if parts[n].extension != name), len(parts))
            tokens = slice(starts[first], starts[end])
            batch = _batch(parts[first:end], self.size, self.device)
            groups.append(Group(self.extensions[name], tokens, batch, self._pages[name], self._stages[name]))
            first = end
        return groups

    def _cut(self, served: ServedExtension) -> list[Tensor]:
        whole = [self.pool.pages(depth, served.lanes) for depth in range(len(served.layers))]
        return [pages[:, :, : layer.lanes] for pages, layer in zip(whole, served.paged, strict=True)]

    def _attached(self, layers: Sequence[ProbedLayer]) -> ExitStack:
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
        q, k = before_rotation(q, k, layer)
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
    if any(layer.value_dim > layer.head_dim for layer in layers):
        sentence = f"{type(host).__name__} has values wider than its keys, and pages are as wide as keys"
        raise DoesNotFit.because("model", sentence, remedy=ELSEWHERE)
    if any(layer.slots for layer in layers):
        sentence = f"{type(host).__name__} attends several times in one forward, and pages hold one layer's keys once"
        raise DoesNotFit.because("model", sentence, remedy=ELSEWHERE)
    places = [layer.cached for layer in layers]
    slots = sorted(place.slot for place in places if place)
    shared = any(place and place.slot != place.source for place in places)
    if slots != list(range(len(layers))) or shared:
        sentence = f"{type(host).__name__} has layers without keys of their own, which pages cannot hold"
        raise DoesNotFit.because("model", sentence, remedy=ELSEWHERE)


def _few_logits(host: PreTrainedModel) -> Tensor:
    """The logits of a short text."""
    logits: Tensor = host(input_ids=torch.arange(SHORT_TEXT, device=device_of(host))[None], use_cache=False).logits
    return logits


def _batch(parts: Sequence[Part], size: int, device: torch.device) -> PagedBatch:
    table_rp = pad_sequence([part.pages for part in parts], batch_first=True)
    slot_t = torch.tensor([slot for part in parts for slot in _slots(part, size)])
    lengths = [part.length for part in parts]
    return PagedBatch(
        _starts([len(part.ids) for part in parts]), lengths, table_rp.to(device), slot_t.to(device), size=size
    )


def _slots(part: Part, size: int) -> Iterator[int]:
    """Where each new token is stored: page * size + offset."""
    first = part.length - len(part.ids)
    pages = part.pages[first // size :].tolist()
    for number in range(first, part.length):
        yield pages[number // size - first // size] * size + number % size


def _starts(counts: Sequence[int]) -> list[int]:
    starts = [0]
    for count in counts:
        starts.append(starts[-1] + count)
    return starts


def _padded(numbers: list[int], device: torch.device) -> Tensor:
    missing = -len(numbers) % MULTIPLE
    return torch.tensor(numbers + [0] * missing, device=device)
