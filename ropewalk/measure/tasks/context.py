"""Loss of the same last tokens under growing context: does more context help, or break the model?

The targets are the last tokens of each passage at every length, so that only the context differs between lengths.
Loss and hits by position are stored too.

The last eighth of a trained length is scored by itself too: its tokens have seen 7/8 to all of a text of the trained
length. What has no lower loss there than the base model has in such a text makes no use of the longer context. Where
more tokens are scored than a text of the trained length has, lengths differ in their tokens too; then the base model
reads the same ones under a window of the trained length, piece by piece, which is the standard.

With `questions`, each text hides as many secret numbers at even depths. After one reading, copies of the cache answer
all: each number is asked for, and a passage from the text's beginning is repeated. What is hidden is not scored.

Protocol: the loss of the last tokens at several contexts is Su's (bojone/rerope, eval_loss.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import pairwise
from random import Random
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor
from transformers import DynamicCache

from ropewalk.hf.attach.handle import host_of
from ropewalk.hf.runtime.caches import PLAIN, ExtendedCacheLayer, held_bytes
from ropewalk.hf.use.long_text import OutputHead, head_of, score_tokens
from ropewalk.measure.material.secrets import CITIES, TextWithSecrets, with_secrets
from ropewalk.measure.material.subject import Subject
from ropewalk.measure.metrics.intervals import LOSS, SHARE, Estimate, means, projects_of, share_of_answers
from ropewalk.measure.metrics.losses import TokenLosses, bin_means, bits_per_byte, text_bytes, token_losses
from ropewalk.measure.tasks.task import Task
from ropewalk.methods.record import AT_LEAST_ONE, Rule
from ropewalk.methods.spec import Json

PIECES = 8  # of a trained length, read with what stands before them
WINDOW = "window_loss"
QUESTIONS = Rule(f"from 0 to {len(CITIES)}", lambda value: 0 <= value <= len(CITIES))
MOST_BYTES = 2**30  # of copies of a cache, in which questions are answered at once
LEAD, COPIED_TOKENS = 32, 128  # tokens of a repeated passage: that show which one it is, and that are scored


@dataclass(frozen=True, kw_only=True)
class Context(Task):
    name: ClassVar[str] = "context"
    version: ClassVar[int] = 4  # 3 had curves of the longest texts; 2 read several windows; 1 none under a window
    last: Annotated[int | None, AT_LEAST_ONE, "tokens that are scored; half the trained length if nothing"] = None
    questions: Annotated[int, QUESTIONS, "secret numbers that a text hides, each asked for after the text is read"] = 0

    def measure(self, subject: Subject, length: int, sample: int) -> Json:
        """One passage: its last tokens, all tokens by position, and the answers."""
        text = self.text(subject, sample)
        ids = subject.begun(text.ids_n, length)[None]
        trained_len, last = subject.facts.trained_len, self.last_of(subject.facts.trained_len, length)
        cache, head = self.cache(subject), head_of(host_of(subject.model), ids)
        every, plain = TokenLosses(*score_tokens(subject.model, ids, cache=cache, head=head)), text.plain(length - 1)
        scores = every.of(plain)
        size = text_bytes(subject.tokenizer, ids[0, 1:][-last:][text.plain(last)])
        scored, end = (
            scores.last(int(text.plain(count).sum())) for count in (last, min(last, max(1, trained_len // PIECES)))
        )
        result: Json = {
            "project": subject.projects(self.samples)[sample],
            "loss": scored.loss(),
            "end_loss": end.loss(),
            "accuracy": scored.accuracy(),
            "bits_per_byte": bits_per_byte(scored.losses_bn[0], size),
            "curve": bin_means(every.losses_bn[0], wanted=plain),
            "hits": bin_means(every.hits_bn[0].float(), wanted=plain),
        }
        if length == trained_len:
            result["whole_loss"] = scores.loss()
        if (
            length == trained_len
            and subject.is_base
            and self.standard(trained_len, subject.longest, subject.longest) == WINDOW
        ):
            most = self.last_of(trained_len, subject.longest)
            result["window_loss"] = window_loss(subject, sample, most, self.samples)
        return result | (self._answers(subject, text, ids, cache, head) if self.questions else {})

    @property
    def of_texts(self) -> Json:
        """What decides which tokens are scored, and what is asked."""
        return {"samples": self.samples, "last": self.last, "questions": self.questions}

    def cache(self, subject: Subject) -> DynamicCache:
        """An empty cache for what is read."""
        return DynamicCache(config=host_of(subject.model).config)

    def text(self, subject: Subject, sample: int) -> TextWithSecrets:
        """The passage of the longest length with its secrets; shorter lengths read its end."""
        ids, random = subject.passages(self.samples)[sample], Random(f"{subject.seed}/{Context.name}/{sample}")
        return with_secrets(subject.tokenizer, ids, self.questions, random)

    def _answers(
        self, subject: Subject, text: TextWithSecrets, ids: Tensor, cache: DynamicCache, head: OutputHead
    ) -> Json:
        """The answers to all questions, each after the whole text, and how well a passage of it is repeated."""
        length, answers = ids.shape[1], list[Json]()
        secrets = text.within(length - len(subject.begin))
        asked = [[*secret.question, *secret.answer] for secret in secrets]
        for secret, read in zip(secrets, scores_after(subject.model, ids, asked, cache, head), strict=True):
            scores = read.last(len(secret.answer))
            right = bool(scores.hits_bn.all())
            far = secret.distance > subject.facts.trained_len
            answers.append({"distance": secret.distance, "far": far, "right": right, "loss": scores.loss()})
        passage = ids[0, len(subject.begin) :][: LEAD + min(COPIED_TOKENS, length // 4)].tolist()
        if len(passage) <= LEAD:
            return {"answers": answers}
        copied = scores_after(subject.model, ids, [passage], cache, head)[0].last(len(passage) - LEAD)
        return {"answers": answers, "copied": copied.accuracy(), "copied_loss": copied.loss()}

    def last_of(self, trained_len: int, length: int) -> int:
        """The number of tokens that are scored in texts of a length; the first token has no prediction."""
        return min(self.last or trained_len // 2, length - 1)

    def standard(self, trained_len: int, length: int, longest: int) -> str:
        """Which number of the base model at its trained length is of the tokens that are scored at a length.

        Empty where none is: of more tokens than it read at once, its window is measured for the longest texts alone.
        """
        scored = self.last_of(trained_len, length)
        if scored == self.last_of(trained_len, trained_len):
            return "loss"
        return WINDOW if scored == self.last_of(trained_len, longest) else ""

    def condense(self, results: Sequence[Json]) -> dict[str, Estimate]:
        """Means over passages, and over questions of all: what is found, and what is found far away."""
        numbers = means(results, loss=LOSS, accuracy=SHARE, bits_per_byte=LOSS)
        if all("copied" in result for result in results):
            numbers |= means(results, copied=SHARE, copied_loss=LOSS)
        answers = [result.get("answers", ()) for result in results]
        far = [[answer for answer in of_text if answer["far"]] for of_text in answers]
        for name, asked in {"found": answers, "far": far}.items():
            if any(asked):
                right = [[answer["right"] for answer in of_text] for of_text in asked]
                numbers[name] = share_of_answers(right, projects_of(results))
        return numbers


def scores_after(
    model: Any, ids: Tensor, texts: Sequence[list[int]], cache: DynamicCache, head: OutputHead | None = None
) -> list[TokenLosses]:
    """The scores of several texts, each after the one that a cache has read: as rows of a batch, as far as memory goes.

    Rows are filled up behind their text, where nothing of it can see.
    """
    kinds = (*PLAIN, ExtendedCacheLayer)
    rows = max(1, MOST_BYTES // max(1, held_bytes(cache))) if all(type(one) in kinds for one in cache.layers) else 1
    scores, last = list[TokenLosses](), int(ids[0, -1])
    for first in range(0, len(texts), rows):
        part, copy = texts[first : first + rows], deepcopy(cache)
        if len(part) > 1:
            copy.batch_repeat_interleave(len(part))
        width = max(map(len, part))
        more = [[last, *text, *[last] * (width - len(text))] for text in part]
        losses, hits = score_tokens(model, torch.tensor(more, device=ids.device), cache=copy, head=head)
        sizes = enumerate(map(len, part))
        scores += [TokenLosses(losses[row : row + 1, :size], hits[row : row + 1, :size]) for row, size in sizes]
    return scores


def window_loss(subject: Subject, sample: int, last: int, samples: int) -> float:
    """The loss of the last tokens of a passage, each after 7/8 to all of a trained length of text."""
    ids, size = subject.passages(samples)[sample].to(subject.device), subject.facts.trained_len
    ends = [*range(len(ids), len(ids) - last, -max(1, size // PIECES)), len(ids) - last]
    pieces = ((subject.begun(ids[:end], min(end, size)), begin - end) for end, begin in pairwise(ends))
    losses = [token_losses(subject.model, piece[None]).losses_bn[0, first:] for piece, first in pieces]
    return float(torch.cat(losses).double().mean())
