"""The inputs of attention, checked: shapes that fit the facts, and tokens: ascending positions, separate texts.

Legend: b batch, h query head, g key head, i query, j key, d head dimension.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from ropewalk.errors import DoesNotFit, InvalidValue
from ropewalk.extension.extension import Extension
from ropewalk.methods.facts import Facts
from ropewalk.methods.spec import Weights

OTHERS = "use a static schedule, or a reach such as rerope or streaming"
PAD = -1  # the position of padding
TYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


def layer_extension(extension: Extension, facts: Facts, weights: Mapping[str, Weights] | None = None) -> Extension:
    """The extension of one layer, checked against the model and, if passed, against the learned numbers."""
    local = extension.at_layer(None, facts)
    local.check_against(facts)
    if weights is not None:
        local.check_weights(weights, facts)
    for part in local.head_parts(facts):
        _require_numbers(part.extension, facts)
        for phase in part.extension.phases:
            _require_no_decay(phase, facts)
    return local


def _require_no_decay(extension: Extension, facts: Facts) -> None:
    """Refuse a decay under a reach that places pairs differently: a decay counts one distance for all pairs."""
    schedule, reach = extension.frequencies_or_rope, extension.reach_or_causal
    if any(span.pairs for span in reach.spans()) and schedule.table(facts, 1).log_decay.any():
        sentence = f"{schedule.name} needs one distance, but {reach.name} gives each pair its own"
        raise DoesNotFit.because("frequencies", sentence, remedy="take a schedule without decay")


def _require_numbers(extension: Extension, facts: Facts) -> None:
    """Refuse a schedule with NaN or infinity: a softmax over NaN would hide it."""
    for length in (1, 4 * facts.trained_len):
        table = extension.frequencies_or_rope.table(facts, length)
        if not (table.inv_freq.isfinite().all() and table.log_decay.isfinite().all()):
            rule = f"finite in every pair (rows of length {length})"
            raise InvalidValue(
                "frequencies", rule, str(extension.frequencies_or_rope), remedy="correct the schedule's table"
            )


def require_shapes(q_bhid: Tensor, k_bgjd: Tensor, v_bgjd: Tensor, facts: Facts) -> None:
    """Refuse queries, keys and values whose shapes contradict the facts."""
    for name, x in (("q", q_bhid), ("k", k_bgjd), ("v", v_bgjd)):
        if x.dim() != 4:
            raise InvalidValue(name, "[batch, heads, tokens, head_dim]", tuple(x.shape))
    batch, length, queries = k_bgjd.shape[0], k_bgjd.shape[2], q_bhid.shape[2]
    if q_bhid.shape != (batch, facts.heads, queries, facts.head_dim) or queries > length:
        rule = f"[{batch}, {facts.heads} heads, at most {length}, {facts.head_dim}] as the facts and keys say"
        raise InvalidValue("q", rule, tuple(q_bhid.shape))
    if k_bgjd.shape != (batch, facts.groups, length, facts.head_dim):
        rule = f"[{batch}, {facts.groups} key heads, {length}, {facts.head_dim}] as the facts say"
        raise InvalidValue("k", rule, tuple(k_bgjd.shape))
    if v_bgjd.shape[:3] != k_bgjd.shape[:3]:
        raise InvalidValue("v", f"of as many heads and tokens as k {tuple(k_bgjd.shape)}", tuple(v_bgjd.shape))


def require_kinship(q_bhid: Tensor, k_bgjd: Tensor, v_bgjd: Tensor) -> None:
    """Refuse queries, keys and values of different types or devices, or of an unsupported type."""
    for name, x in (("q", q_bhid), ("k", k_bgjd), ("v", v_bgjd)):
        if x.dtype not in TYPES:
            raise InvalidValue(name, "of floating-point numbers", x.dtype, known=[str(dtype)[6:] for dtype in TYPES])
        if (x.dtype, x.device) != (q_bhid.dtype, q_bhid.device):
            rule = f"of q's type and device ({q_bhid.dtype}, {q_bhid.device})"
            raise InvalidValue(name, rule, f"{x.dtype}, {x.device}")


def require_mask(model_mask_bhij: Tensor | None, q_bhid: Tensor, k_bgjd: Tensor) -> None:
    """Refuse a mask of the model that is not one number per query and key, in every head or for all heads."""
    if model_mask_bhij is None:
        return
    batch, heads, queries, keys = *q_bhid.shape[:3], k_bgjd.shape[2]
    got = (tuple(model_mask_bhij.shape), model_mask_bhij.device)
    if not model_mask_bhij.is_floating_point() or got not in [
        ((batch, of_heads, queries, keys), q_bhid.device) for of_heads in (1, heads)
    ]:
        rule = f"numbers of shape [{batch}, {heads} heads or 1, {queries}, {keys}] on q's device ({q_bhid.device})"
        raise InvalidValue("model_mask_bhij", rule, f"{model_mask_bhij.dtype} {got[0]} on {got[1]}")


def require_written(written_bj: Tensor | None, k_bgjd: Tensor) -> None:
    """Refuse what does not say of every token whether the model wrote it."""
    shape = (k_bgjd.shape[0], k_bgjd.shape[2])
    if written_bj is not None and (tuple(written_bj.shape) != shape or written_bj.dtype != torch.bool):
        rule = f"true or false of each of {shape} tokens"
        raise InvalidValue("written_bj", rule, f"{written_bj.dtype} {tuple(written_bj.shape)}")


class Tokens(NamedTuple):
    """What is said of the tokens whose keys attention sees. By default each row is one text, numbered by the extension.

        tokens = rw.Tokens(documents_bj=torch.tensor([[0, 0, 0, 1, 1]]))  # two texts packed into a row
        out = rw.attend(q, k, v, extension, facts, tokens)

    Attributes:
        positions_bj: [batch, keys], ascending within each text; -1 for padding.
        documents_bj: [batch, keys], which text of its row a token belongs to.
        pair_positions_bjp: [batch, keys, pairs], where each pair of a key stands, if tokens have several positions, as
            in images; then `positions_bj` orders the tokens.
        last_seen_bj: [batch, keys], the position up to which a token sees, if that is later than its own, as where the
            tokens of an image see each other.
        written_bj: [batch, keys], whether the model wrote a token rather than read it, for a reach that tells them
            apart; without it all are read.
    """

    positions_bj: Tensor | None = None
    documents_bj: Tensor | None = None
    pair_positions_bjp: Tensor | None = None
    last_seen_bj: Tensor | None = None
    written_bj: Tensor | None = None

    @property
    def of_images(self) -> bool:
        """Whether they have several positions, or see later ones."""
        return self.pair_positions_bjp is not None or self.last_seen_bj is not None

    def numbers(self, k_bgjd: Tensor, extension: Extension, facts: Facts) -> Tensor:
        """The position of every key, as passed or as the extension numbers every text; all fields are checked."""
        numbers_bj = self._numbers(k_bgjd, extension)
        for part in extension.head_parts(facts) if self.of_images else ():
            for phase in part.extension.phases:
                self._require_pair_positions(numbers_bj, phase, facts)
                self._require_last_seen(numbers_bj, phase, facts)
        require_written(self.written_bj, k_bgjd)
        return numbers_bj

    def _numbers(self, k_bgjd: Tensor, extension: Extension) -> Tensor:
        shape, positions_bj, documents_bj = (k_bgjd.shape[0], k_bgjd.shape[2]), self.positions_bj, self.documents_bj
        for name, x_bj in (("positions_bj", positions_bj), ("documents_bj", documents_bj)):
            if x_bj is not None and (tuple(x_bj.shape) != shape or not _is_whole(x_bj)):
                raise InvalidValue(name, f"whole numbers of shape {shape}", f"{x_bj.dtype} {tuple(x_bj.shape)}")
        texts_bj = torch.zeros(shape, dtype=torch.int64) if documents_bj is None else documents_bj.cpu()
        if not shape[0]:
            return torch.zeros(shape, dtype=torch.int64, device=k_bgjd.device)
        padded_bj = torch.zeros(shape, dtype=torch.bool) if positions_bj is None else positions_bj.cpu() == PAD
        _require_adjacent(texts_bj, padded_bj)
        if positions_bj is None:
            number = extension.positions_or_sequential.number
            rows = [torch.cat([number(count) for count in _runs(row)]) for row in texts_bj]
            return torch.stack(rows).to(k_bgjd.device)
        for numbers, texts in zip(positions_bj.cpu(), texts_bj, strict=True):
            _require_ascending(numbers, texts)
        return positions_bj.to(k_bgjd.device, torch.int64)

    def _require_pair_positions(self, numbers_bj: Tensor, extension: Extension, facts: Facts) -> None:
        """Refuse positions of pairs of another shape, and extensions that are not defined on several positions.

        A reach decides by the order of tokens what a query sees, and places each pair by the pair's own position. That
        is defined where a later position never gets an earlier place, and a key never a place behind its query.
        """
        if self.pair_positions_bjp is None:
            return
        shape = (*numbers_bj.shape, facts.rotating // 2)
        if tuple(self.pair_positions_bjp.shape) != shape or self.pair_positions_bjp.is_floating_point():
            got = f"{self.pair_positions_bjp.dtype} {tuple(self.pair_positions_bjp.shape)}"
            raise InvalidValue("pair_positions_bjp", f"whole numbers of shape {shape}", got)
        if extension.frequencies_or_rope.table(facts, 1).log_decay.any():
            _refuse_several(extension.frequencies_or_rope.name, "frequencies")
        if not (_rises(extension, facts) and _looks_back(extension, facts)):
            _refuse_several(extension.reach_or_causal.name, "reach")

    def _require_last_seen(self, numbers_bj: Tensor, extension: Extension, facts: Facts) -> None:
        """Refuse other shapes, and biases, which are defined for earlier keys only."""
        if self.last_seen_bj is None:
            return
        if self.last_seen_bj.shape != numbers_bj.shape or self.last_seen_bj.is_floating_point():
            got = f"{self.last_seen_bj.dtype} {tuple(self.last_seen_bj.shape)}"
            raise InvalidValue("last_seen_bj", f"whole numbers of shape {tuple(numbers_bj.shape)}", got)
        if extension.biases:
            sentence = f"{extension.biases[0].name} is not defined for later keys, which tokens of an image see"
            raise DoesNotFit.because("biases", sentence, remedy="leave images out, or use another method")
        if not _rises(extension, facts):
            sentence = f"{extension.reach_or_causal.name} is not defined for later keys, which tokens of an image see"
            raise DoesNotFit.because("reach", sentence, remedy=OTHERS)


ONE_TEXT = Tokens()  # one text in each row


def _is_whole(x: Tensor) -> bool:
    return not x.is_floating_point() and x.dtype != torch.bool


@lru_cache(maxsize=256)
def _rises(extension: Extension, facts: Facts) -> bool:
    """Whether a later position never gets an earlier place."""
    at = torch.arange(4 * facts.trained_len)
    places = (place(at) for span in extension.reach_or_causal.spans() for place in (span.q_at, span.k_at))
    return all(bool((place.diff() >= 0).all()) for place in places)


@lru_cache(maxsize=256)
def _looks_back(extension: Extension, facts: Facts) -> bool:
    """Whether no key is placed behind its query, even at the same position, as tokens of one image are."""
    at = torch.arange(4 * facts.trained_len)
    latest = ((span, int(span.bounds(at)[1].max()) - 1) for span in extension.reach_or_causal.spans())  # key of any row
    return all(bool((span.q_at(at) >= span.k_at(at.clamp(max=max(last, 0)))).all()) for span, last in latest)


def _refuse_several(name: str, slot: str) -> None:
    sentence = f"{name} is not defined for tokens with several positions, such as those of images"
    raise DoesNotFit.because(slot, sentence, remedy=OTHERS)


def _runs(texts_j: Tensor) -> list[int]:
    """The number of tokens in every text of a packed row."""
    return torch.unique_consecutive(texts_j, return_counts=True)[1].tolist() if len(texts_j) else [0]


def _require_adjacent(texts_bj: Tensor, padded_bj: Tensor) -> None:
    """Refuse texts with padding, or other texts, in their middle."""
    for texts, padded in zip(texts_bj, padded_bj, strict=True):
        begins = ~padded
        begins[1:] &= padded[:-1] | (texts.diff() != 0)
        if int(begins.sum()) > len(texts[~padded].unique()):
            sentence = (
                f"the tokens of a text must be adjacent, with padding only at the ends, got texts {texts.tolist()[:16]}"
            )
            raise InvalidValue.because("documents_bj", sentence)


def _require_ascending(numbers_j: Tensor, texts_j: Tensor) -> None:
    real = numbers_j != PAD
    for text in sorted(set(texts_j[real].tolist())):
        positions = numbers_j[real & (texts_j == text)]
        if (positions < 0).any() or (positions.diff() <= 0).any():
            raise InvalidValue(
                "positions_bj",
                f"ascending from 0 within every text ({PAD} for padding)",
                positions.tolist()[:8],
                remedy="separate packed texts by documents_bj",
            )


def related_pairs(
    numbers_bi: Tensor, numbers_bj: Tensor, documents_bj: Tensor | None, until_bi: Tensor | None = None
) -> Tensor:
    """Which pairs of query and key are in one text, without padding, and in order; or up to `until_bi`."""
    related_bij = (numbers_bi if until_bi is None else until_bi)[:, :, None] >= numbers_bj[:, None, :]
    related_bij &= (numbers_bi != PAD)[:, :, None] & (numbers_bj != PAD)[:, None, :]
    if documents_bj is not None:
        documents_bj = documents_bj.to(numbers_bj.device)
        documents_bi = documents_bj[:, documents_bj.shape[1] - numbers_bi.shape[1] :]
        related_bij &= documents_bi[:, :, None] == documents_bj[:, None, :]
    return related_bij
