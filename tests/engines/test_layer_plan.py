"""The plan of an engine: what export writes is what the plugin reads, and what its rotary modules compute."""

import json
import math
from dataclasses import replace

import pytest
import torch

from ropewalk import Extension, Facts, RopewalkError, Unreadable, parse
from ropewalk.engines.layer_plan import LayerPlan, ModelPlan
from ropewalk.equation import reference_logits, rotate
from ropewalk.methods.frequencies.frequencies import without_decay
from ropewalk.methods.reach import Window

from examples import EXAMPLES, FACTS

TABLES = [
    "yarn:factor=4",
    "yarn:factor=4+log_n",
    "yarn:factor=4,over=head",
    "yarn:factor=4+temperature:value=1.5+log_n",
    "nope+log_n",
    "ntk:factor=3",
    "pi:factor=2+temperature:value=1.5",
    "scales.log_n:clipped=false",
    "ministral3:factor=4",
    "llama4_temperature:beta=0.4,length=20,first=1",
    "abf:new_base=50000",
]
ATTENTION = {
    "rerope:window=8": "rerope changes which keys a query sees, or where",
    "string:shift=8,local=2": "string changes which keys a query sees, or where",
    "self_logistic:window=8,capacity=5,rate=0.3": "self_logistic changes which keys a query sees, or where",
    "lampe:head=6,tail=3,length=60,mapped=20": "lampe changes which keys a query sees, or where",
    "dynamic_yarn": "dynamic rotates rows of different lengths differently",
    "biases.alibi": "alibi adds to the logits",
    "xpos": "xpos decays with the distance",
    "scales.head_scale": "head_scale scales heads differently",
    "ssmax": "ssmax scales heads differently",
}


def learned(extension, facts=FACTS):
    return extension.weights(facts, torch.Generator().manual_seed(3))


def layer(extension, facts=FACTS, **kwargs):
    kwargs = {"scaling": facts.head_dim**-0.5, "weights": learned(extension, facts), **kwargs}
    return LayerPlan(extension=extension, facts=facts, **kwargs)


def plan(*layers, target_len=256):
    return ModelPlan(layers, target_len, line="a line", ropewalk="0.1.0")


@pytest.mark.parametrize(
    "extension",
    [
        Extension(**{slot: (spec,) if slot in ("biases", "scales") else spec})
        for slot in ("frequencies", "reach", "biases", "scales")
        for spec in EXAMPLES[slot]
    ],
    ids=lambda extension: str(next(iter(extension.specs.values()))[0]),
)
def test_every_method_survives_the_config(extension):
    written = plan(layer(extension), None).to_json()
    read = ModelPlan.from_json(written)
    assert read.layers[1] is None
    assert read.layers[0].extension == extension
    assert read.layers[0].facts == FACTS
    for name, group in learned(extension).items():
        for key, value in group.items():
            assert torch.equal(read.layers[0].weights[name][key], value)
    assert read.to_json() == written


def test_the_numbers_of_a_layer_survive_the_config():
    one = layer(
        parse("pi:factor=2"),
        scaling=0.3,
        query_factor=1.2,
        rotating_factor=0.9,
        window=7,
        rotates=False,
        norm_follows=True,
    )
    read = ModelPlan.from_json(plan(one, target_len=99).to_json())
    assert (read.target_len, read.line, read.ropewalk) == (99, "a line", "0.1.0")
    for name in ("scaling", "query_factor", "rotating_factor", "window", "rotates", "norm_follows"):
        assert getattr(read.layers[0], name) == getattr(one, name)


def test_equal_layers_are_stored_once():
    one, two = layer(parse("pi:factor=2")), layer(parse("pi:factor=3"))
    values = json.loads(plan(one, None, two, layer(parse("pi:factor=2"))).to_json())
    assert values["layers"] == [0, None, 1, 0]
    assert len(values["plans"]) == 2


