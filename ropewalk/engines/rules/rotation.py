"""The input and the output of an engine's formula: a config in, one table of rotations out."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from torch import Tensor

from ropewalk.engines.rules.formulas import USUAL_BASE
from ropewalk.engines.rules.statement import ExportRules

Version = tuple[int, ...]
# Keys that say which dimensions rotate, and where positions have several axes. Every engine here reads them.
LAYOUT = frozenset(("type", "rope_type", "rope_theta", "partial_rotary_factor", "mrope_section", "mrope_interleaved"))
# By type of schedule, what get_rope reads of it in vLLM and in SGLang. YaRN differs, and is in their files.
READS = {
    "default": (),
    "proportional": (),
    "linear": ("factor",),
    "dynamic": ("factor", "alpha"),
    "llama3": ("factor", "original_max_position_embeddings", "low_freq_factor", "high_freq_factor"),
    "longrope": ("original_max_position_embeddings", "short_factor", "long_factor", "short_mscale", "long_mscale"),
}


@dataclass(frozen=True, kw_only=True)
class RopeConfig:
    """The part of a config that engines read: of the language model, as transformers standardizes it."""

    model_type: str
    parts: Mapping[str, Mapping[str, Any]]  # rope parameters by layer type, or one set under ""
    head_dims: Mapping[str, int]  # dimensions that each part speaks of
    max_len: int  # max_position_embeddings
    text: Mapping[str, Any]  # all of the language model's config
    tokenizer_len: int | None = None  # model_max_length of the tokenizer
    divisors: tuple[float, ...] | None = None  # rope.freqs.weight beside the config: llama.cpp's divisors
    part_of: str = ""  # the model type of the whole, where the language model is a part of it
    released_as: str = ""  # its model type, where transformers has no class of it and another's reads it
    undeclared: frozenset[str] = frozenset()  # keys of the config that transformers' class of it does not have
    of_file: bool = False  # whether a GGUF file says it, which llama.cpp reads without converting anything
    written: Mapping[str, Any] = field(default_factory=dict)  # the text as its file has it; empty: there is none

    @property
    def latent(self) -> bool:
        """Whether keys and values come from a latent vector (DeepSeek's attention)."""
        return bool(self.text.get("kv_lora_rank"))

    def kind(self, name: str) -> str:
        """The type of a part's schedule; `su` is longrope's first name."""
        kind = str(self.parts[name].get("rope_type") or self.parts[name].get("type") or "default")
        return "longrope" if kind == "su" else kind

    def base(self, name: str) -> float:
        """The base of a part's frequencies."""
        return float(self.parts[name].get("rope_theta") or USUAL_BASE)

    def dims(self, name: str) -> int:
        """How many dimensions of a head rotate."""
        share = 1.0 if self.kind(name) == "proportional" else self.parts[name].get("partial_rotary_factor") or 1.0
        return int(self.head_dims[name] * share)

    def original(self, name: str) -> int:
        """The length before the schedule."""
        return int(self.parts[name].get("original_max_position_embeddings") or self.max_len)

    def factor(self, name: str) -> float:
        """How many times the original length a schedule is for."""
        factor = self.parts[name].get("factor")
        return float(self.max_len / self.original(name) if factor is None else factor)


class QueryScale(NamedTuple):
    """Queries multiplied by 1 + beta ln(1 + floor(position / length)), as in Ministral 3."""

    beta: float
    length: int


class EngineRotation(NamedTuple):
    """What is computed for one type of layer in a text of one length."""

    inv_freq: Tensor  # radians per position of every pair, float64
    temperature: float = 1.0  # the factor of cos and sin
    rows: float = math.inf  # positions that the table has
    logits: float = 1.0  # the factor of all logits besides
    query_scale: QueryScale | None = None

    @property
    def scale(self) -> float:
        """The factor of the logits in all."""
        return self.temperature**2 * self.logits


class Asked(NamedTuple):
    """For which version, length of the server, and length of one text."""

    version: Version
    served: int
    text: int


class LengthRule(NamedTuple):
    """The lengths of an engine."""

    allowed: float  # the longest that it accepts; infinite: any
    default: int  # without a flag


class Caution(NamedTuple):
    """Why texts of one length may not all get one table."""

    sentence: str
    harmful: bool  # whether a single text, read and continued, is computed differently


class NoAnswer(NamedTuple):
    """Why there is no rotation to state: the engine refuses to start, or nobody has read what it computes here."""

    kind: Literal["refused", "unknown"]
    sentence: str
    remedy: str = ""


Answer = EngineRotation | NoAnswer


def reads_what_is_declared(config: RopeConfig, key: str) -> bool:
    """Whether transformers' class of a config has a key; an engine that has no list of its own reads the same."""
    return key not in config.undeclared


class VersionRange(NamedTuple):
    """Versions that compute alike, as far as positions go, and what was read or run of them."""

    first: Version
    last: Version
    source: str


@dataclass(frozen=True)
class EngineRules:
    """One engine: its versions, what it computes from a config, and what is exported to it."""

    name: str
    ranges: tuple[VersionRange, ...]
    rotation: Callable[[RopeConfig, str, Asked], Answer]
    length: Callable[[RopeConfig, Version], LengthRule]
    reads: Callable[[RopeConfig, str, Version], frozenset[str]]  # keys of a part, besides the layout's
    flags: Callable[[Mapping[str, Any], int], str]  # change keys of the config, and serve a length
    cautions: Callable[[RopeConfig, str, Asked], tuple[Caution, ...]]
    export: ExportRules | None = None  # None: nothing is exported to it
    # Whether it reads a key beside the rope parameters that says which positions a layer meets, or how far it reads.
    reads_beside: Callable[[RopeConfig, str], bool] = reads_what_is_declared
