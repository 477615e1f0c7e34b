"""Papers and systems by name: each is a composition of methods, with its authors' values.

A preset needs only the lengths: `yarn(trained_len=4096, target_len=32768)`. It derives the other values as the authors
do, and every value can be set instead.
"""

from collections.abc import Callable
from typing import Literal

from ropewalk.extension.extension import Extension
from ropewalk.extension.presets.by_head import duo_attention as duo_attention, ms_poe as ms_poe
from ropewalk.extension.presets.inference import (
    bca as bca,
    dpe as dpe,
    dual_chunk as dual_chunk,
    lampe as lampe,
    leaky_rerope as leaky_rerope,
    lm_infinite as lm_infinite,
    log_n as log_n,
    long_reach as long_reach,
    nbce as nbce,
    parallel_windows as parallel_windows,
    rerope as rerope,
    rerope_by_parts as rerope_by_parts,
    self_extend as self_extend,
    self_logistic as self_logistic,
    streaming as streaming,
    string as string,
    swaa as swaa,
    window as window,
)
from ropewalk.extension.presets.schedules import (
    abf as abf,
    by_parts as by_parts,
    dynamic_ntk as dynamic_ntk,
    dynamic_yarn as dynamic_yarn,
    llama3 as llama3,
    longrope as longrope,
    ministral3 as ministral3,
    ntk as ntk,
    ntk_mixed as ntk_mixed,
    pi as pi,
    rope as rope,
    yarn as yarn,
)
from ropewalk.extension.presets.training import (
    alibi as alibi,
    bam as bam,
    fire as fire,
    gau_bias as gau_bias,
    gqa as gqa,
    hwfa as hwfa,
    hwfa_rerope as hwfa_rerope,
    irope as irope,
    kerple as kerple,
    nope as nope,
    p_rope as p_rope,
    pose as pose,
    qk_bias as qk_bias,
    randomized as randomized,
    rnope_swa as rnope_swa,
    rope_id as rope_id,
    sandwich as sandwich,
    ssmax as ssmax,
    stretched_positions as stretched_positions,
    swan as swan,
    t5 as t5,
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
    rope_id,
    alibi,
    kerple,
    bam,
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
    duo_attention,
    ms_poe,
    lampe,
    self_logistic,
    swaa,
    log_n,
    nbce,
    parallel_windows,
)

# What each preset needs before it runs, according to its authors.
Needs = Literal["nothing", "tuning", "training"]

# A short tuning of a model that was trained with plain rotation, or of gates that say which of its heads retrieve.
TUNED = ("pi", "abf", "llama3", "longrope", "pose", "ssmax", "gqa", "stretched_positions", "duo_attention")
# Trained this way from the start, or for about as long: a rotary model breaks without it.
TRAINED = (
    "nope",
    "p_rope",
    "rope_id",
    "alibi",
    "kerple",
    "bam",
    "sandwich",
    "t5",
    "fire",
    "gau_bias",
    "xpos",
    "randomized",
    "hwfa",
    "hwfa_rerope",
    "swan",
    "rnope_swa",
    "irope",
    "qk_bias",
)


def needs(*presets: str) -> Needs:
    """What presets need on a trained rotary model: as much as the one that needs most."""
    asked = set(presets)
    return "training" if asked.intersection(TRAINED) else "tuning" if asked.intersection(TUNED) else "nothing"
