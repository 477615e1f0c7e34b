"""FlexAttention, which torch compiles: with and without a bias, and the gradient of a learned bias.

The time of the first call, which holds the compilation, is the figure "first call s"; the others leave it out.
"""

from __future__ import annotations

import functools
from unittest.mock import patch

from ropewalk.attention.backends import flex

from gpu import attention
from gpu.attention import BOTH, FORWARD, Job
from gpu.case import Case, Place, Row

JOBS = (
    Job(FORWARD, 8192, "alibi", 15),
    Job(BOTH, 8192, "biases.kerple_log", 30, learning=True),
    Job(FORWARD, 32_768, "alibi", 6),
    Job(FORWARD, 32_768, "rerope:window=512", 15),
    Job(BOTH, 8192, "biases.t5", 20, learning=True),
)
DRY = (Job(FORWARD, 24, "alibi"),)


def cases(place: Place) -> list[Case]:
    """The same jobs as those of attention, by this backend."""
    return [Case(job.name, job.seconds, functools.partial(measured, job, place)) for job in place.either(JOBS, DRY)]


def measured(job: Job, place: Place, left: float) -> list[Row]:
    """FlexAttention beside the others. A dry run calls what would be compiled."""
    if not place.dry:
        return attention.measured(job, place, left, (flex.FLEX,))
    with patch.object(flex, "compile_call", lambda: flex.call):
        return attention.measured(job, place, left, (flex.FLEX,))
