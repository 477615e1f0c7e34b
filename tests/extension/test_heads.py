"""`heads=`: a reach or a schedule for some key heads of a layer, as it is stated, merged, stored and refused."""

import dataclasses

import pytest
import torch

from ropewalk import Conflict, DoesNotFit, Extension, Facts, InvalidValue, Unreadable, parse, reference_attention
from ropewalk.methods.reach import Causal, Window

FACTS = Facts(trained_len=32, head_dim=4, heads=6, kv_heads=3, layers=2)
FULL, NEAR = Extension(reach=Causal()), Extension(reach=Window(window=3))


def with_heads(text, heads, **more):
    return dataclasses.replace(parse(text), heads=heads, **more)


def test_heads_in_which_the_same_is_in_force_are_one_part():
    parts = with_heads(
        "window:window=3", {1: FULL, -1: Extension(frequencies=parse("pi:factor=2").frequencies)}
    ).head_parts(FACTS)
    assert [part.key_heads for part in parts] == [(0,), (1,), (2,)]
    parts = with_heads("window:window=3", {1: FULL, 2: NEAR}).head_parts(FACTS)
    assert [part.key_heads for part in parts] == [(0, 2), (1,)]
    assert [part.query_heads(FACTS) for part in parts] == [(0, 1, 4, 5), (2, 3)]
    assert parts[1].extension.reach == Causal()
    assert parts[0].extension == parse("window:window=3")


def test_a_layer_has_heads_of_its_own_over_those_of_the_whole():
    extension = with_heads("window:window=3", {0: FULL}, layers={1: Extension(heads={2: FULL})})
    assert extension.at_layer(0, FACTS).head_items == ((0, FULL),)
    assert extension.at_layer(1, FACTS).head_items == ((0, FULL), (2, FULL))


def test_stored_as_json_and_read_back():
    extension = with_heads("yarn:factor=4", {0: NEAR}, layers={-1: Extension(heads={2: FULL})})
    assert Extension.from_json(extension.to_json()) == extension
    assert extension.to_json()["layers"]["-1"]["heads"]["2"]["reach"]["name"] == "causal"


def test_what_is_stated_later_replaces_it_and_what_differs_conflicts():
    one = Extension(heads={0: FULL})
    assert (one + Extension(heads={1: NEAR})).head_items == ((0, FULL), (1, NEAR))
    assert Extension(heads={0: NEAR}).over(one).head_items == ((0, NEAR),)
    with pytest.raises(Conflict, match=r"both have heads \[0\]; keep one extension per head"):
        one + Extension(heads={0: NEAR})


def test_described_in_a_line():
    described = with_heads("window:window=3", {0: FULL, 2: FULL}, layers={1: Extension(heads={1: FULL})}).describe()
    assert "in key heads 0, 2: reach.causal" in described
    assert "in layer 1, key head 1: reach.causal" in described


@pytest.mark.parametrize(
    ("heads", "error", "words"),
    [
        (
            {0: parse("log_n")},
            InvalidValue,
            r"heads\[0\] must be made of frequencies, reach, got 'scales'; set scales on the layer",
        ),
        ({0: Extension(heads={0: FULL})}, InvalidValue, r"heads\[0\] must be made of frequencies, reach, got 'heads'"),
        ({"0": FULL}, InvalidValue, "heads must be keyed by whole numbers, got '0'"),
        ({10**12: FULL}, InvalidValue, "heads must be keyed by whole numbers, got 1000000000000"),
        ({0: "causal"}, InvalidValue, r"heads\[0\] must be an Extension, got 'causal'"),
        (((0, FULL), (0, NEAR)), Conflict, "heads repeats one of"),
    ],
)
def test_refused_when_it_is_stated(heads, error, words):
    with pytest.raises(error, match=words):
        Extension(heads=heads)


def test_refused_on_a_model_without_such_heads():
    with pytest.raises(DoesNotFit, match="head must be one of the model's 3 key heads, from -3 to 2, got 3"):
        Extension(heads={3: FULL}).check_against(FACTS)
    with pytest.raises(DoesNotFit, match="heads must be different heads of a model with 3 key heads"):
        Extension(heads={2: FULL, -1: NEAR}).check_against(FACTS)
    with pytest.raises(DoesNotFit, match="window"):  # rerope beyond what the model knows, in one head of one layer
        with_heads("pi:factor=2", {}, layers={1: Extension(heads={0: parse("rerope:window=99")})}).check_against(FACTS)


@pytest.mark.parametrize("nested", ["layers", "heads"])
def test_heads_in_json_hold_slots_alone(nested):
    with pytest.raises(Unreadable, match=r"heads\[0\] must be a JSON object of slots, without layers or heads"):
        Extension.from_json({"heads": {"0": {nested: {}}}})


def test_the_oracle_by_hand():
    """Two key heads of two query heads each: one sees the last two keys, the other all, under its own angles."""
    facts = Facts(trained_len=8, head_dim=2, heads=4, kv_heads=2)
    extension = with_heads("window:window=2", {1: parse("pi:factor=2+causal")})
    q, k, v = (torch.randn(1, heads, 5, 2, generator=torch.Generator().manual_seed(heads)) for heads in (4, 2, 2))
    got = reference_attention(q, k, v, extension, facts)
    for head in range(4):
        divisor, seen = (1.0, 2) if head < 2 else (2.0, 5)
        for i in range(5):
            logits = []
            for j in range(max(0, i - seen + 1), i + 1):
                angle = torch.tensor((i - j) / divisor, dtype=torch.float64)  # the one pair turns one radian a token
                x, y = q[0, head, i].double()
                turned = torch.stack([x * angle.cos() - y * angle.sin(), x * angle.sin() + y * angle.cos()])
                logits.append((turned @ k[0, head // 2, j].double()) / 2**0.5)
            weight = torch.stack(logits).softmax(0)
            expected = weight @ v[0, head // 2, max(0, i - seen + 1) : i + 1].double()
            torch.testing.assert_close(got[0, head, i], expected, rtol=1e-12, atol=1e-12)
