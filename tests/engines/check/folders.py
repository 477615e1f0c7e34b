"""Folders of models to be checked."""

import json
from pathlib import Path

from transformers import LlamaConfig

K = 1024
# Each config.json as its makers publish it, without what says nothing of positions; the file says where it lies.
RELEASED = {
    one["name"]: one["config"]
    for one in json.loads((Path(__file__).parent / "released_configs.json").read_text(encoding="utf-8"))
}


def llama(rope_type="default", length=8 * K, **rope):
    return LlamaConfig(
        head_dim=128,
        max_position_embeddings=length,
        rope_parameters={"rope_type": rope_type, "rope_theta": 500_000.0, **rope},
    )
