"""The claims of the sources: a summary with every verdict, and a page and a picture for each claim.

They follow from the records that the commands below leave in results/.

python -m studies.pages           write the pages and draw the pictures
python -m studies.pages --check   fail if a page is not what the records say
"""

from __future__ import annotations

import io
import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from PIL import Image

from studies.compositions import compositions_page
from studies.tables import TABLES
from studies.unmeasured import UNMEASURED
from tools.generated_part import has_part, with_part
from tools.markdown_table import table_of

RESULTS = Path(__file__).resolve().parent / "results"
LINES = ["-", "--", "-.", ":"]
COLOURS = 160  # of a picture; with few, lines that are thin get the colour of others
WIDE = 8  # so many times the smallest place is drawn on a scale of powers
LENGTHS = 10  # up to here the points of a curve are lengths, which a table can show
Record = Mapping[str, Any]


TABLE = (
    "In this folder it measures what is missing there, and judges all of it. A new measurement needs another folder,"
    " or this one without its `measured`, `models` and `base.json`. It trains on the texts of the installed packages."
)
TEXTS = "`python` is the text of the installed packages: with others the figures differ, within the intervals or not."


class Study(NamedTuple):
    """Results with claims: a file below docs/results, what they are of, and the command that makes them."""

    name: str
    records: str
    models: str
    command: str
    anew: str  # what a new measurement needs besides


STUDIES = (
    Study(
        "zoo",
        "zoo/zoo.json",
        "small models, trained on 64 tokens",
        "python -m studies zoo --out studies/results/zoo",
        TABLE,
    ),
    Study(
        "tuned-zoo",
        "tuned-zoo/tuned.json",
        "a small model, trained on 64 tokens and then on 512",
        "python -m studies tuned --out studies/results/tuned-zoo --set model=studies/results/zoo/models/rope-0/model "
        "--set methods=none,pi,ntk,yarn,abf,dynamic,drope,short,dynamic_yarn,yarn_4x,xpos_abf,abf_half,abf_short",
        f"{TABLE} The base model is one of the zoo, and is there.",
    ),
    Study(
        "tuned-default",
        "tuned-default/tuned.json",
        "the model that Ropewalk carries, trained on 512 tokens and then on 4,096",
        "python -m studies tuned --out studies/results/tuned-default --set rows=1 --set bf16=true",
        TABLE,
    ),
    Study(
        "tuned-far",
        "tuned-far/tuned.json",
        "a small model, trained on 64 tokens and then on 1,024",
        "python -m studies tuned --out studies/results/tuned-far --set model=studies/results/zoo/models/rope-0/model "
        "--set longest=32 --set rows=1 --set log_every=5 "
        "--set methods=base,pi_half,ntk_half,yarn_half,yarn_half_dynamic,yarn_beyond",
        f"{TABLE} The base model is one of the zoo, and is there.",
    ),
    Study(
        "untrained",
        "untrained/untrained.json",
        "the model that Ropewalk carries, trained on 512 tokens and read without training",
        "ropewalk compare default pi ntk by_parts yarn by_parts+yarn_temperature:factor=8,coefficient=0.05 "
        "by_parts+yarn_temperature:factor=8,coefficient=0.2 log_n yarn+log_n rerope rerope+log_n self_extend "
        "self_extend+log_n window streaming streaming:n_sink=1 streaming:n_sink=8 lm_infinite "
        "--lengths 512,1k,2k,4k --samples 24 --corpus python --tasks context --out FOLDER && "
        "python -m studies.untrained FOLDER && "
        "ropewalk compare default long_reach rerope+log_n yarn window --lengths 512,8k --samples 24 --corpus python "
        "--tasks context --out FAR && python -m studies.untrained far FAR",
        TEXTS,
    ),
    Study(
        "contexts",
        "contexts/contexts.json",
        "the model that Ropewalk carries, asked for passkeys in one of several texts of 512 tokens",
        "ropewalk compare default rope --lengths 1k,2k,4k,8k --samples 24 --corpus python --out FOLDER --tasks "
        "many_contexts:pooling=mean,beta=0.25,many_contexts:pooling=max,beta=0.25,many_contexts:pooling=product,"
        "many_contexts:beta=0,many_contexts:beta=0.25,many_contexts:beta=0.5,many_contexts:beta=1 && "
        "ropewalk compare default rope --lengths 1k,8k --samples 48 --corpus python --out MORE --tasks "
        "many_contexts:beta=0.25 && python -m studies.contexts FOLDER MORE && "
        "ropewalk compare default rope --lengths 8k --samples 48 --corpus python --out BESIDE --tasks "
        "many_contexts:beta=0.25,many_contexts:pooling=retrieved && python -m studies.contexts retrieval BESIDE",
        TEXTS,
    ),
    Study(
        "kv-heads",
        "kv-heads/kv-heads.json",
        "a model of random weights with 16 query heads, 8,192 cached tokens, one CPU thread",
        "python -m studies.kv_heads",
        "Other machines give other ratios.",
    ),
    Study(
        "restricted",
        "restricted/restricted.json",
        "attention over 8,192 random tokens, one CPU thread, and the cache of the model that Ropewalk carries",
        "python -m studies.restricted",
        "Other machines give other ratios.",
    ),
    Study(
        "switches",
        "switches/switches.json",
        "small models, trained on 64 tokens and then on 512",
        "python -m studies zoo --out FOLDER --set methods=longer_from_40,longer_from_80 --set steps=1500 --set "
        "log_every=5 --set texts=4 && python -m studies.switches FOLDER",
        TABLE.split(". ", 1)[1],
    ),
    Study(
        "order",
        "order/order.json",
        "the model that Ropewalk carries, on texts with swapped tokens",
        "python -m studies.order",
        TEXTS,
    ),
    Study(
        "thresholds",
        "thresholds/thresholds.json",
        "the model that Ropewalk carries, under YaRN with other thresholds",
        "python -m studies.thresholds",
        TEXTS,
    ),
    Study(
        "generation",
        "generation/generation.json",
        "the model that Ropewalk carries, which writes after texts of 4,096 tokens",
        "python -m studies.generation",
        TEXTS,
    ),
    Study(
        "computed",
        "computed/computed.json",
        "formulas, computed in float64",
        "python -m studies.computed",
        "Nothing in it was measured or drawn, so intervals have no width.",
    ),
    Study(
        "released",
        "released/released.json",
        "configs of released models, as their makers publish them",
        "python -m studies.released",
        "The record has every value with its page.",
    ),
    Study(
        "sink-positions",
        "sink-positions/sink-positions.json",
        "the model that Ropewalk carries, under attention sinks",
        "python -m studies.sink_positions",
        TEXTS,
    ),
    Study(
        "pieces",
        "pieces/pieces.json",
        "the model that Ropewalk carries, asked for what stands in two texts of 512 tokens",
        "python -m studies.pieces",
        "Its texts are those of Python's standard library.",
    ),
    Study(
        "alibi-reach",
        "alibi-reach/alibi-reach.json",
        "small models with ALiBi, trained on 64 tokens",
        "python -m studies zoo --out FOLDER --set methods=alibi && python -m studies.alibi_reach FOLDER",
        TABLE.split(". ", 1)[1],
    ),
)


