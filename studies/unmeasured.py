"""Claims of the articles that no study here judges, and why; or the page that has their figures."""

from __future__ import annotations

from typing import NamedTuple

from studies.claims import ARTICLE_2, ARTICLE_5

LLAMA_LONG, YARN = "arXiv:2309.16039", "arXiv:2309.00071"


class Unmeasured(NamedTuple):
    """A claim without a verdict."""

    claim: str
    source: str
    theirs: str
    why: str


UNMEASURED = (
    Unmeasured("Better data matter more than more long texts, and more long texts do not keep helping.",
               f"{ARTICLE_2} on {LLAMA_LONG}", "", "needs corpora of several qualities and lengths"),
    Unmeasured("The gain by biases on queries and keys depends on the model's structure and settings.",
               "kexue.fm/9577", "",
               "with three layers biases helped, with six they did not: [finding 13](findings.md#f13)"),
    Unmeasured("In large models biases have no special effect.", "kexue.fm/9577 on T5 and PaLM", "",
               "our models are small"),
    Unmeasured("Networks learn high frequencies badly from few dimensions, so what PI compresses is lost.",
               f"{ARTICLE_5} on {YARN}", "", "the consequence is judged: PI blurs what is near"),
)  # fmt: skip
