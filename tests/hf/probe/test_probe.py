"""What the probe says of architectures, against what their sources say."""

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel
from transformers.models.llama import modeling_llama

from ropewalk import extended
from ropewalk.hf.attach import extend as extending
from ropewalk.hf.probe import probe as probing
from ropewalk.hf.probe.facts import facts_of
from ropewalk.hf.probe.probe import known, probe

from hf.models import tiny
from hf.traces import logits, trace

# rotating dimensions from and to, neighbours, windows of the four layers; by reading the sources.
W = 12
SOURCES = {
    "llama": ((0, 16), False, [None] * 4),
    "qwen3": ((0, 16), False, [None] * 4),
    "mistral": ((0, 16), False, [W] * 4),
    "gemma2": ((0, 16), False, [W, None, W, None]),
    "gemma3_text": ((0, 16), False, [W] * 4),
    "gpt_neox": ((0, 4), False, [None] * 4),
    "glm4": ((0, 8), True, [None] * 4),
    "cohere2": ((0, 16), True, [W, W, W, None]),
    "stablelm": ((0, 4), False, [None] * 4),
    "phi": ((0, 8), False, [None] * 4),
    "gpt_oss": ((0, 16), False, [W, None, W, None]),
    "deepseek_v3": ((8, 16), False, [None] * 4),
}


@pytest.mark.parametrize("name", SOURCES)
def test_which_dimensions_turn_and_who_has_a_window(name):
    layers = probe(tiny(name))
    (first, stop), neighbours, windows = SOURCES[name]
    assert (layers[0].first, layers[0].first + layers[0].rotating) == (first, stop)
    assert layers[0].interleaved is neighbours
    assert [layer.window for layer in layers] == windows


def test_layers_that_turn_nothing():
    assert [layer.rotating for layer in probe(tiny("cohere2"))] == [16, 16, 16, 0]
    assert [layer.rotating for layer in probe(tiny("smollm3"))] == [16, 16, 16, 0]


def test_each_layer_may_have_a_rotary_module_of_its_own():
    """In a list of modules, beside one of the usual name that is never called."""
    bases = [0, 10_000.0, 500.0, 10_000.0]
    layers = probe(tiny("granite_swa", layer_rope_theta=bases))
    assert [layer.rotating for layer in layers] == [0, 16, 16, 16]
    for layer, base in zip(layers[1:], bases[1:], strict=True):
        assert layer.inv_freq == pytest.approx([base ** (-pair / 8) for pair in range(8)], rel=1e-5)


def test_what_stands_in_the_way():
    assert all(layer.norm_follows for layer in probe(tiny("hunyuan_v1_dense")))
    assert not any(layer.norm_follows for layer in probe(tiny("qwen3")))


def test_a_norm_without_weights_turns_with_its_pairs():
    """nanochat's comes after the rotation and might as well come before; its pairs turn the other way round."""
    layers = probe(tiny("nanochat"))
    assert {(layer.norm_follows, layer.interleaved, layer.clockwise) for layer in layers} == {(True, False, True)}
    assert not any(layer.clockwise for layer in probe(tiny("llama")))


@pytest.mark.parametrize("clockwise", [False, True])
@pytest.mark.parametrize("interleaved", [False, True])
def test_pairs_of_both_kinds_that_turn_either_way(interleaved, clockwise, monkeypatch):
    """Plain rotation by our attention is the model's own, whichever dimensions pair and whichever way they turn."""

    def turned(x, cos, sin):
        cos, sin = (part[:, None, :, :8] for part in (cos, -sin if clockwise else sin))
        a, b = (x[..., ::2], x[..., 1::2]) if interleaved else x.chunk(2, -1)
        pairs = torch.stack([a * cos - b * sin, b * cos + a * sin], -1 if interleaved else -2)
        return pairs.flatten(-2)

    monkeypatch.setattr(modeling_llama, "apply_rotary_pos_emb", lambda q, k, *how: (turned(q, *how), turned(k, *how)))
    model = tiny("llama")
    assert {(layer.interleaved, layer.clockwise) for layer in probe(model)} == {(interleaved, clockwise)}
    ids = torch.randint(3, 97, (1, 30), generator=torch.Generator().manual_seed(3))
    theirs = logits(model, ids)
    for text in ("rope", "rerope:window=31"):  # within the window it is plain rotation
        with extended(model, text, mode="attention"):
            torch.testing.assert_close(logits(model, ids), theirs, rtol=1e-4, atol=1e-4 * float(theirs.abs().max()))


