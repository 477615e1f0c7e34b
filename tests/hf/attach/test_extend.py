"""The front door: a model under an extension, with any cache, in any batch, and afterwards as it was."""

import contextlib
import copy
import pickle

import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoModelForTokenClassification, DynamicCache, StaticCache

from ropewalk import Conflict, DoesNotFit, Extension, InvalidValue, UnknownName, extend, extended, parse

from hf.extended import CARRIED, CLOSE, CUTS, EXTENSIONS, IDS, LENGTH, MASK, PADDED, error, in_pieces
from hf.kinds import mean_norms
from hf.models import tiny
from hf.traces import logits, trace


@pytest.mark.sampled(cases=10)
@pytest.mark.parametrize("name", CARRIED)
def test_the_identity_gives_the_models_own_logits(name):
    model = tiny(name)
    long = IDS if name != "ministral3" else IDS[:, :30]
    expected = logits(model, long, attention_mask=MASK[:, : long.shape[1]], use_cache=False)
    with extended(model, Extension()):
        got = logits(model, long, attention_mask=MASK[:, : long.shape[1]], use_cache=False)
    real = MASK[:, : long.shape[1]].bool()
    assert float((got - expected)[real].abs().max() / expected.abs().max()) < CLOSE


@pytest.mark.sampled(cases=2)
@pytest.mark.parametrize("text", EXTENSIONS)
@pytest.mark.parametrize("cuts", CUTS.values(), ids=CUTS)
def test_whole_or_in_pieces_under_every_extension_and_cache(llama, text, cuts):
    with extended(llama, text):
        whole = logits(llama, IDS, attention_mask=MASK, use_cache=False)
        for cache in (None, StaticCache(llama.config, max_cache_len=80)):
            assert error(in_pieces(llama, cuts, cache)[0], whole) < CLOSE


@pytest.mark.parametrize("cache", [DynamicCache, lambda config: DynamicCache()], ids=["by config", "by layer"])
def test_caches_that_generate_may_be_given(llama, cache):
    with extended(llama, "rerope:window=8+log_n"):
        whole = logits(llama, IDS, attention_mask=MASK, use_cache=False)
        assert error(in_pieces(llama, CUTS["pieces"], cache(config=llama.config))[0], whole) < CLOSE


@pytest.mark.parametrize("text", EXTENSIONS)
def test_a_row_does_not_depend_on_its_mates_its_padding_or_earlier_calls(llama, text):
    with extended(llama, text):
        together = logits(llama, IDS, attention_mask=MASK)
        alone = logits(llama, IDS[:1, PADDED:])
        logits(llama, torch.cat([IDS, IDS], 1))
        again = logits(llama, IDS[:1, PADDED:])
    assert torch.equal(alone, again)
    assert float((together[:1, PADDED:] - alone).abs().max() / alone.abs().max()) < CLOSE


FACTORS = [float(1 + n) for n in range(8)]
SCALED = {
    "dynamic": {"rope_type": "dynamic", "rope_theta": 10_000.0, "factor": 4.0},
    "longrope": {
        **{"rope_type": "longrope", "rope_theta": 10_000.0, "factor": 4.0, "original_max_position_embeddings": 32},
        **{"short_factor": [1.0] * 8, "long_factor": FACTORS},
    },
}
OURS = {"dynamic": "dynamic_ntk", "longrope": f"frequencies.longrope:long=[{','.join(map(str, FACTORS))}]"}


