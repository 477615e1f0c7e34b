"""`report.html`: one page with everything in it, readable on a phone and in grey; and the numbers beside it."""

from __future__ import annotations

import html
import json
from pathlib import Path
from typing import Any

from ropewalk.evaluation.comparison import Comparison, reach
from ropewalk.report.figures import Drawn, embedded, figures, written
from ropewalk.report.sections import Section, sections
from ropewalk.report.tables import NOTES, advice, table, title

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; color: #1a1a1a; background: #fff; }}
body {{ margin: 0 auto; max-width: 62rem; padding: 1rem; }}
h1 {{ font-size: 1.5rem; }} h2 {{ font-size: 1.15rem; margin-top: 2rem; }}
.advice {{ border-left: 4px solid #1a1a1a; padding: .5rem 1rem; background: #f4f4f4; font-size: 1.05rem; }}
.wide {{ overflow-x: auto; }}
table {{ border-collapse: collapse; font-size: .85rem; }}
th, td {{ padding: .3rem .6rem; border-bottom: 1px solid #ddd; text-align: right; white-space: nowrap; }}
th:first-child, td:first-child, th:last-child, td:last-child {{ text-align: left; }}
tbody th {{ font-family: ui-monospace, monospace; font-weight: normal; }}
td:first-child {{ position: sticky; left: 0; background: #fff; font-family: ui-monospace, monospace; }}
img {{ max-width: 100%; height: auto; }}
figure {{ margin: 1rem 0; }} figcaption, .notes {{ font-size: .85rem; color: #444; }}
pre {{ overflow-x: auto; font-size: .8rem; background: #f4f4f4; padding: .75rem; }}
</style>
</head>
<body>
<h1>{title}</h1>
<p class="advice">{advice}</p>
<div class="wide">{table}</div>
<ul class="notes">{notes}</ul>
{sections}
<h2>To make it again</h2>
<pre>{command}</pre>
<details><summary>What the numbers depend on</summary><pre>{made}</pre></details>
</body>
</html>
"""


def write_report(comparison: Comparison, folder: str | Path, *, command: str = "") -> Path:
    """The page, the figures as PNG, SVG and CSV, and everything as JSON."""
    out = Path(folder)
    out.mkdir(parents=True, exist_ok=True)
    drawn = figures(comparison)
    for each in drawn:
        written(each, out)
    results = as_json(comparison, command)
    (out / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    page = out / "report.html"
    page.write_text(_page(comparison, drawn, command), "utf-8")
    return page


def as_json(comparison: Comparison, command: str = "") -> dict[str, Any]:
    """Every number, sample by sample, and everything needed to measure it again."""
    scored = sorted({task.name for task in comparison.tasks if task.scored})
    return {
        "command": command,
        "made": comparison.made,
        "marks": comparison.marks,
        "trained_len": comparison.trained_len,
        "lengths": list(comparison.lengths),
        "tasks": [{**task.to_json(), "version": task.version} for task in comparison.tasks],
        "contenders": [
            {
                "line": each.line,
                "extension": each.extension.to_json(),
                "change": each.change._asdict(),
                "cache_bytes": each.cache_bytes,
                "slowdown": each.slowdown,
                "verdict": each.verdict._asdict(),
                "reach": {name: reach(comparison, each, name)._asdict() for name in scored},
                "rows": [
                    {
                        "task": row.task.title,
                        "length": row.length,
                        "seconds": row.seconds,
                        "numbers": {name: estimate._asdict() for name, estimate in row.numbers.items()},
                        "samples": list(row.samples),
                    }
                    for row in each.rows
                ],
            }
            for each in comparison.contenders
        ],
    }


def _page(comparison: Comparison, drawn: list[Drawn], command: str) -> str:
    made = json.dumps({**comparison.made, **comparison.marks}, indent=1)
    return PAGE.format(
        title=html.escape(title(comparison)),
        advice=html.escape(advice(comparison)),
        table=_table(comparison),
        notes="".join(f"<li>{html.escape(note)}</li>" for note in NOTES),
        sections="".join(_section(each, drawn) for each in sections(comparison)),
        command=html.escape(command),
        made=html.escape(made),
    )


def _table(comparison: Comparison) -> str:
    found = table(comparison)
    head = "".join(f"<th>{html.escape(name)}</th>" for name in found.head)
    rows = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in found.rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _section(section: Section, drawn: list[Drawn]) -> str:
    """A task's figures, and its numbers folded away below them."""
    figures = "".join(_figure(each) for each in drawn if each.section == section.name)
    head = "".join(f"<th>{html.escape(name)}</th>" for name in section.head)
    rows = "".join(_row(*row) for row in section.rows)
    table = f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'
    about = f'<p class="notes">{html.escape(section.about)}</p>'
    return f"<h2>{html.escape(section.name)}</h2>{about}{figures}<details><summary>Numbers</summary>{table}</details>"


def _row(line: str, *cells: str) -> str:
    shown = "".join(f"<td>{html.escape(cell)}</td>" for cell in cells)
    return f'<tr><th scope="row">{html.escape(line)}</th>{shown}</tr>'


def _figure(drawn: Drawn) -> str:
    caption = html.escape(drawn.caption)
    files = " ".join(f'<a href="{drawn.name}.{kind}">{kind.upper()}</a>' for kind in ("png", "svg", "csv"))
    return f'<figure><img src="{embedded(drawn)}" alt="{caption}"><figcaption>{caption} {files}</figcaption></figure>'
