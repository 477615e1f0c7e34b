"""The table at the end: figures beside their goals, missed goals marked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from gpu.case import Row
from gpu.record import Results

COLUMNS = ("step", "case", "method", "figure", "value", "goal", "", "ms", "peak MiB")
SHOWN = 300  # characters of a reason


def table(results: Results, steps: Sequence[str], *, dry: bool = False) -> str:
    """All cases of these steps on this device. A dry run's figures are compared with nothing."""
    records = [record for (step, _), record in results.latest().items() if step in steps]
    records.sort(key=lambda record: steps.index(record["step"]))
    lines = [COLUMNS, *(line for record in records for line in _lines(record, dry=dry))]
    widths = [max(len(line[n]) for line in lines) for n in range(len(COLUMNS))]
    shown = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    return "\n".join(["", *shown, "", *_reasons(records), "", *_summary(records, dry=dry)])


def _lines(record: Row, *, dry: bool) -> Iterable[Sequence[str]]:
    head = (record["step"], record["case"])
    if record["status"] != "measured":
        yield (*head, record["status"].upper(), *[""] * 6)
    for row in record["rows"]:
        if "why" in row:
            yield (*head, row["method"], "", "not run", *[""] * 4)
            continue
        figure = row.get("figure", "median")
        goal = f"{'>=' if row.get('better') == 'higher' else '<='} {row['to_reach']}" if "to_reach" in row else ""
        numbers = [str(row.get(name, "")) for name in (figure, "milliseconds", "peak MiB")]
        yield (*head, row["method"], figure, numbers[0], goal, "" if dry else verdict(row), *numbers[1:])


def _reasons(records: Sequence[Row]) -> list[str]:
    """Why cases and methods have no figures."""
    cases = [(f"{one['step']}, {one['case']}", one["why"]) for one in records if one["why"]]
    rows = [
        (f"{one['step']}, {one['case']}, {row['method']}", row["why"])
        for one in records
        for row in one["rows"]
        if "why" in row
    ]
    failures = [
        (f"{one['step']}, {one['case']}", text)
        for one in records
        for row in one["rows"]
        for text in row.get("failures", [])
    ]
    return [f"{name}: {why[:SHOWN]}" for name, why in [*cases, *rows, *failures]]


def verdict(row: Row) -> str:
    """Whether a row reaches its goal; nothing where it has none."""
    if "to_reach" not in row or row.get(row["figure"]) is None:
        return ""
    value, to_reach = row[row["figure"]], row["to_reach"]
    return "met" if (value >= to_reach if row["better"] == "higher" else value <= to_reach) else "MISSED"


def _summary(records: Sequence[Row], *, dry: bool) -> list[str]:
    counts = Counter(record["status"] for record in records)
    cases = f"{len(records)} cases: {', '.join(f'{count} {status}' for status, count in counts.items())}."
    verdicts = [verdict(row) for record in records for row in record["rows"]]
    missed = f"Goals: {verdicts.count('met')} met, {verdicts.count('MISSED')} missed."
    return [cases] if dry else [cases, missed]
