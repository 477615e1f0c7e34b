"""One entry: attention under any extension, exact, by the fastest way that carries it.

Legend: b batch, h query head, g key head, i query, j key, d head dimension.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import torch
from torch import Tensor

from ropewalk.attention.choose import Choice, choose, choose_on_cuda
from ropewalk.attention.direct import direct
from ropewalk.attention.flash import flash
from ropewalk.attention.fused_spans import fused_spans, plan_for, refusal
from ropewalk.attention.kernels import fused
from ropewalk.attention.precision import wide
from ropewalk.attention.strands import Strand, strands
from ropewalk.attention.texts import Text, cut, joined, texts
from ropewalk.attention.toeplitz import diagonal, toeplitz
from ropewalk.attention.variants import variants
from ropewalk.extension import Extension
from ropewalk.facts import Facts
from ropewalk.inputs import in_force, number_keys, require_kinship, require_shapes
from ropewalk.spec import Weights


def attend(
    q_bhid: Tensor,
    k_bgjd: Tensor,
    v_bgjd: Tensor,
    extension: Extension,
    facts: Facts,
    *,
    positions_bj: Tensor | None = None,
    documents_bj: Tensor | None = None,
    layer: int | None = None,
    weights: Mapping[str, Weights] | None = None,
) -> Tensor:
    """What `reference_attention` defines, in the type of what comes in: same arguments, same answer."""
    extension, found = _prepared(q_bhid, k_bgjd, v_bgjd, extension, facts, positions_bj, documents_bj, layer, weights)
    before = k_bgjd.shape[2] - q_bhid.shape[2]
    queries = cut(q_bhid, found, [text.asked(before) for text in found])
    keys, values = (cut(x, found, [text.slots for text in found]) for x in (k_bgjd, v_bgjd))
    with torch.autocast(q_bhid.device.type, enabled=False):
        answers = [
            _attend_text(q, k, v, text, extension, facts, weights or {})
            for q, k, v, text in zip(queries, keys, values, found, strict=True)
        ]
    shape = (*q_bhid.shape[:3], v_bgjd.shape[-1])
    return joined(answers, found, [text.asked(before) for text in found], v_bgjd.new_zeros(shape))


def explain(
    q_bhid: Tensor,
    k_bgjd: Tensor,
    v_bgjd: Tensor,
    extension: Extension,
    facts: Facts,
    *,
    positions_bj: Tensor | None = None,
    documents_bj: Tensor | None = None,
    layer: int | None = None,
    weights: Mapping[str, Weights] | None = None,
) -> str:
    """Which way `attend` would take with the same arguments, text by text, and why. Nothing is computed."""
    extension, found = _prepared(q_bhid, k_bgjd, v_bgjd, extension, facts, positions_bj, documents_bj, layer, weights)
    lines = []
    for text in found:
        backend, why, _ = _choice(q_bhid, v_bgjd, text, _strands(text, extension, facts), extension, weights or {})
        rows = f"{len(text.batch)} row{'s' * (len(text.batch) > 1)}"
        lines.append(f"{rows}, {text.queries} queries, {len(text.numbers)} keys: {backend}: {why}")
    return "\n".join(lines)


def _prepared(
    q_bhid: Tensor,
    k_bgjd: Tensor,
    v_bgjd: Tensor,
    extension: Extension,
    facts: Facts,
    positions_bj: Tensor | None,
    documents_bj: Tensor | None,
    layer: int | None,
    weights: Mapping[str, Weights] | None,
) -> tuple[Extension, list[Text]]:
    """Everything checked before any work, the layer's extension, and the batch as texts."""
    require_shapes(q_bhid, k_bgjd, v_bgjd, facts)
    require_kinship(q_bhid, k_bgjd, v_bgjd)
    extension = in_force(extension, facts, layer, weights or {})
    numbers_bj = number_keys(k_bgjd, positions_bj, documents_bj, extension)
    return extension, texts(numbers_bj, documents_bj, q_bhid.shape[2])


def _strands(text: Text, extension: Extension, facts: Facts) -> list[Strand]:
    return strands(extension, facts, text.asking, text.numbers)


