"""Hand-set extensions: presets and their known compositions, with their authors' values."""

from __future__ import annotations

from typing import ClassVar

from optuna.distributions import BaseDistribution, CategoricalDistribution

from ropewalk.extension.extension import Extension
from ropewalk.extension.parsing import parse_for
from ropewalk.search.goal import Goal
from ropewalk.search.spaces.space import Space, Values

# Good ones first: hopeless ones are then recognised early.
LINES = (
    *("long_reach", "yarn", "rerope+log_n", "by_parts", "longrope", "dynamic_yarn", "self_extend+log_n"),
    *("leaky_rerope+log_n", "rerope_by_parts+log_n", "dpe+log_n"),
    *("yarn:factor={half}", "yarn:factor={more}", "yarn:factor={twice}"),
    *("ntk", "ntk:factor={more}", "ntk:factor={twice}", "ntk:factor={thrice}"),
    *("frequencies.ntk_mixed:factor={factor}", "ntk_mixed", "llama3", "abf", "pi"),
    *("dynamic_ntk", "rerope", "self_extend", "leaky_rerope", "dual_chunk", "dual_chunk+log_n", "log_n"),
    *("streaming", "lm_infinite", "window"),
)
# Where shorter lengths count too: schedules for each of those.
LINES_FOR_LENGTHS = ("yarn:factor={factor}", "ntk:factor={factor}")
MULTIPLES = {"half": 0.5, "factor": 1, "more": 1.5, "twice": 2, "thrice": 3}  # of the factor that the target needs


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
    factors = {name: f"{times * goal.factor:g}" for name, times in MULTIPLES.items()}
    usual = [line for line in LINES if "half" not in line or goal.factor > 1 / MULTIPLES["half"]]
    shorter = [length / goal.facts.trained_len for length in goal.lengths if length > goal.facts.trained_len]
    more = [line.format(factor=f"{factor:g}") for factor in shorter for line in LINES_FOR_LENGTHS]
    return tuple(dict.fromkeys([*goal.also, *(line.format(**factors) for line in usual), *more]))
