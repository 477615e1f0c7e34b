"""bias_h(distance): what is added to a logit, depending on the distance of the key."""

from ropewalk.methods.biases.alibi import ALiBi as ALiBi
from ropewalk.methods.biases.bam import BAM as BAM
from ropewalk.methods.biases.bias import Bias as Bias, Weights as Weights
from ropewalk.methods.biases.far_discount import FarDiscount as FarDiscount
from ropewalk.methods.biases.fire import FIRE as FIRE
from ropewalk.methods.biases.gau_rotary import GAURotary as GAURotary
from ropewalk.methods.biases.kerple_log import KerpleLog as KerpleLog
from ropewalk.methods.biases.kerple_power import KerplePower as KerplePower
from ropewalk.methods.biases.sandwich import Sandwich as Sandwich
from ropewalk.methods.biases.t5 import T5 as T5

ALL: tuple[type[Bias], ...] = (
    ALiBi,
    KerpleLog,
    KerplePower,
    Sandwich,
    GAURotary,
    T5,
    FIRE,
    FarDiscount,
    BAM,
)
