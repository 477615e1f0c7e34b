"""Partial rotary: only the first dimensions of a head are rotated, the others carry no position.

    d = int(share * head_dim),   theta'_i = inner's theta_i over those d dimensions               over = rotating
    theta'_i = inner's theta_i over the whole head for 2i < share * head_dim, 0 beyond            over = head

Source: GPT-NeoX, arXiv:2204.06745, sec. 2.1.1 (share 0.25); over = head is transformers' "proportional" type.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Literal

import torch

from ropewalk.errors import DoesNotFit
from ropewalk.facts import Facts
from ropewalk.frequencies.signature import Frequencies, Table, trained, without_decay
from ropewalk.record import A_SHARE


@dataclass(frozen=True, kw_only=True)
class Partial(Frequencies):
    name = "partial"
    share: Annotated[float, A_SHARE, "share of the head that is rotated"]
    over: Annotated[Literal["rotating", "head"], "what d means in the exponent of the frequencies"] = "rotating"
    inner: Annotated[Frequencies | None, "schedule of the rotated dimensions; nothing: the trained one"] = None

    def check_against(self, facts: Facts) -> None:
        if int(self.share * facts.head_dim) < 2:
            raise DoesNotFit("share", f"at least one pair of a head of {facts.head_dim}", self.share)
        if facts.inv_freq is not None and self._dims(facts) != facts.rotating:
            rule = f"large enough for all {facts.rotating} dimensions of the model's own schedule"
            raise DoesNotFit("share", rule, self.share, remedy="+instead replaces that schedule")
        if self.inner is not None:
            self.inner.check_against(self._inner_facts(facts))

    def table(self, facts: Facts, length: int) -> Table:
        inner_facts = self._inner_facts(facts)
        table = without_decay(trained(inner_facts)) if self.inner is None else self.inner.table(inner_facts, length)
        if self.over == "rotating":
            return table
        still = torch.arange(len(table.inv_freq)) >= int(self.share * facts.head_dim) // 2
        return Table(table.inv_freq.masked_fill(still, 0), table.log_decay.masked_fill(still, 0))

    def stages(self, facts: Facts, length: int) -> tuple[int, ...]:
        return (1,) if self.inner is None else self.inner.stages(self._inner_facts(facts), length)

    def _inner_facts(self, facts: Facts) -> Facts:
        return replace(facts, rotary_dim=self._dims(facts))

    def _dims(self, facts: Facts) -> int:
        return facts.head_dim if self.over == "head" else int(self.share * facts.head_dim) // 2 * 2

    @property
    def stretch(self) -> float:
        return 1.0 if self.inner is None else self.inner.stretch
