"""What lets the benchmarks run under a CUDA torch older than the package needs, as a machine without network may have.

torch before 2.13 takes the limits of recompilation from its settings, not as arguments of `torch.compile`. Everything
else is measured as it is, and the record holds the version.
"""

from __future__ import annotations

import inspect
from functools import cache
from typing import Any

import torch

from ropewalk.attention.backends import flex


def adapt() -> None:
    """Compile FlexAttention with the same limits by this torch's means; nothing where torch is new enough."""
    if "recompile_limit" not in inspect.signature(torch.compile).parameters:
        flex.compile_call = cache(_compiled)


def _compiled() -> Any:
    import torch._dynamo

    torch._dynamo.config.recompile_limit = flex.KINDS
    torch._dynamo.config.fail_on_recompile_limit_hit = True
    return torch.compile(flex.require_compiling, dynamic=True, fullgraph=True)


def pytest_configure() -> None:
    """As a plugin of pytest."""
    adapt()
