"""The longest text that a model accepts: a table of learned positions ends, a formula does not."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import PreTrainedModel

from ropewalk.errors import DoesNotFit
from ropewalk.hf.probe.host import device_of, quiet
from ropewalk.hf.probe.rotation import has_rotation


class LearnedPositions(NamedTuple):
    """A table of learned positions in a model."""

    name: str  # of the parameter
    untouched: int  # leading rows that are no positions
    rows: int  # positions


def require_held(host: PreTrainedModel, length: int) -> None:
    """Refuse a text longer than the model's table of learned positions, where it has one."""
    stated = getattr(host.config.get_text_config(), "max_position_embeddings", None)
    if (isinstance(stated, int) and length <= stated) or has_rotation(
        host
    ):  # no table is shorter than the stated length
        return
    table = learned_positions(host)
    if table is not None and length > table.rows:
        remedy = f"convert(model, 'stretched_positions:target_len={length}') makes it longer"
        rule = f"at most the {table.rows} positions that the model has learned"
        raise DoesNotFit("length", rule, length, remedy=remedy)


@torch.no_grad()
def learned_positions(host: PreTrainedModel) -> LearnedPositions | None:
    """The shortest table of learned positions; None without any."""
    words: Any = host.get_input_embeddings()
    watch = _LookingUp(words.weight)
    with quiet(host), watch:
        host(input_ids=torch.zeros(1, 2, dtype=torch.long, device=device_of(host)), use_cache=False)
    named = {id(parameter): name for name, parameter in host.named_parameters()}
    tables = [LearnedPositions(named.get(id(table), ""), first, len(table) - first) for table, first in watch.found]
    return min(tables, key=lambda table: table.rows, default=None)


class _LookingUp(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records the tables in which two equal tokens look up neighbouring rows: those of positions."""

    def __init__(self, words: Tensor) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.words, self.found = words, list[tuple[Tensor, int]]()  # tables, and their first rows that were looked up

    def __torch_dispatch__(self, called: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if called is torch.ops.aten.embedding.default and args[0] is not self.words:
            table, places = args[0], args[1].flatten().tolist()
            if places == [places[0], places[0] + 1]:
                self.found.append((table, places[0]))
        return called(*args, **(kwargs or {}))
