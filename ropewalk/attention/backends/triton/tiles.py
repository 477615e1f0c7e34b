"""The parts of the triton kernels: a block of queries or keys as a segment sees it, and their logits.

A vector is held in three parts: the firsts of its pairs, their seconds, and the dimensions without rotation. So
rotation needs no exchange between threads, and the layout of pairs only decides where they are loaded from. Logits are
in powers of two. Only this file and `kernels` import triton.

Legend: b batch, h query head, g key head, i query, j key, s segment.
"""

from typing import NamedTuple

import triton
import triton.language as tl

HIDDEN = tl.constexpr(float("-inf"))


class ProgramInputs(NamedTuple):
    """What a program reads: its head of the queries, keys and values, and the segments."""

    q: tl.tensor
    q_head: tl.tensor
    k: tl.tensor
    k_head: tl.tensor
    v: tl.tensor
    v_head: tl.tensor
    factor: tl.tensor
    line: tl.tensor
    spans: tl.tensor
    lengths: tl.tensor


class QueryBlock(NamedTuple):
    """Queries as one segment sees them: the three parts, the bounds of the keys they see, their position and factor."""

    a: tl.tensor
    b: tl.tensor
    c: tl.tensor
    start: tl.tensor
    stop: tl.tensor
    at: tl.tensor
    factor: tl.tensor


class KeyBlock(NamedTuple):
    """Keys as one segment sees them: the three parts, their index and their position."""

    a: tl.tensor
    b: tl.tensor
    c: tl.tensor
    j: tl.tensor
    at: tl.tensor


@triton.jit
def head_of(x, b, h):
    """Where a head begins; a batch may hold more numbers than 32 bits count."""
    return x.at + tl.cast(b, tl.int64) * x.batch + tl.cast(h, tl.int64) * x.head


@triton.jit
def inputs_of(q, k, v, factor, line, spans, lengths, b, h, g):
    """One query head of one batch row, and its key head."""
    lines = (head_of(factor, b, h), head_of(line, b, h))
    return ProgramInputs(q, head_of(q, b, h), k, head_of(k, b, g), v, head_of(v, b, g), *lines, spans, lengths)


# Vectors in memory.


@triton.jit
def _places(x, first, SIZE: tl.constexpr, PART: tl.constexpr, shape: tl.constexpr):
    """Where a part of SIZE vectors is within a head, and which of its columns are not padding. The part is named,
    since triton before 3.7 takes no part of a constant as an argument."""
    n, column = tl.arange(0, SIZE), tl.arange(0, getattr(shape, PART).wide)
    columns = getattr(shape, PART).begin + column * getattr(shape, PART).step
    place = tl.cast(first, tl.int64) * x.token + n[:, None] * x.token + columns[None, :]
    return place, (column < getattr(shape, PART).size)[None, :]


@triton.jit
def part(x, head, first, count, SIZE: tl.constexpr, EDGE: tl.constexpr, PART: tl.constexpr, shape: tl.constexpr):
    """A part of SIZE vectors, padded with zeros to a width that kernels can have."""
    place, real = _places(x, first, SIZE, PART, shape)
    if EDGE:
        tile = tl.load(head + place, mask=real & (first + tl.arange(0, SIZE) < count)[:, None], other=0.0)
    elif getattr(shape, PART).size < getattr(shape, PART).wide:
        tile = tl.load(head + place, mask=real, other=0.0)
    else:
        tile = tl.load(head + place)
    return tile


@triton.jit
def vectors(x, head, first, count, SIZE: tl.constexpr, EDGE: tl.constexpr, shape: tl.constexpr):
    """SIZE vectors in three parts; where all dimensions rotate, the third is the first, unused."""
    a = part(x, head, first, count, SIZE, EDGE, "firsts", shape)
    b = part(x, head, first, count, SIZE, EDGE, "seconds", shape)
    c = a
    if shape.unrotated.size > 0:
        c = part(x, head, first, count, SIZE, EDGE, "unrotated", shape)
    return a, b, c


@triton.jit
def store(x, head, tile, first, count, SIZE: tl.constexpr, PART: tl.constexpr, shape: tl.constexpr):
    """Store a part of SIZE vectors."""
    place, real = _places(x, first, SIZE, PART, shape)
    mask = real & (first + tl.arange(0, SIZE) < count)[:, None]
    tl.store(head + place, tile.to(x.at.dtype.element_ty), mask=mask)


@triton.jit
def add(x, head, tile, first, count, SIZE: tl.constexpr, PART: tl.constexpr, shape: tl.constexpr):
    """Add to a part of SIZE vectors, which no other program touches."""
    store(x, head, tile + part(x, head, first, count, SIZE, True, PART, shape), first, count, SIZE, PART, shape)


@triton.jit
def add_vectors(x, head, a, b, c, first, count, SIZE: tl.constexpr, shape: tl.constexpr):
    """Add to SIZE vectors, given in three parts."""
    add(x, head, a, first, count, SIZE, "firsts", shape)
    add(x, head, b, first, count, SIZE, "seconds", shape)
    if shape.unrotated.size > 0:
        add(x, head, c, first, count, SIZE, "unrotated", shape)


# Rotation.


