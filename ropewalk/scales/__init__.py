"""scale(i): the factor of the logits of one query row."""

from ropewalk.scales.deepseek_temperature import DeepSeekTemperature as DeepSeekTemperature
from ropewalk.scales.dynamic import DynamicTemperature as DynamicTemperature
from ropewalk.scales.head_scale import HeadScale as HeadScale
from ropewalk.scales.llama4_temperature import Llama4Temperature as Llama4Temperature
from ropewalk.scales.log_n import LogN as LogN
from ropewalk.scales.longrope_temperature import LongRoPETemperature as LongRoPETemperature
from ropewalk.scales.signature import Scale as Scale
from ropewalk.scales.signature import Weights as Weights
from ropewalk.scales.ssmax import SSMax as SSMax
from ropewalk.scales.temperature import Temperature as Temperature
from ropewalk.scales.yarn_temperature import YarnTemperature as YarnTemperature

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
