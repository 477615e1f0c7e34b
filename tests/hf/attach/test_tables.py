"""A static schedule in the model's own tables is the same model as under attention of ours, at its own cost."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from transformers import DynamicCache, StaticCache

from ropewalk import Conflict, DoesNotFit, Extension, InvalidValue, UnknownName, extend, extended, score, stream
from ropewalk.equation import reference_attention
from ropewalk.hf.attach.tables import LONGEST_IN_TABLES
from ropewalk.hf.probe.probe import probe
from ropewalk.methods.frequencies import Interpolation

from hf.extended import CLOSE, IDS, LENGTH, MASK, PADDED, error, in_pieces
from hf.models import OWN, tiny
from hf.traces import logits, trace

NORM_FOLLOWS = ("hunyuan_v1_dense", "nanochat")
# One table for layers with windows, which are left alone, and for those without.
SHARED = ("gemma2", "gpt_oss", "granite_swa")
CARRIED = [name for name in OWN if name not in (*NORM_FOLLOWS, *SHARED)]
KINDS = {"num_hidden_layers": 6}  # of gemma3: five with windows and a table of theirs, one without
STATIC = ["yarn:factor=4", "pi:factor=4+scales.temperature:value=1.3", "abf:new_base=700000", "frequencies.none"]
FACTORS = [1.0 + n / 2 for n in range(8)]
LONGROPE = {
    "rope_type": "longrope",
    "short_factor": [1.0] * 8,
    "long_factor": FACTORS,
    "factor": 4.0,
    "original_max_position_embeddings": 32,
}
DYNAMIC = {"rope_type": "dynamic", "factor": 4.0}


def padded(model, **given):
    return logits(model, IDS, attention_mask=MASK, use_cache=False, **given)


@pytest.mark.sampled(cases=6)
@pytest.mark.parametrize("text", STATIC)
@pytest.mark.parametrize("name", CARRIED)
def test_both_ways_are_one_model(name, text):
    model = tiny(name, **(KINDS if name == "gemma3_text" else {}))
    before, bare = trace(model), padded(model)
    with extended(model, text, mode="tables") as handle:
        tables = padded(model)
        assert "the model's attention is unchanged" in handle.describe()
    with extended(model, text, mode="attention"):
        assert error(tables, padded(model)) < CLOSE
    assert trace(model) == before
    assert torch.equal(padded(model), bare)


WRAPPED = [
    ("llama", "yarn:factor=4+cope+resonance"),
    ("gpt_neox", "p_rope+resonance"),
    ("gemma4_text", "pi:factor=4+cope"),
]


@pytest.mark.nightly
@pytest.mark.parametrize(("name", "text"), WRAPPED)
def test_wrapped_schedules_are_one_model_both_ways(name, text):
    """Of GPT-NeoX a quarter of a head rotates, of Gemma 4 a quarter of the pairs."""
    model = tiny(name)
    bare = padded(model)
    with extended(model, text, mode="tables"):
        tables = padded(model)
    with extended(model, text, mode="attention"):
        assert error(tables, padded(model)) < CLOSE
    assert error(tables, bare) > 10 * CLOSE


@pytest.mark.sampled(cases=5)
@pytest.mark.parametrize("name", CARRIED)
def test_against_the_equation_in_float64(name, monkeypatch):
    model = tiny(name, **(KINDS if name == "gemma3_text" else {}))
    with extended(model, "yarn:factor=4"):
        tables = padded(model)

    def attend(q, k, v, extension, facts, tokens, **of_layer):
        return reference_attention(q, k, v, extension, facts, tokens, **of_layer).to(q.dtype)

    monkeypatch.setattr("ropewalk.hf.runtime.layer.attend", attend)
    with extended(model, "yarn:factor=4", mode="attention"):
        assert error(tables, padded(model)) < CLOSE


@pytest.mark.parametrize("name", NORM_FOLLOWS)
def test_where_a_norm_follows_the_rotation(name):
    """The frequencies are those of transformers' own config; a temperature counts after the norm, as in its weight."""
    model = tiny(name)
    theirs = tiny(name, rope_parameters={"rope_type": "linear", "rope_theta": 10_000.0, "factor": 4.0})
    with extended(model, "pi:factor=4"):
        assert error(padded(model), padded(theirs)) < CLOSE
        assert error(in_pieces(model, [30, 1, 29])[0], padded(theirs)) < CLOSE
    with extended(model, "pi:factor=4", mode="attention"):
        assert error(logits(model, IDS), logits(theirs, IDS)) < CLOSE
    with extended(model, "pi:factor=4+scales.temperature:value=1.3"):
        got = padded(model)
    for layer in theirs.model.layers:
        layer.self_attn.scaling *= 1.3
    assert error(got, padded(theirs)) < CLOSE


