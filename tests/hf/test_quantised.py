"""Quantised weights: extended like any other, saved as they are, and refused where new weights are computed."""

import re
from pathlib import Path

import pytest
import torch
from transformers import DynamicCache

import ropewalk as rw
from ropewalk.hf.attach.handle import ATTENTION, TABLES
from ropewalk.hf.checkpoint.sidecar import first_difference
from ropewalk.hf.probe.host import format_of, is_quantised, quiet
from ropewalk.hf.probe.probe import allowed_error

from hf.models import tiny
from hf.quantised import FORMATS, quantised, torchao
from hf.traces import trace

pytestmark = pytest.mark.filterwarnings("ignore")  # the libraries' own

IDS = torch.randint(3, 97, (2, 60), generator=torch.Generator().manual_seed(3))
LINES = {"yarn:factor=4": TABLES, "rerope:window=16": ATTENTION, "dynamic_yarn": ATTENTION, "streaming": ATTENTION}
GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "quantised-models.md"
DOES, REFUSES, NO = "yes", "refused", "no"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("quantised")


@pytest.fixture(params=FORMATS)
def kind(request):
    return request.param


@pytest.fixture
def model(kind, folder):
    return quantised(kind, folder)


def logits(model, ids=IDS, **given):
    """The answer as Ropewalk computes it, without what bitsandbytes does to weights of 4 bits in evaluation."""
    with quiet(model), torch.no_grad():
        return model(ids, **given).logits


def in_chunks(model):
    cache = DynamicCache(config=model.config)
    return torch.cat([logits(model, part, past_key_values=cache) for part in IDS.split(20, 1)], 1)


def error(got, expected):
    return float((got - expected).square().mean().sqrt() / expected.square().mean().sqrt())


@pytest.mark.sampled
@pytest.mark.parametrize("mode", [TABLES, ATTENTION])
def test_an_empty_extension_changes_nothing(model, mode):
    bare = logits(model)
    with rw.extended(model, rw.Extension(), mode=mode):
        assert error(logits(model), bare) < allowed_error(model, torch.float32)
    assert torch.equal(logits(model), bare)


@pytest.mark.sampled
@pytest.mark.parametrize("line", LINES)
def test_extended_read_in_chunks_generated_scored_and_removed(model, line):
    bare, before = logits(model), trace(model, numbers=False)
    rounding = error(in_chunks(model), bare)  # of activations, without an extension
    with rw.extended(model, line, target_len=128) as handle:
        whole = logits(model)
        assert handle.mode == LINES[line]
        assert error(whole, bare) > 0.05
        assert error(in_chunks(model), whole) <= 1e-5 + 5 * rounding
        expected = torch.nn.functional.cross_entropy(whole[:, :-1].transpose(1, 2), IDS[:, 1:], reduction="none")
        torch.testing.assert_close(rw.score(model, IDS), expected, rtol=0, atol=1e-3)
        assert model.generate(IDS, max_new_tokens=3, do_sample=False, eos_token_id=None).shape == (2, 63)
    assert trace(model, numbers=False) == before


def trains(model):
    """Whether gradients reach what an extension learns."""
    with rw.extended(model, "kerple"):
        model.train()
        model(IDS, labels=IDS).loss.backward()
        learned = [value for name, value in model.named_parameters() if "kerple" in name]
        return DOES if all(value.grad is not None for value in learned) else NO


def extends(model, mode):
    with rw.extended(model, rw.Extension(), mode=mode) as handle:
        return DOES if handle.mode == mode else NO


def refused(reason, place):
    """With the reason, and nothing written."""
    assert "quantis" in str(reason)
    assert not place.exists()
    return REFUSES


def saves(model, line, place):
    """A folder from which the same quantised weights are read."""
    try:
        with rw.extended(model, line, target_len=128):
            how, expected = rw.save(model, place, target_len=128), logits(model)
            again = rw.load(place).eval()
            assert how.startswith("transformers") == (line == "yarn:factor=4")
            assert format_of(again) == format_of(model)
            assert first_difference(model, again) == ""
            assert error(logits(again), expected) < allowed_error(model, torch.float32)
    except rw.DoesNotFit as reason:
        return refused(reason, place)
    return DOES


def exports(model, line, place, **given):
    try:
        with rw.extended(model, line, target_len=128):
            kind = rw.export(model, place, target_len=128, **given).kind
    except rw.DoesNotFit as reason:
        return refused(reason, place)
    return kind


def test_the_guide_says_what_was_measured(kind, model, folder, tmp_path):
    [row] = [line for line in GUIDE.read_text().splitlines() if line.startswith(f"| {kind} |")]
    measured = [
        extends(model, TABLES),
        extends(model, ATTENTION),
        saves(model, "yarn:factor=4", tmp_path / "static"),
        DOES if exports(model, "yarn:factor=4", tmp_path / "native", target="vllm") == "native" else REFUSES,
        exports(model, "yarn:factor=4", tmp_path / "gguf", target="llama.cpp"),
        trains(quantised(kind, folder)),
    ]
    assert [cell.strip() for cell in row.split("|")[2:8]] == measured


