"""scale(i): the factor of the logits of one query row."""

from ropewalk.methods.scales.deepseek_temperature import DeepSeekTemperature as DeepSeekTemperature
from ropewalk.methods.scales.dynamic import DynamicTemperature as DynamicTemperature
from ropewalk.methods.scales.head_scale import HeadScale as HeadScale
from ropewalk.methods.scales.llama4_temperature import Llama4Temperature as Llama4Temperature
from ropewalk.methods.scales.log_n import LogN as LogN
from ropewalk.methods.scales.longrope_temperature import LongRoPETemperature as LongRoPETemperature
from ropewalk.methods.scales.scale import Scale as Scale, Weights as Weights
from ropewalk.methods.scales.ssmax import SSMax as SSMax
from ropewalk.methods.scales.temperature import Temperature as Temperature
from ropewalk.methods.scales.yarn_temperature import YarnTemperature as YarnTemperature

ALL: tuple[type[Scale], ...] = (
    LogN,
    Temperature,
    YarnTemperature,
    DeepSeekTemperature,
    LongRoPETemperature,
    Llama4Temperature,
    HeadScale,
    SSMax,
    DynamicTemperature,
)
