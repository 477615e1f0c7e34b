"""Dynamic temperature: a row is sharpened as much as its position needs, and not at all within the trained length.

    scale(i) = 1                                        for i + 1 <= L
    scale(i) = inner's scale with factor = s(i)         beyond,   s(i) = min { 2^(k/steps) >= (i+1) / L }

Source: jquesnelle/yarn, LlamaDynamicYaRNScaledRotaryEmbedding.py (sec. 3.3 of the paper).

Deviation: there the factor is that of the longest text seen so far; here it belongs to the row, in the same steps as
the frequencies of the same name.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any

import torch
from torch import Tensor

from ropewalk.errors import InvalidValue
from ropewalk.methods.facts import Facts
from ropewalk.methods.record import AT_LEAST_ONE, parameters
from ropewalk.methods.scales.scale import Scale, Weights


@dataclass(frozen=True, kw_only=True)
class DynamicTemperature(Scale):
    name = "dynamic"
    of_frequencies = True
    inner: Annotated[Scale, "a temperature with a factor, which every row sets"]
    steps: Annotated[int | None, AT_LEAST_ONE, "factors per doubling of the length; nothing: exact"] = 4

    def check(self) -> None:
        if "factor" not in [parameter.name for parameter in parameters(type(self.inner))]:
            raise InvalidValue("inner", "a scale with a factor", self.inner.name, remedy="take yarn_temperature")

        if getattr(self.inner, "factor") != 1:  # noqa: B009 - only some specs have one
            raise InvalidValue("inner", "written with factor=1: every row sets its factor", str(self.inner))

    @property
    def of_rotation(self) -> bool:
        return self.inner.of_rotation

    def check_against(self, facts: Facts) -> None:
        self.inner.check_against(facts)

    def scale(self, position: Tensor, facts: Facts, weights: Weights) -> Tensor:
        scale = torch.ones_like(position, dtype=torch.float64).unsqueeze(0)
        lengths = position + 1
        longest = int(lengths.max()) if lengths.numel() else 1
        starts = torch.tensor(facts.stage_starts(longest, self.steps), device=position.device)
        stages = torch.unique(torch.searchsorted(starts, lengths.contiguous(), right=True)) - 1
        for start in starts[stages[stages > 0]].tolist():  # those that have a row
            stretched: Any = replace(self.inner, **{"factor": facts.stretch(start, self.steps)})
            scale = torch.where(lengths >= start, stretched.scale(position, facts, weights), scale)
        return scale
