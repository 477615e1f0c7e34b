"""The tree, and the form of its messages."""

import pytest

from ropewalk import errors


def test_the_docstring_draws_the_tree():
    leaves = {
        name for name, each in vars(errors).items() if isinstance(each, type) and issubclass(each, errors.RopewalkError)
    }
    assert all(name in errors.__doc__ for name in leaves)
    assert all(getattr(errors, name).__mro__[1] in (errors.RopewalkError, ValueError) for name in leaves)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "a must be 1, got 2"),
        ({"known": ["x", "y"]}, "a must be 1, got 2; known: x, y"),
        ({"known": ["x"], "remedy": "write x"}, "a must be 1, got 2; known: x; write x"),
    ],
)
def test_messages(given, message):
    assert str(errors.InvalidValue("a", "1", 2, **given)) == message
