"""Read, score and generate long texts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from transformers import DynamicCache, LogitsProcessorList, PreTrainedModel
from transformers.generation.logits_process import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from ropewalk.attention import nll, token_scores
from ropewalk.attention.token_loss import TokenScores as TokenScores
from ropewalk.errors import Conflict, InvalidValue
from ropewalk.hf.attach.handle import handle_of, host_of
from ropewalk.hf.probe.host import device_of, is_quantised, quiet
from ropewalk.hf.probe.max_length import require_held
from ropewalk.hf.runtime.caches import held_bytes, writing

# Read long texts chunk by chunk through a cache, and generate without end, in the memory of one chunk.
#
# Legend: b batch, n token, d hidden dimension, v word.


NOTHING_SAID = nullcontext()  # of which tokens are written
CHUNK_LEN, LEAST_CHUNK = 4096, 512  # tokens of a chunk; a model's own attention also computes what its mask hides
MOST_PAIRS = 2**24  # of a chunk and the whole text, which such a mask has a number for: 64 MiB in float32
MOST_ON_GPU = 2**27  # where eight times as many chunks would take longer than what a mask hides
LOGITS_PER_CHUNK = 2**28  # of a chunk: 1 GiB in float32
PROBED = 8  # tokens on which the head is compared with the model's logits
Of = TypeVar("Of")
LOGITS_RTOL = 2e-2  # relative to the largest logit, for half precision
LEAST_TEMPERATURE = float(torch.finfo(torch.float32).tiny)  # smaller ones are the likeliest token as well

Progress = Callable[[int, int], None]  # called after each chunk with the tokens read so far, and all tokens


class ReadChunk(NamedTuple):
    """One chunk of a text, read after all chunks before it."""

    losses: Tensor  # nats of the token after each token of the chunk
    hits: Tensor  # whether that token is the likeliest
    cache_bytes: int  # of the cache after the chunk


def score(model: nn.Module, ids: Tensor, *, piece: int = CHUNK_LEN) -> Tensor:
    """The loss in nats of every token, given all tokens before it.

        losses = rw.score(model, ids)  # [batch, tokens - 1]

    Neither the logits of all tokens nor the full attention matrix is ever in memory.

    Args:
        model: a causal language model, under an extension or not.
        ids: whole numbers [batch, tokens].
        piece: how many tokens are read at once, at most.
    """
    return torch.cat(list(_read(model, ids, piece, OutputHead.losses)), 1)


def score_tokens(
    model: nn.Module,
    ids: Tensor,
    *,
    numbers: Tensor | None = None,
    cache: DynamicCache | None = None,
    piece: int = CHUNK_LEN,
    written: int = 0,
    head: OutputHead | None = None,
) -> TokenScores:
    """The loss of every token but the first, and whether it is the model's likeliest token.

    `numbers` [tokens] are positions other than 0, 1, 2, ...; the text is then read as one chunk. `cache` holds what was
    read before, and then all of these tokens but the last too. The last `written` tokens count as the model's own, as
    if it had generated them. `head` is the model's `head_of`, where texts before this one have shown it.
    """
    before = int(cache.get_seq_length()) if written and cache is not None else 0
    with writing(before + ids.shape[1] - written) if written else NOTHING_SAID:
        scores = list(_read(model, ids, piece, OutputHead.token_scores, numbers=numbers, cache=cache, head=head))
    losses, hits = zip(*scores, strict=True)
    return TokenScores(torch.cat(losses, 1), torch.cat(hits, 1))


class SampledLogits(NamedTuple):
    """The losses of a text, and the logits after some of its tokens."""

    losses: Tensor  # [batch, tokens - 1]
    logits: Tensor  # [batch, kept, words], float32: after the tokens 0, every, 2 every, ...; after the last one too


def sampled_logits(model: nn.Module, ids: Tensor, *, every: int, piece: int = CHUNK_LEN) -> SampledLogits:
    """The loss of every token but the first, and the logits after every `every`-th: all of them need much memory."""
    losses, logits, first = list[Tensor](), list[Tensor](), 0

    def judged(head: OutputHead, inputs: Tensor, targets: Tensor) -> None:
        losses.append(head.losses(inputs, targets))
        logits.append(head.logits(inputs[:, -first % every :: every]).float())

    after = torch.cat([ids, ids[:, -1:]], 1)  # so that the last token is read too; what follows it does not count
    for _ in _read(model, after, piece, judged):
        first = sum(part.shape[1] for part in losses)
    return SampledLogits(torch.cat(losses, 1)[:, :-1], torch.cat(logits, 1))


def read(model: nn.Module, ids: Tensor, *, piece: int = CHUNK_LEN) -> Iterator[ReadChunk]:
    """The results of `score_tokens` chunk by chunk, while the text is read."""
    cache = DynamicCache(config=host_of(model).config)
    parts = _read(model, ids, piece, OutputHead.token_scores, cache=cache)
    return (ReadChunk(*scores, held_bytes(cache)) for scores in parts)


class OutputHead(NamedTuple):
    """The output head: losses from hidden states, or from logits where `scale` is None."""

    module: Any
    scale: float | None

    def losses(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """The loss of every target, in nats."""
        if self.scale is None:
            return torch.nn.functional.cross_entropy(inputs.float().transpose(1, 2), targets, reduction="none")
        return nll(inputs, self.module.weight, targets, self.module.bias)

    def logits(self, inputs: Tensor) -> Tensor:
        """The logits of every word."""
        if self.scale is None:
            return inputs
        return torch.nn.functional.linear(inputs, self.module.weight, self.module.bias)

    def token_scores(self, inputs: Tensor, targets: Tensor) -> TokenScores:
        """The losses, and whether every target is the likeliest token."""
        if self.scale is None:
            return TokenScores(self.losses(inputs, targets), inputs.argmax(-1) == targets)
        return token_scores(inputs, self.module.weight, targets, self.module.bias)


def _read(
    model: nn.Module,
    ids: Tensor,
    piece: int,
    judging: Callable[[OutputHead, Tensor, Tensor], Of],
    *,
    numbers: Tensor | None = None,
    cache: DynamicCache | None = None,
    head: OutputHead | None = None,
) -> Iterator[Of]:
    """The `judging` of every chunk: its arguments are the head, the head's input and the target tokens."""
    host = host_of(model)
    _check(ids, piece, least=2)
    _require_known(host, ids)
    require_held(host, ids.shape[1] - 1)  # the last token is a target only
    kwargs: dict[str, Any] = {
        "past_key_values": DynamicCache(config=host.config) if cache is None else cache,
        "use_cache": True,
    }
    if numbers is not None:
        piece = ids.shape[1]  # a cache has no positions but 0, 1, 2, ...
        kwargs = {"use_cache": False, **_position_arguments(ids, numbers)}
    return _score_pieces(host, head, ids, piece, judging, kwargs)


