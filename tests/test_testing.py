"""`ropewalk.testing`: every promise that a method can break is named."""

import sys
from dataclasses import dataclass, replace

import pytest
import torch

from ropewalk import Extension, InvalidValue, parse, testing
from ropewalk.attention.backends.dense import DENSE
from ropewalk.methods.biases import ALiBi, KerpleLog
from ropewalk.methods.biases.bias import Bias
from ropewalk.methods.decoding.decoding import Combined, Decoding
from ropewalk.methods.frequencies import Interpolation
from ropewalk.methods.frequencies.frequencies import Frequencies, Table, trained_theta, without_decay
from ropewalk.methods.positions.positions import Positions
from ropewalk.methods.reach import Window
from ropewalk.methods.reach.reach import Reach, Span, after, always, itself
from ropewalk.methods.scales import LogN
from ropewalk.methods.scales.scale import Scale
from ropewalk.testing import MethodFault, check_attention, check_cache, check_contract, check_learning, check_method

from examples import FACTS


def record(base, name="wrong", **members):
    """A method that breaks a promise."""
    return dataclass(frozen=True, kw_only=True)(type("Wrong", (base,), {"name": name, **members}))()


def frequencies(make):
    return record(Frequencies, table=lambda self, facts, length: make(trained_theta(facts)))


def reach(*spans):
    return record(Reach, spans=lambda self: spans)


def bias(make, **more):
    return record(Bias, bias=lambda self, distance, query, facts, weights: make(distance, query, facts), **more)


def scale(make, **more):
    return record(Scale, scale=lambda self, position, facts, weights: make(position), **more)


def in_float32(self, facts, generator=None):
    return {"slope": torch.ones(facts.heads)}


WHOLE = Span(start=torch.zeros_like, stop=after, q_at=itself, k_at=itself)


def zeros(distance, facts):
    return torch.zeros(facts.heads, *distance.shape, dtype=torch.float64)


def longer(row):
    return (1.0 + row).double()[None]


WRONG = {
    "its tables must be float64": frequencies(lambda theta: without_decay(theta.float())),
    "a decay for each of its pairs": frequencies(lambda theta: Table(theta, theta[1:] * 0)),
    "its tables must be finite": frequencies(lambda theta: without_decay(theta * torch.inf)),
    "no pair turns backwards": frequencies(lambda theta: without_decay(-theta.flip(0))),
    "pairs must turn more slowly one after the other": frequencies(lambda theta: without_decay(theta.flip(0))),
    "its decay must not grow": frequencies(lambda theta: Table(theta, theta)),
    "its spans overlap": reach(WHOLE, WHOLE),
    "a query must see itself$": reach(WHOLE._replace(stop=itself)),
    "a query must see itself where it stands": reach(WHOLE._replace(q_at=lambda i: i + 1)),
    "no key may appear after its query": reach(WHOLE._replace(q_at=always(3))),
    "its places must be whole numbers or float64": reach(WHOLE._replace(q_at=lambda i: i.float())),
    "its spans must work on each position by itself": reach(WHOLE._replace(k_at=lambda j: j - j.min())),
    "a bias has a head dimension": bias(lambda distance, query, facts: distance.double()),
    "a bias must be float64 and finite": bias(lambda distance, query, facts: zeros(distance, facts).float()),
    "of_distance_alone is True, and": bias(lambda distance, query, facts: zeros(distance, facts) + query),
    "of_distance_alone is False, and": bias(
        lambda distance, query, facts: zeros(distance, facts), of_distance_alone=False
    ),
    "what it learns as slope must begin in float64": bias(
        lambda distance, query, facts: zeros(distance, facts), weights=in_float32
    ),
    "slope must begin in float64": scale(longer, weights=in_float32),
    r"a scale is \[heads or 1, rows\]": scale(lambda row: longer(row)[0]),
    "a scale must be float64 and above 0": scale(lambda row: -longer(row)),
    "a scale must keep the shape of a batch": scale(lambda row: longer(row) * (1 + row.dim())),
    "of_row is False, and": scale(longer, of_row=False),
    "of_row is True, and": scale(lambda row: longer(row) * 0 + 2),
    "numbers are whole": record(Positions, number=lambda self, length, rng=None: torch.arange(length).double()),
    "numbers must ascend": record(Positions, number=lambda self, length, rng=None: torch.arange(length).flip(0)),
    "it must leave its input alone": record(Decoding, combine=lambda self, logp, _=None: Combined(logp.zero_()[0], 1)),
    "it must return one distribution": record(Decoding, combine=lambda self, logp, last=None: Combined(logp, 1)),
    "it must choose a context": record(Decoding, combine=lambda self, logp, last=None: Combined(logp[0], 9)),
}


