"""Whether text that is written under LM-Infinite stays good: what a paper claims, judged on the carried model.

python -m studies.generation    measure, and write results/generation/generation.json

After 4,096 tokens of a held-out text, eight trained lengths, 64 tokens are sampled at temperature 1, from all tokens of
the vocabulary. Greedy decoding tends to repeat itself, which a reader finds likely: repeated text would look good.
The reference is written after the last 448 tokens of the same text, by plain rotation: with them 512 tokens, one
trained length. The seed of a text is the same for every writer.

One reader judges all pieces: the model without an extension, which reads the last 448 tokens of the text and then the
piece. Its loss of a piece that it would have written itself is near its entropy; broken text has a higher one. Of a
piece that uses what stands farther back than 448 tokens this reader does not see why: it looks worse than it is.

The overlap of a piece with the text that really follows is ROUGE-L of tokens:

    F = 2 P R / (P + R),   P = common / tokens of the piece,   R = common / tokens of the text,

where common is the length of their longest common subsequence. Both have n tokens, so F = common / n.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import PreTrainedModel

from ropewalk.measure.metrics.intervals import Estimate, crossed_mean

from studies.carried import carried
from studies.claims import ARTICLE_2, LEVEL, NATS, POINTS, Claim, JudgedClaim, Unit, judge
from studies.records import write

PLACE = Path(__file__).resolve().parent / "results" / "generation" / "generation.json"
TRAINED, TIMES, WRITTEN = 512, 8, 64  # tokens of the trained length, of which texts have so many; tokens of a piece
NEAR = TRAINED - WRITTEN  # tokens of a text that the reader reads before a piece
TEXTS, CORPUS = 24, "python"
PIECES, FEW = 24, 4  # that are written after a text; few by yarn and rope at 8x, which take longer
EDGES = (0, 16, 32, 48, 64)  # of the parts of a piece
LOSSES, OVERLAPS = "losses of parts of pieces", "overlaps of beginnings of pieces"
MARGIN_NATS, MARGIN_OVERLAP = 0.1, 0.02


class Writer(NamedTuple):
    """An extension, how many of the last tokens of a text it reads, and how many pieces it writes."""

    line: str
    reads: int = TIMES * TRAINED
    pieces: int = PIECES


REFERENCE, LM_INFINITE, ROPE = "rope at 1x", "lm_infinite at 8x", "rope at 8x"
WRITERS = {
    REFERENCE: Writer("rope", NEAR),
    LM_INFINITE: Writer("lm_infinite"),
    "window at 8x": Writer("window"),
    "yarn at 8x": Writer("yarn", pieces=FEW),
    ROPE: Writer("rope", pieces=FEW),
}
TRUTH, CHANCE = "the text itself", "rope at 1x, with another text"
NOTE = (
    f"After every text the carried model samples {PIECES} pieces of {WRITTEN} tokens, {FEW} where it attends to all; "
    f"at temperature 1, from the whole vocabulary. *{REFERENCE}* writes after the last {NEAR} tokens of the text. The "
    f"reader is the same model without an extension, after the same {NEAR} tokens. A repeated piece is likely too, so "
    f"a lower loss than that of *{REFERENCE}* is no sign of quality."
)
SOURCE = f"{ARTICLE_2} on arXiv:2308.16137"


class Figure(NamedTuple):
    """A writer's mean over its pieces, in a sum: a loss, or an overlap."""

    weight: float
    writer: str
    kind: str = LOSSES

    def __str__(self) -> str:
        """Without its weight."""
        return f"{'loss of' if self.kind == LOSSES else 'overlap of the text with'} what is written under {self.writer}"


CLAIMS = (
    Claim("lm-infinite-writes", "Generated text stays good under LM-Infinite: what it writes at 8x has a loss at most "
          f"{MARGIN_NATS:g} nats above what plain rotation writes at 1x.", SOURCE,
          ((Figure(1, REFERENCE), Figure(-1, LM_INFINITE)),), -MARGIN_NATS,
          theirs="a picture of BLEU and ROUGE; the bound is ours", note=NOTE),
    Claim("lm-infinite-writes-better", "Text that is generated under LM-Infinite at 8x is better than under plain "
          "rotation at 8x: it has a lower loss.", SOURCE, ((Figure(1, ROPE), Figure(-1, LM_INFINITE)),),
          theirs="a picture of BLEU and ROUGE", note=NOTE),
    Claim("lm-infinite-overlap", "What LM-Infinite writes at 8x is as like the text that follows as what plain "
          f"rotation writes at 1x: its ROUGE-L is at most {100 * MARGIN_OVERLAP:g} points lower.", SOURCE,
          ((Figure(1, LM_INFINITE, OVERLAPS), Figure(-1, REFERENCE, OVERLAPS)),), -MARGIN_OVERLAP,
          theirs="a picture of BLEU and ROUGE; the bound is ours",
          note=f"{NOTE} ROUGE-L is that of tokens. The row *{CHANCE}* is what pieces have in common with a text of "
          "another project."),
)  # fmt: skip


def sampled(model: PreTrainedModel, ids: Tensor, *, pieces: int, tokens: int, seed: int) -> Tensor:
    """Pieces that follow a text, [pieces, tokens]: the text is read once, into a cache that all pieces go on from."""
    chance, written = torch.Generator().manual_seed(seed), list[Tensor]()
    out = model(input_ids=ids[None], use_cache=True, logits_to_keep=1)
    out.past_key_values.batch_repeat_interleave(pieces)
    logits = out.logits[:, -1].expand(pieces, -1)
    while True:
        written.append(torch.multinomial(logits.float().softmax(-1), 1, generator=chance))
        if len(written) == tokens:
            return torch.cat(written, 1)
        logits = model(input_ids=written[-1], past_key_values=out.past_key_values, use_cache=True).logits[:, -1]


