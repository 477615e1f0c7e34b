"""Attention over spans: the kernels, one forward and two backward. Not measured on a GPU.

A program holds a block of queries (or of keys) and walks over tiles of the other side. Tiles wholly inside a strand
take a loop without masks, tiles across its edge one with them, nothing else is visited. Queries and keys come in as the
model made them and are turned here, tile by tile; keys that stand still, as the far ones of ReRoPE do, are not.

The forward kernel goes through all strands with one running softmax, so that nothing is merged. The backward kernels
take one strand at a time, which needs half the registers, and add to what the strands before it gave.

Legend: b batch, h query head, g key head, i query, j key, s strand.
"""

from typing import NamedTuple

import triton
import triton.language as tl

from ropewalk.attention.backends.triton.tiles import (
    add,
    add_vectors,
    column_angles,
    column_of,
    edge,
    head_of,
    inputs_of,
    keep,
    logits,
    part,
    rotated,
    row_angles,
    row_of,
    tile_range_of,
    vectors,
)

HIDDEN = tl.constexpr(float("-inf"))
LN2 = tl.constexpr(0.6931471805599453)


class OutputGradient(NamedTuple):
    """What the backward pass knows of queries: the gradient of their answer, its log-sum-exp, gradient times answer."""

    grad: tl.tensor
    lse: tl.tensor
    delta: tl.tensor


@triton.jit
def _absorbed(top, total, answer, text, row, s, j, EDGE: tl.constexpr, TURN: tl.constexpr, shape: tl.constexpr):
    """The running softmax with one more tile of keys: its largest logit, its sum, the weighted values."""
    logit = logits(text, row, column_of(text, s, j, EDGE, TURN, shape), EDGE, 0, shape)
    higher = tl.maximum(top, tl.max(logit, 1))
    shift = higher
    if EDGE:
        shift = tl.where(higher == HIDDEN, 0.0, higher)
    weight, fade = tl.exp2(logit - shift[:, None]), tl.exp2(top - shift)
    value = part(text.v, text.v_head, j, text.lengths.keys, shape.keys, EDGE, shape.values)
    answer = tl.dot(weight.to(value.dtype), value, answer * fade[:, None], input_precision="ieee")
    return higher, total * fade + tl.sum(weight, 1), answer


