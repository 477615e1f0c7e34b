"""A figure of a report: how it is drawn on a canvas, the numbers behind it, and its files."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ropewalk.folders import write_text
from ropewalk.measure.report.drawing.elements import element, joined
from ropewalk.measure.report.drawing.names import visible
from ropewalk.measure.report.written_tables import csv_text


class Canvas(NamedTuple):
    """What a figure is drawn on."""

    width: int
    log: bool = False  # the logarithmic one of two drawings

    @property
    def narrow(self) -> bool:
        """Whether labels go below the plot, as on a phone."""
        return self.width < WIDE.width


WIDE, NARROW = Canvas(960), Canvas(420)
Draw = Callable[[Canvas, str], Markup]  # with a label that browsers read out


class ReportFigure(NamedTuple):
    """A figure, its name, what it shows, and the numbers behind it."""

    name: str
    title: str  # what it answers, above it
    caption: str  # how to read it, below it
    draw: Draw
    head: tuple[str, ...]
    numbers: tuple[tuple[Any, ...], ...]
    section: str = ""  # of the page
    shown: tuple[tuple[str, ...], ...] = ()  # rows under the same head, which the page shows as a table
    has_log: bool = False  # whether it can be drawn on a logarithmic scale too


def drawing(canvas: Canvas, height: float, *inside: str, kind: str, label: str = "") -> Markup:
    """The outermost element of a figure; browsers read its label out."""
    size = f"0 0 {canvas.width} {round(height)}"
    scale = "log" if canvas.log else "even"
    width = "narrow" if canvas.narrow else "wide"
    return element(
        "svg",
        *inside,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=size,
        class_=f"figure {width} {scale}",
        data_kind=kind,
        role="img",
        tabindex=0,
        aria_label=label,
    )


def standalone(figure: ReportFigure) -> str:
    """The figure as a file of its own, with its colours for light and dark."""
    drawn = str(figure.draw(WIDE, figure.title))
    style = element("style", Markup(_style()))
    opening, _, rest = drawn.partition(">")
    return f"{opening}>{element('title', figure.title)}{style}{rest}\n"


def _style() -> str:
    return "".join(line.strip() for line in template_file("figure.css").splitlines())


@cache
def templates() -> Environment:
    """The files of templates/, in which everything that is filled in is escaped."""
    return Environment(loader=PackageLoader("ropewalk.measure.report"), autoescape=True, undefined=StrictUndefined)


def template_file(name: str) -> str:
    """One of them as it is."""
    files = templates()
    return files.loader.get_source(files, name)[0] if files.loader else ""


def csv_of(figure: ReportFigure) -> str:
    """The numbers of a figure."""
    return csv_text([figure.head, *figure.numbers])


def written(figure: ReportFigure, folder: Path) -> None:
    """A figure as SVG, and its numbers as CSV."""
    write_text(folder / f"{figure.name}.svg", standalone(figure))
    write_text(folder / f"{figure.name}.csv", csv_of(figure))


def legend_bar(words: tuple[str, str], x: float, y: float, width: float = 120) -> Markup:
    """The legend of shades: from nothing to the whole colour."""
    steps, step = 10, width / 10
    bar = [
        element(
            "rect", x=x + n * step, y=y - 9, width=step + 0.4, height=10, class_="shade", fill_opacity=n / (steps - 1)
        )
        for n in range(steps)
    ]
    low = element("text", visible(words[0]), x=x - 6, y=y, class_="tick end")
    high = element("text", visible(words[1]), x=x + width + 6, y=y, class_="tick")
    return element("g", joined([low, *bar, high]), class_="legend")
