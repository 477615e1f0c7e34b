"""DPE: Self-Extend with a group size of its own for each band of neighbouring pairs.

    [i-w+1, i+1):   distance = i - j                                of every pair
    [0, i-w+1):     distance = i//G_p - j//G_p + w - w//G_p         of pair p
    G_p           = groups[p * bands // pairs]                      pair 0 turns fastest

Source: Lu et al. 2025, arXiv:2504.18857; LuLuLuyi/DPE, dpe_for_llama.py, config/dpe_config.yaml (w 1,024, 8 bands).

The authors find the sizes by a test of each model, in steps: for Llama 3.1 2, 32, 32, 2, 2, 2, 2, 1. Here they are
given. Their option to leave some pairs of each head as trained is left out. For biases a far key is at the distance of
the smallest group, the largest but for rounding.

Deviation: the authors' prefill shifts by w - w/G with a fraction, their decoding by w - w//G. Here it is w - w//G. They
name the bounds of the bands; here all are as even as the number of pairs allows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from ropewalk.errors import DoesNotFit, InvalidValue
from ropewalk.methods.facts import Facts
from ropewalk.methods.reach.reach import PairPlaces, Reach, Span, always, before, last, require_trained
from ropewalk.methods.record import AT_LEAST_ONE


@dataclass(frozen=True, kw_only=True)
class DPE(Reach):
    name = "dpe"
    window: Annotated[int, AT_LEAST_ONE, "w: keys nearer than this keep their positions in every band"]
    groups: Annotated[tuple[int, ...], AT_LEAST_ONE, "G: how many far tokens share a position, for each band of pairs"]

    def check(self) -> None:
        if not self.groups:
            raise InvalidValue("groups", "one size for each band of pairs", self.groups)

    def check_against(self, facts: Facts) -> None:
        require_trained("window", self.window, facts, largest=facts.trained_len - 1)
        pairs = facts.rotating // 2
        if len(self.groups) > pairs:
            remedy = "name fewer bands; two neighbours may become one"
            raise DoesNotFit("groups", f"at most {pairs}, one for each pair", len(self.groups), remedy=remedy)

    def spans(self) -> tuple[Span, ...]:
        finest = min(self.groups)
        near = last(self.window)
        far = Span(
            start=always(0),
            stop=before(self.window),
            q_at=lambda i: i // finest + self.window - self.window // finest,
            k_at=lambda j: j // finest,
            pairs=PairPlaces(
                q_at=lambda i, turns: i // self._sizes(turns) + self.window - self.window // self._sizes(turns),
                k_at=lambda j, turns: j // self._sizes(turns),
            ),
        )
        return near, far

    def _sizes(self, turns: Tensor) -> Tensor:
        """G of each pair. How often pairs turn is not asked, only how many there are."""
        bands = torch.arange(len(turns)) * len(self.groups) // len(turns)
        return torch.tensor(self.groups)[bands].to(turns.device)
