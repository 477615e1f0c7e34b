"""Attention over spans: the kernels, one forward and two backward. Not measured on a GPU.

A program holds a block of queries (or of keys) and loops over tiles of the other side. Tiles wholly inside a segment
take a loop without masks, tiles across its edge one with masks; no other tile is visited. Queries and keys come in as
the model computed them and are rotated here, tile by tile; keys at position 0, as the far ones of ReRoPE, are not.

The forward kernel runs through all segments with one running softmax, so that nothing is merged. The backward kernels
take one segment at a time, which needs half the registers, and add to the gradients of the segments before it.

Legend: b batch, h query head, g key head, i query, j key, s segment.
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
    logits,
    part,
    rotated,
    row_angles,
    row_of,
    store,
    tile_range_of,
    vectors,
)

HIDDEN = tl.constexpr(float("-inf"))
LN2 = tl.constexpr(0.6931471805599453)


class OutputGradient(NamedTuple):
    """The queries' side of the backward pass: the output's gradient, its log-sum-exp, gradient times output."""

    grad: tl.tensor
    lse: tl.tensor
    delta: tl.tensor


@triton.jit
def _absorbed(top, total, output, inputs, row, s, j, EDGE: tl.constexpr, ROTATE: tl.constexpr, shape: tl.constexpr):
    """The running softmax with one more tile of keys: its largest logit, its sum, the weighted values."""
    logit = logits(inputs, row, column_of(inputs, s, j, EDGE, ROTATE, shape), EDGE, 0, shape)
    higher = tl.maximum(top, tl.max(logit, 1))
    shift = higher
    if EDGE:
        shift = tl.where(higher == HIDDEN, 0.0, higher)
    weight, fade = tl.exp2(logit - shift[:, None]), tl.exp2(top - shift)
    value = part(inputs.v, inputs.v_head, j, inputs.lengths.keys, shape.keys, EDGE, "values", shape)
    output = tl.dot(weight.to(value.dtype), value, output * fade[:, None], input_precision="ieee")
    return higher, total * fade + tl.sum(weight, 1), output


@triton.jit
def _read(top, total, output, inputs, row, s, ranges, block, ROTATE: tl.constexpr, shape: tl.constexpr):
    """The running softmax with all that a block of queries sees in segment s."""
    first, inner, outer, last = tile_range_of(ranges, s, block)
    for j in range(inner, outer, shape.keys):
        top, total, output = _absorbed(top, total, output, inputs, row, s, j, False, ROTATE, shape)
    for step in range((inner - first) // shape.keys + (last - outer) // shape.keys):
        j = edge(step, first, inner, outer, shape.keys)
        top, total, output = _absorbed(top, total, output, inputs, row, s, j, True, ROTATE, shape)
    return top, total, output


@triton.jit(do_not_specialize=["lengths"])
def forward(q, k, v, factor, line, spans, ranges, lengths, out, lse, shape: tl.constexpr):
    """The output of a block of queries, and its log-sum-exp in base 2."""
    block = tl.num_programs(0) - 1 - tl.program_id(0)  # the rows that see most keys start first
    first, h, b = block * shape.rows, tl.program_id(1), tl.program_id(2)
    inputs = inputs_of(q, k, v, factor, line, spans, lengths, b, h, h // shape.members)
    top = tl.full([shape.rows], HIDDEN, tl.float32)
    total = tl.full([shape.rows], 0.0, tl.float32)
    output = tl.full([shape.rows, shape.values.wide], 0.0, tl.float32)
    for s in range(lengths.segments):
        row = row_of(inputs, s, first, True, shape.q_rotates, shape)
        if shape.k_rotates and tl.load(spans.k_first + s) >= 0:
            top, total, output = _read(top, total, output, inputs, row, s, ranges, block, True, shape)
        else:
            top, total, output = _read(top, total, output, inputs, row, s, ranges, block, False, shape)
    seeing = total > 0
    sure = tl.where(seeing, total, 1.0)
    store(out, head_of(out, b, h), output / sure[:, None], first, lengths.queries, shape.rows, "values", shape)
    i = first + tl.arange(0, shape.rows)
    tl.store(head_of(lse, b, h) + i, tl.where(seeing, top + tl.log2(sure), HIDDEN), mask=i < lengths.queries)


@triton.jit
def _slope_of(slopes, b, h, first, count, EDGE: tl.constexpr, shape: tl.constexpr):
    """A block of queries. One that sees nothing has all its logits hidden, so any finite log-sum-exp will do."""
    i = first + tl.arange(0, shape.rows)
    lse = tl.load(head_of(slopes.lse, b, h) + i, mask=i < count, other=0.0)
    delta = tl.load(head_of(slopes.delta, b, h) + i, mask=i < count, other=0.0)
    grad = part(slopes.grad, head_of(slopes.grad, b, h), first, count, shape.rows, EDGE, "values", shape)
    return OutputGradient(grad, tl.where(lse == HIDDEN, 0.0, lse), delta)


@triton.jit
def _added(by_a, by_b, by_c, by_logit, other, shape: tl.constexpr):
    """A gradient in three parts, with one more tile of the other side added."""
    by_logit = by_logit.to(other.a.dtype)
    by_a = tl.dot(by_logit, other.a, by_a, input_precision="ieee")
    by_b = tl.dot(by_logit, other.b, by_b, input_precision="ieee")
    if shape.unrotated.size > 0:
        by_c = tl.dot(by_logit, other.c, by_c, input_precision="ieee")
    return by_a, by_b, by_c


@triton.jit
def _by_query(by_a, by_b, by_c, inputs, row, slope, s, j, EDGE: tl.constexpr, shape: tl.constexpr):
    """The gradient of rotated queries, without their factor, with one more tile of keys."""
    column = column_of(inputs, s, j, EDGE, shape.k_rotates, shape)
    weight = tl.exp2(logits(inputs, row, column, EDGE, 0, shape) - slope.lse[:, None])
    value = part(inputs.v, inputs.v_head, j, inputs.lengths.keys, shape.keys, EDGE, "values", shape)
    by_weight = tl.dot(slope.grad, tl.trans(value), input_precision="ieee")
    return _added(by_a, by_b, by_c, weight * (by_weight - slope.delta[:, None]), column, shape)


@triton.jit(do_not_specialize=["lengths", "s"])
def backward_queries(
    q, k, v, factor, line, spans, ranges, lengths, s, grad, lse, delta, by_q, by_factor, shape: tl.constexpr
):
    """Add segment s to the gradients of a block of queries and of their factors."""
    block = tl.num_programs(0) - 1 - tl.program_id(0)
    first, h, b = block * shape.rows, tl.program_id(1), tl.program_id(2)
    begin, inner, outer, last = tile_range_of(ranges, s, block)
    if begin < last:
        inputs = inputs_of(q, k, v, factor, line, spans, lengths, b, h, h // shape.members)
        slope = _slope_of(OutputGradient(grad, lse, delta), b, h, first, lengths.queries, True, shape)
        row = row_of(inputs, s, first, True, shape.q_rotates, shape)
        by_a = tl.full([shape.rows, shape.firsts.wide], 0.0, tl.float32)
        by_b, by_c = by_a, tl.full([shape.rows, shape.unrotated.wide], 0.0, tl.float32)
        for j in range(inner, outer, shape.keys):
            by_a, by_b, by_c = _by_query(by_a, by_b, by_c, inputs, row, slope, s, j, False, shape)
        for step in range((inner - begin) // shape.keys + (last - outer) // shape.keys):
            j = edge(step, begin, inner, outer, shape.keys)
            by_a, by_b, by_c = _by_query(by_a, by_b, by_c, inputs, row, slope, s, j, True, shape)
        if shape.q_rotates:
            cos, sin = row_angles(inputs, s, first, row.start, row.stop, shape)
            by_a, by_b = rotated(by_a, by_b, cos, -sin)
        _finish_queries(inputs, row.factor, by_a, by_b, by_c, by_q, by_factor, first, b, h, shape)


@triton.jit
def _finish_queries(inputs, factor, by_a, by_b, by_c, by_q, by_factor, first, b, h, shape: tl.constexpr):
    """A factor's gradient is its query times the query's gradient without the factor."""
    a, b_, c = vectors(inputs.q, inputs.q_head, first, inputs.lengths.queries, shape.rows, True, shape)
    by_scale = tl.sum(by_a * a, 1) + tl.sum(by_b * b_, 1)
    if shape.unrotated.size > 0:
        by_scale += tl.sum(by_c * c, 1)
    i = first + tl.arange(0, shape.rows)
    place, real = head_of(by_factor, b, h) + i, i < inputs.lengths.queries
    tl.store(place, tl.load(place, mask=real, other=0.0) + by_scale, mask=real)
    scale = (factor * LN2)[:, None]
    add_vectors(
        by_q,
        head_of(by_q, b, h),
        by_a * scale,
        by_b * scale,
        by_c * scale,
        first,
        inputs.lengths.queries,
        shape.rows,
        shape,
    )


@triton.jit
def _by_key(by_a, by_b, by_c, by_v, inputs, column, value, slopes, s, b, h, i, EDGE: tl.constexpr, shape: tl.constexpr):
    """The gradients of rotated keys and of values, with one more tile of queries. Keys are the tiles' first axis."""
    row = row_of(inputs, s, i, EDGE, shape.q_rotates, shape)
    slope = _slope_of(slopes, b, h, i, inputs.lengths.queries, EDGE, shape)
    weight = tl.exp2(logits(inputs, row, column, EDGE, 1, shape) - slope.lse[None, :])
    by_v = tl.dot(weight.to(slope.grad.dtype), slope.grad, by_v, input_precision="ieee")
    by_weight = tl.dot(value, tl.trans(slope.grad), input_precision="ieee")
    by_logit = weight * (by_weight - slope.delta[None, :]) * (row.factor * LN2)[None, :]
    by_a, by_b, by_c = _added(by_a, by_b, by_c, by_logit, row, shape)
    return by_a, by_b, by_c, by_v


