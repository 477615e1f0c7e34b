"""Spaces in which layers, or the key heads of a layer, differ in one number each, which a few knobs decide.

A knob for each of hundreds of heads could not be searched: heads are ordered by how much of their attention is far, on
the model's own, and layers lie on a curve.
"""

from __future__ import annotations

from typing import ClassVar

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from ropewalk.errors import DoesNotFit
from ropewalk.extension.extension import Extension
from ropewalk.extension.parsing import parse_for
from ropewalk.extension.presets import duo_attention
from ropewalk.methods.frequencies import Interpolation
from ropewalk.search.goal import Goal
from ropewalk.search.spaces.space import Space, Values

BY_RANK = "by_rank"  # a factor for each head of a layer, larger for those that look less far
OF_HEADS = ("yarn", "dynamic_yarn", BY_RANK, "as_trained")


class Heads(Space):
    """Heads that look far keep all keys, the others sinks and a window (DuoAttention); a schedule, or a factor by rank.

    The factor is that of Ms-PoE: from 1 for the head of a layer that looks furthest, by equal steps.
    """

    name: ClassVar[str] = "heads"

    def knobs(self, goal: Goal) -> dict[str, BaseDistribution]:
        return {
            "keeping": FloatDistribution(0.05, 1.0),  # share of all key heads that keep all keys
            "window": FloatDistribution(1 / 32, 1 / 2, log=True),  # of the others, as a share of the trained length
            "sinks": IntDistribution(1, 64),
            "schedule": CategoricalDistribution(OF_HEADS),
            "stretch": FloatDistribution(1.0, max(2.0, 2 * goal.factor), log=True),  # largest factor by rank
        }

    def example(self, goal: Goal) -> Values:
        return {"keeping": 0.5, "window": 1 / 16, "sinks": 16, "schedule": "dynamic_yarn", "stretch": goal.factor}

    def seeds(self, goal: Goal) -> list[Values]:
        """With all keys by rank alone, and half of the heads under both schedules."""
        usual = self.example(goal)
        by_rank = {**usual, "keeping": 1.0, "schedule": BY_RANK}
        return [usual, {**usual, "schedule": "yarn"}, {**usual, "keeping": 1.0}, by_rank]

    def extension(self, goal: Goal, values: Values) -> Extension:
        facts, order = goal.facts, goal.heads
        if not order:
            raise DoesNotFit.because("space", "heads are searched in the order that fit measures, and there is none")
        count, schedule = max(1, round(values["keeping"] * len(order))), values["schedule"]
        whole = Extension() if schedule in (BY_RANK, "as_trained") else parse_for(schedule, facts, goal.target_len)
        if count < len(order):
            window = max(1, int(facts.trained_len * values["window"]))
            sizes = {"layers": facts.layers, "key_heads": facts.groups, "window": window, "n_sink": values["sinks"]}
            whole += duo_attention(retrieval=order[:count], **sizes)
        return _by_rank(goal, values["stretch"]).over(whole) if schedule == BY_RANK else whole

    def betters(self, goal: Goal, extension: Extension) -> bool:
        """Extensions whose heads differ."""
        return any(part.heads for part in extension.parts)


def _by_rank(goal: Goal, stretch: float) -> Extension:
    """A factor for each head of a layer, by its rank there; the first is as trained."""
    groups, layers = goal.facts.groups, dict[int, Extension]()
    for layer in range(goal.facts.layers):
        ranked = [number % groups for number in goal.heads if number // groups == layer]
        factors = {head: 1 + (stretch - 1) * rank / groups for rank, head in enumerate(ranked)}
        slowed = {head: Extension(frequencies=Interpolation(factor=by)) for head, by in factors.items() if by > 1}
        layers |= {layer: Extension(heads=slowed)} if slowed else {}
    return Extension(layers=layers)


class LayerFactors(Space):
    """Positions divided by a factor of each layer, on a cubic Bezier curve over the depth.

    Source: arXiv:2503.04355 (layer-specific scaling of positional encodings, its curve found by a genetic search).
    """

    name: ClassVar[str] = "layer_factors"

    def knobs(self, goal: Goal) -> dict[str, BaseDistribution]:
        factor = FloatDistribution(1.0, max(2.0, 2 * goal.factor), log=True)
        return dict.fromkeys(("first", "early", "late", "last"), factor)

    def example(self, goal: Goal) -> Values:
        return dict.fromkeys(self.knobs(goal), goal.factor)

    def seeds(self, goal: Goal) -> list[Values]:
        """The same factor everywhere, and a factor that rises, or falls, with the depth."""
        even, half = self.example(goal), max(1.0, goal.factor / 2)
        return [even, {**even, "first": half, "early": half}, {**even, "late": half, "last": half}]

    def extension(self, goal: Goal, values: Values) -> Extension:
        points, last = [values[name] for name in self.knobs(goal)], max(1, goal.facts.layers - 1)
        layers = {}
        for layer in range(goal.facts.layers):
            t = layer / last
            weights = ((1 - t) ** 3, 3 * (1 - t) ** 2 * t, 3 * (1 - t) * t**2, t**3)
            factor = sum(weight * point for weight, point in zip(weights, points, strict=True))
            layers[layer] = Extension(frequencies=Interpolation(factor=max(1.0, round(factor, 4))))
        return Extension(layers=layers)

    def betters(self, goal: Goal, extension: Extension) -> bool:
        """Those whose layers differ in their schedule."""
        return any(part.frequencies for _, part in extension.layer_items)
