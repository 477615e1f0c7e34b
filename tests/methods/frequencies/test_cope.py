"""Clipped RoPE against the authors' numbers, and by hand."""

import math

import pytest
import torch

from ropewalk import DoesNotFit, Extension, Facts, InvalidValue, parse
from ropewalk.equation import reference_logits
from ropewalk.methods.frequencies import NTK, ByParts, CoPE, Dynamic, Interpolation, Llama3, Partial, RoPE

from golden_tables import golden

CASES = golden("cope")["cases"]
INNER = {
    "default": lambda length: None,
    "linear": lambda length: Interpolation(factor=8),
    "yarn": lambda length: ByParts(factor=8),
    "llama3": lambda length: Llama3(factor=8),
    "dynamic_at_4L": lambda length: Dynamic(inner=NTK(factor=1), steps=None),
}
# The authors' dynamic update clips softly, whatever was asked for: of it the soft table is compared alone.
CLIPPED = [
    (method, clip) for method in INNER for clip in ("soft", "hard") if (method, clip) != ("dynamic_at_4L", "hard")
]
# theta = 1, 0.316, 0.1, 0.0316: 159, 50.3, 15.9 and 5.03 rotations in 1,000 tokens
FACTS = Facts(trained_len=1000, head_dim=8, base=100.0)
THETA = [1, 100**-0.25, 0.1, 100**-0.75]


@pytest.mark.parametrize(("method", "clip"), CLIPPED)
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['dim']}-{case['base']:g}")
def test_the_authors_table(case, method, clip):
    facts = Facts(head_dim=case["dim"], base=case["base"], trained_len=case["train_len"])
    spec = CoPE(clip=clip, pairs=case["pairs"], inner=INNER[method](facts.trained_len))
    got = spec.table(facts, 4 * facts.trained_len).inv_freq
    expected = torch.tensor(case["methods"][method][clip], dtype=torch.float64)
    # The authors form 1 + cos and 1 - ramp in float32: two units in the last place of 1, times theta, are theirs.
    slack = 2**-22 * RoPE().table(facts, 1).inv_freq
    assert ((got - expected).abs() <= 1e-6 * expected + slack).all()
    assert torch.equal(got == 0, expected == 0)


def values(spec, facts=FACTS, length=1):
    return spec.table(facts, length).inv_freq.tolist()


@pytest.mark.parametrize("count", [{"turns": 60}, {"pairs": 3}])
def test_three_pairs_by_hand(count):
    """Pairs 1 to 3 are clipped: the first of them stays, the second is halved, the last stops."""
    assert values(CoPE(**count)) == pytest.approx([1, THETA[1], THETA[2] / 2, 0])
    assert values(CoPE(clip="hard", **count)) == [1, 0, 0, 0]


def test_without_a_number_pairs_of_less_than_one_rotation_are_clipped():
    short = Facts(trained_len=62, head_dim=8, base=100.0)  # 9.9, 3.1, 0.987 and 0.31 rotations
    assert values(CoPE(clip="hard"), short) == pytest.approx([1, THETA[1], 0, 0])
    assert values(CoPE(), short) == values(CoPE(turns=1), short) == pytest.approx([*THETA[:3], 0])


def test_pairs_that_the_model_does_not_rotate_are_not_counted():
    """Gemma 4's layout: the slowest pairs that rotate are the second and the third."""
    still = Facts(trained_len=1000, head_dim=12, inv_freq=(1.0, 0.001, 0.0001, 0.0, 0.0, 0.0))
    for spec in (CoPE(pairs=2), CoPE()):
        assert values(spec, still) == pytest.approx([1, 0.001, 0, 0, 0, 0])
    stopped = Facts(trained_len=1000, head_dim=8, inv_freq=(1.0, 0.001, 0.0001, 1e-24))  # by a divisor of 1e20
    assert values(CoPE(pairs=2), stopped) == pytest.approx([1, 0.001, 0, 1e-24])
    assert values(CoPE(pairs=2, inner=Partial(share=0.75, over="head"))) == pytest.approx([1, THETA[1], 0, 0])


def test_the_same_pairs_are_clipped_in_every_row():
    """Rotations are counted on the model's table: a row that is slowed has no more slow pairs."""
    spec, inner = (
        CoPE(clip="hard", inner=Dynamic(inner=Interpolation(factor=1))),
        Dynamic(inner=Interpolation(factor=1)),
    )
    short = Facts(trained_len=62, head_dim=8, base=100.0)
    for length in (1, 62, 63, 900):
        assert values(spec, short, length) == [*values(inner, short, length)[:2], 0, 0]
    assert spec.stages(short, 900) == inner.stages(short, 900)
    assert spec.stretch == math.inf


def test_a_pair_that_stands_still_carries_content_alone():
    """Queries and keys that live in the slowest pair: the logit is the same at every distance, and was not before."""
    facts = Facts(trained_len=16, head_dim=8, base=100.0)
    x = torch.zeros(1, 1, 40, 8, dtype=torch.float64)
    x[..., 3], x[..., 7] = 1.0, 0.5
    clipped, plain = (
        reference_logits(x, x, Extension(frequencies=spec), facts)[0, 0, -1] for spec in (CoPE(clip="hard"), RoPE())
    )
    torch.testing.assert_close(clipped, torch.full_like(clipped, 1.25 / math.sqrt(8)))
    assert plain.max() - plain.min() > 0.2


@pytest.mark.parametrize(
    ("spec", "facts", "refused", "sentence"),
    [
        (CoPE(pairs=5), FACTS, "pairs", "pairs must be at most 4, the pairs that rotate, got 5"),
        (CoPE(), FACTS, "turns", r"cope \(soft\) changes nothing where it clips 0 of 4 pairs; raise turns or pairs"),
        (CoPE(turns=10), FACTS, "turns", "clips 1 of 4 pairs"),  # the first of the clipped stays as it is
        (CoPE(pairs=1), FACTS, "turns", "clips 1 of 4 pairs"),
        (CoPE(pairs=2, inner=NTK(factor=2)), Facts(trained_len=9, head_dim=2), "rotary_dim", "above 2 for ntk"),
        (CoPE(pairs=2, inner=Partial(share=0.5)), FACTS, "inner", "has 2; write partial around cope, not inside it"),
    ],
    ids=str,
)
def test_models_that_it_does_not_fit(spec, facts, refused, sentence):
    with pytest.raises(DoesNotFit, match=sentence) as caught:
        spec.check_against(facts)
    assert caught.value.field == refused
    CoPE(clip="hard", pairs=1).check_against(FACTS)


def test_a_number_of_pairs_and_of_rotations_contradict_each_other():
    with pytest.raises(InvalidValue, match="turns=1 and pairs=20 both say how many pairs are clipped; state one"):
        parse("cope:turns=1,pairs=20")


def test_partial_goes_around_it():
    """cope+partial: the pairs that are left are counted among themselves."""
    narrow = Facts(trained_len=1000, head_dim=8, base=100.0, rotary_dim=4)
    both = parse("cope:pairs=2+partial:share=0.5")
    both.check_against(FACTS)
    assert both.frequencies_or_rope.table(FACTS, 1).inv_freq.tolist() == values(CoPE(pairs=2), narrow)
