"""What each engine computes from a config, by its own formula, with the versions that were read."""

from __future__ import annotations

from ropewalk.hf.engine_check.engines import llama_cpp, sglang, transformers, vllm
from ropewalk.hf.engine_check.engines.signature import EngineFormulas

ENGINES: dict[str, EngineFormulas] = {
    rules.name: rules for rules in (vllm.RULES, sglang.RULES, llama_cpp.RULES, transformers.RULES)
}