def drifts(model, extension=None):
    """How far answers depend on the cache, on earlier requests and on batch mates, of the largest logit."""
    short, long = IDS[1:, :28], IDS[:1]
    both = torch.cat([torch.nn.functional.pad(short, (LENGTH - 28, 0)), long])
    mask = (both != 0).long()
    with extended(model, extension) if extension else contextlib.nullcontext():
        first = logits(model, IDS[:1, :40])
        whole = logits(model, IDS, attention_mask=MASK, use_cache=False)
        read_on = error(in_pieces(model, CUTS["a prompt, then tokens"])[0], whole)
        logits(model, torch.cat([IDS, IDS], 1))
        again = logits(model, IDS[:1, :40])
        alone, together = logits(model, short), logits(model, both, attention_mask=mask)[:1, LENGTH - 28 :]
    pairs = ((again, first), (together, alone))
    return [read_on, *(float((got - expected).abs().max() / expected.abs().max()) for got, expected in pairs)]


@pytest.mark.parametrize("kind", SCALED)
def test_transformers_own_scaling_depends_on_cache_requests_and_mates_and_ours_does_not(kind):
    cache, requests, mates = drifts(tiny("llama", rope_parameters=SCALED[kind]))
    assert min(cache, mates) > 0.1
    assert kind == "longrope" or requests > 0.1  # longrope has two tables only, and settles on one in each call
    assert max(drifts(tiny("llama"), OURS[kind])) < CLOSE


@pytest.mark.parametrize(
    ("text", "scaled"),
    [
        ("pi:factor=4", {"rope_type": "linear", "factor": 4.0}),
        ("yarn:factor=4", {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}),
        ("abf:new_base=500000", {"rope_type": "default", "rope_theta": 500_000.0}),
    ],
)
def test_static_schedules_are_those_of_transformers(text, scaled):
    theirs = logits(tiny("llama", rope_parameters={"rope_theta": 10_000.0, **scaled}), IDS, attention_mask=MASK)
    model = tiny("llama")
    with extended(model, text):
        assert error(logits(model, IDS, attention_mask=MASK), theirs) < CLOSE


@pytest.mark.parametrize("name", ["llama", "gemma3_text", "gpt_neox"])
def test_removing_leaves_no_trace(name):
    model = tiny(name)
    before, expected = trace(model), logits(model)
    handle = extend(model, "rerope:window=8")
    assert not torch.equal(logits(model, IDS), expected)
    handle.remove()
    handle.remove()
    assert trace(model) == before
    assert torch.equal(logits(model), expected)


def test_extending_draws_nothing_at_random(llama):
    before = torch.get_rng_state()
    with extended(llama, "biases.kerple_log+rerope:window=8"):
        logits(llama)
    assert torch.equal(torch.get_rng_state(), before)


