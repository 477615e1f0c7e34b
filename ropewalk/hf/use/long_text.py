"""Reading long texts and writing without end: pieces through a cache, never more at once than a piece needs.

Legend: b batch, n token, d hidden dimension, v word.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from transformers import DynamicCache, LogitsProcessorList, PreTrainedModel
from transformers.generation.logits_process import (
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from ropewalk.attention import nll, token_scores
from ropewalk.attention.token_loss import TokenScores as TokenScores
from ropewalk.errors import Conflict, InvalidValue
from ropewalk.hf.attach.handle import handle_of, host_of
from ropewalk.hf.probe.max_length import require_held
from ropewalk.hf.probe.rotary import quiet
from ropewalk.hf.runtime.caches import held_bytes

PIECE = 4096  # tokens read at once; over several pieces a model's own attention computes what its mask hides as well
PROBED = 8  # tokens on which the head is compared with the model's own logits
Of = TypeVar("Of")
CLOSE = 2e-2  # of the largest logit, for half precision's sake

Progress = Callable[[int, int], None]  # told how many tokens were read, and of how many, after each piece


class ReadChunk(NamedTuple):
    """A piece of a text, read after all before it."""

    losses: Tensor  # of the token after each of the piece's, in nats
    hits: Tensor  # whether that is the likeliest
    cache_bytes: int  # held when it had been read


def score(model: nn.Module, ids: Tensor, *, piece: int = PIECE) -> Tensor:
    """The loss in nats of each token of [batch, tokens] given all before it, [batch, tokens - 1].

    Neither the logits of all tokens nor the square of attention is ever held.
    """
    return torch.cat(list(_read(model, ids, piece, OutputHead.losses)), 1)


def score_tokens(model: nn.Module, ids: Tensor, *, numbers: Tensor | None = None, piece: int = PIECE) -> TokenScores:
    """The loss of each token but the first, and whether it is the one that the model would have chosen.

    `numbers` [tokens] says where each token stands when that is not 0, 1, 2, ...; the text is then read in one piece.
    """
    losses, hits = zip(*_read(model, ids, piece, OutputHead.token_scores, numbers=numbers), strict=True)
    return TokenScores(torch.cat(losses, 1), torch.cat(hits, 1))


def read(model: nn.Module, ids: Tensor, *, piece: int = PIECE) -> Iterator[ReadChunk]:
    """What `score_tokens` gives, piece by piece as the text is read: for reading that is watched."""
    cache = DynamicCache(config=host_of(model).config)
    parts = _read(model, ids, piece, OutputHead.token_scores, cache=cache)
    return (ReadChunk(*scores, held_bytes(cache)) for scores in parts)


class OutputHead(NamedTuple):
    """What makes losses and choices of hidden states; of logits, where no number makes them of those."""

    module: Any
    scale: float | None

    def losses(self, said: Tensor, targets: Tensor) -> Tensor:
        """Of each target, in nats."""
        if self.scale is None:
            return torch.nn.functional.cross_entropy(said.float().transpose(1, 2), targets, reduction="none")
        return nll(said, self.module.weight, targets, self.module.bias)

    def token_scores(self, said: Tensor, targets: Tensor) -> TokenScores:
        """The same, and whether each target is the likeliest word."""
        if self.scale is None:
            return TokenScores(self.losses(said, targets), said.argmax(-1) == targets)
        return token_scores(said, self.module.weight, targets, self.module.bias)


def _read(
    model: nn.Module,
    ids: Tensor,
    piece: int,
    judging: Callable[[OutputHead, Tensor, Tensor], Of],
    *,
    numbers: Tensor | None = None,
    cache: DynamicCache | None = None,
) -> Iterator[Of]:
    """Each piece judged: by the head, what is said after each token, and the tokens that came."""
    host = host_of(model)
    _check(ids, piece, least=2)
    _require_known(host, ids)
    require_held(host, ids.shape[1] - 1)  # the last token is told, not read
    given: dict[str, Any] = {"past_key_values": cache or DynamicCache(config=host.config), "use_cache": True}
    if numbers is not None:
        piece = ids.shape[1]  # a cache knows no numbers but 0, 1, 2, ...
        given = {"use_cache": False, **_stated(ids, numbers)}
    return _judged_pieces(host, ids, piece, judging, given)


def _judged_pieces(
    host: PreTrainedModel, ids: Tensor, piece: int, judging: Callable[[OutputHead, Tensor, Tensor], Of], given: Any
) -> Iterator[Of]:
    handle, head = handle_of(host), head_of(host, ids[:, :PROBED])
    for first in range(0, ids.shape[1] - 1, piece):
        _require_same(host, handle, "text")
        targets = ids[:, first + 1 : first + piece + 1]
        with torch.no_grad():
            said = said_after(host, head, ids[:, first : first + targets.shape[1]], targets, given)
            found = judging(head, *said)
        yield found


def said_after(
    host: PreTrainedModel, head: OutputHead, ids: Tensor, targets: Tensor, given: Any
) -> tuple[Tensor, Tensor]:
    """What is said after each token, where the head can read it, and the targets there."""
    with quiet(host):
        if head.scale is None:
            said: Tensor = host(input_ids=ids, **given).logits
            return said, targets.to(said.device)
        said = _base(host)(input_ids=ids, **given).last_hidden_state * head.scale
    where = head.module.weight.device
    return said.to(where), targets.to(where)


def _require_same(host: PreTrainedModel, handle: Any, what: str) -> None:
    """Refuse to go on where somebody has changed the extension in between."""
    if handle_of(host) is not handle:
        raise Conflict(what, "read under the extension it began under", "another, or none")


def _stated(ids: Tensor, numbers: Tensor) -> dict[str, Tensor]:
    """Numbers of one's own, and a mask that tells transformers that a gap between them begins no new text."""
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
    piece: int = PIECE,
    progress: Progress | None = None,
) -> Iterator[Tensor]:
    """Tokens [batch] one after the other, without end unless one is given; at temperature 0 the likeliest.

    Under an extension whose reach forgets (a window, sinks) memory and time per token stay what they are. The text is
    read in pieces when the first token is asked for; `progress` is told how far that is.
    """
    host = host_of(model)
    _check(ids, piece)
    _require_known(host, ids)
    require_held(host, ids.shape[1] + max(0, (max_new_tokens or 1) - 1))  # the last that is made is not read
    choose = sampler(temperature, top_k, top_p, torch.Generator(device=ids.device).manual_seed(seed))
    return _written(host, _pieces(ids, piece, progress), choose, max_new_tokens)