def test_saved_beside_the_weights(kind, model, tmp_path):
    """A method that no config expresses is saved where a static schedule is."""
    saved = [saves(model, line, tmp_path / line[:4]) for line in ("yarn:factor=4", "rerope:window=16")]
    assert len(set(saved)) == 1


def test_exported_with_the_plugin_and_made_static(kind, model, tmp_path):
    plugin = exports(model, "dynamic_yarn", tmp_path / "plugin", target="vllm")
    static = exports(model, "dynamic_yarn", tmp_path / "static", target="sglang")
    assert (plugin, static) in {("plugin", "frozen"), (REFUSES, REFUSES)}


@pytest.mark.sampled
@pytest.mark.parametrize("surgery", ["gqa:kv_heads=1", "qk_bias"])
def test_surgery_is_refused(model, surgery):
    with pytest.raises(rw.DoesNotFit, match=r"surgery computes with weights, and these are quantised .*before quant"):
        rw.convert(model, surgery)
    assert "surgery computes with weights" in rw.inspect(model, target_len=128).refused["qk_bias"]


def test_a_temperature_is_not_folded_into_quantised_queries(tmp_path):
    """One of two layers does not rotate, so cos and sin do not carry it everywhere."""
    tiny("smollm3", num_hidden_layers=2, no_rope_layers=[1, 0]).save_pretrained(tmp_path / "plain")
    model = torchao(tmp_path)
    with (
        rw.extended(model, "yarn:factor=4"),
        pytest.raises(rw.DoesNotFit, match=r"folding a temperature .* computes with weights, .*before quantisation"),
    ):
        rw.export(model, tmp_path / "out", target="sglang", target_len=128)
    assert not (tmp_path / "out").exists()


def test_a_low_rank_adapter_learns_on_quantised_weights_under_an_extension(kind, folder):
    """QLoRA; the probe runs the model in evaluation, after which bitsandbytes gives no gradients."""
    peft = pytest.importorskip("peft")
    if trains(quantised(kind, folder)) == NO:
        pytest.skip("this format gives no gradients, with or without an extension")
    model = quantised(kind, folder)
    logits(model)  # compressed-tensors decompresses now, and peft needs that
    wrapped = peft.get_peft_model(model, peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"]))
    with rw.extended(wrapped, "kerple"):
        learning = [value for value in wrapped.parameters() if value.requires_grad]
        steps = torch.optim.AdamW(learning, lr=1e-2)
        losses = []
        for _ in range(4):
            loss = wrapped(input_ids=IDS, labels=IDS).loss
            loss.backward()
            steps.step()
            steps.zero_grad()
            losses.append(float(loss.detach()))
            rw.score(wrapped, IDS)  # measured in between, in evaluation
    assert losses == sorted(losses, reverse=True)
    assert losses[0] - losses[-1] > 0.3


def test_no_gradients_is_the_format_s_own(kind, folder):
    """Where the guide says that a format does not train, it does not train without Ropewalk either."""
    if trains(quantised(kind, folder)) == DOES:
        pytest.skip("it trains")
    model = quantised(kind, folder).train()
    model(IDS, labels=IDS).loss.backward()
    assert model.model.layers[0].input_layernorm.weight.grad is None


def test_weights_of_4_bits_that_were_packed_for_generating_are_not_saved(folder, tmp_path):
    model = quantised("bitsandbytes, 4 bits (nf4)", folder)
    rw.extend(model, "yarn:factor=4")
    with torch.no_grad():
        model(IDS)  # in evaluation
    if not any(getattr(getattr(m, "weight", None), "quant_state", None) is not None for m in model.modules()):
        pytest.fail("no weights of 4 bits")
    packed = model.model.layers[0].mlp.down_proj.weight.quant_state
    if not getattr(packed, "packing_format_for_cpu", False):
        pytest.skip("this processor has no instructions for bfloat16, for which weights are packed")
    with pytest.raises(rw.DoesNotFit, match="cannot unpack them exactly; load the model again"):
        rw.save(model, tmp_path / "out", target_len=128)


def test_a_head_that_is_quantised_or_adapted_is_scored_by_its_answers(folder):
    """Its weight alone says something else than the head computes."""
    peft = pytest.importorskip("peft")
    model = tiny("llama", num_hidden_layers=2)
    adapter = peft.LoraConfig(r=4, target_modules=["lm_head"], init_lora_weights=False)
    wrapped = peft.get_peft_model(model, adapter).eval()
    losses = torch.nn.functional.cross_entropy(logits(wrapped)[:, :-1].transpose(1, 2), IDS[:, 1:], reduction="none")
    torch.testing.assert_close(rw.score(wrapped, IDS), losses, rtol=0, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_plain_weights_are_not_taken_for_quantised(dtype):
    model = tiny("llama", num_hidden_layers=1).to(dtype)
    assert format_of(model) == ""
    assert not any(is_quantised(value) for value in model.parameters())


def test_every_format_has_a_row_in_the_guide():
    of_weights, _, _ = GUIDE.read_text().partition("## Quantised caches")
    rows = re.findall(r"^\| ([a-z][^|]+) \|", of_weights, re.MULTILINE)
    assert [row for row in rows if row != "format"] == list(FORMATS)
