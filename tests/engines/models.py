"""What the engines are given: the carried model, small ones of other architectures, and long prompts.

All of them were trained (or claim to be) on 512 tokens, and prompts are up to 8 times as long.
"""

import argparse
import ast
import copy
import inspect
from pathlib import Path

import torch
from hf.models import tiny
from transformers import AutoModelForCausalLM, AutoTokenizer

from ropewalk.models import DEFAULT

TRAINED = 512
LONGEST = 8 * TRAINED
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
    "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0},
}


def carried(dtype=torch.float32):
    """The model that Ropewalk carries."""
    return AutoModelForCausalLM.from_pretrained(DEFAULT, dtype=dtype).eval()


def carried_tokenizer():
    return AutoTokenizer.from_pretrained(DEFAULT)


def small(name, dtype=torch.float32, **changed):
    """A model of this type with random weights, made from a seed."""
    return tiny(name, **{**copy.deepcopy(SIZES), **changed}).to(dtype)  # some configs change their rope parameters


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
