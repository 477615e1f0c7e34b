"""How tokens are numbered."""

from ropewalk.positions.pose import PoSE as PoSE
from ropewalk.positions.randomized import Randomized as Randomized
from ropewalk.positions.sequential import Sequential as Sequential
from ropewalk.positions.signature import Positions as Positions

ALL: tuple[type[Positions], ...] = (
    Sequential,
    Randomized,
    PoSE,
)
