"""Models of every kind: layers that are no attention, shared keys, masks and keywords of their own, images."""

import itertools

import pytest
import torch
from transformers import AutoModelForCausalLM, DynamicCache, StaticCache

from ropewalk import (
    DoesNotFit,
    Extension,
    InvalidValue,
    RopewalkError,
    extend,
    extended,
    inspect,
    parse,
    save,
    score,
    stream,
)
from ropewalk.extension.parsing import parse_for
from ropewalk.hf.probe.probe import length_to_test, probe
from ropewalk.hf.runtime.caches import held_bytes

from hf.architectures import small
from hf.kinds import hiding
from hf.models import tiny
from hf.traces import logits, off, trace

IDS = torch.randint(3, 90, (1, 100), generator=torch.Generator().manual_seed(4))
CUTS = (30, 1, 40, 1, 1, 27)
CLOSE = 1e-3  # of the largest logit: float32, recurrent layers in another order
HYBRIDS = ["afmoe", "gemma3n_text", "qwen3_next", "falcon_h1", "lfm2_moe", "bailing_hybrid"]
TYPES = torch.zeros_like(IDS)
TYPES[:, 10:30] = 1


def pieces(model, cache=None, **given):
    parts, edges = [], [0, *itertools.accumulate(CUTS)]
    for first, stop in itertools.pairwise(edges):
        part = {name: value[:, first:stop] for name, value in given.items()}
        with torch.no_grad():
            answer = model(input_ids=IDS[:, first:stop], past_key_values=cache, use_cache=True, **part)
        cache = answer.past_key_values
        parts.append(answer.logits)
    return torch.cat(parts, 1), cache


@pytest.mark.sampled(cases=2)
@pytest.mark.parametrize("name", [*HYBRIDS, "llama4_text", "deepseek_v2", "gemma4_unified"])
@pytest.mark.parametrize("text", ["yarn:factor=4", "dynamic_yarn", "rerope:window=16", "streaming:window=30,n_sink=4"])
def test_hybrids_shared_keys_chunks_and_complex_tables_read_on_through_a_cache(name, text):
    model = small(name)
    bare = logits(model, IDS, use_cache=False)
    assert off(pieces(model)[0], bare) < CLOSE
    with extended(model, Extension(), mode="attention"):
        assert off(logits(model, IDS, use_cache=False), bare) < CLOSE
    with extended(model, text):
        whole = logits(model, IDS, use_cache=False)
        for cache in (None, DynamicCache(config=model.config)):
            assert off(pieces(model, cache)[0], whole) < CLOSE
    assert torch.equal(logits(model, IDS, use_cache=False), bare)


@pytest.mark.parametrize("name", ["gemma3n_text", "lfm2_moe"])
def test_what_forgets_holds_no_more_after_a_longer_text(name):
    model, held = small(name), []
    with extended(model, "streaming:window=30,n_sink=4"):
        for times in (4, 8):
            cache = DynamicCache(config=model.config)
            with torch.no_grad():
                for _ in range(times):
                    model(input_ids=IDS, past_key_values=cache, use_cache=True)
            held.append(held_bytes(cache))
    assert held[0] == held[1]


REFUSED = {"blt": "layer 2: a mask that is made outside the layer, and is not causal"}


@pytest.mark.parametrize("name", REFUSED)
def test_what_attention_of_ours_would_drop_is_refused_and_schedules_are_not(name):
    model = small(name)
    before, bare = trace(model), logits(model, IDS, use_cache=False)
    with pytest.raises(DoesNotFit, match=REFUSED[name]):
        extend(model, "rerope:window=16")
    assert trace(model) == before
    with extended(model, "pi:factor=4") as handle:
        assert handle.mode == "tables"
        assert off(logits(model, IDS, use_cache=False), bare) > 3 * CLOSE
    assert torch.equal(logits(model, IDS, use_cache=False), bare)


