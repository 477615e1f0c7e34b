"""Pictures of findings, drawn from panels of data; one method has one colour in all of them."""

from __future__ import annotations

import hashlib
import io
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from PIL import Image, PngImagePlugin

from ropewalk.measure.metrics.intervals import Estimate

TINTS = (1.0, 0.87, 0.75, 0.62, 0.5, 0.38, 0.25, 0.13)  # of each colour in a picture, on white: smooth edges and bands
GREYS = 24
DPI, WIDTH = 150, 7.4
WIDE = 78  # letters that a line of a title has room for
DRAWN = "Drawn from"  # the entry of a picture that has the mark of its data
DARK = "#1a1a1a"
COLOURS = {
    "rope": "#1a1a1a",
    "window": "#8c6d46",
    "streaming": "#d4b800",
    "lm_infinite": "#7f1d1d",
    "bca": "#7a7a52",
    "pi": "#e377c2",
    "ntk": "#9467bd",
    "by_parts": "#6baed6",
    "yarn": "#1f4fd8",
    "yarn_beyond": "#08306b",
    "dynamic_yarn": "#17a5b8",
    "dynamic_ntk": "#b39ddb",
    "abf": "#2ca02c",
    "drope": "#8a8a8a",
    "log_n": "#9aa800",
    "rerope": "#f4a261",
    "rerope+log_n": "#f06a00",
    "rerope:window=6144+log_n": "#e09f3e",
    "self_extend": "#e89c9c",
    "self_extend+log_n": "#d62728",
    "self_extend:window=4096+log_n": "#ff6f91",
    "long_reach": "#006d5b",
    "hwfa": "#c2185b",
    "hwfa_rerope": "#f06fa8",
    "alibi": "#7b8c00",
    "kerple": "#3cb371",
    "sandwich": "#6b3fa0",
    "xpos": "#4fc3a1",
    "qk_bias": "#d95f02",
    "fast pairs": "#fb9a99",
    "slow pairs": "#33a1a1",
    "2 key heads": "#4c78a8",
    "1 key head": "#9ecae1",
    "least entropy": "#1b9e77",
    "mean": "#7570b3",
    "maximum": "#e7298a",
    "product": "#a6761d",
    "bm25": "#5c5c8a",
}
MARKS = "osD^vPX*"
DASHES = ["-", "--", "-.", ":"]


@dataclass(frozen=True)
class Line:
    """A curve: where, and how much."""

    label: str
    method: str  # whose colour it has
    points: tuple[tuple[float, Estimate], ...]
    dots: tuple[tuple[float, float], ...] = ()  # of single seeds


@dataclass(frozen=True)
class Curves:
    """Lines over a scale of powers of two, or of steps."""

    across: str
    up: str
    lines: tuple[Line, ...]
    title: str = ""
    times: float = 1
    level: tuple[float, str] | None = None  # a level to compare with, and its name
    steps: bool = False  # whether the scale is even, with these places alone
    unit: str = "x"

    def draw(self, panel: Axes) -> None:
        """On a panel."""
        places = sorted({x for line in self.lines for x, _ in line.points})
        at = {x: float(n) for n, x in enumerate(places)}
        for nth, line in enumerate(self.lines):
            x = [at[place] for place, _ in line.points]
            value, low, high = ([self.times * one[part] for _, one in line.points] for part in range(3))
            style: dict[str, Any] = {"marker": MARKS[nth % len(MARKS)], "linestyle": DASHES[nth % len(DASHES)]}
            panel.plot(x, value, color=COLOURS[line.method], label=line.label, linewidth=1.7, markersize=5, **style)
            panel.fill_between(x, low, high, color=COLOURS[line.method], alpha=0.13, linewidth=0)
            for place, dot in line.dots:
                panel.plot(at[place], self.times * dot, ".", color=COLOURS[line.method], markersize=3)
        _level(panel, self.level, across=True)
        panel.set_xticks(range(len(places)), [f"{x:g}{self.unit}" if not self.steps else f"{x:,g}" for x in places])
        panel.set(xlabel=self.across, ylabel=self.up)
        _legend(panel, len(self.lines))


@dataclass(frozen=True)
class Row:
    """A bar: a figure of a method."""

    label: str
    method: str
    value: Estimate


@dataclass(frozen=True)
class Bars:
    """Figures below each other, with their intervals and their numbers."""

    along: str
    rows: tuple[Row, ...]
    title: str = ""
    times: float = 1
    digits: int = 1
    signed: bool = False  # differences: dots around 0 instead of bars
    named: bool = True  # whether its rows are named: not where the panel on its left has the same
    level: tuple[float, str] | None = None
    log: bool = False

    def draw(self, panel: Axes) -> None:
        """On a panel."""
        for nth, row in enumerate(self.rows):
            value, low, high = (self.times * number for number in row.value[:3])
            colour = COLOURS[row.method]
            if self.signed:
                panel.plot((low, high), (nth, nth), color=colour, linewidth=2.2)
                panel.plot(value, nth, "o", color=colour, markersize=6)
            else:
                panel.barh(nth, value, color=colour, height=0.62)
                panel.plot((low, high), (nth, nth), color=DARK, linewidth=1)
            said = f"{round(value, self.digits) + 0.0:{'+' if self.signed else ''}.{self.digits}f}"
            panel.annotate(said, (high, nth), xytext=(4, 0), textcoords="offset points", va="center", fontsize=9)
        if self.signed:
            panel.axvline(0, color="grey", linewidth=0.8)
        if self.log:
            panel.set_xscale("log")
        _level(panel, self.level, across=False)
        panel.set_yticks(range(len(self.rows)), [row.label if self.named else "" for row in self.rows])
        panel.set(ylim=(len(self.rows) - 0.4, -0.6), xlabel=self.along)
        panel.margins(x=0.18)


