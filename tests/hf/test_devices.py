"""Models that accelerate has laid out over devices and disk: extended like any other, before or after."""

import pytest
import torch
from hf.models import tiny
from hf.traces import logits, trace
from transformers import AutoModelForCausalLM

from ropewalk.hf import extend, extended, score

accelerate = pytest.importorskip("accelerate")

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
