"""What the articles claim of formulas, judged by computing them: no model is trained, so intervals have no width."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

import ropewalk as rw
from ropewalk.equation import reference_logits, reference_weights
from ropewalk.measure.metrics.intervals import Estimate
from ropewalk.methods.biases import Sandwich
from ropewalk.methods.frequencies import NoPE, RoPE

from studies.claims import ARTICLE_3, ARTICLE_5, Claim, EstimateOf, JudgedClaim, Unit, judge

LLAMA = rw.Facts(trained_len=2048, head_dim=128, heads=32, layers=32)
WIDTH, PARAMETERS = 4096, 6_738_415_616  # of LLaMA 7B
TIMES = 8  # the trained length, unless a claim says otherwise
EXACT = 1e-9  # rounding in float64
TEXT = 32  # tokens, of random queries and keys


class Computed(NamedTuple):
    """A claim, and what its sums are."""

    claim: Claim
    unit: Unit
    figures: Callable[[], Sequence[float]]


def ratios(method: str, facts: rw.Facts = LLAMA, times: int = TIMES) -> Tensor:
    """How fast each pair is rotated under a method, relative to the model's own schedule."""
    longer = times * facts.trained_len
    schedule = rw.parse(method, trained_len=facts.trained_len, target_len=longer).frequencies
    assert schedule is not None
    return schedule.table(facts, longer).inv_freq / own(facts)


def own(facts: rw.Facts) -> Tensor:
    """Radians per position of each pair."""
    return RoPE().table(facts, facts.trained_len).inv_freq


def last_position() -> list[float]:
    """The article's example: trained on 4 tokens, 8 are read."""
    tiny = rw.Facts(trained_len=4, head_dim=128)
    return [3 - 7 * float(ratios("pi", tiny, 2).max())]


def slow(facts: rw.Facts) -> Tensor:
    """Which pairs make less than a whole rotation within the trained length."""
    return facts.trained_len * own(facts) < 2 * math.pi


def beyond_training() -> list[float]:
    """Slow pairs that turn farther at 8x under NTK than in training."""
    return [float((slow(LLAMA) & (TIMES * ratios("ntk") > 1 + EXACT)).sum())]


def ends_of_ntk() -> list[float]:
    """The fastest pair, and the slowest, against what the formula was made for."""
    changed = ratios("ntk")
    return [-abs(float(changed[0]) - 1), -abs(float(changed[-1]) * TIMES - 1)]


