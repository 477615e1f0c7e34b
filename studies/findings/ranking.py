"""F7 and F8: what training-free extensions are worth, and dynamic scaling."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean

from ropewalk.measure.metrics.intervals import Estimate, crossed_mean

from studies.findings.finding import (
    BY_CONSTRUCTION,
    DISAGREES,
    Finding,
    Verdict,
    Words,
    kind_of,
    minus,
    more,
    nat,
    nats,
    percent,
)
from studies.findings.measured import UNCHANGED, Measured, Tuned
from studies.findings.names import CARRIED, LARGER, LENGTHS, REAL, SMALL, colour, label
from studies.findings.picture import Bars, Curves, Line, Panel, Row

BEST, OURS = "self_extend+log_n", "long_reach"
LINES = ("streaming", BEST, "self_extend:window=4096+log_n", "rerope:window=6144+log_n", OURS, "yarn")
SMALL_CHANGE = 0.001  # nats: two computations of the same thing differ by less


def findings(measured: Measured) -> list[Finding]:
    """The two."""
    return [_ranking(measured), _dynamic(measured)]


def composed(measured: Measured, corpus: str, one: str, other: str) -> Estimate:
    """By how much one composition's loss is above another's, on texts of a corpus."""
    kept = measured.compositions[corpus]
    pairs = zip(kept["lines"][one]["losses"], kept["lines"][other]["losses"], strict=True)
    return crossed_mean([[a - b for a, b in pairs]], groups=kept["projects"])


def _ranking(measured: Measured) -> Finding:
    real, carried = measured.real, measured.carried
    half, longest = real.lengths[1:]
    above = {(line, length): real.over_alone(line, length) for line in LINES for length in (half, longest)}
    found = {(line, length): real.far_found(line, length) for line in LINES for length in (half, longest)}
    harm = real.over("yarn", real.trained, UNCHANGED, real.trained, "whole_loss")
    rival = {length: real.over(OURS, length, BEST, length) for length in (half, longest)}
    schedules = [real.over("yarn", n, BEST, n) for n in (half, longest)] + [carried.over("yarn", 8, BEST, 8)]
    code = {corpus: composed(measured, corpus, OURS, BEST) for corpus in ("stdlib-4k", "python-4k")}
    books = measured.compositions["books-4k"]
    on_books = fmean(a - b for a, b in zip(*(books["lines"][line]["losses"] for line in (OURS, BEST)), strict=True))
    rerope = "rerope:window=6144+log_n"
    at_16x = measured.carried_at_16x.over(OURS, 16, "rope", 1)
    return Finding(
        number=7,
        name="ranking",
        verdicts=(
            Verdict(kind_of(schedules), f"`{BEST}` reads better than `yarn`", f"`{BEST}` 优于 `yarn`"),
            Verdict(
                kind_of([minus(above[line, half]) for line in LINES[1:-1]]),
                "16k is read better than its last 8k",
                "读 16k 优于仅读其最后 8k",
            ),
        ),
        english=Words(
            title="On the real model no extension was found to beat the last 8k alone; they give access to far text",
            effect=f"SmolLM2, nats above the last 8k alone, at 16k / 32k: `{BEST}` {more(above[BEST, half], 3)} / "
            f"{more(above[BEST, longest], 3)}; `{rerope}` {more(above[rerope, half], 3)} / "
            f"{more(above[rerope, longest], 3)}; `yarn` {more(above['yarn', half], 3)} / "
            f"{more(above['yarn', longest], 3)}. Far numbers found at 32k: {percent(found[BEST, longest], 0)}; "
            f"{percent(found[rerope, longest], 0)}; {percent(found['yarn', longest], 0)}.",
            text="On SmolLM2 no extension has a loss that is significantly below that of the unchanged model on its "
            f"last 8k alone, neither at 16k (`{BEST}`: {more(above[BEST, half], 3)} nats) nor at 32k "
            f"({more(above[BEST, longest], 3)}). What it gives is access to far text: without one nothing beyond 8k is "
            f"found, and `{BEST}` finds {percent(found[BEST, longest], 0)} of the numbers there at 32k. `yarn` costs "
            f"{more(above['yarn', half], 3)} nats at 16k, {more(above['yarn', longest], 3)} at 32k and "
            f"{more(harm, 3)} on whole texts of 8k, and finds {percent(found['yarn', longest], 0)}. It is the only "
            f"schedule that was measured there, and `{BEST}` has log-n besides: which of them makes the difference is "
            f"not known. Our own `{OURS}` "
            f"leads on code of the carried model ({more(code['stdlib-4k'], 3)} and {more(code['python-4k'], 3)} nats "
            f"from `{BEST}`), on three books it is {on_books:+.3f} away, and on SmolLM2 it is behind by "
            f"{nats(rival[half], 3)} at 16k and {nats(rival[longest], 3)} at 32k. On the carried model it even reads "
            f"16x better than the model its own length ({more(at_16x, 3)}). So do not take the order of methods, nor "
            "their worth, from a small model.",
            models=f"{REAL}; {CARRIED} (one model each)",
        ),
        chinese=Words(
            title="真实模型上，六种扩展都没有显出比仅读最后 8k 更好；收益在于能用上远处的文本",
            effect="",
            text=f"SmolLM2 上，与原模型仅读最后 8k 相比：`{BEST}` 在 16k 处 {more(above[BEST, half], 3)} nat，32k 处 "
            f"{more(above[BEST, longest], 3)}，找到 {percent(found[BEST, longest], 0)} 的远处数字；`yarn` 在 16k、"
            "32k 处 "
            f"{more(above['yarn', half], 3)}、{more(above['yarn', longest], 3)}，在 8k 的短文本上也升高 "
            f"{more(harm, 3)}，找到 "
            f"{percent(found['yarn', longest], 0)}。我们自己的 `{OURS}` 在自带模型的代码上领先（"
            f"{more(code['stdlib-4k'], 3)}），"
            f"在 SmolLM2 的 32k 处却落后 {more(rival[longest], 3)}：不要从小模型推断方法的名次。",
            models="SmolLM2；自带 680 万（各一个模型）",
        ),
        claims=("untrained/log-n-embeds", "untrained/static-harm", "zoo/rerope-untrained"),
        panels=_ranking_panels(half, longest, found, above),
    )


def _ranking_panels(
    half: int, longest: int, found: dict[tuple[str, int], Estimate], above: dict[tuple[str, int], Estimate]
) -> tuple[Panel, ...]:
    return (
        *(
            Bars(
                "nats above the last 8k",
                tuple(Row(label(line), colour(line), above[line, length]) for line in LINES),
                title=f"SmolLM2 at {length // 1024}k",
                digits=3,
                signed=True,
                named=length == half,
            )
            for length in (half, longest)
        ),
        Bars(
            "far numbers, percent",
            tuple(Row(label(line), colour(line), found[line, longest]) for line in LINES),
            title=f"SmolLM2 at {longest // 1024}k",
            times=100,
            digits=0,
            named=False,
        ),
    )


def _dynamic(measured: Measured) -> Finding:
    real, larger, far, near = (
        measured.real,
        measured.larger,
        measured.tuned("tuned-far"),
        measured.tuned("tuned-default"),
    )
    steps = far.plan["steps"]
    static, dynamic = (far.loss(name, steps, 32) for name in ("yarn_half", "yarn_half_dynamic"))
    softer = far.over(("yarn_half", steps, 32), ("yarn_half_dynamic", steps, 32))
    rise = far.over(("yarn_half_dynamic", steps, 32), ("yarn_half_dynamic", steps, 16))
    harm = {
        "SmolLM2: YaRN": ("yarn", real.over("yarn", real.trained, UNCHANGED, real.trained, "whole_loss")),
        "31 M: YaRN": ("yarn", larger.over("yarn", larger.trained, UNCHANGED, larger.trained)),
        "31 M: dynamic YaRN": ("dynamic_yarn", larger.over("dynamic_yarn", larger.trained, UNCHANGED, larger.trained)),
        "carried: YaRN": ("yarn", near.over(("yarn", 0, 1), ("none", 0, 1))),
        "carried: dynamic YaRN": ("dynamic_yarn", near.over(("dynamic_yarn", 0, 1), ("none", 0, 1))),
    }
    exact = all(abs(one.value) < SMALL_CHANGE for name, (_, one) in harm.items() if "dynamic" in name)
    at_8x = {line: larger.mean(line, larger.lengths[-1]) for line in ("yarn", "dynamic_yarn")}
    beyond = [near.loss(name, 0, 8) for name in ("yarn_4x", "dynamic_yarn")]
    return Finding(
        number=8,
        name="dynamic",
        verdicts=(
            Verdict(BY_CONSTRUCTION if exact else DISAGREES, "short texts stay", "短文本不变"),
            Verdict(kind_of([softer]), "no collapse beyond the set length", "超出设定长度不失效"),
        ),
        english=Words(
            title="Dynamic scaling leaves short texts alone and is gentle beyond the length it was set for",
            effect=f"Short texts: YaRN costs {nats(harm['SmolLM2: YaRN'][1], 3)} nats on SmolLM2 and "
            f"{nats(harm['31 M: YaRN'][1], 3)} on 31 M, dynamic YaRN {more(harm['31 M: dynamic YaRN'][1], 3)}. Small "
            f"model tuned to 16x, read at 32x: {nats(static)} nats under YaRN, {nats(dynamic)} under dynamic YaRN.",
            text="A schedule that is set for a long text changes short ones too: YaRN costs SmolLM2 "
            f"{nats(harm['SmolLM2: YaRN'][1], 3)} nats on texts of its trained length. Dynamic YaRN scales each token "
            "as far as its position needs, so there it is the unchanged model by construction "
            f"({more(harm['31 M: dynamic YaRN'][1], 3)} on 31 M). Nothing is paid for that at 8x: "
            f"{nat(at_8x['dynamic_yarn'])} nats against YaRN's {nat(at_8x['yarn'])} on 31 M. Beyond the length that "
            f"it is set for a static schedule collapses (16x read at 32x: {nat(static)} nats), the same weights under "
            f"the dynamic one lose {more(rise)} from 16x to 32x. Without training it is the same: YaRN set to 4x "
            f"reads 8x at {nat(beyond[0])} nats on the carried model, dynamic YaRN at {nat(beyond[1])}. Dynamic YaRN "
            "was not measured on a real model.",
            models=f"{LARGER}, {CARRIED} (one model each); one {SMALL} model, tuned with 3 seeds; {REAL} for YaRN "
            "alone",
        ),
        chinese=Words(
            title="动态缩放不改变短文本，超出设定长度也不会失效",
            effect="",
            text=f"在短文本上，YaRN 使 SmolLM2 的损失升高 {nats(harm['SmolLM2: YaRN'][1], 3)} nat，使 3100 "
            "万的模型升高 "
            f"{nats(harm['31 M: YaRN'][1], 3)}，动态 YaRN 是 {more(harm['31 M: dynamic YaRN'][1], 3)}（按定义成立）。"
            f"小模型调到 16 倍、读 32 倍：YaRN {nats(static)} nat，同样的权重用动态 YaRN {nats(dynamic)}。",
            models="3100 万、自带 680 万（各一个模型）；一个小模型（微调 3 个种子）；SmolLM2 只测了 YaRN",
        ),
        claims=(
            *("tuned-far/dynamic-after-training", "tuned-default/dynamic-short", "tuned-default/dynamic-yarn-short"),
            *("tuned-default/dynamic-yarn-beyond", "tuned-default/static-harm", "untrained/static-harm"),
        ),
        panels=_dynamic_panels(far, harm),
    )


def _dynamic_panels(far: Tuned, harm: Mapping[str, tuple[str, Estimate]]) -> tuple[Panel, ...]:
    steps = far.plan["steps"]
    lines = {
        "rope": ("base model", "base", 0),
        "yarn": ("YaRN, set to 16x", "yarn_half", steps),
        "dynamic_yarn": ("the same weights, dynamic", "yarn_half_dynamic", steps),
        "yarn_beyond": ("YaRN, set to 32x", "yarn_beyond", steps),
    }
    return (
        Curves(
            LENGTHS,
            "loss, nats per token",
            tuple(
                Line(words, method, tuple((times, far.loss(name, count, times)) for times in (1, 2, 4, 8, 16, 32)))
                for method, (words, name, count) in lines.items()
            ),
            title="a small model, tuned at 16x",
        ),
        Bars(
            "harm to texts of the trained length, nats",
            tuple(Row(name, method, one) for name, (method, one) in harm.items()),
            title="without training",
            digits=3,
            signed=True,
        ),
    )
