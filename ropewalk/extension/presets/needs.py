"""What each preset needs before it runs, according to its authors: nothing, tuning or training."""

from __future__ import annotations

from typing import Literal

Needs = Literal["nothing", "tuning", "training"]

# A short tuning of a model that was trained with plain rotation.
TUNED = ("pi", "abf", "llama3", "longrope", "pose", "ssmax", "gqa", "stretched_positions")
# Trained this way from the start, or for about as long: a rotary model breaks without it.
TRAINED = (
    "nope",
    "p_rope",
    "alibi",
    "kerple",
    "sandwich",
    "t5",
    "fire",
    "gau_bias",
    "xpos",
    "randomized",
    "hwfa",
    "hwfa_rerope",
    "swan",
    "rnope_swa",
    "irope",
    "qk_bias",
)


def needs(preset: str) -> Needs:
    """What a preset needs on a trained rotary model."""
    return "tuning" if preset in TUNED else "training" if preset in TRAINED else "nothing"
