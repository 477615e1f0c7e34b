"""bias_h(distance): what is added to a logit, depending on the distance of the key."""

from ropewalk.biases.alibi import ALiBi as ALiBi
from ropewalk.biases.far_discount import FarDiscount as FarDiscount
from ropewalk.biases.fire import FIRE as FIRE
from ropewalk.biases.gau_rotary import GAURotary as GAURotary
from ropewalk.biases.kerple_log import KerpleLog as KerpleLog
from ropewalk.biases.kerple_power import KerplePower as KerplePower
from ropewalk.biases.sandwich import Sandwich as Sandwich
from ropewalk.biases.signature import Bias as Bias
from ropewalk.biases.signature import Weights as Weights
from ropewalk.biases.t5 import T5 as T5

ALL: tuple[type[Bias], ...] = (
    ALiBi,
    KerpleLog,
    KerplePower,
    Sandwich,
    GAURotary,
    T5,
    FIRE,
    FarDiscount,
)
