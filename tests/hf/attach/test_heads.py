"""Heads of a layer that differ, on models: exact in pieces and in batches, saved, generated with, small in memory."""

import dataclasses

import pytest
import torch
from transformers import AutoModelForCausalLM, DynamicCache

import ropewalk as rw
from ropewalk import DoesNotFit, Extension, extend, extended, parse
from ropewalk.hf.runtime.caches import held_bytes

from hf.extended import CLOSE, CUTS, IDS, MASK, error, in_pieces
from hf.models import tiny
from hf.traces import logits

DUO = "duo_attention:window=10,n_sink=2,retrieval=[1,2]"


@pytest.mark.sampled(cases=6)
@pytest.mark.parametrize("text", [DUO, f"{DUO}+dynamic_yarn+log_n", "ms_poe:smallest=2,largest=4"])
@pytest.mark.parametrize("name", ["llama", "gpt_oss", "gemma2", "phi3", "qwen3"])
def test_whole_is_in_pieces_whatever_the_layers_are(name, text):
    model = tiny(name)
    with extended(model, text):
        whole = logits(model, IDS, attention_mask=MASK, use_cache=False)
        assert error(in_pieces(model, CUTS["pieces"])[0], whole) < CLOSE


def test_only_the_heads_that_are_named_see_far(llama):
    """The model's own attention, with a mask for each head, gives the same."""
    names = {0: (False, True), 1: (True, False)}  # whether each key head of a layer retrieves: 1 and 2 of four
    i = torch.arange(IDS.shape[1])
    near = (i[:, None] - i < 10) | (i < 2)
    eager = tiny("llama", "eager", num_hidden_layers=2)
    eager.load_state_dict(llama.state_dict())
    for depth, layer in enumerate(eager.model.layers):
        seen = torch.stack([torch.ones_like(near) if far else near for far in names[depth]]).repeat_interleave(2, 0)
        mask = torch.where(seen & (i[:, None] >= i), 0.0, torch.finfo(torch.float32).min)[None]
        layer.self_attn.register_forward_pre_hook(
            lambda _, args, kwargs, mask=mask: (args, {**kwargs, "attention_mask": mask}), with_kwargs=True
        )
    expected = logits(eager, IDS, use_cache=False)
    with extended(llama, DUO):
        got = logits(llama, IDS, use_cache=False)
    assert float((got - expected).abs().max() / expected.abs().max()) < CLOSE


@pytest.mark.nightly
def test_the_cache_is_as_large_as_the_share_of_heads_that_retrieve():
    """DuoAttention's promise, at a real length: of 24 key heads 6 keep all 8,000 keys, the others 64 and 256."""
    model = tiny(
        "llama", num_hidden_layers=6, num_attention_heads=8, num_key_value_heads=4, max_position_embeddings=8192
    )
    retrieval = "[0,5,6,13,18,23]"
    sizes = {}
    for line in ("rope", f"duo_attention:retrieval={retrieval}"):
        with extended(model, line), torch.no_grad():
            cache = DynamicCache(config=model.config)
            model(torch.randint(3, 97, (1, 8000)), past_key_values=cache, logits_to_keep=1)
            sizes[line] = held_bytes(cache)
            if line == "rope":
                head = cache.layers[0].keys[0, 0].numel() * 4 * 2 if sizes[line] else 0
                assert sizes[line] == 24 * head
    share = sizes[f"duo_attention:retrieval={retrieval}"] / sizes["rope"]
    assert share == pytest.approx(6 / 24 + 18 / 24 * (64 + 256) / 8000, rel=0.02)
    found = rw.inspect(model, target_len=16_000).cache_bytes(
        parse(f"duo_attention:retrieval={retrieval}", layers=6, key_heads=4)
    )
    assert found == pytest.approx((6 * 16_000 + 18 * 320) * 2 * model.config.head_dim * 4, rel=0.02)


def test_generated_with_beams_and_drafts(llama):
    ids = IDS[:, :40]
    with extended(llama, DUO):
        plain = llama.generate(ids, max_new_tokens=12, do_sample=False, use_cache=False)
        assert torch.equal(llama.generate(ids, max_new_tokens=12, do_sample=False), plain)
        beams = llama.generate(ids, max_new_tokens=8, do_sample=False, num_beams=3, use_cache=False)
        assert torch.equal(llama.generate(ids, max_new_tokens=8, do_sample=False, num_beams=3), beams)
        drafted = llama.generate(ids[:1], max_new_tokens=12, do_sample=False, prompt_lookup_num_tokens=3)
        assert torch.equal(drafted, plain[:1])


def test_saved_and_loaded(llama, tmp_path):
    with extended(llama, f"{DUO}+yarn:factor=4"):
        expected = logits(llama, IDS)
        rw.save(llama, tmp_path)
    assert torch.equal(logits(rw.load(tmp_path), IDS), expected)
    with pytest.raises(Exception, match=r"ropewalk"):  # plain transformers would compute another model
        AutoModelForCausalLM.from_pretrained(tmp_path)


def test_gradients_reach_every_weight(llama):
    with extended(llama, DUO):
        llama(IDS, labels=IDS, use_cache=False).loss.backward()
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in llama.parameters())
    llama.zero_grad()


def test_a_head_that_a_layer_does_not_have_is_refused(llama):
    with pytest.raises(DoesNotFit, match="head must be one of the model's 2 key heads, from -2 to 1, got 2"):
        extend(llama, dataclasses.replace(parse("rope"), heads={2: parse("window:window=8")}))


def test_what_heads_change_is_not_idle(llama):
    with extended(llama, Extension(heads={0: parse("window:window=8")})) as handle:
        assert handle.idle == ()
        assert "key head 0: reach.window:window=8" in handle.describe()
