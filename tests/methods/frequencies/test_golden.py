"""Every schedule against the authors' own numbers."""

import pytest
import torch

from ropewalk import Facts
from ropewalk.methods.frequencies import (
    ABF,
    NTK,
    ByParts,
    Dynamic,
    Interpolation,
    Llama3,
    LongRoPE,
    NTKFixed,
    NTKMixed,
    NTKOld,
    RoPE,
)
from ropewalk.methods.scales import DynamicTemperature, YarnTemperature

from golden_tables import golden

CASES = golden("rope_inv_freq")["cases"]
SCHEDULES = {
    "pi": lambda f: Interpolation(factor=f),
    "ntk": lambda f: NTK(factor=f),
    "dynamic_ntk_scale1_at_fL": lambda f: NTK(factor=f),
    "dynamic_ntk_scalef_at_fL": lambda f: NTK(factor=f * f - (f - 1)),
    "yarn": lambda f: ByParts(factor=f),
    "yarn_truncate_false": lambda f: ByParts(factor=f, truncate=False),
    "yarn_paper_ramp": lambda f: ByParts(factor=f, ramp="turns"),
    "yarn_wavelength_mix": lambda f: ByParts(factor=f, mix="wavelength"),
    "llama3": lambda f: Llama3(factor=f),
    "bojone_ntk_fixed(b=1)": lambda f: NTKFixed(factor=f),
    "bojone_ntk_mixed(b=0.75,code)": lambda f: NTKMixed(factor=f, power=0.75),
    "bojone_ntk_mixed(b=0.625,blog)": lambda f: NTKMixed(factor=f),
    "bojone_ntk_old(base*k)": lambda f: NTKOld(factor=f),
}


def facts_of(case):
    return Facts(head_dim=case["dim"], base=case["base"], trained_len=case["train_len"])


def ident(case):
    return f"{case['dim']}-{case['base']:g}-{case['train_len']}-x{case['factor']}"


def assert_frequencies(got, expected, slack=0.0):
    expected = torch.tensor(expected, dtype=torch.float64)
    assert ((got - expected).abs() <= 1e-6 * expected + slack).all()


@pytest.mark.parametrize("method", SCHEDULES)
@pytest.mark.parametrize("case", CASES, ids=ident)
def test_schedule_equals_the_authors(case, method):
    spec, facts = SCHEDULES[method](case["factor"]), facts_of(case)
    # The authors form 1 - ramp in float32: half a unit in the last place of 1, times theta, is theirs and not ours.
    slack = 2**-24 * RoPE().table(facts, 1).inv_freq if isinstance(spec, ByParts) else 0.0
    assert_frequencies(spec.table(facts, 1).inv_freq, case["methods"][method]["inv_freq"], slack)


@pytest.mark.parametrize("case", CASES, ids=ident)
def test_longrope_divides_by_its_factors(case):
    factors = tuple(case["methods"]["yarn_wavelength_mix"]["rescale_factors"])
    facts = facts_of(case)
    beyond = LongRoPE(long=factors).table(facts, facts.trained_len + 1).inv_freq
    assert_frequencies(beyond, case["methods"]["longrope_yarninit"]["inv_freq"])


@pytest.mark.parametrize("case", CASES, ids=ident)
def test_dynamic_ntk_at_a_length_is_ntk_by_that_length(case):
    facts, exact = facts_of(case), Dynamic(inner=NTK(factor=1), steps=None)
    at_target = exact.table(facts, facts.trained_len * case["factor"]).inv_freq
    assert_frequencies(at_target, case["methods"]["dynamic_ntk_scale1_at_fL"]["inv_freq"])


@pytest.mark.parametrize("dim", [64, 128])
def test_new_base(dim):
    expected = golden("rope_inv_freq")["abf"]["base10000->500000"][str(dim)]
    assert_frequencies(ABF().table(Facts(head_dim=dim, trained_len=4096), 1).inv_freq, expected)


# The reference never shrinks its scale again; the rows up to its longest text are what can agree.
TRACE = golden("rope_inv_freq")["dynamic_yarn_trace(dim128,base1e4,L2048)"]["trace"]


@pytest.mark.parametrize("step", [s for s in TRACE if s["seq_len"] == s["max_seq_len_cached"] or s is TRACE[0]])
def test_dynamic_yarn_follows_the_trace(step):
    facts = Facts(head_dim=128, trained_len=2048)
    slowest = Dynamic(inner=ByParts(factor=1), steps=None).table(facts, step["seq_len"]).inv_freq[-1]
    assert float(slowest) == pytest.approx(step["inv_freq_last"], rel=1e-6)
    temperature = DynamicTemperature(inner=YarnTemperature(factor=1), steps=None)
    row = torch.tensor([step["seq_len"] - 1])
    assert float(temperature.scale(row, facts, {})) == pytest.approx(step["mscale"] ** 2, rel=1e-6)
