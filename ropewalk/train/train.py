"""Training on transformers' Trainer: it resumes where it was stopped, and never saves broken weights.

A run has one folder: the checkpoints, `plan.json`, and the finished model.
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
from ropewalk.methods.record import A_SHARE, AT_LEAST_ONE, NOT_NEGATIVE, POSITIVE, Checked
from ropewalk.train.checkpoints import (
    changed_settings,
    last_checkpoint,
    reporting_full_disk,
    require_no_fewer,
    require_readable,
    resuming,
    what_is_kept,
)
from ropewalk.train.data.numbering import Collator, number_rows
from ropewalk.train.data.packs import Row
from ropewalk.train.processes import (
    alone_in,
    any_of_us,
    check_rows,
    is_main,
    processes_per_row,
    recording_signals,
    require_divisible,
    wait_for_all,
)

WATCHING = ("save_every", "log_every", "report_to", "progress", "workers")  # settings that do not change the result
LONGER = ("steps", *WATCHING)  # settings that may change when a run is resumed
PLAN = "plan.json"
# Its name in TrainingArguments from transformers 5.20 on, and before.
CHECKPOINTING = next(
    name for name in ("activation_checkpointing", "gradient_checkpointing") if name in TrainingArguments.__annotations__
)


@dataclass(frozen=True, kw_only=True)
class TrainingPlan(Checked):
    """How long, how fast and in what precision a model is trained."""

    steps: Annotated[int, AT_LEAST_ONE, "steps of the optimizer"]
    rows: Annotated[int, AT_LEAST_ONE, "rows per step and process"] = 16
    learning_rate: Annotated[float, POSITIVE, "highest learning rate"] = 2e-3
    warmup: Annotated[float, A_SHARE, "share of the steps with a rising rate"] = 0.03
    decay: Annotated[float, A_SHARE, "share of the steps in which the rate falls to 0"] = 0.3
    weight_decay: Annotated[float, NOT_NEGATIVE, "weight decay of AdamW"] = 0.1
    accumulate: Annotated[int, AT_LEAST_ONE, "batches of a step (gradient accumulation)"] = 1
    seed: Annotated[int, NOT_NEGATIVE, "random seed of data and initial weights"] = 0
    bf16: Annotated[bool, "compute in bfloat16, with float32 weights"] = False
    compile: Annotated[bool, "use torch.compile"] = False
    checkpointing: Annotated[bool, "recompute activations to save memory"] = False
    save_every: Annotated[int, AT_LEAST_ONE, "steps between checkpoints"] = 200
    log_every: Annotated[int, AT_LEAST_ONE, "steps between reports"] = 20
    report_to: Annotated[str, "tensorboard or another integration of Trainer; none for no reports"] = "none"
    progress: Annotated[bool, "show progress bars"] = True
    workers: Annotated[int, NOT_NEGATIVE, "processes that prepare rows, so that a GPU need not wait; 0 for none"] = 0

    def check(self) -> None:
        """The integration for reports must be installed."""
        known = ["none", "all", *get_available_reporting_integrations()]  # type: ignore[no-untyped-call]
        if self.report_to not in known:
            raise InvalidValue("report_to", "an installed integration", self.report_to, known=known)


class _NaNGuardTrainer(Trainer):
    """Trainer that stops at the first NaN or infinite loss or gradient, before the weights change."""

    def training_step(self, *arguments: Any, **named: Any) -> Tensor:
        """Trainer's step, with a check of loss and gradients before the weights change."""
        loss: Tensor = super().training_step(*arguments, **named)
        numbers = {"loss": float(loss), "gradient": self._norm()}
        bad = [name for name, number in numbers.items() if not math.isfinite(number)]
        if any_of_us(bool(bad)):
            what, step = (bad or ["loss"])[0], self.state.global_step + 1
            saved = what_is_kept(Path(str(self.args.output_dir)))
            remedy = f"{saved}; begin in another folder with a lower learning rate"
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
        """The norm of the gradients; not in float16, where the loss scaler makes them overflow now and then."""
        if self.accelerator.scaler is not None:
            return 0.0
        model: Any = self.model
        norm = torch.nn.utils.get_total_norm(
            [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
        )
        return float(norm.full_tensor() if isinstance(norm, DTensor) else norm)

    def get_decay_parameter_names(self, model: nn.Module) -> list[str]:
        """Trainer's, without an extension's parameters: weight decay must not shrink slopes and scales."""
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
    """Train to the end of the plan, or resume towards it; SIGTERM saves after the current step and stops.

    Args:
        model: is trained in place. Under an extension with positions for training, rows are numbered by them.
        rows: a data set of rows. It may have `callbacks` for Trainer, and a `record` that describes it: a run that was
            begun with another one is refused.
        plan: how long, how fast and in what precision.
        folder: of checkpoints and of plan.json.
        callbacks: of Trainer.
        more: passed on to TrainingArguments, so that everything Trainer can do is available.
    """
    out = Path(folder)
    training_arguments = arguments(plan, out, **more)  # connects the processes
    parts = processes_per_row(training_arguments)
    require_divisible(model, parts)
    rows = number_rows(model, rows, seed=plan.seed)
    needed = (
        training_arguments.max_steps
        * training_arguments.per_device_train_batch_size
        * training_arguments.gradient_accumulation_steps
        * training_arguments.world_size
    )
    with alone_in(out), reporting_full_disk(out), _caching_as_before(model), recording_signals() as stopping:
        _require_same_plan(plan, out, getattr(rows, "record", {}))
        trainer = _NaNGuardTrainer(
            model=model,
            args=training_arguments,
            train_dataset=_first(rows, needed),
            data_collator=check_rows(Collator(model), parts),
            callbacks=[stopping, *getattr(rows, "callbacks", ()), *callbacks],
        )
        _run(trainer, last_checkpoint(out))
    return trainer


@contextmanager
def _caching_as_before(model: nn.Module) -> Iterator[None]:
    """Restore `use_cache`, which Trainer turns off in the config: the trained model would generate without a cache."""
    config = host_of(model).config.get_text_config()
    before = config.use_cache
    try:
        yield
    finally:
        config.use_cache = before


def _first(rows: Dataset[Row], count: int) -> Dataset[Row]:
    """The rows that a plan reads: with more, a finished run that is started again would take one more step."""
    return Subset(rows, range(count)) if len(rows) > count else rows  # type: ignore[arg-type]


def _run(trainer: Trainer, last: Path | None) -> None:
    if last is not None:
        require_readable(last)
        require_no_fewer(trainer.args.max_steps, last.parent)
    try:
        trainer.train(resume_from_checkpoint=str(last) if last else None)
    finally:  # else the model would keep computing in half precision
        trainer.accelerator.unwrap_model(trainer.model, keep_fp32_wrapper=False)


def arguments(plan: TrainingPlan, out: Path, **more: Any) -> TrainingArguments:
    """A plan as TrainingArguments."""
    decay, warmup = (max(1, round(plan.steps * share)) for share in (plan.decay, plan.warmup))
    from_plan = {
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
        CHECKPOINTING: plan.checkpointing,
        "use_cpu": not torch.cuda.is_available(),
        "train_sampling_strategy": "sequential",  # the data set shuffles its rows
        "save_steps": plan.save_every,
        "save_total_limit": 2,
        "logging_steps": plan.log_every,
        "logging_nan_inf_filter": False,
        "report_to": plan.report_to,
        "disable_tqdm": not plan.progress,
        "remove_unused_columns": False,
        "dataloader_pin_memory": torch.cuda.is_available(),
        "dataloader_num_workers": plan.workers,
        "seed": plan.seed,
    }
    return TrainingArguments(**{**from_plan, **more})


def _require_same_plan(plan: TrainingPlan, out: Path, record: Mapping[str, Any]) -> None:
    """Refuse other settings than a run began with, except its length and what does not change results."""
    now = {name: value for name, value in dataclasses.asdict(plan).items() if name not in LONGER} | dict(record)
    stored = out / PLAN
    others = changed_settings(stored, now)
    if others:
        sentence = f"the run began with other values of {', '.join(others)} ({stored})"
        raise Conflict.because("plan", sentence, remedy="choose another folder")
    wait_for_all()  # no process reads while one writes
    if is_main():
        write_whole(stored, json.dumps(now, indent=2) + "\n")