@triton.jit(do_not_specialize=["lengths", "s"])
def backward_keys(q, k, v, factor, line, spans, ranges, lengths, s, grad, lse, delta, by_k, by_v, shape: tl.constexpr):
    """Add segment s to the gradients of a block of keys and values, from all query heads that share them."""
    first, g, b = tl.program_id(0) * shape.keys, tl.program_id(1), tl.program_id(2)
    begin, inner, outer, last = tile_range_of(ranges, s, tl.program_id(0))
    if begin < last:
        slopes = OutputGradient(grad, lse, delta)
        inputs = inputs_of(q, k, v, factor, line, spans, lengths, b, g * shape.members, g)
        column = column_of(inputs, s, first, True, shape.k_rotates, shape)
        value = part(v, inputs.v_head, first, lengths.keys, shape.keys, True, "values", shape)
        by_a = tl.full([shape.keys, shape.firsts.wide], 0.0, tl.float32)
        by_b, by_c = by_a, tl.full([shape.keys, shape.unrotated.wide], 0.0, tl.float32)
        sum_v = tl.full([shape.keys, shape.values.wide], 0.0, tl.float32)
        for h in range(g * shape.members, (g + 1) * shape.members):
            of_head = inputs_of(q, k, v, factor, line, spans, lengths, b, h, g)
            for i in range(inner, outer, shape.rows):
                by_a, by_b, by_c, sum_v = _by_key(
                    by_a, by_b, by_c, sum_v, of_head, column, value, slopes, s, b, h, i, False, shape
                )
            for step in range((inner - begin) // shape.rows + (last - outer) // shape.rows):
                i = edge(step, begin, inner, outer, shape.rows)
                by_a, by_b, by_c, sum_v = _by_key(
                    by_a, by_b, by_c, sum_v, of_head, column, value, slopes, s, b, h, i, True, shape
                )
        if shape.k_rotates:
            cos, sin = column_angles(inputs, s, first, shape)
            by_a, by_b = rotated(by_a, by_b, cos, -sin)
        add_vectors(by_k, head_of(by_k, b, g), by_a, by_b, by_c, first, lengths.keys, shape.keys, shape)
        add(by_v, head_of(by_v, b, g), sum_v, first, lengths.keys, shape.keys, "values", shape)
