"""PoSE: two chunks of a short text, numbered as if much text lay between them.

    0, ..., cut-1,  cut+skip, ..., n-1+skip
    cut  ~ uniform{1, ..., (n+1)//2},   skip ~ uniform{0, ..., target_len - n}

Source: Zhu et al. 2023, arXiv:2309.10400, sec. 3.2; dwzhu-pku/PoSE, src/train_pose.py:158-187.

The authors also take the second chunk's tokens from elsewhere in the document; that is left to the code that makes the
batch. Drawn at every call (in their code once per document, then cached). Without a generator: sequential.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Generator, Tensor

from ropewalk.errors import InvalidValue
from ropewalk.methods.positions.positions import Positions, draw, require_length
from ropewalk.methods.record import AT_LEAST_ONE


@dataclass(frozen=True, kw_only=True)
class PoSE(Positions):
    name = "pose"
    target_len: Annotated[int, AT_LEAST_ONE, "length that training simulates"]

    def number(self, length: int, generator: Generator | None = None) -> Tensor:
        require_length(length)
        if length > self.target_len:
            raise InvalidValue("length", f"at most target_len ({self.target_len})", length)
        if generator is None or length == 0:
            return torch.arange(length)
        cut = draw(1, (length + 1) // 2, generator)
        return skip_numbers(length, cut, draw(0, self.target_len - length, generator))


def skip_numbers(length: int, cut: int, skip: int) -> Tensor:
    """0 .. length-1, with `skip` numbers left out before the number at `cut`."""
    positions = torch.arange(length)
    return torch.where(positions < cut, positions, positions + skip)
