"""The claims of the sources: a table with a row for each, a page for each, and a page that sorts and filters.

Everything follows from what the studies left in results/ and from bounds.json.

python -m studies.pages           write the pages
python -m studies.pages --check   fail if a page is not what the records say
python -m studies.pages --draw    draw a picture of each claim's figures beside its page; pictures are not kept
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from studies.catalog import MODELS, RESULTS, Study, by_name, judged
from studies.claims import AGREES, BY_FIGURES, DISAGREES, KINDS, Claim, JudgedClaim
from studies.compositions import compositions_page
from studies.frozen import CHANGES, frozen
from studies.needs import one_line_if_missing
from studies.sortable import Cell, sortable
from studies.tables import TABLES
from studies.unmeasured import UNMEASURED
from tools.generated_part import has_part, with_part
from tools.markdown_table import table_of

LENGTHS = 10  # up to here the points of a curve are lengths, which a table can show
Of = tuple[Study, JudgedClaim]


def false_findings() -> tuple[int, float, list[str]]:
    """How many verdicts figures decide, which share of them is false at most, and which a stricter rule would drop.

    The share is Benjamini's and Hochberg's: of m claims p m / r, with the largest chance p among the r decided ones.
    At 5 % the rule keeps the r-th smallest chance as long as it is at most r / m of 5 %.
    """
    every = sorted(
        (one.chance, f"{study.name}/{one.claim.name}", one.word)
        for study, one in judged()
        if one.word in BY_FIGURES and one.comparisons
    )
    decided = [(rank, *row) for rank, row in enumerate(every, 1) if row[2] in (AGREES, DISAGREES)]
    share = max((chance * len(every) / rank for rank, chance, *_ in decided), default=0.0)
    kept = max((rank for rank, (chance, *_) in enumerate(every, 1) if chance <= 0.05 * rank / len(every)), default=0)
    return len(decided), share, [name for rank, _, name, _ in decided if rank > kept]


def summary() -> str:
    """How many claims have which verdict, and what chance may have decided."""
    words = Counter(one.word for _, one in judged())
    counts = ", ".join(f"{words[kind]} {kind}" for kind in KINDS)
    decided, share, dropped = false_findings()
    names = f" A rule that keeps it at 5 % would leave these undecided: {', '.join(dropped)}." if dropped else ""
    unique = len(list(by_name()))
    return (
        f"{unique} claims, of which some are judged on several models: {len(judged())} verdicts, {counts}. "
        f"{len(UNMEASURED)} more have none. Of the {decided} verdicts that figures decide, {share:.1%} are expected to "
        f"be false at most (Benjamini and Hochberg).{names} {over_halves()}"
    )


def over_halves() -> str:
    """Whether verdicts on the last tokens are those on the last half of the texts."""
    every = [(f"{study.name}/{one.claim.name}", one, one.last_half) for study, one in judged() if one.last_half]
    others = [f"{name} ({one.word}; there {half.word})" for name, one, half in every if half and one.word != half.word]
    told = f"{len(others)} are others: {', '.join(others)}." if others else "all are the same."
    return f"{len(every)} verdicts on losses of the last tokens were judged over the last half of the texts too: {told}"


def claims_table() -> str:
    """A row for each claim, with the figures and the verdict of each model."""
    rows = [[_link(of), of[0][1].claim.source, of[0][1].claim.theirs, *_cells(of)] for _, of in by_name()]
    return table_of(["claim", "source", "its figures", *_models()], rows)


def _models() -> list[str]:
    """Those that any claim was judged on."""
    judged_on = {study.model for study, _ in judged()}
    return [model for model in MODELS if model in judged_on]


def _link(of: Sequence[Of], folder: str = "claims/") -> str:
    claim = _fullest(of)
    return f"[{claim.text}]({folder}{claim.name}.md)"


def _fullest(of: Sequence[Of]) -> Claim:
    """As it is worded for the model that most of it was compared on."""
    return max((one for _, one in of), key=lambda one: len(one.comparisons)).claim


def _cells(of: Sequence[Of]) -> Iterator[str]:
    for model in _models():
        yield "<br>".join(_cell(one) for study, one in of if study.model == model)


def _cell(one: JudgedClaim) -> str:
    figures = f": {'; '.join(one.figures)} {one.unit.name}" if one.comparisons and one.word in BY_FIGURES else ""
    return f"**{one.verdict if one.word in BY_FIGURES else one.word}**{figures}"


def claims_page() -> str:
    """studies/results/claims.md."""
    parts = [
        "# Every claim",
        "One row for each claim of the articles and of the papers behind them, and one column for each model, real "
        "ones first. Figures are as measured: `1.810 against 1.680, plus 0.020` says that the first number has to be "
        "above the second plus 0.020, a bound. [claims.html](claims.html) is the same as a page that sorts and "
        "filters; [claims.json](claims.json) has every number. The rules of judging are in [README.md](README.md).",
        summary(),
        claims_table(),
        "## Without a verdict",
        table_of(["claim", "source", "its figures", "why, or where its figures are"], UNMEASURED),
    ]
    return "\n\n".join(parts) + "\n"


def claim_page(name: str, of: Sequence[Of]) -> str:
    """One claim: on each model its verdict, its figures and the command."""
    claim = _fullest(of)
    parts = [f"# {claim.text}", f"Source: {claim.source}. {_theirs(claim.theirs)}"]
    for study, one in of:
        parts += _section(study, one, heading=len(of) > 1)
    return "\n\n".join(parts) + "\n"


def _section(study: Study, one: JudgedClaim, *, heading: bool) -> Iterator[str]:
    if heading:
        yield f"## {study.model}: {one.claim.text}"
    drawn = "" if one.drawn.startswith("one ") or one.drawn in study.words else f" ({one.drawn})"
    yield f"Verdict: **{one.verdict}**, from {study.words}{drawn}."
    if one.claim.note:
        yield one.claim.note
    if one.comparisons:
        yield f"The first has to be above the second{_bound(one)}, in {one.unit.name}:"
        yield _comparisons(one)
    if one.last_half:
        yield f"Over the last half of each text, not over its last tokens alone: **{one.last_half.verdict}**."
        yield _comparisons(one.last_half)
    if one.curves:
        first, second = one.axes
        yield f"{second[0].upper()}{second[1:]}, by {first}, with 95 % intervals:"
        yield _curves(one)
    yield f"Command ({study.time}{_extra(study)}): `{study.command}`. {study.anew}".strip()
    yield f"{_frozen(study, one)} The figures are in `{study.place.relative_to(RESULTS.parents[1])}`."


def _extra(study: Study) -> str:
    return f", with `pip install 'ropewalk[{study.extra}]'`" if study.extra else ""


def _bound(one: JudgedClaim) -> str:
    bound = 0 if any(compared.right is None for compared in one.comparisons) else one.claim.bound
    return f" {'plus' if bound > 0 else 'less'} {one.unit.number(abs(bound))}" if bound else ""


def _frozen(study: Study, one: JudgedClaim) -> str:
    entry = frozen()[f"{study.name}/{one.claim.name}"]
    changes = [
        f"Changed on {change['on']}: {change['why']} (before: {_was(change['was'])})."
        for change in entry.get(CHANGES, ())
    ]
    return " ".join([f"The bound was frozen on {entry['since']}, after the first figures were known.", *changes])


def _was(before: dict[str, Any]) -> str:
    return ", ".join(f"{value}" for value in before.values())


def _theirs(figures: str) -> str:
    return f"Its figures: {figures}." if figures else "No figure of its own is noted here."


def _comparisons(one: JudgedClaim) -> str:
    rows = []
    for compared in one.comparisons:
        right = one.unit.number(one.claim.bound if compared.right is None else compared.right)
        other = compared.words[1] or "the bound"
        difference = one.unit.interval(compared.above)
        rows.append([compared.words[0], one.unit.number(compared.left), other, right, difference])
    return table_of(["this", "is", "and this", "is", "margin over the bound [95 %]"], rows)


def _curves(one: JudgedClaim) -> str:
    """Curves as rows, at a few of their points."""
    every = sorted({x for points in one.curves.values() for x, _ in points})
    shown = every if len(every) <= LENGTHS else every[:: len(every) // LENGTHS]
    number = one.unit.number
    rows = []
    for label, points in one.curves.items():
        at = {x: f"{number(point.value)} [{number(point.low)}, {number(point.high)}]" for x, point in points}
        rows.append([label, *(at.get(x, "") for x in shown)])
    return table_of(["", *(f"{x:g}" for x in shown)], rows)


def claims_json() -> str:
    """Every number of every claim."""
    studies = {study.name: study for study, _ in judged()}
    rows = [{"study": study.name, "model": study.model, **one.record} for study, one in judged()]
    commands = {name: {"command": study.command, "time": study.time} for name, study in studies.items()}
    return json.dumps({"studies": commands, "claims": rows}, ensure_ascii=False, separators=(",", ":")) + "\n"


def claims_html() -> str:
    """studies/results/claims.html."""
    rows: list[list[Cell]] = []
    for study, one in judged():
        figures = f"{'; '.join(one.figures)} {one.unit.name}" if one.comparisons else ""
        rows.append([
            (one.claim.text, f"claims/{one.claim.name}.md"), one.claim.source, one.claim.theirs, study.model,
            one.verdict,
            figures, study.command, study.time, study.extra or "none",
        ])  # fmt: skip
    heads = ["claim", "source", "its figures", "model", "verdict", "ours", "command", "time", "extra"]
    return sortable("Claims on length extrapolation, judged", heads, rows, filters=("model", "verdict", "source"))


def results_page() -> str:
    """studies/results/README.md with its tables."""
    page = with_part((RESULTS / "README.md").read_text("utf-8"), "claims", summary())
    for name, table in TABLES.items():
        if has_part(page, name):
            page = with_part(page, name, table(RESULTS))
    return page


def pages() -> dict[Path, str]:
    """Every page that follows from the records."""
    return {
        RESULTS / "README.md": results_page(),
        RESULTS / "claims.md": claims_page(),
        RESULTS / "claims.html": claims_html(),
        RESULTS / "claims.json": claims_json(),
        **{RESULTS / "claims" / f"{name}.md": claim_page(name, of) for name, of in by_name()},
        RESULTS / "compositions" / "README.md": compositions_page(),
    }


def main() -> None:
    """Write, check or draw."""
    if "--draw" in sys.argv:
        with one_line_if_missing():
            from studies.claim_pictures import draw
        for study, one in judged():
            if one.curves:
                draw(one, RESULTS / "claims" / f"{study.name}-{one.claim.name}.png")
        return
    every = pages()
    left = set((RESULTS / "claims").glob("*.md")) - set(every)
    if "--check" in sys.argv:
        stale = [path.name for path, text in every.items() if not path.exists() or path.read_text("utf-8") != text]
        if stale or left:
            names = ", ".join([*stale, *sorted(path.name for path in left)])
            sys.exit(f"{names} must be what the records say; run python -m studies.pages")
        return
    for path, text in every.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, "utf-8")
    for path in left:
        path.unlink()


if __name__ == "__main__":
    main()
