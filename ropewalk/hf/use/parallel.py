"""Several contexts that are read apart, and one question whose attention joins them (adaptive parallel encoding).

The prefix is read once. The contexts are rows of a batch after it, all from the same position on, padded on the right,
where no token sees the padding before it. The question and the answer stand after the longest context; what they attend
to is in `hf/attach/context_keys.py`. The model itself is left alone: a twin of it, which shares its weights, reads.

Legend: b row, n token, g key head, d head dimension.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import DynamicCache, PreTrainedModel
from transformers.cache_utils import DynamicLayer

from ropewalk.errors import DoesNotFit, InvalidValue
from ropewalk.extension.extension import Extension
from ropewalk.extension.parsing import parse
from ropewalk.hf.attach.context_keys import ContextKeys, seeing
from ropewalk.hf.attach.extend import extend, plan_extension
from ropewalk.hf.attach.handle import TABLES, handle_of, host_of, own_reach
from ropewalk.hf.probe.host import device_of
from ropewalk.hf.probe.max_length import require_held
from ropewalk.hf.probe.probe import allowed_error
from ropewalk.hf.probe.probed_layer import ProbedLayer, cache_growth
from ropewalk.hf.use.contexts import end_tokens
from ropewalk.hf.use.contrast import twin_of
from ropewalk.hf.use.long_text import CHUNK_LEN, Progress, sampler
from ropewalk.methods.decoding import APE, Decoding

MOST_PRODUCTS = 2**28  # of queries and keys of all heads at once: 1 GiB in float32
TESTED = (5, 9, 7)  # tokens of a prefix, a context and a question on which a model is compared with itself


def ape_stream(
    model: nn.Module,
    tokenizer: Any,
    contexts: Sequence[str],
    question: str,
    *,
    prefix: str = "",
    decoding: Decoding | str = "ape",
    extension: Extension | str | None = None,
    max_new_tokens: int = 64,
    rows_at_once: int | None = None,
    temperature: float = 0.0,
    top_k: int = 0,
    top_p: float = 1.0,
    seed: int = 0,
    progress: Progress | None = None,
) -> Iterator[int]:
    """The tokens of the answer to a question about several contexts one by one, by adaptive parallel encoding.

        for token in rw.ape_stream(model, tokenizer, ["first context", "second context"], "Question?"):
            print(tokenizer.decode([token]))

    Args:
        model: a loaded model, under no extension, without windows of its own.
        tokenizer: of the model.
        contexts: texts; the longest, with the prefix and the question, must fit the model.
        question: asked about all of them.
        prefix: a text before every context, such as the beginning of a chat; the tokenizer's first tokens begin it.
        decoding: ape, or its line, such as "ape:temperature=0.9,scale=0.9".
        extension: a schedule that the model reads under, which its own tables can hold, such as "yarn:factor=4".
        max_new_tokens: of the answer, at most.
        rows_at_once: contexts that are read together; by default as many as there are.
        temperature: of the draw; 0 takes the likeliest token.
        top_k: so many likeliest tokens are drawn from; 0: all.
        top_p: the likeliest tokens of this share in sum are drawn from.
        seed: of the draw.
        progress: called with the tokens that are read and those in all, of contexts with their padding.
    """
    host, rule = host_of(model), _ape(decoding)
    texts = _tokenised(tokenizer, prefix, contexts, question)
    if rows_at_once is not None and rows_at_once < 1:
        raise InvalidValue("rows_at_once", "at least 1", rows_at_once)
    if handle_of(model) is not None:
        remedy = "remove it, and pass it as `extension`"
        raise InvalidValue.because("model", "ape_stream reads with a twin of a model without extension", remedy=remedy)
    require_held(host, texts.position + len(texts.question) + max(0, max_new_tokens - 1))  # the last is not read
    choose = sampler(temperature, top_k, top_p, torch.Generator().manual_seed(seed))
    twin, layers = _twin(host, extension)
    if reason := _why_not_merged(twin, layers) or _why_not_same(twin, layers):
        raise reason
    rows = rows_at_once or len(texts.contexts)
    reading, ends = _Reading(twin, layers), end_tokens(host, tokenizer)
    return _write(reading, texts.begin(reading, rows, progress), rule, choose, ends, max_new_tokens)


class _Reading:
    """A model that reads a prefix, contexts apart, and then a question that sees them all."""

    def __init__(self, model: PreTrainedModel, layers: Sequence[ProbedLayer]) -> None:
        self.model, self.layers = model, layers
        self.cache = DynamicCache(config=model.config)
        self.position = 0  # of the next token
        self._kept = [list[tuple[Tensor, Tensor]]() for _ in layers]

    def read(self, ids_bn: Tensor, cache: DynamicCache | None = None, first: int | None = None) -> Tensor:
        """Read these tokens; the logits after them, [rows, vocabulary]. Without a cache of rows, the text goes on."""
        begin, size = self.position if first is None else first, ids_bn.shape[1]
        places_bn = torch.arange(begin, begin + size).expand(len(ids_bn), -1)
        device = device_of(self.model)
        inputs: dict[str, Any] = {"input_ids": ids_bn.to(device), "position_ids": places_bn.to(device)}
        cached = self.cache if cache is None else cache
        with torch.no_grad():
            answer = self.model(**inputs, past_key_values=cached, use_cache=True, logits_to_keep=1)
        if cache is None:
            self.position += size
        logits: Tensor = answer.logits[:, -1]
        return logits

    def read_apart(self, rows: Sequence[Sequence[int]]) -> Iterator[int]:
        """Read contexts after the prefix, and keep their keys; yields the number of tokens of every chunk."""
        before, longest = self.cache.get_seq_length(), max(map(len, rows))
        ids_bn = torch.tensor([[*row, *[0] * (longest - len(row))] for row in rows])
        cache = copy.deepcopy(self.cache)
        cache.batch_repeat_interleave(len(rows))
        for first in range(0, longest, CHUNK_LEN):
            part = ids_bn[:, first : first + CHUNK_LEN]
            self.read(part, cache, before + first)
            yield part.numel()
        for layer, kept in zip(self.layers, self._kept, strict=True):
            held: Any = cache.layers[layer.cached.slot if layer.cached else 0]
            for number, row in enumerate(rows):
                end = before + len(row)
                k_bgjd, v_bgjd = (x[number : number + 1, :, before:end] for x in (held.keys, held.values))
                kept.append((k_bgjd, v_bgjd))
        self.position = max(self.position, before + longest)

    def contexts(self) -> list[ContextKeys]:
        """The keys and values of all contexts in each layer, one context after another."""
        return [ContextKeys(*(torch.cat(parts, 2) for parts in zip(*kept, strict=True))) for kept in self._kept]


class _Texts(NamedTuple):
    """Tokens of the parts."""

    prefix: list[int]
    contexts: list[list[int]]
    question: list[int]

    @property
    def position(self) -> int:
        """Of the question: after the longest context."""
        return len(self.prefix) + max(map(len, self.contexts))

    def begin(self, reading: _Reading, rows: int, progress: Progress | None) -> Iterator[Tensor]:
        """Read everything before the question; yields the pieces of the question, small enough for all keys."""
        groups = [self.contexts[first : first + rows] for first in range(0, len(self.contexts), rows)]
        read = sum(len(group) * max(map(len, group)) for group in groups)
        done, total = 0, len(self.prefix) + read + len(self.question)

        def tell(count: int) -> None:
            nonlocal done
            done += count
            if progress:
                progress(done, total)

        for part in _pieces(self.prefix, CHUNK_LEN):
            reading.read(part)
            tell(part.numel())
        for group in groups:
            for count in reading.read_apart(group):
                tell(count)
        keys = sum(map(len, self.contexts)) + len(self.prefix) + len(self.question)
        piece = max(1, min(CHUNK_LEN, MOST_PRODUCTS // (keys * max(layer.heads for layer in reading.layers))))
        for part in _pieces(self.question, piece):
            yield part
            tell(part.numel())


def _pieces(ids: list[int], size: int) -> Iterator[Tensor]:
    """Tokens of one text, so many at once, [1, tokens]."""
    return (torch.tensor([ids[first : first + size]]) for first in range(0, len(ids), size))


def _write(
    reading: _Reading, question: Iterator[Tensor], rule: APE, choose: Any, ends: set[int], count: int
) -> Iterator[int]:
    """Token by token."""
    part = next(question)  # what stands before it is read now
    with seeing(reading.model, reading.layers, reading.contexts(), rule):
        logits_bv = reading.read(part)
        for part in question:
            logits_bv = reading.read(part)
        for made in range(count):
            logp_bv = logits_bv.float().cpu().log_softmax(-1)
            token = int(choose(rule.combine(logp_bv).logp[None])[0])
            if token in ends:
                return
            yield token
            if made + 1 < count:
                logits_bv = reading.read(torch.tensor([[token]]))


def _ape(decoding: Decoding | str) -> APE:
    parsed = parse(decoding) if isinstance(decoding, str) else Extension(decoding=decoding)
    rest = [name for name in parsed.specs if name != "decoding"]
    if rest:
        raise InvalidValue("decoding", "ape alone", decoding, remedy=f"pass the {rest[0]} as `extension`")
    if not isinstance(parsed.decoding, APE):
        raise InvalidValue("decoding", "ape, whose attention joins contexts", decoding, remedy="use rw.nbce_stream")
    return parsed.decoding


def _tokenised(tokenizer: Any, prefix: str, contexts: Sequence[str], question: str) -> _Texts:
    """The parts; the tokenizer's special first tokens begin the prefix."""
    if not contexts or isinstance(contexts, str):
        raise InvalidValue("contexts", "a list of texts, at least one", contexts)

    def ids(text: str) -> list[int]:
        return list(tokenizer(text, add_special_tokens=False)["input_ids"])

    texts = _Texts(list(tokenizer(prefix)["input_ids"]), [ids(text) for text in contexts], ids(question))
    if not all(texts.contexts):
        raise InvalidValue("contexts", "texts of at least one token each", contexts)
    if not texts.question:
        raise InvalidValue("question", "not empty", question)
    return texts


