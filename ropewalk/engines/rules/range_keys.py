"""Keys of a config, beside its rope parameters, that say which positions a layer meets and how far it reads.

An engine that does not read one of them computes another model: in every text, or in those beyond some length.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from ropewalk.engines.rules.rotation import EngineRules, RopeConfig
from ropewalk.hf.probe.trained_lengths import DUAL_CHUNK, ORIGINAL

WINDOW, CHUNK, STILL = "sliding_window", "attention_chunk_size", "no_rope_layers"
SCALED, SPARSE = "attn_temperature_tuning", "index_topk"
# Names of keys that speak of positions or of ranges, whoever made them up; those of ropewalk are notes and plans.
CONCERNS = re.compile(
    r"^(?!_|ropewalk).*(rope|rotary|position_emb|window|dual_chunk|attention_chunk|logn|ntk|alibi|sparse_att|swa|yarn)"
)
# What transformers moves into the rope parameters, or what says the same as they do.
MOVED = frozenset(
    (
        *("rope_parameters", "rope_scaling", "rope_theta", "rope_local_base_freq", "partial_rotary_factor"),
        *("rotary_dim", "rotary_pct", "rotary_emb_base", "rope_pct", "max_position_embeddings", ORIGINAL),
        *("position_embedding_type", "rope_interleave", "max_window_layers", "use_sliding_window"),
    )
)


class RangeKey(NamedTuple):
    """One such key that is in force."""

    name: str
    within: int  # tokens of a text in which it changes nothing
    what: str  # what it does beyond


def keys_in_force(config: RopeConfig) -> Iterator[RangeKey]:
    """The keys whose meaning is known, where their values change anything."""
    text = config.text
    dual = text.get(DUAL_CHUNK)
    if isinstance(dual, dict) and isinstance(dual.get(ORIGINAL), int):
        yield RangeKey(DUAL_CHUNK, dual[ORIGINAL], "far positions are met by dual chunk attention")
    window, kinds = text.get(WINDOW), text.get("layer_types") or ["sliding_attention"]
    slides = text.get("use_sliding_window") is not False and "sliding_attention" in kinds
    if slides and isinstance(window, int) and window:
        yield RangeKey(WINDOW, window, f"layers read the last {window:,} tokens alone")
    chunk = text.get(CHUNK)
    if isinstance(chunk, int) and chunk and ("chunked_attention" in kinds or "layer_types" not in text):
        yield RangeKey(CHUNK, chunk, f"layers read within {chunk:,} tokens")
    if isinstance(text.get(STILL), list) and len(set(text[STILL])) > 1:
        yield RangeKey(STILL, 0, "some layers do not rotate")
    if text.get(SCALED) and isinstance(text.get("floor_scale"), int):
        yield RangeKey(SCALED, text["floor_scale"], "queries of layers that do not rotate grow with their position")
    if isinstance(text.get(SPARSE), int):
        yield RangeKey(SPARSE, text[SPARSE], "queries read the keys that an index selects")


def is_every_fourth(still: list[int]) -> bool:
    """Whether `no_rope_layers` says what engines have as a constant of Llama 4: each fourth layer does not rotate."""
    return list(still) == [int((layer + 1) % 4 != 0) for layer in range(len(still))]


def unread_keys(rules: EngineRules, config: RopeConfig) -> list[RangeKey]:
    """Those that an engine does not read."""
    return [key for key in keys_in_force(config) if not rules.reads_beside(config, key.name)]


def unread_names(rules: EngineRules, config: RopeConfig) -> list[str]:
    """The names of all keys that an engine does not read, those that nobody here knows among them."""
    known = [key.name for key in unread_keys(rules, config)]
    others = (
        key
        for key in sorted(config.undeclared)
        if CONCERNS.search(key) and key not in MOVED and config.text.get(key) and not rules.reads_beside(config, key)
    )
    return list(dict.fromkeys((*known, *others)))
