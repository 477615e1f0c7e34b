"""Folders of models to be checked."""

from transformers import LlamaConfig

K = 1024


def llama(rope_type="default", length=8 * K, **rope):
    return LlamaConfig(
        head_dim=128,
        max_position_embeddings=length,
        rope_parameters={"rope_type": rope_type, "rope_theta": 500_000.0, **rope},
    )
