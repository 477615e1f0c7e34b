"""Training on transformers' Trainer: it goes on where it was stopped, and what it keeps is good.

A run lives in one folder: the checkpoints, `plan.json` with what was asked for, and the finished model.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.utils.data import Dataset, Subset
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.integrations.integration_utils import get_available_reporting_integrations

from ropewalk.errors import Conflict, DoesNotFit, InvalidValue
from ropewalk.folders import write_whole
from ropewalk.hf.attach.handle import host_of
from ropewalk.hf.runtime.layer import PREFIX
from ropewalk.lab.data.numbering import Collator, as_trained
from ropewalk.lab.data.packs import Row
from ropewalk.lab.training.checkpoints import changed, keeping, require_readable, resuming, what_is_kept
from ropewalk.lab.training.checkpoints import last_checkpoint as last_checkpoint
from ropewalk.lab.training.parallel import dividing, divisible, require_divisible
from ropewalk.lab.training.processes import any_of_us, is_main, together
from ropewalk.lab.training.stopping import listening
from ropewalk.record import A_SHARE, AT_LEAST_ONE, NOT_NEGATIVE, POSITIVE, Checked

WATCHING = ("save_every", "log_every", "report_to", "progress")  # settings that touch no number
LONGER = ("steps", *WATCHING)  # that may be others when the run of one model goes on
PLAN = "plan.json"


@dataclass(frozen=True, kw_only=True)
class TrainingPlan(Checked):
    """How long, how fast and in what precision a model is trained."""

    steps: Annotated[int, AT_LEAST_ONE, "steps of the optimizer"]
    rows: Annotated[int, AT_LEAST_ONE, "rows of each step on each process"] = 16
    learning_rate: Annotated[float, POSITIVE, "at its highest"] = 2e-3
    warmup: Annotated[float, A_SHARE, "share of the steps in which the rate rises"] = 0.03
    decay: Annotated[float, A_SHARE, "share of the steps in which it falls to nothing"] = 0.3
    weight_decay: Annotated[float, NOT_NEGATIVE, "of AdamW"] = 0.1
    accumulate: Annotated[int, AT_LEAST_ONE, "batches of one step"] = 1
    seed: Annotated[int, NOT_NEGATIVE, "of the order of things"] = 0
    bf16: Annotated[bool, "compute in bfloat16, keep float32"] = False
    compile: Annotated[bool, "through torch.compile"] = False
    checkpointing: Annotated[bool, "compute activations twice instead of keeping them"] = False
    save_every: Annotated[int, AT_LEAST_ONE, "steps between checkpoints"] = 200
    log_every: Annotated[int, AT_LEAST_ONE, "steps between reports"] = 20
    report_to: Annotated[str, "tensorboard, or whatever else Trainer reports to; none for nothing"] = "none"
    progress: Annotated[bool, "show a bar"] = True

    def check(self) -> None:
        """Reports go where something reads them."""
        known = ["none", "all", *get_available_reporting_integrations()]  # type: ignore[no-untyped-call]
        if self.report_to not in known:
            raise InvalidValue("report_to", "one that is installed", self.report_to, known=known)


class _NaNGuardTrainer(Trainer):
    """Trainer, stopping at the first loss or gradient that is no number: what is kept stays good."""

    def training_step(self, *given: Any, **named: Any) -> Tensor:
        """Trainer's, and a look at the loss and at what it asks of the weights before any of them changes."""
        loss: Tensor = super().training_step(*given, **named)
        numbers = {"loss": float(loss), "gradient": self._norm()}
        wrong = [name for name, number in numbers.items() if not math.isfinite(number)]
        if any_of_us(bool(wrong)):
            what, step = (wrong or ["loss"])[0], self.state.global_step + 1
            kept = what_is_kept(Path(str(self.args.output_dir)))
            remedy = f"{kept}; begin in another folder with a lower learning rate"
            raise DoesNotFit(f"{what} at step {step}", "a finite number", numbers[what], remedy=remedy)
        return loss

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None:
        with resuming(Path(resume_from_checkpoint)):
            super()._load_from_checkpoint(resume_from_checkpoint, model)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        with resuming(Path(checkpoint or "")):
            super()._load_optimizer_and_scheduler(checkpoint)

    def _load_rng_state(self, checkpoint: str | None) -> None:
        with resuming(Path(checkpoint or "")):
            super()._load_rng_state(checkpoint)

    def _norm(self) -> float:
        """Of the gradients; in float16 a scale that is found by trial has them overflow now and then."""
        if self.accelerator.scaler is not None:
            return 0.0
        model: Any = self.model
        norm = torch.nn.utils.get_total_norm([each.grad for each in model.parameters() if each.grad is not None])
        return float(norm.full_tensor() if isinstance(norm, DTensor) else norm)

    def get_decay_parameter_names(self, model: nn.Module) -> list[str]:
        """Trainer's, without what an extension learns: slopes and scales are not to shrink towards 0."""
        names: list[str] = super().get_decay_parameter_names(model)
        return [name for name in names if PREFIX not in name]


