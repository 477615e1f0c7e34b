"""What triton kernels over spans are made of: a block of queries or keys as a strand sees it, and their logits.

A vector is held in three parts: the firsts of its pairs, their seconds, and what does not turn. So turning needs no
exchange between threads, and the layout of pairs is a matter of where they are loaded from. Logits are kept in powers
of two. Only this file and `triton_kernels` import triton.

Legend: b batch, h query head, g key head, i query, j key, s strand.
"""

from typing import NamedTuple

import triton
import triton.language as tl

HIDDEN = tl.constexpr(float("-inf"))


class ProgramInputs(NamedTuple):
    """What a program reads: its own head of the queries, keys and values, and how strands see them."""

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
    """Queries as one strand sees them: the three parts, the bounds of the keys they see, their place and factor."""

    a: tl.tensor
    b: tl.tensor
    c: tl.tensor
    start: tl.tensor
    stop: tl.tensor
    at: tl.tensor
    factor: tl.tensor


class KeyBlock(NamedTuple):
    """Keys as one strand sees them: the three parts, their index and their place."""

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
def _places(x, first, SIZE: tl.constexpr, columns: tl.constexpr):
    """Where some columns of SIZE vectors are within a head, and which of these are no filling."""
    n, column = tl.arange(0, SIZE), tl.arange(0, columns.wide)
    place = tl.cast(first, tl.int64) * x.token + n[:, None] * x.token + (columns.begin + column * columns.step)[None, :]
    return place, (column < columns.size)[None, :]


@triton.jit
def part(x, head, first, count, SIZE: tl.constexpr, EDGE: tl.constexpr, columns: tl.constexpr):
    """Some columns of SIZE vectors, filled up with zeros to a width that kernels can have."""
    place, real = _places(x, first, SIZE, columns)
    if EDGE:
        tile = tl.load(head + place, mask=real & (first + tl.arange(0, SIZE) < count)[:, None], other=0.0)
    elif columns.size < columns.wide:
        tile = tl.load(head + place, mask=real, other=0.0)
    else:
        tile = tl.load(head + place)
    return tile


@triton.jit
def vectors(x, head, first, count, SIZE: tl.constexpr, EDGE: tl.constexpr, shape: tl.constexpr):
    """SIZE vectors in three parts; where all turns, the first stands in for the third, unused."""
    a = part(x, head, first, count, SIZE, EDGE, shape.firsts)
    b = part(x, head, first, count, SIZE, EDGE, shape.seconds)
    c = a
    if shape.still.size > 0:
        c = part(x, head, first, count, SIZE, EDGE, shape.still)
    return a, b, c


@triton.jit
def keep(x, head, tile, first, count, SIZE: tl.constexpr, columns: tl.constexpr):
    """Store some columns."""
    place, real = _places(x, first, SIZE, columns)
    mask = real & (first + tl.arange(0, SIZE) < count)[:, None]
    tl.store(head + place, tile.to(x.at.dtype.element_ty), mask=mask)


@triton.jit
def add(x, head, tile, first, count, SIZE: tl.constexpr, columns: tl.constexpr):
    """Add to some columns, which no other program touches."""
    keep(x, head, tile + part(x, head, first, count, SIZE, True, columns), first, count, SIZE, columns)


@triton.jit
def add_vectors(x, head, a, b, c, first, count, SIZE: tl.constexpr, shape: tl.constexpr):
    """Add to SIZE vectors, given in three parts."""
    add(x, head, a, first, count, SIZE, shape.firsts)
    add(x, head, b, first, count, SIZE, shape.seconds)
    if shape.still.size > 0:
        add(x, head, c, first, count, SIZE, shape.still)


# Turning.


@triton.jit
def _angles(turns, row, seen, shape: tl.constexpr):
    """cos and sin in these rows of the table; 0 for what is not seen."""
    pair = tl.arange(0, shape.firsts.wide)
    place = turns + row[:, None] * (2 * shape.firsts.size) + pair[None, :]
    mask = seen[:, None] & (pair < shape.firsts.size)[None, :]
    return tl.load(place, mask=mask, other=0.0), tl.load(place + shape.firsts.size, mask=mask, other=0.0)


