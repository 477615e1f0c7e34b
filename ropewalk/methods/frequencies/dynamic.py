"""Dynamic scaling: a row is stretched as much as its position needs, and not at all within the trained length.

    theta'(row) = inner's theta' with factor = s(row)
    s(row)      = 1                                     for length <= L, length = the row's position + 1
    s(row)      = min { 2^(k/steps) >= length / L }     beyond

Source: emozilla 2023, "Dynamically Scaled RoPE"; jquesnelle/yarn, LlamaDynamicYaRNScaledRotaryEmbedding.py.

Deviation: there (and in transformers) the scale is that of the longest text seen so far, in the batch and in earlier
calls, while cached keys keep the scale they were stored with. Here it belongs to the row: a short text and the start of
a long one give the base model's numbers, and a long text gives the same numbers however it is cut. The factor is
rounded up to `steps` values per doubling, so that 128 trained lengths need 28 tables; steps = nothing keeps it exact.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Annotated, Any

from ropewalk.errors import InvalidValue
from ropewalk.methods.facts import Facts
from ropewalk.methods.frequencies.frequencies import Frequencies, Table, trained_theta, without_decay
from ropewalk.methods.record import AT_LEAST_ONE, parameters


@dataclass(frozen=True, kw_only=True)
class Dynamic(Frequencies):
    name = "dynamic"
    inner: Annotated[Frequencies, "a schedule with a factor, which every row sets"]
    steps: Annotated[int | None, AT_LEAST_ONE, "factors per doubling of the length; nothing: exact"] = 4

    def check(self) -> None:
        if "factor" not in [parameter.name for parameter in parameters(type(self.inner))]:
            raise InvalidValue("inner", "a schedule with a factor", self.inner.name, remedy="take ntk or by_parts")

        if getattr(self.inner, "factor") != 1:  # noqa: B009 - only some specs have one
            raise InvalidValue("inner", "written with factor=1: every row sets its factor", str(self.inner))

    def table(self, facts: Facts, length: int) -> Table:
        factor = facts.stretch(length, self.steps)
        if factor == 1:
            return without_decay(trained_theta(facts))
        stretched: Any = replace(self.inner, **{"factor": factor})
        table: Table = stretched.table(facts, length)
        return table

    def stages(self, facts: Facts, length: int) -> tuple[int, ...]:
        return facts.stage_starts(length, self.steps)

    @property
    def stretch(self) -> float:
        """Unbounded: it grows with the text."""
        return math.inf
