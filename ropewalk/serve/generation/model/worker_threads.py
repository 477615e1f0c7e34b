"""The worker threads that OpenMP keeps for every thread that has computed.

With more of them than cores, each waits asleep between two operations, and a step takes twice as long. So the thread
that has loaded a model gives its workers back before the engine's thread begins to compute.
"""

from __future__ import annotations

import ctypes
from contextlib import suppress

import torch

SOFT = 1  # omp_pause_soft: the thread may compute again, with new workers


def release_workers() -> None:
    """End the workers of the calling thread, where torch's OpenMP can do so."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(torch._C.__file__).omp_pause_resource_all(SOFT)
