"""What is said of the trained length holds within its block."""

import pytest

from ropewalk.trained_to import stated, trained_to


def test_it_holds_within_a_block_and_after_an_error_no_more():
    assert stated() is None
    with trained_to(64):
        assert stated() == 64
        with trained_to(None):
            assert stated() is None
        assert stated() == 64
    with pytest.raises(KeyError), trained_to(8):
        raise KeyError
    assert stated() is None
