"""What `compare` reads of a text beside one forward pass over it: losses, eight questions and a copied passage.

    python benchmarks/comparing.py [MODEL [LENGTH [LINE ...]]]

One thread, both in turns. `bare` is the model without an extension; a ratio is to the forward pass of the same line,
which scores all tokens. The aim is 1.2.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
from transformers import DynamicCache

from ropewalk.extension.extension import Extension
from ropewalk.extension.notation import BARE
from ropewalk.extension.parsing import read_line
from ropewalk.hf.probe.facts import parse_for_config
from ropewalk.hf.use.long_text import score_tokens
from ropewalk.measure.material.subject import Subject
from ropewalk.measure.opened_model import open_model
from ropewalk.measure.tasks import Context

from rounds import append, ratios, rounds

LINES = (BARE, "yarn", "self_extend+log_n", "dynamic_yarn")
FORWARD, READING = "a forward pass", "everything"
ROUNDS = 3


def candidates(subject: Subject, length: int) -> dict[str, Callable[[], object]]:
    """The two of one line, whose extension the model is under."""
    task = Context(samples=1, questions=8)
    ids = subject.begun(subject.passages(1)[0], length)[None]

    def forward() -> None:
        score_tokens(subject.model, ids, cache=DynamicCache(config=subject.model.config))

    return {FORWARD: forward, READING: lambda: task.measure(subject, length, 0)}


def main(model: str = "default", length: int = 4096, *lines: str) -> None:
    """Measure and record."""
    torch.set_num_threads(1)
    rows = []
    with open_model(model) as host:
        subject = host.subject("all:stdlib", length)
        config = host.model.config.get_text_config()
        for line in lines or LINES:
            extension = (
                Extension() if line == BARE else parse_for_config(config, read_line(line), length, subject.facts)
            )
            with subject.under(extension):
                times = rounds(candidates(subject, length), ROUNDS)
            about = {"model": subject.name, "dtype": str(host.model.dtype), "length": length, "line": line}
            rows.append({**about, **ratios(times, FORWARD)[READING]})
            print(rows[-1], flush=True)
    append("comparing", rows)


if __name__ == "__main__":
    main(*sys.argv[1:2], *map(int, sys.argv[2:3]), *sys.argv[3:])
