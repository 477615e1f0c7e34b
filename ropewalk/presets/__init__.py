"""Papers and systems by name: each is a composition of methods, with its authors' values.

A preset needs only the lengths: `yarn(trained_len=4096, target_len=32768)`. It derives the other values as the authors
do, and every value can be set instead.
"""

from collections.abc import Callable

from ropewalk.extension import Extension
from ropewalk.presets.inference import (
    bca as bca,
)
from ropewalk.presets.inference import (
    dpe as dpe,
)
from ropewalk.presets.inference import (
    dual_chunk as dual_chunk,
)
from ropewalk.presets.inference import (
    leaky_rerope as leaky_rerope,
)
from ropewalk.presets.inference import (
    lm_infinite as lm_infinite,
)
from ropewalk.presets.inference import (
    log_n as log_n,
)
from ropewalk.presets.inference import (
    long_reach as long_reach,
)
from ropewalk.presets.inference import (
    nbce as nbce,
)
from ropewalk.presets.inference import (
    parallel_windows as parallel_windows,
)
from ropewalk.presets.inference import (
    rerope as rerope,
)
from ropewalk.presets.inference import (
    rerope_by_parts as rerope_by_parts,
)
from ropewalk.presets.inference import (
    self_extend as self_extend,
)
from ropewalk.presets.inference import (
    streaming as streaming,
)
from ropewalk.presets.inference import (
    string as string,
)
from ropewalk.presets.inference import (
    window as window,
)
from ropewalk.presets.schedules import (
    abf as abf,
)
from ropewalk.presets.schedules import (
    by_parts as by_parts,
)
from ropewalk.presets.schedules import (
    dynamic_ntk as dynamic_ntk,
)
from ropewalk.presets.schedules import (
    dynamic_yarn as dynamic_yarn,
)
from ropewalk.presets.schedules import (
    llama3 as llama3,
)
from ropewalk.presets.schedules import (
    longrope as longrope,
)
from ropewalk.presets.schedules import (
    ministral3 as ministral3,
)
from ropewalk.presets.schedules import (
    ntk as ntk,
)
from ropewalk.presets.schedules import (
    ntk_mixed as ntk_mixed,
)
from ropewalk.presets.schedules import (
    pi as pi,
)
from ropewalk.presets.schedules import (
    rope as rope,
)
from ropewalk.presets.schedules import (
    yarn as yarn,
)
from ropewalk.presets.training import (
    alibi as alibi,
)
from ropewalk.presets.training import (
    fire as fire,
)
from ropewalk.presets.training import (
    gau_bias as gau_bias,
)
from ropewalk.presets.training import (
    gqa as gqa,
)
from ropewalk.presets.training import (
    hwfa as hwfa,
)
from ropewalk.presets.training import (
    hwfa_rerope as hwfa_rerope,
)
from ropewalk.presets.training import (
    irope as irope,
)
from ropewalk.presets.training import (
    kerple as kerple,
)
from ropewalk.presets.training import (
    nope as nope,
)
from ropewalk.presets.training import (
    p_rope as p_rope,
)
from ropewalk.presets.training import (
    pose as pose,
)
from ropewalk.presets.training import (
    qk_bias as qk_bias,
)
from ropewalk.presets.training import (
    randomized as randomized,
)
from ropewalk.presets.training import (
    rnope_swa as rnope_swa,
)
from ropewalk.presets.training import (
    sandwich as sandwich,
)
from ropewalk.presets.training import (
    ssmax as ssmax,
)
from ropewalk.presets.training import (
    stretched_positions as stretched_positions,
)
from ropewalk.presets.training import (
    swan as swan,
)
from ropewalk.presets.training import (
    t5 as t5,
)
from ropewalk.presets.training import (
    xpos as xpos,
)

ALL: tuple[Callable[..., Extension], ...] = (
    rope,
    pi,
    ntk,
    ntk_mixed,
    dynamic_ntk,
    by_parts,
    yarn,
    dynamic_yarn,
    ministral3,
    abf,
    llama3,
    longrope,
    nope,
    p_rope,
    alibi,
    kerple,
    sandwich,
    t5,
    fire,
    gau_bias,
    xpos,
    randomized,
    pose,
    hwfa,
    hwfa_rerope,
    swan,
    rnope_swa,
    irope,
    ssmax,
    gqa,
    qk_bias,
    stretched_positions,
    window,
    bca,
    streaming,
    lm_infinite,
    rerope,
    leaky_rerope,
    rerope_by_parts,
    long_reach,
    self_extend,
    dpe,
    dual_chunk,
    string,
    log_n,
    nbce,
    parallel_windows,
)
