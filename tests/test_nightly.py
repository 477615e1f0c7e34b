"""What runs by day, what by night, and that a commit's tenth is one: the same each time, and each test is in some."""

import itertools
from collections import Counter
from types import SimpleNamespace

import pytest

import nightly

NAMES = [f"tests/test_{i}.py::test_it[{j}]" for i in range(40) for j in range(25)]


class Item:
    """As much of pytest's item as is asked for."""

    def __init__(self, nodeid, params=None, marks=(), cases=None):
        self.nodeid, self.marks, self.cases = nodeid, set(marks), cases
        self.callspec = SimpleNamespace(params=params)

    def get_closest_marker(self, name):
        cases = {"cases": self.cases} if self.cases else {}
        return SimpleNamespace(kwargs=cases) if name in self.marks else None

    def add_marker(self, name):
        self.marks.add(name)


def matrix(**sizes):
    for index in itertools.product(*(range(size) for size in sizes.values())):
        indices = dict(zip(sizes, index, strict=True))
        yield Item(f"tests/test_a.py::test_it[{'-'.join(map(str, index))}]", indices, ["sampled"])


def test_a_sample_has_every_value_of_every_parameter_and_few_cases():
    items = list(matrix(method=5, dtype=3, device=2))
    nightly.mark_the_rest_of_samples(items)
    by_day = [item.callspec.params for item in items if "nightly" not in item.marks]
    assert len(by_day) == 5
    assert {(name, value) for indices in by_day for name, value in indices.items()} == {
        (name, value) for item in items for name, value in item.callspec.params.items()
    }


def test_a_sample_of_so_many_cases_has_so_many_and_a_new_case_moves_no_other():
    items = [Item(f"tests/test_a.py::test_it[{case}]", {"case": case}, ["sampled"], cases=3) for case in range(9)]
    nightly.mark_the_rest_of_samples(items)
    by_day = {item.nodeid for item in items if "nightly" not in item.marks}
    assert len(by_day) == 3
    more = [Item(item.nodeid, {"case": 0}, ["sampled"], cases=3) for item in items]
    more.append(Item("tests/test_a.py::test_it[new]", {"case": "new"}, ["sampled"], cases=3))
    nightly.mark_the_rest_of_samples(more)
    assert len(by_day & {item.nodeid for item in more if "nightly" not in item.marks}) >= 2


def test_a_case_that_is_nightly_takes_no_place_in_a_sample():
    marks = [["sampled"], ["sampled", "nightly"]]
    items = [Item(f"tests/test_a.py::test_it[{n}]", {"n": n}, marks[n % 2], cases=4) for n in range(8)]
    nightly.mark_the_rest_of_samples(items)
    assert [n for n, item in enumerate(items) if "nightly" not in item.marks] == [0, 2, 4, 6]


MATRIX = """
import pytest

@pytest.mark.sampled
@pytest.mark.parametrize("long", [[1], [2], "c", None])
@pytest.mark.parametrize("short", [True, False])
def test_it(short, long):
    pass
"""


def test_the_items_of_pytest_itself_are_sampled(tmp_path):
    (tmp_path / "test_matrix.py").write_text(MATRIX)
    collected = []

    class Marking:
        def pytest_collection_modifyitems(self, items):
            nightly.mark_the_rest_of_samples(items)
            collected.extend(items)

    options = ["--collect-only", "-q", "--rootdir", str(tmp_path), "-W", "ignore", "-p", "no:cacheprovider"]
    pytest.main([*options, str(tmp_path / "test_matrix.py")], plugins=[Marking()])
    by_day = [item.callspec.params for item in collected if not item.get_closest_marker("nightly")]
    assert (len(collected), len(by_day)) == (8, 4)
    assert Counter(params["short"] for params in by_day) == {True: 2, False: 2}


def test_a_long_parameter_is_spread_over_a_short_one():
    items = list(matrix(method=12, length=3))
    nightly.mark_the_rest_of_samples(items)
    by_day = [item.callspec.params for item in items if "nightly" not in item.marks]
    assert Counter(indices["length"] for indices in by_day) == {0: 4, 1: 4, 2: 4}


def test_values_that_stand_only_together_are_all_in_it():
    items = [item for item in matrix(a=4, b=4) if item.callspec.params["a"] <= item.callspec.params["b"]]
    nightly.mark_the_rest_of_samples(items)
    by_day = [item.callspec.params for item in items if "nightly" not in item.marks]
    assert {indices["a"] for indices in by_day} == {indices["b"] for indices in by_day} == {0, 1, 2, 3}


def test_the_first_of_each_kind_runs_by_day():
    cases = nightly.first_of_each(["a1", "a2", "b1", "x", "b2"], lambda case: {"x": None}.get(case, case[0]), str.upper)
    assert [(*case.values, case.id, bool(case.marks)) for case in cases] == [
        ("a1", "A1", False),
        ("a2", "A2", True),
        ("b1", "B1", False),
        ("x", "X", True),
        ("b2", "B2", True),
    ]


def test_tests_without_a_marker_stay_as_they_are():
    items = [Item("tests/test_a.py::test_b"), Item("tests/test_a.py::test_c", marks=["nightly"])]
    nightly.mark_the_rest_of_samples(items)
    assert [item.marks for item in items] == [set(), {"nightly"}]


def test_a_commit_draws_a_tenth_and_the_same_again():
    tenth = [name for name in NAMES if nightly.draws("c0ffee", name)]
    assert 60 < len(tenth) < 140
    assert tenth == [name for name in NAMES if nightly.draws("c0ffee", name)]


def test_other_commits_draw_others_and_leave_none_out_for_ever():
    drawn = [{name for name in NAMES if nightly.draws(f"commit {i}", name)} for i in range(120)]
    assert len(set(map(frozenset, drawn))) == 120
    assert set().union(*drawn) == set(NAMES)


def test_what_runs_by_day_is_never_left_out():
    day, night = [Item("tests/test_a.py::test_day")], [Item(name, marks=["nightly"]) for name in NAMES]
    left = nightly.left_out(day + night, "c0ffee")
    assert left == [item for item in night if not nightly.draws("c0ffee", item.nodeid)]
    assert 0 < len(left) < len(night)


def test_what_was_drawn_is_told_by_test():
    lines = nightly.told(["tests/b.py::test_it[two]", "tests/a.py::test_it", "tests/b.py::test_it[one-1]"])
    assert lines == ["tests/a.py::test_it", "tests/b.py::test_it: one-1, two"]
