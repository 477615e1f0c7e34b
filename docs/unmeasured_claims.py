"""Claims of the articles that no study here judges, and why; or the page that has their figures."""

from __future__ import annotations

from typing import NamedTuple

from ropewalk.lab.claims import ARTICLE_1, ARTICLE_2, ARTICLE_3, ARTICLE_5

NBCE, LLAMA_LONG, YARN = "kexue.fm/9617", "arXiv:2309.16039", "arXiv:2309.00071"
SPEED = "figures: [performance](../performance.md)"


class Unmeasured(NamedTuple):
    """A claim without a verdict."""

    claim: str
    source: str
    theirs: str
    why: str


UNMEASURED = (
    Unmeasured("From 2,048 to 32,768 tokens nothing is lost by much.", ARTICLE_1, "16x, an aim",
               "our texts end at 8x or 10x"),
    Unmeasured("PI extends Llama to 16x in 1,000 steps.", f"{ARTICLE_2} on arXiv:2306.15595", "16x",
               "ours to 8x, with fewer tokens a step: the tuned studies"),
    Unmeasured("YaRN extends Llama 2 to 128k tokens.", f"{ARTICLE_3} on {YARN}", "128k, 32x",
               "needs such a model and texts of 128k tokens"),
    Unmeasured("Under dynamic scaling YaRN's loss rises slowly beyond the length that it was tuned to.",
               f"{ARTICLE_3} on {YARN}", "", "ours is measured without training only"),
    Unmeasured("NTK makes tuning unstable.", f"{ARTICLE_3} on {YARN}", "'may'",
               "only losses after tuning were kept, no loss curves"),
    Unmeasured("A larger base is better than XPos with a larger base.", f"{ARTICLE_2} on {LLAMA_LONG}", "a picture",
               "XPos is not in the tuned studies"),
    Unmeasured("The training loss falls whenever rows become longer.", f"{ARTICLE_2} on {LLAMA_LONG}",
               "at each switch from 4k to 32k", "only accuracies after training were kept"),
    Unmeasured("Better data matter more than more long texts, and more long texts do not keep helping.",
               f"{ARTICLE_2} on {LLAMA_LONG}", "", "needs corpora of several qualities and lengths"),
    Unmeasured("Further training on texts of limited length helps long reading too.", f"{ARTICLE_2} on {LLAMA_LONG}",
               "a picture", "needs long rows of short texts beside long rows of long ones"),
    Unmeasured("Generated text stays good under LM-Infinite.", f"{ARTICLE_2} on arXiv:2308.16137", "BLEU and ROUGE",
               "needs models that write well"),
    Unmeasured("NBCE fails where an answer needs several contexts at once.", f"{ARTICLE_1} on {NBCE}", "",
               "needs a model that answers from two facts of one context"),
    Unmeasured("NBCE can take the place of retrieval on a small scale.", f"{ARTICLE_1} on {NBCE}", "",
               "no retrieval to compare with"),
    Unmeasured("Grouped queries are faster since fewer bytes are read, and by more than expected.", ARTICLE_2, "",
               "the speed is measured (claims on key heads, above), not its cause"),
    Unmeasured("The gain by biases on queries and keys depends on the model's structure and settings.",
               "kexue.fm/9577", "", "one structure in the zoo; with three layers biases helped ([log](../log.md))"),
    Unmeasured("In large models biases have no special effect.", "kexue.fm/9577 on T5 and PaLM", "",
               "our models are small"),
    Unmeasured("Not every layer's attention falls clearly with the distance.", "kexue.fm/9577", "",
               "judged by halves of the layers only"),
    Unmeasured("Networks learn high frequencies badly from few dimensions, so what PI compresses is lost.",
               f"{ARTICLE_5} on {YARN}", "", "the consequence is judged: PI blurs what is near"),
    Unmeasured("A searched threshold of turns is better than one that is set by hand.", ARTICLE_5, "",
               "none was found that is clearly better than YaRN's: [searched schedules](fit/README.md)"),
    Unmeasured("Restricted attention saves nothing if only masked, and much if computed as windows.", ARTICLE_1, "",
               SPEED),
    Unmeasured("A window needs a cache of its own size only, whatever the text's length.",
               f"{ARTICLE_2} on arXiv:2310.06825", "", SPEED),
    Unmeasured("YaRN's temperature costs hardly any computation.", f"{ARTICLE_3} on {YARN}", "", SPEED),
    Unmeasured("Short rows and an extension afterwards cost less than long rows throughout.", ARTICLE_3, "",
               "the nearest is rows that become longer, which is not judged"),
)  # fmt: skip
