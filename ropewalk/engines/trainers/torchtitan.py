"""torchtitan, as its source reads a model (0.3.0: models/common/rope.py, models/{llama3,qwen3}; settings are Python):

none     another base (theta)
llama    llama3, where pairs are neighbours (Llama's code, and not Qwen3's)
yarn     the frequencies, and no temperature: only DeepSeek's and gpt-oss's attention have one, by a rule of their own

No other schedule, no table pair by pair, and nothing of a config.json.
"""

from __future__ import annotations

from typing import Any

from ropewalk.engines.rules.statement import EngineReading, StatedModel
from ropewalk.errors import DoesNotFit

ROPE = {"llama": "ComplexRoPE", "qwen3": "CosSinRoPE", "qwen3_moe": "CosSinRoPE"}
# The names of its settings, by those of transformers.
LLAMA3 = {
    "factor": "scaling_factor",
    "low_freq_factor": "low_freq_factor",
    "high_freq_factor": "high_freq_factor",
    "original_max_position_embeddings": "original_max_position_embeddings",
}
YARN = {
    "factor": "rope_factor",
    "beta_fast": "beta_fast",
    "beta_slow": "beta_slow",
    "original_max_position_embeddings": "original_seq_len",
    "truncate": "truncate",
}
SCRIPT = "use rw.extend in your own script"


def rewrite(stated: StatedModel) -> EngineReading | DoesNotFit:
    """What the model's rotary module computes from its settings, or why it does not."""
    kind = stated.text.model_type
    if kind not in ROPE or stated.config is not stated.text or stated.window is not None:
        return DoesNotFit("model", f"a plain {' or '.join(ROPE)} for torchtitan", kind, remedy=SCRIPT)
    known = ("default", "yarn", "llama3") if kind == "llama" else ("default", "yarn")
    if stated.type not in known or stated.kinds:
        return DoesNotFit(
            "schedule", f"one of {', '.join(known)}, which torchtitan's {kind} has", stated.type, remedy=SCRIPT
        )
    if stated.temperature != 1:
        remedy = "use by_parts, which is yarn without its temperature, or rw.extend in your own script"
        sentence = f"torchtitan's {kind} has no temperature, and would train without {stated.temperature:.4f}"
        return DoesNotFit.because("temperature", sentence, remedy=remedy)
    return EngineReading(lowered=False)


def command(place: str, stated: StatedModel) -> str:
    """The lines of the function that makes the Trainer.Config."""
    rope, parameters = ROPE[stated.text.model_type], stated.parameters[0]
    values: dict[str, Any] = {"dim": 2 * len(stated.table), "max_seq_len": stated.length}
    values |= {"theta": float(parameters["rope_theta"]), **_scaling(stated.type, parameters)}
    stated_values = ", ".join(f"{name}={value!r}" for name, value in values.items())
    return "\n".join(
        [
            f"from torchtitan.models.common import {rope}",
            "for layer in model_spec.model.layers:  # after model_spec = model_registry(...)",
            f"    layer.attention.rope = {rope}.Config({stated_values})",
            f"# in Trainer.Config: hf_assets_path={place!r}, training.seq_len={stated.length},",
            "# checkpoint.enable=True, checkpoint.initial_load_in_hf=True",
        ]
    )


def _scaling(kind: str, parameters: dict[str, Any]) -> dict[str, Any]:
    """The schedule in torchtitan's names; what is not stated keeps the value that both assume."""
    if kind == "default":
        return {"scaling": "none"}
    names = LLAMA3 if kind == "llama3" else YARN
    scaling = {"scaling": "llama" if kind == "llama3" else "yarn"}
    return scaling | {names[key]: parameters[key] for key in names if parameters.get(key) is not None}