def _score_pieces(
    host: PreTrainedModel,
    head: OutputHead | None,
    ids: Tensor,
    piece: int,
    judging: Callable[[OutputHead, Tensor, Tensor], Of],
    kwargs: Any,
) -> Iterator[Of]:
    handle, head = handle_of(host), head or head_of(host, ids)
    if kwargs["use_cache"]:
        most = MOST_PAIRS if device_of(host).type == "cpu" else MOST_ON_GPU
        piece = min(piece, max(LEAST_CHUNK, most // ids.shape[1]))
        if head.scale is None:  # it gives the logits of the whole chunk
            words: Any = host.get_input_embeddings().weight
            piece = max(1, min(piece, LOGITS_PER_CHUNK // len(words)))
    evaluating = quiet(host)
    for first in range(0, ids.shape[1] - 1, piece):
        _require_same(host, handle, "text")
        targets = ids[:, first + 1 : first + piece + 1]
        with evaluating, torch.no_grad():
            part = ids[:, first : first + targets.shape[1]]
            inputs = head_inputs(host, head, part, targets, {**_places(host, part, kwargs), **kwargs})
            result = judging(head, *inputs)
        yield result


def _places(host: PreTrainedModel, ids: Tensor, kwargs: Mapping[str, Any]) -> dict[str, Tensor]:
    """Position ids for the text of a model that sees images: by itself it would count on from the last image it saw."""
    cache = kwargs.get("past_key_values")
    if host.config.get_text_config() is host.config or "position_ids" in kwargs:
        return {}
    first = 0 if cache is None else int(cache.get_seq_length())
    return {"position_ids": torch.arange(first, first + ids.shape[1], device=ids.device).expand(len(ids), -1)}


def head_inputs(
    host: PreTrainedModel, head: OutputHead, ids: Tensor, targets: Tensor, kwargs: Any
) -> tuple[Tensor, Tensor]:
    """The input of the head for every token, and the targets, on the device of the head; the model is in evaluation."""
    if head.scale is None:
        logits: Tensor = host(input_ids=ids, **kwargs).logits
        return logits, targets.to(logits.device)
    hidden = host.base_model(input_ids=ids, **kwargs).last_hidden_state * head.scale
    where = head.module.weight.device
    return hidden.to(where), targets.to(where)


def _require_same(host: PreTrainedModel, handle: Any, what: str) -> None:
    """Refuse to continue after the extension was changed."""
    if handle_of(host) is not handle:
        raise Conflict.because(what, f"the extension was changed or removed while the {what} was being read")


def _position_arguments(ids: Tensor, numbers: Tensor) -> dict[str, Tensor]:
    """Position ids, and a full mask, so that transformers takes no gap as the border of two texts."""
    if numbers.shape != ids.shape[1:] or numbers.is_floating_point():
        raise InvalidValue("numbers", f"whole numbers of shape {tuple(ids.shape[1:])}", tuple(numbers.shape))
    read = ids[:, :-1]
    return {"position_ids": numbers[:-1].to(ids.device).expand_as(read), "attention_mask": torch.ones_like(read)}


def stream(
    model: nn.Module,
    ids: Tensor,
    *,
    max_new_tokens: int | None = None,
    temperature: float = 0.0,
    top_k: int = 0,
    top_p: float = 1.0,
    seed: int = 0,
    piece: int = CHUNK_LEN,
    progress: Progress | None = None,
) -> Iterator[Tensor]:
    """Generate tokens one by one, without end unless `max_new_tokens` is set.

        for token in rw.stream(model, ids, max_new_tokens=100):  # ids [batch, tokens], token [batch]
            print(token.tolist())

    Under an extension that drops old keys (a window, sinks), memory and time per token are constant.

    Args:
        model: a causal language model, under an extension or not.
        ids: the text, whole numbers [batch, tokens]; all of it is read before the first token.
        max_new_tokens: how many tokens are written at most.
        temperature: 0 takes the likeliest token.
        top_k: tokens are drawn from so many likeliest ones; 0: from all.
        top_p: tokens are drawn from the likeliest ones that have this share in sum.
        seed: of the draw.
        piece: how many tokens of the text are read at once.
        progress: called with the tokens that are read and those in all, after each chunk.
    """
    host = host_of(model)
    _check(ids, piece)
    _require_known(host, ids)
    require_held(host, ids.shape[1] + max(0, (max_new_tokens or 1) - 1))  # the last generated token is not read
    choose = sampler(temperature, top_k, top_p, torch.Generator(device=ids.device).manual_seed(seed))
    return _write(host, _pieces(ids, piece, progress), choose, max_new_tokens)


def _pieces(ids: Tensor, piece: int, progress: Progress | None) -> Iterator[Tensor]:
    """The chunks of a text; `progress` is called after a chunk was read."""
    for first in range(0, ids.shape[1], piece):
        part = ids[:, first : first + piece]
        yield part
        if progress:
            progress(first + part.shape[1], ids.shape[1])


def _write(host: PreTrainedModel, parts: Iterator[Tensor], choose: Any, count: int | None) -> Iterator[Tensor]:
    """Token by token. No mode of the model or of torch stays set between two tokens: a caller may train meanwhile."""
    handle, evaluating = handle_of(host), quiet(host)
    kwargs: dict[str, Any] = {
        "past_key_values": DynamicCache(config=host.config),
        "use_cache": True,
        "logits_to_keep": 1,
    }

    def read(ids: Tensor, context: AbstractContextManager[None] = NOTHING_SAID) -> Tensor:
        with evaluating, torch.no_grad(), context:
            logits: Tensor = host(input_ids=ids, **kwargs, **_places(host, ids, kwargs)).logits
        return logits[:, -1]

    for part in parts:
        logits_bv = read(part)
    made = 0
    while count is None or made < count:
        token_b = choose(logits_bv)
        yield token_b
        _require_same(host, handle, "stream")
        made += 1
        if made != count:
            logits_bv = read(token_b[:, None], writing())


def _check(ids: Any, piece: int, least: int = 1) -> None:
    if not isinstance(ids, Tensor) or ids.dim() != 2 or ids.is_floating_point() or ids.shape[1] < least:
        got = f"{ids.dtype} {tuple(ids.shape)}" if isinstance(ids, Tensor) else ids
        raise InvalidValue("ids", f"whole numbers of shape [batch, at least {least} tokens]", got)
    if piece < 1:
        raise InvalidValue("piece", "at least 1", piece)


def _require_known(host: PreTrainedModel, ids: Tensor) -> None:
    words: Any = host.get_input_embeddings().weight
    if ids.numel() and not 0 <= int(ids.min()) <= int(ids.max()) < len(words):
        got = f"{int(ids.min())} to {int(ids.max())}"
        raise InvalidValue("ids", f"from 0 to {len(words) - 1}, the model's vocabulary", got)


@torch.no_grad()
def head_of(host: PreTrainedModel, ids: Tensor) -> OutputHead:
    """The output head of the model, compared with its logits on the first tokens of one text."""
    with quiet(host), writing():  # not of every text of a batch: with 262,144 words the comparison needs 40 MiB a text
        return OutputHead(host.get_output_embeddings(), _head_scale(host, ids[:1, :PROBED]))  # type: ignore[no-untyped-call]


def _head_scale(host: PreTrainedModel, ids: Tensor) -> float | None:
    """The factor between the head's output and the model's logits; None where no factor fits."""
    head: Any = host.get_output_embeddings()  # type: ignore[no-untyped-call]
    config = vars(host.config.get_text_config())
    if not _is_plain(head) or any(config[name] for name in config if "logit" in name and "cap" in name):
        return None
    hidden = host.base_model(input_ids=ids, use_cache=False).last_hidden_state
    answer = head(hidden)
    if not torch.equal(answer, torch.nn.functional.linear(hidden.to(head.weight), head.weight, head.bias)):
        return None  # it computes more than its weight says, as under an adapter
    ours, theirs = answer.double(), host(input_ids=ids, use_cache=False).logits.double()
    scale = float((ours * theirs).sum() / ours.square().sum())
    close = (ours * scale - theirs).abs().max() <= LOGITS_RTOL * theirs.abs().max()
    return scale if close and (head.bias is None or abs(scale - 1) < LOGITS_RTOL) else None


def _is_plain(head: Any) -> bool:
    """Whether the head has a weight to multiply by: not quantised, nor on disk and in memory only while it runs."""
    weight = getattr(head, "weight", None)
    return isinstance(weight, Tensor) and weight.device.type != "meta" and not is_quantised(weight)


def sampler(temperature: float, top_k: int, top_p: float, generator: torch.Generator) -> Any:
    """A function from logits [batch, vocabulary] to tokens [batch]; at temperature 0 the likeliest."""
    if not temperature >= 0:
        raise InvalidValue("temperature", "0 or above", temperature)
    if temperature == 0:
        return lambda logits_bv: logits_bv.argmax(-1)
    for name, value, rule in (("top_k", top_k, top_k >= 0), ("top_p", top_p, 0 < top_p <= 1)):
        if not rule:
            raise InvalidValue(name, "0 (all) or above" if name == "top_k" else "above 0 and at most 1", value)
    warpers = LogitsProcessorList([TemperatureLogitsWarper(max(float(temperature), LEAST_TEMPERATURE))])
    if top_k:
        warpers.append(TopKLogitsWarper(top_k))
    if top_p < 1:
        warpers.append(TopPLogitsWarper(top_p))

    def draw(logits_bv: Tensor) -> Tensor:
        previous: Any = None  # no warper here uses the tokens before
        logits_bv = logits_bv.float()
        logits_bv = logits_bv - logits_bv.amax(-1, keepdim=True)  # so that a small temperature makes no infinity
        share = warpers(previous, logits_bv).softmax(-1)
        return torch.multinomial(share, 1, generator=generator)[:, 0]

    return draw
