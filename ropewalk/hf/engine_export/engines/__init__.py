"""The serving engines, each by its rule."""

from __future__ import annotations

from ropewalk.hf.engine_export.engines import llama_cpp, plain, sglang, vllm
from ropewalk.hf.engine_export.engines.signature import EngineReading as EngineReading
from ropewalk.hf.engine_export.engines.signature import EngineRules as EngineRules
from ropewalk.hf.engine_export.engines.signature import StatedModel as StatedModel

ENGINES: dict[str, EngineRules] = {
    "transformers": EngineRules(plain.read, plain.command),
    "vllm": EngineRules(vllm.read, vllm.command),
    "sglang": EngineRules(sglang.read, sglang.command),
    "llama.cpp": EngineRules(llama_cpp.read, llama_cpp.command),
}
