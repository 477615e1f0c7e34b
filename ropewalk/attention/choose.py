"""Which way computes a text, and why: a choice that can be read, never a silent fallback."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from ropewalk.attention.strands import Strand
from ropewalk.attention.toeplitz import diagonal
from ropewalk.errors import DoesNotFit
from ropewalk.extension import Extension

# What exp bears, with room for the vectors themselves; bfloat16 has the range of float32.
EXPONENTS = {torch.float16: 7, torch.bfloat16: 80, torch.float32: 80, torch.float64: 700}
SCATTERED = 8  # fewer rows a piece than this, and a kernel's call costs more than its work


class Choice(NamedTuple):
    """A backend, the reason, and whether it has to work in float64."""

    backend: str
    why: str
    double: bool = False


def choose(
    extension: Extension, strands: Sequence[Strand], queries: int, keys: int, learning: bool, dtype: torch.dtype
) -> Choice:
    """The fastest way that carries the extension over this text; `learning` says that biases want gradients."""
    growth = max((strand.growth for strand in strands), default=0.0)
    if growth > EXPONENTS[torch.float64]:
        raise DoesNotFit("length", "shorter: xpos grows beyond float64 over this text", f"exp({growth:.0f})")
    if growth > EXPONENTS[dtype]:
        return Choice("direct", f"the decay spans exp({growth:.0f}), beyond what {str(dtype)[6:]} holds", double=True)
    if extension.biases:
        return _choose_for_biases(extension, strands, queries, keys, learning)
    pieces = sum(len(strand.pieces) for strand in strands)
    if pieces > max(queries / SCATTERED, 4 * len(strands)):
        return Choice("direct", f"positions scatter the spans into {pieces} pieces for {queries} queries")
    pairs = sum(piece.pairs for strand in strands for piece in strand.pieces)
    return Choice("flash", f"{pieces} pieces by fused kernels, {pairs:,} pairs of a query and a key")


def choose_on_cuda(choice: Choice, fused: bool, refused: str) -> Choice:
    """On CUDA torch's own kernels come first, where pieces alone will do, then the one of ours, then what there is."""
    if choice.double or (choice.backend == "flash" and fused):
        return choice
    if not refused:
        return Choice("triton", "one kernel over all spans turns, adds biases and scales as it goes")
    return choice._replace(why=f"{choice.why}; triton: {refused}")


def _choose_for_biases(
    extension: Extension, strands: Sequence[Strand], queries: int, keys: int, learning: bool
) -> Choice:
    names = ", ".join(spec.name for spec in extension.biases)
    if learning:
        return Choice("direct", f"what the bias has learned wants a gradient ({names})")
    if not all(spec.of_distance_alone for spec in extension.biases):
        return Choice("direct", f"the bias is not one of the distance alone ({names})")
    spans = {strand.span for strand in strands}
    if len(spans) > 1 or any(diagonal(strand, queries, keys) is None for strand in strands):
        return Choice("direct", f"the reach shows other distances than the true ones to a bias ({names})")
    return Choice("toeplitz", f"a line of numbers is the mask of the fused kernels ({names})")
