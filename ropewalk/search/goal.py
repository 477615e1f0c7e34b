"""What is searched for, and which engines can load it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, NamedTuple

from transformers import PreTrainedModel

from ropewalk.engines.export import why_not_exportable
from ropewalk.errors import Conflict, DoesNotFit, RopewalkError
from ropewalk.extension.extension import Extension
from ropewalk.extension.parsing import read_line
from ropewalk.hf.attach.extend import attach_layers
from ropewalk.hf.attach.trained_extension import TrainedExtension
from ropewalk.hf.probe.facts import facts_of
from ropewalk.hf.probe.probe import probe
from ropewalk.hf.probe.probed_layer import ProbedLayer
from ropewalk.methods.facts import Facts
from ropewalk.methods.record import AT_LEAST_ONE, NOT_NEGATIVE, Rule, parameters
from ropewalk.methods.spec import Json
from ropewalk.search.conditions import ALL, ANY, FAR, SCHEDULES, STATIC, USUAL, Conditions

# Whether an engine can load an extension, checked before anything is measured.


@dataclass(frozen=True)
class DeployTarget:
    """A model, and the engine that must load it under an extension."""

    model: PreTrainedModel
    layers: tuple[ProbedLayer, ...]
    facts: tuple[Facts, ...]  # of each layer
    trained_under: TrainedExtension

    @classmethod
    def of(cls, model: PreTrainedModel, trained_under: TrainedExtension | None = None) -> DeployTarget:
        """Probe the layers of the base model."""
        layers = probe(model)
        return cls(
            model,
            tuple(layers),
            tuple(facts_of(model, layer, len(layers)) for layer in layers),
            trained_under or TrainedExtension(),
        )

    def require(self, goal: Goal, extension: Extension) -> None:
        """Refuse an extension that does not fit the model, or that the engine cannot load."""
        if reason := self.why_not(goal, extension):
            raise reason

    def takes(self, goal: Goal, extension: Extension) -> bool:
        """Whether an extension is accepted."""
        return self.why_not(goal, extension) is None

    def why_not(self, goal: Goal, extension: Extension) -> RopewalkError | None:
        """Why an extension does not fit the model, or why the engine cannot load it; None where it can."""
        extension = self.trained_under.with_line(extension)
        try:
            layers = attach_layers(self.layers, self.facts, extension)
        except RopewalkError as refused:  # by a method, of this model
            return refused
        if goal.deployable == ANY:
            return None
        target = "transformers" if goal.deployable == STATIC else goal.deployable
        return why_not_exportable(self.model, extension, layers, target, goal.target_len)


# The goal of a search: the target length, and the conditions of the answer.


FIGURE_ATOL = 1e-5  # nats per token: difference between two float32 computations of one number
SEVERAL = Rule("at least 2", lambda value: value >= 2)


def last_of(length: int) -> int:
    """How many tokens of a text are scored."""
    return max(1, length // 2)


def worst_if_unknown(value: float) -> float:
    """The number, of which less is better; infinite where it is not known (NaN)."""
    return math.inf if math.isnan(value) else value


class Measurements(NamedTuple):
    """The measurements of one extension on the fitting texts."""

    loss: float  # of the last tokens, with the whole context
    damage: float  # change of the loss within the trained length, against the base model
    slowdown: float  # seconds at the target length, over those of the base model; NaN if of other devices
    retrieval: float | None = None  # share of passkeys found, where the goal asks for it


@dataclass(frozen=True, kw_only=True)
class Goal(Conditions):
    """The conditions, with the model's facts, the target length, and how many texts are read."""

    facts: Annotated[Facts, "of the model"]
    target_len: Annotated[int, AT_LEAST_ONE, "target length in tokens"]
    samples: Annotated[int, SEVERAL, "texts to search on"] = 16
    judges: Annotated[int, SEVERAL, "other texts for the final test"] = 24
    seed: Annotated[int, NOT_NEGATIVE, "random seed"] = 0
    heads: Annotated[tuple[int, ...], "key heads of the whole model, from the one that looks furthest"] = ()

    def check(self) -> None:
        if self.target_len <= self.facts.trained_len:
            rule = f"above the trained length ({self.facts.trained_len})"
            raise DoesNotFit("target_len", rule, self.target_len, remedy="within it the model needs no extension")
        for line in self.also:  # a name that does not exist is refused, and a method of a file is known from here on
            read_line(line)
        for length in self.lengths:
            if not self.facts.trained_len <= length < self.target_len:
                rule = f"from the trained length ({self.facts.trained_len}) to below the target ({self.target_len})"
                raise DoesNotFit("lengths", rule, length, remedy="leave it out")
        if self.lengths and self.objective == FAR:
            remedy = "or take the objective all"
            raise Conflict("lengths", "left out where the objective is far", self.lengths, remedy=remedy)

    @property
    def factor(self) -> float:
        """Target over trained length."""
        return self.target_len / self.facts.trained_len

    @property
    def last(self) -> int:
        """How many tokens are scored: each has at least half the target before it, and fewer would be too noisy."""
        return last_of(self.target_len)

    @property
    def scored_lengths(self) -> tuple[int, ...]:
        """The lengths whose loss counts, each as much as the others; the target's is the last."""
        return *sorted(set(self.lengths)), self.target_len

    @property
    def scored(self) -> str:
        """What is scored, in words."""
        if self.lengths:
            *shorter, longest = (f"{length:,}" for length in self.scored_lengths)
            return f"the last halves of texts of {', '.join(shorter)} and {longest} tokens, each length alike,"
        last = f"the last {self.last:,} of {self.target_len:,} tokens"
        return last if self.objective == ALL else f"the tokens that need far context, among {last},"

    def admits(self, extension: Extension) -> bool:
        """Whether an extension is of the kind that is searched: a schedule attends to the whole text in all layers."""
        return self.space != SCHEDULES or not (
            extension.reach or extension.biases or extension.layers or extension.heads
        )

    def to_json(self) -> Json:
        """Every condition, without the facts, which are the model's."""
        names = [parameter.name for parameter in parameters(type(self))]
        values = {name: getattr(self, name) for name in names if name != "facts"}
        if self.space == USUAL:
            del values["space"]  # studies from before there were others go on
        for name in ("lengths", "heads", "also"):
            if not values[name]:
                del values[name]
        return values

    def violations(self, figures: Measurements) -> dict[str, float]:
        """By how much each condition is exceeded: above 0 it is broken, as it is by what is not known (NaN)."""
        excess: dict[str, float] = {}
        if self.max_damage is not None:
            excess["max_damage"] = figures.damage - self.max_damage - FIGURE_ATOL
        if self.min_retrieval is not None:
            excess["min_retrieval"] = self.min_retrieval - (figures.retrieval or 0.0)
        if self.max_slowdown is not None:
            excess["max_slowdown"] = figures.slowdown - self.max_slowdown
        return {name: worst_if_unknown(by) for name, by in excess.items()}
