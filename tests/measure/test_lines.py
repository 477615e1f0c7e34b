"""Extensions as a caller has them: no two have one name, and none disappears."""

import pytest

import ropewalk as rw
from ropewalk.extension.parsing import read_line
from ropewalk.measure.lines import line_of, lines_of

ONES = ",".join(["1"] * 31)
LONG = [rw.parse(f"longrope:long=[1,{ONES}],short=[{ONES},{last}],factor=4") for last in (2, 3)]
LAYERED = [rw.Extension(layers={layer: rw.parse(f"window:window={size}")}) for layer, size in ((0, 8), (1, 8), (0, 9))]
ON_TOP = [rw.Extension(layers={layer: rw.parse("window:window=8")}) + rw.parse("yarn:factor=2") for layer in (0, 1)]
OTHERS = [
    rw.parse(line) for line in ("yarn:factor=2", "yarn:factor=2.0001", "instead+yarn:factor=2", "rerope:window=8")
]


def test_different_objects_have_different_names_and_one_object_always_the_same():
    """Long ones with one beginning, ones that differ in layers alone, ones that replace the own schedule."""
    objects = [*LONG, *LAYERED, *ON_TOP, *OTHERS]
    names = [line.text for line in lines_of(objects)]
    assert len(set(names)) == len(names) == len(objects)
    assert [line_of(one).text for one in reversed(objects)] == names[::-1]
    assert all(len(name) <= 120 for name in names)
    assert [line.build() for line in lines_of(objects)] == objects


def test_a_name_is_plain_notation_where_that_says_all():
    assert line_of(rw.parse("rerope:window=8+log_n")).text == "rerope:window=8+log_n"
    assert " #" in line_of(LONG[0]).text


def test_the_base_model_is_measured_anyway():
    assert [line.text for line in lines_of(["bare", rw.Extension(), "yarn"])] == ["yarn"]


@pytest.mark.parametrize("name", ["bare", "base model"])
@pytest.mark.parametrize("extension", ["yarn", rw.parse("yarn:factor=2")], ids=["line", "object"])
def test_the_name_of_the_base_model_is_refused(name, extension):
    with pytest.raises(
        rw.InvalidValue, match=f"without the names 'bare' and 'base model'.*got '{name}'; choose another"
    ):
        lines_of({name: extension})


@pytest.mark.parametrize("name", [1, "", "  ", None])
def test_names_are_text(name):
    with pytest.raises(
        rw.InvalidValue, match=r"extensions must be a mapping to extensions that change .* leave 'mine' out"
    ):
        lines_of({"mine": rw.Extension(), "yarn": "yarn"})
    with pytest.raises(rw.InvalidValue, match="extensions must be a mapping from names, which are text"):
        lines_of({name: "yarn"})
    assert [line.text for line in lines_of({"mine": "yarn"})] == ["mine"]
    assert lines_of({"mine": "yarn"})[0].terms == read_line("yarn").terms
