"""All findings, in their order."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from studies.findings import far_text, further, others, ranking, schedules, trained
from studies.findings.finding import Finding
from studies.findings.measured import Measured
from studies.findings.picture import Picture

GROUPS: tuple[Callable[[Measured], list[Finding]], ...] = tuple(
    group.findings for group in (far_text, schedules, ranking, further, trained, others)
)


@cache
def measured() -> Measured:
    """The records of this checkout."""
    return Measured()


@cache
def findings() -> tuple[Finding, ...]:
    """F1 to F15."""
    return tuple(one for group in GROUPS for one in group(measured()))


def picture(one: Finding) -> Picture:
    """As it is drawn."""
    return Picture(one.english.title, one.panels)
