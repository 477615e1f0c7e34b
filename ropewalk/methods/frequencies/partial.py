"""Partial rotary: only the first pairs of a head are rotated, the others carry no position.

    d = 2 int(share * head_dim / 2),   theta'_i = inner's theta_i over those d dimensions           over = rotating
    theta'_i = inner's theta_i for i < int(share * d / 2), 0 beyond,   d = what the model rotates   over = head

Source: Black et al. 2022 (GPT-NeoX), arXiv:2204.06745, sec. 2.1.1 (share 0.25); over = head is p-RoPE, Barbero et al.
2024, arXiv:2410.06205, and transformers' "proportional" type.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Literal

import torch
from torch import Tensor

from ropewalk.errors import DoesNotFit
from ropewalk.methods.facts import Facts
from ropewalk.methods.frequencies.frequencies import Frequencies, Table, inner_table, moving, pair_index, trained_theta
from ropewalk.methods.record import A_SHARE


@dataclass(frozen=True, kw_only=True)
class Partial(Frequencies):
    name = "partial"
    wraps = True
    share: Annotated[float, A_SHARE, "share of the head that is rotated"]
    over: Annotated[Literal["rotating", "head"], "what d means in the exponent of the frequencies"] = "rotating"
    inner: Annotated[Frequencies | None, "schedule of the rotated dimensions; nothing: the trained one"] = None

    def check_against(self, facts: Facts) -> None:
        dims, whole = facts.head_dim, f"a head of {facts.head_dim}"
        if self.over == "head":
            dims, whole = facts.rotating, f"the {facts.rotating} dimensions that rotate"
        if int(self.share * dims) < 2:
            raise DoesNotFit("share", f"at least one pair of {whole}", self.share)
        if self.over == "head":
            self._require_a_change(facts)
        elif facts.inv_freq is not None and self._dims(facts) != facts.rotating:
            rule = f"large enough for all {facts.rotating} dimensions of the model's own schedule"
            raise DoesNotFit("share", rule, self.share, remedy="+instead replaces that schedule")
        super().check_against(self._inner_facts(facts))

    def _require_a_change(self, facts: Facts) -> None:
        """Refuse to stop pairs none of which the model rotates, as in Gemma 4."""
        rotates, still = moving(trained_theta(facts)), self._still(facts)
        if still.any() and not rotates[still].any():
            share = float(rotates.double().mean())
            raise DoesNotFit("share", f"below {share:g}, the share of the pairs that the model rotates", self.share)

    def table(self, facts: Facts, length: int) -> Table:
        table = inner_table(self, self._inner_facts(facts), length)
        if self.over == "rotating":
            return table
        still = self._still(facts)
        return Table(table.inv_freq.masked_fill(still, 0), table.log_decay.masked_fill(still, 0))

    def stages(self, facts: Facts, length: int) -> tuple[int, ...]:
        return super().stages(self._inner_facts(facts), length)

    def _still(self, facts: Facts) -> Tensor:
        """The pairs that are stopped."""
        return torch.as_tensor(pair_index(facts) >= int(self.share * facts.rotating) // 2)

    def _inner_facts(self, facts: Facts) -> Facts:
        return facts if self.over == "head" else replace(facts, rotary_dim=self._dims(facts))

    def _dims(self, facts: Facts) -> int:
        return int(self.share * facts.head_dim) // 2 * 2
