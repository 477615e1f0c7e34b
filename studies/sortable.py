"""A table as a page of its own, which sorts by a column and filters by words: it works when it is sent alone."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

Cell = str | tuple[str, str]  # words, or words with where they lead

STYLE = """
:root { color-scheme: light dark; --line: #8885; --head: #8882; }
body { font: 15px/1.45 system-ui, sans-serif; margin: 1.2rem; }
h1 { font-size: 1.3rem; }
form { display: flex; flex-wrap: wrap; gap: .6rem 1rem; margin: 1rem 0; }
label { display: flex; flex-direction: column; font-size: .8rem; }
input, select { font: inherit; padding: .25rem; max-width: 22rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; }
th, td { border-bottom: 1px solid var(--line); padding: .35rem .6rem; text-align: left; vertical-align: top; }
th { background: var(--head); white-space: nowrap; }
th button { font: inherit; font-weight: 600; background: none; border: 0; padding: 0; cursor: pointer; color: inherit; }
td:first-child { min-width: 22rem; }
td code { font-size: .8rem; display: block; max-width: 26rem; overflow-x: auto; white-space: nowrap; }
"""

# One listener for typing and choosing; a head is a button, so that the keyboard sorts as well.
SCRIPT = """
const body = document.querySelector('tbody'), rows = [...body.rows], form = document.forms[0];
const text = (row, at) => row.cells[at].textContent;
function show() {
  const words = form.words.value.toLowerCase().split(/\\s+/);
  const chosen = [...form.querySelectorAll('select')].filter(one => one.value);
  let seen = 0;
  for (const row of rows) {
    const all = row.textContent.toLowerCase();
    const fits = words.every(word => all.includes(word))
      && chosen.every(one => text(row, one.dataset.at) === one.value);
    row.hidden = !fits;
    seen += fits;
  }
  document.querySelector('#seen').textContent = `${seen} of ${rows.length} rows`;
}
form.addEventListener('input', show);
form.addEventListener('submit', event => event.preventDefault());
document.querySelectorAll('th').forEach((head, at) => head.firstChild.addEventListener('click', () => {
  const down = head.getAttribute('aria-sort') === 'ascending';
  document.querySelectorAll('th').forEach(one => one.removeAttribute('aria-sort'));
  head.setAttribute('aria-sort', down ? 'descending' : 'ascending');
  rows.sort((a, b) => (down ? -1 : 1) * text(a, at).localeCompare(text(b, at), undefined, { numeric: true }));
  body.append(...rows);
}));
show();
"""


def sortable(title: str, heads: Sequence[str], rows: Sequence[Sequence[Cell]], filters: Sequence[str]) -> str:
    """The page; each filter is the name of a column, whose values are offered."""
    chosen = "".join(_select(name, heads.index(name), rows) for name in filters)
    head = "".join(f"<th scope='col'><button type='button'>{escape(name)}</button></th>" for name in heads)
    body = "\n".join(f"<tr>{''.join(map(_cell, row, heads))}</tr>" for row in rows)
    return (
        "<!doctype html>\n<html lang='en'>\n<meta charset='utf-8'>\n"
        "<meta name='viewport' content='width=device-width'>\n"
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n<h1>{escape(title)}</h1>\n"
        f"<form><label>words <input name='words' type='search'></label>{chosen}</form>\n"
        f"<p id='seen' role='status'></p>\n<div class='wide'><table>\n<thead><tr>{head}</tr></thead>\n"
        f"<tbody>\n{body}\n</tbody>\n</table></div>\n"
        f"<script>{SCRIPT}</script>\n</html>\n"
    )


def _select(name: str, at: int, rows: Sequence[Sequence[Cell]]) -> str:
    values = sorted({_words(row[at]) for row in rows})
    options = "".join(f"<option>{escape(value)}</option>" for value in values)
    return f"<label>{escape(name)} <select data-at='{at}'><option value=''>all</option>{options}</select></label>"


def _words(cell: Cell) -> str:
    return cell if isinstance(cell, str) else cell[0]


def _cell(cell: Cell, head: str) -> str:
    words = escape(_words(cell))
    if not isinstance(cell, str):
        return f"<td><a href='{escape(cell[1])}'>{words}</a></td>"
    return f"<td><code>{words}</code></td>" if head == "command" else f"<td>{words}</td>"
