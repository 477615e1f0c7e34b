"""`ropewalk stream` of a million tokens with the model that Ropewalk carries: speed and memory, early and late.

Goals: the last tenth is read as fast as the second, in the same memory.
"""

from __future__ import annotations

import functools
import time
from typing import Any, NamedTuple

import torch

import ropewalk as rw
from ropewalk.models import DEFAULT

from gpu.case import Case, OutOfTime, Place, Row, Skipped, goal
from gpu.timing import synchronize
from gpu.training import small_models

TOKENS, PIECE = 1_000_000, 8192
METHODS = ("streaming", "rerope:window=256+log_n")
SAME = 1.1  # goal: late against early


class Reading(NamedTuple):
    """After a chunk: the tokens so far, the seconds so far, the memory of the device."""

    tokens: int
    seconds: float
    bytes: int


def cases(place: Place) -> list[Case]:
    """Constant memory for a million tokens; growing memory for as many as a text has."""
    counts = place.either({METHODS[0]: TOKENS, METHODS[1]: 131_072}, {METHODS[0]: 520})
    return [
        Case(f"{text}, {count:,} tokens", 15, functools.partial(measured, text, count, place))
        for text, count in counts.items()
    ]


def measured(text: str, count: int, place: Place, left: float) -> list[Row]:
    """Read the text chunk by chunk; a chunk's losses are on the CPU when it counts as read."""
    small_models()
    model, ids = loaded(place, count)
    began, piece = time.perf_counter(), place.either(PIECE, 130)
    readings, losses = [Reading(0, 0.0, memory(place))], 0.0
    with rw.extended(model, text, target_len=count):
        from ropewalk.hf.use.long_text import read

        for chunk in read(model, ids, piece=piece):
            losses += float(chunk.losses.double().sum())
            synchronize(place)
            tokens = min(readings[-1].tokens + piece, count)
            readings.append(Reading(tokens, time.perf_counter() - began, memory(place)))
            if readings[-1].seconds > left:
                raise OutOfTime(f"{tokens:,} tokens were read in {readings[-1].seconds:.0f} s")
    return [judged(text, readings, losses / (count - 1))]


def judged(text: str, readings: list[Reading], loss: float) -> Row:
    """The second tenth (the first holds what is compiled) against the last."""
    tenth = max(1, len(readings) // 10)
    early, late = speed(readings[tenth : 2 * tenth + 1]), speed(readings[-tenth - 1 :])
    mib = [round(reading.bytes / 2**20, 1) for reading in (readings[tenth], readings[-1])]
    row = {
        "method": text,
        "tokens/s": round(readings[-1].tokens / readings[-1].seconds),
        "tokens/s early": round(early),
        "tokens/s late": round(late),
        "early / late": round(early / late, 3),
        "MiB early": mib[0],
        "MiB late": mib[1],
        "nats per token": round(loss, 4),
        "milliseconds": round(readings[-1].seconds * 1e3),
    }
    return {**row, **(goal("early / late", SAME) if text == METHODS[0] else {"figure": "tokens/s"})}


def speed(readings: list[Reading]) -> float:
    """Tokens per second between the first and the last."""
    return (readings[-1].tokens - readings[0].tokens) / max(readings[-1].seconds - readings[0].seconds, 1e-9)


def memory(place: Place) -> int:
    """What tensors take on the device."""
    return torch.cuda.memory_allocated() if place.device == "cuda" else 0


def loaded(place: Place, count: int) -> tuple[Any, torch.Tensor]:
    """The carried model in bfloat16, and held-out text of the standard library."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from ropewalk.measure.metrics.streaming import long_text

    model = AutoModelForCausalLM.from_pretrained(DEFAULT, dtype=place.either(torch.bfloat16, torch.float32))
    try:
        text = long_text(AutoTokenizer.from_pretrained(DEFAULT), "stdlib", count)
    except rw.RopewalkError as error:
        raise Skipped(f"there is no text to read: {error}") from error
    return model.to(place.device).eval(), text.ids[None].to(place.device)
