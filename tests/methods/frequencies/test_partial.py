"""p-RoPE: the fastest share of the model's pairs, against Gemma's numbers; and models with a layout of their own."""

from dataclasses import replace

import pytest
import torch

from ropewalk import DoesNotFit, Facts, parse
from ropewalk.methods.docstrings import page_of
from ropewalk.methods.frequencies import NTK, ByParts, Dynamic, Partial, RoPE, XPos

from examples import FACTS
from golden_tables import golden

OWN = (1.0, 0.1, 0.01, 0.001)  # a checkpoint's own schedule
GEMMA_4 = Facts(trained_len=64, head_dim=16, inv_freq=(1.0, 0.1, *[0.0] * 6))  # it rotates a quarter of the pairs


def p_rope(share, inner=None):
    return Partial(share=share, over="head", inner=inner)


@pytest.mark.parametrize(
    ("rotating", "share", "pairs"), [(8, 0.9, 3), (8, 0.65, 2), (16, 0.33, 2), (16, 0.999, 7), (8, 0.5, 2)]
)
@pytest.mark.parametrize("over", ["head", "rotating"])
def test_as_many_pairs_rotate_as_the_page_says(over, rotating, share, pairs):
    """int(share * d / 2), also where int(share * d) is odd."""
    formula = page_of(Partial).formula
    assert "2 int(share * head_dim / 2)" in formula
    assert "for i < int(share * d / 2)" in formula
    facts = replace(FACTS, head_dim=rotating, rotary_dim=None)
    assert int((Partial(share=share, over=over).table(facts, 1).inv_freq > 0).sum()) == pairs


@pytest.mark.parametrize("case", golden("p_rope")["cases"], ids=lambda case: f"{case['dim']}-{case['p']}")
def test_the_authors_frequencies(case):
    facts = Facts(head_dim=case["dim"], base=case["base"], trained_len=4096)
    got = parse(f"p_rope:share={case['p']}").frequencies_or_rope.table(facts, 1).inv_freq
    expected = torch.tensor(case["inv_freq"], dtype=torch.float64)
    torch.testing.assert_close(got, expected, rtol=2e-6, atol=0)


def test_the_whole_share_is_the_models_own_rotation():
    for facts in (
        Facts(trained_len=64, head_dim=8),
        Facts(trained_len=64, head_dim=8, inv_freq=OWN),
        Facts(trained_len=64, head_dim=32, rotary_dim=8),
    ):
        assert torch.equal(p_rope(1.0).table(facts, 1).inv_freq, RoPE().table(facts, 1).inv_freq)
        p_rope(1.0).check_against(facts)


def test_the_models_own_schedule_is_kept_in_the_pairs_that_rotate():
    facts = Facts(trained_len=64, head_dim=8, inv_freq=OWN)
    p_rope(0.5).check_against(facts)
    assert p_rope(0.5).table(facts, 1).inv_freq.tolist() == [1.0, 0.1, 0, 0]


def test_of_a_model_that_rotates_a_part_of_its_head_the_share_is_of_that_part():
    """GPT-NeoX: 8 of 32 dimensions rotate, and their frequencies stay what they are."""
    facts = Facts(trained_len=64, head_dim=32, rotary_dim=8, base=10_000.0)
    p_rope(0.75).check_against(facts)
    assert p_rope(0.75).table(facts, 1).inv_freq.tolist() == pytest.approx([1, 0.1, 0.01, 0])


def test_a_schedule_inside_is_that_of_the_whole_head():
    facts = Facts(trained_len=64, head_dim=32)
    inside = ByParts(factor=4).table(facts, 1).inv_freq
    assert torch.equal(p_rope(0.5, ByParts(factor=4)).table(facts, 1).inv_freq[:8], inside[:8])
    dynamic = Dynamic(inner=NTK(factor=1))
    assert p_rope(0.5, dynamic).stages(facts, 200) == dynamic.stages(facts, 200)
    assert p_rope(0.5, dynamic).stretch == dynamic.stretch


@pytest.mark.parametrize(
    ("share", "facts", "sentence"),
    [
        (
            0.75,
            Facts(trained_len=64, head_dim=16, inv_freq=(1.0, 0.1, *[0.0] * 6)),
            "below 0.25, the share of the pairs",
        ),
        (
            0.25,
            Facts(trained_len=64, head_dim=16, inv_freq=(1.0, 0.1, *[0.0] * 6)),
            "below 0.25, the share of the pairs",
        ),
        (0.2, Facts(trained_len=64, head_dim=32, rotary_dim=8), "at least one pair of the 8 dimensions that rotate"),
    ],
)
def test_models_that_it_does_not_fit(share, facts, sentence):
    """To stop pairs that Gemma 4 does not rotate changes nothing."""
    with pytest.raises(DoesNotFit, match=f"share must be {sentence}"):
        p_rope(share).check_against(facts)


@pytest.mark.parametrize("share", [0.25, 0.5, 1.0])
def test_pairs_that_are_stopped_do_not_decay_either(share):
    """They carry no position, by angle or by size: XPos shrinks only the pairs that rotate."""
    facts, xpos = Facts(trained_len=64, head_dim=16), XPos(scale_base=64)
    rotates = int(share * 8)
    table, whole = p_rope(share, xpos).table(facts, 1), xpos.table(facts, 1)
    assert whole.log_decay.ne(0).all()
    for got, inside in zip(table, whole, strict=True):
        assert torch.equal(got[:rotates], inside[:rotates])
        assert got[rotates:].eq(0).all()


def test_fewer_than_gemma_4_rotates():
    p_rope(0.125).check_against(GEMMA_4)
    assert p_rope(0.125).table(GEMMA_4, 1).inv_freq.tolist() == [1.0, *[0.0] * 7]