@pytest.mark.parametrize("name", SHARED)
def test_a_cap_or_sinks_are_the_models_own(name):
    """Where no window stands in the way; against transformers' config of the same schedule."""
    full = {"layer_types": ["full_attention"] * 4}
    scaled = {"rope_type": "yarn", "rope_theta": 10_000.0, "factor": 4.0, "original_max_position_embeddings": 32}
    theirs = padded(tiny(name, rope_parameters=scaled, **full))
    model = tiny(name, rope_parameters={"rope_type": "default", "rope_theta": 10_000.0}, **full)
    with extended(model, "yarn:factor=4") as handle:
        assert handle.mode == "tables"
        assert error(padded(model), theirs) < CLOSE


@pytest.mark.parametrize(
    ("name", "text", "given", "reason"),
    [
        ("llama", "dynamic_yarn", {}, "the same for every row"),
        ("llama", "rerope:window=8", {}, "reach"),
        ("llama", "biases.alibi", {}, "biases"),
        ("llama", "xpos", {}, "rotation without decay"),
        ("llama", "partial:share=0.5", {}, "for the 16 dimensions that the model rotates"),
        ("llama", "yarn:factor=4+log_n", {}, "scales"),
        ("llama", "scales.head_scale", {}, "learned"),
        ("llama", "log_n", {"trained_len": 2 * 10**6}, "scales"),
        ("llama", "llama4_temperature", {"trained_len": 2 * 10**6}, "scales"),
        ("llama", "yarn:factor=4+randomized:limit=256", {}, "positions"),
        ("llama", "hwfa:window=8", {}, "reach"),
        ("mistral", "yarn:factor=4", {"lift_windows": True}, "windows"),
        ("llama", "abf", {"target_len": LONGEST_IN_TABLES + 1}, "float32"),
        ("llama", "pi:factor=5000", {}, "float32"),
        ("llama", "pi:factor=4", {"mode": "attention"}, "requested"),
    ],
)
def test_what_goes_by_attention_and_why(name, text, given, reason):
    with extended(tiny(name, num_hidden_layers=2), text, **given) as handle:
        assert handle.mode == "attention"
        assert reason in handle.describe()
    if "mode" not in given:
        with pytest.raises(DoesNotFit, match=reason):
            extend(handle.model, text, **given, mode="tables")
    with pytest.raises(UnknownName, match=r"did you mean 'tables'\? Known: tables, attention"):
        extend(handle.model, text, mode="table")


@pytest.mark.parametrize("text", ["yarn:factor=4", "abf", "pi:factor=4096", "yarn:factor=4+cope+resonance", "p_rope"])
def test_what_goes_by_tables(llama, text):
    """4096 trained lengths of 32 are the furthest that angles in float32 carry."""
    assert extend(llama, text).mode == "tables"
    extend(llama, text).remove()


def test_layers_that_share_a_table_and_are_to_differ(llama):
    below = Extension(layers={0: Extension(frequencies=Interpolation(factor=4))})
    with extended(llama, below) as handle:
        assert handle.mode == "attention"
        assert "layer 1 must be under the same table" in handle.describe()


