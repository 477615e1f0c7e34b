"""The methods of the zoo: models that are trained, and what the plain ones are read under without training."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from ropewalk.train.small_models import ModelShape

LONGER = 8  # times the trained length, where rows become longer
UPTRAINED = 0.05  # of the steps, with fewer key heads, as in the source of grouped queries
UNTIL_SINKS = 4  # times the steps, after which the marker gets twice the attention (studies/log.md)
FARTHEST = 16  # range that positions are drawn from, in trained lengths: beyond the longest text


class ZooMethod(NamedTuple):
    """An extension, and what it changes in the model's shape and in the beginning of texts."""

    extension: str = ""
    shape: Mapping[str, Any] = {}
    marked: bool = False  # every text begins with the end token
    of: str = ""  # the method whose models are read under the extension, without training; none: trained under it
    newlines: int = 0  # first tokens that are replaced by newlines
    longer_from: float | None = None  # the share of the steps after which rows become LONGER times as long
    begun_from: str = ""  # the method whose model is trained on
    kv_heads: int = 0  # key and value heads that are left of it; 0: all
    stretched: bool = False  # its table of learned positions is interpolated to longer texts
    budget: int = 1  # times as many steps as the others
    inside: tuple[str, ...] = ()  # what is measured inside its models, as in measuring.py

    @property
    def needs(self) -> str:
        """The method whose model has to be trained before; none: of none."""
        return self.of or self.begun_from

    def line(self, shape: ModelShape, times: int = LONGER) -> str:
        """The extension for a model of this shape, in texts of so many trained lengths."""
        length = shape.trained_len
        return self.extension.format(
            window=window_of(shape),
            limit=FARTHEST * length,
            length=length,
            half=length // 2,
            times=times,
            slow=[int(not fast) for fast in _whole_rotations(shape)],
            fast=[int(fast) for fast in _whole_rotations(shape)],
        )

    def shaped(self, shape: ModelShape) -> ModelShape:
        """The shape of its models."""
        return replace(shape, **self.shape)


def window_of(shape: ModelShape) -> int:
    """The window whose layers together reach no further than the trained length."""
    return max(2, shape.trained_len // shape.layers)


def _whole_rotations(shape: ModelShape) -> list[bool]:
    """Which pairs of dimensions make a whole rotation within the trained length."""
    pairs = shape.width // shape.heads // 2
    return [shape.trained_len * shape.base ** (-pair / pairs) >= 2 * math.pi for pair in range(pairs)]


TRAINED: Mapping[str, ZooMethod] = {
    "rope": ZooMethod(inside=("logit_terms", "entropies", "near", "state_positions")),
    "qk_bias": ZooMethod("qk_bias", inside=("logit_terms", "bias_angles")),
    "key_norm": ZooMethod(shape={"key_norm": True}),
    "log_n": ZooMethod("log_n:clipped=false"),
    "nope": ZooMethod("nope", inside=("state_positions",)),
    "alibi": ZooMethod("alibi"),
    "kerple": ZooMethod("kerple"),
    "sandwich": ZooMethod("sandwich"),
    "xpos": ZooMethod("xpos+bca"),
    "window": ZooMethod("window:window={window}", inside=("reach",)),
    "nope_window": ZooMethod("nope+window:window={window}"),
    "hwfa": ZooMethod("hwfa"),
    "hwfa_rerope": ZooMethod("hwfa_rerope"),
    "randomized_rotary": ZooMethod("randomized:limit={limit}"),
    "randomized_learned": ZooMethod("randomized:limit={limit}", {"places": "learned"}),
    "learned": ZooMethod(shape={"places": "learned"}, stretched=True),
    "sinusoidal": ZooMethod(shape={"places": "sinusoidal"}),
    "gau_bias": ZooMethod("gau_bias"),
    "rope_and_alibi": ZooMethod("rope+biases.alibi"),
    "attention_biases": ZooMethod("surgery.qk_bias:modules=[q_proj,k_proj,v_proj,o_proj]"),
    "marked": ZooMethod(marked=True, budget=UNTIL_SINKS, inside=("sink",)),
    **{f"longer_from_{share}": ZooMethod(longer_from=share / 100) for share in (0, 20, 40, 80)},
    "rope_to_2_kv_heads": ZooMethod(begun_from="rope", kv_heads=2),
    "rope_to_1_kv_head": ZooMethod(begun_from="rope", kv_heads=1),
}
UNTRAINED: Mapping[str, ZooMethod] = {
    "rope_with_2_kv_heads": ZooMethod(of="rope", kv_heads=2),
    "rope_with_1_kv_head": ZooMethod(of="rope", kv_heads=1),
    "rope_under_pi": ZooMethod("pi", of="rope"),
    "rope_under_ntk": ZooMethod("ntk", of="rope"),
    "rope_under_yarn": ZooMethod("yarn", of="rope", inside=("entropies",)),
    "rope_under_half_yarn": ZooMethod("by_parts+yarn_temperature:factor={times},coefficient=0.05", of="rope"),
    "rope_under_twice_yarn": ZooMethod("by_parts+yarn_temperature:factor={times},coefficient=0.2", of="rope"),
    "rope_under_log_n": ZooMethod("log_n", of="rope", inside=("entropies",)),
    "rope_under_by_parts": ZooMethod("by_parts", of="rope", inside=("entropies",)),
    "rope_with_slow_pairs_slowed": ZooMethod("by_shares:factor={times},shares={slow}", of="rope"),
    "rope_with_fast_pairs_slowed": ZooMethod("by_shares:factor={times},shares={fast}", of="rope"),
    "rope_under_rerope": ZooMethod("rerope:window={half}", of="rope"),
    "rope_under_window": ZooMethod("window:window={length}", of="rope"),
    "rope_under_lm_infinite": ZooMethod("lm_infinite", of="rope"),
    "marked_under_window": ZooMethod("window:window={length}", of="marked", marked=True),
    "marked_under_lm_infinite": ZooMethod("lm_infinite", of="marked", marked=True),
    "marked_under_streaming": ZooMethod("streaming", of="marked", marked=True),
    "marked_with_1_sink": ZooMethod("streaming:n_sink=1", of="marked", marked=True),
    "marked_with_8_sinks": ZooMethod("streaming:n_sink=8", of="marked", marked=True),
    "marked_with_newlines": ZooMethod("streaming", of="marked", newlines=4),
}
METHODS: Mapping[str, ZooMethod] = {**TRAINED, **UNTRAINED}
EVERY = ",".join(METHODS)
