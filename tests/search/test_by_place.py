"""Spaces over heads and over layers: what their knobs make, and the order of heads that a model is measured for."""

from random import Random

import pytest
import torch

import ropewalk as rw
from ropewalk import extended
from ropewalk.errors import DoesNotFit
from ropewalk.measure.diagnostics.attention_weights import mass_far_by_key_head
from ropewalk.methods.facts import Facts
from ropewalk.search.goal import Goal
from ropewalk.search.proposals import open_spaces, spaces_of
from ropewalk.search.spaces import Heads, LayerFactors

from hf.models import tiny

FACTS = Facts(trained_len=64, head_dim=8, heads=4, kv_heads=2, layers=3)
ORDER = (4, 1, 0, 5, 3, 2)  # of six key heads, two a layer


def goal(space="heads", **given):
    return Goal(facts=FACTS, target_len=256, samples=2, space=space, heads=ORDER, **given)


def test_heads_that_look_furthest_keep_all_keys():
    values = {"keeping": 0.5, "window": 0.25, "sinks": 3, "schedule": "yarn", "stretch": 4.0}
    found = Heads().extension(goal(), values)
    named = "duo_attention:window=16,n_sink=3,retrieval=[0,1,4]+yarn:factor=4"
    assert found == rw.parse(named, layers=3, key_heads=2, trained_len=64)


def test_by_rank_is_ms_poes_factor_in_each_layer():
    values = {"keeping": 1.0, "window": 0.25, "sinks": 3, "schedule": "by_rank", "stretch": 3.0}
    found = Heads().extension(goal(), values)
    assert found.reach is None
    slowed = {
        (layer, head): one.frequencies.factor for layer, part in found.layer_items for head, one in part.head_items
    }
    assert slowed == {(0, 0): 2.0, (1, 0): 2.0, (2, 1): 2.0}  # the second of each layer; the first is as trained


def test_layers_lie_on_a_bezier_curve():
    found = LayerFactors().extension(goal("layer_factors"), {"first": 1.0, "early": 2.0, "late": 4.0, "last": 8.0})
    factors = [part.frequencies.factor for _, part in found.layer_items]
    assert factors == [1.0, pytest.approx((1 + 3 * 2 + 3 * 4 + 8) / 8), 8.0]


@pytest.mark.parametrize("space", [Heads(), LayerFactors()], ids=["heads", "layer_factors"])
def test_proposals_fit_and_every_knob_makes_a_difference(space):
    searched = goal(space.name)
    assert list(spaces_of(searched)) == ["hand_set", space.name]
    assert [one.name for one in open_spaces(searched, lambda extension: True)] == [space.name]
    for values in [*space.seeds(searched), *(space.proposed(searched, [], Random(seed)) for seed in range(12))]:
        made = space.extension(searched, values)
        made.check_against(FACTS)
        assert space.betters(searched, made) or made.heads == () == made.layers
    usual = {**space.example(searched), **({"schedule": "by_rank"} if space.name == "heads" else {})}
    for name, knob in space.knobs(searched).items():
        others = getattr(knob, "choices", None) or (knob.low, (knob.low + knob.high) / 2 if name != "sinks" else 9)
        assert len({space.extension(searched, {**usual, name: other}) for other in others}) > 1, name


def test_heads_need_an_order():
    without = Goal(facts=FACTS, target_len=256, samples=2, space="heads")
    with pytest.raises(DoesNotFit, match="in the order that fit measures"):
        Heads().extension(without, Heads().example(without))


def test_how_far_a_head_looks_by_plain_softmax():
    model = tiny("llama", num_hidden_layers=2)
    ids = torch.randint(3, 97, (2, 30), generator=torch.Generator().manual_seed(0))
    with extended(model, rw.Extension(), mode="attention"):
        found = mass_far_by_key_head(model, ids, near=5, first=2, rows=3)
    eager = tiny("llama", "eager", num_hidden_layers=2)
    with torch.no_grad():
        weights = eager(ids, output_attentions=True).attentions
    for layer, shares in enumerate(found):
        rows = [weights[layer][:, :, row, 2 : max(2, row - 4)].sum(-1) for row in (9, 19, 29)]
        by_query_head = torch.stack(rows).mean((0, 1))
        assert shares == pytest.approx([float(by_query_head[:2].mean()), float(by_query_head[2:].mean())], rel=1e-4)


@pytest.mark.nightly
def test_a_model_is_measured_for_the_order_and_reads_what_is_proposed(tmp_path):
    found = rw.fit(
        "default",
        1024,
        conditions=rw.Conditions(space="heads"),
        budget="20s",
        samples=2,
        judges=2,
        judge_on="",
        folder=tmp_path,
    )
    order = found.to_dict()["goal"]["heads"]
    assert sorted(order) == list(range(24))
    model = found.subject.model
    searched = Goal(facts=found.subject.facts, target_len=1024, samples=2, space="heads", heads=tuple(order))
    with extended(model, Heads().extension(searched, Heads().example(searched))), torch.no_grad():
        assert model(torch.arange(3, 700)[None] % 900).logits.isfinite().all()
