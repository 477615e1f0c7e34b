"""What a finding is: sentences with figures, verdicts that follow from intervals, and a picture as data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ropewalk.measure.metrics.intervals import Estimate

from studies.findings.picture import Panel

AGREES = "agrees"
DISAGREES = "disagrees at this size"
UNDECIDED = "undecided"
NOT_HERE = "not testable here"
BY_CONSTRUCTION = "true by construction"
ERROR = "error of the article"
NO_GAIN = 0.0005  # a share; not 0, since rounding alone moves a token
CHINESE = {
    AGREES: "一致",
    DISAGREES: "在此规模上不一致",
    UNDECIDED: "未定",
    NOT_HERE: "此处无法检验",
    BY_CONSTRUCTION: "按定义成立",
    ERROR: "原文有误",
}


class Verdict(NamedTuple):
    """One of the six kinds, and what it is on where a finding has several."""

    kind: str
    on: str = ""
    on_chinese: str = ""

    def __str__(self) -> str:
        """As it stands in a table."""
        return f"{self.on}: {self.kind}" if self.on else self.kind

    @property
    def chinese(self) -> str:
        """As it stands in the Chinese table."""
        return f"{self.on_chinese}：{CHINESE[self.kind]}" if self.on else CHINESE[self.kind]


def kind_of(above: Sequence[Estimate]) -> str:
    """The verdict on a claim that each of these is above 0: its whole interval, or wholly below."""
    if all(one.low > 0 for one in above):
        return AGREES
    return DISAGREES if any(one.high < 0 for one in above) else UNDECIDED


def kind_of_gains(gains: Sequence[Estimate]) -> str:
    """The verdict on a claim that each of these shares is a gain. One that is shown as 0.0 points is none."""
    return DISAGREES if all(one.high < NO_GAIN for one in gains) else kind_of(gains)


class Words(NamedTuple):
    """A finding in one language; in Chinese the effect and the text are one."""

    title: str
    effect: str  # its figures, as the table has them
    text: str
    models: str


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A sentence that holds, what it rests on, and a picture."""

    number: int
    name: str  # of its picture
    verdicts: Sequence[Verdict]
    english: Words
    chinese: Words
    claims: Sequence[str]  # study and name of the claims that it rests on
    panels: Sequence[Panel]

    @property
    def label(self) -> str:
        """F1, F2, ..."""
        return f"F{self.number}"

    @property
    def picture(self) -> str:
        """The file of its picture."""
        return f"f{self.number:02d}-{self.name}.png"


def minus(one: Estimate) -> Estimate:
    """The other way round."""
    return Estimate(-one.value, -one.high, -one.low, one.of)


def nats(one: Estimate, digits: int = 2) -> str:
    """A loss, or by how much one is above another, with its interval."""
    return _interval(one, digits, "")


def nat(one: Estimate, digits: int = 2) -> str:
    """A loss without its interval, where the sentence has that of a difference."""
    return f"{one.value:.{digits}f}"


def more(one: Estimate, digits: int = 2) -> str:
    """A difference with its interval and its signs."""
    return _interval(one, digits, "+")


def percent(one: Estimate, digits: int = 1) -> str:
    """A share with its interval."""
    value, low, high = (f"{100 * number:.{digits}f}" for number in one[:3])
    return f"{value} % [{low}, {high}]"


def share_only(one: Estimate, digits: int = 1) -> str:
    """A share without its interval."""
    return f"{100 * one.value:.{digits}f} %"


def points(one: Estimate, digits: int = 1) -> str:
    """A difference of shares with its interval and its signs, in points of a hundred."""
    return _interval(_hundredfold(one), digits, "+")


def by_points(one: Estimate, digits: int = 1) -> str:
    """The same without signs, where a word has them: so many points above."""
    return _interval(_hundredfold(one), digits, "")


def _hundredfold(one: Estimate) -> Estimate:
    return Estimate(100 * one.value, 100 * one.low, 100 * one.high, one.of)


def _interval(one: Estimate, digits: int, sign: str) -> str:
    value, low, high = (_number(number, digits, sign) for number in one[:3])
    return f"{value} [{low}, {high}]"


def _number(number: float, digits: int, sign: str) -> str:
    """With its sign, but none of what is written as zero."""
    rounded = round(number, digits)
    return f"{rounded:{sign}.{digits}f}" if rounded else f"{0:.{digits}f}"