def _twin(host: PreTrainedModel, extension: Extension | str | None) -> tuple[PreTrainedModel, list[ProbedLayer]]:
    """A twin under an extension that leaves attention to the model, and its layers."""
    twin = twin_of(host)
    if extension is None or extension == Extension():
        return twin, [layer.probed for layer in plan_extension(twin, Extension()).layers]
    return twin, [layer.probed for layer in extend(twin, extension, mode=TABLES).layers]


def _why_not_merged(model: PreTrainedModel, layers: Sequence[ProbedLayer]) -> DoesNotFit | None:
    """What of a model has no meaning, or another one, where contexts stand at the same positions."""
    name = type(model).__name__
    for depth, layer in enumerate(layers):
        hindrances = {
            layer.inline: bool(layer.inline),
            f"layer {depth} has {'a ' if layer.window else ''}{own_reach(layer)}": layer.limit is not None,
            f"layer {depth} caps its logits": layer.softcap is not None,
            f"layer {depth} has sinks": layer.sinks is not None,
            f"layer {depth} makes a mask of its own": layer.own_mask,
            f"layer {depth} has one table for short texts and another for long ones": layer.long_table is not None,
            f"layer {depth} attends several times in one forward": bool(layer.slots),
            f"layer {depth} asks attention for {layer.unsupported}": bool(layer.unsupported),
        }
        if reason := next((text for text, holds in hindrances.items() if holds), ""):
            return DoesNotFit.because("model", f"ape cannot join contexts in {name}: {reason}", remedy=_REMEDY)
    slots = [layer.cached.slot for layer in layers if layer.cached and layer.cached.slot == layer.cached.source]
    usual = all(type(layer) is DynamicLayer for layer in DynamicCache(config=model.config).layers)
    if not usual or slots != list(range(len(layers))) or cache_growth(layers, model.dtype.itemsize) != 1:
        sentence = (
            f"ape cannot join contexts in {name}: its cache holds something else than each layer's keys and values"
        )
        return DoesNotFit.because("model", sentence, remedy=_REMEDY)
    if "position_ids" not in inspect.signature(model.forward).parameters:
        sentence = f"ape cannot join contexts in {name}: it takes no position_ids"
        return DoesNotFit.because("model", sentence, remedy=_REMEDY)
    return None


_REMEDY = "use nbce, whose rows are read as the model reads any text"


def _why_not_same(model: PreTrainedModel, layers: Sequence[ProbedLayer]) -> DoesNotFit | None:
    """How one context, at a temperature and a scale of 1, differs from one text; None where it does not."""
    vocabulary: Any = model.get_input_embeddings().weight
    ids_bn = torch.arange(sum(TESTED))[None] * 7 % len(vocabulary)
    before, until = TESTED[0], sum(TESTED[:2])
    prefix, context, question = ids_bn[:, :before], ids_bn[:, before:until], ids_bn[:, until:]
    expected = _Reading(model, layers).read(ids_bn).double()
    parts = _Reading(model, layers)
    parts.read(prefix)
    for _ in parts.read_apart(context.tolist()):
        pass
    with seeing(model, layers, parts.contexts(), APE(temperature=1, scale=1)):
        got = parts.read(question).double()
    error = float((got - expected).square().mean().sqrt() / expected.square().mean().sqrt())
    if error <= allowed_error(model, vocabulary.dtype):
        return None
    sentence = f"a context that is read apart changes the logits of {type(model).__name__} by {error:.1e} of their size"
    return DoesNotFit.because("model", sentence, remedy=_REMEDY)
