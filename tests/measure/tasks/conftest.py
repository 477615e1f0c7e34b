"""A small model, and texts of 120 tokens that it is asked about."""

import pytest

from measure.subjects import subject


@pytest.fixture
def who(tmp_path):
    return subject(tmp_path, longest=120)
