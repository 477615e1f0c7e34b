"""What a run keeps on disk: which checkpoint is whole, and what becomes of one that could not be written to its end."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from transformers import TrainerState

from ropewalk.errors import DoesNotFit, RopewalkError, Unreadable, is_out_of_memory
from ropewalk.files import read_record, why
from ropewalk.folders import full

FINISHED = "trainer_state.json"  # what Trainer writes last: a checkpoint without it was cut off
NAME = r"checkpoint-[0-9]{1,15}"
OTHER_SHAPE = ("size mismatch", "parameter group")  # what torch says of a model with other, or fewer, weights


def last_checkpoint(out: Path) -> Path | None:
    """The newest checkpoint that was written to its end."""
    found = (path for path in out.glob("checkpoint-*") if re.fullmatch(NAME, path.name))
    whole = [path for path in found if (path / FINISHED).is_file()]
    return max(whole, key=_step, default=None)


def steps_done(out: str | Path) -> int:
    """How far a run has come."""
    last = last_checkpoint(Path(out))
    return _step(last) if last else 0


def what_is_kept(out: Path) -> str:
    """For whoever reads why a run broke off."""
    last = last_checkpoint(out)
    return f"the last good checkpoint is {last}" if last else "no checkpoint was kept yet"


def changed(stored: Path, now: Mapping[str, Any]) -> list[str]:
    """The settings that are others now than those that a run keeps; none where it keeps nothing yet."""
    before = read_record(stored, "the settings that a run began with") if stored.is_file() else now
    return sorted(name for name in {*now, *before} if before.get(name) != now.get(name))


def _step(checkpoint: Path) -> int:
    return int(checkpoint.name.rpartition("-")[2])


@contextmanager
def keeping(out: Path) -> Iterator[None]:
    """A disk that is full costs the checkpoint that was being written, and no other."""
    try:
        yield
    except Exception as wrong:
        if full(wrong) is None:
            raise
        for path in out.glob("checkpoint-*"):
            if not (path / FINISHED).is_file():
                shutil.rmtree(path, ignore_errors=True)
        remedy = f"{what_is_kept(out)}; make room and start again, it goes on from there"
        raise DoesNotFit("disk", f"large enough to write to {out}", str(wrong), remedy=remedy) from wrong


@contextmanager
def resuming(checkpoint: Path) -> Iterator[None]:
    """A checkpoint that cannot be read is refused by name. Files can be broken in more ways than there are errors."""
    try:
        yield
    except RopewalkError:
        raise
    except Exception as wrong:
        if is_out_of_memory(wrong):
            raise
        if any(words in str(wrong) for words in OTHER_SHAPE):
            remedy = "name another folder, or the model that began there"
            raise DoesNotFit("checkpoint", "of this model's shape", str(checkpoint), remedy=remedy) from wrong
        remedy = f"{type(wrong).__name__}: {why(wrong)}; remove it, and the run goes on from the one before"
        raise Unreadable("checkpoint", "whole, as it was written", str(checkpoint), remedy=remedy) from wrong


def require_readable(checkpoint: Path) -> None:
    """Refuse a checkpoint whose state is not what Trainer wrote."""
    with resuming(checkpoint):
        state = TrainerState.load_from_json(str(checkpoint / FINISHED))
    if state.global_step != _step(checkpoint):
        raise Unreadable("checkpoint", f"that of step {_step(checkpoint)}", f"{state.global_step} in {checkpoint}")
