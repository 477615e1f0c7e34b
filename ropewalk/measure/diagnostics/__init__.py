"""Why a method works or fails: numbers from inside a model. Each file has one diagnostic, a pure function.

Diagnostics of attention need a model that runs our attention, `extended(model, ..., mode="attention")`; with
`Extension()` that is the unchanged model. They compute some query rows, evenly spaced, by the definition.
"""

from ropewalk.measure.diagnostics.attention_weights import (
    decay as decay,
    entropy as entropy,
    logit_growth as logit_growth,
    mass_of_first as mass_of_first,
    mass_of_last as mass_of_last,
    without_sinks as without_sinks,
)
from ropewalk.measure.diagnostics.pass_states import (
    PairAngles as PairAngles,
    bias_terms as bias_terms,
    pair_angles as pair_angles,
    states_in_a_plane as states_in_a_plane,
)
