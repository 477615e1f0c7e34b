"""How a model of the zoo is measured: the same last tokens after more and more context."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import GPT2LMHeadModel, PreTrainedModel

from ropewalk import convert, extended, load
from ropewalk.hf.checkpoint.fetch import fetch_tokenizer
from ropewalk.measure.metrics.losses import TokenLosses, repeat_texts, token_losses
from ropewalk.methods.surgery import MHAToGQA, StretchPositions
from ropewalk.train.recipes.pretrain import extension_for
from ropewalk.train.small_models import ModelShape, with_sinusoids

from studies.zoo.figures import ACCURACY, FAR, LOSS, OF_TEXTS, PLAIN, REPEATED
from studies.zoo.inside.attention_shares import near_share, sink_share
from studies.zoo.inside.bias_angles import bias_cosines
from studies.zoo.inside.entropies import entropies
from studies.zoo.inside.logit_terms import logit_terms
from studies.zoo.inside.state_positions import position_errors
from studies.zoo.inside.window_reach import window_reach
from studies.zoo.methods import ZooMethod, window_of

TIMES = (1, 2, 3, 4, 8, 10)  # the trained length
FAR_TIMES, FAR_BACK = 8, 4  # of text whose last trained length stands in it once before, so far back


def measured(folder: Path, method: ZooMethod, held_out: Tensor, shape: ModelShape) -> dict[str, Any]:
    """All that is measured of a model: its figures, and of some what is inside."""
    model = load(folder)
    if method.of and method.kv_heads:
        model = convert(model, MHAToGQA(kv_heads=method.kv_heads))
    length = shape.trained_len
    inside: dict[str, Callable[[], Any]] = {
        "logit_terms": lambda: logit_terms(model, held_out, length),
        "bias_angles": lambda: bias_cosines(model, held_out, length),
        "entropies": lambda: entropies(model, method.line(shape), held_out, length),
        "reach": lambda: window_reach(model, held_out, window_of(shape), shape.layers),
        "sink": lambda: sink_share(model, held_out, length),
        "near": lambda: near_share(model, held_out, length),
        "state_positions": lambda: position_errors(model, held_out, length),
    }
    figures = _figures(model, folder, method, held_out, shape)
    return {"figures": figures, **{name: inside[name]() for name in method.inside}}


def _figures(
    model: PreTrainedModel, folder: Path, method: ZooMethod, held_out: Tensor, shape: ModelShape
) -> list[dict[str, Any]]:
    """Each reading: the accuracy and loss of the last tokens of each text, and their means."""
    rows, last = [], shape.trained_len - 1
    tokenizer = fetch_tokenizer(folder)
    newline = tokenizer.encode("\n", add_special_tokens=False)[0]
    for times, kind, ids in _readings(held_out, shape.trained_len):
        begun = _begun(ids, method, marker=tokenizer.eos_token_id, newline=newline)
        read = _read(model, method, begun, shape)
        of_texts = read.hits_bn[:, -last:].double().mean(1).tolist()
        row = {"times": times, "kind": kind, ACCURACY: read.accuracy(last), LOSS: read.loss(last)}
        rows.append({**row, OF_TEXTS: [round(share, 6) for share in of_texts]})
    return rows


def _readings(held_out: Tensor, trained_len: int) -> Iterator[tuple[int, str, Tensor]]:
    """The same last tokens after more and more context; the beginning of each text repeated; and the same last tokens
    where they stand in the text once before."""
    for times in TIMES:
        yield times, PLAIN, held_out[:, -times * trained_len :]
        yield times, REPEATED, repeat_texts(held_out[:, :trained_len], times * trained_len)
    yield FAR_TIMES, FAR, _repeated_from_afar(held_out[:, -FAR_TIMES * trained_len :], trained_len)


def _repeated_from_afar(ids_bn: Tensor, trained_len: int) -> Tensor:
    """Texts whose last trained length also stands some trained lengths before."""
    far, back = ids_bn.clone(), FAR_BACK * trained_len
    far[:, -back - trained_len : -back] = ids_bn[:, -trained_len:]
    return far


def _begun(ids_bn: Tensor, method: ZooMethod, *, marker: int, newline: int) -> Tensor:
    """Texts with the beginning that a method asks for, in place of their own first tokens."""
    begun = ids_bn.clone()
    begun[:, : method.newlines] = newline
    begun[:, : int(method.marked)] = marker
    return begun


def _read(model: PreTrainedModel, method: ZooMethod, ids_bn: Tensor, shape: ModelShape) -> TokenLosses:
    """Under what the model was trained with or, where it was trained as another, under the schedule for this length."""
    length = ids_bn.shape[1]
    line = method.line(shape, length // shape.trained_len)
    if isinstance(model, GPT2LMHeadModel) and method.shaped(shape).places == "sinusoidal":
        return token_losses(with_sinusoids(model, length), ids_bn)
    if method.stretched and length > shape.trained_len:
        return token_losses(convert(model, StretchPositions(target_len=length)), ids_bn)
    if not method.of:
        return token_losses(model, ids_bn, numbering=extension_for(method.shaped(shape), line).positions)
    if length == shape.trained_len or not line:
        return token_losses(model, ids_bn)
    with torch.no_grad(), extended(model, line, target_len=length):
        return token_losses(model, ids_bn)
