"""Why a method works or fails: numbers from inside a model. Each file has one diagnostic, a pure function.

Diagnostics of attention need a model that runs our attention, `extended(model, ..., mode="attention")`; with
`Extension()` that is the unchanged model. They compute some query rows, evenly spaced, by the definition.
"""

from ropewalk.measure.diagnostics.bias_terms import bias_terms as bias_terms
from ropewalk.measure.diagnostics.decay import decay as decay
from ropewalk.measure.diagnostics.entropy import entropy as entropy
from ropewalk.measure.diagnostics.logit_growth import logit_growth as logit_growth
from ropewalk.measure.diagnostics.masses import mass_of_first as mass_of_first, mass_of_last as mass_of_last
from ropewalk.measure.diagnostics.pair_angles import PairAngles as PairAngles, pair_angles as pair_angles
from ropewalk.measure.diagnostics.sinks import without_sinks as without_sinks
from ropewalk.measure.diagnostics.states import states_in_a_plane as states_in_a_plane
