"""Whether a schedule is in force in an engine that is running: it is asked for log-probabilities of one long text.

    in force      they are those of the model with its schedule
    not applied   they are those of the same weights without it
    cannot tell   the two are too near each other in this text, the engine is near neither, or it gives none

A configuration can be accepted and not be applied; what is computed shows. Every part of the text is judged for
itself: within the trained length, where a static schedule shows already, and beyond it.
"""

from __future__ import annotations

import argparse
import inspect
import subprocess
import tarfile
import typing
import unittest.mock
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from ropewalk.engines.check.reading import PLUGIN, ReadCheckpoint, read_checkpoint
from ropewalk.engines.check.server import RunningEngine, SaidToken
from ropewalk.errors import InvalidValue
from ropewalk.hf.attach.extend import extended
from ropewalk.hf.attach.handle import handle_of
from ropewalk.hf.checkpoint.fetch import fetch_model
from ropewalk.hf.load_options import UNSTATED, LoadOptions
from ropewalk.hf.loading import load_model, load_tokenizer, place_model
from ropewalk.hf.probe.facts import SCHEDULE, parts_of
from ropewalk.methods.spec import Json

Verdict = Literal["in force", "not applied", "cannot tell"]
MOST_TOKENS_READ = 4096  # tokens that are read where no length is asked for
FEWEST_TOKENS_READ = 32  # tokens with positions to tell anything by
PLACES = 64  # where the engine is compared, within the trained length and beyond it
FAR = 4  # times: how much nearer the engine must be to one model than to the other
APART = 0.02  # nats: a model with its schedule and without it that are nearer than this cannot be told apart
SOURCES = (argparse, inspect, subprocess, tarfile, typing, unittest.mock)  # long texts that every machine has


class TextPart(NamedTuple):
    """One part of the text: mean differences of log-probabilities, in nats."""

    name: str  # within or beyond the trained length
    places: int
    to_schedule: float  # between the engine and the model with its schedule
    to_plain: float  # between the engine and the model without it
    apart: float  # between the two models

    @property
    def verdict(self) -> Verdict:
        """The nearer one, if it is nearer by far."""
        near, far = sorted((self.to_schedule, self.to_plain))
        if self.apart < APART or near > far / FAR:
            return "cannot tell"
        return "in force" if self.to_schedule < self.to_plain else "not applied"

    def __str__(self) -> str:
        where = f"{self.name} the trained length"
        gaps = f"engine to model with schedule {self.to_schedule:.4f}, to model without {self.to_plain:.4f}"
        return f"{where:<26}  {gaps}; these two {self.apart:.4f} apart"


@dataclass(frozen=True, kw_only=True)
class RunningCheck:
    """The answer of `check --running`."""

    url: str
    served: str  # the model's name there
    model: str
    target_len: int
    trained_len: int
    parts: tuple[TextPart, ...]
    reason: str = ""  # why there are no parts

    @property
    def verdict(self) -> Verdict:
        """That of the parts that can tell, where they agree."""
        told = {part.verdict for part in self.parts} - {"cannot tell"}
        return told.pop() if len(told) == 1 else "cannot tell"

    @property
    def is_same(self) -> bool:
        """Whether the engine computes the schedule."""
        return self.verdict == "in force"

    def __str__(self) -> str:
        name = f"{self.url} serving {self.served}, beside {self.model}: {self.target_len:,} tokens"
        lines = [f"{self.verdict}: {self._meaning()}", name]
        if self.parts:
            lines += ["", "means of differences between log-probabilities, in nats:", *map(str, self.parts)]
        return "\n".join(lines)

    def _meaning(self) -> str:
        if self.reason:
            return self.reason
        verdicts = {part.verdict for part in self.parts}
        if self.verdict != "cannot tell":
            return f"the engine computes {'the' if self.is_same else 'no'} schedule"
        if len(verdicts) > 1:
            return "one answer within the trained length, another beyond it; is it another schedule?"
        if all(part.apart < APART for part in self.parts):
            return "with the schedule and without it this text reads alike; --to takes a longer one"
        return "the engine is near neither; does it have the same weights, in a similar precision?"

    def to_json(self) -> Json:
        """For programs."""
        parts = [{**part._asdict(), "verdict": part.verdict} for part in self.parts]
        return {**vars(self), "parts": parts, "verdict": self.verdict}