def claims(results: Path = RESULTS) -> Iterator[tuple[Study, Record]]:
    """Every claim that was judged, study by study."""
    for study in STUDIES:
        place = results / study.records
        read = json.loads(place.read_text("utf-8")) if place.is_file() else {}
        for record in read.get("claims", []):
            yield study, record


def summary(results: Path = RESULTS) -> str:
    """How many claims have which verdict; a table for each study: sources, figures, verdicts; and the others."""
    judged = list(claims(results))
    verdicts = [record["verdict"] for _, record in judged]
    parts = [f"{_counts(verdicts)} At the end are {len(UNMEASURED)} without a verdict."]
    for study in STUDIES:
        records = [record for one, record in judged if one is study]
        if records:
            parts += [f"### From {study.models}", f"`{study.command}`", _summary_of(study, records)]
    return "\n\n".join([*parts, "### Without a verdict", _without_verdict()])


def _without_verdict() -> str:
    return table_of(["claim", "source", "its figures", "why, or where its figures are"], UNMEASURED)


def _counts(verdicts: Sequence[str]) -> str:
    counts = ", ".join(f"{count} {verdict}" for verdict, count in Counter(sorted(verdicts)).most_common())
    return f"{len(verdicts)} claims: {counts}."


def _summary_of(study: Study, records: Sequence[Record]) -> str:
    rows = []
    for record in records:
        name = f"[{record['claim']}](claims/{page_name(study, record)})"
        ours = f"{'; '.join(record['intervals'])} {record['unit']}" if record["intervals"] else ""
        bound = f"{record['bound']:g}" if record["intervals"] else ""
        rows.append((name, record["source"], record["theirs"], bound, ours, record["verdict"]))
    return table_of(("claim", "source", "its figures", "bound", "ours, minus the bound [95 %]", "verdict"), rows)


def results_page(results: Path = RESULTS) -> str:
    """studies/results/README.md with its tables."""
    page = with_part((results / "README.md").read_text("utf-8"), "claims", summary(results))
    for name, table in TABLES.items():
        if has_part(page, name):
            page = with_part(page, name, table(results))
    return page


def page_name(study: Study, record: Record) -> str:
    """The file of a claim's page."""
    return f"{study.name}-{record['name']}.md"


def claim_pages(results: Path = RESULTS) -> dict[Path, str]:
    """The page of every claim."""
    return {
        results / "claims" / page_name(study, record): claim_page(study, record) for study, record in claims(results)
    }


