"""A context variable set for a block."""

from contextvars import ContextVar

import pytest

from ropewalk.attention.scoped import scoped

NUMBER = ContextVar("number", default=0)


def test_a_block_sets_the_variable_and_restores_it():
    with scoped(NUMBER, 1) as value:
        assert value == NUMBER.get() == 1
        with scoped(NUMBER, 2):
            assert NUMBER.get() == 2
        assert NUMBER.get() == 1
    assert NUMBER.get() == 0


def test_an_error_restores_it_too():
    with pytest.raises(KeyError), scoped(NUMBER, 1):
        raise KeyError
    assert NUMBER.get() == 0
