"""What the sources claim of the zoo's methods, and what its figures say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ropewalk.lab.claims import NOT_MEASURED, ONE_SEED, POINTS, TOO_LITTLE, Claim, JudgedClaim, judge
from ropewalk.lab.recipes.zoo.figures import ACCURACY, PLAIN, REPEATED, AccuracyTerm, ZooFigures
from ropewalk.lab.recipes.zoo.inside.entropy_claims import entropy_verdicts
from ropewalk.lab.recipes.zoo.inside.logit_claims import logit_verdicts
from ropewalk.lab.recipes.zoo.inside.sink_share import sink_verdicts
from ropewalk.lab.recipes.zoo.inside.window_reach import reach_verdicts
from ropewalk.lab.recipes.zoo.methods import METHODS

AXES = ("length of the text, in trained lengths", "accuracy of the last tokens, percent")
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


def _gains(method: str, more: str, than: str) -> Sums:
    """By how much one kind of text gains more from 1x to 8x than another."""
    terms = ((1, 8, more), (-1, 1, more), (-1, 8, than), (1, 1, than))
    return (tuple(AccuracyTerm(weight, method, times, kind) for weight, times, kind in terms),)


CLAIMS = (
    Claim("rope-fails", "Bare RoPE fails beyond its length: at 8x at most 34.2 % of its accuracy is left.",
          "kexue.fm/9577", _lost(0.342, "rope"), theirs="52.37 % at 1x, 17.87 % at 8x: 34.1 %"),
    Claim("qk-bias-harmless", "Biases on queries and keys hardly change what is learned: at 1x half a point is lost "
          "at most.", "kexue.fm/9577", _gain("qk_bias", "rope", at=(1,)), -NOTHING, "52.75 instead of 52.37 %"),
    Claim("qk-bias-better", "With biases on queries and keys accuracy falls later than without: it is higher at 2x, "
          "4x and 8x.", "kexue.fm/9577", _gain("qk_bias", "rope", at=(2, 4, 8)),
          theirs="50.99, 45.25 and 39.55 % instead of 33.15, 22.85 and 17.87 %"),
    Claim("qk-bias-keeps", "With biases on queries and keys 96.6, 85.7 and 74.9 % of the accuracy stay at 2x, 4x and "
          "8x (the author: hard to reproduce).", "kexue.fm/9577",
          (*_kept(0.966, "qk_bias", 2), *_kept(0.857, "qk_bias", 4), *_kept(0.749, "qk_bias")),
          theirs="52.75 % at 1x; 50.99, 45.25 and 39.55 %"),
    Claim("qk-bias-as-sandwich", "Biases on queries and keys may do as much as Sandwich: a point less at 8x at most.",
          "kexue.fm/9577, a guess", _gain("qk_bias", "sandwich"), -A_POINT),
    Claim("hwfa-flat", "HWFA loses about half a point at 8x, less than a whole one.", "kexue.fm/9603",
          _kept(1, "hwfa"), -A_POINT, "48.70 % at 1x, 48.15 % at 8x"),
    Claim("hwfa-uses-far-text", "HWFA uses far text: from 1x to 8x repeated text gains more than other text.",
          "kexue.fm/9603",
          _gains("hwfa", REPEATED, PLAIN),
          theirs="repeated text 80.84 % at 8x; other text 48.70 % at 1x, 48.15 % at 8x"),
    Claim("hwfa-over-windows", "Windows alone lack what HWFA's full layers give: at 8x HWFA is better, and on repeated "
          "text too.", "kexue.fm/9603", (*_gain("hwfa", "window"), *_gain("hwfa", "window", kind=REPEATED))),
    Claim("hwfa-rerope-better", "With ReRoPE in its full layers HWFA is better at 1x and at 8x.", "kexue.fm/9731",
          _gain("hwfa_rerope", "hwfa", at=(1, 8)), theirs="49.46 instead of 48.70 %; 49.36 instead of 48.15 %"),
    Claim("hwfa-rerope-flat", "With ReRoPE in its full layers HWFA loses nothing at 8x.", "kexue.fm/9731",
          _kept(1, "hwfa_rerope"), -NOTHING, "49.46 % at 1x, 49.36 % at 8x"),
    Claim("hwfa-rerope-uses-more", "With ReRoPE in its full layers HWFA uses far text better than without.",
          "kexue.fm/9731", _gain("hwfa_rerope", "hwfa", kind=REPEATED),
          theirs="84.43 instead of 80.84 % at 8x of repeated text"),
    Claim("alibi-3x", "ALiBi loses nothing up to 3x.", "arXiv:2108.12409",
          (*_kept(1, "alibi", 2), *_kept(1, "alibi", 3)), -NOTHING, "no loss up to 3x"),
    Claim("alibi-8x", "ALiBi loses nothing at 8x.", "arXiv:2108.12409", _kept(1, "alibi"), -NOTHING),
    Claim("alibi-10x", "ALiBi's loss at 10x is acceptable: nine tenths of its accuracy stay.", "arXiv:2108.12409",
          _kept(9 / 10, "alibi", 10), theirs="'acceptable' at 10x"),
    Claim("alibi-weak", "What ALiBi uses of far text is weak: on repeated text of 8x HWFA is better.",
          "an article on what RoPE was extended by", _gain("hwfa", "alibi", kind=REPEATED)),
    Claim("kerple-flat", "KERPLE loses nothing at 8x.", "arXiv:2205.09921", _kept(1, "kerple"), -NOTHING),
    Claim("sandwich-flat", "Sandwich loses nothing at 8x.", "arXiv:2212.10356", _kept(1, "sandwich"), -NOTHING),
    Claim("sandwich-better", "Sandwich beats plain rotation at 8x.", "arXiv:2212.10356", _gain("sandwich", "rope")),
    Claim("xpos-flat", "XPos with blockwise attention loses nothing at 8x.", "arXiv:2212.10554", _kept(1, "xpos"),
          -NOTHING),
    Claim("window-flat", "A window whose layers together reach no further than the trained length loses nothing at "
          "8x.", "kexue.fm/9431", _kept(1, "window"), -NOTHING),
    Claim("nope-window-flat", "Windows without any positions lose nothing at 8x.", "kexue.fm/9603",
          _kept(1, "nope_window"), -NOTHING),
    Claim("nope-window-worse", "Windows without any positions are worse than windows with rotation, at 1x and 8x.",
          "kexue.fm/9603", _gain("window", "nope_window", at=(1, 8))),
    Claim("window-at-inference", "A window that is put on a trained model is better at 8x than none.",
          "kexue.fm/9431", _gain("rope_under_window", "rope")),
    Claim("random-rotary", "Random positions on a rotary model beat plain rotation at 8x.", "arXiv:2305.16843",
          _gain("randomized_rotary", "rope")),
    Claim("random-learned", "Random positions on learned ones beat plain rotation at 8x.", "kexue.fm/9444",
          _gain("randomized_learned", "rope")),
    Claim("nope-better", "No positions at all beat plain rotation at 8x.", "arXiv:2305.19466", _gain("nope", "rope")),
    Claim("log-n-trained", "log-n, trained in, beats plain rotation at 8x.", "kexue.fm/8823; 9706",
          _gain("log_n", "rope"), theirs="24.02 instead of 23.16 %"),
    Claim("key-norm-better", "With norms on keys accuracy is higher than with plain rotation at 2x, 4x and 8x.",
          "kexue.fm/9859",
          _gain("key_norm", "rope", at=(2, 4, 8))),
    Claim("key-norm-flat", "With norms on keys less than two points are lost at 8x.", "kexue.fm/9859",
          _kept(1, "key_norm"), -2 * A_POINT, "49.60 % at 1x, 47.69 % at 8x, 61.08 % of repeated text"),
    Claim("log-n-untrained-helps", "log-n without training relieves the fall: it is higher than plain rotation at 8x.",
          "kexue.fm/8823", _gain("rope_under_log_n", "rope")),
    Claim("log-n-untrained-mends-little", "log-n without training does not mend the fall: at 8x at most half of the "
          "accuracy is left.", "kexue.fm/8823", _lost(1 / 2, "rope_under_log_n")),
    Claim("pi-untrained", "Without training PI fails: at 8x at most a third of the accuracy is left.",
          "kexue.fm/9675; 9706", _lost(1 / 3, "rope_under_pi"), theirs="49.41 % at 1x, 13.54 % at 8x"),
    Claim("ntk-untrained", "Without training NTK is better than PI at 8x.", "kexue.fm/9675; 9706",
          _gain("rope_under_ntk", "rope_under_pi"), theirs="39.27 instead of 13.54 %"),
    Claim("ntk-4x", "Without training NTK reads 4x with hardly any loss: a point at most.", "kexue.fm/9675",
          _kept(1, "rope_under_ntk", 4), -A_POINT, "'minimal perplexity degradation' of a 2k model at 8k"),
    Claim("by-parts-untrained", "Without training NTK by parts is better than NTK at 8x.", "arXiv:2309.00071",
          _gain("rope_under_by_parts", "rope_under_ntk")),
    Claim("yarn-temperature", "YaRN's temperature makes NTK by parts better at 8x, without training.",
          "arXiv:2309.00071", _gain("rope_under_yarn", "rope_under_by_parts")),
    Claim("yarn-coefficient", "YaRN's 0.1 ln s + 1 is the best temperature: better at 8x than with 0.05 and with 0.2.",
          "arXiv:2309.00071", (*_gain("rope_under_yarn", "rope_under_half_yarn"),
                               *_gain("rope_under_yarn", "rope_under_twice_yarn")), theirs="0.1, fitted to LLaMA"),
    Claim("yarn-untrained", "Without training YaRN is better than NTK at 8x.", "arXiv:2309.00071; kexue.fm/9859",
          _gain("rope_under_yarn", "rope_under_ntk"), theirs="47.45 instead of 42.20 %"),
    Claim("rerope-untrained", "ReRoPE with a window of half the trained length loses less than a point at 8x, without "
          "training.", "kexue.fm/9708", _kept(1, "rope_under_rerope"), -A_POINT, "49.41 % at 1x, 48.48 % at 8x"),
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
    Claim("streaming-one", "Where texts begin with a marker, it is the only first token that StreamingLLM needs: with "
          "four it gains less than a point at 8x.", "arXiv:2309.17453",
          _gain("marked_with_1_sink", "marked_under_streaming"), -A_POINT,
          "perplexity 18.01 with one, 18.02 with four"),
    Claim("streaming-eight", "More than four first tokens gain little: eight gain less than a point at 8x.",
          "arXiv:2309.17453", _gain("marked_under_streaming", "marked_with_8_sinks"), -A_POINT),
    Claim("streaming-no-memory", "StreamingLLM does not lengthen the context: from 1x to 8x repeated text gains at "
          "most a point more than other text.", "arXiv:2309.17453", _gains("marked_under_streaming", PLAIN, REPEATED),
          -A_POINT),
    Claim("longer-rows-later", "Short rows for 20, 40 or 80 % of the steps and rows of eight times the length for the "
          "rest are as good at 8x as long rows throughout: half a point at most.", "arXiv:2309.16039",
          tuple(terms for share in (20, 40, 80) for terms in _gain(f"longer_from_{share}", "longer_from_0")), -NOTHING,
          "perplexity 7.59 of each, for up to 40 % less computation"),
    Claim("longer-rows-soon", "Rows should become longer after 20 to 40 % of the steps: at 8x both are better than "
          "after 80 %.", "an article's impression of arXiv:2309.16039",
          (*_gain("longer_from_20", "longer_from_80"), *_gain("longer_from_40", "longer_from_80")),
          theirs="'seems a bit better'; its perplexities 7.59, 7.59, 7.59 and 4.26, 4.25, 4.25 say neither"),
    Claim("longer-rows-at-all", "Longer rows under a base of 500,000 for the last fifth of the steps are better at 8x "
          "than short rows throughout.", "arXiv:2309.16039", _gain("longer_from_80", "rope")),
    Claim("gqa-after-5-percent", "Grouped queries after 5 % of the steps are as good as all heads: half a point at "
          "most.", "arXiv:2305.13245", _gain("rope_to_2_kv_heads", "rope", at=(1,)), -NOTHING,
          "47.1 instead of 47.2 points"),
    Claim("gqa-better-than-mqa", "Grouped queries are better than a single key head after as much training.",
          "arXiv:2305.13245", _gain("rope_to_2_kv_heads", "rope_to_1_kv_head", at=(1,)),
          theirs="47.1 instead of 46.6 points"),
    Claim("mqa-harms", "A single key head costs quality.", "arXiv:2305.13245",
          _gain("rope", "rope_to_1_kv_head", at=(1,)), theirs="46.6 instead of 47.2 points"),
    Claim("mqa-needs-training", "Without training a single averaged key head breaks the model: at most half of its "
          "accuracy is left at 1x.", "arXiv:2305.13245", ((AccuracyTerm(1 / 2, "rope", 1),
                                                           AccuracyTerm(-1, "rope_with_1_kv_head", 1)),)),
    Claim("gqa-untrained", "Without training grouped queries are better than a single averaged key head.",
          "arXiv:2305.13245", _gain("rope_with_2_kv_heads", "rope_with_1_kv_head", at=(1,)),
          theirs="reasonable at once, while a single head needs training"),
)  # fmt: skip


def _methods_of(claim: Claim) -> list[str]:
    """The methods that a claim is about."""
    return list(dict.fromkeys(term.method for terms in claim.sums for term in terms))


def verdicts(results: Mapping[str, Any]) -> list[JudgedClaim]:
    """What the results of `ropewalk train zoo` say of every claim."""
    ours = ZooFigures(results["models"])
    models = results["models"]
    others = (*logit_verdicts(models), *entropy_verdicts(models), *reach_verdicts(models), *sink_verdicts(models))
    return [*(_verdict(claim, ours) for claim in CLAIMS), *others]


def _verdict(claim: Claim, ours: ZooFigures) -> JudgedClaim:
    """Reproduced, not reproduced or not settled, by the intervals; with the figures."""
    methods = _methods_of(claim)
    if not set(methods) <= set(ours.methods) or not ours.seeds(*methods):
        return JudgedClaim(claim=claim, word=NOT_MEASURED, unit=POINTS)
    curves = {f"{name}, {kind}": ours.curve(name, kind) for name in methods for kind in _kinds(claim)}
    if any(min(ours.all(name, 1, PLAIN, ACCURACY), default=1) < LEARNED for name in map(_trained_as, methods)):
        return JudgedClaim(claim=claim, word=TOO_LITTLE, unit=POINTS, axes=AXES, curves=curves)
    if len(ours.seeds(*methods)) == 1:
        return JudgedClaim(claim=claim, word=ONE_SEED, unit=POINTS, axes=AXES, curves=curves)
    return judge(claim, [ours.sum(terms) for terms in claim.sums], POINTS, AXES, curves)


def _trained_as(method: str) -> str:
    """The method whose training a model shows: one that is changed without training may fail, and still be evidence."""
    return METHODS[method].of or method


def _kinds(claim: Claim) -> list[str]:
    return list(dict.fromkeys(term.kind for terms in claim.sums for term in terms))
