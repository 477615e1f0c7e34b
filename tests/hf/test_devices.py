"""Models that accelerate has laid out over devices and disk: extended like any other, before or after."""

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from ropewalk import convert, extend, extended, load, save, score, stream
from ropewalk.engines.export import export
from ropewalk.errors import DoesNotFit
from ropewalk.measure.material.subject import Subject

from hf.architectures import small
from hf.models import tiny
from hf.traces import logits, trace

accelerate = pytest.importorskip("accelerate")

pytestmark = pytest.mark.filterwarnings("ignore:Attempting to save a model with offloaded modules")

TEXTS = ["yarn:factor=4", "rerope:window=8+log_n", "biases.kerple_log"]
IDS = torch.randint(3, 97, (2, 60), generator=torch.Generator().manual_seed(3))
PARTS = ("model.embed_tokens", "model.layers.0", "model.norm", "model.rotary_emb", "lm_head")
MAPS = {
    "all on the processor": {"": "cpu"},
    "a layer on disk": {**dict.fromkeys(PARTS, "cpu"), "model.layers.1": "disk"},
    "all on disk": {"": "disk"},
}
GIVEN = {"max_new_tokens": 6, "do_sample": False, "eos_token_id": None}


@pytest.fixture(scope="module")
def whole():
    return tiny("llama", num_hidden_layers=2)


@pytest.mark.sampled(cases=3)
@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("places", MAPS.values(), ids=MAPS)
def test_extended_after_it_was_laid_out(tmp_path, whole, places, text):
    whole.save_pretrained(tmp_path / "saved")
    model = AutoModelForCausalLM.from_pretrained(
        tmp_path / "saved", device_map=places, offload_folder=str(tmp_path / "offloaded")
    )
    bare = logits(model, IDS)
    before = trace(model, numbers=False)
    with extended(whole, text), torch.no_grad():
        expected, written, losses = logits(whole, IDS), whole.generate(IDS, **GIVEN), score(whole, IDS)
    with extended(model, text), torch.no_grad():
        assert torch.equal(logits(model, IDS), expected)
        assert model.generate(IDS, **GIVEN).tolist() == written.tolist()
        torch.testing.assert_close(score(model, IDS), losses, rtol=0, atol=1e-5)
    assert torch.equal(logits(model, IDS), bare)
    assert trace(model, numbers=False) == before


@pytest.mark.parametrize("text", TEXTS)
def test_laid_out_after_it_was_extended(tmp_path, text):
    model = tiny("llama", num_hidden_layers=2)
    bare = logits(model, IDS)
    handle = extend(model, text)
    expected = logits(model, IDS)
    places = {**dict.fromkeys(PARTS, "cpu"), "model.layers.1": "disk"}
    accelerate.dispatch_model(model, places, main_device="cpu", offload_dir=tmp_path)
    assert torch.equal(logits(model, IDS), expected)
    handle.remove()
    assert torch.equal(logits(model, IDS), bare)


def test_layers_that_choose_their_keys_are_laid_out_like_any_other(tmp_path):
    """Their indexers rotate by themselves, wherever cos and sin were moved to."""
    model = small("deepseek_v32")
    with extended(model, "rerope:window=16"):
        expected = logits(model, IDS)
    names = [
        "model.embed_tokens",
        *(f"model.layers.{n}" for n in range(4)),
        "model.norm",
        "model.rotary_emb",
        "lm_head",
    ]
    places = {**dict.fromkeys(names, "cpu"), "model.layers.1": "disk"}
    accelerate.dispatch_model(model, places, main_device="cpu", offload_dir=tmp_path)
    with extended(model, "rerope:window=16"):
        assert torch.equal(logits(model, IDS), expected)