def _pieces(ids: Tensor, piece: int, progress: Progress | None) -> Iterator[Tensor]:
    """The text piece by piece; what has been taken has been read when the next is asked for."""
    for first in range(0, ids.shape[1], piece):
        part = ids[:, first : first + piece]
        yield part
        if progress:
            progress(first + part.shape[1], ids.shape[1])


def _written(host: PreTrainedModel, parts: Iterator[Tensor], choose: Any, count: int | None) -> Iterator[Tensor]:
    handle = handle_of(host)
    cache, made = DynamicCache(config=host.config), 0
    for part in parts:
        logits_bv = _next(host, part, cache)
    while count is None or made < count:
        token_b = choose(logits_bv)
        yield token_b
        _require_same(host, handle, "stream")
        made += 1
        if count is None or made < count:
            logits_bv = _next(host, token_b[:, None], cache)


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


def _base(host: PreTrainedModel) -> Any:
    return host.base_model


@torch.no_grad()
def head_of(host: PreTrainedModel, ids: Tensor) -> OutputHead:
    """The model's own, compared on a few tokens with its logits."""
    with quiet(host):
        return OutputHead(host.get_output_embeddings(), _head_scale(host, ids))  # type: ignore[no-untyped-call]


def _head_scale(host: PreTrainedModel, ids: Tensor) -> float | None:
    """What makes hidden states times the head the model's logits; nothing where no number will do."""
    head: Any = host.get_output_embeddings()  # type: ignore[no-untyped-call]
    if head.weight.device.type == "meta":  # on disk, and fetched for the head's own call alone
        return None
    hidden = _base(host)(input_ids=ids, use_cache=False).last_hidden_state
    own, theirs = head(hidden).double(), host(input_ids=ids, use_cache=False).logits.double()
    scale = float((own * theirs).sum() / own.square().sum())
    close = (own * scale - theirs).abs().max() <= CLOSE * theirs.abs().max()
    return scale if close and (head.bias is None or abs(scale - 1) < CLOSE) else None


@torch.no_grad()
def _next(host: PreTrainedModel, ids: Tensor, cache: DynamicCache) -> Tensor:
    """The logits after the last of these tokens."""
    with quiet(host):
        logits: Tensor = host(input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1).logits[:, -1]
    return logits


def sampler(temperature: float, top_k: int, top_p: float, generator: torch.Generator) -> Any:
    """What draws a token from logits [batch, vocabulary]; at temperature 0 it takes the likeliest."""
    if not temperature >= 0:
        raise InvalidValue("temperature", "0 or above", temperature)
    if temperature == 0:
        return lambda logits_bv: logits_bv.argmax(-1)
    for name, value, rule in (("top_k", top_k, top_k >= 0), ("top_p", top_p, 0 < top_p <= 1)):
        if not rule:
            raise InvalidValue(name, "0 (all) or above" if name == "top_k" else "above 0 and at most 1", value)
    warpers = LogitsProcessorList([TemperatureLogitsWarper(float(temperature))])
    if top_k:
        warpers.append(TopKLogitsWarper(top_k))
    if top_p < 1:
        warpers.append(TopPLogitsWarper(top_p))

    def draw(logits_bv: Tensor) -> Tensor:
        unasked: Any = None  # what came before, which none of these looks at
        share = warpers(unasked, logits_bv.float()).softmax(-1)
        return torch.multinomial(share, 1, generator=generator)[:, 0]

    return draw
