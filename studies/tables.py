"""Tables between the words of studies/results/README.md, from the records beside it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from ropewalk.measure.metrics.intervals import Estimate

from studies.claims import Unit
from studies.models_table import measured_in, table_in
from studies.zoo.figures import ACCURACY, FAR, PLAIN, AccuracyTerm, ZooFigures
from tools.markdown_table import table_of

POINTS = Unit("points", 100, 1)
WINDOW, FARTHEST = "rope_under_window", 8
BESIDE_WINDOW = (
    *("hwfa", "hwfa_rerope", "longer_from_20", "longer_from_40", "longer_from_80", "rope_under_rerope", "sandwich"),
    *("alibi", "kerple", "gau_bias", "rope_and_alibi"),
    *("rope_under_yarn", "rope_under_lm_infinite", "xpos", "window"),
)
READ_AFAR = (
    *("hwfa", "hwfa_rerope", "longer_from_40", "sandwich", "alibi", "kerple", "gau_bias", "rope_and_alibi"),
    "randomized_rotary",
    *("rope_under_yarn", "rope_under_twice_yarn", "rope_under_rerope", "rope_under_by_parts", "rope_under_ntk", "rope"),
    *(WINDOW, "marked_under_streaming", "rope_under_lm_infinite", "xpos", "window"),
)
SCHEDULES = {
    "yarn": "YaRN",
    "abf": "larger base",
    "ntk": "NTK",
    "dynamic": "dynamic NTK",
    "none": "no schedule",
    "pi": "PI",
    "drope": "DroPE",
}
FAR_SCHEDULES = {
    "yarn_beyond": "YaRN, set to 32x",
    "yarn_half": "YaRN, set to 16x",
    "yarn_half_dynamic": "the same, with dynamic scaling",
    "ntk_half": "NTK, set to 16x",
    "pi_half": "PI, set to 16x",
}  # all trained at 16x


def beyond_a_window(results: Path) -> str:
    """Accuracy at 8x, and how much more that is than plain rotation has behind a window of the trained length."""
    zoo = _zoo(results)
    rows = [[f"`{name}`", _accuracy(zoo, name), _gain(zoo, name, PLAIN, WINDOW)] for name in BESIDE_WINDOW]
    return table_of(["method", "accuracy at 8x, percent", "minus the window's, points [95 %]"], _highest_first(rows))


def from_afar(results: Path) -> str:
    """What is gained where the last tokens stand in the text once before, four trained lengths back."""
    zoo = _zoo(results)
    rows = [
        [f"`{name}`", _accuracy(zoo, name), _accuracy(zoo, name, FAR), _gain(zoo, name, FAR, name)]
        for name in READ_AFAR
    ]
    return table_of(["method", "without, percent", "with, percent", "gain, points [95 %]"], rows)


def tuned(study: str) -> Callable[[Path], str]:
    """The loss at 8x under each schedule, by training steps, as the mean over seeds and texts."""

    def table(results: Path) -> str:
        models = measured_in(results / study)
        steps = sorted({model["steps"] for model in models})
        rows = [[_steps(count), *(_loss(models, name, count) for name in SCHEDULES)] for count in steps]
        return table_of(["", *SCHEDULES.values()], rows)

    return table


def tuned_far(results: Path) -> str:
    """The loss after all steps, at every length, as the mean over seeds and texts; and that of the base model."""
    read = table_in(results / "tuned-far")
    steps = read["plan"]["steps"]
    lengths = [row["times"] for row in read["models"][0]["figures"]]
    rows = [["base model", *(_loss(read["models"], "base", 0, times) for times in lengths)]]
    for name, words in FAR_SCHEDULES.items():
        rows.append([words, *(_loss(read["models"], name, steps, times) for times in lengths)])
    return table_of(["", *(f"{times}x" for times in lengths)], rows)


def larger(results: Path) -> str:
    """The loss of the larger model, at its own length and at 8x."""
    read = json.loads((results / "larger" / "results.json").read_text("utf-8"))
    lengths = sorted(read["lengths"])
    rows = []
    for candidate in read["candidates"]:
        at = {row["length"]: row["numbers"]["loss"]["value"] for row in candidate["rows"] if row["task"] == "context"}
        line = "none" if candidate["line"] == "bare" else f"`{candidate['line']}`"
        rows.append([line, *(f"{at[length]:.2f}" for length in lengths)])
    return table_of(["extension", *(f"{length:,} tokens" for length in lengths)], rows)


TABLES: Mapping[str, Callable[[Path], str]] = {
    "beyond a window": beyond_a_window,
    "from afar": from_afar,
    "tuned-zoo": tuned("tuned-zoo"),
    "tuned-default": tuned("tuned-default"),
    "tuned-far": tuned_far,
    "larger": larger,
}


def _zoo(results: Path) -> ZooFigures:
    read = table_in(results / "zoo")
    return ZooFigures(read["models"], read["projects"])


def _accuracy(zoo: ZooFigures, name: str, kind: str = PLAIN) -> str:
    return f"{100 * fmean(zoo.all(name, FARTHEST, kind, ACCURACY)):.1f}"


def _gain(zoo: ZooFigures, name: str, kind: str, over: str) -> str:
    terms = [AccuracyTerm(1, name, FARTHEST, kind), AccuracyTerm(-1, over, FARTHEST)]
    gained: Estimate = zoo.sum(terms)
    return POINTS.interval(gained)


def _steps(count: int) -> str:
    return f"{count:,} steps" if count else "untrained"


def _loss(models: Sequence[Mapping[str, Any]], name: str, steps: int, times: int = FARTHEST) -> str:
    losses = [
        fmean(figures["losses"])
        for model in models
        if (model["method"], model["steps"]) == (name, steps)
        for figures in model["figures"]
        if figures["times"] == times
    ]
    return f"{fmean(losses):.2f}"


def _highest_first(rows: Sequence[list[str]]) -> list[list[str]]:
    return sorted(rows, key=lambda row: -float(row[1]))