def claim_page(study: Study, record: Record) -> str:
    """One claim: its verdict, its figures, a picture, the command."""
    parts = [f"# {record['claim']}", f"Source: {record['source']}. {_theirs(record)}"]
    parts.append(f"Verdict: **{record['verdict']}**, from {study.models}.")
    if record.get("note"):
        parts.append(record["note"])
    if record["intervals"]:
        parts += [f"Each of these must be above {record['bound']:g} {record['unit']}:", _sums(record)]
    if record["curves"]:
        picture = page_name(study, record).replace(".md", ".png")
        parts.append(f"![{', '.join(record['axes'])}]({picture})")
        if record["above"]:
            parts.append("On the right are the comparisons above, in their order, with the bound at 0.")
        parts.append(f"{_heading(record)}, with 95 % intervals:")
        parts.append(_table(record))
    parts += [f"The command: `{study.command}`. {study.anew}"]
    parts += [f"What was measured is in [{study.name}](../{study.records})."]
    return "\n\n".join(parts) + "\n"


def _theirs(record: Record) -> str:
    return f"Its figures: {record['theirs']}." if record["theirs"] else "No figure of its own is noted here."


def _sums(record: Record) -> str:
    """What is compared with the bound, and how far above it the figures are."""
    head = "what is compared", f"how far above, {record['unit']} [95 %]"
    return table_of(head, zip(record["sums"], record["intervals"], strict=True))


def _heading(record: Record) -> str:
    first, second = record["axes"]
    return f"{second[0].upper()}{second[1:]}, by {first}"


def _table(record: Record) -> str:
    """The curves as rows, at a few of their points."""
    every = _places(record)
    shown = every if len(every) <= LENGTHS else every[:: len(every) // LENGTHS]
    digits = 1 if record["unit"] == "points" else 3
    rows = []
    for label, points in record["curves"].items():
        at = {x: f"{value:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]" for x, value, low, high in points}
        rows.append([label, *(at.get(x, "") for x in shown)])
    return table_of(["", *(f"{x:g}" for x in shown)], rows)


def draw_claims(results: Path = RESULTS) -> None:
    """A picture for every claim with figures."""
    (results / "claims").mkdir(exist_ok=True)
    for study, record in claims(results):
        if record["curves"]:
            _draw(record, results / "claims" / page_name(study, record).replace(".md", ".png"))


def _draw(record: Record, path: Path) -> None:
    figure, (panel, sums) = plt.subplots(1, 2, figsize=(7.8, 3.2), width_ratios=(4, 1), layout="constrained")
    for nth, (label, points) in enumerate(record["curves"].items()):
        x, value, low, high = zip(*points, strict=True)
        marker = "o" if len(x) == 1 else ""
        (line,) = panel.plot(x, value, marker=marker, label=label, linestyle=LINES[nth % len(LINES)], linewidth=1.6)
        if len(x) == 1:  # which a band would not show
            panel.vlines(x, low, high, color=line.get_color(), alpha=0.4)
        panel.fill_between(x, low, high, color=line.get_color(), alpha=0.2, linewidth=0)
    across, up = record["axes"]
    if all(isinstance(x, int) and x for x in _places(record)) and max(_places(record)) >= WIDE * min(_places(record)):
        panel.set_xscale("log", base=2)
        times = "x" if "trained lengths" in across else ""
        panel.set_xticks(_places(record), [f"{x}{times}" for x in _places(record)], minor=False)
    elif len(_places(record)) <= LENGTHS:
        panel.set_xticks(_places(record))
    panel.set(xlabel=across, ylabel=up)
    panel.legend(frameon=False, fontsize=8)
    panel.spines[["top", "right"]].set_visible(False)
    _draw_sums(sums, record)
    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=90, format="png")
    plt.close(figure)
    Image.open(drawn).convert("RGB").quantize(COLOURS).save(path, optimize=True)


def _draw_sums(panel: Axes, record: Record) -> None:
    """How far each sum is above its bound, in the order of the page's table: differences are surer than their parts."""
    rows = range(len(record["above"]))
    for row, (value, low, high) in zip(rows, record["above"], strict=True):
        panel.plot((low, high), (row, row), color="black", linewidth=1.4)
        panel.plot(value, row, "o", color="black", markersize=4)
    panel.axvline(0, color="grey", linewidth=0.8)
    panel.set_yticks(rows, [str(row + 1) for row in rows])
    panel.set(ylim=(len(rows) - 0.4, -0.6), xlabel="above the bound", ylabel="comparison")
    panel.spines[["top", "right"]].set_visible(False)
    panel.set_visible(bool(rows))


def _places(record: Record) -> Sequence[int]:
    return sorted({point[0] for points in record["curves"].values() for point in points})


def pages() -> dict[Path, str]:
    """Every page that follows from the records."""
    return {
        RESULTS / "README.md": results_page(),
        **claim_pages(),
        RESULTS / "compositions" / "README.md": compositions_page(),
    }


def main() -> None:
    """Write or check."""
    if "--check" in sys.argv:
        stale = [path.name for path, text in pages().items() if not path.exists() or path.read_text("utf-8") != text]
        if stale:
            sys.exit(f"{', '.join(stale)} must be what the records say; run python -m studies.pages")
        return
    for path, text in pages().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, "utf-8")
    draw_claims()


if __name__ == "__main__":
    main()
