"""F14 and F15: fewer key heads, and many contexts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ropewalk.measure.metrics.intervals import Estimate, mean, minus, share

from studies.findings.finding import NOT_HERE, Finding, Verdict, Words, by_points, kind_of, nats, percent, points
from studies.findings.measured import Measured
from studies.findings.names import CARRIED, SMALL
from studies.findings.picture import Bars, Curves, Line, Panel, Row
from studies.processes import ratio
from studies.zoo.figures import PLAIN

HEADS = {"rope": ("4 key heads", "rope"), "rope_to_2_kv_heads": ("2, trained", "2 key heads")}
HEADS |= {"rope_to_1_kv_head": ("1, trained", "1 key head"), "rope_with_2_kv_heads": ("2, averaged", "2 key heads")}
HEADS |= {"rope_with_1_kv_head": ("1, averaged", "1 key head")}
ALL_HEADS, FOUR, ONE = "all 16 key heads", "4 key heads", "1 key head"
APART, SHARED = "attention to 16 key heads", "attention to 16 views of one"
RULES = {
    "least entropy": "many_contexts_entropy_0.25",
    "mean": "many_contexts_mean_0.25",
    "maximum": "many_contexts_max_0.25",
    "product": "many_contexts_product",
}
BEST, NEARLY, TEN_POINTS = "least entropy", 0.005, 0.1


def findings(measured: Measured) -> list[Finding]:
    """The two."""
    return [_heads(measured), _contexts(measured)]


def _raised(one: Estimate, bound: float) -> Estimate:
    """For a claim that nothing but the bound is lost."""
    return Estimate(one.value + bound, one.low + bound, one.high + bound, one.of)


def _heads(measured: Measured) -> Finding:
    runs, zoo = measured.kv_heads["seconds of rounds by process"], measured.zoo
    times = {name: ratio(runs, ALL_HEADS, name) for name in (FOUR, ONE)}
    bytes_alone = ratio(runs, APART, SHARED)
    right = {name: zoo.accuracy(name, 1) for name in HEADS}
    two, one = (zoo.over(("rope", 1, PLAIN), (name, 1, PLAIN)) for name in ("rope_to_2_kv_heads", "rope_to_1_kv_head"))
    faster = [_raised(ratio_of, -1) for ratio_of in (*times.values(), bytes_alone)]
    lost_less = Estimate(-two.value, -two.high, -two.low, two.of)
    return Finding(
        number=14,
        name="key-heads",
        verdicts=(
            Verdict(kind_of(faster), "faster, since fewer bytes are read", "更快，因为读得更少"),
            Verdict(
                kind_of([_raised(lost_less, NEARLY)]),
                "two of four cost at most half a point",
                "由 4 个减为 2 个至多损失半个百分点",
            ),
            Verdict(kind_of([one]), "one head costs quality", "单个头损失质量"),
            Verdict(NOT_HERE, "grouped is as fast as one", "分组与单头一样快"),
        ),
        english=Words(
            title="Fewer key heads: a step is several times as fast, and quality is the price",
            effect=f"16 key heads take {nats(times[FOUR])} times as long as 4, and {nats(times[ONE])} as 1; the same "
            f"arithmetic over one head's bytes is {nats(bytes_alone)} times as fast. Small, after 5 % of the steps: "
            f"two of four heads cost {by_points(two)} points, one {by_points(one)}.",
            text="With 8,192 tokens in the cache a step of a model with 16 key heads takes "
            f"{nats(times[FOUR])} times as long as with 4 and {nats(times[ONE])} times as long as with 1. The "
            "arithmetic is the same: attention to 16 views of one stored head is "
            f"{nats(bytes_alone)} times as fast as to 16 heads, so it is the bytes, as article 2 says. Most of a "
            "step's "
            "gain is the cache, which transformers copies at every step. The small models pay: two of four heads cost "
            f"{by_points(two)} points after a little training, a single one {by_points(one)}. Averaged without "
            f"training they read {percent(right['rope_with_2_kv_heads'])} and {percent(right['rope_with_1_kv_head'])}. "
            "Speed is of one CPU thread and random weights; no real model was measured.",
            models=f"a model of random weights (10 processes, one machine); {SMALL} (3 seeds); not measured on a "
            "real model",
        ),
        chinese=Words(
            title="更少的 K、V 头：解码快几倍，代价是质量",
            effect="",
            text=f"缓存 8,192 个 token 时，16 个 K 头的一步是 4 个头的 {nats(times[FOUR])} 倍时间，是 1 个头的 "
            f"{nats(times[ONE])} 倍；计算量相同而只读一个头，快 {nats(bytes_alone)} 倍。小模型再训练 5 % 的步数后，"
            f"K、V 头由 4 个减为 2 个，准确率降 {by_points(two)} 个百分点；减为 1 个，降 {by_points(one)}。",
            models="随机权重的模型（10 个进程，一台机器）；小模型（3 个种子）；未在真实模型上测量",
        ),
        claims=(
            *("kv-heads/faster", "kv-heads/one-faster", "kv-heads/fewer-bytes", "kv-heads/as-one"),
            *("zoo/gqa-after-5-percent", "zoo/mqa-harms", "zoo/gqa-better-than-mqa", "zoo/gqa-untrained"),
        ),
        panels=_heads_panels(bytes_alone, times, right),
    )


def _heads_panels(bytes_alone: Estimate, times: dict[str, Estimate], right: dict[str, Estimate]) -> tuple[Panel, ...]:
    return (
        Bars(
            "time with 16 key heads, over",
            (
                Row("4 key heads", "2 key heads", times[FOUR]),
                Row("1 key head", "1 key head", times[ONE]),
                Row("16 views of one head", "1 key head", bytes_alone),
            ),
            title="a step, and attention alone (last)",
            digits=2,
            level=(1.0, "as fast"),
        ),
        Bars(
            "tokens predicted at 1x, percent",
            tuple(Row(words, method, right[name]) for name, (words, method) in HEADS.items()),
            title="small models of 4 heads",
            times=100,
        ),
    )


def _contexts(measured: Measured) -> Finding:
    answers = {
        (row["rule"], row["contexts"]): row["questions"] for row in measured.contexts["answers under every rule"]
    }
    beside = {row["rule"]: row["questions"] for row in measured.contexts["beside retrieval"]["answers"]}
    counts = sorted({count for _, count in answers})

    def losses(name: str, count: int) -> list[float]:
        return [float(question["loss"]) for question in answers[RULES[name], count]]

    def behind(name: str, count: int) -> Estimate:
        return mean([a - b for a, b in zip(losses(name, count), losses(BEST, count), strict=True)])

    def right(rule: str) -> Estimate:
        return share(sum(question["right"] for question in beside[rule]), len(beside[rule]))

    others, most = [name for name in RULES if name != BEST], counts[-1]
    nbce, retrieved = right("many_contexts_entropy_0.25"), right("many_contexts_retrieved")
    gap = minus(nbce, retrieved)
    shown = ", ".join(f"{name} {nats(behind(name, most))}" for name in others)
    return Finding(
        number=15,
        name="contexts",
        verdicts=(
            Verdict(
                kind_of([behind(name, count) for name in others for count in counts]),
                "least entropy is best",
                "最小熵最好",
            ),
            Verdict(kind_of([_raised(gap, TEN_POINTS)]), "in place of retrieval", "代替检索"),
        ),
        english=Words(
            title="Of many contexts the one of least entropy answers best, and a search for words does as well",
            effect=f"Nats that other rules lose to least entropy with {most} contexts: {shown}. Of "
            f"{nbce.of} questions NBCE answers {percent(nbce)}, the context that BM25 finds {percent(retrieved)}.",
            text=f"The carried model is asked for a passkey in one of up to {most} texts. Taking the next token "
            "from the "
            "context of least entropy, as NBCE does, beats every other rule with every number of contexts; with "
            f"{most} the others lose, in nats of the answer: {shown}. Its share of right answers is "
            f"{percent(nbce)}, and "
            f"the model with the one context that BM25 finds has {percent(retrieved)}: a difference of {points(gap)} "
            "points. The question has the words of the line that answers it, which suits BM25, and an answer in "
            "several "
            "contexts was not asked for. Intervals are over questions of one model; no real model was measured.",
            models=f"{CARRIED} (one model, one seed); not measured on a real model",
        ),
        chinese=Words(
            title="多个上下文中，熵最小的那个回答得最好，而按词检索也同样好",
            effect="",
            text=f"{most} 个上下文时，答案的损失比最小熵高：平均 {nats(behind('mean', most))} nat，最大值 "
            f"{nats(behind('maximum', most))}，乘积（精确的朴素贝叶斯）{nats(behind('product', most))}。"
            f"NBCE 答对 {percent(nbce)}，BM25 找出的单个上下文 {percent(retrieved)}。",
            models="自带 680 万（一个模型）；未在真实模型上测量",
        ),
        claims=(
            *("contexts/least-entropy", "contexts/maximum", "contexts/exact", "contexts/beta"),
            *("contexts/many-contexts", "contexts/retrieval"),
        ),
        panels=_contexts_panels(nbce, retrieved, counts, losses),
    )


def _contexts_panels(
    nbce: Estimate, retrieved: Estimate, counts: Sequence[int], losses: Callable[[str, int], list[float]]
) -> tuple[Panel, ...]:
    return (
        Curves(
            "contexts",
            "loss of the answer, nats",
            tuple(
                Line(name, name, tuple((count, mean(losses(name, count), least=0)) for count in counts))
                for name in RULES
            ),
            title="carried model, a passkey in one of them",
            steps=True,
        ),
        Bars(
            "right answers, percent",
            (Row("NBCE: least entropy", BEST, nbce), Row("the context that BM25 finds", "bm25", retrieved)),
            title=f"{counts[-1]} contexts",
            times=100,
        ),
    )
