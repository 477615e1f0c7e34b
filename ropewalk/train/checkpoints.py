"""Checkpoints of a run: which are complete, and what happens to incomplete and damaged ones."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from transformers import TrainerState

from ropewalk.errors import DoesNotFit, InvalidValue, RopewalkError, Unreadable, is_out_of_memory
from ropewalk.files import read_record, why
from ropewalk.folders import full_disk_error

FINISHED = "trainer_state.json"  # Trainer writes it last: a checkpoint without it is incomplete
NAME = r"checkpoint-[0-9]{1,15}"
OTHER_SHAPE = ("size mismatch", "parameter group")  # torch's messages for a model with other weights


def last_checkpoint(out: Path) -> Path | None:
    """The newest complete checkpoint."""
    paths = (path for path in out.glob("checkpoint-*") if re.fullmatch(NAME, path.name))
    whole = [path for path in paths if (path / FINISHED).is_file()]
    return max(whole, key=_step, default=None)


def steps_done(out: str | Path) -> int:
    """The steps of the newest checkpoint."""
    last = last_checkpoint(Path(out))
    return _step(last) if last else 0


def require_no_fewer(steps: int, out: Path) -> None:
    """Refuse a plan that is shorter than what is done: the folder's model is the longer one."""
    done = steps_done(out)
    if steps < done:
        raise InvalidValue(
            "steps", f"at least {done}, the steps already done in {out}", steps, remedy="choose another folder"
        )


def what_is_kept(out: Path) -> str:
    """A remark on the last checkpoint, for error messages."""
    last = last_checkpoint(out)
    return f"the last good checkpoint is {last}" if last else "there is no checkpoint yet"


def changed_settings(
    stored: Path, now: Mapping[str, Any], defaults: Mapping[str, Any] = MappingProxyType({})
) -> list[str]:
    """The settings that differ from the stored ones of a run; none where nothing is stored yet.

    A run that is older than a setting began with its default.
    """
    if not stored.is_file():
        return []
    older = {name: value for name, value in defaults.items() if name in now}
    before = {**older, **read_record(stored, "the settings that a run began with")}
    return sorted(name for name in {*now, *before} if before.get(name) != now.get(name))


def _step(checkpoint: Path) -> int:
    return int(checkpoint.name.rpartition("-")[2])


@contextmanager
def reporting_full_disk(out: Path) -> Iterator[None]:
    """Report a full disk, and remove the checkpoint that was being written, and no other."""
    try:
        yield
    except Exception as wrong:
        if full_disk_error(wrong) is None:
            raise
        for path in out.glob("checkpoint-*"):
            if not (path / FINISHED).is_file():
                shutil.rmtree(path, ignore_errors=True)
        remedy = f"{what_is_kept(out)}; make room and start again, it resumes there"
        raise DoesNotFit("disk", f"large enough to write to {out}", str(wrong), remedy=remedy) from wrong


@contextmanager
def resuming(checkpoint: Path) -> Iterator[None]:
    """Report a checkpoint that cannot be read, whatever its files raise."""
    try:
        yield
    except RopewalkError:
        raise
    except Exception as wrong:
        if is_out_of_memory(wrong):
            raise
        if any(words in str(wrong) for words in OTHER_SHAPE):
            remedy = "take another folder, or the model that began there"
            raise DoesNotFit("checkpoint", "of this model's shape", str(checkpoint), remedy=remedy) from wrong
        remedy = f"{type(wrong).__name__}: {why(wrong)}; remove it, and the run resumes from the one before"
        raise Unreadable("checkpoint", "complete and unchanged", str(checkpoint), remedy=remedy) from wrong


def require_readable(checkpoint: Path) -> None:
    """Refuse a checkpoint with a damaged trainer state."""
    with resuming(checkpoint):
        state = TrainerState.load_from_json(str(checkpoint / FINISHED))
    if state.global_step != _step(checkpoint):
        raise Unreadable("checkpoint", f"that of step {_step(checkpoint)}", f"{state.global_step} in {checkpoint}")