def test_asking_twice(llama):
    with extended(llama, "yarn:factor=4") as handle:
        assert extend(llama, "yarn:factor=4") is handle
        assert extend(llama, "yarn:factor=4", mode="tables") is handle
        for text, mode in (("yarn:factor=4", "attention"), ("yarn:factor=8", None)):
            with pytest.raises(Conflict, match="remove that first"):
                extend(llama, text, mode=mode)


@pytest.mark.parametrize("text", ["rope", ""], ids=["its own formula", "nothing"])
def test_the_identity(llama, text):
    bare = padded(llama)
    with extended(llama, text or Extension()) as handle:
        assert handle.mode == "tables"
        assert error(padded(llama), bare) < CLOSE
        assert text or torch.equal(padded(llama), bare)


OWN_SCHEDULES = {
    "dynamic": ("llama", DYNAMIC, {}),
    "longrope": ("llama", LONGROPE, {}),
    "phi3's": ("phi3", LONGROPE, {"original_max_position_embeddings": 32}),
    "of one kind of layer": ("gemma3_text", DYNAMIC, {"layer_types": ["sliding_attention", "full_attention"]}),
}


@pytest.mark.parametrize("case", OWN_SCHEDULES)
def test_a_schedule_of_its_own_that_computes_anew_is_switched_off(case):
    """Whatever the length, the mates, the cache and the calls before; and it is back afterwards."""
    name, scaled, given = OWN_SCHEDULES[case]
    scaled, default = {"rope_theta": 10_000.0, **scaled}, {"rope_type": "default", "rope_theta": 10_000.0}
    kinds = ["sliding_attention", "full_attention"] if "layer_types" in given else []
    own, usual = ({**dict.fromkeys(kinds, default), kinds[1]: each} if kinds else each for each in (scaled, default))
    given = {**given, "num_hidden_layers": 2}
    model, plain = (tiny(name, rope_parameters=each, **given) for each in (own, usual))
    bare, before = padded(model), trace(model)  # what transformers keeps of a first long text is its own
    assert any(layer.varies for layer in probe(model))
    # A model with two tables is carried by rows; in the place of both a schedule is one table again.
    line = "yarn:factor=4+instead" if scaled["rope_type"] == "longrope" else "yarn:factor=4"
    with extended(model, line, mode="tables"):
        alone = logits(model, IDS[:1, PADDED:])
        whole = padded(model)
        assert float((whole[:1, PADDED:] - alone).abs().max() / alone.abs().max()) < CLOSE
        logits(model, IDS.repeat(1, 5))
        assert torch.equal(logits(model, IDS[:1, PADDED:]), alone)
        for cuts in ([30] + [1] * 30, [20, 40]):
            assert error(in_pieces(model, cuts)[0], whole) < CLOSE
        with extended(plain, "yarn:factor=4", mode="attention"):
            assert error(whole, padded(plain)) < CLOSE
    assert torch.equal(padded(model), bare)
    assert trace(model) == before


def test_generating_past_the_length_at_which_phi3_starts_over():
    """transformers drops the cache of a longrope model there; what follows is as without any."""
    own = {"rope_parameters": {"rope_theta": 10_000.0, **LONGROPE}, "num_hidden_layers": 2}
    model = tiny("phi3", **own, original_max_position_embeddings=32)
    given = {"max_new_tokens": 12, "do_sample": False, "eos_token_id": None}
    with extended(model, "yarn:factor=4"), torch.no_grad():
        got = model.generate(IDS[1:, :26], **given)
        assert got.tolist() == model.generate(IDS[1:, :26], use_cache=False, **given).tolist()


