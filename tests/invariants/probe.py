"""What a method computes, as a list of tensors, and the same method with one field changed."""

import dataclasses
from typing import Literal, get_args, get_origin

import torch

from ropewalk import Extension
from ropewalk.equation import reference_logits
from ropewalk.errors import RopewalkError
from ropewalk.methods.record import parameters
from ropewalk.methods.spec import Spec

from examples import EXAMPLES, FACTS
from methods.reach.relative import relative

# Wide enough that every threshold of every schedule falls inside.
WIDE = dataclasses.replace(FACTS, trained_len=4096)
LENGTHS = (1, 4096, 4097, 4800, 6000, 8192, 9000, 20_000)
STATE = {
    "q_proj.weight": torch.arange(4.0 * 16 * 3).view(64, 3),
    "k_proj.weight": torch.arange(2.0 * 16 * 3).view(32, 3) ** 2,
    "v_proj.weight": torch.arange(2.0 * 16 * 3).view(32, 3) ** 3,
    "position_embeddings.weight": torch.arange(10.0).view(5, 2) ** 2,
    "embeddings.weight": torch.arange(6.0).view(3, 2),
}


def generator():
    return torch.Generator().manual_seed(11)


def probe(slot, spec):
    """The numbers that come out, or the refusal."""
    try:
        return globals()[f"_{slot}"](spec)
    except RopewalkError as refused:
        return refused


def _frequencies(spec):
    return [column for length in LENGTHS for column in spec.table(WIDE, length)]


def _reach(spec):
    at, turns = torch.arange(64), torch.linspace(8, 0.1, 4, dtype=torch.float64)
    places = [(span.q_rotated(at, turns), span.k_rotated(at, turns)) for span in spec.spans() if span.pairs]
    return [relative(spec, 64), *(place for pair in places for place in pair)]


def _biases(spec):
    weights = spec.weights(WIDE, generator())
    distance = torch.arange(0, 2000, 7)
    beyond = distance + 3 * WIDE.trained_len
    return [*(spec.bias(distance, query, WIDE, weights) for query in (distance, beyond)), *weights.values()]


def _scales(spec):
    """The factors of rows, and what they multiply where only half of a head rotates."""
    weights = {name: torch.linspace(0.1, 2, 4, dtype=torch.float64) for name in spec.weights(WIDE)}
    half, alone = dataclasses.replace(WIDE, rotary_dim=8), Extension(scales=(spec,))
    q, k = (torch.randn(1, heads, 5, 16, generator=generator()) for heads in (WIDE.heads, WIDE.groups))
    logits = reference_logits(q, k, alone, half, weights={spec.name: weights} if weights else {})
    return [spec.scale(torch.tensor(LENGTHS) - 1, WIDE, weights), logits, *spec.weights(WIDE).values()]


def _positions(spec):
    return [spec.number(12, rng).double() for rng in (None, generator(), torch.Generator().manual_seed(12))]


def _decoding(spec):
    logp = (2 * torch.randn(40, 4, 12, generator=generator(), dtype=torch.float64)).log_softmax(-1)
    if spec.of_attention:  # which joins sums of exponentials, and not distributions
        return [spec.share(*logp[:, :2, 0].T)]
    logp = logp if spec.of_contexts else logp[:, :2]
    both = [spec.combine(rows, last) for rows in logp for last in (None, 2)]
    return [combined.logp for combined in both]


def _surgery(spec):
    state, facts = spec.convert(STATE, FACTS)
    return [*(state[name].double() for name in sorted(state)), torch.tensor(float(facts.groups))]


def alternatives(slot, spec, field):
    """The same spec with other values of one field, as many as are valid."""
    (parameter,) = [each for each in parameters(type(spec)) if each.name == field]
    made = []
    for value in _values(slot, parameter.type, getattr(spec, field)):
        try:
            made.append(dataclasses.replace(spec, **{field: value}))
        except RopewalkError:
            continue
    return [other for other in made if other != spec]


def _values(slot, hint, value):
    if isinstance(value, bool):
        return [not value]
    if get_origin(hint) is Literal:
        return get_args(hint)
    if isinstance(value, int):
        return [value + 1, 2 * value, value - 1]
    if isinstance(value, float):
        return [4 * value, value / 2, value + 0.5]
    if isinstance(value, str) or (value is None and str in get_args(hint)):
        return ["embeddings"]
    if isinstance(value, Spec) or value is None:
        unstretched = [dataclasses.replace(one, factor=1) for one in EXAMPLES[slot] if hasattr(one, "factor")]
        return [*EXAMPLES[slot], *unstretched, 3]
    if all(isinstance(item, str) for item in value):
        return [value[:1]]
    factor = 2 if isinstance(value[0], int) else 1.5
    return [(factor * value[0], *value[1:])]
