"""A placement lasts as long as its block; cli/test_loading_options has what it does to models."""

import os

import pytest

from ropewalk.errors import UnknownName
from ropewalk.placement import DTYPES, Placement, free_bytes, placing, wanted_placement


def test_what_is_left_empty_stays():
    assert wanted_placement() == Placement("auto", "")
    with placing("bfloat16"):
        with placing(device="cpu"):
            assert wanted_placement() == Placement("bfloat16", "cpu")
            with placing("float32", "auto") as inner:
                assert inner == Placement("float32", "auto")
                assert inner.is_spread
            assert not wanted_placement().is_spread
        assert wanted_placement() == Placement("bfloat16", "")
    assert wanted_placement() == Placement()


def test_an_unknown_dtype_is_refused_with_the_one_that_was_meant():
    with pytest.raises(UnknownName, match="there is no dtype 'bflaot16'; did you mean 'bfloat16'"):
        placing("bflaot16")
    assert DTYPES == ("auto", "float32", "bfloat16", "float16")


def test_what_a_machine_can_give_is_less_than_it_has():
    assert 0 < free_bytes() < os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