def part_losses(model: PreTrainedModel, before: Tensor, pieces: Tensor) -> list[float]:
    """The reader's mean loss of each part of the pieces, after the same tokens."""
    from ropewalk.measure.metrics.losses import token_losses

    rows = torch.cat([before.expand(len(pieces), -1), pieces], 1)
    losses = token_losses(model, rows).losses_bn[:, -pieces.shape[1] :].double().mean(0)
    return [round(float(losses[first:end].mean()), 5) for first, end in pairwise(EDGES)]


def overlaps(pieces: Tensor, truth: Tensor) -> list[float]:
    """ROUGE-L of the pieces and a text, up to the end of each part: means over the pieces."""
    found = torch.tensor([common_lengths(piece, truth.tolist()) for piece in pieces.tolist()]).double().mean(0)
    return [round(float(found[end - 1]) / end, 5) for end in EDGES[1:]]


def common_lengths(one: Sequence[int], other: Sequence[int]) -> list[int]:
    """The length of the longest common subsequence of the first n tokens of both, for every n."""
    row, found = [0] * (len(other) + 1), list[int]()
    for place, token in enumerate(one):
        above, row = row, [0]
        for at, another in enumerate(other):
            row.append(above[at] + 1 if token == another else max(row[-1], above[at + 1]))
        found.append(row[place + 1])
    return found


def elsewhere(projects: Sequence[str]) -> list[int]:
    """For every text the next one that is of another project."""
    places = range(len(projects))
    return [
        next((at + step) % len(projects) for step in places if projects[(at + step) % len(projects)] != projects[at])
        for at in places
    ]


def measured() -> Mapping[str, Any]:
    """Every writer: figures of every text, each for the parts of its pieces."""
    from ropewalk.measure.comparison.store import provenance

    opened = carried()
    subject = opened.subject(CORPUS, TIMES * TRAINED + WRITTEN)
    texts, projects = subject.passages(TEXTS), subject.projects(TEXTS)
    with torch.no_grad():
        figures = figures_of(opened.model, texts, elsewhere(projects))
    return {"made": provenance(), "projects": projects, **figures}


def figures_of(model: PreTrainedModel, texts: Sequence[Tensor], others: Sequence[int]) -> Mapping[str, Any]:
    """Losses and overlaps of every writer, of the text itself, and with another text."""
    before, truths = [ids[:-WRITTEN] for ids in texts], [ids[-WRITTEN:] for ids in texts]
    losses = {TRUTH: [part_losses(model, *one) for one in zip(_near(before), [x[None] for x in truths], strict=True)]}
    shares: dict[str, list[list[float]]] = {}
    for name, writer in WRITERS.items():
        written = [_written(model, writer, ids, seed) for seed, ids in enumerate(before)]
        losses[name] = [part_losses(model, *one) for one in zip(_near(before), written, strict=True)]
        shares[name] = [overlaps(*one) for one in zip(written, truths, strict=True)]
        if name == REFERENCE:
            shares[CHANCE] = [overlaps(pieces, truths[other]) for pieces, other in zip(written, others, strict=True)]
    return {LOSSES: losses, OVERLAPS: shares}


def _near(texts: Sequence[Tensor]) -> list[Tensor]:
    return [ids[-NEAR:] for ids in texts]


def _written(model: PreTrainedModel, writer: Writer, ids: Tensor, seed: int) -> Tensor:
    from ropewalk import extended

    with extended(model, writer.line, target_len=TIMES * TRAINED):
        return sampled(model, ids[-writer.reads :], pieces=writer.pieces, tokens=WRITTEN, seed=seed)


def verdicts(kept: Mapping[str, Any]) -> list[JudgedClaim]:
    """What the figures say of every claim."""
    return [_verdict(claim, kept) for claim in CLAIMS]


AXES = {
    LOSSES: ("last token of a part of a piece", "loss of the part, nats"),
    OVERLAPS: ("first tokens of a piece", "their ROUGE-L, percent"),
}
UNITS: Mapping[str, Unit] = {LOSSES: NATS, OVERLAPS: POINTS}


def _verdict(claim: Claim, kept: Mapping[str, Any]) -> JudgedClaim:
    kind = claim.sums[0][0].kind
    curves = {
        name: [(end, _sum([Figure(1, name, kind)], kept, part)) for part, end in enumerate(EDGES[1:])]
        for name in kept[kind]
    }
    return judge(claim, lambda terms, level: _sum(terms, kept, level=level), UNITS[kind], AXES[kind], curves)


def _sum(
    terms: Sequence[Figure], kept: Mapping[str, Any], part: int | None = None, *, level: float = LEVEL
) -> Estimate:
    """Over texts; of whole pieces, if no part is named."""
    rows = [[term.weight * _of(term.kind, parts, part) for parts in kept[term.kind][term.writer]] for term in terms]
    return crossed_mean([[sum(of_text) for of_text in zip(*rows, strict=True)]], groups=kept["projects"], level=level)


def _of(kind: str, parts: Sequence[float], part: int | None) -> float:
    """Losses of parts are averaged; the overlap of a whole piece is the last one."""
    if part is None and kind == LOSSES:
        return sum(parts) / len(parts)
    return parts[-1 if part is None else part]


if __name__ == "__main__":
    write(PLACE, measured())
