"""What the last token of a long text meets under each method: the geometry, before any model is run.

python examples/first_look.py [TRAINED_LEN TARGET_LEN]
"""

from __future__ import annotations

import math
import sys
from typing import NamedTuple

import torch
from rich.console import Console
from rich.table import Table

import ropewalk as rw
from ropewalk.extension.notation import length

LINES = (
    *("rope", "pi", "ntk", "yarn", "dynamic_yarn", "window", "streaming", "lm_infinite"),
    *("rerope", "rerope+log_n", "self_extend", "dual_chunk"),
)


class Look(NamedTuple):
    """What the last query of a text meets."""

    visible: int  # keys it sees
    unknown: float  # largest angle of the slow pairs, over the largest in training: above 1 is new
    blur: float  # how much more slowly the fastest pair rotates: above 1, neighbours look closer than they are
    scale: float  # its logits are multiplied by this


def look(extension: rw.Extension, facts: rw.Facts, text: int) -> Look:
    """The last query's view."""
    row, keys = torch.tensor([text - 1]), torch.arange(text)
    visible, furthest = 0, 0.0
    for span in extension.reach_or_causal.spans():
        start, stop = (int(bound) for bound in span.bounds(row))
        visible += stop - start
        if stop > start:
            furthest = max(furthest, float((span.q_at(row) - span.k_at(keys[start:stop]).double()).max()))
    trained, now = (option.frequencies_or_rope.table(facts, text).inv_freq for option in (rw.Extension(), extension))
    slow = trained * facts.trained_len < 2 * torch.pi
    unknown = float((now / trained)[slow].max()) * furthest / (facts.trained_len - 1)
    scale = math.prod(float(scale.scale(row, facts, {}).max()) for scale in extension.scales)
    return Look(visible, unknown, float(trained[0] / now[0]), scale)


def main() -> None:
    """Print the table."""
    trained_len, target_len = (length(text) for text in (sys.argv[1:] or ["512", "4096"]))
    facts = rw.Facts(trained_len=trained_len, head_dim=64)
    title = f"Trained on {trained_len} tokens, reading {target_len}: what the last one meets"
    table = Table("extension", "keys seen", "slow angles", "blur", "logits", title=title, title_justify="left")
    for line in LINES:
        view = look(rw.parse(line, trained_len=trained_len, target_len=target_len), facts, target_len)
        unknown = f"{view.unknown:.2f}" + (" (new)" if view.unknown > 1.01 else "")
        table.add_row(line, f"{view.visible:,}", unknown, f"{view.blur:.2f}", f"x {view.scale:.2f}")
    console = Console()
    console.print(table)
    console.print(
        "slow angles: of the pairs that never came round in training, largest over largest trained; above 1 is new"
    )
    console.print("blur: how much more slowly the fastest pair rotates; above 1, neighbours look closer than they are")
    console.print(".venv/bin/ropewalk show EXTENSION prints the formula behind a row; without one it lists everything")


if __name__ == "__main__":
    main()
