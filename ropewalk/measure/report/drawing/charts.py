"""What figures show, as records of numbers: `templates/charts.js` draws them on a page, `paper.py` on paper."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple
from zlib import crc32

from ropewalk.measure.report.written_tables import csv_text

Kind = Literal["even", "log", "signed log"]
# The colours of paper, by the names that the style sheet has for them; in the dark it has others.
LIGHT = {"ink": "#1b1f24", "soft": "#57606a", "grid": "#d8dee4", "paper": "#fff", "shade": "#0b5ea8", "base": "#6e7781"}
LIGHT |= {"harm": "#a83a06"}  # the shade of what is bad, in maps
COLOURS = (
    *("#0b62a8", "#b91c4a", "#c2410c", "#15803d", "#8a6100", "#5b3fc4", "#a21caf", "#0e7490"),
    *("#5b2c0c", "#5f6b00", "#12493a", "#1d1a78"),
)
# Methods whose colour is always their own; others have theirs by a hash of the name, where it is free.
FAMILIAR = ("yarn", "dynamic_yarn", "self_extend", "rerope", "streaming", "long_reach", "pi", "ntk", "window")
LIGHT |= {f"c{n}": colour for n, colour in enumerate(COLOURS)}
DASHES = ((), (7.0, 3.0), (2.0, 2.5), (9.0, 3.0, 2.0, 3.0))  # pixels of ink and of none, in turn
MARKERS = 5
SHIFT = 3  # of dashes, from one round of colours to the next
BASE_KEY = -1  # of the base model; other things that are compared with are below it
OTHERS = 48  # keys of what is no extension, and fades on its own, begin here
KNEE = 0.05  # below it a signed logarithmic axis is even
CALM = 2  # bands that can be shown at once


class Axis(NamedTuple):
    """Numbers from `low` to `high`, and what they are."""

    words: str
    low: float
    high: float
    kind: Kind = "even"
    at: tuple[float, ...] = ()  # where its numbers stand; empty: where the library that draws it puts them
    tokens: bool = False  # written as 1k, which is 1,024
    whole: bool = False  # it has whole numbers only

    def beyond(self, value: float) -> int:
        """1 above the axis, -1 below it, 0 on it."""
        return (value > self.high) - (value < self.low)

    def clamp(self, value: float) -> float:
        """The number, or the end of the axis where it is beyond it."""
        return min(max(value, self.low), self.high)


class Series(NamedTuple):
    """Numbers under one name, in one style. NaN is a gap."""

    name: str
    key: int  # its style, and what it is on the whole page
    x: tuple[float, ...]
    y: tuple[float, ...]
    low: tuple[float, ...] = ()  # of the interval around y; in a row, around x
    high: tuple[float, ...] = ()
    look: Literal["line", "thin", "plain", "stair", "dots", "row"] = "line"
    broken: bool = False  # it does not set the scale
    also: tuple[int, ...] = ()  # the keys of others that have the same line
    value: str = ""  # what stands beside its name
    note: str = ""  # and after that
    cut: tuple[float, int] | None = None  # where it leaves the scale along an edge, and which edge: 1 or -1
    words: tuple[str, ...] = ()  # of each dot
    sizes: tuple[float, ...] = ()  # of each dot, in pixels
    colour: str = ""  # of the style sheet; by default that of the key
    alpha: float = 1.0
    marker: int = -1  # by default that of the key

    @property
    def last(self) -> float:
        """The last number; NaN where there is none."""
        return next((value for value in reversed(self.y) if not math.isnan(value)), math.nan)

    @property
    def style(self) -> dict[str, Any]:
        """How it differs from the others."""
        colour, dash = style_of(self.key)
        marker = self.marker if self.marker >= 0 else max(self.key, 0) % MARKERS
        return {"colour": self.colour or colour, "dash": dash, "marker": marker}


class Panel(NamedTuple):
    """One pair of axes and what is between them: series, or the cells of a map."""

    x: Axis
    y: Axis
    series: tuple[Series, ...] = ()
    name: str = ""
    note: str = ""
    key: int | None = None  # of the extension that the whole panel is of
    log: Axis | None = None  # another axis upwards, which a reader can choose
    marks: tuple[tuple[float, str], ...] = ()  # numbers across that have a name
    cells: tuple[tuple[float, ...], ...] = ()  # layer by layer from the top
    places: tuple[float, ...] = ()  # of the columns of cells
    edges: tuple[float, ...] = ()  # between them


@dataclass(frozen=True, kw_only=True)
class Chart:
    """Panels side by side or one below the other."""

    kind: Literal["lines", "rows", "dots", "fields"]
    panels: tuple[Panel, ...]
    columns: int = 1
    narrow_columns: int = 1  # on a phone
    height: float = 300.0  # of a panel, in pixels
    digits: int = 2
    signed: bool = False  # numbers are differences
    bare: bool = False  # the numbers on the axes say nothing
    shades: tuple[float, float] = (0.0, 1.0)  # the numbers of the palest and the darkest cell

    @property
    def legend(self) -> list[Series]:
        """What has a name beside the chart."""
        return [] if self.panels[0].name and self.kind == "lines" else [one for one in self._named() if one.name]

    def _named(self) -> tuple[Series, ...]:
        return self.panels[-1].series

    @property
    def ends(self) -> tuple[str, str]:
        """The numbers of the palest and the darkest cell in words."""
        low, high = self.shades
        return f"{low:.{self.digits}f}", f"{high:.{self.digits}f}"

    def to_json(self) -> dict[str, Any]:
        """For the script of the page; of each series with its style, and without what is not set."""
        names = "kind", "panels", "height", "digits", "signed", "bare", "shades"
        many = sum(bool(one.low) for one in self._named()) > CALM
        return {name: _plain(getattr(self, name)) for name in names} | {"many": many, "knee": KNEE}


class ShareCell(NamedTuple):
    """A share, NaN where there is none, what it is in words, and what stands in the cell if that is not the share."""

    share: float
    words: str
    label: str = ""

    @property
    def text(self) -> str:
        """What stands in the cell."""
        return "" if math.isnan(self.share) else self.label or f"{self.share:.0%}"


class ShareRow(NamedTuple):
    """An extension with a share for every column."""

    name: str
    key: int
    cells: tuple[ShareCell, ...]


@dataclass(frozen=True, kw_only=True)
class ShareMap:
    """Shares as a table in shades: rows, groups of columns with their names and sizes, and the words around them."""

    rows: Sequence[ShareRow]
    groups: Sequence[tuple[str, int]]
    columns: Sequence[str]  # their names; empty where the groups say enough
    above: str
    ends: tuple[str, str]  # what the cells with the least and with the most colour are
    shade: Literal["shade", "harm"] = "shade"  # the colour: more of `shade` is good, more of `harm` is bad
    kind: Literal["shares"] = "shares"


class ReportFigure(NamedTuple):
    """A figure, its name, what it shows, and the numbers behind it."""

    name: str
    title: str  # what it answers, above it
    caption: str  # how to read it, below it
    chart: Chart | ShareMap
    head: tuple[str, ...]
    numbers: tuple[tuple[Any, ...], ...]
    shown: tuple[tuple[str, ...], ...] = ()  # rows under the same head, which the page shows instead of the numbers

    @property
    def has_log(self) -> bool:
        """Whether it can be drawn on a logarithmic scale too."""
        return isinstance(self.chart, Chart) and self.chart.panels[0].log is not None

    def csv(self) -> str:
        """Its numbers as a file."""
        return csv_text([self.head, *self.numbers])


def styles_of(lines: Sequence[str]) -> dict[str, int]:
    """A key for each extension: the same in every report if it can be, and no colour twice before all are used."""
    keys: dict[str, int] = {}
    free = list(range(len(lines) + len(COLOURS)))
    methods = {line: re.split("[:+]", line, maxsplit=1)[0] for line in lines}
    first = {methods[line]: line for line in reversed(lines) if methods[line] in FAMILIAR}
    for line in sorted(lines, key=lambda line: first.get(methods[line]) != line):
        name = methods[line]
        wanted = FAMILIAR.index(name) if name in FAMILIAR else crc32(name.encode("utf-8", "replace")) % len(COLOURS)
        keys[line] = wanted if wanted in free else free[0]
        free.remove(keys[line])
    return keys


def style_of(key: int) -> tuple[str, tuple[float, ...]]:
    """The name of a colour, and a dash: no two of the first 48 have both."""
    if key < 0:
        return "base", ()
    return f"c{key % len(COLOURS)}", DASHES[(key + SHIFT * (key // len(COLOURS))) % len(DASHES)]


def _plain(value: Any) -> Any:
    """A record as JSON has it: numbers of six digits, null for what is no number; what is not set is left out."""
    if hasattr(value, "_asdict"):
        fields = {**value._asdict(), **(value.style if isinstance(value, Series) else {})}
        unset: tuple[Any, ...] = (None, (), "")
        return {name: _plain(part) for name, part in fields.items() if part not in unset and part is not False}
    if isinstance(value, tuple):
        return [_plain(part) for part in value]
    return (float(f"{value:.6g}") if math.isfinite(value) else None) if isinstance(value, float) else value
