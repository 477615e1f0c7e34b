"""Numbers that a caller asks for: refused in a sentence before a model is loaded, never replaced by a default."""

import math

import pytest

import ropewalk as rw
from ropewalk.extension.notation import tokens
from ropewalk.measure import arguments, compare, diagnose, leaderboard
from ropewalk.search import fit as fitting

WRONG_TIMES = [0, -5, math.nan, math.inf, -math.inf, True, "0s", "-5s", "nan", "90"]
WRONG_COUNTS = [0, 1, -1, math.nan, 2.5, True, "2"]


@pytest.fixture(autouse=True)
def _nothing_is_loaded(monkeypatch):
    """An error of another kind shows that a wrong number passed."""
    for module in (compare, diagnose, fitting, leaderboard):
        monkeypatch.setattr(module, "open_model", None)


@pytest.mark.parametrize("function", [rw.compare, rw.Conditions])
def test_lengths_that_are_none_are_refused_by_name(function):
    for value in (3.5, None, {"512": 1}, object(), [512, "x"], b"512", [[512]]):
        with pytest.raises((rw.InvalidValue, rw.Unreadable), match=r"^lengths must be "):
            function(lengths=value)


def test_one_length_may_stand_alone():
    for one in (1024, "1k", "1024", [1024], ("1k",)):
        assert tokens("lengths", one) == (1024,)
    assert tokens("lengths", ()) == tokens("lengths", "") == ()


def test_tasks_are_one_text():
    for value in (["context"], ("context", "passkey"), {"context": 1}, 3):
        with pytest.raises(rw.InvalidValue, match=r"^tasks must be a comma-separated string"):
            rw.compare(tasks=value)
        with pytest.raises(rw.InvalidValue, match=r"^tasks must be a comma-separated string"):
            rw.leaderboard(tasks=value)


@pytest.mark.parametrize(
    ("function", "name", "wrong"),
    [
        (rw.fit, "samples", WRONG_COUNTS),
        (rw.fit, "judges", WRONG_COUNTS),
        (rw.fit, "budget", WRONG_TIMES),
        (rw.compare, "samples", WRONG_COUNTS),
        (rw.leaderboard, "samples", WRONG_COUNTS),
        (rw.leaderboard, "time_limit", WRONG_TIMES),
        (rw.diagnose, "texts", [0, -1, math.nan, 1.5, True, None]),
    ],
    ids=lambda value: getattr(value, "__name__", value if isinstance(value, str) else ""),
)
def test_a_wrong_number_is_refused_by_name(function, name, wrong):
    for value in wrong:
        with pytest.raises((rw.InvalidValue, rw.Unreadable), match=f"^{name} must be .*got {value!r}"):
            function(**{name: value})


@pytest.mark.parametrize("function", [rw.fit, rw.compare, rw.leaderboard])
def test_wrong_workers_are_refused(function):
    for value in (0, -1, math.nan, 1.5, True, None)[function is not rw.fit :]:
        with pytest.raises(rw.InvalidValue, match=f"^workers must be .*got {value!r}"):
            function(options=rw.RunOptions(workers=value))


@pytest.mark.parametrize(
    ("function", "stated"),
    [
        (rw.fit, {"ray": "auto"}),
        (rw.fit, {"after_round": print}),
        (rw.leaderboard, {"after_round": print}),
        (rw.diagnose, {"ray": "auto"}),
        (rw.diagnose, {"workers": 2}),
    ],
)
def test_an_option_that_has_no_use_is_refused(function, stated):
    (name,) = stated
    with pytest.raises(rw.InvalidValue, match=f"^this function does not use {name}; leave {name} out"):
        function(options=rw.RunOptions(**stated))


@pytest.mark.parametrize("function", [rw.fit, rw.leaderboard], ids=["fit", "leaderboard"])
@pytest.mark.parametrize("length", [0, "0k"])
def test_a_length_of_none_is_no_default(monkeypatch, place, function, length):
    monkeypatch.undo()
    with pytest.raises(rw.RopewalkError, match=r"^target_len must be above the trained length \(32\), got 0"):
        function(place / "model", length, corpus=f"folder:{place / 'texts'}", options=rw.RunOptions(progress=False))


def test_what_is_right_passes():
    assert [arguments.whole_number("samples", value, least=2) for value in (2, 400)] == [2, 400]
    times = {"": None, None: None, 90: 90, 0.5: 0.5, "20m": 1200}
    assert {value: arguments.seconds("budget", value) for value in times} == times
    with pytest.raises(TypeError):  # it goes on to load a model
        rw.compare(options=rw.RunOptions(workers=0))
