"""What the page draws of a line on a model at one target length: numbers and words for JSON, by the library itself."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain, pairwise
from typing import Any

import torch
from torch import Generator, Tensor

from ropewalk.errors import DoesNotFit, RopewalkError
from ropewalk.extension.extension import Extension
from ropewalk.extension.notation import INSTEAD
from ropewalk.extension.parsing import Line, read_line
from ropewalk.measure.diagnostics.attention_weights import decay
from ropewalk.measure.diagnostics.pass_states import PairAngles, pair_angles
from ropewalk.methods.facts import Facts
from ropewalk.methods.reach import Reach, effective_distances, furthest
from ropewalk.methods.spec import Json
from ropewalk.page.catalogue import key_of, pages_outside
from ropewalk.page.engines import in_engines
from ropewalk.page.warnings import warnings

CELLS = 64  # of a matrix, from the first token on; the last token comes after them
BINS, SAMPLES = 48, 6  # of distances: bins of equal ratio, and distances in each
WIDEST = 512  # of a bias: more takes seconds
SHARED = {"pairs", "decay"}  # what is large in a drawing, and the same for many lines
DIGITS, CLOSE = 4, 0.01  # of numbers; and tokens by which a distance may be off where a row is written as steps


def draw(text: str, facts: Facts, length: int) -> Json:
    """What the page draws of a line, or the sentence that refuses it. Lines with the same reach share its matrix.

    draw("yarn", facts, 32_768)["drawings"]["yarn@32768"]["engines"]
    """
    key = f"{text}@{length}"
    try:
        line = read_line(text)
        extension = line.build_for(facts, length)
        extension.check_against(facts)
        ground = extension.builds_on(facts)
        first = extension.at_layer(0, ground)
        _require_small(first)
        reach = f"{first.reach_or_causal}@{length}"
        angles = pair_angles(extension, ground, length)
        drawing = _words(line, extension) | _numbers(extension, first, facts, length) | {"reach": reach}
        drawing |= {"pairs": _pairs(angles), "warnings": warnings(line, extension, facts, length, angles)}
        if engines := in_engines(line, facts, length):
            drawing |= {"engines": engines.kinds, "flags": engines.flags}
        return {"drawings": {key: drawing}, "reaches": {reach: _reach(first.reach_or_causal, length)}}
    except RopewalkError as refused:
        return {"drawings": {key: {"refused": str(refused)}}, "reaches": {}}


def draw_all(lines: Iterable[str], facts: Facts, lengths: Sequence[int]) -> Json:
    """The drawings of several lines at several lengths. A curve that an earlier drawing has is its key there."""
    together: Json = {"drawings": {}, "reaches": {}}
    drawn: dict[str, str] = {}
    for text in dict.fromkeys(lines):
        for length in lengths:
            for name, part in draw(text, facts, length).items():
                together[name] |= part
            key = f"{text}@{length}"
            for name in SHARED & together["drawings"][key].keys():
                curve = json.dumps([name, together["drawings"][key][name]])
                if curve in drawn:
                    together["drawings"][key][name] = drawn[curve]
                drawn.setdefault(curve, key)
    return together


def grid(length: int) -> Json:
    """Where numbers are taken in a text of a length: the tokens of matrices and scales, and distances of the decay."""
    return {"length": length, "places": places(length), "distances": [bin[len(bin) // 2] for bin in bins(length)]}


def places(length: int) -> list[int]:
    """Tokens at equal steps from the first one, and the last."""
    return sorted({*(cell * length // CELLS for cell in range(CELLS)), length - 1})


def bins(length: int) -> list[list[int]]:
    """Distances from 1 on, in bins of equal ratio: a few of each."""
    ends = sorted({round(length ** (bin / BINS)) for bin in range(BINS + 1)})
    drawn = []
    for start, stop in pairwise(ends):
        count = min(stop - start, SAMPLES)
        drawn.append([start + int((n + 0.5) * (stop - start) / count) for n in range(count)])
    return drawn


def ground_of(facts: Facts) -> Json:
    """The model that a line builds on: its trained length, and how often each pair turns there."""
    return {"trained_len": facts.trained_len, "turns": _short(Extension().turns(facts))}


def _words(line: Line, extension: Extension) -> Json:
    """What a line is and what it is made of, as keys of the catalogue and as lines."""
    methods = dict.fromkeys(
        f"{slot}.{spec.name}" for one in extension.parts for slot, specs in one.specs.items() for spec in specs
    )
    terms = [key_of(term.name) for term in line.terms if term.name != INSTEAD]
    outside = pages_outside(extension)
    return {
        "terms": terms or list(methods),
        "made": _made(extension),
        "methods": list(methods),
        **({"pages": outside} if outside else {}),
        "way": _way_of(extension),
    }


def _made(extension: Extension) -> list[tuple[int | str | None, str]]:
    """What an extension is made of, and what its layers are; layers alike are together."""
    layers: dict[str, list[int]] = {}
    for key, override in extension.layer_items:
        layers.setdefault(_in_words(override), []).append(key)
    stated = [(keys[0] if len(keys) == 1 else _together(keys), words) for words, keys in layers.items()]
    return [(None, _in_words(extension)), *stated]


def _in_words(part: Extension) -> str:
    return " + ".join([*map(str, chain.from_iterable(part.specs.values())), *part.heads_in_words()])


def _together(keys: list[int]) -> str:
    adjacent = keys == list(range(keys[0], keys[-1] + 1))
    return f"{keys[0]}–{keys[-1]}" if adjacent and len(keys) > 2 else ", ".join(map(str, keys))


def _way_of(extension: Extension) -> str:
    """How it is used: by a command and a function of their own, or as any other."""
    rule = extension.decoding
    if rule is None or extension.surgery:
        return "surgery" if extension.surgery else "attention"
    return "one_text" if not rule.of_contexts else "joined" if rule.of_attention else "decoding"


def _numbers(extension: Extension, first: Extension, facts: Facts, length: int) -> Json:
    """The curves of the first layer."""
    ground = extension.builds_on(facts)
    weights = first.weights(ground, Generator().manual_seed(0))
    known = min(ground.trained_len * first.frequencies_or_rope.stretch, length) - 1
    return {
        "known": _whole(round(known, 2)),
        "decay": _decay(extension, facts, length),
        "scale": _scale(first, ground, weights, length),
        "learned": bool(weights),
        **({"ground": ground_of(ground)} if ground != facts else {}),
    }


def _pairs(angles: Sequence[PairAngles]) -> Json:
    return {
        "theta": _short([pair.theta for pair in angles]),
        "slowed": _short([pair.slowed_by for pair in angles]),
        "asked": _short([pair.turns_asked for pair in angles]),
        "unseen": [pair.pair for pair in angles if pair.unseen],
    }


def _decay(extension: Extension, facts: Facts, length: int) -> Json:
    """Mean, largest and smallest logit of the distances in each bin."""
    grouped = bins(length)
    distances = sorted({0, *chain.from_iterable(grouped)})
    by_distance = dict(zip(distances, decay(extension, facts, length, distances).tolist(), strict=True))
    seen = [[logit for s in group if not math.isnan(logit := by_distance[s])] for group in grouped]
    return {
        "mean": _short([sum(group) / len(group) if group else math.nan for group in seen]),
        "most": _short([max(group, default=math.nan) for group in seen]),
        "least": _short([min(group, default=math.nan) for group in seen]),
    }


def _scale(first: Extension, facts: Facts, weights: Any, length: int) -> Any:
    """The factor of the logits of each row, in the first head where all dimensions rotate; one number if rows agree."""
    rows = torch.tensor(places(length))
    total = torch.ones(len(rows), dtype=torch.float64)
    for spec in first.scales:
        total = total * spec.scale(rows, facts, weights.get(spec.name, {}))[0]
    return _short(total if (total != total[0]).any() else float(total[0]))


@lru_cache(64)
def _reach(reach: Reach, length: int) -> Json:
    """Which keys queries see, and how far away they appear."""
    at, row = torch.tensor(places(length)), torch.tensor([length - 1])
    bounds = [span.bounds(row) for span in reach.spans()]
    return {
        "seen": int(sum(stop - start for start, stop in bounds)),
        "furthest": _whole(round(furthest(reach, length - 1), 2)),
        "rows": [_steps(distances.tolist()) for distances in effective_distances(reach, at, at)],
    }


def _steps(distances: Sequence[float]) -> list[float]:
    """A row of distances as runs of equal steps: first column, how many, first distance, step, and so on."""
    runs: list[float] = []
    start = 0
    while start < len(distances):
        first = distances[start]
        step = distances[start + 1] - first if start + 1 < len(distances) else math.nan
        stop = start + 1
        while stop < len(distances) and abs(first + (stop - start) * step - distances[stop]) <= CLOSE:
            stop += 1
        if not math.isnan(first):
            runs += [start, stop - start, _whole(round(first, 2)), 0 if stop - start == 1 else _whole(round(step, 4))]
        start = stop
    return runs


def _short(value: Any) -> Any:
    """A number, or several, in as many digits as are drawn; nothing for what is no number."""
    if isinstance(value, list):
        return [_short(one) for one in value]
    if isinstance(value, Tensor):
        return _short(value.tolist())
    return _whole(float(f"{value:.{DIGITS}g}")) if math.isfinite(value) else None


def _whole(value: float) -> float:
    return int(value) if value == int(value) else value


def _require_small(extension: Extension) -> None:
    """Refuse a bias whose parameter would fill the memory."""
    for specs in extension.specs.values():
        for spec in specs:
            size = getattr(spec, "width", getattr(spec, "buckets", 0))
            if size > WIDEST:
                raise DoesNotFit(f"the width of {spec.name}", f"at most {WIDEST} on the page", size)