def later(name, value):
    """A hook that makes a layer ask attention for something more in long texts only, as sparse layers might."""

    def ask(_, args, given):
        far = given["hidden_states"].shape[1] > 90 if "hidden_states" in given else args[0].shape[1] > 90
        return (args, {**given, name: value(given)}) if far else None

    return ask


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("block_indices", lambda _: torch.zeros(1, 1)),
        ("attention_mask", lambda _: torch.zeros(1, 1, 100, 100)),
        ("is_causal", lambda _: False),
    ],
)
def test_what_a_module_asks_for_later_is_refused_then(name, value):
    model = tiny("llama", num_hidden_layers=2, max_position_embeddings=64)
    model.model.layers[1].self_attn.register_forward_pre_hook(later(name, value), with_kwargs=True)
    with extended(model, "rerope:window=16"):
        assert logits(model, IDS[:, :50]).isfinite().all()
        with pytest.raises(DoesNotFit, match=r"asks attention for .*; ours supports a causal mask"):
            logits(model, IDS, use_cache=False)


def test_what_the_caller_says_is_the_callers_business():
    """Trainer hands the number of items down; it is no keyword of the module's."""
    model = tiny("llama", num_hidden_layers=1)
    with extended(model, "rerope:window=16"):
        assert torch.equal(logits(model, IDS, num_items_in_batch=torch.tensor(3)), logits(model, IDS))


def test_the_identity_is_asked_beyond_what_the_config_says_a_query_sees():
    """What it hides, 24 tokens do not show."""
    for stated in ({"keep_window": 40}, {"index_block_size": 8, "index_topk_blocks": 5}):
        model = hiding(tiny("llama", num_hidden_layers=1, max_position_embeddings=128, **stated), window=40)
        assert length_to_test(model, 128) == 80
        with pytest.raises(DoesNotFit, match="an empty extension changes the logits"):
            extend(model, "rerope:window=16")


def test_what_is_asked_is_bounded_by_what_it_costs():
    model = tiny("llama", num_hidden_layers=1, sliding_window=10**6, max_position_embeddings=10**6)
    assert length_to_test(model, 10_000) == 4096
    model.register_parameter("more", torch.nn.Parameter(torch.empty(2**28, device="meta")))
    assert length_to_test(model, 127) == 127


@pytest.mark.sampled
@pytest.mark.parametrize("begin", [0, 1, 7])
@pytest.mark.parametrize(
    "text", ["self_extend:window=16,group=8", "streaming:window=30,n_sink=4", "yarn:factor=4", "log_n"]
)
def test_positions_begin_anywhere_with_and_without_a_cache(begin, text):
    model = tiny("llama", num_hidden_layers=2, max_position_embeddings=64)
    positions = torch.arange(begin, begin + 100)[None]
    with extended(model, text):
        whole = logits(model, IDS, position_ids=positions, use_cache=False)
        for cache in (None, DynamicCache(), StaticCache(model.config, max_cache_len=120)):
            assert off(pieces(model, cache, position_ids=positions)[0], whole) < CLOSE


def test_positions_begin_anywhere_in_padded_rows():
    """Each row counts from where it is said to; what padding is numbered is nobody's concern."""
    model = tiny("llama", num_hidden_layers=2)
    mask = torch.ones(2, 100, dtype=torch.long)
    mask[1, :20] = 0
    positions = (mask.cumsum(1) - 1).clamp(min=0) + 3
    both = torch.cat([IDS, IDS])
    with extended(model, "self_extend:window=16,group=8"):
        whole = logits(model, both, attention_mask=mask, position_ids=positions, use_cache=False)
        alone = logits(model, IDS[:, 20:], position_ids=torch.arange(3, 83)[None], use_cache=False)
        cache = DynamicCache()
        parts = [
            logits(
                model, both[:, a:b], attention_mask=mask[:, :b], position_ids=positions[:, a:b], past_key_values=cache
            )
            for a, b in ((0, 60), (60, 61), (61, 100))
        ]
    assert off(whole[1:, 20:], alone) < CLOSE
    got = torch.cat(parts, 1)
    assert off(got[:1], whole[:1]) < CLOSE
    assert off(got[1:, 20:], whole[1:, 20:]) < CLOSE


@pytest.mark.parametrize("then", [None, torch.arange(60, 100), torch.arange(62, 102)])
def test_one_text_is_not_numbered_from_two_places(then):
    model = tiny("llama", num_hidden_layers=1)
    rest = {} if then is None else {"position_ids": then[None]}
    with extended(model, "self_extend:window=16,group=8"):
        cache = DynamicCache()
        logits(model, IDS[:, :60], position_ids=torch.arange(1, 61)[None], past_key_values=cache)
        with pytest.raises(InvalidValue, match="position_ids must be counted from where the cache began"):
            logits(model, IDS[:, 60:], past_key_values=cache, **rest)
        cache = DynamicCache()
        logits(model, IDS[:, :60], past_key_values=cache)
        with pytest.raises(InvalidValue, match="position_ids must be"):
            logits(model, IDS[:, 60:], past_key_values=cache, position_ids=torch.arange(61, 101)[None])


