"""A step of many requests is what the extended model says of each alone, under every extension at once."""

from contextlib import ExitStack, suppress

import pytest
import torch

import ropewalk as rw
from ropewalk.errors import DoesNotFit
from ropewalk.hf.attach.handle import handle_of
from ropewalk.serve.generation.model import Part, ServedModel, served_extensions

from hf.architectures import small
from hf.models import tiny
from hf.traces import trace

LINES = {
    "yarn": "yarn",
    "dynamic": "dynamic_yarn",
    "rerope": "rerope:window=10+log_n",
    "leaky": "leaky_rerope:window=10,leak=8",
    "streaming": "streaming:window=12,n_sink=2",
    "self_extend": "self_extend:window=8,group=4",
    "dual_chunk": "dual_chunk:chunk=16,local=8",
    "string": "string:shift=10,local=3",
    "alibi": "alibi",
}
KINDS = ["llama", "qwen3", "gemma2", "gemma3_text", "gpt_neox", "granite", "cohere2", "gpt_oss", "deepseek_v3", "phi3"]
KINDS += ["hunyuan_v1_dense"]
SIZE, LENGTH = 16, 90


def read(model, name, ids, chunks):
    """The logits of a text that is read in chunks."""
    table = torch.tensor([model.pool.take() for _ in range(-(-len(ids) // SIZE))], dtype=torch.int32)
    done, out = 0, []
    for chunk in chunks:
        part = Part(name, ids[done : done + chunk], done + chunk, table, slice(None))
        out += model.step([part])
        done += chunk
    return torch.cat(out)


def test_a_models_facts_are_those_of_a_layer_that_sees_all():
    """Gemma 3 turns its windows under another base."""
    bases = {"sliding_attention": 1e4, "full_attention": 1e6}
    rope = {kind: {"rope_type": "default", "rope_theta": base} for kind, base in bases.items()}
    host = tiny("gemma3_text", rope_parameters=rope, layer_types=[*bases, *bases])
    served = served_extensions(host, {"yarn": "yarn:factor=4"})["yarn"]
    assert served.facts == rw.extend(host, "yarn:factor=4").facts != served.layers[0].facts


@pytest.mark.sampled(cases=1)
@pytest.mark.parametrize("kind", KINDS)
def test_logits_are_those_of_the_extended_model(kind):
    host, expected = tiny(kind), {}
    ids = torch.randint(3, 101, (1, LENGTH), generator=torch.Generator().manual_seed(0))
    for name, line in {"bare": rw.Extension(), **LINES}.items():
        target = None if name == "bare" else 512
        with suppress(DoesNotFit), rw.extended(host, line, mode="attention", target_len=target), torch.no_grad():
            expected[name] = host(ids, use_cache=False).logits[0]
    before = host(ids, use_cache=False).logits
    served = served_extensions(host, {name: LINES[name] for name in expected if name != "bare"}, target_len=512)
    model = ServedModel(host, served, size=SIZE, limit=2**24)
    for name in expected:
        got = read(model, name, ids[0].tolist(), [33, 17, 1, 1, 30, 8])
        torch.testing.assert_close(got, expected[name], atol=2e-4, rtol=1e-4)
    model.close()
    assert torch.equal(host(ids, use_cache=False).logits, before)
    assert len(expected) >= 4


@pytest.mark.sampled(cases=1)
@pytest.mark.parametrize("packs", [True, False])
def test_a_part_is_bit_for_bit_the_same_among_any_others(packs, monkeypatch):
    """Also where linear layers are not packed: on a GPU, or in a model that reads its weights itself."""
    if not packs:
        monkeypatch.setattr("ropewalk.serve.generation.model.packed_linears", lambda *_: ExitStack())
    host = tiny("llama")
    model = ServedModel(host, served_extensions(host, LINES, target_len=128), size=SIZE, limit=2**24)
    draw = torch.Generator().manual_seed(1)

    def part(name, length, new):
        ids = torch.randint(3, 101, (new,), generator=draw).tolist()
        table = torch.tensor([model.pool.take() for _ in range(-(-length // SIZE))], dtype=torch.int32)
        return Part(name, ids, length, table, slice(None))

    parts = [part(name, new + before, new) for name in LINES for new, before in ((1, 0), (20, 0), (1, 0), (5, 0))]
    alone = [model.step([one])[0] for one in parts]
    for count in (2, 3, 7, len(parts)):
        for first in range(0, len(parts) - count + 1, 3):
            together = model.step(parts[first : first + count])
            for one, other in zip(alone[first : first + count], together, strict=True):
                assert torch.equal(one, other)
    model.close()


@pytest.mark.parametrize("kind", ["llama", "gemma2", "gpt_neox"])
def test_closing_leaves_nothing_behind(kind):
    """Neither in a module, nor in its configuration: an attribute that stays is found by the next server."""
    host = tiny(kind)
    before = traces_in(host)
    for _ in range(2):
        model = ServedModel(host, served_extensions(host, {"rerope": "rerope:window=16"}), size=SIZE, limit=2**24)
        assert traces_in(host) != before
        model.close()
        assert traces_in(host) == before


def traces_in(host):
    """The attributes of every module, the hooks on it, and the attention that its configuration names."""
    return {
        name: ([*module.__dict__, *module._forward_hooks, *module._forward_pre_hooks], type(module))
        for name, module in host.named_modules()
    } | {"attention": host.config._attn_implementation}


def test_dynamic_schedules_give_the_logits_of_the_base_model_within_the_trained_length():
    host = tiny("llama")
    model = ServedModel(
        host, served_extensions(host, {"dynamic": "dynamic_yarn"}, target_len=128), size=SIZE, limit=2**24
    )
    ids = torch.randint(3, 101, (40,), generator=torch.Generator().manual_seed(2)).tolist()
    bare, dynamic = (read(model, name, ids, [20, 11, 1, 8]) for name in ("bare", "dynamic"))
    assert torch.equal(bare[:32], dynamic[:32])
    assert not torch.allclose(bare[33:], dynamic[33:], atol=1e-3)
    model.close()


@pytest.mark.parametrize(
    ("line", "carried"),
    [
        ("yarn", 128),
        ("yarn:factor=2", 64),
        ("rerope:window=10", None),
        ("streaming:window=12,n_sink=2", None),
        ("dynamic_yarn", None),
        ("alibi", None),
        ("self_extend:window=8,group=4", 104),
    ],
)
def test_the_longest_text_that_an_extension_carries(line, carried):
    """By hand: self_extend shows token L - 1 the first key at the distance (L - 1) // 4 + 8 - 8 // 4, at most 31."""
    served = served_extensions(tiny("llama"), {"x": line}, target_len=128)
    assert served["bare"].max_len == 32
    assert served["x"].max_len == carried


def test_a_model_saved_under_an_extension_is_served_under_it(tmp_path):
    host = tiny("llama")
    rw.extend(host, "kerple+log_n")
    for name, value in host.named_parameters():
        if "ropewalk" in name:
            torch.nn.init.uniform_(value, 0.5, 2.0)
    ids = torch.randint(3, 101, (1, 50), generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        expected = host(ids, use_cache=False).logits[0]
    extension = handle_of(host).extension
    model = ServedModel(host, served_extensions(host, {"kerple+log_n": extension}), size=SIZE, limit=2**24)
    torch.testing.assert_close(read(model, "kerple+log_n", ids[0].tolist(), [50]), expected, atol=1e-4, rtol=1e-4)
    model.close()


@pytest.mark.parametrize("kind", ["doge", "deepseek_v32"])
def test_models_whose_layers_make_their_own_masks_are_refused(kind):
    host = small(kind)
    before = trace(host)
    with pytest.raises(
        DoesNotFit, match="layer 0 makes a mask of its own, or chooses its keys, which pages do not carry"
    ):
        ServedModel(host, served_extensions(host, {"rerope": "rerope:window=16"}), size=SIZE, limit=2**24)
    assert trace(host) == before


@pytest.mark.parametrize("kind", ["mamba", "jamba"])
def test_models_that_remember_elsewhere_are_refused(kind):
    host = tiny(kind)
    with pytest.raises(DoesNotFit):
        ServedModel(host, served_extensions(host, {}), size=SIZE, limit=2**24)
