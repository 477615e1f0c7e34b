"""The spaces that are searched: one file, one space."""

from ropewalk.search.spaces.by_place import Heads as Heads, LayerFactors as LayerFactors
from ropewalk.search.spaces.compositions import Compositions as Compositions
from ropewalk.search.spaces.descent import Descent as Descent
from ropewalk.search.spaces.dynamic_pairs import DynamicPairs as DynamicPairs
from ropewalk.search.spaces.hand_set import HandSet as HandSet
from ropewalk.search.spaces.pairs import Pairs as Pairs
from ropewalk.search.spaces.parts import (
    DynamicSchedules as DynamicSchedules,
    Mixed as Mixed,
    Parts as Parts,
    Reaches as Reaches,
    WindowsBelow as WindowsBelow,
)
from ropewalk.search.spaces.space import Space as Space

ALL: tuple[Space, ...] = (
    HandSet(),
    Parts(),
    Mixed(),
    Descent(),
    Pairs(),
    DynamicSchedules(),
    Reaches(),
    WindowsBelow(),
)
# Searched besides where the goal has several lengths.
FOR_LENGTHS: tuple[Space, ...] = (DynamicPairs(),)
# Searched where they are asked for by name, beside what is set by hand.
BY_NAME: tuple[Space, ...] = (Compositions(), Heads(), LayerFactors())
