"""Trust lasts as long as its block; what it does to models is in hf/test_fetching."""

import pytest

from ropewalk.trust import trusted, trusting


def test_nothing_is_trusted_unless_somebody_says_so():
    assert trusted() is False
    with trusting(True):
        assert trusted() is True
        with trusting(False):
            assert trusted() is False
        assert trusted() is True
    with pytest.raises(KeyError), trusting(True):
        raise KeyError
    assert trusted() is False
