"""What stands around the findings, on the page and in the paper: the question, the models, the measures, the limits."""

from __future__ import annotations

from studies.findings.finding import by_points, more, nats, percent, points, share_only
from studies.findings.measured import UNCHANGED, Measured
from studies.zoo.figures import FAR, PLAIN

TITLE = "Fifteen findings on length extrapolation"
QUESTION = (
    "The project began with five articles, in Chinese, on how well a language model reads texts that are longer than "
    "those it was trained on: (1) notes on Su Jianlin's articles on length extrapolation; (2) notes by Wu Jiawen on "
    "papers about the context of large models; (3) an article on RoPE, PI, NTK and YaRN; (4) Su 2023, kexue.fm/9577, "
    "on biases on queries and keys; (5) a review of how extensions of RoPE evolved. We measured what they claim and "
    "what the papers behind them claim. This is what came out, as fifteen findings; a finding is a sentence that holds "
    "or does not, with figures that anyone can compute again from the records."
)
MODELS = (
    "**What these models can say and what they cannot.** One model is real: SmolLM2-135M-Instruct, trained on 8,192 "
    "tokens by others, read at 16k and 32k on 16 texts of 16 projects. It says what an extension without training is "
    "worth there, for the six extensions that were measured; it is one model, and its order of methods need not be "
    "that of a large one. Three kinds are ours. A model of 31 million parameters and the one that Ropewalk carries "
    "(6.8 million) were trained on 512 tokens; each is *one model* of one seed, so their intervals are over texts and "
    "not over trainings. The small ones (0.7 million, trained on 64 tokens, three seeds of every method, and five of "
    "most that a claim on copying is about) are the only ones that can compare what is trained in. They show "
    "directions, and which mechanism acts. They cannot show how much a large model would gain, nor effects that need "
    "billions of tokens of training (F10) or rows of 2,048 tokens."
)
VERDICTS = (
    "**Verdicts.** *agrees*: the whole 95 % interval of every comparison is on the article's side; *disagrees at this "
    "size*: one is wholly on the other side; *undecided*: anything else; *not testable here*: our models or budget "
    "lack what the claim is about; *true by construction*: it follows from the definition; *error of the article*: a "
    "slip or a mistake that a formula shows. The bounds were frozen after the first figures were known "
    "(`studies/bounds.json` says when), so a verdict confirms less than one foretold. A figure is followed by its "
    "interval in brackets. Of a difference the signs are written. *1x* is the trained length, a *nat* a unit of loss "
    "per token."
)
MEASURES = (
    "**What is measured.** The loss is that of the same last tokens of each text, after more or less text before them: "
    "half the trained length on SmolLM2 and the models of 512 tokens, the last 63 on the small ones, for which "
    "accuracy "
    "is shown, as in the articles (compositions on code: the last half of the text). The baseline is what "
    "everybody has without an extension: the unchanged "
    "model on its last trained length alone. A loss does not show use of far text, so three more things are measured: "
    "numbers hidden farther back than the trained length, passkeys, and how much better tokens are predicted that "
    "stand in the text once before, far back. A schedule is set to the longest text and read at all lengths; only for "
    "the accuracies of the small models it is set to each length anew.",
    "**Intervals.** All are of 95 %. On one model they are over projects: texts of one project are alike, so whole "
    "projects are drawn, never single texts. Over seeds and texts (crossed), half of a width is the root of the sum of "
    "two squares: Student's t times the jackknife's error over seeds, and the same over projects. That is calibrated "
    "to conservative where seeds are normal; where some trainings fail to learn (two modes), three seeds are too few. "
    "Methods are always compared on the same texts and seeds. Shares of answers have Wilson's interval, or the one "
    "over texts where that is wider.",
    "**Bounds and verdicts.** A finding is judged on the side of zero on which its interval lies; where an article "
    "says that nothing is lost, half a point may be. A finding that makes several comparisons fails if one does. The "
    "bounds of all single claims, and what happens to them when all are corrected for their number, are on the page "
    "of results; what a finding rests on is named there.",
)

REPEAT = (
    "Every figure and picture here follows from the records in studies/results and docs/results/real: python -m "
    "studies.findings writes the page and the pictures, python -m studies.paper writes this paper. The records come "
    "from: make real (SmolLM2; minutes of a large GPU, days of two cores), python -m studies zoo, python -m studies "
    "tuned, and the commands that are named in each record. Models, texts and seeds are fixed; the files have the "
    "versions and hashes of texts and weights."
)
MODELS_CHINESE = (
    "**这些模型能说明什么，不能说明什么。** 真实的模型只有一个：SmolLM2-135M-Instruct，由他人训练，训练长度为 "
    "8,192 token，我们让它读 16k 和 32k，"
    "16 篇文本来自 16 个项目。它能说明免训练扩展在该长度下有多大收益，但只是一个模型，只测了六种扩展。"
    "其余是我们自己的：3100 万参数的模型和随项目附带的模型"
    "（680 万参数，训练长度都是 512 token）各只有一个种子，区间只反映文本，不反映训练；小模型（70 万参数，64 个 "
    "token，每种方法三个种子）能比较需要训练的方法。"
    "它们说明方向和机制，不能说明大模型会得到多少，也不能检验需要几十亿 token 训练的说法（F10）。"
)
VERDICTS_CHINESE = (
    "*一致*：每个比较的 95 % 区间都在文章一侧；*在此规模上不一致*：有一个完全在另一侧；*未定*：其余情形；"
    "*此处无法检验*：我们的模型或训练量缺少该说法的前提；"
    "*按定义成立*：由定义推出；*原文有误*：公式即可表明的笔误或错误。各判定的界限是在看到最初的数字之后才固定的"
    "（日期见 `studies/bounds.json`），所以不等于事先的预言。数字后方括号内是 95 % 区间；1 倍指训练长度，"
    "nat 是每个 token 的损失单位。"
)


