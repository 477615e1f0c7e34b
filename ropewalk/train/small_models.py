"""Small models with random weights: standard Llamas, and variants with one change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from torch import nn
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from ropewalk.errors import InvalidValue
from ropewalk.methods.record import AT_LEAST_ONE, POSITIVE, Checked

SINE = 0.1  # the largest value of a sinusoidal position; learned positions of small models become about as large


@dataclass(frozen=True, kw_only=True)
class ModelShape(Checked):
    """The sizes of a small model: a Llama, unless `places` or `key_norm` make it another."""

    vocabulary: Annotated[int, AT_LEAST_ONE, "tokens of the vocabulary"] = 2048
    width: Annotated[int, AT_LEAST_ONE, "width of the hidden states"] = 256
    inner: Annotated[int, AT_LEAST_ONE, "width of the feed-forward layer"] = 1024
    layers: Annotated[int, AT_LEAST_ONE, "number of layers"] = 6
    heads: Annotated[int, AT_LEAST_ONE, "query heads"] = 4
    kv_heads: Annotated[int | None, AT_LEAST_ONE, "key and value heads; nothing: as many as query heads"] = None
    base: Annotated[float, POSITIVE, "base of the rotary frequencies"] = 10_000.0
    trained_len: Annotated[int, AT_LEAST_ONE, "tokens of a training row"] = 512
    places: Annotated[
        Literal["rotary", "learned", "sinusoidal"], "position encoding; another than rotary makes it a GPT-2"
    ] = "rotary"
    key_norm: Annotated[bool, "norms on queries and keys; makes it a Qwen3"] = False

    def check(self) -> None:
        """Heads share the width evenly, and key heads the heads."""
        if self.width % self.heads or self.heads % (self.kv_heads or self.heads):
            rule = f"a divisor of width {self.width}, and a multiple of kv_heads ({self.kv_heads})"
            raise InvalidValue("heads", rule, self.heads)
        if self.places == "rotary" and self.width // self.heads % 2:
            rule = f"such that width {self.width} over heads is even"
            raise InvalidValue("heads", rule, self.heads)
        if self.places != "rotary" and (self.key_norm or self.kv_heads not in (None, self.heads)):
            raise InvalidValue("places", "rotary with key_norm or kv_heads, which GPT-2 lacks", self.places)


def new_small_model(shape: ModelShape, *, end: int = 0, seed: int = 0, numbers: int | None = None) -> PreTrainedModel:
    """A model of a shape, the same for the same seed.

    Args:
        shape: its size and its position encoding.
        end: the token id that begins and ends a text.
        seed: of the weights.
        numbers: size of a learned position table; by default the trained length.
    """
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        if shape.places != "rotary":
            model = GPT2LMHeadModel(_gpt2(shape, end, numbers or shape.trained_len))
            return model if shape.places == "learned" else with_sinusoids(model, numbers or shape.trained_len)
        config: dict[str, Any] = {
            "vocab_size": shape.vocabulary,
            "hidden_size": shape.width,
            "intermediate_size": shape.inner,
            "num_hidden_layers": shape.layers,
            "num_attention_heads": shape.heads,
            "num_key_value_heads": shape.kv_heads or shape.heads,
            "max_position_embeddings": shape.trained_len,
            "rope_parameters": {"rope_type": "default", "rope_theta": shape.base},
            "tie_word_embeddings": True,
            "bos_token_id": end,
            "eos_token_id": end,
            "pad_token_id": None,
        }
        if shape.key_norm:
            return Qwen3ForCausalLM(Qwen3Config(**config, head_dim=shape.width // shape.heads))
        return LlamaForCausalLM(LlamaConfig(**config))


def with_sinusoids(model: GPT2LMHeadModel, length: int) -> GPT2LMHeadModel:
    """The GPT-2 with sines and cosines for positions, which are not trained, up to a length.

    Source: Vaswani et al. 2017, arXiv:1706.03762, sec. 3.5; smaller by SINE, since embeddings are not multiplied here.
    """
    width = model.config.n_embd
    places = torch.arange(length, dtype=torch.float64)
    angles = torch.outer(places, 10_000.0 ** (-torch.arange(0, width, 2, dtype=torch.float64) / width))
    table = SINE * torch.stack([angles.sin(), angles.cos()], -1).flatten(1)[:, :width]
    model.transformer.wpe = nn.Embedding(*table.shape)
    model.transformer.wpe.weight = nn.Parameter(table.to(model.device, model.dtype), requires_grad=False)
    model.config.n_positions = length
    return model


def _gpt2(shape: ModelShape, end: int, numbers: int) -> GPT2Config:
    """Without dropout: a small model sees no text twice."""
    return GPT2Config(
        vocab_size=shape.vocabulary,
        n_positions=numbers,
        n_embd=shape.width,
        n_inner=shape.inner,
        n_layer=shape.layers,
        n_head=shape.heads,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=end,
        eos_token_id=end,
        pad_token_id=None,
    )
