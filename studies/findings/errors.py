"""What the articles say that is an error, or more than these models show."""

from __future__ import annotations

import math
from typing import NamedTuple

from studies.computed import last_position
from studies.findings.finding import ERROR, Verdict, kind_of, kind_of_gains, more, nat, nats, points
from studies.findings.measured import UNCHANGED, Measured
from studies.zoo.figures import FAR, PLAIN

PARTS, YARN = "rope_under_by_parts", "rope_under_yarn"


class Error(NamedTuple):
    """What an article says, and what is so."""

    said: str
    is_so: str
    verdict: Verdict
    said_chinese: str
    is_so_chinese: str


def errors(measured: Measured) -> list[Error]:
    """The errors, and below them what is said too strongly."""
    return [*_slips(measured), *_too_strong(measured)]


def _slips(measured: Measured) -> list[Error]:
    zoo, carried = measured.zoo, measured.carried
    last = 3 - last_position()[0]
    sharper = zoo.entropy_over(YARN, 8, PARTS, 8)
    logits = {name: carried.mean(name, 8, "largest logit") for name in ("by_parts", "yarn")}
    factor = (0.1 * math.log(8) + 1) ** 2
    return [
        Error(
            "Article 3: PI's positions 0, 0.5, ..., of a model of 4 tokens that reads 8 all fall within [0, 3].",
            f"The last one is {last:g}. The paper's own statement, within [0, 4), holds; the half step does no harm.",
            Verdict(ERROR),
            "文章 3：PI 把 4 个 token 的模型读 8 个时的位置 0、0.5、……都放进 [0, 3]。",
            f"最后一个是 {last:g}。论文自己的说法（在 [0, 4) 之内）成立，多出的半步也无害。",
        ),
        Error(
            "Article 3: YaRN's temperature smooths the distribution of attention.",
            f"It sharpens it: {more(sharper)} nats of entropy at 8x against NTK by parts alone (F5).",
            Verdict(ERROR),
            "文章 3：YaRN 的温度使注意力分布更平滑。",
            f"它使分布更尖锐：8 倍处的熵与单独的 NTK-by-parts 相差 {more(sharper)} nat（F5）。",
        ),
        Error(
            "Article 3: the temperature prevents extreme values.",
            f"It multiplies every logit, by {factor:.2f} at 8x. The largest is {nats(logits['yarn'], 1)} with it and "
            f"{nats(logits['by_parts'], 1)} without (F5).",
            Verdict(ERROR),
            "文章 3：温度防止极端值。",
            f"它把每个 logit 乘大，8 倍处乘以 {factor:.2f}。加温度后最大 logit 为 {nats(logits['yarn'], 1)}，不加为 "
            f"{nats(logits['by_parts'], 1)}（F5）。",
        ),
    ]


def _too_strong(measured: Measured) -> list[Error]:
    zoo, carried = measured.zoo, measured.carried
    entropy = {(name, times): zoo.entropy(name, times) for name in ("rope", "rope_under_log_n") for times in (1, 8)}
    grown = zoo.entropy_over("rope_under_log_n", 8, "rope_under_log_n", 1)
    far = zoo.over(("rope_under_window", 8, FAR), ("rope_under_window", 8, PLAIN))
    twice = [
        carried.over("by_parts+yarn_temperature:factor=8,coefficient=0.2", 8, "yarn", 8),
        zoo.over((YARN, 8, PLAIN), ("rope_under_twice_yarn", 8, PLAIN)),
    ]
    larger, far_length = measured.larger, measured.larger.lengths[-1]
    lost = [carried.over("rope", 1, "pi", 8), larger.over(UNCHANGED, larger.trained, "pi", far_length)]
    better = [larger.over(UNCHANGED, far_length, "pi", far_length), carried.over("rope", 8, "pi", 8)]
    pi = {"31 M": larger.mean("pi", far_length), "carried": carried.mean("pi", 8)}
    own = {"31 M": larger.mean(UNCHANGED, larger.trained), "carried": carried.mean("rope", 1)}
    return [
        Error(
            "Article 1 (kexue.fm/8823): log-n keeps the entropy of attention constant.",
            f"It halves the rise: {nat(entropy['rope_under_log_n', 1])} nats at 1x, "
            f"{nat(entropy['rope_under_log_n', 8])} at 8x ({more(grown)}), without it {nat(entropy['rope', 8])} (F6). "
            "The source derives it approximately.",
            Verdict(kind_of([grown._replace(low=-grown.high, high=-grown.low)])),
            "文章 1（kexue.fm/8823）：log n 使注意力的熵不变。",
            f"它使熵的增幅减半：1 倍 {nat(entropy['rope_under_log_n', 1])} nat，8 倍 "
            f"{nat(entropy['rope_under_log_n', 8])}（{more(grown)}），没有它时 {nat(entropy['rope', 8])}（F6）。"
            "原文的推导是近似的。",
        ),
        Error(
            "Article 2: windows of 4,096 tokens in 32 layers reach 131,000 tokens.",
            f"On paper, by construction. Windows of {zoo.trained} tokens reach {zoo.reach} through all our layers, "
            "and a "
            f"copy {4 * zoo.trained} tokens back is worth {points(far)} points (F3).",
            Verdict(kind_of_gains([far])),
            "文章 2：4,096 的窗口经 32 层可达 131,000 个 token。",
            f"按定义，理论上成立。我们 {zoo.trained} 的窗口经各层理论上可达 {zoo.reach}，{4 * zoo.trained} 个 token "
            "之前的原文"
            f"却没有带来收益（{points(far)} 个百分点，F3）。",
        ),
        Error(
            "Article 5: YaRN's coefficient 0.1 fits many models and data.",
            f"Whether twice as much is worse could not be told: {more(twice[0], 3)} nats (carried) and "
            f"{points(twice[1])} points (small) in favour of 0.1.",
            Verdict(kind_of(twice)),
            "文章 5：YaRN 的系数 0.1 适合许多模型和数据。",
            f"两倍的系数是否更差，分不出来：0.1 的优势是 {more(twice[0], 3)} nat（自带模型）、{points(twice[1])} "
            "个百分点（小模型）。",
        ),
        Error(
            "Article 3: PI lets a model understand positions beyond its length.",
            f"Not without training: at 8x PI is at {nat(pi['31 M'])} nats (31 M) and {nat(pi['carried'])} (carried), "
            f"where the models read 1x at {nat(own['31 M'])} and {nat(own['carried'])}. It beats no change by "
            f"{more(better[0])} on the first and by {more(better[1])} on the second (F4).",
            Verdict(kind_of(lost)),
            "文章 3：PI 让模型能够理解超出长度的位置。",
            f"不训练则不能：8 倍处 PI 的损失为 {nat(pi['31 M'])} nat（3100 万）和 {nat(pi['carried'])} nat"
            f"（自带模型），而 1 倍处为 {nat(own['31 M'])} 和 {nat(own['carried'])}。比原模型好 {more(better[0])} 和 "
            f"{more(better[1])} nat（F4）。",
        ),
    ]
