"""Run alone: compiles the kernels for sm_80 and prints the shared memory that each takes. No GPU is needed."""

import importlib

import torch
import triton
from triton.backends.compiler import GPUTarget

from ropewalk import Facts, parse
from ropewalk.attention.backends.triton import launch as launch_module
from ropewalk.attention.backends.triton.launch import Launch, Launches
from ropewalk.attention.layout.segments import segments_of

KERNELS = importlib.import_module("ropewalk.attention.backends.triton.kernels")


class NoDriver:
    """What triton asks a driver for when it compiles."""

    def get_current_target(self):
        return GPUTarget("cuda", 80, 32)

    def get_current_device(self):
        return 0

    def get_current_stream(self, device):
        return 0


class Compiled:
    """A kernel that is compiled in place of being launched."""

    def __init__(self, name):
        self.name, self.kernel = name, getattr(KERNELS, name)

    def __getitem__(self, grid):
        def launch(*arguments, **options):
            print(self.name, self.kernel.run(*arguments, grid=grid, warmup=True, **options).metadata.shared)

        return launch


def main():
    """One sequence with every compiled variant: rotation, a bias, interleaved pairs, unrotated dimensions."""
    triton.runtime.driver.set_active(NoDriver())
    for name in ("forward", "backward_queries", "backward_keys"):
        setattr(KERNELS, name, Compiled(name))
    launch_module.launches = lambda *arguments: Launches(*[Launch(16, 16, 1, 2)] * 3)
    facts = Facts(trained_len=64, head_dim=24, heads=4, kv_heads=2, rotary_dim=12, interleaved=True)
    segments = segments_of(parse("rope"), facts, torch.arange(64), [torch.arange(64)])
    q, k, v = (torch.zeros(1, h, 64, 24, dtype=torch.bfloat16, requires_grad=True) for h in (4, 2, 2))
    plan = launch_module.plan_for(segments, q, v, True)
    out = launch_module.triton_attention(q, k, v, plan, torch.ones(1, 64), lambda far: far[None].double())
    out.backward(torch.zeros_like(out))


main()
