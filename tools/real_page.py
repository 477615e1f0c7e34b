"""The tables and the picture of docs/results/real, from the records beside it; `make real` makes the records."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from generated_part import with_part
from markdown_table import table_of

from ropewalk.measure.metrics.intervals import Estimate, difference
from ropewalk.methods.spec import Json

ROOT = Path(__file__).resolve().parents[1]
PLACE, STUDIES = ROOT / "docs" / "results" / "real", ROOT / "studies" / "results"
MODEL = "SmolLM2-135M-Instruct"
BASE, CONTEXT, REPEATED = "bare", "context", "repetition"
BASE_MODEL, ALONE = "base model", "base model, last {trained} alone"
BEST = "self_extend+log_n"  # of the lines that use all of the text
HEAD = (
    *("extension", "loss above the last {trained} alone, at {half} [95 %]", "at {longest} [95 %]"),
    *("far numbers found at {half}", "at {longest}", "passage copied", "repeated text", "short damage"),
)


class RealRow(NamedTuple):
    """One line at every length: the loss of each text, and what was found and copied."""

    line: str
    losses: dict[int, list[float]]
    far: dict[int, float]  # shares of the numbers that are farther back than the trained length
    copied: dict[int, float]
    repeated: float | None  # None where it was not measured
    harm: Estimate


def record(name: str = MODEL) -> Json:
    """A record that `make real` wrote."""
    content: Json = json.loads(gzip.decompress((PLACE / f"{name}.json.gz").read_bytes()))
    return content


def rows(read: Json) -> list[RealRow]:
    """Every line of a record, the base model first."""
    of_base = {
        sample["project"]: sample for sample in _row(read["candidates"][0], CONTEXT, read["lengths"][0])["samples"]
    }
    return [_real_row(one, read, of_base) for one in read["candidates"]]


def _real_row(one: Json, read: Json, of_base: dict[str, Any]) -> RealRow:
    found = {length: _row(one, CONTEXT, length) for length in read["lengths"]}
    short = found[read["lengths"][0]]["samples"]
    harm = difference(
        [sample["whole_loss"] for sample in short], [of_base[sample["project"]]["whole_loss"] for sample in short]
    )
    numbers = {length: row["numbers"] for length, row in found.items()}
    has_repeated = any(row["task"] == REPEATED for row in one["rows"])
    return RealRow(
        line=one["line"],
        losses={length: [sample["loss"] for sample in row["samples"]] for length, row in found.items()},
        far={length: number["far"]["value"] for length, number in numbers.items() if "far" in number},
        copied={length: number["copied"]["value"] for length, number in numbers.items()},
        repeated=_row(one, REPEATED, read["lengths"][-1])["numbers"]["accuracy"]["value"] if has_repeated else None,
        harm=harm,
    )


def _row(one: Json, task: str, length: int) -> Json:
    rows: list[Json] = one["rows"]
    return next(row for row in rows if (row["task"], row["length"]) == (task, length))


def over(row: RealRow, others: Sequence[float], length: int, projects: Sequence[str]) -> Estimate:
    """By how much a line's losses at a length are above other losses of the same tokens."""
    return difference(row.losses[length], others, groups=projects)


def table(read: Json) -> str:
    """All figures."""
    trained, *_, half, longest = read["lengths"]
    names = {"trained": _k(trained), "half": _k(half), "longest": _k(longest)}
    return table_of([cell.format(**names) for cell in HEAD], lines_of(read))


def lines_of(read: Json, written: Callable[[Estimate], str] | None = None) -> list[list[str]]:
    """All lines, the lowest loss at the longest length first; between them the base model on its last tokens alone."""
    trained, *_, half, longest = read["lengths"]
    base, *others = rows(read)
    alone, write = base.losses[trained], written or _interval

    def above(row: RealRow) -> float:
        return over(row, alone, longest, read["projects"]).value

    def cells(row: RealRow) -> list[str]:
        return [
            BASE_MODEL if row is base else f"`{row.line}`",
            *(write(over(row, alone, length, read["projects"])) for length in (half, longest)),
            *(f"{row.far[length]:.0%}" for length in (half, longest)),
            f"{row.copied[longest]:.0%}",
            "-" if row.repeated is None else f"{row.repeated:.0%}",
            "-" if row is base else write(row.harm),
        ]

    own = [ALONE.format(trained=_k(trained)), "0", "0", "0%", "0%", "-", "-", "-"]
    every = sorted((base, *others), key=above)
    return [*(cells(row) for row in every if above(row) < 0), own, *(cells(row) for row in every if above(row) >= 0)]


def few_texts() -> str:
    """Lines that were read by a processor: fewer texts, of twice the trained length alone."""
    read = record(f"{MODEL}-16k")
    trained, length = read["lengths"]
    base, *others = rows(read)

    def cells(row: RealRow) -> list[str]:
        shares = [f"{share[length]:.0%}" for share in (row.far, row.copied)]
        return [_interval(over(row, base.losses[trained], length, read["projects"])), *shares]

    lines = [[f"`{row.line}`", *cells(row), _interval(row.harm)] for row in others]
    head = ("extension", f"loss above the last {_k(trained)} alone [95 %]", "far numbers found", "passage copied")
    return table_of([*head, "short damage"], [*lines, [BASE_MODEL, *cells(base), "-"]])


