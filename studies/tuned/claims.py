"""What the sources claim of schedules without training and with a little, and what the tuning table says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ropewalk.measure.metrics.intervals import Estimate

from studies.claims import (
    ARTICLE_2,
    ARTICLE_3,
    ARTICLE_5,
    NATS,
    NOT_MEASURED,
    ONE_MODEL,
    ONE_SEED,
    Claim,
    EstimateOf,
    JudgedClaim,
    Unit,
    judge,
)
from studies.tuned.figures import ALL, FIFTH, LONGEST, LossTerm, SpikeTerm, TunedFigures

NO_HARM = 0.02  # nats: a rise too small to report, as in `compare`
AXES = ("length of the text, in trained lengths", "loss of the last tokens, nats")
BY_CONSTRUCTION = "By construction: within the trained length the computation is the base model's."
SAME_TEXTS = (
    "Training on texts like those of the test lowers the loss by itself, which hides harm. The control against as much "
    "training at the trained length takes that out."
)
FEWER_TOKENS = (
    "The source trains on 0.5 to 4.2 million tokens a step. The steps here have a few thousand at most (rows times the "
    "length of a row), so the verdict is about this budget."
)
YARNS_PLAN = (
    "The source trains on 64 rows of 65,536 tokens a step, and goes on to 32x from its weights for 16x. The steps here "
    "have two thousand tokens, so the verdict is about this budget."
)
DROPES_PLAN = (
    "DroPE is trained at its source's rate, 3e-4, without weight decay; all others at the table's. The source trains "
    "for 5,000 to 120,000 steps, so the verdict is about this budget."
)
OF_LLAMA_LONG = ("xpos_abf", "abf_half", "abf_short")  # what one source compares with a larger base; not in every table
TRAINED = ("none", "pi", "ntk", "yarn", "abf", "dynamic")  # with all keys at a rotary angle


def _below(method: str, than: str, budget: str, times: int = LONGEST) -> tuple[LossTerm, ...]:
    """By how much the loss of one is below another's."""
    return LossTerm(1, than, budget, times), LossTerm(-1, method, budget, times)


def _harm(method: str, name: str, source: str, note: str = "") -> Claim:
    """Training on the texts of the test lowers the loss of short ones too, so it is compared with training alone."""
    control = "Compared with as much training at the trained length"
    text = f"{control}, {name} with all steps harms short texts by at most 0.02."
    terms, theirs = _below(method, "short", ALL, 1), "none; it compares with the base model"
    return Claim(f"{method}-harm-control", text, source, (terms,), -NO_HARM, theirs, note)


def _best(method: str, others: Sequence[str]) -> tuple[tuple[LossTerm, ...], ...]:
    """By how much a trained method is below each of the others."""
    return tuple(_below(method, other, ALL) for other in others if other != method)