@triton.jit
def row_angles(text, s, first, start, stop, shape: tl.constexpr):
    """Of a block of queries."""
    row = tl.load(text.spans.q_first + s) + first + tl.arange(0, shape.rows)
    return _angles(text.spans.q_turns, row, start < stop, shape)


@triton.jit
def column_angles(text, s, first, shape: tl.constexpr):
    """Of a block of keys, as far as any query of the strand sees."""
    j = first + tl.arange(0, shape.keys)
    return _angles(text.spans.k_turns, tl.load(text.spans.k_first + s) + j, j < tl.load(text.spans.k_count + s), shape)


@triton.jit
def rotated(a, b, cos, sin):
    """Each pair (a, b) turned, rounded once."""
    x, y = a.to(tl.float32), b.to(tl.float32)
    return (x * cos - y * sin).to(a.dtype), (x * sin + y * cos).to(b.dtype)


# What a strand makes of queries and keys.


@triton.jit
def row_of(text, s, first, EDGE: tl.constexpr, TURN: tl.constexpr, shape: tl.constexpr):
    """A block of queries; those that are not of the strand see nothing."""
    i = first + tl.arange(0, shape.rows)
    place, real = s * text.lengths.queries + i, i < text.lengths.queries
    start = tl.load(text.spans.start + place, mask=real, other=0)
    stop = tl.load(text.spans.stop + place, mask=real, other=0)
    a, b, c = vectors(text.q, text.q_head, first, text.lengths.queries, shape.rows, EDGE, shape)
    if TURN:
        cos, sin = row_angles(text, s, first, start, stop, shape)
        a, b = rotated(a, b, cos, sin)
    at = start
    if shape.biased:
        at = tl.load(text.spans.q_at + place, mask=real, other=0)
    return QueryBlock(a, b, c, start, stop, at, tl.load(text.factor + i, mask=real, other=0.0))


@triton.jit
def column_of(text, s, first, EDGE: tl.constexpr, TURN: tl.constexpr, shape: tl.constexpr):
    """A block of keys."""
    j = first + tl.arange(0, shape.keys)
    a, b, c = vectors(text.k, text.k_head, first, text.lengths.keys, shape.keys, EDGE, shape)
    if TURN:
        cos, sin = column_angles(text, s, first, shape)
        a, b = rotated(a, b, cos, sin)
    at = j
    if shape.biased:
        at = tl.load(text.spans.k_at + s * text.lengths.keys + j, mask=j < text.lengths.keys, other=0)
    return KeyBlock(a, b, c, j, at)


@triton.jit
def _products(one, other, shape: tl.constexpr):
    product = tl.dot(one.a, tl.trans(other.a), input_precision="ieee")
    product = tl.dot(one.b, tl.trans(other.b), product, input_precision="ieee")
    if shape.still.size > 0:
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
def logits(text, row, column, EDGE: tl.constexpr, ROWS: tl.constexpr, shape: tl.constexpr):
    """Scaled products plus biases, in powers of two; -inf where a query does not see a key.

    ROWS is the axis of the rows: 0 where a program holds queries, 1 where it holds keys.
    """
    product = _products(row, column, shape) if ROWS == 0 else _products(column, row, shape)
    logit = product * _as(row.factor, ROWS)
    j = _as(column.j, 1 - ROWS)
    inside = (_as(row.start, ROWS) <= j) & (j < _as(row.stop, ROWS))
    if shape.biased:
        place = text.line + (_as(row.at, ROWS) - _as(column.at, 1 - ROWS))
        if EDGE:
            logit += tl.load(place, mask=inside, other=0.0)
        else:
            logit += tl.load(place)
    if EDGE:
        logit = tl.where(inside, logit, HIDDEN)
    return logit


@triton.jit
def tile_range_of(walks, s, block):
    """Where strand s begins and ends for a block, and between which tiles all of the block sees all of the tile."""
    place = walks + (s * tl.num_programs(0) + block) * 4
    return tl.load(place), tl.load(place + 1), tl.load(place + 2), tl.load(place + 3)


@triton.jit
def edge(step, first, inner, outer, SIZE: tl.constexpr):
    """The tiles before `inner` and, counted on, those from `outer`."""
    place = first + step * SIZE
    return tl.where(place < inner, place, place + (outer - inner))
