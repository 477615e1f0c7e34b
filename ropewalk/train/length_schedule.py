"""A length schedule: rows become longer (and the base larger) after shares of the steps; tokens per batch stay the
same.

Source: Xiong et al. 2023 (Llama 2 Long), arXiv:2309.16039, sec. 2 and 4.4: short rows first and long ones for the rest
of the budget cost 40 % less than long ones throughout, and are as good; the base rises with the length.

An item of the data set holds the tokens of one row of the longest length, as that row or as several shorter ones. This
depends on the item's index alone: resuming needs no state, and loaders can read ahead.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import TrainerCallback

from ropewalk.errors import Conflict, DoesNotFit, InvalidValue
from ropewalk.hf.attach.handle import handle_of, host_of
from ropewalk.hf.probe.rotation import rotary_modules
from ropewalk.train.data.packs import Row, collate_items, require_rows
from ropewalk.train.train import TrainingPlan

SHARES_ATOL = 1e-6  # of shares to 1


class LengthStage(NamedTuple):
    """One stage of the schedule."""

    share: float  # of the steps
    rows: Dataset[Row]  # of one length
    base: float | None = None  # rotary base from here on; None: unchanged


class LengthSchedule(Dataset[Row]):
    """Stages one after the other, as the data set for one plan."""

    def __init__(self, stages: Sequence[LengthStage], plan: TrainingPlan, *, processes: int | None = None) -> None:
        shares = [stage.share for stage in stages]
        if not shares or min(shares) <= 0 or abs(sum(shares) - 1) > SHARES_ATOL:
            raise InvalidValue("shares", "all above 0, with a sum of 1", shares)
        self._stages = stages
        lengths = [len(stage.rows[0]["input_ids"]) for stage in stages]
        self._parts = [_parts(max(lengths), length) for length in lengths]
        self.ends = stage_ends(shares, plan.steps)
        per_step = plan.rows * plan.accumulate * (processes or int(os.environ.get("WORLD_SIZE", "1")))
        self._ends = [end * per_step for end in self.ends]
        for nth, (stage, count) in enumerate(zip(stages, self._counts(), strict=True)):
            require_rows(f"stage {nth}", stage.rows, count)
        self.callbacks = (StageSwitch(plan, self.ends, lengths, [stage.base for stage in stages]),)
        self.record = {
            "course": [list(stage_record) for stage_record in zip(self._ends, lengths, self._bases(), strict=True)]
        }

    def __len__(self) -> int:
        return self._ends[-1]

    def __getitem__(self, index: int) -> Row:
        nth = bisect_right(self._ends, index)
        first = (index - (self._ends[nth - 1] if nth else 0)) * self._parts[nth]
        return collate_items([self._stages[nth].rows[first + n] for n in range(self._parts[nth])])

    def _bases(self) -> list[float | None]:
        return [stage.base for stage in self._stages]

    def _counts(self) -> list[int]:
        """The rows that each stage reads."""
        begins = [0, *self._ends]
        return [(begins[n + 1] - begins[n]) * parts for n, parts in enumerate(self._parts)]


class StageSwitch(TrainerCallback):
    """Changes the model where a stage begins: its base, and the maximum length in its config."""

    def __init__(
        self, plan: TrainingPlan, ends: Sequence[int], lengths: Sequence[int], bases: Sequence[float | None]
    ) -> None:
        self._plan, self._ends, self._lengths, self._bases = plan, ends, lengths, bases
        self._now = -1

    def on_train_begin(self, args: Any, state: Any, control: Any, **inputs: Any) -> None:
        """Refuse what cannot be changed later; a schedule that has ended already sets the state of its end."""
        self._now = -1
        _require_same(self._plan, args)
        if any(base is not None for base in self._bases):
            _require_own_base(inputs["model"])
        self.on_step_begin(args, state, control, **inputs)

    def on_step_begin(self, args: Any, state: Any, control: Any, **inputs: Any) -> None:
        """Set the stage of this step, also when training resumes."""
        nth = min(bisect_right(self._ends, state.global_step), len(self._ends) - 1)
        if nth == self._now:
            return
        self._now, config = nth, host_of(inputs["model"]).config.get_text_config()
        config.max_position_embeddings = max(config.max_position_embeddings, self._lengths[nth])
        stated = [base for base in self._bases[: nth + 1] if base is not None]
        if stated:
            set_base(inputs["model"], stated[-1])


def set_base(model: nn.Module, base: float) -> None:
    """Change the base of a model's rotation, in its config too, so that it is saved."""
    _require_own_base(model)
    host = host_of(model)
    config: Any = host.config.get_text_config()
    config.rope_parameters = {**config.rope_parameters, "rope_theta": base}
    for module in rotary_modules(host):
        with torch.no_grad():
            table = type(module)(config).inv_freq
            for name in ("inv_freq", "original_inv_freq"):
                frequencies: Any = getattr(module, name)
                frequencies.copy_(table)


def _require_same(plan: TrainingPlan, args: Any) -> None:
    """Refuse a training with other steps than the schedule's."""
    planned = plan.steps, plan.rows, plan.accumulate
    got = args.max_steps, args.per_device_train_batch_size, args.gradient_accumulation_steps
    if got != planned:
        rule = "that of the length schedule: {} steps of {} rows, {} batches each".format(*planned)
        raise Conflict("plan", rule, got, remedy="make the schedule with the plan of the training")


def _require_own_base(model: nn.Module) -> None:
    """Refuse a rotation that is not set by its base alone."""
    host = host_of(model)
    if handle_of(host) is not None:
        remedy = "train the base model with the schedule, and extend it afterwards"
        raise Conflict("model", "without an extension where a length schedule sets the base", "extended", remedy=remedy)
    rotary_modules(host)
    kind = (host.config.get_text_config().rope_parameters or {}).get("rope_type")
    if kind != "default":
        raise DoesNotFit("rope_type", "default where a length schedule sets the base", kind)


def _parts(longest: int, length: int) -> int:
    if longest % length:
        raise DoesNotFit("length", f"a divisor of the longest ({longest}), so that batches keep their size", length)
    return longest // length


def stage_ends(shares: Sequence[float], steps: int) -> list[int]:
    """The step at which each stage ends; the last is the plan's."""
    ends = [round(steps * sum(shares[: n + 1])) for n in range(len(shares) - 1)] + [steps]
    if any(end <= begin for begin, end in zip([0, *ends], ends, strict=False)):
        raise DoesNotFit.because("shares", f"each share must be at least one step of {steps}, got {list(shares)}")
    return ends
