"""The study as a paper: `python -m studies.paper` writes studies/results/study.pdf from the findings and pictures.

python -m studies.paper           write it; needs `pip install -r studies/requirements.txt -c constraints.txt`
python -m studies.paper --check   fail if the paper is not of the sentences and pictures of today

Its sentences are those of studies/results/findings.md: both are made of the same ones.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from studies.findings import prose
from studies.findings.errors import errors
from studies.findings.finding import Finding
from studies.findings.listing import findings, measured, picture
from studies.findings.measured import RESULTS
from studies.findings.page import PICTURES

PAPER = RESULTS / "study.pdf"
PAGES = 12  # at most
WIDTH = "92%"  # of a picture: two findings to a page, and no letter of a picture below seven points
MARK = re.compile(r"drawn from ([0-9a-f]{16})")
SPECIAL = re.compile(r"([\\#$*_`@<>\[\]~=/+-])")
SPAN = re.compile(r"`([^`]+)`|\*\*([^*]+)\*\*|\*([^*]+)\*")
MINUS = re.compile(r"(?<![\w.])-(?=\d)")
STYLE = """
#set page(paper: "a4", margin: (x: 19mm, top: 17mm, bottom: 18mm), numbering: "1")
#set text(font: "Libertinus Serif", size: 9.6pt, lang: "en", hyphenate: true)
#set par(justify: true, leading: 0.52em, spacing: 0.78em)
#show raw: set text(font: "DejaVu Sans Mono", size: 7.6pt)
#show heading.where(level: 1): set text(size: 12pt)
#show heading.where(level: 2): set text(size: 10.2pt)
#show heading: set block(above: 1.1em, below: 0.55em)
#set table.cell(breakable: false)
#set table(stroke: none, inset: (x: 3.5pt, y: 3pt), align: left + top)
#show table.cell.where(y: 0): strong
#show table: set text(size: 8.2pt, hyphenate: true)
#show table: set par(justify: false, leading: 0.42em)
"""


def source() -> str:
    """The paper in Typst."""
    parts = [
        f'#align(center)[#text(size: 17pt, weight: "bold")[{_set(prose.TITLE)}]\n\n'
        f"#text(size: 10pt)[{_set('The studies of Ropewalk')}]]",
        _head(1, "Question"),
        _set(prose.QUESTION),
        _head(1, "What holds on a real model"),
        _set("SmolLM2-135M-Instruct was trained on 8,192 tokens. It reads 16k and 32k without further training:"),
        "\n".join(f"- {_set(one)}" for one in prose.real_models(measured())),
        _head(1, "Models"),
        _set(prose.MODELS),
        _head(1, "Methods of measuring"),
        *(_set(one) for one in (*prose.MEASURES, prose.VERDICTS)),
        "#pagebreak(weak: true)",
        _head(1, "The findings"),
        _table(
            ("", "finding", "figures [95 %]", "verdict"),
            [(one.label, one.english.title, one.english.effect, _kinds(one)) for one in findings()],
            "(auto, 3.1fr, 7fr, 2.5fr)",
        ),
        *(_section(one) for one in findings()),
        _head(1, "Errors found in the articles"),
        _table(
            ("what an article says", "what the records say", "verdict"),
            [(one.said, one.is_so, f"{one.verdict}") for one in errors(measured())],
            "(4fr, 5fr, 1.8fr)",
        ),
        _head(1, "Limits"),
        "\n".join(f"- {_set(one)}" for one in prose.limits(measured())),
        _head(1, "How to repeat it"),
        _set(prose.REPEAT),
    ]
    return f"{STYLE}\n" + _together(parts) + "\n"


def mark() -> str:
    """What the paper is drawn from, in short: its sentences, and what its pictures are drawn from."""
    drawn = source() + "".join(picture(one).mark for one in findings())
    return hashlib.sha256(drawn.encode()).hexdigest()[:16]


def mark_of(place: Path) -> str:
    """What a paper says that it is drawn from; nothing where there is none."""
    found = MARK.search(place.read_bytes().decode("latin-1")) if place.is_file() else None
    return found[1] if found else ""


def write(place: Path = PAPER) -> None:
    """Compile it: Typst, a wheel without system packages, has its own letters."""
    import typst  # of the studies alone: only writing needs it

    named = f'#set document(title: "{prose.TITLE}", keywords: ("drawn from {mark()}",), date: none)\n'
    with TemporaryDirectory(dir=RESULTS) as folder:
        text = Path(folder) / "study.typ"
        text.write_text(named + source(), "utf-8")
        typst.compile(str(text), output=str(place), root=str(RESULTS), ignore_system_fonts=True)


def _section(one: Finding) -> str:
    """The finding, what it is on, its sentences and its picture."""
    parts = [
        _head(2, f"{one.label}. {one.english.title}"),
        _set(f"*{_kinds(one)}.* On {one.english.models}. {one.english.text}"),
        f'#align(center)[#image("/{PICTURES.name}/{one.picture}", width: {WIDTH})]',
    ]
    return f"#block(breakable: false)[\n{_together(parts)}\n]"


def _together(parts: Sequence[str]) -> str:
    return "\n\n".join(parts)


def _kinds(one: Finding) -> str:
    return "; ".join(str(verdict) for verdict in one.verdicts)


def _head(level: int, words: str) -> str:
    return f"{'=' * level} {_set(words)}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], columns: str) -> str:
    line = "table.hline(stroke: 0.3pt + gray)"
    cells = "\n".join(", ".join([*(f"[{_set(cell)}]" for cell in row), line]) + "," for row in rows)
    heads = ", ".join(f"[{_set(cell)}]" for cell in head)
    return f"#table(columns: {columns}, table.header({heads}), table.hline(stroke: 0.7pt),\n{cells}\n)"


def _set(words: str) -> str:
    """Words of Markdown in Typst: code, bold and italic; everything else is what it is."""
    parts, at = [], 0
    for found in SPAN.finditer(words):
        code, bold, italic = found.groups()
        parts.append(_plain(words[at : found.start()]))
        if code:
            parts.append(f'#raw("{code}")')
        else:
            parts.append(f"#strong[{_set(bold)}]" if bold else f"#emph[{_set(italic)}]")
        at = found.end()
    return "".join([*parts, _plain(words[at:])])


def _plain(words: str) -> str:
    escaped = SPECIAL.sub(r"\\\1", MINUS.sub("−", words))
    return escaped.replace(" %", "~%")


def main() -> None:
    """Write or check."""
    if "--check" not in sys.argv:
        write()
    elif mark_of(PAPER) != mark():
        sys.exit(f"{PAPER.name} must be what the records say; run python -m studies.paper")


if __name__ == "__main__":
    main()
