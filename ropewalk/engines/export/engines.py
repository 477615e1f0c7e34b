"""What is exported to: serving engines and trainers, each by its rules."""

from __future__ import annotations

from ropewalk.engines.llama_cpp import export as llama_cpp
from ropewalk.engines.rules.statement import EngineRules
from ropewalk.engines.sglang import export as sglang
from ropewalk.engines.trainers import axolotl, llama_factory, torchtitan
from ropewalk.engines.transformers import export as transformers
from ropewalk.engines.vllm import export as vllm

ENGINES: dict[str, EngineRules] = {
    "transformers": EngineRules(transformers.read, transformers.command),
    "vllm": EngineRules(vllm.read, vllm.command),
    "sglang": EngineRules(sglang.read, sglang.command),
    "llama.cpp": EngineRules(llama_cpp.read, llama_cpp.command),
}
# Continued training under a schedule, in the trainer's own settings.
TRAINERS: dict[str, EngineRules] = {
    "llama-factory": EngineRules(llama_factory.read, llama_factory.command),
    "axolotl": EngineRules(axolotl.read, axolotl.command, folder=False),
    "torchtitan": EngineRules(torchtitan.read, torchtitan.command, folder=False),
}
