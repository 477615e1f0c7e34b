"""Scales against transformers' own code of the models that have them."""

import pytest
import torch
from transformers import Llama4TextConfig
from transformers.models.llama4 import modeling_llama4
from transformers.models.ministral3 import modeling_ministral3
from transformers.models.mistral4 import modeling_mistral4

from ropewalk import Facts
from ropewalk.methods.scales import Llama4Temperature

FACTS = Facts(trained_len=16, head_dim=8)


@pytest.mark.parametrize("code", [modeling_ministral3, modeling_mistral4], ids=["ministral3", "mistral4"])
def test_ministral_3_and_mistral_4(code):
    rows = torch.tensor([0, 1, 15, 16, 31, 32, 1000, 10**6])
    expected = code.get_llama_4_attn_scale(rows[None].double(), 0.3, 16)[0, 0, :, 0]
    got = Llama4Temperature(beta=0.3).scale(rows, FACTS, {})[0]
    torch.testing.assert_close(got, expected, rtol=1e-12, atol=0)


def test_llama_4(monkeypatch):
    """The queries of a layer without rotation, with its temperature and without."""
    queries = []

    def noted(module, query, key, value, *arguments, **named):
        queries.append(query)
        return query.transpose(1, 2), None

    monkeypatch.setattr(modeling_llama4, "eager_attention_forward", noted)
    config = Llama4TextConfig(
        hidden_size=16, num_attention_heads=2, num_key_value_heads=1, head_dim=8, num_hidden_layers=1,
        no_rope_layers=[0], floor_scale=6, attn_scale=0.4, attn_implementation="eager",
    )  # fmt: skip
    layer = modeling_llama4.Llama4TextAttention(config, 0)
    hidden = torch.randn(1, 40, 16, generator=torch.Generator().manual_seed(0))
    for tuned in (True, False):
        layer.attn_temperature_tuning = tuned
        layer(hidden, None, None)
    ratio = (queries[0] / queries[1]).double()
    got = Llama4Temperature(beta=0.4, length=6, first=1).scale(torch.arange(40), FACTS, {})[0]
    torch.testing.assert_close(ratio, got[None, None, :, None].expand_as(ratio), rtol=1e-5, atol=0)