SHORT = LossTerm(1, "none", "", 1)  # the base model within its trained length
CLAIMS = (
    Claim("dynamic-short", "Without training dynamic NTK leaves short texts unchanged.", ARTICLE_5,
          ((SHORT, LossTerm(-1, "dynamic", "", 1)),), -NO_HARM, note=BY_CONSTRUCTION),
    Claim("dynamic-yarn-short", "Without training YaRN with dynamic scaling leaves short texts unchanged.",
          "arXiv:2309.00071", ((SHORT, LossTerm(-1, "dynamic_yarn", "", 1)),), -NO_HARM,
          note=BY_CONSTRUCTION),
    Claim("dynamic-yarn-beyond", "YaRN breaks beyond the length that it is set to, and degrades gently with dynamic "
          "scaling: without training dynamic YaRN reads 8x better than YaRN set to 4x.", "arXiv:2309.00071",
          (_below("dynamic_yarn", "yarn_4x", ""),), theirs="beyond the length of fine-tuning; here without training"),
    Claim("ntk-4x", "Without training NTK, set to 8x, reads 4x with hardly any loss: at most 0.02 above the base "
          "model at 1x.",
          f"bloc97 2023, in {ARTICLE_2}", ((SHORT, LossTerm(-1, "ntk", "", 4)),), -NO_HARM,
          "'minimal perplexity degradation' of a 2k model at 8k"),
    Claim("static-harm", "Without training every static schedule harms short texts: PI, NTK and YaRN by more than "
          "0.02.",
          ARTICLE_5,
          tuple((LossTerm(1, name, "", 1), LossTerm(-1, "none", "", 1)) for name in ("pi", "ntk", "yarn")), NO_HARM),
    Claim("pi-needs-training", "PI has to be trained: its loss at 8x falls by more than 0.02 with all steps.",
          "kexue.fm/9675", ((LossTerm(1, "pi", ""), LossTerm(-1, "pi", ALL)),), NO_HARM),
    Claim("pi-1000-steps", "With all steps PI reads 8x as well as the base model reads its own length: at most 0.02 "
          "above.", "arXiv:2306.15595", ((SHORT, LossTerm(-1, "pi", ALL)),), -NO_HARM,
          "1,000 steps for 16x; the bound is ours", f"{SAME_TEXTS} {FEWER_TOKENS}"),
    Claim("pi-few-steps", "A few steps are enough for PI: after a fifth of the steps its loss at 8x is at most 0.032 "
          "above its loss after all of them.", "arXiv:2306.15595",
          ((LossTerm(1, "pi", ALL), LossTerm(-1, "pi", FIFTH)),), -0.032,
          "perplexities 7.12 and 7.05 after 200 steps, 6.95 and 6.83 after 1,000: 0.024 and 0.032 nats", FEWER_TOKENS),
    Claim("pi-blurs", "PI blurs what is near: after all steps its loss at 1x is above NTK's.", "arXiv:2309.00071",
          (_below("ntk", "pi", ALL, 1),)),
    Claim("ntk-trained", "NTK is worse than PI once both are trained: after all steps its loss at 8x is above PI's.",
          "arXiv:2309.00071", (_below("pi", "ntk", ALL),), theirs="pairs that extrapolate a little; unstable training"),
    Claim("pi-harm", "PI with all steps harms short texts by at most 0.02.", "arXiv:2306.15595",
          ((SHORT, LossTerm(-1, "pi", ALL, 1)),), -NO_HARM,
          theirs="quality 'relatively well' preserved within the old length; 'does not lower the quality of replies' "
          f"({ARTICLE_2}); 0.02 is ours", note=SAME_TEXTS),
    _harm("pi", "PI", "arXiv:2306.15595"),
    Claim("forgetting", "YaRN, which reads far texts best without training, forgets less when trained: after all steps "
          "its loss at 1x is below that of no schedule, PI and NTK.", "kexue.fm/9577, a guess",
          tuple(_below("yarn", other, ALL, 1) for other in ("none", "pi", "ntk"))),
    Claim("pi-or-none", "PI beats training without a schedule at 8x, with a fifth of the steps and with all.",
          "arXiv:2306.15595", (_below("pi", "none", FIFTH), _below("pi", "none", ALL)), note=FEWER_TOKENS),
    Claim("yarn-best", "Trained, YaRN is the best at 8x: better than no schedule, PI, NTK, ABF and dynamic NTK.",
          "arXiv:2309.00071", _best("yarn", TRAINED), theirs="the best of those it compares; Code Llama's is an ABF"),
    Claim("yarn-fewer-steps", "YaRN with a fifth of the steps and tokens reads 8x better than PI with all.",
          "arXiv:2309.00071", ((LossTerm(1, "pi", ALL), LossTerm(-1, "yarn", FIFTH)),),
          theirs=f"400 steps instead of 1,000: two fifths; 'far' less data ({ARTICLE_3})"),
    Claim("yarn-harm", "YaRN with all steps harms short texts by at most 0.02.", "arXiv:2309.00071",
          ((SHORT, LossTerm(-1, "yarn", ALL, 1)),), -NO_HARM, "scores of the old length stay; 0.02 is ours",
          SAME_TEXTS),
    _harm("yarn", "YaRN", "arXiv:2309.00071"),
    Claim("abf-better", "Trained, a larger base (ABF) reads 8x better than no schedule and PI.",
          "arXiv:2309.16039", _best("abf", ("none", "pi")),
          theirs="perplexity 6.323 instead of 6.548 and 6.341"),
    Claim("abf-over-xpos", "Trained, a larger base (ABF) reads 8x better than XPos with a larger base.",
          f"{ARTICLE_2} on arXiv:2309.16039", _best("abf", ("xpos_abf",)), theirs="perplexity 6.323 instead of 6.331"),
    Claim("short-rows-help", "Further training on rows of limited length helps long reading too: a larger base (ABF), "
          "trained on rows of 1x or of 4x, reads 8x better than before.",
          f"{ARTICLE_2} on arXiv:2309.16039",
          tuple((LossTerm(1, "abf", ""), LossTerm(-1, name, ALL)) for name in ("abf_short", "abf_half")),
          theirs="'considerably', a picture", note="`abf_short` is trained on rows of 1x, `abf_half` on rows of 4x."),
    Claim("drope-harm", "DroPE with all steps harms short texts by at most 0.02.", "arXiv:2512.12167",
          ((SHORT, LossTerm(-1, "drope", ALL, 1)),), -NO_HARM, note=f"{SAME_TEXTS} {DROPES_PLAN}"),
    _harm("drope", "DroPE", "arXiv:2512.12167", DROPES_PLAN),
    Claim("drope-better", "DroPE with all steps reads 8x better than YaRN without training.", "arXiv:2512.12167",
          ((LossTerm(1, "yarn", ""), LossTerm(-1, "drope", ALL)),), note=DROPES_PLAN),
)  # fmt: skip

