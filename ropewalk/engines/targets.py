"""The engines that serve models and the trainers that go on training them, each by its rules."""

from __future__ import annotations

from ropewalk.engines.exllamav3 import RULES as EXLLAMAV3
from ropewalk.engines.llama_cpp.rules import RULES as LLAMA_CPP
from ropewalk.engines.lmdeploy import RULES as LMDEPLOY
from ropewalk.engines.mlx import RULES as MLX
from ropewalk.engines.ollama import MLX_RULES as OLLAMA_MLX, RULES as OLLAMA
from ropewalk.engines.rules.rotation import EngineRules
from ropewalk.engines.rules.statement import ExportRules
from ropewalk.engines.sglang import RULES as SGLANG
from ropewalk.engines.trainers import by_yaml, torchtitan
from ropewalk.engines.transformers import RULES as TRANSFORMERS, rewrite as rewrite_plainly
from ropewalk.engines.vllm.rules import RULES as VLLM

ENGINES: dict[str, EngineRules] = {
    rules.name: rules for rules in (VLLM, SGLANG, LLAMA_CPP, MLX, OLLAMA, OLLAMA_MLX, LMDEPLOY, EXLLAMAV3, TRANSFORMERS)
}
# Continued training under a schedule, in the trainer's own settings.
TRAINERS: dict[str, ExportRules] = {
    "llama-factory": ExportRules(rewrite_plainly, by_yaml.llama_factory),
    "axolotl": ExportRules(by_yaml.rewrite_for_axolotl, by_yaml.axolotl, folder=False),
    "torchtitan": ExportRules(torchtitan.rewrite, torchtitan.command, folder=False),
}
TARGETS: dict[str, ExportRules] = {
    **{rules.name: rules.export for rules in (TRANSFORMERS, VLLM, SGLANG, LLAMA_CPP, MLX) if rules.export},
    **TRAINERS,
}