def test_tables_of_each_kind_of_layer():
    model = tiny("gemma3_text", **KINDS)
    rotary = model.model.rotary_emb
    local, whole = rotary.sliding_attention_inv_freq, rotary.full_attention_inv_freq
    with extended(model, "pi:factor=4"):
        assert rotary.sliding_attention_inv_freq is local
        torch.testing.assert_close(rotary.full_attention_inv_freq, whole / 4)
        for cache in (None, DynamicCache(config=model.config), StaticCache(config=model.config, max_cache_len=80)):
            assert error(in_pieces(model, [30] + [1] * 30, cache)[0], padded(model)) < CLOSE
    assert rotary.full_attention_inv_freq is whole


def test_a_temperature_of_its_own_gives_way_where_its_schedule_does():
    yarn = {"rope_type": "yarn", "rope_theta": 10_000.0, "factor": 4.0, "original_max_position_embeddings": 32}
    model, plain = tiny("llama", rope_parameters=yarn), tiny("llama")
    with extended(plain, "yarn:factor=4"):
        torch.testing.assert_close(padded(plain), padded(model), rtol=0, atol=1e-3)
    with extended(model, "instead", mode="tables"):
        assert error(padded(model), padded(plain)) < CLOSE
    with extended(model, "scales.temperature:value=1.3"), extended(plain, "yarn:factor=4"):
        got, scaling = padded(model), plain.model.layers[0].self_attn.scaling
        for layer in plain.model.layers:
            layer.self_attn.scaling = 1.3 * scaling
        assert error(got, padded(plain)) < CLOSE


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_a_cast_leaves_the_tables_alone(dtype):
    cast, model = tiny("llama").to(dtype), tiny("llama")
    with extended(model, "yarn:factor=4"):
        table = model.model.rotary_emb.inv_freq.clone()
        model.to(dtype)
        assert torch.equal(model.model.rotary_emb.inv_freq, table)
        assert model.model.rotary_emb.inv_freq.dtype == torch.float32
        assert model.model.rotary_emb.original_inv_freq.dtype == dtype
        got = padded(model).double()
    with extended(cast, "yarn:factor=4"):
        # The bare table of the one was rounded with it before it was measured, the other's afterwards.
        assert error(got, padded(cast).double()) < (0.3 if dtype == torch.bfloat16 else CLOSE)
    assert "_apply" not in model.model.rotary_emb.__dict__


def test_removed_on_another_type_the_table_is_what_it_was():
    model = tiny("llama")
    table = model.model.rotary_emb.inv_freq
    handle = extend(model, "yarn:factor=4")
    model.double()
    handle.remove()
    assert model.model.rotary_emb.inv_freq is table


@pytest.mark.sampled
@pytest.mark.parametrize("name", ["llama", "gemma3_text"])
@pytest.mark.parametrize(
    "where", ["tables.write", "tables.why_not_followed", "tables.probe", "extend.why_not_identical"]
)
def test_whatever_fails_leaves_no_trace(name, where, monkeypatch):
    model = tiny(name, **(KINDS if name == "gemma3_text" else {}))
    before, bare = trace(model), padded(model)

    def fails(*args):
        raise ZeroDivisionError

    monkeypatch.setattr(f"ropewalk.hf.attach.{where}", fails)  # the probe there reads what was written
    with pytest.raises(ZeroDivisionError):
        extend(model, "yarn:factor=4")
    assert trace(model) == before
    assert torch.equal(padded(model), bare)


def test_how_far_angles_in_float32_carry(llama):
    """Up to the limit an angle is a step of bfloat16 off; at eight times it, what a float32 model would see."""
    with extended(llama, "yarn:factor=4"):
        rotary = llama.model.rotary_emb
        errors = []
        for last in (LONGEST_IN_TABLES, 8 * LONGEST_IN_TABLES):
            places = torch.arange(last - 4096, last)
            got, _ = rotary(torch.zeros(1), places[None])
            expected = rotary.attention_scaling * (places[:, None] * rotary.inv_freq.double()).cos()
            errors.append(float((got[0, :, :8] - expected).abs().max()))
    assert errors[0] <= 2**-8 < errors[1]


