"""Multi-head to grouped-query attention: the key and value heads of each group are averaged into one.

    K'_g = mean { K_h : h in group g },   V'_g likewise,   group g = heads g n .. g n + n-1,   n = heads / kv_heads

Source: Ainslie et al. 2023, arXiv:2305.13245, sec. 2.1.

Groups are contiguous, as in every implementation of grouped attention; biases are averaged too. Since all heads share
their positions, pooling and rotation commute; a norm per key head would not. The paper then trains for 5 % of the
original steps.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

from torch import Tensor

from ropewalk.errors import DoesNotFit
from ropewalk.methods.facts import Facts
from ropewalk.methods.record import AT_LEAST_ONE
from ropewalk.methods.surgery.surgery import State, Surgery, ending_in


@dataclass(frozen=True, kw_only=True)
class MHAToGQA(Surgery):
    name = "mha_to_gqa"
    kv_heads: Annotated[int, AT_LEAST_ONE, "key and value heads that remain"]
    modules: Annotated[tuple[str, ...], "names of the projections"] = ("k_proj", "v_proj")

    def check_against(self, facts: Facts) -> None:
        if facts.groups % self.kv_heads:
            raise DoesNotFit("kv_heads", f"a divisor of the model's {facts.groups} key heads", self.kv_heads)

    def convert(self, state: State, facts: Facts) -> tuple[dict[str, Tensor], Facts]:
        self.check_against(facts)
        names = [name for module in self.modules for name in ending_in(state, (f"{module}.weight", f"{module}.bias"))]
        pooled = {name: self._pool(name, state[name], facts) for name in names}
        return {**state, **pooled}, replace(facts, kv_heads=self.kv_heads)

    def _pool(self, name: str, projection: Tensor, facts: Facts) -> Tensor:
        rows = facts.groups * facts.head_dim
        if projection.dim() == 0 or projection.shape[0] != rows:
            raise DoesNotFit(name, f"of {rows} rows (key heads x head_dim)", tuple(projection.shape))
        rest = projection.shape[1:]
        grouped = projection.double().reshape(self.kv_heads, -1, facts.head_dim, *rest)
        return grouped.mean(1).reshape(-1, *rest).to(projection.dtype)
