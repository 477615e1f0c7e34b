"""The page that every report is: self-contained, readable on a phone and in grey.

What is too wide for a phone, tables and commands, scrolls within itself; the page never does sideways.
"""

from __future__ import annotations

import html
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ropewalk.report.drawing import ReportFigure, embedded

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
body {{ font: 1rem/1.5 system-ui, sans-serif; color: #1a1a1a; background: #fff; }}
body {{ margin: 0 auto; max-width: 74rem; padding: 1rem; overflow-wrap: break-word; }}
h1 {{ font-size: 1.5rem; line-height: 1.25; }} h2 {{ font-size: 1.15rem; margin-top: 2rem; }}
.advice {{ border-left: 4px solid #1a1a1a; padding: .5rem 1rem; background: #f4f4f4; font-size: 1.05rem; }}
.advice p {{ margin: .25rem 0; }}
.wide {{ overflow-x: auto; margin: 1rem 0; }}
table {{ border-collapse: collapse; font-size: .8rem; }}
th, td {{ padding: .3rem .45rem; border-bottom: 1px solid #ddd; text-align: right; white-space: nowrap; }}
th:first-child, .words :last-child {{ text-align: left; }}
.words td:last-child {{ white-space: normal; min-width: 12rem; overflow-wrap: anywhere; }}
th:first-child {{ position: sticky; left: 0; background: #fff; }}
tbody th {{ font-family: ui-monospace, monospace; font-weight: normal; }}
.figures {{ columns: 2 30rem; column-gap: 2rem; }}
figure {{ margin: 0 0 1.5rem; max-width: 44rem; break-inside: avoid; }}
img {{ width: 100%; height: auto; }}
figcaption, .notes {{ font-size: .85rem; color: #444; }} ul.notes {{ padding-left: 1.2rem; }}
figcaption a {{ display: inline-block; padding: .2rem .35rem; color: #1a1a1a; }}
summary {{ cursor: pointer; padding: .3rem 0; }}
pre {{ overflow-x: auto; font-size: .8rem; background: #f4f4f4; padding: .75rem; }}
</style>
</head>
<body>
<h1>{title}</h1>
<div class="advice">{advice}</div>
<div class="wide">{table}</div>
<ul class="notes">{notes}</ul>
{parts}
<h2>To make it again</h2>
<pre>{command}</pre>
<details><summary>What the numbers depend on</summary><pre>{made}</pre></details>
</body>
</html>
"""


class PageTable(NamedTuple):
    """Words in rows; `ends_in_words`: the last column is no number and may take several lines."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    ends_in_words: bool = False


class PagePart(NamedTuple):
    """Figures under a heading, and numbers folded away below them; where either is empty it is left out."""

    name: str
    about: str
    figures: tuple[ReportFigure, ...]
    numbers: PageTable | None = None


def sheet(
    *,
    title: str,
    advice: Sequence[str],
    table: PageTable,
    notes: Sequence[str],
    parts: Sequence[PagePart],
    command: str,
    made: Mapping[str, Any],
    folder: Path,
) -> str:
    """The whole page as text; its figures are files in the folder by now."""
    return PAGE.format(
        title=html.escape(title),
        advice="".join(f"<p>{html.escape(words)}</p>" for words in advice),
        table=_table(table),
        notes="".join(f"<li>{html.escape(note)}</li>" for note in notes),
        parts="".join(_part(each, folder) for each in parts),
        command=html.escape(command),
        made=html.escape(json.dumps(made, indent=1)),
    )


def _table(table: PageTable) -> str:
    head = "".join(f"<th>{html.escape(name)}</th>" for name in table.head)
    kind = ' class="words"' if table.ends_in_words else ""
    body = "".join(_row(*row) for row in table.rows)
    return f"<table{kind}><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _row(first: str, *cells: str) -> str:
    shown = "".join(f"<td>{html.escape(cell)}</td>" for cell in cells)
    return f'<tr><th scope="row">{html.escape(first)}</th>{shown}</tr>'


def _part(part: PagePart, folder: Path) -> str:
    heading = f"<h2>{html.escape(part.name)}</h2>" if part.name else ""
    about = f'<p class="notes">{html.escape(part.about)}</p>' if part.about else ""
    figures = "".join(_figure(each, folder) for each in part.figures)
    shown = f'<div class="figures">{figures}</div>' if figures else ""
    return heading + about + shown + (_folded("Numbers", part.numbers) if part.numbers else "")


def _folded(name: str, table: PageTable) -> str:
    return f'<details><summary>{name}</summary><div class="wide">{_table(table)}</div></details>'


def _figure(drawn: ReportFigure, folder: Path) -> str:
    caption = html.escape(drawn.caption)
    files = "".join(f'<a href="{drawn.name}.{kind}" download>{kind.upper()}</a>' for kind in ("png", "svg", "csv"))
    image = f'<img src="{embedded(drawn, folder)}" alt="{caption}">'
    return f"<figure>{image}<figcaption>{caption} {files}</figcaption>{_numbers(drawn)}</figure>"


def _numbers(drawn: ReportFigure) -> str:
    if not drawn.shown:
        return ""
    head = tuple(name.replace("_", " ") for name in drawn.head)
    return _folded("As a table", PageTable(head, drawn.shown))