def train(
    model: nn.Module,
    rows: Dataset[Row],
    plan: TrainingPlan,
    folder: str | Path,
    *,
    callbacks: Sequence[TrainerCallback] = (),
    **more: Any,
) -> Trainer:
    """Train to the end of the plan, or go on towards it; SIGTERM saves at the next step and stops.

    `more` goes to TrainingArguments as it is: whatever Trainer can do, this can. A model under an extension that has
    positions for training gets rows with such numbers. Rows may bring callbacks, and a record of what they are.
    """
    out = Path(folder)
    given = arguments(plan, out, **more)  # several processes find each other here
    parts = dividing(given)
    require_divisible(model, parts)
    rows = as_trained(model, rows, seed=plan.seed)
    needed = given.max_steps * given.per_device_train_batch_size * given.gradient_accumulation_steps * given.world_size
    with keeping(out), _caching_as_before(model), listening() as heard:
        _require_same_plan(plan, out, getattr(rows, "record", {}))
        trainer = _NaNGuardTrainer(
            model=model,
            args=given,
            train_dataset=_first(rows, needed),
            data_collator=divisible(Collator(model), parts),
            callbacks=[heard, *getattr(rows, "callbacks", ()), *callbacks],
        )
        _run(trainer, last_checkpoint(out))
    return trainer


@contextmanager
def _caching_as_before(model: nn.Module) -> Iterator[None]:
    """Trainer turns the cache off in the config; whoever uses the trained model would write without one."""
    config = host_of(model).config
    before = config.use_cache
    try:
        yield
    finally:
        config.use_cache = before


def _first(rows: Dataset[Row], count: int) -> Dataset[Row]:
    """As many rows as a plan reads: with more, a finished run that is started again would take one more step."""
    return Subset(rows, range(count)) if len(rows) > count else rows  # type: ignore[arg-type]


def _run(trainer: Trainer, last: Path | None) -> None:
    if last is not None:
        require_readable(last)
    try:
        trainer.train(resume_from_checkpoint=str(last) if last else None)
    finally:  # else the model would go on computing in half precision
        trainer.accelerator.unwrap_model(trainer.model, keep_fp32_wrapper=False)


def arguments(plan: TrainingPlan, out: Path, **more: Any) -> TrainingArguments:
    """A plan in Trainer's words."""
    decay, warmup = (max(1, round(plan.steps * share)) for share in (plan.decay, plan.warmup))
    given = {
        "output_dir": str(out),
        "max_steps": plan.steps,
        "per_device_train_batch_size": plan.rows,
        "gradient_accumulation_steps": plan.accumulate,
        "learning_rate": plan.learning_rate,
        "lr_scheduler_type": "warmup_stable_decay",
        "lr_scheduler_kwargs": {"num_decay_steps": decay, "decay_type": "linear"},
        "warmup_steps": min(warmup, plan.steps - decay),
        "weight_decay": plan.weight_decay,
        "adam_beta2": 0.95,
        "bf16": plan.bf16,
        "torch_compile": plan.compile,
        "activation_checkpointing": plan.checkpointing,
        "use_cpu": not torch.cuda.is_available(),
        "train_sampling_strategy": "sequential",  # rows are shuffled as they are made
        "save_steps": plan.save_every,
        "save_total_limit": 2,
        "logging_steps": plan.log_every,
        "logging_nan_inf_filter": False,
        "report_to": plan.report_to,
        "disable_tqdm": not plan.progress,
        "remove_unused_columns": False,
        "dataloader_pin_memory": torch.cuda.is_available(),
        "seed": plan.seed,
    }
    return TrainingArguments(**{**given, **more})


def _require_same_plan(plan: TrainingPlan, out: Path, record: Mapping[str, Any]) -> None:
    """A run goes on as it began: only its length, and what does not touch the numbers, may change."""
    now = {name: value for name, value in dataclasses.asdict(plan).items() if name not in LONGER} | dict(record)
    stored = out / PLAN
    others = changed(stored, now)
    if others:
        raise Conflict("plan", f"as it began ({stored})", ", ".join(others), remedy="name another folder")
    together()  # nobody reads while one writes
    if is_main():
        write_whole(stored, json.dumps(now, indent=2) + "\n")
