"""F4 to F6: which pairs are interpolated, YaRN's temperature, and log-n; all without training."""

from __future__ import annotations

import math
from collections.abc import Mapping

from ropewalk.measure.metrics.intervals import Estimate

from studies.findings.finding import (
    ERROR,
    Finding,
    Verdict,
    Words,
    by_points,
    kind_of,
    minus,
    more,
    nat,
    nats,
    percent,
    points,
)
from studies.findings.measured import UNCHANGED, Measured, Zoo
from studies.findings.names import CARRIED, LARGER, LENGTHS, SMALL, colour, label
from studies.findings.picture import Bars, Curves, Line, Panel, Row
from studies.zoo.figures import PLAIN

SLOW, FAST = "rope_with_slow_pairs_slowed", "rope_with_fast_pairs_slowed"
PAIRS = ("rope", FAST, "rope_under_pi", "rope_under_ntk", SLOW, "rope_under_by_parts", "rope_under_yarn")
PAIR_LABELS = {FAST: "fast pairs alone slowed", SLOW: "slow pairs alone slowed"}
SCHEDULES = ("rope", "pi", "ntk", "by_parts", "yarn")
OF_LARGER = (UNCHANGED, "pi", "ntk", "yarn")
LOGIT = "largest logit"
WITH_LOG_N = ("rope", "yarn", "rerope", "self_extend")
TIMES = (1, 2, 4, 8)
NOT_REAL = "not measured on a real model"
OURS = f"{LARGER}, {CARRIED} (one model each); {SMALL} (5 seeds); {NOT_REAL}"
OURS_CHINESE = "3100 万、自带 680 万（各一个模型）；小模型（5 个种子）；未在真实模型上测量"
TWO, TWO_CHINESE = OURS.partition(", ")[2], "自带 680 万（一个模型）；小模型（5 个种子）；未在真实模型上测量"


def findings(measured: Measured) -> list[Finding]:
    """The three."""
    return [_pairs(measured), _temperature(measured), _log_n(measured)]


def _pairs(measured: Measured) -> Finding:
    zoo, carried, larger = measured.zoo, measured.carried, measured.larger
    right = {name: zoo.accuracy(name, 8) for name in PAIRS}
    losses = {name: carried.mean(name, 8) for name in SCHEDULES}
    far = larger.lengths[-1]
    of_larger = {name: larger.mean(name, far) for name in OF_LARGER}
    slow_over_fast = zoo.over((SLOW, 8, PLAIN), (FAST, 8, PLAIN))
    by_parts = carried.over("ntk", 8, "by_parts", 8)
    on_larger = larger.over("ntk", far, "yarn", far)
    pi_gain = carried.over("rope", 8, "pi", 8)
    pi_gain_larger = larger.over(UNCHANGED, far, "pi", far)
    rows = [Row(f"{LARGER}: {label(name)}", colour(name), one) for name, one in of_larger.items()]
    rows += [Row(f"carried: {label(name)}", colour(name), one) for name, one in losses.items()]
    return Finding(
        number=4,
        name="pairs",
        verdicts=(Verdict(kind_of([slow_over_fast, by_parts, on_larger])),),
        english=Words(
            title="Which pairs of dimensions are interpolated decides",
            effect=f"Small at 8x: {percent(right[SLOW])} right with the slow pairs slowed, {percent(right[FAST])} with "
            f"the fast ones. Carried at 8x: NTK by parts {nats(losses['by_parts'])} nats, NTK {nats(losses['ntk'])}, "
            f"PI {nats(losses['pi'])}, unchanged {nats(losses['rope'])}. 31 M at 8x: YaRN "
            f"{nat(of_larger['yarn'])}, NTK {nat(of_larger['ntk'])}, PI {nat(of_larger['pi'])}.",
            text="A pair of dimensions that makes whole turns within the trained length has seen all its angles; one "
            "that does not meets new angles beyond it. Slowing the slow pairs alone leaves the small models "
            f"{by_points(slow_over_fast)} points above slowing the fast ones alone. PI slows all pairs and NTK too "
            "few: "
            f"both fail at 8x on every model of ours, and NTK by parts is {nats(by_parts)} nats below NTK on "
            f"the carried one. On the larger model YaRN is {nats(on_larger)} nats below NTK. PI beats no change by "
            f"{more(pi_gain_larger)} nats on the larger model and by {more(pi_gain)} on the carried one, where neither "
            "can be used. Of these "
            "schedules only YaRN was measured on a real model (F7).",
            models=OURS,
        ),
        chinese=Words(
            title="决定成败的是内插哪些维度对",
            effect="",
            text=f"小模型在 8 倍处：只放慢转得慢的维度对，准确率 {percent(right[SLOW])}；只放慢转得快的，"
            f"{percent(right[FAST])}。"
            f"自带模型在 8 倍处：NTK-by-parts {nats(losses['by_parts'])} nat，NTK {nats(losses['ntk'])}，"
            f"PI {nats(losses['pi'])}，原模型 {nats(losses['rope'])}。",
            models=OURS_CHINESE,
        ),
        claims=(
            *("zoo/slow-pairs", "zoo/by-parts-untrained", "untrained/by-parts-untrained", "zoo/yarn-untrained"),
            *("zoo/ntk-untrained", "zoo/pi-untrained", "untrained/pi-over-none", "computed/slow-pairs-several"),
        ),
        panels=_pairs_panels(rows, right),
    )


