"""What the model brings."""

import pytest

from ropewalk import Facts, InvalidValue


def test_what_is_not_said_follows():
    facts = Facts(trained_len=8, head_dim=16, heads=4)
    assert (facts.rotating, facts.groups) == (16, 4)
    assert Facts(trained_len=8, head_dim=16, rotary_dim=6).rotating == 6
    assert Facts(trained_len=8, head_dim=16, heads=4, kv_heads=2).groups == 2


def test_a_model_says_whether_it_caps_its_logits_and_has_sinks():
    facts = Facts(trained_len=8, head_dim=16)
    assert (facts.softcap, facts.sinks) == (None, False)
    with pytest.raises(InvalidValue, match="softcap must be above 0"):
        Facts(trained_len=8, head_dim=16, softcap=-1.0)


def test_facts_are_values():
    assert hash(Facts(trained_len=8, head_dim=16)) == hash(Facts(trained_len=8, head_dim=16, base=10_000))


def test_a_row_within_the_trained_length_needs_no_stretch():
    facts = Facts(trained_len=100, head_dim=16)
    assert [facts.stretch(length, 4) for length in (1, 99, 100)] == [1, 1, 1]
    assert facts.stretch(101, 4) == 2**0.25
    assert facts.stretch(101, None) == 1.01
    assert facts.stage_starts(100, 4) == (1,)
