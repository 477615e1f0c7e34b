"""What the authors of each preset do to the weights before they run it."""

from __future__ import annotations

from typing import Literal

Needs = Literal["nothing", "tuning", "training"]

# A short tuning of a model that was trained with plain rotation.
TUNED = ("pi", "abf", "llama3", "longrope", "pose", "gqa", "stretched_positions")
# Trained that way, or for about as long: without it a rotary model falls apart.
TRAINED = (
    "nope",
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
    "qk_bias",
)


def needs(preset: str) -> Needs:
    """Whether a preset runs around a trained rotary model as it is."""
    return "tuning" if preset in TUNED else "training" if preset in TRAINED else "nothing"
