"""Sums of accuracies that the claims of the zoo are made of."""

from __future__ import annotations

from studies.zoo.figures import FAR, PLAIN, AccuracyTerm

NOTHING = 0.005  # half a point: what HWFA loses in its article, which calls that keeping all
COPIES = (
    "A text repeats after 64 tokens, the trained length, so the source of a repeated token is 63 tokens back. This "
    "shows copying at that distance in texts of more than 64 tokens: a plain window of 64 passes the test too, one of "
    "60 cannot. It shows no use of text that is more than one trained length away."
)
A_POINT = 0.01

Sums = tuple[tuple[AccuracyTerm, ...], ...]


def gain(method: str, than: str, *, at: tuple[int, ...] = (8,), kind: str = PLAIN) -> Sums:
    """Of one method over another."""
    return tuple((AccuracyTerm(1, method, times, kind), AccuracyTerm(-1, than, times, kind)) for times in at)


def from_afar(method: str, sign: int = 1) -> Sums:
    """What a method gains at 8x where the same tokens stand in the text once before, four trained lengths back."""
    return ((AccuracyTerm(sign, method, 8, FAR), AccuracyTerm(-sign, method, 8, PLAIN)),)


def kept(least: float, method: str, times: int = 8) -> Sums:
    """Above a part of the accuracy at 1x."""
    return ((AccuracyTerm(1, method, times), AccuracyTerm(-least, method, 1)),)


def since_2x(method: str, *lengths: int, kept: float = 1) -> Sums:
    """Above (a part of) the accuracy at 2x: from 1x to 2x more of the text near by is read, which hides a loss."""
    return tuple((AccuracyTerm(1, method, times), AccuracyTerm(-kept, method, 2)) for times in lengths or (8,))


def lost(most: float, method: str, times: int = 8) -> Sums:
    """Below a part of the accuracy at 1x."""
    return ((AccuracyTerm(most, method, 1), AccuracyTerm(-1, method, times)),)


def gains(method: str, more: str, than: str) -> Sums:
    """By how much one kind of text gains more from 1x to 8x than another."""
    terms = ((1, 8, more), (-1, 1, more), (-1, 8, than), (1, 1, than))
    return (tuple(AccuracyTerm(weight, method, times, kind) for weight, times, kind in terms),)
