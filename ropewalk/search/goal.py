"""What is asked of a search: the length to reach, and what the answer must keep to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple, get_args

from ropewalk.errors import DoesNotFit
from ropewalk.facts import Facts
from ropewalk.record import A_SHARE, AT_LEAST_ONE, NOT_NEGATIVE, POSITIVE, Checked, Rule, parameters
from ropewalk.spec import Json

ANY, STATIC = "any", "static"
ROUNDING = 1e-5  # nats per token: what float32 makes of two ways to the same numbers
SEVERAL = Rule("at least 2", lambda value: value >= 2)

Deployable = Literal["any", "static", "transformers", "vllm", "sglang", "llama.cpp"]
LOADERS: tuple[str, ...] = get_args(Deployable)


class Measurements(NamedTuple):
    """What was measured of one extension, on the fitting texts."""

    loss: float  # of the last tokens under the whole context
    damage: float  # loss within the trained length, less the bare model's
    slowdown: float  # seconds at the target length over the bare model's
    retrieval: float | None = None  # pass keys found, where that was asked for


@dataclass(frozen=True, kw_only=True)
class Goal(Checked):
    """The length, and the conditions."""

    facts: Annotated[Facts, "of the model"]
    target_len: Annotated[int, AT_LEAST_ONE, "the length to reach"]
    deployable: Annotated[Deployable, "who must be able to load the answer"] = "any"
    max_damage: Annotated[float | None, NOT_NEGATIVE, "nats per token that short texts may lose"] = None
    min_retrieval: Annotated[float | None, A_SHARE, "pass keys that must be found"] = None
    max_slowdown: Annotated[float | None, POSITIVE, "of a text of the target length, against the bare model"] = None
    samples: Annotated[int, SEVERAL, "texts to fit on"] = 16
    judges: Annotated[int, SEVERAL, "other texts to judge by"] = 24
    seed: Annotated[int, NOT_NEGATIVE, "of everything that is drawn"] = 0

    def check(self) -> None:
        if self.target_len <= self.facts.trained_len:
            rule = f"above the trained length ({self.facts.trained_len})"
            raise DoesNotFit("target_len", rule, self.target_len, remedy="within it the model needs no extension")

    @property
    def factor(self) -> float:
        """Target over trained length."""
        return self.target_len / self.facts.trained_len

    @property
    def last(self) -> int:
        """So many tokens are judged: each has at least half the target before it, and fewer would judge by chance."""
        return max(1, self.target_len // 2)

    def to_json(self) -> Json:
        """Every condition; the facts are the model's."""
        return {each.name: getattr(self, each.name) for each in parameters(type(self)) if each.name != "facts"}

    def violations(self, figures: Measurements) -> dict[str, float]:
        """By how much each condition is broken: above 0 is broken."""
        found: dict[str, float] = {}
        if self.max_damage is not None:
            found["max_damage"] = figures.damage - self.max_damage - ROUNDING
        if self.min_retrieval is not None:
            found["min_retrieval"] = self.min_retrieval - (figures.retrieval or 0.0)
        if self.max_slowdown is not None:
            found["max_slowdown"] = figures.slowdown - self.max_slowdown
        return found
