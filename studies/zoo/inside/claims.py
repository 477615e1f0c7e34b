"""Everything that the sources claim of what is inside models, and what was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from studies.claims import JudgedClaim
from studies.zoo.inside.attention_shares import near_verdicts, sink_verdicts
from studies.zoo.inside.bias_angles import angle_verdicts
from studies.zoo.inside.entropy_claims import entropy_verdicts
from studies.zoo.inside.logit_claims import logit_verdicts
from studies.zoo.inside.state_positions import position_verdicts
from studies.zoo.inside.window_reach import reach_verdicts

READ = (
    logit_verdicts,
    angle_verdicts,
    entropy_verdicts,
    reach_verdicts,
    sink_verdicts,
    near_verdicts,
    position_verdicts,
)


def inside_verdicts(models: Sequence[Mapping[str, Any]], projects: Sequence[str] = ()) -> list[JudgedClaim]:
    """What the models say of every claim; `projects` are those of the held-out texts."""
    return [one for verdicts in READ for one in verdicts(models, projects)]
