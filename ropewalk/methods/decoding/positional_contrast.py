"""PCD, positional contrastive decoding: what a model says of a text, less what it says while rotated too fast.

    logp   = (1 + beta) log p(T | theta) - beta log p(T | theta')
    theta' = new_base^(-2i/d),   new_base below the model's

Source: Xiao et al. 2025, arXiv:2506.08371 (ACL 2025): faster rotation makes far keys look wrong, and the rest local.

Both read the whole text, so that reading and memory double. The paper's two numbers are the user's to choose here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from torch import Tensor

from ropewalk.errors import DoesNotFit, InvalidValue
from ropewalk.methods.decoding.decoding import Combined, Decoding, discount, require_contexts
from ropewalk.methods.facts import Facts
from ropewalk.methods.record import ABOVE_ONE, NOT_NEGATIVE


@dataclass(frozen=True, kw_only=True)
class PositionalContrast(Decoding):
    name = "positional_contrast"
    of_contexts: ClassVar[bool] = False
    beta: Annotated[float, NOT_NEGATIVE, "how strongly the fast rotation's guess is discounted"]
    new_base: Annotated[float, ABOVE_ONE, "the base of the fast rotation"]

    def check_against(self, facts: Facts) -> None:
        if self.new_base >= facts.base:
            raise DoesNotFit("new_base", f"below {facts.base:g}, the model's own base", self.new_base)

    def combine(self, logp: Tensor, last: int | None = None) -> Combined:
        """`logp` is [2, vocabulary]: under the fast rotation, and under the model's own."""
        require_contexts(logp)
        if len(logp) != 2:
            raise InvalidValue("logp", "of one text under two rotations", tuple(logp.shape))
        return Combined(discount(logp[1], logp[0], self.beta), None)