def test_positions_that_the_model_makes_itself_are_looked_at():
    """Numbers that its rotary module is asked for are those of the pass, or it is refused."""
    model = tiny("llama", num_hidden_layers=1)

    def twice(_, args, given):
        return args, {**given, "position_ids": 2 * given["position_ids"]}

    with extended(model, "rerope:window=16"):
        model.model.rotary_emb.register_forward_pre_hook(twice, with_kwargs=True)
        with pytest.raises(InvalidValue, match="the model computes position ids of its own"):
            logits(model, IDS)


@pytest.mark.sampled(cases=2)
@pytest.mark.parametrize("name", ["llama", "deepseek_v3", "gemma3n_text", "qwen3_next", "falcon_h1", "olmo2"])
def test_the_cache_of_the_model_is_what_it_holds(name):
    """Latent keys, shared ones, and what is held whatever the length; within windows."""
    model = small(name)
    cache = DynamicCache(config=model.config)
    with torch.no_grad():
        model(input_ids=IDS[:, :30], past_key_values=cache, use_cache=True)
    assert inspect(model, target_len=30).cache_bytes() == held_bytes(cache)


@pytest.mark.parametrize("values", [8, 16, 24])
def test_keys_and_values_of_two_sizes(values):
    """Under attention of ours a cache holds both whole: what is said beforehand is what it then holds."""
    model = tiny("deepseek_v3", v_head_dim=values)
    assert {(layer.head_dim, layer.value_dim) for layer in probe(model)} == {(16, values)}
    seen = inspect(model, target_len=sum(CUTS))
    whole = len(seen.layers) * sum(CUTS) * seen.facts.groups * (16 + values) * 4
    assert seen.cache_bytes(parse("biases.alibi")) == whole
    with extended(model, "biases.alibi") as handle:
        assert f"cache: {whole / seen.cache_bytes():.3g} times the model's usual size" in handle.describe()


def test_what_latent_keys_cost_under_attention_of_ours_is_said():
    """Four layers hold 24 numbers a token; keys and values of 4 heads are 128."""
    model = small("deepseek_v3")
    seen = inspect(model, target_len=100)
    assert seen.cache_bytes() == 4 * 100 * 24 * 4
    assert {each.name: each.cache_bytes for each in seen.methods}["yarn"] == seen.cache_bytes()
    assert {each.name: each.cache_bytes for each in seen.methods}["dynamic_yarn"] > 5 * seen.cache_bytes()
    assert "5.33 times as much" in str(seen)
    with extended(model, "yarn:factor=4") as handle:
        assert held_bytes(pieces(model)[1]) == seen.cache_bytes()
        assert "times the model's usual size" not in handle.describe()
    with extended(model, "rerope:window=16") as handle:
        assert "cache: 5.33 times the model's usual size" in handle.describe()


@pytest.mark.parametrize(
    ("name", "text"), [("cohere2", "pi:factor=4"), ("exaone4", "pi:factor=4"), ("kolibri1", "yarn:factor=4")]
)
def test_what_no_layer_hears_is_said(name, text):
    """Windows are kept, and what has none turns nothing."""
    model = small(name)
    with extended(model, text) as handle:
        assert "frequencies" in handle.idle
        assert "used in no layer" in repr(handle)
        assert "frequencies: used in no layer; windowed layers keep their windows" in handle.describe()
    with extended(model, text, lift_windows=True) as handle:
        assert handle.idle == ()
    with extended(tiny("llama", num_hidden_layers=1), text) as handle:
        assert handle.idle == ()


