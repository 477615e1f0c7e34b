"""The longest text that a model accepts: a table of learned positions ends, a formula does not."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import PreTrainedModel

from ropewalk.errors import DoesNotFit
from ropewalk.hf.probe.probe import device_of, quiet
from ropewalk.hf.probe.rotation.modules import turns


def require_held(host: PreTrainedModel, length: int) -> None:
    """Refuse a text longer than the model's table of learned positions, where it has one."""
    stated = getattr(host.config.get_text_config(), "max_position_embeddings", None)
    if (isinstance(stated, int) and length <= stated) or turns(host):  # no table is shorter than the stated length
        return
    rows = positions_of(host)
    if rows is not None and length > rows:
        remedy = "convert(model, 'stretched_positions:...') makes it longer"
        raise DoesNotFit("length", f"at most the {rows} positions that the model has learned", length, remedy=remedy)


@torch.no_grad()
def positions_of(host: PreTrainedModel) -> int | None:
    """How many learned positions the model has; None without such a table."""
    words: Any = host.get_input_embeddings()
    watch = _LookingUp(words.weight)
    with quiet(host), watch:
        host(input_ids=torch.zeros(1, 2, dtype=torch.long, device=device_of(host)), use_cache=False)
    return min(watch.lengths, default=None)


class _LookingUp(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records the tables in which two equal tokens look up neighbouring rows: those of positions."""

    def __init__(self, words: Tensor) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.words, self.lengths = words, list[int]()

    def __torch_dispatch__(self, called: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if called is torch.ops.aten.embedding.default and args[0] is not self.words:
            table, places = args[0], args[1].flatten().tolist()
            if places == [places[0], places[0] + 1]:
                self.lengths.append(len(table) - places[0])
        return called(*args, **(kwargs or {}))
