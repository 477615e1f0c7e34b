"""Training steps of an extended model against the base model with sdpa.

    python benchmarks/training.py [--quick] [CASE ...]

A Llama of 6 layers, 256 wide, 4 heads, 2,048 words; one thread. A step is a forward, a backward and AdamW on a batch of
2,048 tokens, or of one row that is longer. *Packed* rows hold five documents each.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
from transformers import LlamaForCausalLM

import ropewalk as rw
from ropewalk.train.small_models import ModelShape, new_small_model

from rounds import append, ratios, rounds

TOKENS = 2048  # of a batch at least
DOCUMENTS = 5  # of a packed row


class Case(NamedTuple):
    """Extensions to train at a length, and the target for their speed relative to the base model's."""

    name: str
    length: int
    extensions: tuple[str, ...]
    packed: bool = False
    to_reach: float | None = None


CASES = (
    Case("schedules", 512, ("yarn:factor=4", "abf", "dynamic_yarn"), to_reach=0.95),
    Case("schedules, packed", 512, ("yarn:factor=4",), packed=True, to_reach=0.95),
    Case("windows", 4096, ("window:window=512", "streaming:window=512", "hwfa:window=64"), to_reach=1.0),
    Case("biases", 512, ("alibi", "kerple")),
    Case("zoo", 128, ("yarn:factor=4", "alibi", "kerple", "hwfa")),
)


def batch(case: Case) -> dict[str, torch.Tensor]:
    """Rows of random words, numbered as in training."""
    ids = torch.randint(1, 2048, (max(1, TOKENS // case.length), case.length))
    edges = [case.length * n // DOCUMENTS for n in range(DOCUMENTS + 1)] if case.packed else [0, case.length]
    positions = torch.cat([torch.arange(end - first) for first, end in itertools.pairwise(edges)])
    return {"input_ids": ids, "position_ids": positions.expand_as(ids).contiguous(), "labels": ids}


def stepping(model: LlamaForCausalLM, rows: dict[str, torch.Tensor], dtype: torch.dtype) -> Callable[[], object]:
    """One step of training."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    model.config.use_cache = False
    mixed = dtype != torch.float32

    def step() -> None:
        with torch.autocast("cpu", dtype) if mixed else nullcontext():
            loss = model.train()(**rows).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def compare(case: Case, dtype: torch.dtype, count: int) -> list[dict[str, Any]]:
    """One case: every extension against the base model."""
    rows = batch(case)
    shape = ModelShape(trained_len=case.length)
    candidates = {"bare": stepping(new_small_model(shape), rows, dtype)}
    for text in case.extensions:
        model = new_small_model(shape)
        rw.extend(model, text)
        candidates[text] = stepping(model, rows, dtype)
    figures = ratios(rounds(candidates, count), "bare")
    results = []
    for name, times in figures.items():
        row = {"case": case.name, "method": name, "length": case.length, "dtype": str(dtype)[6:]}
        speed = {
            "speed": round(1 / times["median"], 3),
            "tokens/s": round(rows["input_ids"].numel() / times["milliseconds"] * 1e3),
        }
        results.append({**row, **speed, "to_reach": case.to_reach if name != "bare" else None})
    return results


def main() -> None:
    """Measure, print and store."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    quick, names = "--quick" in sys.argv, [name for name in sys.argv[1:] if name != "--quick"]
    results: list[dict[str, Any]] = []
    for case in CASES:
        if names and case.name not in names:
            continue
        for dtype in (torch.float32, torch.bfloat16):
            rows = compare(case, dtype, 2 if quick else 7)
            results += rows
            for row in rows:
                print("  ".join(f"{name} {value}" for name, value in row.items() if value is not None), flush=True)
    if not quick and not names:
        print(f"stored in {append('training', results)}")


if __name__ == "__main__":
    main()
