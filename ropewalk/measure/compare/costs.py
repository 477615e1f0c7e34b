"""What an extension costs and where it runs, by computation alone: the same on every machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch

from ropewalk.engines.export.export import require_exportable
from ropewalk.engines.export.plugin import plans_for
from ropewalk.errors import RopewalkError
from ropewalk.extension.extension import Extension
from ropewalk.hf.attach.handle import Handle, host_of
from ropewalk.hf.use.inspect import Inspection
from ropewalk.measure.material.subject import Subject

ENGINE = "vllm"
Deployment = Literal["static", "plugin", "here"]
DEPLOYMENTS: tuple[Deployment, ...] = ("static", "plugin", "here")  # from the easiest


def key_share(extension: Extension, inspection: Inspection) -> float:
    """The query-key pairs of all layers at the target length, over those of full attention.

    1 where every query sees all keys before it; layers with a window of the model's own keep it.
    """
    length, rows = inspection.target_len, torch.arange(inspection.target_len)
    pairs = 0
    for depth, layer in enumerate(inspection.layers):
        reach = layer.reach or extension.at_layer(depth, inspection.facts).spans
        for span in reach.spans():
            start, stop = span.bounds(rows)
            pairs += int((stop - start).sum())
    return pairs / (len(inspection.layers) * length * (length + 1) / 2)


def deployment(subject: Subject, extension: Extension, target_len: int) -> Deployment:
    """Where an extension runs: `static` in vLLM as it is, `plugin` in vLLM with Ropewalk beside it, `here` alone."""
    if extension == Extension():
        return "static"
    with subject.under(extension) as handle:
        if _is_accepted(lambda: _require_static(subject, handle, target_len)):
            return "static"
        return "plugin" if _is_accepted(lambda: plans_for(host_of(subject.model), handle, target_len)) else "here"


def _require_static(subject: Subject, handle: Handle, target_len: int) -> None:
    host = host_of(subject.model)
    require_exportable(host, handle.extension, handle.layers, handle.facts, ENGINE, target_len)


def _is_accepted(attempt: Callable[[], Any]) -> bool:
    try:
        attempt()
    except RopewalkError:
        return False
    return True