def _attend_text(
    q_bhid: Tensor,
    k_bgjd: Tensor,
    v_bgjd: Tensor,
    text: Text,
    extension: Extension,
    facts: Facts,
    weights: Mapping[str, Weights],
) -> Tensor:
    """The queries of one text, in every batch row that holds it."""
    i = text.asking.to(q_bhid.device)
    found = _strands(text, extension, facts)
    choice = _choice(q_bhid, v_bgjd, text, found, extension, weights)
    bias = partial(_bias, extension, facts, weights)
    if choice.backend == "triton":
        scale_hi = _scale(i, extension, facts, weights)
        line = (lambda far: bias(far, far)) if extension.biases else None
        plan = plan_for(found, q_bhid, v_bgjd, facts.interleaved)
        return fused_spans(q_bhid, k_bgjd, v_bgjd, plan, scale_hi, line)
    precision = torch.float64 if choice.double else q_bhid.dtype
    q_bhid = _scaled(q_bhid.to(precision), i, extension, facts, weights)
    turned = variants(q_bhid, k_bgjd.to(precision), found, facts.interleaved)

    def bias_of(shown_ij: Tensor, rows: slice) -> Tensor:
        return bias(shown_ij, i[rows, None].expand_as(shown_ij))

    if choice.backend == "flash":
        return flash(turned.q, turned.k, v_bgjd, turned.jobs)
    if choice.backend == "toeplitz":
        own = [diagonal(strand, text.queries, len(text.numbers)) for strand in found]
        copies = [(turned.q[job.q], turned.k[job.k]) for job in turned.jobs]
        return toeplitz(copies, v_bgjd, [each for each in own if each], lambda far: bias(far, far).detach())
    return direct(turned, v_bgjd, found, bias_of if extension.biases else None).to(v_bgjd.dtype)


def _choice(
    q_bhid: Tensor,
    v_bgjd: Tensor,
    text: Text,
    found: list[Strand],
    extension: Extension,
    weights: Mapping[str, Weights],
) -> Choice:
    """The way this text goes; what learned biases want gradients for has a say in it."""
    groups = [weights.get(spec.name, {}) for spec in extension.biases]
    learning = torch.is_grad_enabled() and any(value.requires_grad for group in groups for value in group.values())
    choice = choose(extension, found, text.queries, len(text.numbers), learning, q_bhid.dtype)
    if choice.backend != "direct" and v_bgjd.shape[-1] != q_bhid.shape[-1]:
        choice = Choice("direct", "the fused kernels want values of the queries' size")
    has_kernel = fused(q_bhid.device.type, q_bhid.dtype)
    if q_bhid.device.type == "cuda":
        choice = choose_on_cuda(choice, has_kernel, refusal(q_bhid, v_bgjd, found, extension.biases, learning))
    if choice.backend in ("flash", "toeplitz") and not has_kernel:
        why = f"{choice.why}; torch has no such kernel for {q_bhid.dtype} on {q_bhid.device.type}: a matmul stands in"
        return choice._replace(why=why)
    return choice


def _bias(
    extension: Extension, facts: Facts, weights: Mapping[str, Weights], distance: Tensor, query: Tensor
) -> Tensor:
    """The sum of the biases at these distances, a head dimension first, in float64."""
    each = [spec.bias(distance, query, facts, weights.get(spec.name, {})) for spec in extension.biases]
    return torch.stack(each).sum(0)


def _scale(i: Tensor, extension: Extension, facts: Facts, weights: Mapping[str, Weights]) -> Tensor:
    """The product of the scales, one factor per head (or one for all) and query."""
    scale_hi = torch.ones_like(i, dtype=torch.float64)[None]
    for spec in extension.scales:
        scale_hi = scale_hi * spec.scale(i, facts, weights.get(spec.name, {}))
    return scale_hi


def _scaled(q_bhid: Tensor, i: Tensor, extension: Extension, facts: Facts, weights: Mapping[str, Weights]) -> Tensor:
    """The scales, folded into the queries."""
    working = wide(q_bhid.dtype)
    for spec in extension.scales:
        scale_hi = spec.scale(i, facts, weights.get(spec.name, {}))
        q_bhid = (q_bhid * scale_hi[:, :, None].to(working)).to(q_bhid.dtype)
    return q_bhid
