"""All diagnostics of a model without and with an extension, on the same texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ropewalk.errors import DoesNotFit
from ropewalk.extension.extension import Extension
from ropewalk.extension.notation import BARE
from ropewalk.extension.parsing import Line, parse_for
from ropewalk.hf.attach.attention import capture_biases
from ropewalk.hf.attach.extend import require_beyond
from ropewalk.hf.probe.facts import parse_for_config
from ropewalk.measure.comparison.store import provenance
from ropewalk.measure.diagnostics.attention_weights import (
    NEAR_KEYS,
    SINKS,
    LogitGrowth,
    entropy_of,
    logit_growth,
    share_of_first,
    share_of_last,
    without_sinks,
)
from ropewalk.measure.diagnostics.pass_states import (
    SAMPLED_ROWS,
    BiasTerms,
    Curves,
    PairAngles,
    StatePlane,
    bias_terms,
    curves_by_row,
    pair_angles,
    states_in_a_plane,
)
from ropewalk.measure.material.subject import Subject
from ropewalk.measure.metrics.losses import bin_means, token_losses
from ropewalk.methods.facts import Facts
from ropewalk.methods.reach import Sinks
from ropewalk.methods.spec import Json

Progress = Callable[[int, int, str], None]  # steps done, steps in all, what is measured now
STEPS_PER_SIDE = 4  # of each side
BOTH_SIDES = "a diagnosis compares positions within it and beyond"


@dataclass(frozen=True, kw_only=True)
class DiagnosedSide:
    """The model without an extension, or under one."""

    line: str
    extension: Extension
    pairs: tuple[PairAngles, ...]
    losses: tuple[float, ...]  # by position, in bins
    entropy: Curves
    last: Curves  # attention on the last NEAR keys
    first: Curves  # attention on the first SINKS keys
    growth: LogitGrowth
    planes: tuple[StatePlane, ...]
    terms: BiasTerms | None  # None where queries and keys have no biases


class StreamLosses(NamedTuple):
    """Losses by position, in bins: with the sinks, with other tokens in their place, without sinks."""

    kept: tuple[float, ...]
    replaced: tuple[float, ...]
    removed: tuple[float, ...]

    @property
    def changes(self) -> dict[str, tuple[float, ...]]:
        """What is lost without the sinks, by position: losses minus those with them."""
        others = {"replaced by line breaks": self.replaced, "removed": self.removed}
        return {name: _minus(losses, self.kept) for name, losses in others.items()}


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """Both sides and the sinks, and everything needed to repeat the diagnosis."""

    facts: Facts
    length: int
    sides: tuple[DiagnosedSide, ...]  # the base model first
    stream: Extension
    streams: StreamLosses
    texts: int  # of the losses
    marks: dict[str, str]
    made: Json

    @property
    def changes(self) -> dict[str, tuple[float, ...]]:
        """Losses minus the base model's, by position, of every extension."""
        base, *others = self.sides
        return {side.line: _minus(side.losses, base.losses) for side in others}


def _minus(losses: Sequence[float], others: Sequence[float]) -> tuple[float, ...]:
    return tuple(a - b for a, b in zip(losses, others, strict=True))


def measure_sides(
    subject: Subject, line: str | Line = "", *, texts: int = 2, progress: Progress = lambda done, total, label: None
) -> Diagnosis:
    """Diagnose a model at the subject's longest length. Losses are of all texts, everything else of the first."""
    facts, length = subject.facts, subject.longest
    require_beyond("length", length, facts.trained_len, BOTH_SIDES)
    parsed = parse_for_config(subject.model.config.get_text_config(), line, length, facts) if line else Extension()
    name = line.text if isinstance(line, Line) else line
    extensions = {BARE: Extension()} | ({name: parsed} if parsed != Extension() else {})
    ids = torch.stack([subject.begun(passage, length) for passage in subject.passages(texts)])
    stream = parsed if isinstance(parsed.reach, Sinks) else parse_for("streaming", facts, length)
    marks = subject.marks  # before the model is extended
    done, total = count(), STEPS_PER_SIDE * len(extensions) + 1

    def step(label: str) -> None:
        progress(next(done), total, label)

    sides = tuple(_side(subject, name, extension, ids, step) for name, extension in extensions.items())
    step("sinks")
    return Diagnosis(
        facts=facts,
        length=length,
        sides=sides,
        stream=stream,
        streams=_streams(subject, ids, stream),
        texts=texts,
        marks=marks,
        made={**provenance(), **subject.described(texts)},
    )


def _side(
    subject: Subject, line: str, extension: Extension, ids_bn: Tensor, step: Callable[[str], None]
) -> DiagnosedSide:
    model, first, name = subject.model, ids_bn[:1], "base model" if line == BARE else line
    with subject.under(extension, mode="attention") as handle:
        step(f"{name}: loss")
        losses = token_losses(model, ids_bn.to(subject.device)).losses_bn
        step(f"{name}: attention")
        entropy, last, sinks = curves_by_row(
            model, first, SAMPLED_ROWS, entropy_of, share_of_last(NEAR_KEYS), share_of_first(SINKS)
        )
        step(f"{name}: logits")
        growth = logit_growth(model, first)
        step(f"{name}: hidden states")
        return DiagnosedSide(
            line=line,
            extension=handle.extension,
            pairs=tuple(pair_angles(handle.extension, subject.facts, subject.longest)),
            losses=tuple(bin_means(losses.mean(0))),
            entropy=entropy,
            last=last,
            first=sinks,
            growth=growth,
            planes=tuple(states_in_a_plane(model, first)),
            terms=_terms(model, first),
        )


def _terms(model: nn.Module, ids_bn: Tensor) -> BiasTerms | None:
    """The four terms, where queries and keys have biases that can be separated."""
    try:
        biases = capture_biases(model)
    except DoesNotFit:
        return None
    if not any(layer.q_bhid.any() or layer.k_bgjd.any() for layer in biases):
        return None
    return bias_terms(model, ids_bn)


def _streams(subject: Subject, ids_bn: Tensor, stream: Extension) -> StreamLosses:
    """Line breaks replace the first tokens; where the tokenizer has none, the last token of the text does."""
    breaks = subject.tokenizer("\n", add_special_tokens=False)["input_ids"]
    substitute = breaks[-1] if breaks else int(ids_bn[0, -1])
    runs = without_sinks(subject.model, ids_bn, stream=stream, substitute=substitute, own=subject.own)
    return StreamLosses(*(tuple(bin_means(losses.mean(0))) for losses in runs))