@triton.jit
def _read(top, total, answer, text, row, s, walks, block, TURN: tl.constexpr, shape: tl.constexpr):
    """The running softmax with all that a block of queries sees in strand s."""
    first, inner, outer, last = tile_range_of(walks, s, block)
    for j in range(inner, outer, shape.keys):
        top, total, answer = _absorbed(top, total, answer, text, row, s, j, False, TURN, shape)
    for step in range((inner - first) // shape.keys + (last - outer) // shape.keys):
        j = edge(step, first, inner, outer, shape.keys)
        top, total, answer = _absorbed(top, total, answer, text, row, s, j, True, TURN, shape)
    return top, total, answer


@triton.jit(do_not_specialize=["lengths"])
def forward(q, k, v, factor, line, spans, walks, lengths, out, lse, shape: tl.constexpr):
    """The answers of a block of queries, and the logarithm (of base 2) of what they were divided by."""
    block = tl.num_programs(0) - 1 - tl.program_id(0)  # the rows that see most begin first
    first, h, b = block * shape.rows, tl.program_id(1), tl.program_id(2)
    text = inputs_of(q, k, v, factor, line, spans, lengths, b, h, h // shape.members)
    top = tl.full([shape.rows], HIDDEN, tl.float32)
    total = tl.full([shape.rows], 0.0, tl.float32)
    answer = tl.full([shape.rows, shape.values.wide], 0.0, tl.float32)
    for s in range(lengths.strands):
        row = row_of(text, s, first, True, shape.q_turns, shape)
        if shape.k_turns and tl.load(spans.k_first + s) >= 0:
            top, total, answer = _read(top, total, answer, text, row, s, walks, block, True, shape)
        else:
            top, total, answer = _read(top, total, answer, text, row, s, walks, block, False, shape)
    seeing = total > 0
    sure = tl.where(seeing, total, 1.0)
    keep(out, head_of(out, b, h), answer / sure[:, None], first, lengths.queries, shape.rows, shape.values)
    i = first + tl.arange(0, shape.rows)
    tl.store(head_of(lse, b, h) + i, tl.where(seeing, top + tl.log2(sure), HIDDEN), mask=i < lengths.queries)


@triton.jit
def _slope_of(slopes, b, h, first, count, EDGE: tl.constexpr, shape: tl.constexpr):
    """Of a block of queries; one that sees nothing has all its logits hidden, so any finite log-sum-exp will do."""
    i = first + tl.arange(0, shape.rows)
    lse = tl.load(head_of(slopes.lse, b, h) + i, mask=i < count, other=0.0)
    delta = tl.load(head_of(slopes.delta, b, h) + i, mask=i < count, other=0.0)
    grad = part(slopes.grad, head_of(slopes.grad, b, h), first, count, shape.rows, EDGE, shape.values)
    return OutputGradient(grad, tl.where(lse == HIDDEN, 0.0, lse), delta)


@triton.jit
def _added(by_a, by_b, by_c, by_logit, other, shape: tl.constexpr):
    """A gradient in three parts, with what one more tile of the other side gives."""
    by_logit = by_logit.to(other.a.dtype)
    by_a = tl.dot(by_logit, other.a, by_a, input_precision="ieee")
    by_b = tl.dot(by_logit, other.b, by_b, input_precision="ieee")
    if shape.still.size > 0:
        by_c = tl.dot(by_logit, other.c, by_c, input_precision="ieee")
    return by_a, by_b, by_c


@triton.jit
def _by_query(by_a, by_b, by_c, text, row, slope, s, j, EDGE: tl.constexpr, shape: tl.constexpr):
    """The gradient of turned queries, but for their factor, with one more tile of keys."""
    column = column_of(text, s, j, EDGE, shape.k_turns, shape)
    weight = tl.exp2(logits(text, row, column, EDGE, 0, shape) - slope.lse[:, None])
    value = part(text.v, text.v_head, j, text.lengths.keys, shape.keys, EDGE, shape.values)
    by_weight = tl.dot(slope.grad, tl.trans(value), input_precision="ieee")
    return _added(by_a, by_b, by_c, weight * (by_weight - slope.delta[:, None]), column, shape)


@triton.jit(do_not_specialize=["lengths", "s"])
def backward_queries(
    q, k, v, factor, line, spans, walks, lengths, s, grad, lse, delta, by_q, by_factor, shape: tl.constexpr
):
    """What strand s adds to the gradients of a block of queries and of their factors."""
    block = tl.num_programs(0) - 1 - tl.program_id(0)
    first, h, b = block * shape.rows, tl.program_id(1), tl.program_id(2)
    begin, inner, outer, last = tile_range_of(walks, s, block)
    if begin < last:
        text = inputs_of(q, k, v, factor, line, spans, lengths, b, h, h // shape.members)
        slope = _slope_of(OutputGradient(grad, lse, delta), b, h, first, lengths.queries, True, shape)
        row = row_of(text, s, first, True, shape.q_turns, shape)
        by_a = tl.full([shape.rows, shape.firsts.wide], 0.0, tl.float32)
        by_b, by_c = by_a, tl.full([shape.rows, shape.still.wide], 0.0, tl.float32)
        for j in range(inner, outer, shape.keys):
            by_a, by_b, by_c = _by_query(by_a, by_b, by_c, text, row, slope, s, j, False, shape)
        for step in range((inner - begin) // shape.keys + (last - outer) // shape.keys):
            j = edge(step, begin, inner, outer, shape.keys)
            by_a, by_b, by_c = _by_query(by_a, by_b, by_c, text, row, slope, s, j, True, shape)
        if shape.q_turns:
            cos, sin = row_angles(text, s, first, row.start, row.stop, shape)
            by_a, by_b = rotated(by_a, by_b, cos, -sin)
        _finish_queries(text, row.factor, by_a, by_b, by_c, by_q, by_factor, first, b, h, shape)


@triton.jit
def _finish_queries(text, factor, by_a, by_b, by_c, by_q, by_factor, first, b, h, shape: tl.constexpr):
    """A factor's gradient is its query times the query's gradient but for the factor."""
    a, b_, c = vectors(text.q, text.q_head, first, text.lengths.queries, shape.rows, True, shape)
    by_own = tl.sum(by_a * a, 1) + tl.sum(by_b * b_, 1)
    if shape.still.size > 0:
        by_own += tl.sum(by_c * c, 1)
    i = first + tl.arange(0, shape.rows)
    place, real = head_of(by_factor, b, h) + i, i < text.lengths.queries
    tl.store(place, tl.load(place, mask=real, other=0.0) + by_own, mask=real)
    own = (factor * LN2)[:, None]
    add_vectors(
        by_q, head_of(by_q, b, h), by_a * own, by_b * own, by_c * own, first, text.lengths.queries, shape.rows, shape
    )


@triton.jit
def _by_key(by_a, by_b, by_c, by_v, text, column, value, slopes, s, b, h, i, EDGE: tl.constexpr, shape: tl.constexpr):
    """The gradients of turned keys and of values, with one more tile of queries. Tiles lie keys first."""
    row = row_of(text, s, i, EDGE, shape.q_turns, shape)
    slope = _slope_of(slopes, b, h, i, text.lengths.queries, EDGE, shape)
    weight = tl.exp2(logits(text, row, column, EDGE, 1, shape) - slope.lse[None, :])
    by_v = tl.dot(weight.to(slope.grad.dtype), slope.grad, by_v, input_precision="ieee")
    by_weight = tl.dot(value, tl.trans(slope.grad), input_precision="ieee")
    by_logit = weight * (by_weight - slope.delta[None, :]) * (row.factor * LN2)[None, :]
    by_a, by_b, by_c = _added(by_a, by_b, by_c, by_logit, row, shape)
    return by_a, by_b, by_c, by_v


@triton.jit(do_not_specialize=["lengths", "s"])
def backward_keys(q, k, v, factor, line, spans, walks, lengths, s, grad, lse, delta, by_k, by_v, shape: tl.constexpr):
    """What strand s adds to the gradients of a block of keys and values, from all query heads that share them."""
    first, g, b = tl.program_id(0) * shape.keys, tl.program_id(1), tl.program_id(2)
    begin, inner, outer, last = tile_range_of(walks, s, tl.program_id(0))
    if begin < last:
        slopes = OutputGradient(grad, lse, delta)
        text = inputs_of(q, k, v, factor, line, spans, lengths, b, g * shape.members, g)
        column = column_of(text, s, first, True, shape.k_turns, shape)
        value = part(v, text.v_head, first, lengths.keys, shape.keys, True, shape.values)
        by_a = tl.full([shape.keys, shape.firsts.wide], 0.0, tl.float32)
        by_b, by_c = by_a, tl.full([shape.keys, shape.still.wide], 0.0, tl.float32)
        sum_v = tl.full([shape.keys, shape.values.wide], 0.0, tl.float32)
        for h in range(g * shape.members, (g + 1) * shape.members):
            own = inputs_of(q, k, v, factor, line, spans, lengths, b, h, g)
            for i in range(inner, outer, shape.rows):
                by_a, by_b, by_c, sum_v = _by_key(
                    by_a, by_b, by_c, sum_v, own, column, value, slopes, s, b, h, i, False, shape
                )
            for step in range((inner - begin) // shape.rows + (last - outer) // shape.rows):
                i = edge(step, begin, inner, outer, shape.rows)
                by_a, by_b, by_c, sum_v = _by_key(
                    by_a, by_b, by_c, sum_v, own, column, value, slopes, s, b, h, i, True, shape
                )
        if shape.k_turns:
            cos, sin = column_angles(text, s, first, shape)
            by_a, by_b = rotated(by_a, by_b, cos, -sin)
        add_vectors(by_k, head_of(by_k, b, g), by_a, by_b, by_c, first, lengths.keys, shape.keys, shape)
        add(by_v, head_of(by_v, b, g), sum_v, first, lengths.keys, shape.keys, shape.values)
