"""In which precision a comparison reads where nobody chose one: the faster, with the weights as they were loaded."""

import pytest
import torch

from ropewalk import inspect
from ropewalk.measure.comparison import plan as precision
from ropewalk.measure.comparison.plan import DECISIVE, FASTER, Cost, calibrated_in_fastest

from hf.models import tiny

WHOLE, HALF = torch.float32, torch.bfloat16


def calibrated_under(monkeypatch, model, *, rates, products, free=True, workers=1):
    """The cost of this model, and in which precisions it was read, if they are so fast."""
    read = []

    def calibrated(cost, model, ids):
        read.append(model.dtype)
        assert {parameter.dtype for parameter in model.parameters()} == {model.dtype}
        if workers > 1:
            assert torch.get_num_threads() == 1
        return Cost(cost.parameters, cost.layers, rates[model.dtype])

    monkeypatch.setattr(precision, "calibrate", calibrated)
    monkeypatch.setattr(precision, "product_seconds", lambda dtype: products[dtype])
    return calibrated_in_fastest(model, inspect(model), torch.arange(40), free=free, workers=workers), read


@pytest.mark.sampled(cases=4)
@pytest.mark.parametrize(("loaded", "other"), [(WHOLE, HALF), (HALF, WHOLE)])
@pytest.mark.parametrize(
    ("gain", "taken"),
    [(1.0, "loaded"), (FASTER - 0.01, "loaded"), (FASTER + 0.01, "other"), (DECISIVE - 0.01, "other")],
)
def test_another_precision_is_taken_where_it_is_clearly_faster(monkeypatch, loaded, other, gain, taken):
    """And the weights are then what loading in it gives, or untouched."""
    model = tiny("llama").to(loaded)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    rates = {loaded: 1e9, other: gain * 1e9}
    cost, read = calibrated_under(monkeypatch, model, rates=rates, products={loaded: 1.0, other: 1.0})
    assert read == [loaded, other]
    wanted = {"loaded": loaded, "other": other}[taken]
    assert (model.dtype, model.config.dtype, cost.rate) == (wanted, wanted, rates[wanted])
    for parameter, data in zip(model.parameters(), before, strict=True):
        assert torch.equal(parameter, data.to(wanted))


@pytest.mark.sampled(cases=2)
@pytest.mark.parametrize(("loaded", "other"), [(WHOLE, HALF), (HALF, WHOLE)])
@pytest.mark.parametrize("slower", ["loaded", "other"])
def test_nothing_is_read_in_a_precision_whose_products_are_far_slower(monkeypatch, loaded, other, slower):
    """A processor without bfloat16 is six times as slow in it: reading a text to find that out takes a minute."""
    slow, fast = (loaded, other) if slower == "loaded" else (other, loaded)
    products = {slow: DECISIVE + 0.1, fast: 1.0}
    model = tiny("llama").to(loaded)
    _, read = calibrated_under(monkeypatch, model, rates={loaded: 1e9, other: 1e9}, products=products)
    assert read == [fast]
    assert model.dtype is fast


def test_a_precision_that_somebody_chose_stays(monkeypatch):
    model = tiny("llama")
    products = {WHOLE: 10.0, HALF: 1.0}
    _, read = calibrated_under(monkeypatch, model, rates={WHOLE: 1e9, HALF: 9e9}, products=products, free=False)
    assert read == [WHOLE]


def test_workers_with_a_thread_each_are_calibrated_with_one(monkeypatch):
    """And are so many times as fast; afterwards there are as many threads as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        how = {"rates": {WHOLE: 1e9, HALF: 1e9}, "products": {WHOLE: 1.0, HALF: 9.0}}
        cost, _ = calibrated_under(monkeypatch, tiny("llama"), workers=4, **how)
        assert (cost.rate, torch.get_num_threads()) == (4e9, 2)
    finally:
        torch.set_num_threads(before)
