"""The trainers, each by its rule: continued training under a schedule, in the trainer's own settings."""

from __future__ import annotations

from ropewalk.hf.engine_export.engines.signature import EngineRules
from ropewalk.hf.engine_export.trainers import axolotl, llama_factory, torchtitan

TRAINERS: dict[str, EngineRules] = {
    "llama-factory": EngineRules(llama_factory.read, llama_factory.command),
    "axolotl": EngineRules(axolotl.read, axolotl.command, folder=False),
    "torchtitan": EngineRules(torchtitan.read, torchtitan.command, folder=False),
}