def real_models(measured: Measured) -> list[str]:
    """What holds on the real model, as sentences: the first thing that is read."""
    real = measured.real
    half, longest = real.lengths[1:]
    best, rerope = "self_extend+log_n", "rerope:window=6144+log_n"
    above = {(line, n): real.over_alone(line, n) for line in real.lines for n in (half, longest)}
    found = {(line, n): real.far_found(line, n) for line in real.lines for n in (half, longest)}
    harm = real.over("yarn", real.trained, UNCHANGED, real.trained, "whole_loss")
    copied = {line: real.over(line, longest, "streaming", longest, "copied") for line in (best, "yarn")}
    small = measured.zoo.over(("rope_under_yarn", 8, FAR), ("rope_under_yarn", 8, PLAIN))
    behind = real.over("long_reach", longest, best, longest)
    below = [line for (line, _), one in above.items() if line != "streaming" and one.high < 0]
    some = f"Only {', '.join(below)} reads" if below else "No training-free extension reads"
    return [
        f"**{some} 16k or 32k with a loss significantly below that of the unchanged model on their last 8k "
        f"alone.** The lowest, `{best}`, is {more(above[best, half], 3)} nats from it at 16k and "
        f"{more(above[best, longest], 3)} at 32k.",
        "**What an extension adds is access to text more than 8k back.** Of numbers more than 8k back the unchanged "
        f"model finds {percent(found[UNCHANGED, longest], 0)} at 32k, `{best}` {percent(found[best, longest], 0)}, "
        f"`{rerope}` {percent(found[rerope, longest], 0)} (at 16k {percent(found[rerope, half], 0)}).",
        f"**`yarn` costs a tenth of a nat at every length**: {more(harm, 3)} on whole texts of 8k, "
        f"{more(above['yarn', half], 3)} at 16k, {more(above['yarn', longest], 3)} at 32k. It finds "
        f"{percent(found['yarn', longest], 0)} of the far numbers at 32k.",
        f"**A low loss does not show that far text is used.** `streaming` is {more(above['streaming', longest], 3)} "
        f"nats from the last 8k alone and finds {share_only(found['streaming', longest], 0)} of what is far. A passage "
        f"from the beginning of 32k helps `{best}` by {points(copied[best])} points; for `yarn` no gain was found "
        f"({points(copied['yarn'])}), though on our small models it gains "
        f"{by_points(small)}.",
        "**The order of methods on small models does not carry over.** Our own `long_reach` leads on the model that "
        f"it was made on; here it is {nats(behind, 3)} nats behind `{best}` at 32k.",
        "**Unchanged, the model is lost at once**: "
        f"{more(above[UNCHANGED, half])} nats at 16k, {more(above[UNCHANGED, longest])} at 32k.",
        "Findings F1, F2, F3 and F7 were measured on this model, F8 in part. Each of the others says that it was not.",
    ]


def real_models_chinese(measured: Measured) -> list[str]:
    """The same in Chinese, in short."""
    real = measured.real
    half, longest = real.lengths[1:]
    best = "self_extend+log_n"
    above = {(line, n): real.over_alone(line, n) for line in (best, "yarn", "streaming") for n in (half, longest)}
    found = {line: real.far_found(line, longest) for line in (UNCHANGED, best, "yarn")}
    return [
        "**在 2 倍和 4 倍处，没有一种不经训练的扩展确定地优于原模型仅读最后 8k。** 最好的 "
        f"`{best}` 相差 {more(above[best, half], 3)} nat（16k）和 {more(above[best, longest], 3)}（32k）。",
        f"**扩展的收益在于能用上远处的文本。** 32k 处，8k 以外的数字，原模型找到 {percent(found[UNCHANGED], 0)}，"
        f"`{best}` 找到 {percent(found[best], 0)}，`yarn` 找到 {percent(found['yarn'], 0)}。",
        f"**`yarn` 在任何长度上都高出约 0.1 nat**：16k 处 {more(above['yarn', half], 3)}，32k 处 "
        f"{more(above['yarn', longest], 3)}。",
        f"**损失低不等于利用了远处的文本**：`streaming` 只差 {more(above['streaming', longest], 3)} nat，"
        "却找不到任何远处的数字。",
        "F1、F2、F3、F7 以及 F8 的一部分在这个模型上测过，其余没有，各条均已注明。",
    ]


def limits(measured: Measured) -> list[str]:
    """What to keep in mind."""
    held, pairs = measured.zoo.held_by_one_seed()
    return [
        "One real model of 135 million parameters is few. It was read with six extensions, at two lengths, on code and "
        "documentation that it may have seen in older versions; differences between methods on the same tokens stand.",
        "The carried model and the one of 31 million are one training each. On the small models the interval over "
        "projects "
        f"of one seed holds the mean of the two other seeds in {held:.0%} of {pairs} comparisons of methods at 8x, "
        "less "
        "than if one training spoke for all: intervals of one model are not intervals of methods.",
        "The bounds were set by us, many of them after the first figures were known. They are frozen in a file "
        "since then.",
        "Text from afar is a copy, a number or a passkey. Reasoning over far text was not measured.",
        "The zoo's models with 3 and with 6 layers differ in one row's verdict (F13). Others may hang on depth as "
        "well.",
    ]
