"""What each engine computes from a config, by its own formula, with the versions that were read."""

from __future__ import annotations

from ropewalk.engines.llama_cpp.check import RULES as LLAMA_CPP
from ropewalk.engines.rules.rotation import EngineFormulas
from ropewalk.engines.sglang.check import RULES as SGLANG
from ropewalk.engines.transformers.check import RULES as TRANSFORMERS
from ropewalk.engines.vllm.check import RULES as VLLM

ENGINES: dict[str, EngineFormulas] = {rules.name: rules for rules in (VLLM, SGLANG, LLAMA_CPP, TRANSFORMERS)}
