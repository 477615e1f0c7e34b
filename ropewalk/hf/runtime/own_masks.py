"""Layers that make a mask of their own: they choose among the keys that the reach shows, and attention follows them.

Such a layer needs a real mask to begin with: 0 for a visible key, the lowest number for any other. It adds to that, or
hides more, or names the keys that it has chosen.

Legend: b batch, h head, i query, j key.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from ropewalk.attention.layout.sequences import compute_once, share_results
from ropewalk.extension.inputs import PAD, related_pairs
from ropewalk.hf.probe.capture import MASK
from ropewalk.hf.runtime.forward_pass import CURRENT, PASS, ForwardPass
from ropewalk.methods.reach import Reach

# The pass of the layer that runs, for the modules inside it: in the backward pass too, which may run layers again.
INSIDE: ContextVar[ForwardPass | None] = ContextVar("inside", default=None)


@torch.compiler.disable  # type: ignore[untyped-decorator]
def call_with_mask(
    depth: int, reach: Reach, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """The hook before such a layer: it is called with the mask of its reach, in the type of its hidden states."""
    now = kwargs.get(PASS) or CURRENT.get()
    if now is None:  # outside the extended model: attention refuses
        return None
    INSIDE.set(now)
    hidden: Tensor = kwargs["hidden_states"] if "hidden_states" in kwargs else args[0]
    visible_bij = _shared_mask(depth, reach, now, hidden.device).expand(len(hidden), -1, -1)
    zero, lowest = torch.zeros((), dtype=hidden.dtype, device=hidden.device), torch.finfo(hidden.dtype).min
    return args, {**kwargs, MASK: torch.where(visible_bij[:, None], zero, lowest)}


def model_mask(mask_bhij: Any, chosen_bin: Tensor | None, k_bgjd: Tensor) -> Tensor | None:
    """What the layer adds to its logits, by the mask that it made and the keys that it has chosen."""
    made = _additive(mask_bhij) if isinstance(mask_bhij, Tensor) else None
    if chosen_bin is None:
        return made
    keys = k_bgjd.shape[2]
    hidden_bij = torch.ones(*chosen_bin.shape[:2], keys, dtype=torch.bool, device=chosen_bin.device)
    hidden_bij.scatter_(-1, chosen_bin.long(), False)
    made = k_bgjd.new_zeros(len(k_bgjd), 1, chosen_bin.shape[1], keys) if made is None else made
    return made.masked_fill(hidden_bij[:, None], -torch.inf)


def _additive(mask_bhij: Tensor) -> Tensor:
    """A mask of flags, or of numbers whose lowest hides a key, as numbers of which -inf hides a key."""
    if mask_bhij.dtype == torch.bool:
        return torch.zeros_like(mask_bhij, dtype=torch.float32).masked_fill(~mask_bhij, -torch.inf)
    return mask_bhij.masked_fill(mask_bhij <= torch.finfo(mask_bhij.dtype).min / 2, -torch.inf)


def _shared_mask(depth: int, reach: Reach, now: ForwardPass, device: torch.device) -> Tensor:
    """Which keys of the layer's cache each query sees, once for the layers of a pass that see the same."""
    room, offset = now.rooms[depth], now.offsets[depth]
    with share_results(now.shared):
        spec = (reach, room, offset, str(device))  # the positions are those of the pass, and so is what is shared
        return compute_once("visible", spec, (), lambda: _visible(reach, now, room, offset, device), now.queries * room)


def _visible(reach: Reach, now: ForwardPass, room: int, offset: int, device: torch.device) -> Tensor:
    """[batch or 1, queries, keys]."""
    numbers_bj = torch.arange(now.total)[None] if now.numbers_bj is None else now.numbers_bj
    i_bi = numbers_bj[:, now.total - now.queries :].to(device)
    blank = max(offset + room - now.total, 0)
    j_bj = pad(numbers_bj, (0, blank), value=PAD)[:, offset : offset + room].to(device)
    related_bij = related_pairs(i_bi, j_bj, now.documents_bj)
    i_bi, j_bj = i_bi.clamp(min=0), j_bj.clamp(min=0)
    inside_bij = torch.zeros_like(related_bij)
    for span in reach.spans():
        start_bi, stop_bi = (bound[:, :, None] for bound in span.bounds(i_bi))
        inside_bij |= (start_bi <= j_bj[:, None]) & (j_bj[:, None] < stop_bi)
    return inside_bij & related_bij
