"""How tokens are numbered."""

from ropewalk.methods.positions.pose import PoSE as PoSE
from ropewalk.methods.positions.positions import Positions as Positions
from ropewalk.methods.positions.randomized import Randomized as Randomized
from ropewalk.methods.positions.sequential import Sequential as Sequential

ALL: tuple[type[Positions], ...] = (
    Sequential,
    Randomized,
    PoSE,
)