@pytest.mark.sampled(cases=2)
@pytest.mark.parametrize("name", ["cohere2", "exaone4", "cohere2_moe", "llama4_text"])
def test_renumbered_keys_are_reported_where_nothing_rotates(name):
    """Where the full layers do not rotate, a reach that hides nothing changes nothing."""
    model = small(name)
    with extended(model, "self_extend", target_len=256) as handle:
        assert handle.idle == ("reach",)
        assert "reach: used in no layer" in handle.describe()
    with extended(model, "long_reach", target_len=256) as handle:
        assert handle.idle == ()  # its bias sees the distances
    seen = inspect(model, target_len=256)
    idle = {advice.name for advice in seen.methods if advice.idle == ("reach",)}
    placed = {"rerope", "leaky_rerope", "rerope_by_parts", "self_extend", "dpe", "dual_chunk", "string", "lampe"}
    # The layers that see all keys under swaa are those that see the whole text here; the others keep their windows.
    assert idle == placed | {"self_logistic", "swaa"}
    assert all(seen.changes_nothing(parse_for(preset, seen.facts, 256)) for preset in idle)
    assert "rerope, leaky_rerope, rerope_by_parts, self_extend" in " ".join(
        str(seen).split("used in no layer:")[1].split()
    )


@pytest.mark.sampled(cases=2)
@pytest.mark.parametrize("name", ["cohere2", "exaone4", "afmoe", "llama4_text"])
def test_a_temperature_of_the_rotation_is_reported_where_nothing_rotates(name):
    """Full layers that do not rotate have no dimension that YaRN's temperature multiplies; windowed ones are kept."""
    model = small(name)
    ids = torch.randint(1, 90, (1, 48))
    with torch.no_grad():
        bare = model(ids).logits
        with extended(model, "yarn:factor=4") as handle:
            assert {"frequencies", "scales"} <= set(handle.idle)
            torch.testing.assert_close(model(ids).logits, bare, atol=1e-4, rtol=1e-4)
        with extended(model, "yarn:factor=4,over=head") as handle:
            assert "scales" not in handle.idle
            assert not torch.allclose(model(ids).logits, bare, atol=1e-3)
    seen = inspect(model, target_len=256)
    assert seen.changes_nothing(parse_for("yarn", seen.facts, 256))


@pytest.mark.parametrize(
    "weight", ["model.layers.1.self_attn.k_proj.weight", "lm_head.weight", "model.layers.0.mlp.up_proj.weight"]
)
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_weights_that_are_no_numbers_are_named(weight, value):
    model = tiny("llama", num_hidden_layers=2)
    model.get_parameter(weight).data[3, 5] = value
    with pytest.raises(DoesNotFit, match=f"1 of .* weights of {weight} that are NaN or infinite"):
        extend(model, "rerope:window=16")


def test_scores_hold_no_graph():
    model = tiny("llama", num_hidden_layers=1)
    assert not score(model, IDS).requires_grad
    with extended(model, "rerope:window=16"):
        assert not score(model, IDS, piece=30).requires_grad


def test_a_rotary_module_of_another_name_is_found_by_what_it_holds():
    assert {type(layer.rotary).__name__ for layer in probe(small("lfm2_moe"))} == {"Lfm2MoeRotaryEmbedding"}


def test_streams_of_hybrids():
    model = small("qwen3_next")
    with extended(model, "streaming:window=30,n_sink=4"):
        got = torch.stack(list(stream(model, IDS, max_new_tokens=5)), 1)
        expected = model.generate(IDS, max_new_tokens=5, do_sample=False, eos_token_id=None, use_cache=False)[:, 100:]
    assert torch.equal(got, expected)


@pytest.mark.parametrize("name", ["roformer", "bloom", "mamba"])
def test_what_attends_in_its_own_way_is_refused(name):
    with pytest.raises(RopewalkError, match="does not use transformers' attention interface"):
        extend(small(name), "yarn:factor=4")


def test_values_that_are_rotated_too_are_refused():
    """DeepSeek V4 has one vector for key and value, and rotates what attention returns back."""
    with pytest.raises(DoesNotFit, match="does more than rotate queries and keys: values are rotated too"):
        extend(small("deepseek_v4"), "pi:factor=4")


def test_a_hybrid_with_a_table_for_each_type_of_layer_is_saved(tmp_path):
    """Layers that attend are numbered among those that do not, when a config lists types."""
    model = small("lfm3")
    with extended(model, "pi:factor=4"):
        expected = logits(model, IDS, use_cache=False)
        assert save(model, tmp_path / "model").startswith("transformers")
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "model").eval()
    assert off(logits(again, IDS, use_cache=False), expected) < CLOSE
