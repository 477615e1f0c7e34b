"""One text under two rotations: each token is chosen from both (positional contrastive decoding).

The model itself is left alone. Two twins of it, which share its weights, read the text: one under the extension, one
with a smaller base besides.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from transformers import DynamicCache, PreTrainedModel

from ropewalk.errors import DoesNotFit, InvalidValue
from ropewalk.extension.extension import Extension
from ropewalk.extension.parsing import parse
from ropewalk.hf.attach.extend import extend, plan_extension
from ropewalk.hf.attach.handle import handle_of, host_of
from ropewalk.hf.use.long_text import CHUNK_LEN, Progress, sampler
from ropewalk.methods.decoding import Decoding
from ropewalk.methods.frequencies import ABF, RoPE


def contrast_stream(
    model: nn.Module,
    ids: Tensor,
    decoding: Decoding | str,
    *,
    extension: Extension | str | None = None,
    max_new_tokens: int | None = None,
    temperature: float = 0.0,
    top_k: int = 0,
    top_p: float = 1.0,
    seed: int = 0,
    piece: int = CHUNK_LEN,
    progress: Progress | None = None,
) -> Iterator[int]:
    """The tokens that continue a text one by one, chosen from the model under two rotations.

        rule = "positional_contrast:beta=1,new_base=1000"
        for token in rw.contrast_stream(model, ids, rule, max_new_tokens=20):  # ids [1, tokens]
            print(tokenizer.decode([token]))

    Args:
        model: a loaded model, under no extension.
        ids: one text, whole numbers [1, tokens].
        decoding: positional_contrast, or its line.
        extension: what both rotations are under, without a schedule of frequencies.
        max_new_tokens: how many tokens are written at most; None: without end.
        temperature: 0 takes the likeliest token.
        top_k: so many likeliest tokens are drawn from; 0: all.
        top_p: the likeliest tokens of this share in sum are drawn from.
        seed: of the draw.
        piece: how many tokens of the text are read at once.
        progress: called with the tokens that are read and those in all, under both rotations.
    """
    host, rule = host_of(model), _rule(decoding)
    if not isinstance(ids, Tensor) or ids.is_floating_point() or ids.dim() != 2 or ids.shape[0] != 1 or not ids.numel():
        raise InvalidValue("ids", "whole numbers of shape [1, at least 1 token]", getattr(ids, "shape", ids))
    if piece < 1:
        raise InvalidValue("piece", "at least 1", piece)
    if handle_of(model) is not None:
        remedy = "remove it, and pass it as `extension`"
        raise InvalidValue.because(
            "model", "contrast_stream reads with twins of a model without extension", remedy=remedy
        )
    choose = sampler(temperature, top_k, top_p, torch.Generator().manual_seed(seed))
    twins = _Twin(host, _fast(host, extension, rule)), _Twin(host, extension)
    return _write(twins, ids, rule, choose, max_new_tokens, piece, progress)


def twin_of(host: PreTrainedModel) -> PreTrainedModel:
    """A copy of a model in evaluation mode that shares its weights."""
    twin = copy.deepcopy(host, {id(weight): weight for weight in host.parameters()})
    twin.train(False)
    return twin


class _Twin:
    """A copy of a model that shares its weights, under an extension of its own, with its cache."""

    def __init__(self, host: PreTrainedModel, extension: Extension | str | None) -> None:
        self._model: Any = twin_of(host)
        if extension is not None:
            extend(self._model, extension)
        self._cache = DynamicCache(config=self._model.config)

    def read(self, ids: Tensor) -> Tensor:
        """Read these tokens; the log-probabilities of the next one, [vocabulary]."""
        with torch.no_grad():
            answer = self._model(input_ids=ids, past_key_values=self._cache, use_cache=True, logits_to_keep=1)
        logp: Tensor = answer.logits[0, -1].float().cpu().log_softmax(-1)
        return logp


def _write(
    twins: tuple[_Twin, _Twin],
    ids: Tensor,
    rule: Decoding,
    choose: Any,
    count: int | None,
    piece: int,
    progress: Progress | None,
) -> Iterator[int]:
    done, total = 0, len(twins) * ids.shape[1]
    for first in range(0, ids.shape[1], piece):
        part = ids[:, first : first + piece]
        logp_tv = torch.stack([twin.read(part) for twin in twins])
        done += len(twins) * part.shape[1]
        if progress:
            progress(done, total)
    made = 0
    while count is None or made < count:
        token = int(choose(rule.combine(logp_tv).logp[None])[0])
        yield token
        made += 1
        if made != count:
            logp_tv = torch.stack([twin.read(ids.new_tensor([[token]])) for twin in twins])


def _rule(decoding: Decoding | str) -> Decoding:
    parsed = parse(decoding).decoding if isinstance(decoding, str) else decoding
    if not isinstance(parsed, Decoding) or parsed.of_contexts:
        raise InvalidValue("decoding", "a rule for one text, such as positional_contrast", decoding)
    return parsed


def _fast(host: PreTrainedModel, extension: Extension | str | None, rule: Any) -> Extension:
    """The extension with the smaller base in the place of the model's own."""
    plan = plan_extension(host, Extension() if extension is None else extension)
    stated = plan.extension
    if stated.frequencies not in (None, RoPE()) or any(local.frequencies for _, local in stated.layer_items):
        sentence = f"{rule.name} changes the model's own base, and {stated} has a schedule of its own"
        raise DoesNotFit.because("extension", sentence, remedy="leave the schedule out; a reach or a scale may stay")
    for layer in plan.layers:
        rule.check_against(layer.facts)
    return replace(stated, frequencies=ABF(new_base=rule.new_base))
