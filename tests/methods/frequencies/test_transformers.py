"""Schedules and rotation against transformers, an implementation nobody here wrote."""

import pytest
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.gpt_neox.modeling_gpt_neox import apply_rotary_pos_emb as half_split_rotation

from ropewalk import Facts
from ropewalk.equation import rotate
from ropewalk.methods.frequencies import ByParts, Interpolation, Llama3, Partial, RoPE

FACTS = Facts(head_dim=64, trained_len=2048, base=500_000.0)
LENGTHS = {"factor": 8.0, "original_max_position_embeddings": 2048}
PAIRS_OF_SPECS = [
    (Interpolation(factor=8), {"rope_type": "linear", "factor": 8.0}),
    (ByParts(factor=8), {"rope_type": "yarn", **LENGTHS}),
    (ByParts(factor=8, low_turns=2, high_turns=64), {"rope_type": "yarn", "beta_slow": 2, "beta_fast": 64, **LENGTHS}),
    (ByParts(factor=8, truncate=False), {"rope_type": "yarn", "truncate": False, **LENGTHS}),
    (Llama3(factor=8), {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0, **LENGTHS}),
    (Partial(share=0.4, over="head"), {"rope_type": "proportional", "partial_rotary_factor": 0.4}),
]


@pytest.mark.parametrize(("spec", "settings"), PAIRS_OF_SPECS, ids=lambda each: str(each)[:40])
def test_schedule(spec, settings):
    config = LlamaConfig(
        hidden_size=256,
        num_attention_heads=4,
        head_dim=64,
        max_position_embeddings=2048 * 8,
        rope_parameters={"rope_theta": 500_000.0, **settings},
    )
    expected, _ = ROPE_INIT_FUNCTIONS[settings["rope_type"]](config, device="cpu")
    torch.testing.assert_close(spec.table(FACTS, 1).inv_freq, expected.double(), rtol=2e-6, atol=1e-12)


def test_half_split_rotation():
    positions = torch.arange(7)[None]
    x = torch.randn(1, 2, 7, 64, dtype=torch.float64)
    angle = positions[0, :, None] * RoPE().table(FACTS, 1).inv_freq
    doubled = torch.cat([angle, angle], -1)[None]
    expected, _ = half_split_rotation(x, x, doubled.cos(), doubled.sin())
    torch.testing.assert_close(rotate(x, positions, RoPE().table(FACTS, 1), interleaved=False), expected)


def test_interleaved_rotation_is_complex_multiplication():
    positions, table = torch.arange(7)[None], RoPE().table(FACTS, 1)
    x = torch.randn(1, 2, 7, 64, dtype=torch.float64)
    pairs = torch.view_as_complex(x.reshape(1, 2, 7, 32, 2))
    expected = torch.view_as_real(pairs * torch.exp(1j * positions[0, :, None] * table.inv_freq)).flatten(-2)
    torch.testing.assert_close(rotate(x, positions, table, interleaved=True), expected)
