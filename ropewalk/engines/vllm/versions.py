"""What of vLLM the plugin reaches: the versions that `make engines` tested, and the models that vLLM has code of.

Another version is refused, not guessed.
"""

from __future__ import annotations

TESTED = ("0.32",)
# By model type. Source: _TRANSFORMERS_SUPPORTED_MODELS in model_executor/models/registry.py of vLLM 0.32.0.
BY_TRANSFORMERS = frozenset(
    (
        *("arcee", "cwm", "flex_olmo", "glm", "gpt_neox", "hunyuan_v1_dense", "hunyuan_v1_moe", "jais2", "nanbeige"),
        *("olmo", "olmo2", "olmo3", "phi", "seed_oss", "smollm3", "starcoder2", "vaultgemma"),
    )
)
# Rope parameters by which vLLM's modules do what Ropewalk's do not: positions of other kinds, and sums of waves.
UNSUPPORTED = ("xdrope_section", "use_fope")
# For these, vLLM's module for several positions a token (M-RoPE) has a row for each token. For others it has four times
# as many rows, and works out YaRN's ramp for that length, which is another table than transformers'.
# Source: mrope_positions_factor in model_executor/models/qwen3_vl.py, and rotary_embedding/mrope.py, of vLLM 0.32.0.
EXACT_YARN_OF_AXES = frozenset(
    f"{name}{text}" for name in ("qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe") for text in ("", "_text")
)
# Source: model_executor/models/gpt_oss.py of vLLM 0.32.0, which hands get_rope rope parameters of its own.
ALWAYS_YARN = "gpt_oss"


def why_unknown(version: str) -> str:
    """Why a version of vLLM is not known; empty for one that is."""
    if any(version == known or version.startswith(f"{known}.") for known in TESTED):
        return ""
    tested = ", ".join(f"{known}.x" for known in TESTED)
    return f"this version of Ropewalk was tested with vLLM {tested}, and vLLM is {version}"


def why_not_reached(model_type: str) -> str:
    """Why the plugin cannot compute a type of model; empty where it can."""
    if model_type in BY_TRANSFORMERS:
        return f"vLLM has no code of its own for {model_type}, and the plugin cannot reach transformers'"
    if model_type == ALWAYS_YARN:
        return f"vLLM computes YaRN for {model_type} whatever its config says, and the plugin cannot replace it"
    return ""
