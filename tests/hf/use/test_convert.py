"""Surgery on models: what the new one computes, what it holds, and that plain transformers loads it."""

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    BertConfig,
    BioGptConfig,
    DynamicCache,
    GPT2Config,
    GPTBigCodeConfig,
    OPTConfig,
    RobertaConfig,
)

from ropewalk import DoesNotFit, InvalidValue, convert, extended
from ropewalk.hf.probe.max_length import learned_positions, require_held

from hf.models import tiny
from hf.traces import IDS, logits, trace


def whole(name="llama", **changed):
    return tiny(name, num_hidden_layers=2, num_key_value_heads=4, **changed)


def test_fewer_key_heads_compute_with_the_mean_of_their_group():
    model = whole()
    for layer in model.model.layers:  # heads of a group alike: then nothing is lost
        for projection in (layer.self_attn.k_proj, layer.self_attn.v_proj):
            projection.weight.data = (
                projection.weight.data.view(2, 2, 16, -1)[:, :1].expand(2, 2, 16, -1).reshape(64, -1)
            )
    before = trace(model)
    made = convert(model, "gqa:kv_heads=2")
    assert made.config.num_key_value_heads == 2
    torch.testing.assert_close(logits(made), logits(model), rtol=0, atol=1e-4)
    assert trace(model) == before


def test_the_cache_is_smaller_and_plain_transformers_loads_it(tmp_path):
    model = whole()
    made = convert(model, "gqa:kv_heads=1")
    sizes = []
    for each in (model, made):
        cache = DynamicCache()
        logits(each, past_key_values=cache)
        sizes.append(cache.layers[0].keys.numel())
    assert sizes[0] == 4 * sizes[1]
    made.save_pretrained(tmp_path)
    assert torch.equal(logits(AutoModelForCausalLM.from_pretrained(tmp_path)), logits(made))
    with extended(made, "rerope:window=8"):
        assert logits(made).isfinite().all()


def test_biases_begin_at_nothing_and_learn(tmp_path):
    model = whole()
    made = convert(model, "qk_bias")
    assert torch.equal(logits(made), logits(model))
    made.train()(input_ids=IDS, labels=IDS).loss.backward()
    assert float(made.model.layers[0].self_attn.q_proj.bias.grad.abs().max()) > 0
    made.save_pretrained(tmp_path)
    assert AutoModelForCausalLM.from_pretrained(tmp_path).model.layers[0].self_attn.k_proj.bias is not None


def test_a_bias_on_keys_cancels_only_without_rotation():
    """The same number is added to all logits of a row, unless the bias is rotated with its key (kexue.fm/9577)."""
    model = whole()
    made = convert(model, "qk_bias")
    with torch.no_grad():
        for layer in made.model.layers:
            layer.self_attn.k_proj.bias.normal_(generator=torch.Generator().manual_seed(3))
    assert not torch.allclose(logits(made), logits(model), atol=1e-2)
    with extended(made, "nope"), extended(model, "nope"):
        torch.testing.assert_close(logits(made), logits(model), rtol=0, atol=1e-4)


def test_refusals():
    with pytest.raises(DoesNotFit, match="divisor"):
        convert(tiny("llama", num_hidden_layers=1), "gqa:kv_heads=4")
    with pytest.raises(DoesNotFit, match="cannot describe the change"):
        convert(whole("mistral"), "qk_bias")
    with pytest.raises(InvalidValue, match="operation on weights"):
        convert(whole(), "yarn:factor=4")
    model = whole()
    with extended(model, "yarn:factor=4"), pytest.raises(InvalidValue, match="the model is under an extension"):
        convert(model, "qk_bias")


def test_the_last_layer_without_positions():
    """HWFA: windows and rotation below, everything and no rotation on top."""
    model = tiny("llama", num_hidden_layers=3)
    with extended(model, "hwfa") as handle:
        below, top = handle.layers[0].extension, handle.layers[-1].extension
    assert below.reach.name == "window"
    assert (top.reach or below.reach).name != "window" or top.frequencies.name == "none"
    assert top.frequencies.name == "none"


COMMON = {"vocab_size": 100, "num_hidden_layers": 1, "num_attention_heads": 2, "hidden_size": 32}
ENCODERS = {**COMMON, "intermediate_size": 40, "is_decoder": True}
WITH_TABLES = {
    "gpt2": GPT2Config(vocab_size=100, n_positions=20, n_embd=32, n_layer=1, n_head=2),
    "gpt_bigcode": GPTBigCodeConfig(vocab_size=100, n_positions=20, n_embd=32, n_layer=1, n_head=2),
    "opt": OPTConfig(**COMMON, max_position_embeddings=20, ffn_dim=40, word_embed_proj_dim=32),
    "biogpt": BioGptConfig(**COMMON, max_position_embeddings=20, intermediate_size=40),
    "bert": BertConfig(**ENCODERS, max_position_embeddings=20),
    "roberta": RobertaConfig(**ENCODERS, max_position_embeddings=22, pad_token_id=1),
}


@pytest.mark.parametrize("name", WITH_TABLES)
def test_learned_positions_are_stretched_in_every_family(name, tmp_path):
    """Rows stay where they are on average, so a table that rises evenly rises evenly still; loads in transformers."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(WITH_TABLES[name]).eval()
    found = learned_positions(model)
    assert found is not None
    assert found.rows == 20
    table = model.get_parameter(found.name)
    with torch.no_grad():
        table[found.untouched :] = torch.arange(20.0)[:, None] / 100
    ids = torch.randint(10, 100, (2, 60))
    with pytest.raises(DoesNotFit, match=r"at most the 20 positions .*stretched_positions:target_len=60"):
        require_held(model, 60)
    made = convert(model, "stretched_positions:target_len=60")
    require_held(made, 60)
    rows = made.get_parameter(found.name)
    assert torch.equal(rows[: found.untouched], table[: found.untouched])
    expected = ((torch.arange(60.0) + 0.5) / 3 - 0.5).clamp(0, 19)[:, None].expand(60, rows.shape[1]) / 100
    torch.testing.assert_close(rows[found.untouched :].detach(), expected)
    made.save_pretrained(tmp_path)
    again = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    with torch.no_grad():
        assert torch.equal(again(input_ids=ids).logits, made(input_ids=ids).logits)


def test_a_model_without_learned_positions_has_no_table_to_stretch():
    with pytest.raises(DoesNotFit, match="the model has no table of learned positions to stretch"):
        convert(whole(), "stretched_positions:target_len=60")
