"""The slots of an extension: one per factor of the equation, with the methods that may fill it."""

from __future__ import annotations

from typing import NamedTuple

from ropewalk.errors import UnknownName
from ropewalk.methods import biases, decoding, frequencies, positions, reach, scales, surgery
from ropewalk.methods.biases import Bias
from ropewalk.methods.decoding import Decoding
from ropewalk.methods.frequencies import Frequencies
from ropewalk.methods.positions import Positions
from ropewalk.methods.reach import Reach
from ropewalk.methods.scales import Scale
from ropewalk.methods.spec import Spec
from ropewalk.methods.surgery import Surgery


class Slot(NamedTuple):
    """The methods that may fill one factor of the equation."""

    family: type[Spec]  # the factor's signature
    methods: tuple[type[Spec], ...]
    several: bool  # biases add up and scales multiply; other slots hold one method
    per_layer: bool  # whether layers may differ in it


SLOTS = {
    "frequencies": Slot(Frequencies, frequencies.ALL, several=False, per_layer=True),
    "reach": Slot(Reach, reach.ALL, several=False, per_layer=True),
    "biases": Slot(Bias, biases.ALL, several=True, per_layer=True),
    "scales": Slot(Scale, scales.ALL, several=True, per_layer=True),
    "positions": Slot(Positions, positions.ALL, several=False, per_layer=False),
    "decoding": Slot(Decoding, decoding.ALL, several=False, per_layer=False),
    "surgery": Slot(Surgery, surgery.ALL, several=True, per_layer=False),
}
PER_LAYER = tuple(name for name, slot in SLOTS.items() if slot.per_layer)


def method(slot: str, name: str) -> type[Spec]:
    """The method of that name in that slot."""
    methods = SLOTS[slot].methods
    for spec in methods:
        if spec.name == name:
            return spec
    raise UnknownName("method", name, known=[method.name for method in methods], owner=slot)
