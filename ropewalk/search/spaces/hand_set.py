"""Hand-set extensions: presets and their known compositions, with their authors' values."""

from __future__ import annotations

from typing import ClassVar

from optuna.distributions import BaseDistribution, CategoricalDistribution

from ropewalk.extension import Extension
from ropewalk.parsing import parse_for
from ropewalk.search.goal import Goal
from ropewalk.search.spaces.signature import Space, Values

# Good ones first: hopeless ones are then recognised early.
LINES = (
    *("long_reach", "yarn", "rerope+log_n", "by_parts", "longrope", "dynamic_yarn", "self_extend+log_n"),
    *("leaky_rerope+log_n", "rerope_by_parts+log_n", "dpe+log_n"),
    *("ntk", "ntk:factor={twice}", "frequencies.ntk_mixed:factor={factor}", "ntk_mixed", "llama3", "abf", "pi"),
    *("dynamic_ntk", "rerope", "self_extend", "leaky_rerope", "dual_chunk", "dual_chunk+log_n", "log_n"),
    *("streaming", "lm_infinite", "window"),
)


class HandSet(Space):
    """A finite space that is tried completely; nothing is proposed from it."""

    name: ClassVar[str] = "hand_set"

    def knobs(self, goal: Goal) -> dict[str, BaseDistribution]:
        return {"line": CategoricalDistribution(_lines(goal))}

    def example(self, goal: Goal) -> Values:
        return {"line": "yarn"}

    def seeds(self, goal: Goal) -> list[Values]:
        """All of them."""
        return [{"line": line} for line in _lines(goal)]

    def extension(self, goal: Goal, values: Values) -> Extension:
        return parse_for(values["line"], goal.facts, goal.target_len)


def _lines(goal: Goal) -> tuple[str, ...]:
    return tuple(line.format(factor=f"{goal.factor:g}", twice=f"{2 * goal.factor:g}") for line in LINES)