def test_what_the_model_adds_to_the_softmax():
    assert [layer.softcap for layer in probe(tiny("gemma2"))] == [5.0] * 4
    assert [layer.sinks for layer in probe(tiny("gpt_oss"))] == ["sinks"] * 4
    assert {(layer.softcap, layer.sinks) for layer in probe(tiny("llama"))} == {(None, None)}


def test_tables_of_its_own_for_each_kind_of_layer():
    """gemma3 turns by base 10,000 in windows and by 1,000,000 elsewhere."""
    model = tiny("gemma3_text", num_hidden_layers=6)
    layers = probe(model)
    slowest = [layer.inv_freq[-1] for layer in layers]
    assert slowest[:5] == pytest.approx([10_000 ** (-14 / 16)] * 5, rel=1e-5)
    assert slowest[5] == pytest.approx(1_000_000 ** (-14 / 16), rel=1e-5)
    assert [layer.layer_type for layer in layers] == ["sliding_attention"] * 5 + ["full_attention"]
    assert [facts_of(model, layer, 6).base for layer in layers] == [10_000.0] * 5 + [1_000_000.0]


def test_a_stretched_table_and_its_temperature():
    yarn = {"rope_type": "yarn", "rope_theta": 10_000.0, "factor": 4.0, "original_max_position_embeddings": 8}
    (layer, *_) = probe(tiny("llama", rope_parameters=yarn))
    assert layer.temperature == pytest.approx(0.1 * torch.tensor(4.0).log().item() + 1, rel=1e-6)
    assert layer.inv_freq[-1] == pytest.approx(10_000 ** (-14 / 16) / 4, rel=1e-5)


@pytest.mark.parametrize("name", ["llama", "gemma3_text", "gpt_neox"])
def test_leaves_no_trace(name):
    model = tiny(name)
    model.model.layers[0].train() if name != "gpt_neox" else model.gpt_neox.layers[0].train()
    before = trace(model)
    probe(model)
    assert trace(model) == before


def test_a_model_without_a_rotary_module_rotates_nothing():
    model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_head=2, n_embd=16, vocab_size=50))
    assert [(layer.rotating, layer.rotary, layer.heads) for layer in probe(model)] == [(0, None, 2)]


def test_rotary_modules_of_any_name_are_known_by_their_answer():
    """Renamed, with the table in a plain attribute: no name and no buffer tells."""

    class Turning(torch.nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.__dict__["inner"] = inner

        def forward(self, x, position_ids):
            return self.inner(x, position_ids)

    model = tiny("llama", num_hidden_layers=2)
    expected = [layer.inv_freq for layer in probe(model)]
    module = model.model.rotary_emb
    del model.model.rotary_emb
    model.model.phases = Turning(module)
    model.model.__dict__["rotary_emb"] = model.model.phases
    layers = probe(model)
    assert [layer.inv_freq for layer in layers] == expected
    assert all(layer.rotary is model.model.phases for layer in layers)
    bare = model(input_ids=torch.arange(20)[None]).logits
    with extended(model, "rerope:window=24"):
        assert torch.allclose(model(input_ids=torch.arange(20)[None], use_cache=False).logits, bare, atol=1e-4)


CHANGES = {
    "a weight": lambda model: torch.nn.init.zeros_(model.model.layers[0].self_attn.q_proj.weight),
    "a table": lambda model: model.model.rotary_emb.inv_freq.div_(2),
    "a table in its place": lambda model: model.model.rotary_emb.register_buffer("inv_freq", torch.ones(8)),
    "a setting": lambda model: setattr(model.model.layers[0].self_attn, "scaling", 0.1),
    "the config": lambda model: model.config.rope_parameters.update(rope_theta=5e5),
    "a module": lambda model: model.model.layers.__setitem__(1, tiny("llama").model.layers[1]),
    "a function": lambda model: setattr(model.model.layers[0], "forward", model.model.layers[0].forward),
    "a hook": lambda model: model.model.layers[0].register_forward_hook(lambda *_: None),
    "the precision": lambda model: model.double(),
    "its attention": lambda model: model.set_attn_implementation("eager"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_is_known_of_a_model_holds_until_something_changes(change, monkeypatch):
    model, lines = tiny("llama"), ("pi:factor=2", "rerope:window=8")
    for _ in lines:  # what an extension leaves behind may stand in another order than before it
        for line in lines:
            with extended(model, line):
                pass
    before = known(model)
    with monkeypatch.context() as patch:
        patch.setattr(extending, "why_not_identical", None)
        patch.setattr(probing, "probe", None)
        with extended(model, "rerope:window=9"):
            pass
        assert known(model) is before
    change(model)
    assert known(model) is not before