@dataclass(frozen=True)
class Dot:
    """A method between two scales."""

    label: str
    method: str
    x: Estimate
    y: Estimate
    offset: tuple[int, int] = (6, 4)


@dataclass(frozen=True)
class Scatter:
    """Methods between two scales, each with both intervals."""

    across: str
    up: str
    dots: tuple[Dot, ...]
    title: str = ""
    level: tuple[float, str] | None = None

    def draw(self, panel: Axes) -> None:
        """On a panel; the first scale is in percent."""
        for nth, dot in enumerate(self.dots):
            x, colour = [100 * number for number in dot.x[:3]], COLOURS[dot.method]
            panel.plot((x[1], x[2]), (dot.y.value, dot.y.value), color=colour, linewidth=1, alpha=0.55)
            panel.plot((x[0], x[0]), (dot.y.low, dot.y.high), color=colour, linewidth=1, alpha=0.55)
            mark = MARKS[nth % len(MARKS)]
            panel.plot(x[0], dot.y.value, mark, color=colour, markersize=6.5, label=dot.label, linestyle="none")
        _level(panel, self.level, across=True)
        panel.set(xlabel=self.across, ylabel=self.up)
        _legend(panel, len(self.dots))


Panel = Curves | Bars | Scatter


@dataclass(frozen=True)
class Picture:
    """A title, and panels beside each other."""

    title: str
    panels: Sequence[Panel]
    height: float = 3.3

    @property
    def mark(self) -> str:
        """What it is drawn from, and how, in short; figures with four digits, which is more than can be seen."""
        drawn = _short((self.title, tuple(self.panels))) + Path(__file__).read_text("utf-8")
        return hashlib.sha256(drawn.encode()).hexdigest()[:16]

    def save(self, place: Path) -> None:
        """As a picture with few colours, which has the mark of its data."""
        figure, panels = plt.subplots(1, len(self.panels), figsize=(WIDTH, self._height), layout="constrained")
        figure.suptitle(_balanced(self.title), fontsize=11, color=DARK, fontweight="bold")
        for axes, panel in zip([panels] if len(self.panels) == 1 else list(panels), self.panels, strict=True):
            panel.draw(axes)
            wide = 32 if isinstance(panel, Bars) else 38
            axes.set_title(textwrap.fill(panel.title, wide), fontsize=9.6, color=DARK)
            axes.tick_params(labelsize=8.8)
            axes.xaxis.label.set_size(9.2)
            axes.yaxis.label.set_size(9.2)
            axes.spines[["top", "right"]].set_visible(False)
        drawn = io.BytesIO()
        figure.savefig(drawn, dpi=DPI, format="png", facecolor="white")
        plt.close(figure)
        marked = PngImagePlugin.PngInfo()
        marked.add_text(DRAWN, self.mark)
        few = Image.open(drawn).convert("RGB").quantize(palette=self._palette, dither=Image.Dither.NONE)
        few.save(place, optimize=True, pnginfo=marked)

    @property
    def _palette(self) -> Image.Image:
        """The colours of its methods in a few tints, and greys."""
        used = dict.fromkeys(COLOURS[one.method] for panel in self.panels for one in _parts(panel))
        shades = [_tint(colour, tint) for colour in used for tint in TINTS]
        shades += [(level,) * 3 for level in (round(255 * n / (GREYS - 1)) for n in range(GREYS))]
        palette = Image.new("P", (1, 1))
        palette.putpalette([number for shade in shades[:256] for number in shade])
        return palette

    @property
    def _height(self) -> float:
        rows = max((len(panel.rows) for panel in self.panels if isinstance(panel, Bars)), default=0)
        named = max((len(_parts(panel)) for panel in self.panels if not isinstance(panel, Bars)), default=0)
        return max(self.height + 0.2 * (named // 2), 1.3 + 0.27 * rows)


def mark_of(place: Path) -> str:
    """What a picture says that it is drawn from; nothing where there is none."""
    if not place.is_file():
        return ""
    with Image.open(place) as picture:
        return str(picture.info.get(DRAWN, ""))


def _balanced(title: str) -> str:
    """In one line, or in two of about the same width."""
    return title if len(title) <= WIDE else textwrap.fill(title, len(title) // 2 + 8)


def _parts(panel: Panel) -> Sequence[Line | Row | Dot]:
    if isinstance(panel, Bars):
        return panel.rows
    return panel.lines if isinstance(panel, Curves) else panel.dots


def _tint(colour: str, tint: float) -> tuple[int, ...]:
    return tuple(round(255 + tint * (int(colour[at : at + 2], 16) - 255)) for at in (1, 3, 5))


def _legend(panel: Axes, named: int) -> None:
    """Below the panel, where it hides nothing."""
    columns = 2 if named > 1 else 1
    panel.legend(
        frameon=False, fontsize=8.6, loc="upper center", bbox_to_anchor=(0.5, -0.22), ncols=columns, columnspacing=1
    )


def _short(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, (tuple, list)):
        return f"({','.join(map(_short, value))})"
    if isinstance(value, (Curves, Bars, Scatter, Line, Row, Dot)):
        return _short((type(value).__name__, *vars(value).values()))
    return repr(value)


def _level(panel: Axes, level: tuple[float, str] | None, *, across: bool) -> None:
    """A level to compare with, named in the legend."""
    if level is None:
        return
    draw = panel.axhline if across else panel.axvline
    draw(level[0], color="#666666", linewidth=1, linestyle=(0, (5, 3)), label=level[1] or None)
    if not across and level[1]:
        panel.annotate(
            level[1], (level[0], 0), xycoords=("data", "axes fraction"), xytext=(3, 3), textcoords="offset points",
            fontsize=8.4, color="#444444",
        )  # fmt: skip