def _pairs_panels(rows: list[Row], right: dict[str, Estimate]) -> tuple[Panel, ...]:
    return (
        Bars(
            "tokens predicted, percent",
            tuple(Row(PAIR_LABELS.get(name, label(name)), colour(name), right[name]) for name in PAIRS),
            title="small models at 8x: higher is better",
            times=100,
        ),
        Bars("loss, nats per token", tuple(rows), title="at 8x: lower is better", digits=2),
    )


def _temperature(measured: Measured) -> Finding:
    zoo, carried = measured.zoo, measured.carried
    gains = {times: carried.over("by_parts", times, "yarn", times) for times in TIMES}
    parts, yarn = "rope_under_by_parts", "rope_under_yarn"
    of_zoo = {times: zoo.over((yarn, times, PLAIN), (parts, times, PLAIN)) for times in (2, 4, 8)}
    sharper = zoo.entropy_over(yarn, 8, parts, 8)
    logits = {name: carried.mean(name, 8, LOGIT) for name in ("by_parts", "yarn")}
    larger_logits = carried.over("yarn", 8, "by_parts", 8, LOGIT)
    factor = (0.1 * math.log(8) + 1) ** 2  # on logits: YaRN multiplies queries and keys by its root
    helps = kind_of([*(gains[times] for times in (2, 4, 8)), *of_zoo.values()])

    return Finding(
        number=5,
        name="temperature",
        verdicts=(
            Verdict(helps, "it helps", "有用"),
            *(
                [Verdict(ERROR, "it smooths attention and prevents extreme logits", "使注意力平滑；防止极端值")]
                if sharper.high < 0
                else []
            ),
        ),
        english=Words(
            title="YaRN's temperature helps more the longer the text, and it sharpens attention",
            effect=f"Carried, set to 8x: {more(gains[2], 3)} nats gained at 2x, {more(gains[4], 3)} at 4x, "
            f"{more(gains[8], 3)} at 8x. Small: {points(of_zoo[2])}, {points(of_zoo[4])}, {points(of_zoo[8])} points. "
            f"Entropy of attention at 8x: {more(sharper)} nats. Largest logit: {nats(logits['yarn'], 1)} instead of "
            f"{nats(logits['by_parts'], 1)}.",
            text=f"Without its temperature YaRN is NTK by parts. The temperature gains {more(gains[2], 3)} nats at 2x "
            f"and {more(gains[8], 3)} at 8x on the carried model, and {points(of_zoo[8])} points at 8x on the small "
            f"ones. It works by sharpening: the entropy of attention changes by {more(sharper)} nats at 8x. Article 3 "
            "says that it smooths attention and prevents extreme values; it multiplies every logit by "
            f"{factor:.2f} at 8x, and the largest one rises by {nats(larger_logits, 1)}. A longer text spreads "
            "attention over more keys, and sharper logits may undo that. Its gain alone was not measured on a real "
            "model.",
            models=TWO,
        ),
        chinese=Words(
            title="YaRN 的温度在越长的文本上越有用，而且它使注意力更尖锐",
            effect="",
            text=f"自带模型设到 8 倍：2 倍处 {more(gains[2], 3)} nat，8 倍处 {more(gains[8], 3)}（正数为改善）；"
            "小模型 8 倍处 "
            f"{points(of_zoo[8])} 个百分点。8 倍处注意力的熵变化 {more(sharper)} nat，最大的 logit 从 "
            f"{nats(logits['by_parts'], 1)} 升到 {nats(logits['yarn'], 1)}：是变尖锐，不是平滑。",
            models=TWO_CHINESE,
        ),
        claims=(
            *("untrained/yarn-temperature", "zoo/yarn-temperature", "untrained/yarn-coefficient"),
            *("zoo/yarn-coefficient", "zoo/yarn-smooths", "untrained/yarn-extremes"),
        ),
        panels=_temperature_panels(zoo, gains),
    )


