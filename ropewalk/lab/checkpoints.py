"""What a run keeps on disk: which checkpoint is whole, and what becomes of one that could not be written to its end."""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ropewalk.errors import DoesNotFit

FINISHED = "trainer_state.json"  # what Trainer writes last: a checkpoint without it was cut off
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# What libraries that do not raise OSError say of a write that failed: safetensors, torch.save.
WORDS = (
    "No space left on device",
    "Disk quota exceeded",
    "File too large",
    "PytorchStreamWriter failed writing",
    "inline_container.cc",
)


def last_checkpoint(out: Path) -> Path | None:
    """The newest checkpoint that was written to its end."""
    whole = [path for path in out.glob("checkpoint-*") if (path / FINISHED).is_file()]
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
    before = json.loads(stored.read_text()) if stored.is_file() else now
    return sorted(name for name in {*now, *before} if before.get(name) != now.get(name))


def _step(checkpoint: Path) -> int:
    return int(checkpoint.name.rpartition("-")[2])


@contextmanager
def keeping(out: Path) -> Iterator[None]:
    """A disk that is full costs the checkpoint that was being written, and no other."""
    try:
        yield
    except Exception as wrong:
        if not _says_full(wrong):
            raise
        for path in out.glob("checkpoint-*"):
            if not (path / FINISHED).is_file():
                shutil.rmtree(path, ignore_errors=True)
        remedy = f"{what_is_kept(out)}; make room and start again, it goes on from there"
        raise DoesNotFit("disk", f"large enough to write to {out}", str(wrong), remedy=remedy) from wrong


def _says_full(wrong: BaseException) -> bool:
    if isinstance(wrong, OSError) and wrong.errno in FULL:
        return True
    return any(word in str(wrong) for word in WORDS)
