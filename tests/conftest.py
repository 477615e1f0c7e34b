"""What has to be settled before torch and triton are used.

One thread a process: small tensors gain nothing from more, and pytest-xdist already uses every core. Triton's kernels
run in its interpreter where there is no GPU.
"""

import os

import pytest
import torch

from browser import browser

torch.set_num_threads(1)
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")


@pytest.fixture(scope="module")
def chromium():
    """A module's browser. It ends with the module: a thread runs one Playwright, whose event loop keeps asyncio out."""
    with browser() as started:
        yield started