def test_an_exception_in_the_middle_of_extending_leaves_no_trace(llama, monkeypatch):
    before, expected = trace(llama), logits(llama)
    monkeypatch.setattr("ropewalk.hf.attach.extend.replace_methods", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        extend(llama, "biases.kerple_log+rerope:window=8")
    assert trace(llama) == before
    assert torch.equal(logits(llama), expected)


def test_an_exception_in_the_middle_of_a_pass_leaves_no_trace(llama):
    """Whether the pass is the probe's or one of the extended model."""
    before, expected = trace(llama), logits(llama)
    for again in (False, True):
        handle = extend(llama, "rerope:window=8") if again else None
        hook = llama.model.layers[1].mlp.register_forward_hook(lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            logits(llama) if again else extend(llama, "rerope:window=8")
        hook.remove()
        if handle:
            handle.remove()
    assert trace(llama) == before
    assert torch.equal(logits(llama), expected)


@pytest.mark.parametrize("text", ["rerope:window=8", "yarn:factor=4"])
def test_an_exception_leaves_no_trace(llama, text):
    before, bare = trace(llama), logits(llama)
    with pytest.raises(ZeroDivisionError), extended(llama, text):
        raise ZeroDivisionError
    assert trace(llama) == before
    assert torch.equal(logits(llama), bare)


@pytest.mark.parametrize(
    ("text", "kind", "match"),
    [
        ("rerope:window=32", DoesNotFit, "window"),
        ("no_such_method", UnknownName, "no_such_method"),
        ("nbce", DoesNotFit, "nbce_generate"),
        ("surgery.qk_bias", DoesNotFit, "convert"),
    ],
)
def test_a_refusal_touches_nothing(llama, text, kind, match):
    before = trace(llama)
    with pytest.raises(kind, match=match):
        extend(llama, text)
    assert trace(llama) == before


def test_models_that_cannot_be_carried_are_refused_with_the_reason():
    model = mean_norms(tiny("hunyuan_v1_dense"))
    before = trace(model)
    with pytest.raises(DoesNotFit, match="norm after the rotation, and it is no RMS norm"):
        extend(model, "rerope:window=8")
    assert trace(model) == before


def test_extending_twice(llama):
    with extended(llama, "yarn:factor=4") as handle:
        assert extend(llama, "yarn:factor=4") is handle
        assert extend(llama, parse("yarn:factor=4", trained_len=32)) is handle
        with pytest.raises(Conflict, match="remove that first"):
            extend(llama, "rerope:window=8")


def test_copies_are_made_of_bare_models(llama):
    with extended(llama, "yarn:factor=4"):
        for copier in (copy.deepcopy, pickle.dumps):
            with pytest.raises(InvalidValue, match="extend both"):
                copier(llama)
    assert torch.equal(logits(copy.deepcopy(llama)), logits(llama))


def test_a_conversation_goes_on_in_its_cache(llama):
    given = {"max_new_tokens": 5, "do_sample": False, "eos_token_id": None}
    with extended(llama, "rerope:window=8+log_n"), torch.no_grad():
        cache = DynamicCache()
        first = llama.generate(IDS[1:, :20], past_key_values=cache, **given)
        asked = torch.cat([first, IDS[1:, 20:30]], 1)
        second = llama.generate(asked, past_key_values=cache, **given)
        expected = llama.generate(asked, use_cache=False, **given)
    assert second.tolist() == expected.tolist()


def test_a_target_below_the_trained_length(llama):
    with pytest.raises(DoesNotFit, match="trained length"):
        extend(llama, "yarn:factor=4", target_len=16)


def test_a_cache_of_another_extension(llama):
    with extended(llama, "rerope:window=8"):
        _, cache = in_pieces(llama, [30])
    with extended(llama, "yarn:factor=4"), pytest.raises(Conflict, match="new cache"):
        logits(llama, IDS[:, :1], past_key_values=cache)
    bare = DynamicCache()
    logits(llama, IDS, past_key_values=bare)
    with extended(llama, "yarn:factor=4"), pytest.raises(Conflict, match="base model"):
        logits(llama, IDS[:, :1], past_key_values=bare)


def test_masks_of_another_kind(llama):
    square = torch.ones(2, 1, LENGTH, LENGTH).tril().bool()
    with extended(llama, "rerope:window=8"), pytest.raises(InvalidValue, match="attention_mask"):
        logits(llama, IDS, attention_mask=square)


def test_padding_on_the_right(llama):
    mask = torch.ones_like(IDS)
    mask[0, 40:] = 0
    with extended(llama, "rerope:window=8+log_n"):
        got, alone = logits(llama, IDS, attention_mask=mask), logits(llama, IDS[:1, :40])
    assert float((got[:1, :40] - alone).abs().max() / alone.abs().max()) < CLOSE


def test_texts_packed_into_a_row(llama):
    positions = torch.cat([torch.arange(25), torch.arange(35)])[None]
    with extended(llama, "rerope:window=8+log_n"):
        packed = logits(llama, IDS[:1], position_ids=positions, use_cache=False)
        apart = torch.cat([logits(llama, IDS[:1, :25]), logits(llama, IDS[:1, 25:])], 1)
    assert float((packed - apart).abs().max() / apart.abs().max()) < CLOSE


def test_windows_may_be_lifted():
    model = tiny("mistral")
    bare = logits(model, IDS)
    with extended(model, "rerope:window=8") as handle:
        assert "unchanged, it keeps its window" in handle.describe()
        torch.testing.assert_close(logits(model, IDS), bare, rtol=0, atol=1e-3)
    with extended(model, "rerope:window=8", lift_windows=True) as handle:
        assert "unchanged, it keeps its window" not in handle.describe()
        assert not torch.allclose(logits(model, IDS), bare, atol=0.1)


def test_memory_is_what_the_reach_needs(llama):
    with extended(llama, "streaming:window=10,n_sink=2"):
        sizes = {in_pieces(llama, [n], ids=IDS.repeat(1, 5), mask=MASK.repeat(1, 5).fill_(1))[1] for n in (50, 300)}
        held = {sum(layer.memory.nbytes for layer in cache.layers) for cache in sizes}
    assert len(held) == 1


GENERATION = {
    "greedy": {"do_sample": False},
    "beams": {"do_sample": False, "num_beams": 3},
    "chunks": {"do_sample": False, "prefill_chunk_size": 16},
    "static": {"do_sample": False, "cache_implementation": "static", "disable_compile": True},
}


@pytest.mark.sampled(cases=3)
@pytest.mark.parametrize("way", GENERATION)
@pytest.mark.parametrize("text", ["rerope:window=8+log_n", "streaming:window=10,n_sink=2", "dynamic_yarn"])
def test_generating(llama, way, text):
    """The same tokens as without any cache."""
    given = {"attention_mask": MASK, "max_new_tokens": 12, "eos_token_id": None, **GENERATION[way]}
    plain = {name: value for name, value in given.items() if name in ("attention_mask", "max_new_tokens", "num_beams")}
    with extended(llama, text), torch.no_grad():
        got = llama.generate(IDS, **given)
        expected = llama.generate(IDS, use_cache=False, do_sample=False, eos_token_id=None, **plain)
    assert got.tolist() == expected.tolist()


def test_assisted_decoding(llama):
    with extended(llama, "yarn:factor=4"), torch.no_grad():
        given = {"max_new_tokens": 12, "do_sample": False, "eos_token_id": None}
        expected = llama.generate(IDS[1:], **given)
        got = llama.generate(IDS[1:], assistant_model=tiny("llama", num_hidden_layers=1), **given)
    assert got.tolist() == expected.tolist()


@pytest.mark.parametrize("text", ["biases.alibi", "dynamic_yarn"])
def test_tokens_can_be_removed_from_a_cache_that_keeps_all(llama, text):
    """What transformers asks before it removes tokens, as assisted decoding does; whoever read them."""
    with extended(llama, text, mode="attention"), torch.no_grad():
        whole = logits(llama, IDS[1:])
        cache = llama(IDS[1:, :40], past_key_values=DynamicCache()).past_key_values
        cache.activate_past_recording()
        cache.crop(-15)
        got = llama(IDS[1:, 25:], past_key_values=cache).logits
    torch.testing.assert_close(got, whole[:, 25:], rtol=1e-4, atol=1e-4 * float(whole.abs().max()))


def test_a_cache_that_forgot_keys_refuses_before_tokens_are_removed(llama):
    """It must keep some keys more, from its first token on; a new one may yet do so."""
    with extended(llama, "streaming:window=10,n_sink=2"), torch.no_grad():
        cache = llama(IDS[1:, :40], past_key_values=DynamicCache()).past_key_values
        with pytest.raises(InvalidValue, match="a cache for assisted decoding must begin in an assisted call"):
            cache.activate_past_recording()
        cache.reset()
        cache.activate_past_recording()


def test_training_with_and_without_checkpoints():
    gradients = []
    for checkpointing in (False, True):
        model = tiny("llama").train()
        if checkpointing:
            model.activation_checkpointing_enable()
        with extended(model, "rerope:window=8+log_n"):
            losses = [model(input_ids=ids, labels=ids, use_cache=False).loss for ids in (IDS[:, :40], IDS)]
            sum(losses).backward()
        gradients.append(model.model.layers[0].self_attn.k_proj.weight.grad)
    assert float(gradients[0].abs().max()) > 0
    torch.testing.assert_close(*gradients)


def test_half_precision():
    model = tiny("llama").to(torch.bfloat16)
    with extended(model, "rerope:window=8"):
        whole = logits(model, IDS, attention_mask=MASK, use_cache=False)
        got, _ = in_pieces(model, CUTS["a prompt, then tokens"])
    assert whole.dtype == torch.bfloat16
    assert error(got.float(), whole.float()) < 0.1


def test_a_model_in_float64_is_as_far_off_as_transformers_angles_in_float32():
    """At 1,024 tokens they cost about 1e-5 of the logits, which is no reason to refuse it."""
    model = tiny("mistral", sliding_window=512, max_position_embeddings=4096).double()
    ids = torch.arange(1024)[None] * 7 % 100
    with torch.no_grad():
        plain = model(ids).logits
        with extended(model, Extension(), mode="attention"):
            off = float((model(ids).logits - plain).square().mean().sqrt() / plain.square().mean().sqrt())
    assert 1e-6 < off < 1e-3


@pytest.mark.nightly
def test_compiled(llama):
    """Dynamo's part of it; attention itself stays outside of the graph."""
    with extended(llama, "rerope:window=8+log_n"):
        expected = logits(llama, IDS, attention_mask=MASK, use_cache=False)
        compiled = torch.compile(llama, backend="eager")
        assert error(logits(compiled, IDS, attention_mask=MASK, use_cache=False), expected) < CLOSE


def test_holes_and_other_padding_than_before_are_refused(llama):
    mask = torch.ones(2, 40, dtype=torch.long)
    mask[0, 15:20] = 0
    with extended(llama, "rerope:window=8"):
        _, cache = in_pieces(llama, [20], mask=torch.ones_like(IDS))
        with pytest.raises(InvalidValue, match="where the cache has padding"):
            logits(llama, IDS[:, 20:40], attention_mask=mask, past_key_values=cache)
        with pytest.raises(InvalidValue, match="consecutive with a cache"):
            logits(llama, IDS[:, :9], position_ids=torch.arange(0, 18, 2)[None], past_key_values=DynamicCache())


@pytest.mark.parametrize("before", ["rerope:window=8", "biases.alibi"])
def test_a_cache_that_was_reset_begins_anew(llama, before):
    cache = DynamicCache(config=llama.config)
    with extended(llama, before):
        in_pieces(llama, [20], cache)
    cache.reset()
    with extended(llama, "rerope:window=8"):
        got = logits(llama, IDS, past_key_values=cache)
        torch.testing.assert_close(got, logits(llama, IDS, use_cache=False), rtol=0, atol=1e-3)


def test_a_cache_that_outlives_its_extension_is_refused(llama):
    with extended(llama, "rerope:window=8"):
        _, cache = in_pieces(llama, [20])
    with pytest.raises(Conflict, match="base model"):
        logits(llama, IDS[:, 20:21], past_key_values=cache)


def test_positions_that_say_more_are_heard_without_asking_for_no_cache(llama):
    packed = torch.cat([torch.arange(20)] * 3)[None].expand(2, -1)
    with extended(llama, "rerope:window=8+log_n"):
        got, expected = (logits(llama, IDS, position_ids=packed, **given) for given in ({}, {"use_cache": False}))
    assert torch.equal(got, expected)


def test_another_attention_implementation_in_between_is_refused():
    model = tiny("llama", num_hidden_layers=1)
    with extended(model, "rerope:window=8"):
        model.set_attn_implementation("sdpa")
        with pytest.raises(Conflict, match="attention implementation"):
            logits(model, IDS)


def test_a_block_within_an_extended_model_leaves_it_extended(llama):
    with extended(llama, "rerope:window=8") as outer:
        with extended(llama, "rerope:window=8") as inner:
            assert inner is outer
        assert extend(llama, "rerope:window=8") is outer
    assert not hasattr(llama, "_ropewalk_handle")


def test_reading_on_with_gradients(llama):
    with extended(llama, "rerope:window=8"):
        first = llama(input_ids=IDS[:, :20])
        second = llama(input_ids=IDS[:, 20:], past_key_values=first.past_key_values).logits
        whole = llama(input_ids=IDS, use_cache=False).logits[:, 20:]
    torch.testing.assert_close(second, whole, rtol=0, atol=1e-3)


def test_a_schedule_that_changes_with_the_batch_is_not_kept():
    model = tiny("llama", num_hidden_layers=1, rope_parameters=SCALED["dynamic"])
    with pytest.raises(DoesNotFit, match="longest text of a batch"):
        extend(model, "log_n")
    with extended(model, "dynamic_ntk"):
        assert logits(model, IDS).isfinite().all()


@pytest.mark.parametrize("name", ["llama", "mistral", "glm4", "deepseek_v3", "gpt_neox"])
def test_the_weights_of_attention_are_the_models_own_under_the_identity(name):
    eager = tiny(name, attention="eager")
    with torch.no_grad():
        expected = eager(input_ids=IDS[1:], output_attentions=True).attentions
    with extended(eager, Extension(), mode="attention"), torch.no_grad():
        got = eager(input_ids=IDS[1:], output_attentions=True).attentions
    for own, theirs in zip(got, expected, strict=True):
        torch.testing.assert_close(own, theirs, rtol=0, atol=1e-4)


@pytest.mark.parametrize("text", ["rerope:window=8+log_n", "streaming:window=10,n_sink=2"])
def test_the_weights_of_attention_make_its_answer(llama, text):
    values, answers = [], []
    layer = llama.model.layers[0].self_attn
    hooks = [
        layer.v_proj.register_forward_hook(lambda *given: values.append(given[-1])),
        layer.o_proj.register_forward_pre_hook(lambda _, given: answers.append(given[0])),
    ]
    with extended(llama, text), torch.no_grad():
        weights = llama(input_ids=IDS, attention_mask=MASK, output_attentions=True).attentions[0]
    for hook in hooks:
        hook.remove()
    v_bhjd = values[-1].view(2, LENGTH, 2, 16).transpose(1, 2).repeat_interleave(2, 1)
    made = (weights @ v_bhjd).transpose(1, 2).flatten(2)
    torch.testing.assert_close(made, answers[-1], rtol=0, atol=1e-4)
    assert not weights[0, :, :, :PADDED].any()


def test_the_weights_of_attention_while_generating(llama):
    given = {"max_new_tokens": 3, "do_sample": False, "eos_token_id": None, "return_dict_in_generate": True}
    with extended(llama, "window:window=9"), torch.no_grad():
        written = llama.generate(IDS, attention_mask=MASK, output_attentions=True, **given)
        plain = llama.generate(IDS, attention_mask=MASK, **given)
        assert [step[0].shape[-2:] for step in written.attentions] == [(60, 60), (1, 61), (1, 62)]
        assert written.sequences.tolist() == plain.sequences.tolist()
        assert (written.attentions[2][1] > 0).sum(-1).unique().tolist() == [9]
        with pytest.raises(InvalidValue, match="output_attentions"):
            llama(IDS[:, :1], past_key_values=plain.past_key_values, output_attentions=True)


def test_a_target_is_a_number_of_tokens():
    with pytest.raises(InvalidValue, match="target_len must be a whole number of tokens, such as 32768, got '32k'"):
        extend(tiny("llama"), "yarn", target_len="32k")


def test_a_cache_of_another_kind_is_refused():
    model = tiny("minimax", num_local_experts=2, eos_token_id=2)
    ids = IDS[:, :24]
    bare = logits(model, ids)
    with extended(model, "rerope:window=30"):
        with pytest.raises(InvalidValue, match="use_cache must be False on a model whose keys are not in"):
            model(input_ids=ids, use_cache=True)
        for use_cache in (None, False):  # without one where nobody asks for it
            got = model(input_ids=ids, use_cache=use_cache)
            assert got.past_key_values is None
            torch.testing.assert_close(got.logits, bare, rtol=0, atol=CLOSE * float(bare.abs().max()))
    with extended(model, "yarn:factor=4"):  # its own attention and its own cache
        assert model(input_ids=ids).logits.isfinite().all()


def test_a_handle_is_one_line():
    model = tiny("llama", num_hidden_layers=1)
    with extended(model, "rerope:window=8+log_n") as handle:
        assert repr(handle) == "<LlamaForCausalLM under rerope:window=8+log_n, mode attention>"


def test_what_is_learned_is_trained_though_the_model_was_extended_in_inference_mode():
    model = tiny("llama", num_hidden_layers=1).train()
    with torch.inference_mode():
        extend(model, "kerple")
    model(input_ids=IDS, labels=IDS).loss.backward()
    learned = [value for name, value in model.named_parameters() if "ropewalk" in name]
    assert learned
    assert all(value.grad is not None for value in learned)


def test_a_training_follows_a_pass_in_inference_mode():
    """What is kept from call to call, as where heads that differ are, serves both."""
    line, sizes = "duo_attention:window=10,n_sink=2,retrieval=[0,1,3,7]", {"num_attention_heads": 8, "head_dim": 8}
    model = tiny("llama", num_hidden_layers=1, num_key_value_heads=8, **sizes)
    with extended(model, line):
        with torch.inference_mode():
            model(input_ids=IDS)
        model.train()(input_ids=IDS, labels=IDS).loss.backward()
        assert all(value.grad is not None for value in model.parameters())


@pytest.mark.parametrize("name", ["gpt_neox", "llama"])
def test_positions_with_gaps_mean_the_same_by_place_and_by_name(name):
    model, places = tiny(name, num_hidden_layers=1), 2 * torch.arange(LENGTH)[None]
    with extended(model, "yarn:factor=4"), torch.no_grad():
        base = model.base_model
        named = base(input_ids=IDS, position_ids=places, use_cache=False).last_hidden_state
        assert torch.equal(base(IDS, None, places, use_cache=False).last_hidden_state, named)
        assert torch.equal(base(IDS, position_ids=places, use_cache=False).last_hidden_state, named)
        assert model(IDS, position_ids=places, use_cache=False).logits.isfinite().all()


@pytest.mark.parametrize("kind", [AutoModelForSequenceClassification, AutoModelForTokenClassification])
@pytest.mark.parametrize("line", ["yarn:factor=4", "rerope:window=8"])
def test_a_classifier(kind, line):
    config = copy.deepcopy(tiny("llama", num_hidden_layers=1).config)
    config.num_labels, config.pad_token_id = 3, 0
    model = kind.from_config(config).eval()
    bare, headless = model(input_ids=IDS).logits, model.model
    with extended(model, line), torch.no_grad():
        got = model(input_ids=IDS).logits
        hidden = headless(input_ids=IDS, use_cache=False).last_hidden_state
    with extended(headless, line), torch.no_grad():
        torch.testing.assert_close(headless(input_ids=IDS, use_cache=False).last_hidden_state, hidden)
    assert float((got - bare).detach().abs().max()) > 1e-4
    assert torch.equal(model(input_ids=IDS).logits, bare)


def test_dropout_of_attention_is_refused_with_what_leaves_it_out():
    model = tiny("llama", num_hidden_layers=1, attention_dropout=0.1).train()
    with (
        extended(model, "rerope:window=8"),
        pytest.raises(InvalidValue, match=r"got 0\.1; load the model with attention_dropout=0"),
    ):
        model(input_ids=IDS)
