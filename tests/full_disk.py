"""A disk without room, as far as a process without rights can have one: no file may grow beyond a size."""

import resource
from contextlib import contextmanager


@contextmanager
def room(size):
    """So many bytes for each file that is written within a block."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
