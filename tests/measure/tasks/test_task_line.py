"""Tasks by name."""

import pytest

from ropewalk.errors import Conflict, InvalidValue, UnknownName, Unreadable
from ropewalk.measure.tasks import Context, Needle, Passkey, QuantisedCache, Ruler, StreamEval
from ropewalk.measure.tasks.task_line import check_tasks, tasks_named


def test_names_with_values():
    assert tasks_named("context,passkey,needle:samples=8,depths=3,ruler:kind=vt,stream:back=5", 4) == (
        Context(samples=4),
        Passkey(samples=4),
        Needle(samples=8, depths=3),
        Ruler(kind="vt", samples=4),
        StreamEval(samples=4, back=5),
    )


def test_the_loss_is_always_among_them():
    assert tasks_named("needle", 3) == (Context(samples=3), Needle(samples=3))
    assert check_tasks([Needle()], 5) == (Context(samples=5), Needle())
    assert check_tasks([Needle(), Context(samples=9)], 5) == (Needle(), Context(samples=9))


def test_ruler_alone_is_all_that_needs_no_file():
    assert len(tasks_named("ruler", 2)) == 1 + 11
    assert [each.title for each in tasks_named("ruler:kind=cwe,ruler:kind=fwe", 2)] == ["context", "cwe", "fwe"]


def test_the_loss_that_a_quantised_cache_is_compared_with_is_of_its_texts():
    of = {"samples": 2, "questions": 3}
    assert tasks_named("cache:questions=3", 2) == (
        Context(**of),
        QuantisedCache(kind="int8", **of),
        QuantisedCache(kind="int4", **of),
    )
    assert [each.title for each in tasks_named("context:questions=8,cache:kind=fp8", 2)] == ["context", "cache_fp8"]
    with pytest.raises(Conflict, match="cache_fp8 reads other texts than context: "):
        tasks_named("context,cache:kind=fp8", 2)


@pytest.mark.parametrize(
    ("line", "error", "words"),
    [
        ("nedle", UnknownName, "no task 'nedle'; did you mean 'needle'.* Known: context, .*needle.*ruler.*stream"),
        ("needle:depht=3", UnknownName, "needle has no parameter 'depht'; did you mean 'depths'"),
        ("ruler:kind=nine", InvalidValue, "kind must be 'niah_single_1' or"),
        ("needle,needle:depths=3", Conflict, "the task needle is named twice; name every task once"),
        ("needle:samples=0", InvalidValue, "samples must be at least 1"),
        ("needle:", Unreadable, "parameter of needle"),
        ("", Unreadable, "tasks must be written"),
        ("depths=3", Unreadable, "tasks must be written"),
        ("needle,,passkey", Unreadable, "tasks must be written"),
        ("needle:samples=[1", Unreadable, "tasks must be written with matching brackets"),
    ],
)
def test_what_is_refused(line, error, words):
    with pytest.raises(error, match=words):
        tasks_named(line, 4)
