"""XPos: rotation with decay (a frequency with a real part): the further away a key, the smaller its product.

    q_m,i -> q_m,i zeta_i^(m/scale_base) e^(i m theta_i)
    k_n,i -> k_n,i zeta_i^(-n/scale_base) e^(i n theta_i)
    zeta_i = (2i/d + gamma) / (1 + gamma)

Source: Sun et al. 2022, arXiv:2212.10554, eq. 14 and alg. 1; microsoft/torchscale, xpos_relative_position.py.

A larger base goes with it in Llama 2 Long's comparison (XPOS ABF; Xiong et al. 2023, arXiv:2309.16039, sec. 4.1).

Deviation: the authors centre the exponents on the middle of the text to delay overflow, which changes no product; here
the table has the rate, and the code that applies it chooses the origin. Causal attention only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch

from ropewalk.errors import DoesNotFit
from ropewalk.methods.facts import Facts
from ropewalk.methods.frequencies.frequencies import Frequencies, Table, formula, pair_index, trained_theta
from ropewalk.methods.record import ABOVE_ONE, POSITIVE


@dataclass(frozen=True, kw_only=True)
class XPos(Frequencies):
    name = "xpos"
    scale_base: Annotated[float, POSITIVE, "distance over which pair i shrinks by zeta_i"] = 512.0
    gamma: Annotated[float, POSITIVE, "keeps the decay factor of the fastest pair above zero"] = 0.4
    new_base: Annotated[float | None, ABOVE_ONE, "another base, as in abf; nothing keeps the model's own"] = None

    def check_against(self, facts: Facts) -> None:
        if self.new_base == facts.base:  # would change nothing
            raise DoesNotFit("new_base", "another than the model's own base", self.new_base)

    def table(self, facts: Facts, length: int) -> Table:
        zeta = (2 * pair_index(facts) / facts.rotating + self.gamma) / (1 + self.gamma)
        slowing = formula(facts, self.new_base) / formula(facts)
        return Table(trained_theta(facts) * slowing, torch.log(zeta) / self.scale_base)
