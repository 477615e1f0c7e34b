"""A small model that the tests of a module share."""

import pytest

from hf.models import tiny


@pytest.fixture(scope="module")
def llama():
    return tiny("llama", num_hidden_layers=2)