def some(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def shifted() -> list[float]:
    """The largest change of a logit when the whole text is moved by 1,000 positions."""
    q, k = some(1, 1, TEXT, 128, seed=0), some(1, 1, TEXT, 128, seed=1)
    facts, extension = rw.Facts(trained_len=2048, head_dim=128), rw.Extension(frequencies=RoPE())
    at = torch.arange(TEXT)[None]
    logits = [reference_logits(q, k, extension, facts, rw.Tokens(places)) for places in (at, at + 1000)]
    within = logits[0] > -math.inf
    return [-float((logits[0] - logits[1])[within].abs().max())]


def moved_by_a_key_bias(frequencies: RoPE | NoPE) -> float:
    """The largest change of an attention weight by one bias on all keys."""
    q, k, bias = some(1, 1, TEXT, 128, seed=0), some(1, 1, TEXT, 128, seed=1), some(128, seed=2)
    facts, extension = rw.Facts(trained_len=2048, head_dim=128), rw.Extension(frequencies=frequencies)
    before, after = (reference_weights(q, keys, extension, facts) for keys in (k, k + bias))
    return float((before - after).abs().max())


def constant_bias() -> list[float]:
    """Sandwich's bias in head 1 over 512 tokens: its mean in the first quarter, less that of the last half."""
    distance = torch.arange(512, dtype=torch.float64)
    curve = Sandwich(first=0).bias(distance, distance, rw.Facts(trained_len=512, head_dim=128), {})[0]
    return [float(curve[:128].mean() - curve[256:].mean())]


def cost_of_a_token(length: int) -> float:
    """Floating-point operations of training on one token: 6 for a parameter, and 6 for a layer's width and each of the
    keys, of which a causal model reads half on average and multiplies twice."""
    return 6 * PARAMETERS + 6 * LLAMA.layers * WIDTH * length


def share_of_biases() -> list[float]:
    """Biases on queries and keys, as a percentage of all parameters."""
    return [-100 * 2 * WIDTH * LLAMA.layers / PARAMETERS]


COMPUTED = (
    Computed(
        Claim("pi-positions", "PI puts every position within those of training: of a model trained on 4 tokens that "
              "reads 8, none is beyond position 3.", ARTICLE_3, (("3, less the last position",),), -EXACT,
              "0, 0.5, ..., 3.5, which 'all fall within [0, 3]'",
              "The last position is 7 / 2 = 3.5. In general it is L - 1/s instead of L - 1, for s trained lengths L. "
              "Such a step of less than one position does no harm that was seen."),
        Unit("positions"), last_position),
    Computed(
        Claim("ntk-ends", "NTK leaves the fastest pair of dimensions as it is and slows the slowest one by the whole "
              "factor.", f"{ARTICLE_3}; {ARTICLE_5}",
              (("minus the change of the fastest pair",), ("minus the change of the slowest, beyond the factor 8",)),
              -EXACT, "the base is chosen so"),
        Unit("relative to the formula"), ends_of_ntk),
    Computed(
        Claim("ntk-extrapolates", "NTK still extrapolates a little: at 8x slow pairs turn farther than in training.",
              f"{ARTICLE_3} on arXiv:2309.00071",
              (("pairs with less than one rotation in training that turn farther at 8x",),),
              theirs="'a slight extrapolation in some dimensions'",
              note="Of LLaMA's 64 pairs 23 make less than a rotation in 2,048 tokens; only the slowest one stays "
              "within its angles."),
        Unit("pairs", digits=0), beyond_training),
    Computed(
        Claim("slow-pairs-several", "Not only the slowest pair makes less than a whole rotation in training.",
              f"{ARTICLE_5} on arXiv:2309.00071", (("pairs with less than one rotation in 2,048 tokens",),), 1,
              "'not only i = d/2 - 1'", "LLaMA: 64 pairs, base 10,000."),
        Unit("pairs", digits=0), lambda: [float(slow(LLAMA).sum())]),
    Computed(
        Claim("rope-relative", "Under rotation a logit depends only on how far the key is from the query.", ARTICLE_3,
              (("minus the largest change of a logit when a text moves by 1,000 positions",),), -EXACT),
        Unit("logits"), shifted),
    Computed(
        Claim("key-bias-cancels", "Without rotation a bias on keys changes nothing.", "kexue.fm/9577",
              (("minus the largest change of an attention weight",),), -EXACT),
        Unit("of the attention"), lambda: [-moved_by_a_key_bias(NoPE())]),
    Computed(
        Claim("key-bias-with-rotation", "With rotation a bias on keys changes the attention.", "kexue.fm/9577",
              (("the largest change of an attention weight",),)),
        Unit("of the attention"), lambda: [moved_by_a_key_bias(RoPE())]),
    Computed(
        Claim("constant-bias-falls", "With equal constants as biases their product is Sandwich's, and falls with the "
              "distance.", "kexue.fm/9577",
              (("mean up to a distance of 128, less the mean from 256 to 511",),), theirs="a curve that falls"),
        Unit("logits"), constant_bias),
    Computed(
        Claim("qk-bias-free", "Biases on queries and keys cost almost nothing: at most a thousandth of the parameters.",
              "kexue.fm/9577", (("minus their share of the parameters",),), -0.1,
              "'almost imperceptible' in computation", "A 7B LLaMA. The bound is ours."),
        Unit("percent of the parameters", digits=4), share_of_biases),
    Computed(
        Claim("long-rows-cost", "Training on texts of 128k tokens costs much more than on texts of 4k: at least twice "
              "as many operations for a token.", ARTICLE_3,
              (("operations for a token at 131,072 over those at 4,096",),), 2, "'very large'",
              "A 7B LLaMA: 6 operations for each parameter, and 6 for its width, layers and tokens of the text. Memory "
              "and communication come on top. The bound is ours."),
        Unit("times", digits=2), lambda: [cost_of_a_token(131_072) / cost_of_a_token(4096)]),
)  # fmt: skip


def verdicts(_: Mapping[str, Any]) -> list[JudgedClaim]:
    """Every claim, with the figures."""
    return [judge(one.claim, _exactly(one), one.unit, drawn="formulas") for one in COMPUTED]


def _exactly(one: Computed) -> EstimateOf:
    """The figure of each sum of a claim, in the order of the sums: without an interval."""
    of_sums = dict(zip(one.claim.sums, one.figures(), strict=True))
    return lambda terms, level: Estimate(of_sums[tuple(terms)], of_sums[tuple(terms)], of_sums[tuple(terms)], 1)
