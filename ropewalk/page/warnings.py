"""What to be warned of before a line is used: words of the page, with their values."""

from __future__ import annotations

import torch

from ropewalk.extension.extension import Extension
from ropewalk.extension.parsing import Line
from ropewalk.extension.presets import needs
from ropewalk.measure.diagnostics.pass_states import PairAngles
from ropewalk.methods.facts import Facts
from ropewalk.methods.frequencies import NTK, RoPE
from ropewalk.methods.reach import furthest

Warned = tuple[str, dict[str, float]]


def warnings(line: Line, extension: Extension, facts: Facts, length: int, angles: list[PairAngles]) -> list[Warned]:
    """The words that hold, under an extension that fits the model."""
    ground, needed = extension.builds_on(facts), needs(*(term.name for term in line.terms))
    schedule = extension.at_layer(0, ground).frequencies_or_rope
    changes_short = not torch.equal(schedule.table(ground, 1).inv_freq, RoPE().table(ground, 1).inv_freq)
    said = {
        "warn_training": needed == "training",
        "warn_tuning": needed == "tuning",
        "warn_decoding": bool(extension.decoding),
        "warn_surgery": bool(extension.surgery),
        "warn_numbering": bool(extension.positions),
        "warn_own": facts != facts.unscaled and extension.frequencies is not None and not extension.replaces_scaling,
        "warn_static": changes_short and needed != "training",
    }
    warned: list[Warned] = [(word, {}) for word, holds in said.items() if holds]
    return warned + _of_length(extension, ground, length, angles)


def _of_length(extension: Extension, facts: Facts, length: int, angles: list[PairAngles]) -> list[Warned]:
    """Those that the target length decides."""
    first, times = extension.at_layer(0, facts), length / facts.trained_len
    unseen, distance = sum(pair.unseen for pair in angles), furthest(first.reach_or_causal, length - 1)
    warned: list[Warned] = []
    if unseen:
        warned.append(("warn_new", {"count": unseen}))
    elif isinstance(first.frequencies_or_rope, RoPE) and distance >= facts.trained_len:
        warned.append(("warn_new_distance", {"distance": distance}))
    if isinstance(first.frequencies_or_rope, NTK) and times > 1 and first.frequencies_or_rope.factor < 2 * times:
        warned.append(("warn_ntk", {"times": times, "double": 2 * times}))
    if not extension.layers and _forgets(first, length):
        warned.append(("warn_forgets", {}))
    return warned


def _forgets(first: Extension, length: int) -> bool:
    """Whether the last query does not see every key."""
    row = torch.tensor([length - 1])
    return (
        int(sum(stop - start for start, stop in (span.bounds(row) for span in first.reach_or_causal.spans()))) < length
    )
