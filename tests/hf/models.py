"""Tiny models with random weights, one of each architecture, made here."""

from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

BASE = {
    "vocab_size": 101,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 32,
    "initializer_range": 0.3,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}
DEEPSEEK = {
    "q_lora_rank": None,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 16,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_group": 1,
    "topk_group": 1,
    "moe_intermediate_size": 32,
    "num_key_value_heads": 4,
    "head_dim": 8,
}
OWN: dict[str, dict[str, Any]] = {
    "llama": {},
    "qwen2": {},
    "qwen3": {},
    "mistral": {"sliding_window": 12},
    "mixtral": EXPERTS,
    # Its cap is low enough to bend random logits. transformers has it eager only, as it has gpt_oss.
    "gemma2": {"sliding_window": 12, "attn_logit_softcapping": 5.0},
    "gemma3_text": {"sliding_window": 12},
    "phi3": {},
    "olmo2": {},
    "gpt_neox": {},
    "granite": {"attention_multiplier": 0.125},  # 1 by default, which no trained one has
    "glm4": {},
    "cohere2": {"sliding_window": 12},
    "smollm3": {},
    "starcoder2": {"sliding_window": 12},
    "gpt_oss": {
        **EXPERTS,
        "sliding_window": 12,
        "rope_parameters": {  # it comes stretched
            "rope_type": "yarn",
            "rope_theta": 150_000.0,
            "factor": 8.0,
            "original_max_position_embeddings": 32,
            "truncate": False,
        },
    },
    "granite_swa": {"sliding_window": 12},  # it has rotary modules in a list, and one that it does not call
    "deepseek_v3": DEEPSEEK,
    "deepseek_v2": {**DEEPSEEK, "first_k_dense_replace": 2},
    "llama4_text": {  # three layers of four rotate, within chunks
        **EXPERTS,
        "intermediate_size_mlp": 96,
        "attention_chunk_size": 12,
        "attn_temperature_tuning": False,  # transformers counts padding for it
    },
    "stablelm": {},
    "phi": {},
    "hunyuan_v1_dense": {},
    "nanochat": {},
    "ministral3": {
        "rope_parameters": {  # it comes stretched, and reads the original length for a temperature of its own
            "rope_type": "yarn",
            "rope_theta": 1_000_000.0,
            "factor": 8.0,
            "original_max_position_embeddings": 32,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
            "llama_4_scaling_beta": 0.1,
        }
    },
}
FEW_EXPERTS = {"num_experts": 4, "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
LINEAR = {
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
}
NARROW: dict[str, dict[str, Any]] = {  # of other models, sizes that are large unless they are stated
    "qwen3_next": {**FEW_EXPERTS, **LINEAR, "shared_expert_intermediate_size": 32},
    "qwen3_5_text": LINEAR,
    "glm4_moe": FEW_EXPERTS,
}


def tiny(name: str, attention: str | None = None, **changed: Any) -> Any:
    """A model of this type; norms are not left at 1, where they would hide."""
    torch.manual_seed(0)
    config = AutoConfig.for_model(name, **{**BASE, **NARROW.get(name, {}), **OWN.get(name, {}), **changed})
    model = AutoModelForCausalLM.from_config(config, attn_implementation=attention).eval()
    for parameter in model.parameters():
        if parameter.dim() == 1:
            parameter.data.add_(0.3 * torch.rand_like(parameter))
    return model
