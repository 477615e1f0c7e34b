"""F1 to F3: plain rotation beyond its length, windows, and whether far text is used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ropewalk.measure.metrics.intervals import Estimate

from studies.findings.finding import (
    Finding,
    Verdict,
    Words,
    kind_of,
    kind_of_gains,
    more,
    nat,
    nats,
    percent,
    points,
    share_only,
)
from studies.findings.measured import UNCHANGED, Measured
from studies.findings.names import CARRIED, LARGER, LENGTHS, ONE, ONE_CHINESE, REAL, REAL_ALONE, SMALL, colour, label
from studies.findings.picture import Bars, Curves, Dot, Line, Panel, Row, Scatter
from studies.zoo.figures import FAR, PLAIN

TIMES = (1, 2, 4, 8)
READ_FAR = ("yarn", "self_extend+log_n", "self_extend:window=4096+log_n", "rerope:window=6144+log_n", "long_reach")
ON_BOARD = ("window", "streaming", "lm_infinite", "yarn", "self_extend+log_n", "long_reach")
GAINS = (
    *("rope_under_yarn", "hwfa", "hwfa_rerope", "sandwich", "kerple", "alibi", "rope_under_rerope"),
    *("rope_under_ntk", "rope", "rope_under_window", "marked_under_streaming", "rope_under_lm_infinite", "xpos"),
)
NEAR_ONLY = ("rope_under_window", "marked_under_streaming", "rope_under_lm_infinite", "xpos", "window")


def findings(measured: Measured) -> list[Finding]:
    """The three."""
    return [_collapse(measured), _windows(measured), _far_text(measured)]


def _collapse(measured: Measured) -> Finding:
    real, larger, carried, zoo = measured.real, measured.larger, measured.carried, measured.zoo
    short, middle, long = (real.mean(UNCHANGED, length) for length in real.lengths)
    of_larger = [larger.mean(UNCHANGED, length) for length in larger.lengths]
    of_carried = {times: carried.mean("rope", times) for times in TIMES}
    of_zoo = {times: zoo.accuracy("rope", times) for times in TIMES}
    kept = of_zoo[8].value / of_zoo[1].value
    risen = [
        *(real.over_alone(UNCHANGED, length) for length in real.lengths[1:]),
        larger.over_alone(UNCHANGED, larger.lengths[1]),
        *(carried.over("rope", times, "rope", 1) for times in (2, 8)),
        zoo.over(("rope", 1, PLAIN), ("rope", 8, PLAIN)),
    ]
    small_at_2x = zoo.over(("rope", 2, PLAIN), ("rope", 1, PLAIN))
    return Finding(
        number=1,
        name="collapse",
        verdicts=(Verdict(kind_of(risen)),),
        english=Words(
            title="Plain rotation collapses just beyond the trained length",
            effect=f"SmolLM2: {nats(short)} nats at 8k, {nats(middle)} at 16k, {nats(long)} at 32k. 31 M: "
            f"{nat(of_larger[0])} at 1x, {nat(of_larger[1])} at 8x. Carried: {nat(of_carried[1])} at 1x, "
            f"{nat(of_carried[2])} at 2x, {nat(of_carried[8])} at 8x. Small: {percent(of_zoo[1])} right at 1x, "
            f"{percent(of_zoo[2])} at 2x, {percent(of_zoo[8])} at 8x.",
            text=f"SmolLM2 reads 8,192 tokens at {nat(short)} nats per token. The same last tokens cost {nat(middle)} "
            f"nats after 16k and {nat(long)} after 32k: {more(risen[0])} and {more(risen[1])} more. The carried model "
            f"is {nats(risen[3])} nats worse at 2x already, and most of what it loses is lost there. The small models "
            f"keep {100 * kept:.0f} % of their accuracy at 8x; the article on biases (kexue.fm/9577) reports nearly "
            f"the same share of its own. At 2x their seeds are far apart ({_seeds(zoo.seeds('rope', 2))}), although "
            f"they agree at 1x and at 8x: that loss is {points(small_at_2x)} points.",
            models=ONE,
        ),
        chinese=Words(
            title="普通 RoPE 一超出训练长度就失效",
            effect="",
            text=f"SmolLM2 在 8k 处的损失是 {nats(short)} nat，16k 处 {nats(middle)}，32k 处 {nats(long)}。"
            f"自带模型从 1 倍的 {nat(of_carried[1])} 升到 2 倍的 {nat(of_carried[2])} 和 8 倍的 {nat(of_carried[8])}；"
            f"小模型的准确率从 {percent(of_zoo[1])} 落到 2 倍的 {percent(of_zoo[2])} 和 8 倍的 {percent(of_zoo[8])}。",
            models=ONE_CHINESE,
        ),
        claims=(
            "real-smollm2/rope-fails",
            "larger/rope-fails",
            "untrained/rope-fails",
            "zoo/rope-falls",
            "untrained/logits-grow",
        ),
        panels=_collapse_panels(measured),
    )


def _collapse_panels(measured: Measured) -> tuple[Panel, ...]:
    real, larger, carried, zoo = measured.real, measured.larger, measured.carried, measured.zoo
    curves = Curves(
        LENGTHS,
        "loss, nats per token",
        (
            Line(REAL, "rope", tuple((n // real.trained, real.mean(UNCHANGED, n)) for n in real.lengths)),
            Line(CARRIED, "rope", tuple((times, carried.mean("rope", times)) for times in TIMES)),
            Line(
                f"{LARGER} (only 1x and 8x)",
                "rope",
                tuple((n // larger.trained, larger.mean(UNCHANGED, n)) for n in larger.lengths),
            ),
        ),
        title="loss of the same last tokens",
    )
    accuracies = Curves(
        LENGTHS,
        "tokens predicted, percent",
        (
            Line(
                f"{SMALL}: mean of 5 seeds",
                "rope",
                tuple((times, zoo.accuracy("rope", times)) for times in TIMES),
                tuple((times, seed) for times in TIMES for seed in zoo.seeds("rope", times)),
            ),
        ),
        title="the article's measure, on small models",
        times=100,
    )
    return curves, accuracies


def _seeds(shares: Sequence[float]) -> str:
    return f"{', '.join(f'{100 * one:.1f}' for one in shares)} %"


def _windows(measured: Measured) -> Finding:
    real, larger, board = measured.real, measured.larger, measured.board
    longest = real.lengths[-1]
    above = {line: real.over_alone(line, longest) for line in ("streaming", *READ_FAR, UNCHANGED)}
    found = {line: real.far_found(line, longest) for line in ("streaming", *READ_FAR)}
    losses = {line: Estimate(**board[line]["loss"]) for line in (*ON_BOARD, UNCHANGED)}
    keys = {line: Estimate(**board[line]["right"]) for line in (*ON_BOARD, UNCHANGED)}
    far = larger.lengths[-1]
    mended = [
        real.over(UNCHANGED, longest, "streaming", longest),
        larger.over(UNCHANGED, far, "window", far),
        measured.carried.over("rope", 8, "window", 8),
        measured.zoo.over(("rope_under_window", 8, PLAIN), ("rope", 8, PLAIN)),
    ]
    lost = real.over("self_extend+log_n", longest, "streaming", longest, "copied")
    windows = measured.zoo.accuracy("rope_under_window", 8)
    return Finding(
        number=2,
        name="windows",
        verdicts=(Verdict(kind_of([*mended, lost])),),
        english=Words(
            title="A window mends the loss and forgets the rest",
            effect=f"SmolLM2 at 32k under StreamingLLM: {more(above['streaming'], 3)} nats above its last 8k alone, "
            f"{percent(found['streaming'])} of the far numbers found. Carried at 8x: {nat(losses['window'], 3)} nats "
            f"instead of {nat(losses[UNCHANGED], 3)}, {percent(keys['window'], 0)} of the passkeys. 31 M at 8x: "
            f"{nat(larger.mean('window', far))} instead of {nat(larger.mean(UNCHANGED, far))} nats, "
            f"{percent(larger.passkeys('window', far), 0)}. Small at 8x: {percent(windows)} right instead of "
            f"{percent(measured.zoo.accuracy('rope', 8))}.",
            text=f"Under StreamingLLM SmolLM2 reads 32k with a loss that is {more(above['streaming'], 3)} nats "
            "from that "
            "of its last 8k alone, where the unchanged model is at "
            f"{nat(real.mean(UNCHANGED, longest))} nats. But it is what the last 8k alone are: of the numbers farther "
            f"back it finds {percent(found['streaming'])}, `self_extend+log_n` {percent(found['self_extend+log_n'])}. "
            f"The carried model has {nat(losses['window'], 3)} nats behind a window at 4,096 tokens, under "
            f"`self_extend+log_n` {nat(losses['self_extend+log_n'], 3)}; the window finds "
            f"{percent(keys['window'], 0)} of the passkeys, the other {percent(keys['self_extend+log_n'], 0)}. So "
            "a window is the honest baseline of every extension, and "
            "what the articles call *loses nothing* can be had by forgetting.",
            models=ONE,
        ),
        chinese=Words(
            title="滑动窗口使损失恢复正常，但丢失了窗口外的内容",
            effect="",
            text=f"SmolLM2 在 32k 处用 StreamingLLM，损失与仅读最后 8k 相差 {more(above['streaming'], 3)} nat，"
            f"但更早的数字只找到 {percent(found['streaming'])}（`self_extend+log_n` 找到 "
            f"{percent(found['self_extend+log_n'])}）。自带模型在 8 倍处用窗口是 {nat(losses['window'], 3)} nat，"
            f"原模型是 {nat(losses[UNCHANGED], 3)}，passkey 却只找到 {percent(keys['window'], 0)}。",
            models=ONE_CHINESE,
        ),
        claims=(
            *("untrained/streaming-flat", "untrained/lm-infinite-flat", "untrained/lm-infinite-better"),
            *("zoo/window-at-inference", "zoo/streaming-flat", "restricted/window-cache"),
        ),
        panels=_windows_panels(above, found, losses, keys),
    )


def _windows_panels(
    above: Mapping[str, Estimate],
    found: Mapping[str, Estimate],
    losses: Mapping[str, Estimate],
    keys: Mapping[str, Estimate],
) -> tuple[Panel, ...]:
    return (
        Scatter(
            "far numbers found, percent",
            "loss above the last 8k alone, nats",
            tuple(Dot(label(line), colour(line), found[line], above[line]) for line in found),
            title=f"SmolLM2 at 32k (unchanged, not drawn: {more(above[UNCHANGED])})",
            level=(0.0, REAL_ALONE),
        ),
        Scatter(
            "passkeys found, percent",
            "loss, nats",
            tuple(Dot(label(line), colour(line), keys[line], losses[line]) for line in (*ON_BOARD, UNCHANGED)),
            title="carried model at 4,096 tokens (three windows coincide)",
        ),
    )


def _far_text(measured: Measured) -> Finding:
    real, zoo = measured.real, measured.zoo
    longest = real.lengths[-1]
    copied = {line: real.over(line, longest, "streaming", longest, "copied") for line in READ_FAR}
    of_streaming, of_best = (real.mean(line, longest, "copied") for line in ("streaming", "self_extend+log_n"))
    gain = {name: zoo.over((name, 8, FAR), (name, 8, PLAIN)) for name in dict.fromkeys((*GAINS, *NEAR_ONLY))}
    on_plain = zoo.over(("rope_under_window", 8, PLAIN), ("rope_under_yarn", 8, PLAIN))
    found = {line: real.far_found(line, longest) for line in ("yarn", "rerope:window=6144+log_n")}
    return Finding(
        number=3,
        name="far-text",
        verdicts=(
            Verdict(
                kind_of([gain["rope_under_yarn"], gain["hwfa"], gain["alibi"]]),
                "loss and use differ",
                "损失与利用是两回事",
            ),
            Verdict(
                kind_of_gains([gain[name] for name in NEAR_ONLY]), "layers times window is reached", "能达到层数×窗口"
            ),
        ),
        english=Words(
            title="A low loss does not show that far text is used",
            effect=f"SmolLM2, a passage from the beginning of 32k comes again: {percent(of_streaming)} of its tokens "
            f"predicted under StreamingLLM, which cannot see it, {percent(of_best)} under `self_extend+log_n` "
            f"({points(copied['self_extend+log_n'])} points), and {points(copied['yarn'])} points under `yarn`. Small, "
            f"tokens that also stand four lengths back: windows, StreamingLLM, LM-Infinite and xPos "
            f"{points(gain['rope_under_window'])} points, YaRN {points(gain['rope_under_yarn'])}, HWFA "
            f"{points(gain['hwfa'])}, ALiBi {points(gain['alibi'])}.",
            text="A passage from the beginning of 32k tokens comes again at the end. StreamingLLM cannot see it and "
            f"predicts {share_only(of_streaming)} of it, since much can be guessed; `self_extend+log_n` predicts "
            f"{share_only(of_best)}. YaRN on SmolLM2 gains {points(copied['yarn'])} points over StreamingLLM: no "
            "use of "
            f"the passage could be found, although it finds {share_only(found['yarn'])} of the far numbers. On our "
            f"small models YaRN gains {points(gain['rope_under_yarn'])} points from such a passage, so this "
            "does not carry over. Windows, StreamingLLM, LM-Infinite and xPos with blockwise attention gain exactly "
            "nothing from four lengths back, and their accuracy on other text does not show it: a window is "
            f"{points(on_plain)} points above YaRN there. Through all layers a window of {zoo.trained} tokens reaches "
            f"{zoo.reach} tokens on paper; what stands {4 * zoo.trained} tokens back changed nothing.",
            models=f"{REAL} (one model); {SMALL} (3 or 5 seeds); not measured on {LARGER}",
        ),
        chinese=Words(
            title="损失低不等于利用了远处的文本",
            effect="",
            text=f"32k 文本开头的一段在结尾重现时，看不到它的 StreamingLLM 预测正确率为 {percent(of_streaming)}，"
            f"`self_extend+log_n` 为 {percent(of_best)}，`yarn` 只比 StreamingLLM 多 {points(copied['yarn'])} "
            "个百分点。"
            f"小模型上，窗口、StreamingLLM、LM-Infinite、xPos 从四倍长度之前的原文得到的恰好是 "
            f"{points(gain['rope_under_window'])} 个百分点，YaRN {points(gain['rope_under_yarn'])}，HWFA "
            f"{points(gain['hwfa'])}，"
            f"ALiBi {points(gain['alibi'])}；理论上的“层数×窗口”没有一个模型达到。",
            models="SmolLM2（一个模型）；小模型（3 或 5 个种子）",
        ),
        claims=(
            *("zoo/hwfa-far", "zoo/rerope-untrained-far", "zoo/streaming-no-far", "zoo/streaming-no-memory"),
            "zoo/xpos-flat",
        ),
        panels=_far_text_panels(gain, copied),
    )


def _far_text_panels(gain: dict[str, Estimate], copied: dict[str, Estimate]) -> tuple[Panel, ...]:
    return (
        Bars(
            "tokens of the passage, points above StreamingLLM",
            tuple(Row(label(line), colour(line), one) for line, one in copied.items()),
            title="SmolLM2: a passage from the beginning of 32k",
            times=100,
            signed=True,
        ),
        Bars(
            "gain in accuracy, points",
            tuple(Row(label(name), colour(name), gain[name]) for name in GAINS),
            title="small models: a copy four trained lengths back",
            times=100,
            signed=True,
        ),
    )
