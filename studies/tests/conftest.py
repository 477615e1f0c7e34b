"""Tests of the studies are nightly: `make nightly` runs them, and `.ci/run` a tenth of them."""

import conftest  # noqa: F401  of tests/: one thread, and no deadlines
import pytest


def pytest_itemcollected(item):
    item.add_marker(pytest.mark.nightly)
