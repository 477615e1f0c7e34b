"""The numbers of a walk in ten steps: what three kinds of methods do to one token of a text, the last one.

Rotation is a number in base beta: pair i of d/2 turns by theta_i = beta^-i a token, beta = base^(2/d), as a digit of
the position does (Su 2023, kexue.fm/9675). Slow pairs end training without a full turn; in a longer text they turn
further. Position interpolation divides all angles, NTK most those of slow pairs, YaRN by parts. log-n keeps the share
of a key that stands out as keys become more (Su 2021, kexue.fm/8823). A window, and ReRoPE (Su 2023, kexue.fm/9708),
change distances in place of angles.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch

from ropewalk.errors import RopewalkError
from ropewalk.extension.extension import Extension
from ropewalk.extension.parsing import read_line
from ropewalk.measure.diagnostics.pass_states import PairAngles, pair_angles
from ropewalk.methods.facts import Facts
from ropewalk.methods.reach import effective_distances, furthest
from ropewalk.methods.spec import Json
from ropewalk.page.drawing import places

ROTATIONS, FOCUS = ("rope", "pi", "ntk", "yarn"), "log_n"
DISTANCES = ("rope", "streaming", "rerope", "self_extend")
DIALS = 8  # pairs that are drawn
HALF = 0.5  # share of the key that stands out, among as many keys as in training
SLOWED = 0.01  # relative: what differs by less is the same


class Step(NamedTuple):
    """A line on this model at the length."""

    extension: Extension
    angles: list[PairAngles]


def walk(facts: Facts, length: int) -> Json | None:
    """Everything that the walk says and draws of a model; nothing where rotation is not what it builds on."""
    try:
        if length <= facts.trained_len or not facts.rotating:
            return None
        return _numbers(facts, length)
    except RopewalkError:  # such as a schedule of its own that a method does not build on
        return None


def _numbers(facts: Facts, length: int) -> Json:
    steps = {line: _step(line, facts, length) for line in dict.fromkeys((*ROTATIONS, *DISTANCES, FOCUS))}
    pairs = steps["rope"].angles
    shown = sorted({round(n * (len(pairs) - 1) / (DIALS - 1)) for n in range(DIALS)})
    slowed = [pair.slowed_by for pair in steps["yarn"].angles]
    times = length / facts.trained_len
    kept, whole = (sum(abs(by / end - 1) < SLOWED for by in slowed) for end in (1, times))
    return {
        "length": length,
        "trained": facts.trained_len,
        "times": times,
        "pairs": len(pairs),
        "beta": facts.base ** (2 / facts.rotating),
        "base": facts.base,
        "fast": _wave(pairs[0]),
        "slow": _wave(pairs[-1]),
        "partial": sum(pair.turns_trained < 1 for pair in pairs),
        "unseen": {line: sum(pair.unseen for pair in step.angles) for line, step in steps.items()},
        "degrees": {line: math.degrees(steps[line].angles[0].theta) for line in ROTATIONS},
        "ntk_base": steps["ntk"].angles[-1].theta ** -(facts.rotating / (facts.rotating - 2)),
        "parts": {"kept": kept, "whole": whole, "between": len(slowed) - kept - whole},
        "temperature": _factor(steps["yarn"].extension, facts, length),
        "dials": [
            {
                "pair": place,
                "trained": pairs[place].turns_trained,
                "theta": {line: steps[line].angles[place].theta for line in ROTATIONS},
            }
            for place in shown
        ],
        "focus": _focus(_factor(steps[FOCUS].extension, facts, length), facts.trained_len, length),
        "distances": {line: _distances(steps[line].extension, facts, length) for line in DISTANCES},
    }


def _step(line: str, facts: Facts, length: int) -> Step:
    extension = read_line(line).build_for(facts, length)
    return Step(extension.at_layer(0, facts), pair_angles(extension, facts, length))


def _wave(pair: PairAngles) -> float:
    return 2 * math.pi / pair.theta


def _factor(extension: Extension, facts: Facts, length: int) -> float:
    """What the logits of the last row are multiplied by."""
    row = torch.tensor([length - 1])
    return math.prod(float(spec.scale(row, facts, {})[0]) for spec in extension.scales)


def _focus(factor: float, trained_len: int, length: int) -> Json:
    """The share of a key whose logit is so much above all others that it has half of the weight in training."""
    logit = math.log((trained_len - 1) * HALF / (1 - HALF))
    shares = {"trained": (logit, trained_len), "plain": (logit, length), "log_n": (factor * logit, length)}
    return {"factor": factor} | {
        name: math.exp(gap) / (math.exp(gap) + keys - 1) for name, (gap, keys) in shares.items()
    }


def _distances(extension: Extension, facts: Facts, length: int) -> Json:
    """How far away the keys of the last token appear, and how many it sees."""
    reach, at = extension.reach_or_causal, torch.tensor(places(length))
    row = torch.tensor([length - 1])
    shown = effective_distances(reach, row, at)[0].tolist()
    return {
        "at": [[length - 1 - key, far] for key, far in zip(at.tolist(), shown, strict=True) if not math.isnan(far)],
        "seen": int(sum(stop - start for start, stop in (span.bounds(row) for span in reach.spans()))),
        "furthest": furthest(reach, length - 1),
    }
