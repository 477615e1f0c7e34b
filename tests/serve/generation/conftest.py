"""The model that engines are tested on."""

import pytest

from hf.models import tiny


@pytest.fixture(scope="module")
def host():
    return tiny("llama", max_position_embeddings=1024)
