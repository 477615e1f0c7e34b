"""docs/results/real: extensions on two real models, measured through `make real`, which goes on where it was stopped.

python tools/real.py                    fetch models and texts, measure, and write what is complete
    --models NAME ...                  of the two
    --texts judged | searched          (judged)
    --lengths N ... --lines LINE ...   others than the planned ones
    --samples N                        texts (16; of `searched` as many as there are)
    --repeated N                       texts that repeat themselves (8)
    --seconds N                        stop after so many, and write the extensions that are complete
    --processes N                      on a GPU, which one process does not keep busy (6 there)
    --out FOLDER                       (docs/results/real; rows of the leaderboard beside it)

On two CPU cores SmolLM2 takes days, Gemma longer. On one H100 six extensions of SmolLM2 took three minutes.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import pickle
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, suppress
from itertools import groupby
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import torch
from real_models import MODELS, TEXTS, fetched_model, fetched_texts

from ropewalk.extension.extension import Extension
from ropewalk.extension.parsing import read_line
from ropewalk.files import finite_json
from ropewalk.hf.load_options import LoadOptions
from ropewalk.hf.probe.facts import parse_for_config
from ropewalk.measure.comparison.comparison import Comparison, measure_candidates
from ropewalk.measure.comparison.plan import product_seconds
from ropewalk.measure.comparison.race import TimeIsUp
from ropewalk.measure.comparison.runner import Cell, Finished, Measuring, cells, measure_here, result_of
from ropewalk.measure.comparison.store import Store
from ropewalk.measure.material.subject import Subject
from ropewalk.measure.opened_model import open_model
from ropewalk.measure.report.comparison import as_json
from ropewalk.measure.report.submitted import rounded, row_of, row_path
from ropewalk.measure.tasks import Context, Repetition, Task
from ropewalk.methods.spec import Json

FOLDER = Path("build/real")  # relative, so that a store knows the texts again in another checkout
OUT = Path("docs/results/real")
QUESTIONS, REPEATED = 8, 8  # needles of each text; texts that repeat themselves
# The presets that need no training, and compositions; what people use first, for a run that is stopped.
MAIN = (
    *("yarn", "self_extend+log_n", "rerope+log_n", "dynamic_yarn", "streaming", "long_reach", "dual_chunk+log_n"),
    *("self_extend", "rerope", "string", "dual_chunk", "self_extend:window=4096+log_n", "rerope:window=6144+log_n"),
)
OTHERS = (
    *("dynamic_ntk", "ntk", "by_parts", "lm_infinite", "window", "rerope_by_parts+log_n", "string+log_n"),
    *("leaky_rerope+log_n", "dpe", "dpe+log_n", "dynamic_yarn+log_n", "yarn+log_n", "ntk_mixed", "log_n", "bca"),
    *("leaky_rerope", "rerope_by_parts", "ministral3", "pi", "abf", "llama3"),
    *("lampe", "lampe+log_n", "self_logistic", "self_logistic+log_n", "ms_poe", "swaa"),
)


class Place(NamedTuple):
    """What a process opens."""

    model: str
    corpus: str
    longest: int


def tasks_of(samples: int, repeated: int) -> tuple[Task, ...]:
    """Losses, needles and copies by one reading, and text that repeats."""
    context = Context(samples=samples, questions=QUESTIONS)
    return (context, Repetition(samples=repeated)) if repeated else (context,)


def subject_of(place: Place, stack: ExitStack) -> Subject:
    """The model with its texts, in bfloat16; in float32 on a CPU that is faster in it. The record says which."""
    in_float32 = not torch.cuda.is_available() and product_seconds(torch.float32) < product_seconds(torch.bfloat16)
    dtype = "float32" if in_float32 else "bfloat16"
    host = stack.enter_context(open_model(place.model, options=LoadOptions(dtype=dtype)))
    return host.subject(place.corpus, place.longest)


def measured(
    place: Place, lengths: Sequence[int], lines: Sequence[str], tasks: Sequence[Task], deadline: float, processes: int
) -> Comparison | None:
    """The comparison of the lines that are complete; nothing where none is."""
    store = Store(FOLDER / "measured" / f"{Path(place.model).name}.sqlite")
    began, done = time.monotonic(), 0

    def progress(cell: Cell, result: Json) -> None:
        nonlocal done
        done += 1
        if done % 64 == 0:
            print(f"{time.monotonic() - began:.0f} s: {done} cells, now {cell.length} tokens", flush=True)
        if time.monotonic() > deadline:
            raise TimeIsUp

    with ExitStack() as stack:
        subject = subject_of(place, stack)
        measuring = in_processes(processes) if processes > 1 else measure_here
        with suppress(TimeIsUp):
            measure_candidates(subject, lines, lengths, store, tasks=tasks, measuring=measuring, progress=progress)
        complete = [line for line in lines if _is_complete(subject, line, lengths, tasks, store)]
        print(f"{place.model}: {len(complete)} of {len(lines)} lines are complete", flush=True)
        return measure_candidates(subject, complete, lengths, store, tasks=tasks) if complete else None


def _is_complete(subject: Subject, line: str, lengths: Sequence[int], tasks: Sequence[Task], store: Store) -> bool:
    """Whether the store has all of a line, and of the base model."""
    extension = parse_for_config(subject.model.config.get_text_config(), read_line(line), lengths[-1], subject.facts)
    done = store.keys()
    every = cells([Extension(), extension], tasks, lengths, subject.facts.trained_len)
    return all(cell.key(subject.marks_at(cell.sample)) in done for cell in every)


def in_processes(count: int) -> Measuring:
    """Cells measured by processes that share a GPU: one alone leaves it idle between its small steps."""

    def measuring(subject: Subject, missing: Sequence[Cell]) -> Generator[Finished, None, None]:
        parts = [
            part
            for _, group in groupby(missing, key=lambda cell: (cell.extension, cell.task, cell.length))
            for part in _halves(list(group))
        ]
        if not parts:
            return
        with TemporaryDirectory(dir=FOLDER) as folder:
            packed = Path(folder, "subject")
            packed.write_bytes(pickle.dumps(subject.packed(max(cell.task.samples for cell in missing))))
            with get_context("spawn").Pool(count, _open, (packed, subject.device)) as pool:
                for finished in pool.imap_unordered(_measured, parts):
                    yield from finished

    return measuring


def _halves(group: list[Cell]) -> Iterator[list[Cell]]:
    size = -(-len(group) // 2)
    yield from (group[first : first + size] for first in range(0, len(group), size))


_OPENED: dict[str, Subject] = {}  # of a process of the pool


def _open(packed: Path, device: torch.device) -> None:
    torch.set_num_threads(1)
    subject: Subject = pickle.loads(packed.read_bytes())
    subject.model.to(device)
    _OPENED["subject"] = subject


def _measured(part: list[Cell]) -> list[Finished]:
    subject = _OPENED["subject"]
    with subject.under(part[0].extension):
        _ = subject.warm
        return [(cell, result_of(subject, cell)) for cell in part]


def written(comparison: Comparison, path: Path, command: str) -> None:
    """The record of a comparison, sample by sample."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = json.dumps(rounded(finite_json(as_json(comparison, command))), separators=(",", ":"))
    path.write_bytes(gzip.compress(content.encode(), mtime=0))