@pytest.mark.parametrize("text", TABLES)
@pytest.mark.parametrize("rotary_dim", [None, FACTS.head_dim // 2])
@pytest.mark.parametrize("interleaved", [False, True])
def test_rotary_modules_compute_the_logits_of_the_equation(text, rotary_dim, interleaved):
    """A rotary module has cos and sin for queries and keys alike, and one number for each query."""
    facts = replace(FACTS, rotary_dim=rotary_dim, interleaved=interleaved)
    one, rows = layer(parse(text), facts, query_factor=1.3, rotating_factor=0.8), 48
    assert plan(one).is_tables
    rotary = plan(one).rotary(rows)
    rng = torch.Generator().manual_seed(0)
    q, k = (
        torch.randn(1, heads, rows, facts.head_dim, generator=rng).double() for heads in (facts.heads, facts.groups)
    )
    expected = reference_logits(_scaled(q, one), k, one.extension, facts)
    turned = [_turned(x, rotary, facts) for x in (q, k)]
    scale = torch.ones(rows).double() if rotary.row_scale is None else rotary.row_scale
    keys = turned[1].repeat_interleave(facts.heads // facts.groups, 1)
    logits = (turned[0] * scale[:, None]) @ keys.mT / math.sqrt(facts.head_dim)
    assert (logits - expected)[..., torch.ones(rows, rows).tril().bool()].abs().max() < 1e-12


def _scaled(q, one):
    """Queries as the plan's factors say: all dimensions by one, those that rotate by the other as well."""
    rotating = one.facts.rotating
    return torch.cat([q[..., :rotating] * one.rotating_factor, q[..., rotating:]], -1) * one.query_factor


def _turned(x, rotary, facts):
    table, at = without_decay(rotary.inv_freq), torch.arange(x.shape[2])[None]
    x = rotate(x, at, table, facts.interleaved)
    return torch.cat([x[..., : facts.rotating] * rotary.amplitude, x[..., facts.rotating :]], -1)


def test_a_constant_factor_costs_nothing_where_all_dimensions_rotate():
    rotary = plan(layer(parse("yarn:factor=4"))).rotary(8)
    assert rotary.row_scale is None
    assert rotary.amplitude == pytest.approx(0.1 * math.log(4) + 1)


@pytest.mark.parametrize("text", ATTENTION)
def test_what_tables_cannot_carry_is_named(text):
    needs = plan(layer(parse(text)))
    assert not needs.is_tables
    assert needs.why_not_tables == ATTENTION[text]


def test_a_dynamic_schedule_is_static_within_one_stage():
    assert plan(layer(parse("dynamic_yarn")), target_len=FACTS.trained_len).is_tables


def test_the_window_of_the_model_is_the_engines():
    windowed = replace(parse("yarn:factor=4"), reach=Window(window=9))
    assert plan(layer(windowed, window=9)).is_tables
    assert not plan(layer(windowed, window=8)).is_tables
    assert not plan(layer(windowed)).is_tables


def test_layers_that_differ_need_attention():
    two = plan(layer(parse("yarn:factor=4")), layer(parse("yarn:factor=8")))
    assert two.why_not_tables == "layers rotate, or scale, differently"


def test_a_scale_of_layers_that_do_not_rotate_needs_attention():
    still = layer(parse("nope+log_n"), rotates=False)
    assert plan(still).why_not_tables == "log_n scales layers that do not rotate"
    assert plan(layer(parse("nope+log_n"))).is_tables  # a rotary module that rotates by nothing


@pytest.mark.parametrize("kwargs", [{"query_factor": 1.1}, {"rotating_factor": 1.1}])
def test_a_norm_after_the_rotation_undoes_factors(kwargs):
    assert plan(layer(parse("pi:factor=2"), norm_follows=True)).is_tables
    assert not plan(layer(parse("pi:factor=2"), norm_follows=True, **kwargs)).is_tables
    assert not plan(layer(parse("pi:factor=2+log_n"), norm_follows=True)).is_tables


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda values: values.update(more=1), "plan must be a JSON object of"),
        (lambda values: values.pop("line"), "plan must be a JSON object of"),
        (lambda values: values.update(layers=[0, 1]), "an index below 1"),
        (lambda values: values.update(layers=[None]), "one at least"),
        (lambda values: values.update(layers=[True]), "an index below 1"),
        (lambda values: values.update(plans={}), "lists of layers and plans"),
        (lambda values: values.update(target_len=0), "target_len must be a whole number of tokens"),
        (lambda values: values["plans"][0].pop("scaling"), "layer plan must be a JSON object of"),
        (lambda values: values["plans"][0].update(scaling=-1), "scaling must be a number above 0"),
        (lambda values: values["plans"][0].update(window="8"), "window must be a whole number of keys"),
        (lambda values: values["plans"][0].update(norm_follows=1), "norm_follows must be true or false"),
        (lambda values: values["plans"][0].update(rotates=None), "rotates must be true or false"),
        (lambda values: values["plans"][0]["facts"].pop("base"), "facts must be a JSON object of"),
        (lambda values: values["plans"][0]["facts"].update(head_dim=3), "head_dim must be a positive even number"),
        (lambda values: values["plans"][0].update(weights=[1]), "weights must be lists of numbers"),
        (lambda values: values["plans"][0].update(weights={"log_n": {"a": [1]}}), "weights must be"),
        (lambda values: values["plans"][0]["extension"]["scales"][0].update(name="log_m"), "log_m"),
    ],
)
def test_a_plan_that_was_changed_is_refused(change, words):
    values = json.loads(plan(layer(parse("pi:factor=2+log_n"))).to_json())
    change(values)
    with pytest.raises(RopewalkError, match=words):
        ModelPlan.from_json(json.dumps(values))


def test_a_plan_must_be_json():
    with pytest.raises(Unreadable):
        ModelPlan.from_json("{")
    with pytest.raises(Unreadable):
        ModelPlan.from_json("[]")


def test_sinks_are_the_engines_own_weights():
    facts = Facts(trained_len=32, head_dim=16, heads=4, kv_heads=2, sinks=True)
    assert ModelPlan.from_json(plan(layer(parse("pi:factor=2"), facts)).to_json()).is_tables
