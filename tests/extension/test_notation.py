"""The one-line notation, without knowing any method."""

from contextlib import suppress

import pytest

from ropewalk.errors import Unreadable
from ropewalk.extension.notation import DEEPEST, LONGEST_NOTATION, Term, duration, length, read, read_list


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("rope", [Term("rope", {})]),
        ("yarn:factor=4+log_n", [Term("yarn", {"factor": 4}), Term("log_n", {})]),
        (
            " yarn : factor = 4 , ramp = turns + log_n ",
            [Term("yarn", {"factor": 4, "ramp": "turns"}), Term("log_n", {})],
        ),
        ("a:x=1.5,y=-2,z=1e-3", [Term("a", {"x": 1.5, "y": -2, "z": 0.001})]),
        ("a:x=1e+3+b", [Term("a", {"x": 1000.0}), Term("b", {})]),
        ("a:x=[1e+3,2]+b", [Term("a", {"x": (1000.0, 2)}), Term("b", {})]),
        ("a:x=true,y=false,z=nothing", [Term("a", {"x": True, "y": False, "z": None})]),
        ("a:x=32k,y=1M", [Term("a", {"x": 32768, "y": 1048576})]),
        ("a:x=[],y=[p,q]", [Term("a", {"x": (), "y": ("p", "q")})]),
        ("a:x=(b:y=[1,2],z=(c)),w=3", [Term("a", {"x": Term("b", {"y": (1, 2), "z": Term("c", {})}), "w": 3})]),
        ("slot.name:x=1", [Term("slot.name", {"x": 1})]),
    ],
)
def test_reading(text, terms):
    assert read(text) == terms


@pytest.mark.parametrize(
    "text", ["", "+", "a+", "+a", "a:", "a:x", "a:=1", "a:x=", "a:x=1,", "4:x=1", "a b", "a:x=(b", "a)"]
)
def test_what_cannot_be_read_is_refused(text):
    with pytest.raises(Unreadable):
        read(text)


def test_a_list_has_commas_between_terms_and_between_values():
    assert read_list("a,b:x=1,y=2,c,d:z=[1,2],e:w=p:q", "tasks") == [
        Term("a", {}),
        Term("b", {"x": 1, "y": 2}),
        Term("c", {}),
        Term("d", {"z": (1, 2)}),
        Term("e", {"w": "p:q"}),
    ]


@pytest.mark.parametrize("text", ["", "a,", ",a", "x=1", "a:", "a:x=(b", "a:x=1,x=2"])
def test_a_list_that_cannot_be_read_says_what_it_is_of(text):
    with pytest.raises(Unreadable):
        read_list(text, "tasks")


@pytest.mark.parametrize(("text", "number"), [("512", 512), (" 4k", 4096), ("1M", 1048576), (f"{4:030}", 4)])
def test_lengths(text, number):
    assert length(text) == number


@pytest.mark.parametrize("text", ["", "k", "4kb", "1.5k", "many", f"{4:031}"])
def test_lengths_that_are_none(text):
    with pytest.raises(Unreadable, match="length must be a whole number such as 512, 32k or 1m"):
        length(text)


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), (" 20m", 1200), ("2h", 7200)])
def test_times(text, seconds):
    assert duration(text) == seconds


@pytest.mark.parametrize("text", ["", "20", "m", "0s", "-5m", "1.5h", "20M", "1m30s", "9" * 40 + "s"])
def test_times_that_are_none(text):
    with pytest.raises(Unreadable, match="--budget must be a time above 0 such as 90s, 20m or 2h"):
        duration(text, "--budget")


class Copied(str):
    """A text that counts the characters that are copied from it."""

    characters = 0

    def _copy(self, part):
        Copied.characters += len(part)
        return Copied(part)

    def __getitem__(self, place):
        return self._copy(super().__getitem__(place))

    def __add__(self, other):
        return self._copy(super().__add__(other))

    def strip(self, *characters):
        return self._copy(super().strip(*characters))

    def partition(self, separator):
        return tuple(map(self._copy, super().partition(separator)))


def repeated(before, part, after=""):
    """The longest line of a part that is repeated."""
    return before + part * ((LONGEST_NOTATION - len(before + after)) // len(part)) + after


LONG_LINES = [
    repeated("yarn:factor=(", "+", ")"),
    repeated("longrope:long=[1", ",1e+1", "]"),
    repeated("a:x=1", ",y=1e+1"),
    repeated("a:x=1e+1", "e+1"),
    repeated("a:x=[1", ",[[[1]]]", "]"),
    repeated("a:x=", "(", ")"),
    repeated("a:x=", "1", ".5"),
    repeated("", "+"),
    repeated("log_n", "+log_n"),
    repeated("a:x=1", ", y = 1"),
    repeated("", "a"),
]


@pytest.mark.parametrize("line", LONG_LINES, ids=lambda line: line[:20])
@pytest.mark.parametrize("reader", [read, lambda line: read_list(line, "tasks")], ids=["line", "list"])
def test_what_a_line_costs_does_not_grow_with_its_square(line, reader, monkeypatch):
    """At most four copies at each of eight depths, however many separators there are; by the square it is thousands."""
    monkeypatch.setattr(Copied, "characters", 0)
    with suppress(Unreadable):
        reader(Copied(line))
    assert 0 < Copied.characters <= 4 * DEEPEST * LONGEST_NOTATION


@pytest.mark.parametrize(("reader", "field"), [(read, "extension"), (lambda line: read_list(line, "tasks"), "tasks")])
def test_lines_are_not_longer_than_somebody_writes(reader, field):
    with pytest.raises(Unreadable, match=f"{field} must be a line of at most 10,000 characters, got 10001"):
        reader("a" * (LONGEST_NOTATION + 1))


@pytest.mark.parametrize(
    "line", [repeated("", "+"), repeated("a:x=1", ",y=1"), repeated("a:x=", "(", ")"), repeated("a:x=(", "+", ")")]
)
def test_a_refusal_shows_the_beginning_of_a_long_line(line):
    with pytest.raises(Unreadable) as refused:
        read(line)
    assert len(str(refused.value)) < 600
