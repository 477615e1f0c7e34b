"""How tokens are numbered."""

from ropewalk.methods.positions.pose import PoSE as PoSE
from ropewalk.methods.positions.randomized import Randomized as Randomized
from ropewalk.methods.positions.sequential import Sequential as Sequential
from ropewalk.methods.positions.signature import Positions as Positions

ALL: tuple[type[Positions], ...] = (
    Sequential,
    Randomized,
    PoSE,
)