@triton.jit
def _angles(table, first, visible, SIZE: tl.constexpr, shape: tl.constexpr):
    """cos and sin in SIZE rows of the table; 0 for rows that are not visible. Tables of many segments together may hold
    more numbers than 32 bits count."""
    pair, row = tl.arange(0, shape.firsts.wide), tl.arange(0, SIZE)
    begin = table + tl.cast(first, tl.int64) * (2 * shape.firsts.size)
    place = begin + (row[:, None] * (2 * shape.firsts.size) + pair[None, :])
    mask = visible[:, None] & (pair < shape.firsts.size)[None, :]
    return tl.load(place, mask=mask, other=0.0), tl.load(place + shape.firsts.size, mask=mask, other=0.0)


@triton.jit
def row_angles(inputs, s, first, start, stop, shape: tl.constexpr):
    """The angles of a block of queries."""
    row = tl.load(inputs.spans.q_first + s) + first
    return _angles(inputs.spans.q_rotations, row, start < stop, shape.rows, shape)


@triton.jit
def column_angles(inputs, s, first, shape: tl.constexpr):
    """The angles of a block of keys, as far as any query of the segment sees."""
    row = tl.load(inputs.spans.k_first + s) + first
    visible = first + tl.arange(0, shape.keys) < tl.load(inputs.spans.k_count + s)
    return _angles(inputs.spans.k_rotations, row, visible, shape.keys, shape)


@triton.jit
def rotated(a, b, cos, sin):
    """Each pair (a, b) after rotation, rounded once."""
    x, y = a.to(tl.float32), b.to(tl.float32)
    return (x * cos - y * sin).to(a.dtype), (x * sin + y * cos).to(b.dtype)


# Queries and keys as a segment sees them.


@triton.jit
def row_of(inputs, s, first, EDGE: tl.constexpr, ROTATE: tl.constexpr, shape: tl.constexpr):
    """A block of queries; those outside the segment see nothing."""
    i = first + tl.arange(0, shape.rows)
    place, real = s * inputs.lengths.queries + i, i < inputs.lengths.queries
    start = tl.load(inputs.spans.start + place, mask=real, other=0)
    stop = tl.load(inputs.spans.stop + place, mask=real, other=0)
    a, b, c = vectors(inputs.q, inputs.q_head, first, inputs.lengths.queries, shape.rows, EDGE, shape)
    if ROTATE:
        cos, sin = row_angles(inputs, s, first, start, stop, shape)
        a, b = rotated(a, b, cos, sin)
    at = start
    if shape.biased:
        at = tl.load(inputs.spans.q_at + place, mask=real, other=0)
    return QueryBlock(a, b, c, start, stop, at, tl.load(inputs.factor + i, mask=real, other=0.0))


@triton.jit
def column_of(inputs, s, first, EDGE: tl.constexpr, ROTATE: tl.constexpr, shape: tl.constexpr):
    """A block of keys."""
    j = first + tl.arange(0, shape.keys)
    a, b, c = vectors(inputs.k, inputs.k_head, first, inputs.lengths.keys, shape.keys, EDGE, shape)
    if ROTATE:
        cos, sin = column_angles(inputs, s, first, shape)
        a, b = rotated(a, b, cos, sin)
    at = j
    if shape.biased:
        at = tl.load(inputs.spans.k_at + s * inputs.lengths.keys + j, mask=j < inputs.lengths.keys, other=0)
    return KeyBlock(a, b, c, j, at)


@triton.jit
def _products(one, other, shape: tl.constexpr):
    product = tl.dot(one.a, tl.trans(other.a), input_precision="ieee")
    product = tl.dot(one.b, tl.trans(other.b), product, input_precision="ieee")
    if shape.unrotated.size > 0:
        product = tl.dot(one.c, tl.trans(other.c), product, input_precision="ieee")
    return product


@triton.jit
def _as(numbers, AXIS: tl.constexpr):
    """Numbers of rows or columns along an axis of a tile."""
    if AXIS == 0:
        return numbers[:, None]
    else:
        return numbers[None, :]


@triton.jit
def logits(inputs, row, column, EDGE: tl.constexpr, ROWS: tl.constexpr, shape: tl.constexpr):
    """Scaled products plus biases, in powers of two; -inf where a query does not see a key.

    ROWS is the axis of the rows: 0 where a program holds queries, 1 where it holds keys.
    """
    product = _products(row, column, shape) if ROWS == 0 else _products(column, row, shape)
    logit = product * _as(row.factor, ROWS)
    j = _as(column.j, 1 - ROWS)
    inside = (_as(row.start, ROWS) <= j) & (j < _as(row.stop, ROWS))
    if shape.biased:
        place = inputs.line + (_as(row.at, ROWS) - _as(column.at, 1 - ROWS))
        if EDGE:
            logit += tl.load(place, mask=inside, other=0.0)
        else:
            logit += tl.load(place)
    if EDGE:
        logit = tl.where(inside, logit, HIDDEN)
    return logit


@triton.jit
def tile_range_of(ranges, s, block):
    """Where segment s begins and ends for a block, and between which tiles all of the block sees all of the tile."""
    place = ranges + (s * tl.num_programs(0) + block) * 4
    return tl.load(place), tl.load(place + 1), tl.load(place + 2), tl.load(place + 3)


@triton.jit
def edge(step, first, inner, outer, SIZE: tl.constexpr):
    """The tiles before `inner` and, counted on, those from `outer`."""
    place = first + step * SIZE
    return tl.where(place < inner, place, place + (outer - inner))
