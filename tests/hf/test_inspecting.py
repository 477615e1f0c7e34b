"""What is said of a model, against numbers worked by hand."""

import pytest
from hf.models import tiny

from ropewalk import parse
from ropewalk.hf import extended, inspect


def test_a_model_by_hand():
    """32 tokens, 8 pairs of base 10,000: pair i turns 32 / (2 pi 10^(i/2)) times."""
    seen = inspect(tiny("llama"), target_len=256)
    assert (seen.facts.trained_len, seen.facts.heads, seen.facts.groups) == (32, 4, 2)
    assert seen.turns[:3] == pytest.approx([5.09296, 1.61054, 0.509296], rel=1e-5)
    assert seen.unfinished == 6
    assert seen.cache_bytes() == 4 * 256 * 2 * (16 + 16) * 4
    assert seen.cache_bytes(parse("streaming:window=10,n_sink=2")) == 4 * 12 * 2 * 32 * 4
    assert "yarn" in seen.applying
    assert "32 tokens" in str(seen)


def test_windows_bound_the_cache_and_nope_layers_are_counted():
    seen = inspect(tiny("cohere2"), target_len=256)
    assert seen.cache_bytes() == (3 * 12 + 256) * 2 * 32 * 4
    assert "3 layers have a window" in str(seen)
    assert "1 turn nothing" in str(seen)


def test_why_a_method_does_not_apply():
    seen = inspect(tiny("llama"), target_len=256)
    assert seen.refused
    assert all("must be" in reason for reason in seen.refused.values())
    assert not set(seen.refused) & set(seen.applying)


def test_what_attention_cannot_carry_is_said():
    assert "softcap" in str(inspect(tiny("gemma2")))
    assert inspect(tiny("llama")).carried == ""


def test_a_folder_and_an_extended_model(tmp_path):
    model = tiny("llama", num_hidden_layers=1)
    model.save_pretrained(tmp_path / "model")
    bare = inspect(model)
    with extended(model, "yarn:factor=4"):
        assert inspect(model) == bare
    assert inspect(tmp_path / "model").turns == bare.turns
