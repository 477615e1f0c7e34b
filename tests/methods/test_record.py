"""Records: fields that check themselves, and say in words what they must be."""

from dataclasses import dataclass
from typing import Annotated, Literal

import pytest

from ropewalk import InvalidValue
from ropewalk.methods.record import AT_LEAST_ONE, Checked, parameter_rows, parameters


@dataclass(frozen=True, kw_only=True)
class Sample(Checked):
    size: Annotated[int, AT_LEAST_ONE, "how many"]
    share: float = 0.5
    kind: Literal["plain", "fancy"] = "plain"
    maybe: int | None = None
    list: tuple[float, ...] = ()
    flag: bool = False


def test_whole_numbers_become_numbers_where_numbers_are_meant():
    sample = Sample(size=3, share=2, list=[1, 2.5])
    assert (sample.share, type(sample.share)) == (2.0, float)
    assert sample.list == (1.0, 2.5)
    assert sample == Sample(size=3, share=2.0, list=(1.0, 2.5))


@pytest.mark.parametrize(
    "wrong",
    [
        {"size": 1.0},
        {"size": True},
        {"share": "1"},
        {"kind": "odd"},
        {"maybe": 1.5},
        {"list": 3.0},
        {"list": ("a",)},
        {"flag": 1},
    ],
    ids=str,
)
def test_wrong_types_are_refused(wrong):
    with pytest.raises(InvalidValue, match=next(iter(wrong))):
        Sample(**{"size": 1, **wrong})


def test_parameters_say_kind_rule_meaning_and_default():
    rows = {row.name: row for row in parameter_rows(Sample)}
    assert rows["size"] == ("size", "must be given", "a whole number, at least 1", "how many")
    assert rows["kind"] == ("kind", "plain", "'plain' or 'fancy'", "")
    assert rows["maybe"] == ("maybe", "nothing", "a whole number or nothing", "")
    assert rows["list"] == ("list", "[]", "a list, each item a number", "")
    assert rows["flag"] == ("flag", "false", "true or false", "")
    assert [parameter.name for parameter in parameters(Sample)] == ["size", "share", "kind", "maybe", "list", "flag"]


def test_rules_between_fields_are_checked_last():
    @dataclass(frozen=True, kw_only=True)
    class Pair(Checked):
        low: int
        high: int

        def check(self) -> None:
            if self.low > self.high:
                raise InvalidValue("low", f"at most high ({self.high})", self.low)

    with pytest.raises(InvalidValue, match="high must be a whole number"):
        Pair(low=3, high="x")
    with pytest.raises(InvalidValue, match=r"low must be at most high \(2\), got 3"):
        Pair(low=3, high=2)