def against(read: Json, rival: str = BEST) -> str:
    """Every line's loss minus that of one line, on the same texts."""
    every = {row.line: row for row in rows(read)}
    lengths = read["lengths"][1:]
    lines = [
        [
            f"`{line}`",
            *(_interval(over(row, every[rival].losses[length], length, read["projects"])) for length in lengths),
        ]
        for line, row in every.items()
        if line not in (rival, BASE)
    ]
    return table_of(["extension", *(f"minus `{rival}` at {_k(length)} [95 %]" for length in lengths)], lines)


FRONT = {  # heads of the front pages' table, and words in it: of the base model, and where an interval has 0
    "README.md": (
        "extension",
        "loss at 32k",
        "far numbers found at 16k",
        "at 32k",
        "harm to texts of 8k",
        "unchanged, its last 8k alone",
        "unchanged",
        "no difference found",
    ),
    "README.zh.md": (
        "扩展",
        "32k 处的损失",
        "16k 处找到的远处数字",
        "32k 处",
        "对 8k 文本的损害",
        "原模型，仅读最后 8k",
        "原模型",
        "未见差异",
    ),
}


def front_table(name: str) -> str:
    """What a front page shows of it."""
    *head, alone, base, no_difference = FRONT[name]

    def written(one: Estimate) -> str:
        return f"{one.value:+.2f}" if one.clear_of(0) else no_difference

    kept = (0, 2, 3, 4, 7)
    lines = [[cells[place] for place in kept] for cells in lines_of(record(), written)]
    words = {ALONE.format(trained="8k"): alone, BASE_MODEL: base}
    return table_of(head, [[words.get(line, line), *cells] for line, *cells in lines])


def tiers() -> str:
    """The loss above that of the last trained length alone, on three models: a real one, and two of ours."""
    read = record()
    base, *others = rows(read)
    alone, longest = base.losses[read["lengths"][0]], read["lengths"][-1]
    real = {row.line: over(row, alone, longest, read["projects"]) for row in others}
    larger = json.loads((STUDIES / "larger" / "results.json").read_text("utf-8"))["candidates"]
    middle = {one["line"]: Estimate(**one["change"]) for one in larger if one["line"] != BASE}
    demo = json.loads((STUDIES / "demo" / "demo.json").read_text("utf-8"))["lines"]
    texts = demo["alone"]["losses"]["2048"]
    small = {
        line: difference(one["losses"]["2048"], texts) for line, one in demo.items() if line not in (BASE, "alone")
    }
    lines = [
        [f"`{line}`", *(_interval(tier[line]) if line in tier else "-" for tier in (real, middle, small))]
        for line in dict.fromkeys([*real, *middle, *small])
        if sum(line in tier for tier in (real, middle, small)) > 1
    ]
    head = ("extension", "SmolLM2, 135 M, 8k to 32k", "31 M, 512 to 4k", "the carried model, 7 M, 512 to 2k")
    return table_of(head, lines)


def _k(length: int) -> str:
    return f"{length // 1024}k"


def _interval(estimate: Estimate) -> str:
    return f"{estimate.value:+.3f} [{estimate.low:+.3f}, {estimate.high:+.3f}]"


def real_page() -> str:
    """The page with its tables."""
    read = record()
    page = with_part((PLACE / "README.md").read_text("utf-8"), "table", table(read))
    page = with_part(page, "tiers", tiers())
    page = with_part(page, "few texts", few_texts())
    return with_part(page, "against", against(read))


def draw_real(path: Path = PLACE / "real.png") -> None:
    """What is gained and lost by length: the loss above that of the last trained length alone, and what is found."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    read = record()
    every, lengths = rows(read)[1:], read["lengths"][1:]
    alone = rows(read)[0].losses[read["lengths"][0]]
    figure, panels = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
    marks = "osD^vP"
    for place, row in enumerate(every):
        found = [over(row, alone, length, read["projects"]) for length in lengths]
        errors = [[one.value - one.low for one in found], [one.high - one.value for one in found]]
        at = [n + (place - len(every) / 2) * 0.05 for n in range(len(lengths))]
        style = {"marker": marks[place % len(marks)], "color": f"C{place}", "capsize": 3, "linewidth": 1.4}
        panels[0].errorbar(at, [one.value for one in found], errors, label=row.line, **style)
        panels[1].plot(
            range(len(lengths)), [row.far[length] for length in lengths], marker=style["marker"], color=f"C{place}"
        )
    panels[0].axhline(0, color="grey", linewidth=0.8)
    panels[0].set(ylabel="nats a token", title="loss of the same tokens, minus the last 8k alone")
    panels[1].set(ylabel="share", title="numbers found that are farther back than 8k", ylim=(-0.03, 1))
    for panel in panels:
        panel.set_xticks(range(len(lengths)), [_k(length) for length in lengths])
        panel.set_xlabel("tokens of text")
        panel.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=3, frameon=False)
    figure.savefig(path, dpi=110)
    plt.close(figure)
