"""The engines that people serve with, each by its rule."""

from __future__ import annotations

from ropewalk.hf.engine_export.engines import llama_cpp, plain, sglang, vllm
from ropewalk.hf.engine_export.engines.signature import Engine as Engine
from ropewalk.hf.engine_export.engines.signature import Reading as Reading
from ropewalk.hf.engine_export.engines.signature import Stated as Stated

ENGINES: dict[str, Engine] = {
    "transformers": Engine(plain.read, plain.command),
    "vllm": Engine(vllm.read, vllm.command),
    "sglang": Engine(sglang.read, sglang.command),
    "llama.cpp": Engine(llama_cpp.read, llama_cpp.command),
}
