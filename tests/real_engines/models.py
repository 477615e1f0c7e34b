"""What the engines are given: the carried model, small ones of other architectures, and long prompts.

All of them were trained (or claim to be) on 512 tokens, and prompts are up to 8 times as long.
"""

import argparse
import ast
import copy
import inspect
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from ropewalk.models import DEFAULT

from hf.models import tiny

ROOT = Path(__file__).resolve().parents[2]
TRAINED = 512
LONGEST = 8 * TRAINED
PLAIN = {"rope_type": "default", "rope_theta": 10_000.0}
# Small enough to be quick, with a head dimension, a base and initial weights under which positions matter, and rounding
# is not amplified: logits are off by more than 0.1 under another schedule, and by less than 1e-3 in another float32.
SIZES = {
    "vocab_size": 512,
    "hidden_size": 128,
    "intermediate_size": 192,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": TRAINED,
    "initializer_range": 0.15,
    "rope_parameters": PLAIN,
}
AXES = {"mrope_section": [2, 1, 1], "mrope_interleaved": True}
QUARTER = {"layer_types": ["full_attention"] * 2}  # of each head rotates; linear attention on CPUs needs bfloat16

# What the engines fix for an architecture, or what makes it show: layers in its pattern, a window, two bases.
OWN = {
    "mistral": {"sliding_window": None},
    "smollm3": {"num_hidden_layers": 4},
    "gemma3_text": {
        "num_hidden_layers": 6,
        "sliding_window": 128,
        "query_pre_attn_scalar": 32,
        "rope_parameters": {
            "sliding_attention": {"rope_type": "default", "rope_theta": 5_000.0},
            "full_attention": {"rope_type": "default", "rope_theta": 20_000.0},
        },
    },
    "qwen3_next": {
        **{**QUARTER, "rope_parameters": {**PLAIN, "partial_rotary_factor": 0.25}},
        **{"num_experts": 4, "num_experts_per_tok": 2, "decoder_sparse_step": 1},  # vLLM makes none without experts
        **{"moe_intermediate_size": 64, "shared_expert_intermediate_size": 64},
    },
    "qwen3_5_text": {**QUARTER, "rope_parameters": {**PLAIN, **AXES, "partial_rotary_factor": 0.25}},
    "exaone4": {"num_hidden_layers": 4, "sliding_window": None, "layer_types": ["full_attention"] * 4},
}


def carried(dtype=torch.float32):
    """The model that Ropewalk carries."""
    return AutoModelForCausalLM.from_pretrained(DEFAULT, dtype=dtype).eval()


def carried_tokenizer():
    return AutoTokenizer.from_pretrained(DEFAULT)


def small(name, dtype=torch.float32, **changed):
    """A model of this type with random weights, made from a seed."""
    own = copy.deepcopy({**SIZES, **OWN.get(name, {}), **changed})  # some configs change their rope parameters
    model = tiny(name, **own)
    for parameter in model.parameters():  # rotary tables stay in float32, as in a model that is loaded
        parameter.data = parameter.data.to(dtype)
    return model


def prompt(length=LONGEST):
    """Tokens of the carried model: source text of Python's standard library."""
    text = "".join(Path(inspect.getsourcefile(module)).read_text() for module in (argparse, ast, inspect))
    return carried_tokenizer().encode(text)[:length]


def random_prompt(length, vocabulary=SIZES["vocab_size"]):
    """Tokens of a small model, which read like nothing; the first three ids are special."""
    return torch.randint(3, vocabulary, (length,), generator=torch.Generator().manual_seed(17)).tolist()


@torch.no_grad()
def log_probabilities(model, ids):
    """What the model, extended or not, says of every next token: tokens x vocabulary, in float32."""
    return model(torch.tensor([ids], device=model.device)).logits[0].float().log_softmax(-1)
