"""The vLLM plugin on CUDA, where vLLM is installed: speed and log-probabilities of what it serves (vllm_plugin.py)."""

from __future__ import annotations

import functools
import importlib.util

from gpu.case import Case, Place, Row, Skipped


def cases(place: Place) -> list[Case]:
    """One case, for now."""
    return [Case("plugin", 60, functools.partial(measured, place))]


def measured(place: Place, left: float) -> list[Row]:
    """What the plugin's module measures, where everything that it needs is there."""
    if importlib.util.find_spec("vllm") is None:
        raise Skipped("vllm is not installed")
    if place.dry:
        raise Skipped("vllm's CUDA build has no dry run")
    from gpu import vllm_plugin

    return vllm_plugin.measured(place, left)
