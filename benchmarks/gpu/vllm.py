"""The vLLM plugin on CUDA: speed and log-probabilities of what it serves.

This is the place for that step. The plugin is `ropewalk.engines.vllm`; its figures come from a function `measured` of
the module `gpu.vllm_plugin`, which gets the place and the seconds that are left and returns rows like every other step.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util

from gpu.case import Case, Place, Row, Skipped

NEEDED = {
    "vllm": "vllm is not installed",
    "ropewalk.engines.vllm": "the package has no vLLM plugin",
    "gpu.vllm_plugin": "no benchmark of the plugin is written",
}


def cases(place: Place) -> list[Case]:
    """One case, for now."""
    return [Case("plugin", 20, functools.partial(measured, place))]


def measured(place: Place, left: float) -> list[Row]:
    """What the plugin's module measures, where everything that it needs is there."""
    for name, missing in NEEDED.items():
        if not importable(name):
            raise Skipped(missing)
    if place.dry:
        raise Skipped("vllm's CUDA build has no dry run")
    rows: list[Row] = importlib.import_module("gpu.vllm_plugin").measured(place, left)
    return rows


def importable(name: str) -> bool:
    """Whether there is such a module, its packages included; nothing of it is run but the packages around it."""
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False