BASE = LossTerm(1, "base", "", 1)  # the base model within its trained length, in a table that does not train it
FAR = 32  # trained lengths: of the longest text of the table that these are judged by
FAR_CLAIMS = (
    Claim("pi-16x", "PI, set to 16x and trained at 16x, reads 16x as well as the base model reads its own length: at "
          "most 0.02 above.", f"{ARTICLE_2} on arXiv:2306.15595", ((BASE, LossTerm(-1, "pi_half", ALL, FAR // 2)),),
          -NO_HARM, "2,048 to 32,768 tokens in 1,000 steps; the bound is ours", f"{SAME_TEXTS} {FEWER_TOKENS}"),
    Claim("yarn-32x", "YaRN, set to 32x and trained at 16x, reads 32x as well as the base model reads its own length, "
          "and as well as 16x: at most 0.02 above.", f"{ARTICLE_3} on arXiv:2309.00071",
          ((BASE, LossTerm(-1, "yarn_beyond", ALL, FAR)),
           (LossTerm(1, "yarn_beyond", ALL, FAR // 2), LossTerm(-1, "yarn_beyond", ALL, FAR))),
          -NO_HARM, "Llama 2 to 128k tokens, 32x; the bound is ours", YARNS_PLAN),
    Claim("dynamic-after-training", "Beyond the length that it was trained at YaRN's loss rises slowly under dynamic "
          "scaling: from 16x to 32x by at most half of what it rises without, and its loss at 32x is lower.",
          f"{ARTICLE_3} on arXiv:2309.00071",
          ((LossTerm(0.5, "yarn_half", ALL, FAR), LossTerm(-0.5, "yarn_half", ALL, FAR // 2),
            LossTerm(-1, "yarn_half_dynamic", ALL, FAR), LossTerm(1, "yarn_half_dynamic", ALL, FAR // 2)),
           _below("yarn_half_dynamic", "yarn_half", ALL, FAR)), theirs="'falls smoothly'; half is ours"),
)  # fmt: skip
STABLE = Claim(
    "ntk-unstable", "NTK makes training less stable than PI: its largest logged gradient is farther above the median.",
    f"{ARTICLE_3} on arXiv:2309.00071", ((SpikeTerm(1, "ntk_half"), SpikeTerm(-1, "pi_half")),), theirs="'may'",
    note="The article says that NTK may make fine-tuning unstable; the comparison with PI, and the measure, are ours. "
    "`ntk_half` and `pi_half` are trained on rows of half the longest length. They read the same rows, at the same "
    "rate, so that texts and plan are no part of the difference. The norm of the gradient is logged every few steps "
    "(`log_every`), so a spike between may be missed. The unit is a power of ten, and the interval is over seeds.",
)  # fmt: skip
POWERS = Unit("powers of ten")


def verdicts(results: Mapping[str, Any]) -> list[JudgedClaim]:
    """What the results of `python -m studies tuned` say of the claims that its table is for."""
    ours = TunedFigures(results)
    if ours.times[-1] == FAR:
        return [*(_verdict(claim, ours) for claim in FAR_CLAIMS), _stability(STABLE, ours)]
    asked = (claim for claim in CLAIMS if _methods(claim) & set(OF_LLAMA_LONG) <= set(ours.methods))
    return [_verdict(claim, ours) for claim in asked] if ours.times[-1] == LONGEST else []


def _methods(claim: Claim) -> set[str]:
    return {term.method for terms in claim.sums for term in terms}


def _stability(claim: Claim, ours: TunedFigures) -> JudgedClaim:
    """A verdict by gradients."""
    estimates = [one for one in map(ours.spikes, claim.sums) if one is not None]
    if len(estimates) < len(claim.sums):
        return JudgedClaim(claim=claim, reason=NOT_MEASURED, unit=POWERS)
    if any(one.of == 1 for one in estimates):
        return JudgedClaim(claim=claim, reason=ONE_SEED, unit=POWERS)
    return judge(claim, _known(ours.spikes), POWERS, drawn=f"one base model trained {estimates[0].of} times")


def _verdict(claim: Claim, ours: TunedFigures) -> JudgedClaim:
    """By the intervals."""
    if any(ours.sum(terms) is None for terms in claim.sums):
        return JudgedClaim(claim=claim, reason=NOT_MEASURED, unit=NATS)
    read = dict.fromkeys((term.method, term.budget) for terms in claim.sums for term in terms)
    curves = {ours.label(*one): ours.curve(*one) for one in read}
    if any(map(ours.single, claim.sums)):
        return JudgedClaim(claim=claim, reason=ONE_SEED, unit=NATS, axes=AXES, curves=curves)
    trainings = ours.trainings(claim.sums)
    drawn = f"one base model trained {trainings} times" if trainings else ONE_MODEL
    return judge(claim, _known(ours.sum), NATS, AXES, curves, drawn=drawn)


def _known(estimate: Callable[[Sequence[Any], float], Estimate | None]) -> EstimateOf:
    """Of sums that were measured."""

    def of(terms: Sequence[Any], level: float) -> Estimate:
        one = estimate(terms, level)
        assert one is not None
        return one

    return of