def check_running(
    url: str, model: str, *, served: str = "", target_len: int | None = None, options: LoadOptions = UNSTATED
) -> RunningCheck:
    """Ask a running engine whether it computes the schedule of a model; its weights are loaded, after the answer.

    Args:
        url: where it runs: vLLM, SGLang, llama-server or `ropewalk serve`.
        model: the folder that it serves, or a GGUF file or a name on the hub.
        served: what the model is called there; may be left out where it serves one.
        target_len: tokens of the text; by default twice the trained length, if the checkpoint is made for that, and at
            most 4,096.
        options: how the model is loaded.
    """
    checkpoint = read_checkpoint(model, options)
    engine = RunningEngine.at(url)
    name = engine.name_of(served)
    made_for, trained = checkpoint.lengths.trained, checkpoint.trained_len
    length = target_len or min(made_for, 2 * trained, MOST_TOKENS_READ)
    if length < FEWEST_TOKENS_READ:
        raise InvalidValue("--to", f"at least {FEWEST_TOKENS_READ} tokens", length)
    parts: tuple[TextPart, ...] = ()
    reason = _why_not_comparable(checkpoint)
    if not reason:
        ids = _text(load_tokenizer(model, options), length)
        asked = engine.log_probabilities(name, ids, list(_places(length, trained)))
        reason = "" if asked else "the engine gives no log-probabilities of a prompt"
        parts = _compare(model, checkpoint, ids, asked, options) if asked else ()
    return RunningCheck(
        url=engine.url,
        served=name,
        model=checkpoint.name,
        target_len=length,
        trained_len=trained,
        parts=parts,
        reason=reason,
    )


def _why_not_comparable(checkpoint: ReadCheckpoint) -> str:
    """Why there is no model without a schedule beside it; empty where there is one."""
    rope = checkpoint.rope
    if checkpoint.sidecar or any(rope.kind(name) != "default" for name in rope.parts):
        return ""
    if checkpoint.stretch:
        return f"{checkpoint.stretch.methods} is another base, and the config does not keep the one before it"
    return "the checkpoint has no schedule"


def _text(tokenizer: Any, length: int) -> list[int]:
    """As many tokens of Python's own sources; one fewer than the length, which the engine is to add."""
    ids: list[int] = []
    while len(ids) < length:
        for source in SOURCES:
            ids += tokenizer.encode(inspect.getsource(source), add_special_tokens=not ids)
            if len(ids) >= length:
                break
    return ids[: length - 1]


def _places(length: int, trained: int) -> Iterator[int]:
    """How many tokens come before each that is compared: as many within the trained length as beyond it."""
    inside = min(length - 1, trained)
    for first, last in ((inside // 4, inside), (trained, length - 1)):
        count = min(PLACES, last - first)
        yield from (first + (i * (last - first)) // count for i in range(count) if first >= 1)


def _compare(
    model: str, checkpoint: ReadCheckpoint, ids: list[int], asked: Sequence[SaidToken], options: LoadOptions
) -> tuple[TextPart, ...]:
    """The engine beside the model with its schedule and without it, part by part."""
    theirs = torch.tensor([one.log_probability for one in asked], dtype=torch.float64)
    scheduled, plain = _both(model, checkpoint, ids, asked, options)
    beyond = torch.tensor([one.place >= checkpoint.trained_len for one in asked])
    parts = []
    for name, chosen in (("within", ~beyond), ("beyond", beyond)):
        if chosen.any():
            pairs = ((theirs, scheduled), (theirs, plain), (scheduled, plain))
            gaps = [float((one - other)[chosen].abs().mean()) for one, other in pairs]
            parts.append(TextPart(name, int(chosen.sum()), *gaps))
    return tuple(parts)


def _both(
    model: str, checkpoint: ReadCheckpoint, ids: list[int], asked: Sequence[SaidToken], options: LoadOptions
) -> tuple[Tensor, Tensor]:
    """What the model says with its schedule, then without it."""
    if not any(checkpoint.rope.kind(name) == PLUGIN for name in checkpoint.rope.parts):
        loaded = place_model(load_model(model, options), options)
        scheduled = _read(loaded, ids, asked)
        if handle := handle_of(loaded):
            handle.remove()
            return scheduled, _read(loaded, ids, asked)
        del loaded
    options = replace(options, trained_len=checkpoint.trained_len)
    without = place_model(fetch_model(model, options, config=_unscaled(checkpoint)), options)
    plain = _read(without, ids, asked)
    if checkpoint.plugin:
        with extended(without, checkpoint.plugin, target_len=checkpoint.lengths.trained):
            scheduled = _read(without, ids, asked)
    return scheduled, plain


def _unscaled(checkpoint: ReadCheckpoint) -> Any:
    """The config with plain RoPE at the same base."""
    text = checkpoint.config.get_text_config()
    dropped = SCHEDULE | {PLUGIN}
    parts = {
        name: {**{key: value for key, value in part.items() if key not in dropped}, "rope_type": "default"}
        for name, part in parts_of(text).items()
    }
    text.rope_parameters = parts.get("", parts)
    return checkpoint.config


@torch.no_grad()
def _read(model: Any, ids: list[int], asked: Sequence[SaidToken]) -> Tensor:
    """The log-probability of each token that the engine was asked for."""
    places = sorted({one.place for one in asked})
    rows = torch.tensor([place - 1 for place in places], device=model.device)
    logits = model(torch.tensor([ids], device=model.device), logits_to_keep=rows, use_cache=False).logits[0]
    logits = logits if len(logits) == len(rows) else logits[rows]
    log_probabilities = logits.double().log_softmax(-1).cpu()
    return torch.stack([log_probabilities[places.index(one.place), one.token] for one in asked])