def test_a_table_that_is_saved_with_the_weights_is_not_written(monkeypatch):
    model = tiny("llama", num_hidden_layers=1)
    model.model.rotary_emb._non_persistent_buffers_set.clear()
    with pytest.raises(DoesNotFit, match="apart from the weights"):
        extend(model, "yarn:factor=4", mode="tables")


def test_a_module_that_does_not_follow_its_table_goes_by_attention(monkeypatch):
    """Its cos and sin are of the table that it was born with."""
    model, twin = tiny("llama", num_hidden_layers=1), tiny("llama", num_hidden_layers=1)
    born = model.model.rotary_emb.inv_freq.clone()
    forward = type(model.model.rotary_emb).forward

    def stubborn(self, x, position_ids):
        self.inv_freq.copy_(born)
        return forward(self, x, position_ids)

    with extended(twin, "yarn:factor=4"):
        expected = padded(twin)
    monkeypatch.setattr(type(model.model.rotary_emb), "forward", stubborn)
    with extended(model, "yarn:factor=4") as handle:
        assert handle.mode == "attention"
        assert "does not follow the tables" in handle.describe()
        assert error(padded(model), expected) < CLOSE
    with pytest.raises(DoesNotFit, match="does not follow the tables"):
        extend(model, "yarn:factor=4", mode="tables")


GENERATION = {
    "greedy": {},
    "beams": {"num_beams": 3},
    "chunks": {"prefill_chunk_size": 16},
    "static": {"cache_implementation": "static", "disable_compile": True},
}


@pytest.mark.sampled
@pytest.mark.parametrize("form", GENERATION)
@pytest.mark.parametrize("mode", ["tables", "attention"])
def test_generating(llama, mode, form):
    given = {"attention_mask": MASK, "max_new_tokens": 12, "eos_token_id": None, "do_sample": False}
    with extended(llama, "yarn:factor=4", mode=mode), torch.no_grad():
        got = llama.generate(IDS, **given, **GENERATION[form])
        beams = {"num_beams": 3} if form == "beams" else {}
        assert got.tolist() == llama.generate(IDS, use_cache=False, **given, **beams).tolist()


def test_assisted_by_a_model_under_the_same_schedule(llama):
    helper, given = tiny("llama", num_hidden_layers=1), {"max_new_tokens": 12, "do_sample": False, "eos_token_id": None}
    with extended(llama, "yarn:factor=4"), extended(helper, "yarn:factor=4"), torch.no_grad():
        got = llama.generate(IDS[1:], assistant_model=helper, **given)
        assert got.tolist() == llama.generate(IDS[1:], **given).tolist()


@pytest.mark.parametrize("cache", [DynamicCache, StaticCache])
def test_whole_or_in_pieces(llama, cache):
    with extended(llama, "yarn:factor=4"):
        made = cache(config=llama.config, **({"max_cache_len": 80} if cache is StaticCache else {}))
        assert error(in_pieces(llama, [25, 1, 33, 1], made)[0], padded(llama)) < CLOSE


PACKED, GAPS = torch.cat([torch.arange(25), torch.arange(35)]), torch.arange(LENGTH) + 9 * (torch.arange(LENGTH) > 20)


@pytest.mark.sampled
@pytest.mark.parametrize("given", [{}, {"use_cache": False}], ids=["by default", "without a cache"])
@pytest.mark.parametrize("positions", [PACKED, GAPS, GAPS[20:][:30]], ids=["packed", "gaps", "from further on"])
@pytest.mark.parametrize("mates", [1, 2])
def test_position_ids_mean_the_same_both_ways(llama, positions, given, mates):
    read, ids = [], IDS[:mates, : len(positions)]
    for mode in ("tables", "attention"):
        with extended(llama, "yarn:factor=4", mode=mode):
            read.append(logits(llama, ids, position_ids=positions[None], **given))
            plain = logits(llama, ids)
    torch.testing.assert_close(*read, rtol=0, atol=CLOSE * float(read[1].abs().max()))
    assert not torch.allclose(read[0], plain, atol=0.1)


