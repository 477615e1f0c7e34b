"""The sizes of launches: from the table by the name of the device, and from nothing else."""

import importlib

import pytest
import torch

from ropewalk.attention.backends.triton import tile_sizes
from ropewalk.attention.backends.triton.tile_sizes import (
    HALF_ROTATED,
    HALF_UNROTATED,
    SINGLE,
    Launch,
    Launches,
    device_name,
    launches,
)


def test_tiles_are_those_of_the_next_larger_head():
    for head_dim, size in ((8, 64), (64, 64), (65, 128), (128, 128)):
        assert launches(head_dim, torch.bfloat16, False) == HALF_UNROTATED[size]
        assert launches(head_dim, torch.float16, True) == HALF_ROTATED[size]
        assert launches(head_dim, torch.float32, True) == SINGLE


def test_a_device_in_the_table_takes_what_was_measured_on_it(monkeypatch):
    sizes = {"GPU A": {"heads of 64, rotated": {"forward": [64, 128, 4, 3]}}}
    monkeypatch.setattr(tile_sizes, "tuned_sizes", lambda: sizes)
    tuned = launches(48, torch.bfloat16, True, "GPU A")
    assert tuned.forward == Launch(64, 128, 4, 3)
    assert tuned[1:] == HALF_ROTATED[64][1:]  # the kernels without an entry
    assert launches(48, torch.bfloat16, False, "GPU A") == HALF_UNROTATED[64]
    assert launches(128, torch.bfloat16, True, "GPU A") == HALF_ROTATED[128]
    assert launches(48, torch.bfloat16, True, "GPU B") == HALF_ROTATED[64]
    assert launches(48, torch.float32, True, "GPU A") == SINGLE


def test_only_a_gpu_has_a_name(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"GPU {device.index}")
    device_name.cache_clear()
    assert device_name(torch.device("cpu")) == ""
    assert device_name(torch.device("cuda:3")) == "GPU 3"
    device_name.cache_clear()


def every_launch():
    """The defaults, and all entries of the table that comes with the package."""
    tables = [*HALF_UNROTATED.values(), *HALF_ROTATED.values(), SINGLE]
    tuned = [kernels for kinds in tile_sizes.tuned_sizes().values() for kernels in kinds.values()]
    return [launch for table in tables for launch in table] + [
        Launch(*sizes) for kernels in tuned for sizes in kernels.values()
    ]


def test_tiles_and_warps_are_powers_of_two():
    """Triton accepts no others, which only a GPU would show."""
    for launch in every_launch():
        for size in (launch.rows, launch.keys, launch.warps):
            assert size & (size - 1) == 0 < size
        assert min(launch.rows, launch.keys) >= 16  # the least of tl.dot
        assert 1 <= launch.warps <= 32
        assert launch.stages >= 1


def test_the_table_names_kernels_and_heads_that_exist():
    kinds = {tile_sizes.kind(size, rotated) for size in HALF_ROTATED for rotated in (True, False)}
    for table in tile_sizes.tuned_sizes().values():
        assert table.keys() <= kinds
        assert all(kernels.keys() <= set(Launches._fields) for kernels in table.values())


def test_nothing_is_searched_at_run_time():
    pytest.importorskip("triton")
    kernels = importlib.import_module("ropewalk.attention.backends.triton.kernels")
    for name in Launches._fields:
        assert type(getattr(kernels, name)).__name__ in ("JITFunction", "InterpretedFunction")  # no Autotuner around it
