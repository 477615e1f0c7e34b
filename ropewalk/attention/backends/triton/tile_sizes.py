"""The sizes that the triton kernels are launched with: what was measured on this GPU, or else what compiles well.

`tuned.json` holds what `make gpu` measured, by the name of the device, by the largest head and whether anything is
rotated, and by the kernel. Nothing is ever searched at run time: a device that is not in the table takes the defaults.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch

from ropewalk.files import read_record

TUNED = Path(__file__).with_name("tuned.json")


class Launch(NamedTuple):
    """The sizes of a launch: a program's rows and keys, its warps, how many tiles it loads ahead."""

    rows: int
    keys: int
    warps: int
    stages: int


class Launches(NamedTuple):
    """The launch of each kernel."""

    forward: Launch
    backward_queries: Launch
    backward_keys: Launch


# By the largest head. Rotation takes registers, so its tiles are smaller.
HALF_UNROTATED = {
    64: Launches(Launch(128, 64, 8, 2), Launch(64, 64, 4, 2), Launch(32, 128, 8, 1)),
    128: Launches(Launch(128, 64, 8, 2), Launch(64, 64, 8, 2), Launch(64, 32, 8, 1)),
}
HALF_ROTATED = {
    64: Launches(Launch(128, 32, 8, 2), Launch(64, 32, 8, 2), Launch(64, 16, 8, 1)),
    128: Launches(Launch(64, 32, 8, 2), Launch(32, 64, 8, 2), Launch(64, 32, 8, 1)),
}
SINGLE = Launches(Launch(64, 32, 8, 1), Launch(32, 32, 8, 1), Launch(32, 32, 8, 1))


def launches(head_dim: int, dtype: torch.dtype, rotates: bool, device: str = "") -> Launches:
    """In half precision the sizes tuned for a device, by its name. Without them the largest for which ptxas, compiling
    for sm_80 and sm_90, spills almost nothing."""
    if dtype == torch.float32:
        return SINGLE
    table = HALF_ROTATED if rotates else HALF_UNROTATED
    size = min(size for size in table if size >= head_dim)
    tuned = tuned_sizes().get(device, {}).get(kind(size, rotates), {})
    measured = {name: Launch(*sizes) for name, sizes in tuned.items()}
    return table[size]._replace(**measured)


def kind(size: int, rotates: bool) -> str:
    """What the table of a device calls heads of up to `size`, rotated or not."""
    return f"heads of {size}, {'rotated' if rotates else 'not rotated'}"


@cache
def tuned_sizes() -> dict[str, dict[str, dict[str, list[int]]]]:
    """The table: device, kind of heads, kernel, and the four sizes of its launch."""
    return read_record(TUNED, "the table of tuned sizes")


@cache
def device_name(device: torch.device) -> str:
    """What the table calls a device; nothing for one that is no GPU."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else ""
