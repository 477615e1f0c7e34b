"""A picture of what a claim follows from: figures as curves, and how far each comparison is above what it must be."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from PIL import Image

from studies.claims import JudgedClaim

LINES = ["-", "--", "-.", ":"]
COLOURS = 160  # of a picture; with few, lines that are thin get the colour of others
WIDE = 8  # so many times the smallest place is drawn on a scale of powers
TICKS = 10  # up to so many places have one each


def draw(one: JudgedClaim, path: Path) -> None:
    """Write the picture of one claim."""
    figure, (panel, beside) = plt.subplots(1, 2, figsize=(7.8, 3.2), width_ratios=(4, 1), layout="constrained")
    scale, places = one.unit.times, sorted({x for points in one.curves.values() for x, _ in points})
    for nth, (label, points) in enumerate(one.curves.items()):
        x = [place for place, _ in points]
        value, low, high = ([scale * point[part] for _, point in points] for part in range(3))
        marker = "o" if len(x) == 1 else ""
        (line,) = panel.plot(x, value, marker=marker, label=label, linestyle=LINES[nth % len(LINES)], linewidth=1.6)
        if len(x) == 1:  # which a band would not show
            panel.vlines(x, low, high, color=line.get_color(), alpha=0.4)
        panel.fill_between(x, low, high, color=line.get_color(), alpha=0.2, linewidth=0)
    _scale(panel, places, one.axes[0])
    panel.set(xlabel=one.axes[0], ylabel=one.axes[1])
    panel.legend(frameon=False, fontsize=8)
    panel.spines[["top", "right"]].set_visible(False)
    _draw_comparisons(beside, one)
    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=90, format="png")
    plt.close(figure)
    Image.open(drawn).convert("RGB").quantize(COLOURS).save(path, optimize=True)


def _scale(panel: Axes, places: Sequence[float], across: str) -> None:
    if all(isinstance(x, int) and x for x in places) and max(places) >= WIDE * min(places):
        panel.set_xscale("log", base=2)
        times = "x" if "trained lengths" in across else ""
        panel.set_xticks(places, [f"{x}{times}" for x in places], minor=False)
    elif len(places) <= TICKS:
        panel.set_xticks(places)


def _draw_comparisons(panel: Axes, one: JudgedClaim) -> None:
    """In the order of the page's table: differences are surer than their parts."""
    rows = range(len(one.comparisons))
    for row, compared in zip(rows, one.comparisons, strict=True):
        value, low, high = (one.unit.times * number for number in compared.above[:3])
        panel.plot((low, high), (row, row), color="black", linewidth=1.4)
        panel.plot(value, row, "o", color="black", markersize=4)
    panel.axvline(0, color="grey", linewidth=0.8)
    panel.set_yticks(rows, [str(row + 1) for row in rows])
    panel.set(ylim=(len(rows) - 0.4, -0.6), xlabel="above the bound", ylabel="comparison")
    panel.spines[["top", "right"]].set_visible(False)
    panel.set_visible(bool(rows))
