"""Successive halving of the candidates of a leaderboard."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from ropewalk.errors import Conflict
from ropewalk.extension.extension import Extension
from ropewalk.extension.parsing import Line, read_line
from ropewalk.extension.presets import Needs, needs
from ropewalk.hf.probe.facts import parse_for_config
from ropewalk.hf.use.advice import Advice
from ropewalk.hf.use.inspect import Inspection
from ropewalk.measure.material.subject import Subject
from ropewalk.measure.metrics.intervals import Estimate, difference
from ropewalk.methods.frequencies import RoPE

# Successive halving: all candidates read a few texts, those that are surely behind stop, and the rest read more.
#
#   behind(a, b) = mean over texts of loss_a(text) - loss_b(text),   a stops where the interval of behind(a, b) is above
#   MAX_GAP for a rival b that is no worse in all else
#
# Texts differ more than extensions do, so differences are taken text by text. With few texts the interval is wide, and
# little is dropped.
#
# Source: Jamieson & Talwalkar 2016, arXiv:1502.07943. Deviation: they drop a fixed share in each round, by means alone.


MAX_GAP = 0.05  # nats per token behind the best on the same texts


class Standing(NamedTuple):
    """What decides about one candidate in a round."""

    line: str
    losses: tuple[float, ...]  # at the target length, text by text; empty where it ran out of memory
    rivals: tuple[str, ...] = ()  # the candidates that are no worse in all but the loss
    projects: tuple[str, ...] = ()  # of the texts, where they are known; texts of one are alike

    @property
    def measured(self) -> bool:
        """Whether there is a loss for every text; one that is NaN or infinite cannot be compared."""
        return bool(self.losses) and all(map(math.isfinite, self.losses))


class Dropped(NamedTuple):
    """A candidate that stopped, and why."""

    line: str
    round: int  # counted from 1
    texts: int  # that it read
    loss: float
    rival: str
    behind: Estimate  # its loss minus the rival's, on the same texts
    threshold: float


def rounds(texts: int, least: int = 1) -> list[int]:
    """How many texts have been read when each round ends: an eighth, a third, all; at least `least`."""
    return sorted({min(texts, max(least, texts // parts)) for parts in (8, 3, 1)})


def hopeless(standings: Sequence[Standing], number: int) -> list[Dropped]:
    """The candidates that are surely behind a rival after a round of this number."""
    measured = {standing.line: standing for standing in standings if standing.measured}
    judged = [_judge(standing, measured, number) for standing in measured.values()]
    return [dropped for dropped in judged if dropped is not None and dropped.behind.low > MAX_GAP]


def _judge(standing: Standing, measured: dict[str, Standing], number: int) -> Dropped | None:
    """A candidate beside the best of its rivals; None where it has none."""
    rivals = [measured[line] for line in standing.rivals if line in measured]
    if not rivals:
        return None
    best = min(rivals, key=lambda rival: sum(rival.losses))
    behind = difference(standing.losses, best.losses, groups=standing.projects or None)
    texts = len(standing.losses)
    loss = sum(standing.losses) / texts
    return Dropped(standing.line, number, texts, loss, best.line, behind, MAX_GAP)


# Who takes part in a leaderboard: every preset that reads one text without training, and why the others do not.


TRAINED_WITH = "the model must be trained with it from the start"
CONTEXTS = "it joins several contexts and a question; here one text is read"
WEIGHTS = "it changes the weights, which then need training"
NUMBERING = "it numbers the tokens of training texts; a trained model does not read with it"
SAME = "for this model and length it is the same as {}"
NOTHING = "for this model and length it is the model without an extension"


class LeftOut(NamedTuple):
    """A preset, or a line that the caller names, that is not measured, and why."""

    name: str
    why: str


class Entrant(NamedTuple):
    """A line that is measured, and what its authors assume."""

    line: Line
    extension: Extension
    needs: Needs


def entrants(
    subject: Subject, inspection: Inspection, more: Sequence[Line] = ()
) -> tuple[list[Entrant], list[LeftOut]]:
    """The presets, then the lines that were asked for besides; the base model takes part in every comparison anyway."""
    config, chosen, left_out = subject.model.config.get_text_config(), dict[Extension, Entrant](), list[LeftOut]()
    for advice in inspection.methods:
        extension = _extension(config, advice.name, inspection) if advice.applies else None
        why = advice.why_not if extension is None else _why_left_out(advice, extension, inspection, chosen)
        if why or extension is None:
            left_out.append(LeftOut(advice.name, why))
        else:
            chosen[extension] = Entrant(read_line(advice.name), extension, advice.needs)
    for line in more:
        _require_own_meaning(line, [advice.name for advice in inspection.methods])
        extension = parse_for_config(config, line, inspection.target_len, inspection.facts)
        twin = chosen.get(extension)
        if _is_nothing(extension) or inspection.changes_nothing(extension):
            left_out.append(LeftOut(line.text, NOTHING))
        elif twin is None:
            chosen[extension] = Entrant(line, extension, needs(*(term.name for term in line.terms)))
        elif twin.line.text != line.text:
            left_out.append(LeftOut(line.text, SAME.format(twin.line.text)))
    racing = {entrant.line.text for entrant in chosen.values()}  # what the caller names is measured, whatever it is
    return list(chosen.values()), [out for out in left_out if out.name not in racing]


def _require_own_meaning(line: Line, presets: Sequence[str]) -> None:
    """Refuse the name of a preset for something else."""
    if line.text in presets and line != read_line(line.text):
        sentence = (
            f"{line.text!r} is a preset, which takes part in every leaderboard, and not the extension of that name"
        )
        raise Conflict.because("extensions", sentence, remedy="choose another name")


def _extension(config: Any, name: str, inspection: Inspection) -> Extension:
    return parse_for_config(config, read_line(name), inspection.target_len, inspection.facts)


def _why_left_out(
    advice: Advice, extension: Extension, inspection: Inspection, chosen: dict[Extension, Entrant]
) -> str:
    """Why a preset that applies is not measured; empty where it is."""
    if advice.needs == "training":
        return TRAINED_WITH
    if extension.decoding is not None:
        return CONTEXTS
    if extension.surgery:
        return WEIGHTS
    if extension.positions is not None:
        return NUMBERING
    if _is_nothing(extension) or inspection.changes_nothing(extension):
        return NOTHING
    twin = chosen.get(extension)
    return SAME.format(twin.line.text) if twin else ""


def _is_nothing(extension: Extension) -> bool:
    """Whether the model stays as it is: without any method, or with the plain rotation that it has."""
    return replace(extension, frequencies=None) == Extension() and isinstance(extension.frequencies_or_rope, RoPE)