@pytest.mark.parametrize("fault", WRONG)
def test_a_contract_that_is_broken_is_named(fault):
    with pytest.raises(MethodFault, match=f"wrong: .*{fault}"):
        check_contract(WRONG[fault], FACTS)


def test_what_is_learned_must_get_a_gradient_and_begin_alike():
    def weights(self, facts, generator=None):
        return {"slope": torch.ones(facts.heads, dtype=torch.float64)}

    with pytest.raises(MethodFault, match="wrong: what it learns as slope gets no gradient"):
        check_learning(
            bias(lambda distance, query, facts: zeros(distance, facts).requires_grad_(), weights=weights), FACTS
        )

    def drawn(self, facts, generator=None):
        return {"slope": torch.rand(facts.heads, dtype=torch.float64)}

    with pytest.raises(MethodFault, match="wrong: its initial values change by themselves"):
        check_learning(bias(lambda distance, query, facts: zeros(distance, facts), weights=drawn), FACTS)


def test_a_backend_that_differs_is_named(monkeypatch):
    """As if one backend computed something else: with one key too few, or another scale."""
    wrong = DENSE._replace(run=lambda inputs: DENSE.run(inputs) * 1.001)
    monkeypatch.setitem(testing.ORDER, ("other devices", "no bias"), (wrong,))
    with pytest.raises(MethodFault, match=r"window:window=9: the output, in .* is off by .* from the definition"):
        check_attention(Window(window=9), FACTS)


def test_gradients_are_compared_too(monkeypatch):
    def run(inputs):
        out = DENSE.run(inputs)
        return out.detach() + 0 * out

    monkeypatch.setitem(testing.ORDER, ("other devices", "a bias"), (DENSE._replace(run=run),))
    with pytest.raises(MethodFault, match=r"kerple_log: the gradient of q, in torch.float64 is off by"):
        check_attention(KerpleLog(), FACTS)


def test_a_cache_that_differs_is_named(monkeypatch):
    read = testing.LayerCache.read
    monkeypatch.setattr(testing.LayerCache, "read", lambda self, *x: read(self, *x) * (1 + 1e-3 * (len(x[0]) > 2)))
    with pytest.raises(MethodFault, match="log_n: a cache that reads 60 chunks is off by"):
        check_cache(LogN(), FACTS)


def test_every_backend_of_this_device_is_asked(monkeypatch):
    asked = []
    run = DENSE._replace(run=lambda inputs: asked.append(testing.ALONE.get()) or DENSE.run(inputs))
    for case in testing.ORDER:
        order = tuple(run if one.name == "dense" else one for one in testing.ORDER[case])
        monkeypatch.setitem(testing.ORDER, case, order)
    check_attention(parse("biases.alibi+window:window=9"), FACTS)
    assert "dense" in asked


def test_a_method_without_a_page_or_a_way_back_is_refused(monkeypatch):
    check_method(replace(Interpolation(factor=4)), FACTS)
    check_method(ALiBi(), FACTS)
    typed = frequencies(without_decay)
    with pytest.raises(MethodFault, match=r"the method wrong is Wrong of the module .*, where nobody finds it again"):
        check_method(typed, FACTS)
    bare = record(Reach, spans=lambda self: (WHOLE,), __module__="__main__")
    monkeypatch.setattr(sys.modules["__main__"], "__doc__", None)
    with pytest.raises(MethodFault, match="wrong: it has no docstring, which `ropewalk show` prints"):
        testing.check_page(bare)
    assert testing.extension_of(Extension()) == Extension()


@pytest.mark.parametrize("wrong", ["slope", None, 3, LogN])
def test_what_is_no_method_is_refused(wrong):
    with pytest.raises(InvalidValue, match="spec must be a method with its values"):
        check_method(wrong)