@pytest.mark.sampled(cases=3)
@pytest.mark.parametrize("text", ["yarn:factor=4", "rerope:window=8", "kerple"])
@pytest.mark.parametrize("places", MAPS.values(), ids=MAPS)
def test_saved_and_loaded_with_another_layout(tmp_path, whole, places, text):
    whole.save_pretrained(tmp_path / "plain")
    model = AutoModelForCausalLM.from_pretrained(
        tmp_path / "plain", device_map=places, offload_folder=str(tmp_path / "one")
    )
    with extended(model, text):
        expected = logits(model, IDS)
        save(model, tmp_path / "saved", target_len=128)
    again = load(tmp_path / "saved", device_map=places, offload_folder=str(tmp_path / "two"))
    torch.testing.assert_close(logits(again, IDS), expected, rtol=0, atol=1e-3)


@pytest.mark.parametrize(
    ("text", "target", "kind"),
    [
        ("rerope:window=8", "vllm", "plugin"),
        ("dynamic_yarn", "sglang", "frozen"),
        ("yarn:factor=4", "llama.cpp", "native"),
    ],
)
@pytest.mark.parametrize("places", [MAPS["a layer on disk"], MAPS["all on disk"]], ids=["a layer", "all"])
def test_exported_with_the_weights_that_are_on_disk(tmp_path, whole, places, text, target, kind):
    if target == "llama.cpp":
        pytest.importorskip("gguf")
    whole.save_pretrained(tmp_path / "plain")
    model = AutoModelForCausalLM.from_pretrained(
        tmp_path / "plain", device_map=places, offload_folder=str(tmp_path / "one")
    )
    with extended(model, text):
        assert export(model, tmp_path / "out", target=target, target_len=128).kind == kind
    if target == "llama.cpp":  # a GGUF file alone: that of the model in memory
        with extended(whole, text):
            export(whole, tmp_path / "whole", target=target, target_len=128)
        assert (tmp_path / "out" / "model.gguf").read_bytes() == (tmp_path / "whole" / "model.gguf").read_bytes()
        return
    written, expected = load_file(tmp_path / "out" / "model.safetensors"), whole.state_dict()
    assert all(torch.equal(value, expected[name]) for name, value in written.items())


def test_surgery_reads_the_weights_that_are_on_disk(tmp_path, whole):
    whole.save_pretrained(tmp_path / "plain")
    model = AutoModelForCausalLM.from_pretrained(
        tmp_path / "plain", device_map=MAPS["all on disk"], offload_folder=str(tmp_path / "one")
    )
    expected = logits(convert(whole, "gqa:kv_heads=1"), IDS)
    assert torch.equal(logits(convert(model, "gqa:kv_heads=1"), IDS), expected)


def test_a_model_without_numbers_is_refused(whole):
    with torch.device("meta"):
        empty = AutoModelForCausalLM.from_config(whole.config)
    with pytest.raises(DoesNotFit, match="on the device meta, which holds no numbers; load them first"):
        extend(empty, "yarn:factor=4")


def test_an_extended_model_may_be_cast_and_moved():
    model = tiny("llama", num_hidden_layers=2)
    bare = logits(model, IDS)
    extend(model, "yarn:factor=4")
    expected = logits(model, IDS)
    got = logits(model.to(torch.bfloat16).to("cpu"), IDS)
    assert got.dtype == torch.bfloat16
    assert (got - expected).square().mean().sqrt() < 0.1 * (bare - expected).square().mean().sqrt()


def test_measured_with_all_weights_on_disk(tmp_path, whole):
    """Tokens go where the model takes them, which is not where its first weight is."""
    whole.save_pretrained(tmp_path / "plain")
    model = AutoModelForCausalLM.from_pretrained(
        tmp_path / "plain", device_map=MAPS["all on disk"], offload_folder=str(tmp_path / "one")
    )
    subject = Subject(model=model, tokenizer=None, corpus="stdlib", longest=64)
    assert model.device.type == "meta"
    assert subject.device.type == "cpu"
    assert list(stream(model, IDS, max_new_tokens=2))
