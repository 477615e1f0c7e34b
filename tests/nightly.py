"""What `make test` leaves to `make nightly`, and the tenth of it that a commit draws for `.ci/run`.

Two markers say so. `nightly` is on a test, or on a case of it. `sampled` is on a test with parameters: by day, cases in
which each value of each parameter is at least once; the others are nightly. `sampled(cases=3)`: by day, three of them.
"""

import collections
import hashlib
from collections.abc import Callable, Collection, Hashable, Iterable
from typing import Any

import pytest


def first_of_each(
    cases: Iterable[Any],
    of: Callable[[Any], Hashable] = lambda case: "all of one kind",
    name: Callable[[Any], str] = str,
) -> list[Any]:
    """Values of a parameter: by day the first of each kind, by night the others and those whose kind is None."""
    seen, values = {None}, []
    for case in cases:
        values.append(pytest.param(case, id=name(case), marks=pytest.mark.nightly if of(case) in seen else ()))
        seen.add(of(case))
    return values


def few_by_day(every: Iterable[Any], few: Collection[Any]) -> list[Any]:
    """Two values of a parameter: a few for the day, all the others by night."""
    return [list(few), pytest.param([one for one in every if one not in few], marks=pytest.mark.nightly)]


def mark_the_rest_of_samples(items: Iterable[pytest.Item]) -> None:
    """Cases outside the sample of their test become nightly."""
    tests: dict[tuple[str, int | None], dict[Any, set]] = collections.defaultdict(dict)
    for item in items:
        marker = item.get_closest_marker("sampled")
        if marker and not item.get_closest_marker("nightly"):
            values = {(name, id(value)) for name, value in item.callspec.params.items()}
            tests[test_of(item.nodeid), marker.kwargs.get("cases")][item] = values
    for (_, count), cases in tests.items():
        by_day = covering(cases) if count is None else set(sorted(cases, key=shuffled)[:count])
        for item in cases.keys() - by_day:
            item.add_marker("nightly")


def shuffled(item: pytest.Item) -> str:
    """A place among the cases of a test that depends on its name alone, so that another case moves no other."""
    return hashlib.sha256(item.nodeid.encode()).hexdigest()


def covering(cases: dict[Any, set]) -> set[Any]:
    """Few cases, among them each value of all: one after the other, whichever has most that is new or rare so far.

    So a long parameter is spread evenly over a short one.
    """
    missing, used, chosen = set[Any]().union(*cases.values()), collections.Counter[Any](), set[Any]()
    while missing:
        best = max(cases, key=lambda case: (len(cases[case] & missing), -sum(used[value] for value in cases[case])))
        chosen.add(best)
        missing -= cases[best]
        used.update(cases[best])
    return chosen


def left_out(items: Iterable[pytest.Item], commit: str) -> list[pytest.Item]:
    """The nightly tests outside a commit's tenth."""
    return [item for item in items if item.get_closest_marker("nightly") and not draws(commit, item.nodeid)]


def draws(commit: str, name: str) -> bool:
    """Whether a test is in a commit's tenth."""
    return int(hashlib.sha256(f"{commit} {name}".encode()).hexdigest(), 16) % 10 == 0


def test_of(nodeid: str) -> str:
    return nodeid.partition("[")[0]


def told(nodeids: Collection[str]) -> list[str]:
    """A line a test, with its cases."""
    tests = collections.defaultdict(list)
    for nodeid in sorted(nodeids):
        test, _, case = nodeid.partition("[")
        tests[test].append(case.removesuffix("]"))
    return [f"{test}: {', '.join(cases)}".removesuffix(": ") for test, cases in tests.items()]
