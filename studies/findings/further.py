"""F9 and F10: further training under a schedule, and what our budget cannot test."""

from __future__ import annotations

from ropewalk.measure.metrics.intervals import Estimate

from studies.findings.finding import NOT_HERE, Finding, Verdict, Words, kind_of, more, nat, nats, percent
from studies.findings.measured import Measured, Tuned
from studies.findings.names import CARRIED, LENGTHS, SMALL, colour, label
from studies.findings.picture import Bars, Curves, Line, Panel, Row

SCHEDULES = ("yarn", "abf", "ntk", "dynamic", "none", "pi", "drope")
CLOSE = ("yarn", "abf", "ntk", "dynamic", "none")
FEW, ALL = 200, 1000  # steps
FALLING = ("pi", "drope", "none", "ntk", "yarn")
MODELS = f"{CARRIED}; one {SMALL} model; tuned with 3 seeds each; not measured on a real model"
MODELS_CHINESE = "自带 680 万；一个小模型；各微调 3 个种子；未在真实模型上测量"


def findings(measured: Measured) -> list[Finding]:
    """The two."""
    small, carried = measured.tuned("tuned-zoo"), measured.tuned("tuned-default")
    return [_schedules(small, carried), _budget(measured, small, carried)]


def _curves(tuned: Tuned, title: str) -> Curves:
    steps = (0, FEW, ALL)
    lines = tuple(
        Line(label(name), colour(name), tuple((count, tuned.loss(name, count, 8)) for count in steps))
        for name in SCHEDULES
    )
    own = tuned.loss("none", 0, 1).value
    return Curves(
        "steps of further training",
        "loss at 8x, nats per token",
        lines,
        title=title,
        steps=True,
        level=(own, "base model at its own length"),
    )


def _spread(tuned: Tuned, to: str = " to ") -> str:
    """How far apart the five are that are close to each other."""
    losses = [tuned.loss(name, ALL, 8).value for name in CLOSE]
    return f"{min(losses):.2f}{to}{max(losses):.2f}"


def _schedules(small: Tuned, carried: Tuned) -> Finding:
    leads = {
        (tuned, name): tuned.over(("pi", ALL, 8), (name, FEW, 8))
        for tuned in (carried, small)
        for name in ("yarn", "abf")
    }
    yarn_best = carried.over(("abf", ALL, 8), ("yarn", ALL, 8))
    yarn = {count: carried.loss("yarn", count, 8) for count in (0, FEW, ALL)}
    return Finding(
        number=9,
        name="further-training",
        verdicts=(
            Verdict(kind_of(list(leads.values())), "fewer steps than PI", "所需步数少于 PI"),
            Verdict(kind_of([yarn_best]), "YaRN is the best", "YaRN 最好"),
        ),
        english=Words(
            title=f"YaRN or a larger base after {FEW} steps read 8x better than PI after {ALL:,}",
            effect=f"Nats by which PI after {ALL:,} steps is above, after {FEW} steps: carried: YaRN "
            f"{more(leads[carried, 'yarn'], 3)}, larger base {more(leads[carried, 'abf'], 3)}. Small: "
            f"{more(leads[small, 'yarn'])}, {more(leads[small, 'abf'])}. After {ALL:,} steps all but PI and DroPE: "
            f"{_spread(carried)} nats (carried), {_spread(small)} (small).",
            text=f"Trained from 512 to 4,096 tokens, the carried model under YaRN goes from {nats(yarn[0])} nats at 8x "
            f"to {nat(yarn[FEW])} after {FEW} steps and {nat(yarn[ALL])} after {ALL:,}; PI is at "
            f"{nat(carried.loss('pi', FEW, 8))} and {nat(carried.loss('pi', ALL, 8))}. So PI after {ALL:,} steps is "
            f"still {nats(leads[carried, 'yarn'], 3)} above YaRN after {FEW}. After {ALL:,} steps the schedules that "
            f"are not PI or DroPE are close: {_spread(carried)} nats, no schedule included. A larger base and YaRN "
            f"cannot be told apart on the carried model ({more(yarn_best, 3)}). Of these seven YaRN alone is "
            "usable on both "
            f"without any training ({nat(yarn[0])} and {nat(small.loss('yarn', 0, 8))} nats). Seeds vary the "
            "further training alone, of one base model each.",
            models=MODELS,
        ),
        chinese=Words(
            title=f"YaRN 或更大的 base 训练 {FEW} 步，8 倍处优于 PI 训练 {ALL:,} 步",
            effect="",
            text=f"PI 训练 {ALL:,} 步后的损失，比 YaRN 训练 {FEW} 步高 {nats(leads[carried, 'yarn'], 3)} "
            "nat（自带模型）和 "
            f"{nats(leads[small, 'yarn'])}（小模型）；比更大的 base 高 {nats(leads[carried, 'abf'], 3)} 和 "
            f"{nats(leads[small, 'abf'])}。{ALL:,} 步之后，PI 和 DroPE 以外的都在 {_spread(carried, '–')} "
            f"nat（自带模型）、{_spread(small, '–')} nat（小模型）之间。",
            models=MODELS_CHINESE,
        ),
        claims=(
            *("tuned-default/yarn-fewer-steps", "tuned-zoo/yarn-fewer-steps", "tuned-default/yarn-best"),
            *("tuned-zoo/yarn-best", "tuned-default/abf-better", "tuned-default/forgetting"),
        ),
        panels=(
            _curves(carried, "carried model, to 4,096 tokens"),
            _curves(small, "a small model, to 512 tokens"),
        ),
    )


