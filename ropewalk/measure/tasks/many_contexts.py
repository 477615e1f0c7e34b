"""Many contexts: a passkey in one of several texts that are read separately, and combined by a rule such as NBCE.

The length is cut into contexts of `piece` tokens, question and answer included; sample k hides the passkey in the
context at depth (k + 1/2) / samples. A row without any context is read too. An answer is right if greedy decoding
writes exactly the number; `context_right` is the share of its tokens that were taken from the context that has it.

Source: Su 2023, kexue.fm/9617, whose questions are about texts of a 7B model's users: 12 contexts, 9,000 characters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Annotated, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from ropewalk.errors import Conflict
from ropewalk.hf.probe.host import device_of
from ropewalk.measure.material.passage_search import scores
from ropewalk.measure.material.prompts import Prompt, tokenise_prompt, with_needle
from ropewalk.measure.material.subject import Subject
from ropewalk.measure.metrics.intervals import LOSS, SHARE
from ropewalk.measure.tasks.passkey import FACT, QUESTION
from ropewalk.measure.tasks.retrieval import AtDepths, Ranges
from ropewalk.methods.decoding import NBCE, Decoding, MaxPooling, MeanPooling
from ropewalk.methods.record import AT_LEAST_ONE, NOT_NEGATIVE
from ropewalk.methods.spec import Json

FEWEST_CONTEXTS = 2  # contexts
BATCH_ROWS = 16  # rows in a batch
BETA = 0.25
WITHOUT_BETA = ("product", "retrieved")
HIGHEST_LOSS = 20.0  # nats: the loss of a token that NBCE's filter leaves no probability


@dataclass(frozen=True, kw_only=True)
class ManyContexts(AtDepths):
    name: ClassVar[str] = "many_contexts"
    averages: ClassVar[Ranges] = {"loss": LOSS, "context_right": SHARE}
    pooling: Annotated[
        Literal["entropy", "mean", "max", "product", "retrieved"],
        "the context of least entropy (NBCE), the mean, the maximum of each token, exact naive Bayes, or only the "
        "context that BM25 finds for the question",
    ] = "entropy"
    beta: Annotated[
        float | None,
        NOT_NEGATIVE,
        "how strongly the context-free guess is discounted, by default 0.25; not for product, where it is n - 1, and "
        "retrieved, where it is 0",
    ] = None
    piece: Annotated[int | None, AT_LEAST_ONE, "tokens of a context; the trained length if nothing"] = None

    def check(self) -> None:
        super().check()
        if self.beta is not None and self.pooling in WITHOUT_BETA:
            raise Conflict("beta", f"left out where pooling is {self.pooling}", self.beta, remedy="or take entropy")

    @property
    def discount(self) -> float:
        """Beta, or its default."""
        return BETA if self.beta is None else self.beta

    @property
    def title(self) -> str:
        """With the rule."""
        return f"{self.name}_{self.pooling}" + ("" if self.pooling in WITHOUT_BETA else f"_{self.discount:g}")

    def measure(self, subject: Subject, length: int, sample: int) -> Json:
        """One passkey in one of the contexts."""
        prompts = self.prompts(subject, length, sample)
        holder = self.holder(subject, length, sample)
        answer = prompts[1 + holder].answer_ids
        if self.pooling == "retrieved":
            row = 1 + retrieve(prompts[1:])
            score = combine(MeanPooling(beta=0), read(subject, [prompts[0], prompts[row]]), answer)
            score = score._replace(chosen=[row] * len(answer))
        else:
            score = combine(self.rule(contexts=len(prompts) - 1), read(subject, prompts), answer)
        return {
            "right": all(score.hits),
            "loss": fmean(score.losses),
            "context_right": fmean(row == 1 + holder for row in score.chosen),
            "contexts": len(prompts) - 1,
        }

    def rule(self, contexts: int) -> Decoding:
        """How the predictions of so many contexts become one."""
        if self.pooling == "entropy":
            return NBCE(beta=self.discount)
        if self.pooling == "max":
            return MaxPooling(beta=self.discount)
        return MeanPooling(beta=contexts - 1 if self.pooling == "product" else self.discount)

    def holder(self, subject: Subject, length: int, sample: int) -> int:
        """The context that has the passkey, from 0."""
        return int(self.depth(sample) * self._count(subject, length))

    def _count(self, subject: Subject, length: int) -> int:
        return max(FEWEST_CONTEXTS, length // self._piece(subject))

    def _piece(self, subject: Subject) -> int:
        return self.piece or subject.facts.trained_len

    def prompt(self, subject: Subject, length: int, sample: int) -> Prompt:
        """The one that has the passkey."""
        return self.prompts(subject, length, sample)[1 + self.holder(subject, length, sample)]

    def prompts(self, subject: Subject, length: int, sample: int) -> list[Prompt]:
        """The question alone, and after every context; the same for every rule and extension."""
        random, holder = self.chance(subject, length, sample), self.holder(subject, length, sample)
        key = str(random.randrange(10_000, 100_000))
        rows = [tokenise_prompt(subject.tokenizer, QUESTION, f" {key}")]
        for place in range(self._count(subject, length)):
            rows.append(
                with_needle(
                    subject.tokenizer,
                    filler=subject.filler(random),
                    needle=FACT.format(key=key) if place == holder else "",
                    question=QUESTION,
                    answer=f" {key}",
                    depth=random.random(),
                    length=self._piece(subject),
                )
            )
        return rows


def retrieve(prompts: Sequence[Prompt]) -> int:
    """The context that BM25 finds for the question; the first of several that are equally good."""
    matches = scores(QUESTION, [prompt.text.removesuffix(QUESTION) for prompt in prompts])
    return matches.index(max(matches))


@torch.no_grad()
def read(subject: Subject, prompts: Sequence[Prompt]) -> Tensor:
    """What every row says of every token of its answer: [rows, tokens of the answer, vocabulary], normalised."""
    said = list[Tensor]()
    for alike in _batches_of_one_length(prompts):
        ids = torch.tensor([[*prompt.ids, *prompt.answer_ids] for prompt in alike], device=device_of(subject.model))
        last = len(alike[0].answer_ids)
        said.extend(subject.model(input_ids=ids, use_cache=False).logits[:, -1 - last : -1].float().cpu())
    return torch.stack(said).log_softmax(-1)


def _batches_of_one_length(prompts: Sequence[Prompt]) -> list[list[Prompt]]:
    """Batches, in order, whose rows need no padding."""
    batches: list[list[Prompt]] = []
    for prompt in prompts:
        if not batches or len(batches[-1]) == BATCH_ROWS or batches[-1][-1].length != prompt.length:
            batches.append([])
        batches[-1].append(prompt)
    return batches


class CombinedAnswer(NamedTuple):
    """For each token of the right answer, after the right ones before it."""

    hits: list[bool]  # whether the rule writes it
    losses: list[float]
    chosen: list[int | None]  # the row that it was taken from


def combine(rule: Decoding, logp_bnv: Tensor, answer: Sequence[int]) -> CombinedAnswer:
    """The answer by a rule."""
    result, last = CombinedAnswer([], [], []), None
    for place, token in enumerate(answer):
        logp, last = rule.combine(logp_bnv[:, place], last)
        result.hits.append(int(logp.argmax()) == token)
        result.losses.append(min(HIGHEST_LOSS, -float(logp.double().log_softmax(-1)[token])))
        result.chosen.append(last)
    return result
