"""What Ropewalk promises of a method, as checks that anybody's tests can call.

    from ropewalk.testing import check_method

    def test_slope():
        check_method(Slope(factor=4))

A method that breaks a promise raises `MethodFault`, an AssertionError that says which. Everything is compared with
`rw.reference_attention`, the definition in float64.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import pickle
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Generator, Tensor

from ropewalk.attention.attend import attend
from ropewalk.attention.backends.choose import ALONE, ORDER
from ropewalk.attention.cache.buffers import CacheState
from ropewalk.attention.cache.layer_cache import LayerCache
from ropewalk.attention.scoped import scoped
from ropewalk.equation import reference_attention
from ropewalk.errors import DoesNotFit, InvalidValue, RopewalkError
from ropewalk.extension.extension import Extension
from ropewalk.extension.inputs import ONE_TEXT, PAD, Tokens
from ropewalk.extension.outside import require_portable
from ropewalk.extension.parsing import parse
from ropewalk.extension.slots import SLOTS, slot_of
from ropewalk.methods.biases import Bias
from ropewalk.methods.decoding import Decoding
from ropewalk.methods.docstrings import NO_PAGE, page_of
from ropewalk.methods.facts import Facts
from ropewalk.methods.frequencies import Frequencies
from ropewalk.methods.positions import Positions, Sequential
from ropewalk.methods.reach import Reach
from ropewalk.methods.record import parameters
from ropewalk.methods.scales import Scale
from ropewalk.methods.spec import Spec
from ropewalk.methods.surgery import Surgery

SMALL = Facts(trained_len=32, head_dim=16, heads=4, kv_heads=2, layers=4)
LENGTH = 60  # tokens of a text that is read: about two trained lengths
CHUNKS = ((1,) * LENGTH, (23, *(1,) * 37), (20, 1, 17, 1, 1, 20))
BEGINS = (0, -25, -7)  # of the rows of a batch: the others begin with padding
EQUAL = {torch.float64: 1e-11, torch.float32: 2e-5}  # relative to the largest number; what rounding leaves
SHIFTED_BY = 100  # trained lengths: where a bias that minds the query's position shows it
BILLION = 2**30  # a place that float32 rounds


class MethodFault(AssertionError):
    """A promise that a method breaks."""


def check_method(spec: Spec, facts: Facts = SMALL) -> None:
    """Check everything below that applies to the method.

    Args:
        spec: the method, with values that do something within two trained lengths.
        facts: the model that it is checked for; a small one, since the definition is quadratic and slow.
    """
    if not isinstance(spec, Spec):
        raise InvalidValue("spec", "a method with its values, such as Slope(factor=4)", spec)
    check_round_trips(spec)
    check_page(spec)
    check_contract(spec, facts)
    if isinstance(spec, Decoding | Surgery):
        return
    check_learning(spec, facts)
    check_attention(spec, facts)
    check_cache(spec, facts)


def extension_of(method: Spec | Extension) -> Extension:
    """The extension of a method alone."""
    if isinstance(method, Extension):
        return method
    slot = slot_of(type(method))
    filled: dict[str, Any] = {slot: (method,) if SLOTS[slot].several else method}
    return Extension(**filled)


def check_round_trips(spec: Spec) -> None:
    """The method is the same after JSON, after notation, and in another process; no field of it can be set."""
    extension = extension_of(spec)
    with _naming(spec):
        require_portable([spec])
        _require(Extension.from_json(json.dumps(extension.to_json())) == extension, "JSON gives another method")
        line = str(spec) if spec.origin.written else f"{slot_of(type(spec))}.{spec}"
        _require(parse(line) == extension, f"the line {line} gives another method")
        _require(pickle.loads(pickle.dumps(spec)) == spec, "another process gets another method")
        _require(hash(dataclasses.replace(spec)) == hash(spec), "equal methods have different hashes")
        for parameter in parameters(type(spec)):
            try:
                setattr(spec, parameter.name, getattr(spec, parameter.name))
            except dataclasses.FrozenInstanceError:
                continue
            _require(False, f"{parameter.name} can be set: write @dataclass(frozen=True, kw_only=True)")


def check_page(spec: Spec) -> None:
    """Its docstring says in a sentence what it is, and every parameter says what it means."""
    with _naming(spec):
        _require(page_of(type(spec)).idea != NO_PAGE, "it has no docstring, which `ropewalk show` prints")
        for parameter in parameters(type(spec)):
            said = bool(parameter.meaning) or parameter.name == "factor"
            _require(said, f"{parameter.name} does not say what it means: Annotated[float, AT_LEAST_ONE, '...']")


def check_contract(spec: Spec, facts: Facts = SMALL) -> None:
    """What holds for every method of its factor: shapes, types, signs, and no change of what it is given."""
    with _naming(spec):
        spec.check_against(facts)
        for family, checked in CONTRACTS.items():
            if isinstance(spec, family):
                checked(spec, facts)


def check_learning(spec: Spec, facts: Facts = SMALL) -> None:
    """Every number that the method learns gets a gradient, and its initial values are those of their generator."""
    if not isinstance(spec, Bias | Scale):
        return
    with _naming(spec):
        first, again = (spec.weights(facts, _random()) for _ in range(2))
        _require(
            all(torch.equal(first[name], again[name]) for name in first), "its initial values change by themselves"
        )
        weights = {name: value.clone().requires_grad_() for name, value in first.items()}
        places = torch.arange(1, 90 * facts.trained_len)
        if isinstance(spec, Bias):
            numbers = spec.bias(places, places, facts, weights)
        else:
            numbers = spec.scale(places, facts, weights)
        if weights:
            numbers.square().sum().backward()  # type: ignore[no-untyped-call]
        for name, value in weights.items():
            moved = value.grad is not None and bool(value.grad.abs().sum() > 0)
            _require(moved, f"what it learns as {name} gets no gradient")


def check_attention(method: Spec | Extension, facts: Facts = SMALL) -> None:
    """The fast paths give the outputs and gradients of the definition: alone, in a padded batch, by every backend."""
    extension = extension_of(method)
    cases = [(1, torch.float64, ONE_TEXT), (1, torch.float32, ONE_TEXT)]
    if isinstance(extension.positions_or_sequential, Sequential):
        cases.append((len(BEGINS), torch.float64, Tokens(_numbers())))
    backends = {backend.name for order in ORDER.values() for backend in order}
    for alone, (batch, dtype, tokens) in itertools.product(("", *sorted(backends)), cases):
        vectors = _vectors(facts, batch, dtype)
        try:
            with scoped(ALONE, alone), _naming(method):
                got = _answer(attend, vectors, extension, facts, tokens)
        except DoesNotFit as refused:
            if alone and refused.field == "backend":  # it does not support this, or is for another device
                continue
            raise
        expected = _answer(reference_attention, vectors, extension, facts, tokens)
        by, padded = f" by the backend {alone}" * bool(alone), " in a padded batch" * (batch > 1)
        with _naming(method):
            for name, value in got.items():
                _require_equal(value, expected[name], EQUAL[dtype], f"{name}{padded}{by}, in {dtype}")


def check_cache(method: Spec | Extension, facts: Facts = SMALL) -> None:
    """A text read through the cache in chunks of any size gives what the whole gives, in padded rows too."""
    extension = extension_of(method)
    if not isinstance(extension.positions_or_sequential, Sequential):
        return
    weights = extension.weights(facts, _random())
    q, k, v = vectors = _vectors(facts, len(BEGINS), torch.float64)
    expected = reference_attention(q, k, v, extension, facts, Tokens(_numbers()), weights=weights)
    for chunks in CHUNKS:
        cache = LayerCache(CacheState(extension, facts, begins=BEGINS, weights=weights))
        edges = [0, *itertools.accumulate(chunks)]
        parts = [cache.read(*(x[:, :, a:b] for x in vectors)) for a, b in itertools.pairwise(edges)]
        with _naming(method):
            what = f"a cache that reads {len(chunks)} chunks"
            _require_equal(torch.cat(parts, 2), expected, EQUAL[torch.float64], what)


# The contracts of the factors.


def _check_frequencies(spec: Frequencies, facts: Facts) -> None:
    trained = facts.trained_len
    for length in (1, trained, trained + 1, 2 * trained, 10 * trained):
        inv_freq, log_decay = spec.table(facts, length)
        _require(inv_freq.dtype == log_decay.dtype == torch.float64, "its tables must be float64")
        _require(inv_freq.shape == log_decay.shape, "a table has a decay for each of its pairs")
        _require(bool(inv_freq.isfinite().all() and log_decay.isfinite().all()), "its tables must be finite")
        _require(bool((inv_freq >= 0).all()), "no pair turns backwards")
        _require(bool((inv_freq.diff() <= 0).all()), "pairs must turn more slowly one after the other")
        _require(bool((log_decay <= 0).all()), "its decay must not grow")


def _check_reach(spec: Reach, facts: Facts) -> None:
    i, seen = torch.arange(LENGTH + 10), torch.zeros(LENGTH + 10, LENGTH + 10, dtype=torch.int64)
    for span in spec.spans():
        start, stop = span.bounds(i)
        seen += (start[:, None] <= i) & (i < stop[:, None])
        for rows in (i[33:34], i[5:60:7]):
            alike = torch.equal(torch.stack(span.bounds(rows)), torch.stack(span.bounds(i))[:, rows])
            alike &= torch.equal(span.q_at(rows), span.q_at(i)[rows]) and torch.equal(
                span.k_at(rows), span.k_at(i)[rows]
            )
            _require(alike, "its spans must work on each position by itself")
        far = torch.tensor([BILLION + 1, BILLION + 2])
        exact = all(place.dtype in (torch.int64, torch.float64) for place in (span.q_at(far), span.k_at(far)))
        _require(exact, "its places must be whole numbers or float64: float32 rounds those beyond 2^24")
        distance = span.q_at(i).double()[:, None] - span.k_at(i).double()
        inside = (start[:, None] <= i) & (i < stop[:, None])
        _require(not bool((distance[inside] < 0).any()), "no key may appear after its query")
        here = inside.diagonal()
        _require(not bool(distance.diagonal()[here].any()), "a query must see itself where it stands")
    _require(bool((seen <= 1).all()), "its spans overlap")
    _require(bool((seen.diagonal() == 1).all()), "a query must see itself")


def _check_bias(spec: Bias, facts: Facts) -> None:
    weights, distance = spec.weights(facts, _random()), torch.tensor([[0, 1, 31], [1000, 65_536, BILLION]])
    got = spec.bias(distance, distance, facts, weights)
    _require(got.shape == (facts.heads, 2, 3), "a bias has a head dimension, then the shape of the distances")
    _require(got.dtype == torch.float64 and bool(got.isfinite().all()), "a bias must be float64 and finite")
    _require_float64(weights)
    near = torch.arange(50)
    here, there = (spec.bias(near, near + shift, facts, weights) for shift in (0, SHIFTED_BY * facts.trained_len))
    said = f"of_distance_alone is {spec.of_distance_alone}, and its bias says otherwise"
    _require(torch.equal(here, there) == spec.of_distance_alone, said)


def _check_scale(spec: Scale, facts: Facts) -> None:
    weights, rows = spec.weights(facts, _random()), torch.arange(1, 201).view(2, 100)
    got = spec.scale(rows.flatten(), facts, weights)
    _require(got.shape in ((1, 200), (facts.heads, 200)), "a scale is [heads or 1, rows]")
    _require(got.dtype == torch.float64 and bool((got > 0).all()), "a scale must be float64 and above 0")
    _require(torch.equal(spec.scale(rows, facts, weights).flatten(1), got), "a scale must keep the shape of a batch")
    _require_float64(weights)
    wide = dataclasses.replace(facts, trained_len=10**6)  # such a model shows it in the second million
    scale = spec.scale(torch.tensor([0, 1, 10**6 - 1, 10**6, 2 * 10**6]), wide, weights)
    differs = bool((scale != scale[:, :1]).any())
    _require(differs == spec.of_row, f"of_row is {spec.of_row}, and its scale says otherwise")


def _check_positions(spec: Positions, facts: Facts) -> None:
    for length, training in itertools.product((0, 1, 2, 63), (False, True)):
        numbers = spec.number(length, _random() if training else None)
        _require(numbers.shape == (length,) and numbers.dtype == torch.int64, "numbers are whole, one for each token")
        _require(bool((numbers >= 0).all() and (numbers.diff() > 0).all()), "numbers must ascend from 0 on")


def _check_decoding(spec: Decoding, facts: Facts) -> None:
    rows = 1 if spec.of_attention else 4 if spec.of_contexts else 2
    logp = torch.randn(rows, 9, dtype=torch.float64, generator=_random()).log_softmax(-1)
    before = logp.clone()
    combined = spec.combine(logp, 1)
    _require(torch.equal(logp, before), "it must leave its input alone")
    _require(combined.logp.shape == (9,), "it must return one distribution")
    _require(combined.chosen is None or 1 <= combined.chosen <= 3, "it must choose a context, or none")


CONTRACTS: Mapping[type[Spec], Any] = {
    Frequencies: _check_frequencies,
    Reach: _check_reach,
    Bias: _check_bias,
    Scale: _check_scale,
    Positions: _check_positions,
    Decoding: _check_decoding,
}


# What they share.


def _answer(
    function: Any, vectors: list[Tensor], extension: Extension, facts: Facts, tokens: Tokens
) -> dict[str, Tensor]:
    """The output, and the gradients of the vectors and of what is learned, from the same numbers."""
    q, k, v = (x.detach().clone().requires_grad_() for x in vectors)
    groups = {
        method: {name: value.clone().requires_grad_() for name, value in group.items()}
        for method, group in extension.weights(facts, _random()).items()
    }
    out = function(q, k, v, extension, facts, tokens, weights=groups)
    slope = torch.randn(out.shape, generator=_random(), dtype=torch.float64)
    out.backward(slope.to(out.dtype))
    learned = {
        f"the gradient of {method}'s {name}": value.grad if value.grad is not None else torch.zeros_like(value)
        for method, group in groups.items()
        for name, value in group.items()
    }
    grads = {f"the gradient of {name}": x.grad for name, x in zip(("q", "k", "v"), (q, k, v), strict=True)}
    return {"the output": out.detach(), **grads, **learned}


def _vectors(facts: Facts, batch: int, dtype: torch.dtype) -> list[Tensor]:
    random = _random()
    heads = (facts.heads, facts.groups, facts.groups)
    return [torch.randn(batch, count, LENGTH, facts.head_dim, generator=random).to(dtype) for count in heads]


def _numbers() -> Tensor:
    """The positions of a batch whose rows are padded on the left."""
    return torch.stack([torch.arange(LENGTH) + begin for begin in BEGINS]).clamp(min=PAD)


def _random() -> Generator:
    return torch.Generator().manual_seed(7)


def _require_float64(weights: Mapping[str, Tensor]) -> None:
    for name, value in weights.items():
        _require(value.dtype == torch.float64, f"what it learns as {name} must begin in float64")


def _require_equal(got: Tensor, expected: Tensor, tolerance: float, what: str) -> None:
    error = float((got.double() - expected.double()).abs().max())
    allowed = tolerance * max(1.0, float(expected.abs().max()))
    _require(error <= allowed, f"{what} is off by {error:.1e} from the definition, and may be by {allowed:.1e}")


def _require(holds: bool, fault: str) -> None:
    if not holds:
        raise MethodFault(fault)


@contextmanager
def _naming(method: Spec | Extension) -> Iterator[None]:
    """Faults, and refusals of Ropewalk's, begin with the method's name."""
    name = method.under(method.name) if isinstance(method, Spec) else "+".join(map(str, method.methods))
    try:
        yield
    except MethodFault as fault:
        raise MethodFault(f"{name}: {fault}") from fault
    except RopewalkError as refused:
        if refused.field == "backend":
            raise
        raise MethodFault(f"{name}: {refused}") from refused
