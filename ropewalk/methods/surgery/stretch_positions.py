"""Stretched position embeddings: a learned table of absolute positions is interpolated to more rows.

    row' at x = i (L - 1) / (L' - 1):   (1 - f) row[floor x] + f row[floor x + 1],   f = x - floor x      ends = kept
    row' at x = (i + 1/2) L / L' - 1/2, cut to [0, L-1]                                                   ends = centred

Source: Dosovitskiy et al. 2020 (ViT), arXiv:2010.11929, sec. 3.2; ends = centred is torch's interpolate by default.

Leading rows that are no positions (a class token's, OPT's first two) are counted by `untouched` and kept. Where a model
is converted, both the table and these rows are found by what the model looks up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor

from ropewalk.errors import DoesNotFit
from ropewalk.methods.facts import Facts
from ropewalk.methods.record import AT_LEAST_ONE, NOT_NEGATIVE
from ropewalk.methods.surgery.surgery import State, Surgery, ending_in

USUAL = "position_embeddings"  # name of the table, where no model is there to ask


@dataclass(frozen=True, kw_only=True)
class StretchPositions(Surgery):
    name = "stretch_positions"
    target_len: Annotated[int, AT_LEAST_ONE, "positions afterwards"]
    module: Annotated[str | None, "name of the table; nothing: found in the model"] = None
    untouched: Annotated[int | None, NOT_NEGATIVE, "leading rows that are no positions; nothing: found"] = None
    ends: Annotated[Literal["kept", "centred"], "first and last row stay, or pixels are centred"] = "centred"

    def convert(self, state: State, facts: Facts) -> tuple[dict[str, Tensor], Facts]:
        module = self.module or USUAL
        tables = ending_in(state, (f"{module}.weight", module), "table of learned positions")
        return {**state, **{name: self._stretch(name, state[name]) for name in tables}}, facts

    def _stretch(self, name: str, table: Tensor) -> Tensor:
        untouched = self.untouched or 0
        if not table.is_floating_point() or table.dim() != 2 or len(table) <= untouched:
            rule = f"a table of floating-point numbers with more than {untouched} rows"
            raise DoesNotFit(name, rule, f"{table.dtype} {tuple(table.shape)}")
        extra, rows = table[:untouched], table[untouched:].double()
        if self.target_len < len(rows):
            raise DoesNotFit("target_len", f"at least the {len(rows)} rows of {name}", self.target_len)
        x = self._places(len(rows)).to(rows.device)
        below = x.floor().long()
        share = (x - below).unsqueeze(-1)
        stretched = (1 - share) * rows[below] + share * rows[(below + 1).clamp(max=len(rows) - 1)]
        return torch.cat([extra, stretched.to(table.dtype)])

    def _places(self, rows: int) -> Tensor:
        i = torch.arange(self.target_len, dtype=torch.float64)
        if self.ends == "kept":
            return i * (rows - 1) / max(self.target_len - 1, 1)
        return ((i + 0.5) * rows / self.target_len - 0.5).clamp(0, rows - 1)
