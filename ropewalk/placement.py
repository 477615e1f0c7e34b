"""In which precision and on which device weights are loaded: the default inside a block."""

from __future__ import annotations

from contextlib import AbstractContextManager
from contextvars import ContextVar
from pathlib import Path
from typing import NamedTuple

from ropewalk.errors import UnknownName
from ropewalk.scoped import scoped

AUTO = "auto"
DTYPES = (AUTO, "float32", "bfloat16", "float16")


class Placement(NamedTuple):
    """A precision and a device. Where nothing is asked for, both are chosen when the model is loaded."""

    dtype: str = AUTO  # auto: the checkpoint's; of a small model that is measured on a CPU, float32
    device: str = ""  # auto: all GPUs, main memory and the disk, by accelerate; empty: a GPU where there is one

    @property
    def is_spread(self) -> bool:
        """Whether accelerate chooses the devices."""
        return self.device == AUTO


def free_bytes() -> int:
    """Free main memory, by the account of the system; more than any machine has where it keeps none."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:  # systems other than Linux
        return 2**62
    fields = dict(line.split(":", 1) for line in lines)
    return 1024 * int(fields["MemAvailable"].split()[0])


UNSTATED = Placement()
_WANTED: ContextVar[Placement] = ContextVar("placement", default=UNSTATED)


def placing(dtype: str = "", device: str = "") -> AbstractContextManager[Placement]:
    """The default inside a block; what is left empty stays as it is outside."""
    if dtype and dtype not in DTYPES:
        raise UnknownName("dtype", dtype, known=DTYPES)
    outer = _WANTED.get()
    return scoped(_WANTED, Placement(dtype or outer.dtype, device or outer.device))


def wanted_placement() -> Placement:
    """What is asked for here."""
    return _WANTED.get()
