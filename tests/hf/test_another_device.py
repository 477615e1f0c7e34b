"""An extended model on another device: forward, and generation over a cache with a padded row. See `another_device`."""

import importlib

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from ropewalk import extend
from ropewalk.attention.backends.choose import Choice
from ropewalk.attention.backends.dense import DENSE

from another_device import THERE, another_device, here, move, there

SIZES = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
TEXTS = ("yarn:factor=2", "dynamic_yarn", "rerope+log_n", "alibi", "kerple", "fire", "biases.t5", "scales.head_scale")
MORE = ("streaming:window=8", "self_extend:window=8,group=8", "dual_chunk", "biases.kerple_log+window:window=9")
IDS = torch.randint(1, 50, (2, 40), generator=torch.Generator().manual_seed(0))
MASK = torch.ones_like(IDS)
MASK[0, :9] = 0


def model_under(text):
    torch.manual_seed(0)
    config = LlamaConfig(vocab_size=50, num_key_value_heads=2, max_position_embeddings=32, **SIZES)
    model = LlamaForCausalLM(config).eval()
    extend(model, text)
    return model


@pytest.mark.sampled(cases=2)
@pytest.mark.parametrize("text", [*TEXTS, *MORE])
@torch.no_grad()
def test_an_extended_model(text, monkeypatch):
    dispatch = importlib.import_module("ropewalk.attention.dispatch")
    monkeypatch.setattr(dispatch, "choose", lambda problem: Choice(DENSE, "chosen by a test"))
    model, how = model_under(text), {"max_new_tokens": 6, "do_sample": False, "pad_token_id": 0}
    logits = model(IDS, attention_mask=MASK).logits
    answer = model.generate(IDS, attention_mask=MASK, **how)
    moved = move(model_under(text))
    with another_device():
        got = moved(there(IDS), attention_mask=there(MASK)).logits
        assert got.device == THERE
        assert torch.equal(here(moved.generate(there(IDS), attention_mask=there(MASK), **how)), answer)
        torch.testing.assert_close(here(got)[1], logits[1], atol=1e-4, rtol=1e-4)
