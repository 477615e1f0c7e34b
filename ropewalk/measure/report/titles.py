"""What every report says of itself: its model, corpus, texts and date."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import PurePath
from typing import Any

from ropewalk.measure.report.drawing.names import visible

MOST_NAMED = 3  # extensions that a title names
IN_WORDS = "no one two three four five six seven eight nine ten eleven twelve".split()  # noqa: SIM905


def model_of(made: Mapping[str, Any]) -> str:
    """The model's name; a folder's last part."""
    return visible(str(made.get("model") or "a model"))


def corpus_of(marks: Mapping[str, str]) -> str:
    """The corpus; of a path its last part, which says enough to whoever made the report."""
    source = marks.get("corpus", "")
    kind, colon, place = source.rpartition(":") if not source.startswith("hub:") else ("", "", source)
    return visible(f"{kind}{colon}{PurePath(place).name}" if "/" in place and not source.startswith("hub:") else source)


def date_of(made: Mapping[str, Any]) -> str:
    """The day, as 22 November 2026."""
    when = str(made.get("when", ""))
    try:
        day = datetime.fromisoformat(when)
    except ValueError:
        return when
    return f"{day.day} {day:%B %Y}"


def counted_lines(count: int) -> str:
    """An extension, or several."""
    return f"{count} extension{'s' * (count != 1)}"


def counted(names: Sequence[str], what: str) -> str:
    """A few names, or how many there are."""
    if len(names) > MOST_NAMED:
        return f"{IN_WORDS[len(names)] if len(names) < len(IN_WORDS) else len(names)} {what}s"
    return ", ".join(names[:-1]) + (" and " if len(names) > 1 else "") + "".join(names[-1:])


def texts(count: int) -> str:
    """How many texts."""
    return f"{count} text" + ("s" if count != 1 else "")


def of_projects(projects: Sequence[str], before: str = " of") -> str:
    """Of how many projects texts are; nothing where that is not known."""
    count = len(set(projects))
    return f"{before} {count} project" + ("s" if count != 1 else "") if count else ""