def test_position_ids_that_transformers_would_misread_are_refused(llama):
    with extended(llama, "yarn:factor=4"):
        for positions, given in ((PACKED, {"use_cache": True}), (PACKED, {"past_key_values": DynamicCache()})):
            with pytest.raises(InvalidValue, match="use_cache=False"):
                logits(llama, IDS, position_ids=positions[None], **given)
        with pytest.raises(InvalidValue, match="without gaps where texts are packed"):
            logits(llama, IDS, position_ids=torch.cat([GAPS[:30], GAPS[:30]])[None])


def test_gradients_are_those_of_the_other_way():
    gradients = []
    for mode, checkpoints in (("tables", False), ("tables", True), ("attention", False)):
        model = tiny("llama").train()
        if checkpoints:
            model.activation_checkpointing_enable()
        with extended(model, "yarn:factor=4", mode=mode):
            model(input_ids=IDS, labels=IDS, use_cache=False).loss.backward()
        gradients.append(model.model.layers[0].self_attn.k_proj.weight.grad)
    largest = float(gradients[-1].abs().max())
    assert largest > 0
    for each in gradients[:2]:
        torch.testing.assert_close(each, gradients[-1], rtol=0, atol=1e-3 * largest)


def test_dropout_is_the_models_own():
    model = tiny("llama", attention_dropout=0.5).train()
    with extended(model, "yarn:factor=4"):
        one, other = (model(input_ids=IDS, use_cache=False).logits for _ in range(2))
    assert not torch.equal(one, other)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_any_attention_of_the_models(attention):
    model, ours = tiny("llama", attention), tiny("llama")
    with extended(ours, "yarn:factor=4", mode="attention"):
        expected = padded(ours)
    with extended(model, "yarn:factor=4"):
        assert model.config._attn_implementation == attention
        assert error(padded(model), expected) < CLOSE
        model.set_attn_implementation("sdpa")
        assert error(padded(model), expected) < CLOSE


@pytest.mark.nightly
@pytest.mark.parametrize("cached", [False, True])
def test_compiled_as_one_graph(llama, cached):
    torch._dynamo.reset()
    bare = padded(llama)
    compiled = torch.compile(llama, backend="eager", fullgraph=True)
    with extended(llama, "yarn:factor=4"):
        assert error(logits(compiled, IDS, attention_mask=MASK, use_cache=cached), padded(llama)) < CLOSE
    assert error(padded(llama), bare) < CLOSE


def test_several_threads(llama):
    prompts = [IDS[:1, :size] for size in (5, 17, 30, 40)]
    given = {"max_new_tokens": 10, "do_sample": False, "eos_token_id": None}
    with extended(llama, "yarn:factor=4"), torch.no_grad():
        expected = [llama.generate(prompt, **given).tolist() for prompt in prompts]
        with ThreadPoolExecutor(4) as pool:
            got = list(pool.map(lambda prompt: llama.generate(prompt, **given).tolist(), prompts * 3))
    assert got == expected * 3


def test_reading_and_writing(llama):
    with extended(llama, "yarn:factor=4") as handle:
        expected = -logits(llama, IDS).log_softmax(-1)[:, :-1].gather(-1, IDS[:, 1:, None])[..., 0]
        torch.testing.assert_close(score(llama, IDS, piece=16), expected, rtol=0, atol=1e-3)
        wanted = llama.generate(IDS, max_new_tokens=8, do_sample=False, eos_token_id=None)[:, LENGTH:]
        got = torch.stack(list(stream(llama, IDS, max_new_tokens=8, piece=16)), 1)
        assert got.tolist() == wanted.tolist()
        begun = stream(llama, IDS)
        next(begun)
        handle.remove()
        with pytest.raises(Conflict, match="stream"):
            next(begun)