def write_board(comparison: Comparison, record: Path, board: Path) -> None:
    """A row of the leaderboard for each line; the record has the texts of all."""
    for candidate in comparison.candidates[1:]:
        path = row_path(board, comparison.made["model"], comparison.lengths[-1], candidate.line)
        path.parent.mkdir(parents=True, exist_ok=True)
        row = row_of(comparison, candidate, os.path.relpath(record, path.parent))
        path.write_text(json.dumps(row, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--texts", choices=list(TEXTS), default="judged")
    parser.add_argument("--lengths", nargs="+", type=int)
    parser.add_argument("--lines", nargs="+", default=[*MAIN, *OTHERS])
    parser.add_argument("--samples", type=int)
    parser.add_argument("--repeated", type=int, default=REPEATED)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--processes", type=int, default=6 if torch.cuda.is_available() else 1)
    parser.add_argument("--out", type=Path, default=OUT)
    asked = parser.parse_args()
    deadline = time.monotonic() + asked.seconds
    texts = fetched_texts(asked.texts, FOLDER)
    for name in asked.models:
        lengths = asked.lengths or MODELS[name].lengths
        place = Place(str(fetched_model(name, FOLDER)), f"all:folder:{texts}", max(lengths))
        samples = asked.samples or len(TEXTS[asked.texts])
        tasks = tasks_of(samples, min(samples, asked.repeated))
        comparison = measured(place, sorted(lengths), asked.lines, tasks, deadline, asked.processes)
        if comparison:
            suffix = "" if asked.texts == "judged" else f"-{asked.texts}"
            record = asked.out / f"{name}{suffix}.json.gz"
            written(comparison, record, "make real")
            if not suffix:
                write_board(comparison, record, asked.out.parent / "leaderboard")


if __name__ == "__main__":
    main()