def _temperature_panels(zoo: Zoo, gains: Mapping[int, Estimate]) -> tuple[Panel, ...]:
    return (
        Bars(
            "nats gained by the temperature",
            tuple(Row(f"at {times}x", "yarn", one) for times, one in gains.items()),
            title="carried model, set to 8x",
            digits=3,
            signed=True,
        ),
        Curves(
            LENGTHS,
            "entropy of attention, nats",
            (
                Line("NTK by parts", "by_parts", _entropies(zoo, "rope_under_by_parts")),
                Line("with the temperature: YaRN", "yarn", _entropies(zoo, "rope_under_yarn")),
            ),
            title="small models",
        ),
    )


def _entropies(zoo: Zoo, name: str) -> tuple[tuple[float, Estimate], ...]:
    """By length."""
    return tuple((times, zoo.entropy(name, times)) for times in TIMES)


def _log_n(measured: Measured) -> Finding:
    carried, zoo = measured.carried, measured.zoo
    with_it = {name: "log_n" if name == "rope" else f"{name}+log_n" for name in WITH_LOG_N}
    gains = {name: carried.over(name, 8, line, 8) for name, line in with_it.items()}
    known = [gains["rerope"], gains["self_extend"]]
    untrained = zoo.over(("rope_under_log_n", 8, PLAIN), ("rope", 8, PLAIN))
    trained = zoo.over(("log_n", 8, PLAIN), ("rope", 8, PLAIN))
    entropy = {name: zoo.entropy(name, 8) for name in ("rope", "rope_under_log_n")}
    short, grown = zoo.entropy("rope", 1), zoo.entropy_over("rope_under_log_n", 8, "rope_under_log_n", 1)
    return Finding(
        number=6,
        name="log-n",
        verdicts=(
            Verdict(kind_of(known), "where distances stay known", "距离保持已知时"),
            Verdict(kind_of([gains["yarn"]]), "under YaRN", "YaRN 之下"),
            Verdict(kind_of([gains["rope"], untrained]), "plain rotation", "单独的 RoPE"),
        ),
        english=Words(
            title="log-n helps where all distances stay known, and not elsewhere",
            effect=f"Carried at 8x, nats gained: ReRoPE {more(gains['rerope'], 3)}, Self-Extend "
            f"{more(gains['self_extend'], 3)}, YaRN {more(gains['yarn'], 3)}, plain rotation "
            f"{more(gains['rope'], 3)}. Small at 8x: {points(untrained)} points without training, {points(trained)} "
            "trained in.",
            text=f"log-n gains {more(gains['rerope'], 3)} nats under ReRoPE and {more(gains['self_extend'], 3)} under "
            "Self-Extend: there every distance is one of training, and only the number of keys is new. Under YaRN no "
            f"gain was found ({more(gains['yarn'], 3)}), perhaps since YaRN's temperature sharpens already. Under "
            "plain rotation it "
            f"costs {nats(minus(gains['rope']), 3)} nats, and trained in it gives {points(trained)} points at 8x. "
            "Article 1 says that it keeps the entropy of attention constant: on the small models that is "
            f"{nat(short)} nats at 1x, and at 8x {nat(entropy['rope_under_log_n'])} instead of "
            f"{nat(entropy['rope'])}, a rise of {nats(grown)}. On SmolLM2 the lines that do best have log-n, but they "
            "were not measured without it.",
            models=TWO,
        ),
        chinese=Words(
            title="只有当所有相对距离都在训练范围内时，log-n 才有用",
            effect="",
            text=f"自带模型在 8 倍处，log-n 给 ReRoPE 带来 {more(gains['rerope'], 3)} nat，给 Self-Extend "
            f"{more(gains['self_extend'], 3)}，给 YaRN {more(gains['yarn'], 3)}，给普通 RoPE "
            f"{more(gains['rope'], 3)}"
            f"（正数为改善）。注意力的熵并不恒定：1 倍处 {nat(short)} nat，8 倍处 {nat(entropy['rope_under_log_n'])}"
            f"（没有 log-n 时 {nat(entropy['rope'])}）。",
            models=TWO_CHINESE,
        ),
        claims=(
            *("untrained/log-n-embeds", "zoo/log-n-untrained-helps", "zoo/log-n-trained"),
            *("zoo/log-n-lowers-entropy", "zoo/log-n-keeps-entropy"),
        ),
        panels=_log_n_panels(gains, zoo),
    )


def _log_n_panels(gains: dict[str, Estimate], zoo: Zoo) -> tuple[Panel, ...]:
    return (
        Bars(
            "nats gained by log-n",
            tuple(Row(f"on {label(name)}", colour(name), one) for name, one in gains.items()),
            title="carried model at 8x",
            digits=3,
            signed=True,
        ),
        Curves(
            LENGTHS,
            "entropy of attention, nats",
            tuple(
                Line(words, method, _entropies(zoo, name))
                for name, method, words in (
                    ("rope", "rope", "unchanged"),
                    ("rope_under_log_n", "log_n", "under log-n"),
                )
            ),
            title="small models",
        ),
    )
