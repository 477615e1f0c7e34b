"""What the sources claim of the zoo's methods, and what its figures say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ropewalk.lab.claims import NOT_MEASURED, POINTS, TOO_LITTLE, Claim, JudgedClaim, judge
from ropewalk.lab.recipes.zoo.bias_claims import bias_verdicts
from ropewalk.lab.recipes.zoo.figures import ACCURACY, PLAIN, REPEATED, AccuracyTerm, ZooFigures

AXES = ("length of the text, in trained lengths", "accuracy of its last tokens, percent")
LEARNED = 0.1  # accuracy at 1x below which a model is evidence for no claim
NOTHING = 0.005  # half a point: what HWFA loses in its article, which calls that keeping all
A_POINT = 0.01

Sums = tuple[tuple[AccuracyTerm, ...], ...]


def _gain(method: str, than: str, *, at: tuple[int, ...] = (8,), kind: str = PLAIN) -> Sums:
    """Of one method over another."""
    return tuple((AccuracyTerm(1, method, times, kind), AccuracyTerm(-1, than, times, kind)) for times in at)


def _kept(least: float, method: str, times: int = 8) -> Sums:
    """Above a part of the accuracy at 1x."""
    return ((AccuracyTerm(1, method, times), AccuracyTerm(-least, method, 1)),)


def _lost(most: float, method: str, times: int = 8) -> Sums:
    """Below a part of the accuracy at 1x."""
    return ((AccuracyTerm(most, method, 1), AccuracyTerm(-1, method, times)),)


def _repeats(method: str, times: int, less: int) -> Sums:
    """By how much repeated text is easier at one length than at another."""
    return ((AccuracyTerm(1, method, times, REPEATED), AccuracyTerm(-1, method, less, REPEATED)),)


CLAIMS = (
    Claim("rope-fails", "Bare RoPE fails beyond its length: at 8x at most a third of its accuracy is left.",
          "kexue.fm/9577", _lost(1 / 3, "rope"), theirs="52.37 % at 1x, 17.87 % at 8x"),
    Claim("qk-bias-better", "With biases on queries and keys accuracy falls later than without: it is higher at 2x, "
          "4x and 8x.", "kexue.fm/9577", _gain("qk_bias", "rope", at=(2, 4, 8)),
          theirs="50.99, 45.25 and 39.55 % instead of 33.15, 22.85 and 17.87 %"),
    Claim("qk-bias-keeps", "With biases on queries and keys three quarters of the accuracy stay at 8x (the author: "
          "hard to reproduce).", "kexue.fm/9577", _kept(3 / 4, "qk_bias"), theirs="52.75 % at 1x, 39.55 % at 8x"),
    Claim("hwfa-flat", "HWFA loses about half a point at 8x, less than a whole one.", "kexue.fm/9603",
          _kept(1, "hwfa"), -A_POINT, "48.70 % at 1x, 48.15 % at 8x"),
    Claim("hwfa-uses-far-text", "HWFA uses far text: repeated text becomes easier with length.", "kexue.fm/9603",
          _repeats("hwfa", 8, 1), theirs="80.84 % at 8x of repeated text, 48.70 % at 1x"),
    Claim("hwfa-rerope-flat", "With ReRoPE in its full layers HWFA loses nothing at 8x.", "kexue.fm/9731",
          _kept(1, "hwfa_rerope"), -NOTHING, "49.46 % at 1x, 49.36 % at 8x"),
    Claim("hwfa-rerope-uses-more", "With ReRoPE in its full layers HWFA uses far text better than without.",
          "kexue.fm/9731", _gain("hwfa_rerope", "hwfa", kind=REPEATED),
          theirs="84.43 instead of 80.84 % at 8x of repeated text"),
    Claim("alibi-3x", "ALiBi loses nothing at 3x.", "arXiv:2108.12409", _kept(1, "alibi", 3), -NOTHING,
          "no loss up to 3x"),
    Claim("alibi-8x", "ALiBi loses nothing at 8x.", "arXiv:2108.12409", _kept(1, "alibi"), -NOTHING),
    Claim("alibi-10x", "ALiBi's loss at 10x is acceptable: nine tenths of its accuracy stay.", "arXiv:2108.12409",
          _kept(9 / 10, "alibi", 10), theirs="'acceptable' at 10x"),
    Claim("kerple-flat", "KERPLE loses nothing at 8x.", "arXiv:2205.09921", _kept(1, "kerple"), -NOTHING),
    Claim("sandwich-flat", "Sandwich loses nothing at 8x.", "arXiv:2212.10356", _kept(1, "sandwich"), -NOTHING),
    Claim("xpos-flat", "XPos with blockwise attention loses nothing at 8x.", "arXiv:2212.10554", _kept(1, "xpos"),
          -NOTHING),
    Claim("window-flat", "A window whose layers together reach no further than the trained length loses nothing at "
          "8x.", "kexue.fm/9431", _kept(1, "window"), -NOTHING),
    Claim("random-rotary", "Random positions on a rotary model beat plain rotation at 8x.", "arXiv:2305.16843",
          _gain("randomized_rotary", "rope")),
    Claim("random-learned", "Random positions on learned ones beat plain rotation at 8x.", "kexue.fm/9444",
          _gain("randomized_learned", "rope")),
    Claim("nope-better", "No positions at all beat plain rotation at 8x.", "arXiv:2305.19466", _gain("nope", "rope")),
    Claim("log-n-trained", "log-n, trained in, beats plain rotation at 8x.", "kexue.fm/8823", _gain("log_n", "rope")),
    Claim("key-norm-better", "Norms on keys are higher than plain rotation at 2x, 4x and 8x.", "kexue.fm/9859",
          _gain("key_norm", "rope", at=(2, 4, 8))),
    Claim("key-norm-flat", "With norms on keys nothing is lost at 8x.", "kexue.fm/9859", _kept(1, "key_norm"),
          -NOTHING, "47.69 % at 8x, 61.08 % of repeated text"),
    Claim("log-n-untrained-helps", "log-n without training relieves the fall: it is higher than plain rotation at 8x.",
          "kexue.fm/8823", _gain("rope_under_log_n", "rope")),
    Claim("log-n-untrained-mends-little", "log-n without training does not mend the fall: at 8x at most half of the "
          "accuracy is left.", "kexue.fm/8823", _lost(1 / 2, "rope_under_log_n")),
    Claim("pi-untrained", "Without training PI fails: at 8x at most a third of the accuracy is left.",
          "kexue.fm/9675; 9706", _lost(1 / 3, "rope_under_pi"), theirs="49.41 % at 1x, 13.54 % at 8x"),
    Claim("ntk-untrained", "Without training NTK is better than PI at 8x.", "kexue.fm/9675; 9706",
          _gain("rope_under_ntk", "rope_under_pi"), theirs="39.61 instead of 13.54 %"),
    Claim("yarn-untrained", "Without training YaRN is better than NTK at 8x.", "arXiv:2309.00071",
          _gain("rope_under_yarn", "rope_under_ntk")),
    Claim("rerope-untrained", "ReRoPE without training loses less than a point at 8x.", "kexue.fm/9708",
          _kept(1, "rope_under_rerope"), -A_POINT, "49.41 % at 1x, 48.48 % at 8x"),
    Claim("window-untrained", "A window without the first tokens fails where texts begin with a marker: at 8x at most "
          "half of the accuracy is left.", "arXiv:2309.17453", _lost(1 / 2, "marked_under_window"),
          theirs="perplexity 5,158 instead of 5.40"),
    Claim("lm-infinite-first-tokens", "LM-Infinite needs the first tokens: with them it is better at 8x than a window "
          "alone.", "arXiv:2308.16137", _gain("marked_under_lm_infinite", "marked_under_window")),
    Claim("lm-infinite-flat", "LM-Infinite loses nothing at 8x.", "arXiv:2308.16137",
          _kept(1, "marked_under_lm_infinite"), -NOTHING),
    Claim("streaming-flat", "StreamingLLM with four first tokens loses nothing at 8x.", "arXiv:2309.17453",
          _kept(1, "marked_under_streaming"), -NOTHING, "perplexity 5.40; 5.43 where all is computed again"),
    Claim("streaming-newlines", "Four newlines serve StreamingLLM nearly as well as the first tokens: at 8x they cost "
          "less than a point.", "arXiv:2309.17453", _gain("marked_with_newlines", "marked_under_streaming"), -A_POINT,
          "perplexity 5.60 instead of 5.40"),
    Claim("streaming-no-memory", "StreamingLLM does not lengthen the context: repeated text of 8x is at most a point "
          "easier than of 2x.", "arXiv:2309.17453", _repeats("marked_under_streaming", 2, 8), -A_POINT),
    Claim("longer-rows-later", "Short rows for 20 or 40 % of the steps and rows of eight times the length for the rest "
          "are as good at 8x as long rows throughout: half a point at most.", "arXiv:2309.16039",
          (*_gain("longer_from_20", "longer_from_0"), *_gain("longer_from_40", "longer_from_0")), -NOTHING,
          "the same loss for 40 % less computation"),
    Claim("longer-rows-soon", "Rows should become longer after 20 to 40 % of the steps: at 8x both are better than "
          "after 80 %.", "arXiv:2309.16039", (*_gain("longer_from_20", "longer_from_80"),
                                              *_gain("longer_from_40", "longer_from_80"))),
    Claim("longer-rows-at-all", "Longer rows for the last fifth of the steps are better at 8x than short rows "
          "throughout.", "arXiv:2309.16039", _gain("longer_from_80", "rope")),
    Claim("gqa-after-5-percent", "Grouped queries after 5 % of the steps are as good as all heads: half a point at "
          "most.", "arXiv:2305.13245", _gain("rope_to_2_kv_heads", "rope", at=(1,)), -NOTHING,
          "47.1 instead of 47.2 points"),
    Claim("gqa-better-than-mqa", "Grouped queries are better than a single key head after as much training.",
          "arXiv:2305.13245", _gain("rope_to_2_kv_heads", "rope_to_1_kv_head", at=(1,)),
          theirs="47.1 instead of 46.6 points"),
    Claim("gqa-needs-training", "Without training, averaged key heads break the model: at most half of its accuracy is "
          "left at 1x.", "arXiv:2305.13245", ((AccuracyTerm(1 / 2, "rope", 1),
                                                AccuracyTerm(-1, "rope_with_2_kv_heads", 1)),)),
)  # fmt: skip


def _methods_of(claim: Claim) -> list[str]:
    """The methods that a claim is about."""
    return list(dict.fromkeys(term.method for terms in claim.sums for term in terms))


def verdicts(results: Mapping[str, Any]) -> list[JudgedClaim]:
    """What the results of `ropewalk train zoo` say of every claim."""
    ours = ZooFigures(results["models"])
    return [*(_verdict(claim, ours) for claim in CLAIMS), *bias_verdicts(results["models"])]


def _verdict(claim: Claim, ours: ZooFigures) -> JudgedClaim:
    """Reproduced, not reproduced or not settled, by the intervals; with the figures."""
    methods = _methods_of(claim)
    if not set(methods) <= set(ours.methods) or not ours.seeds(*methods):
        return JudgedClaim(claim=claim, word=NOT_MEASURED, unit=POINTS)
    curves = {f"{name}, {kind}": ours.curve(name, kind) for name in methods for kind in _kinds(claim)}
    if any(min(ours.all(name, 1, PLAIN, ACCURACY)) < LEARNED for name in methods):
        return JudgedClaim(claim=claim, word=TOO_LITTLE, unit=POINTS, axes=AXES, curves=curves)
    return judge(claim, [ours.sum(terms) for terms in claim.sums], POINTS, AXES, curves)


def _kinds(claim: Claim) -> list[str]:
    return list(dict.fromkeys(term.kind for terms in claim.sums for term in terms))