def _tokens(tuned: Tuned) -> float:
    """In all steps."""
    return float(tuned.plan["steps"] * tuned.plan["rows"] * 8 * tuned.trained)


def _budget(measured: Measured, small: Tuned, carried: Tuned) -> Finding:
    falls = {
        (tuned, name): tuned.over((name, FEW, 8), (name, ALL, 8)) for tuned in (carried, small) for name in FALLING
    }
    pi = {tuned: tuned.over(("pi", ALL, 8), ("none", ALL, 8)) for tuned in (carried, small)}
    drope = {tuned: tuned.loss("drope", ALL, 8) for tuned in (carried, small)}
    ntk = {times: carried.over(("ntk", 0, times), ("none", 0, 1)) for times in (2, 4, 8)}
    ntk_small = measured.zoo.accuracy("rope_under_ntk", 4)
    return Finding(
        number=10,
        name="budget",
        verdicts=(Verdict(NOT_HERE),),
        english=Words(
            title="PI, DroPE and NTK's 4x: what our budget and our models cannot test",
            effect=f"Nats still lost from step {FEW} to step {ALL:,} at 8x: PI {more(falls[carried, 'pi'])} (carried), "
            f"{more(falls[small, 'pi'])} (small); DroPE {more(falls[carried, 'drope'])}, "
            f"{more(falls[small, 'drope'])}; YaRN {more(falls[carried, 'yarn'])}. NTK at 4x without training: "
            f"{nats(ntk[4])} nats above 1x (carried), {percent(ntk_small)} right (small).",
            text=f"PI's authors train for {ALL:,} steps of half a million to four million tokens; all our steps "
            f"together have {_tokens(carried) / 1e6:.1f} million tokens (carried) and {_tokens(small) / 1e6:.1f} "
            "million (small). PI's loss still falls by "
            f"{nats(falls[carried, 'pi'])} nats over our last steps, so that it ends {nats(pi[carried], 3)} and "
            f"{nats(pi[small])} above no schedule says something of this budget and nothing of PI. DroPE removes the "
            f"rotation and needs thousands of real steps; ours ends at {nat(drope[carried])} nats. NTK is said to "
            "read 4x almost without loss. It does not here, but its source has models of 2,048 tokens and 64 pairs of "
            "dimensions, ours have 512 or 64 tokens and fewer pairs: of these no verdict is given. None of it was "
            "measured on a real model.",
            models=MODELS,
        ),
        chinese=Words(
            title="PI、DroPE、NTK 的 4 倍：我们的训练量和模型检验不了",
            effect="",
            text=f"我们全部的步数只有 {_tokens(carried) / 1e4:.0f} 万和 {_tokens(small) / 1e4:.0f} 万个 token，PI "
            "的作者每一步就有五十万到四百万。"
            f"从第 {FEW} 步到第 {ALL:,} 步，PI 在 8 倍处的损失还在下降 {nats(falls[carried, 'pi'])} nat（自带模型）"
            "。NTK "
            f"不经训练读 4 倍比 1 倍高 {nats(ntk[4])} nat，但它的来源是 2,048 个 token、64 对维度的模型。不下结论。",
            models=MODELS_CHINESE,
        ),
        claims=(
            *("tuned-default/pi-1000-steps", "tuned-default/pi-few-steps", "tuned-zoo/pi-or-none"),
            *("tuned-default/drope-better", "tuned-default/ntk-4x", "zoo/ntk-4x", "tuned-default/ntk-trained"),
        ),
        panels=_budget_panels(falls, carried, small),
    )


def _budget_panels(falls: dict[tuple[Tuned, str], Estimate], carried: Tuned, small: Tuned) -> tuple[Panel, ...]:
    return (
        Bars(
            f"loss at 8x: fall from step {FEW} to {ALL:,}, nats",
            tuple(
                Row(f"{words}: {label(name)}", colour(name), falls[tuned, name])
                for tuned, words in ((carried, "carried"), (small, "small"))
                for name in FALLING
            ),
            title="the loss still falls when training ends",
            digits=2,
            signed=True,
        ),
        Curves(
            LENGTHS,
            "loss, nats per token",
            tuple(
                Line(
                    label(name),
                    colour(name),
                    tuple((times, carried.loss(name, 0, times)) for times in (1, 2, 4, 8)),
                )
                for name in ("none", "ntk", "yarn")
            ),
            title="carried model without training, set to 8x",
        ),
    )
