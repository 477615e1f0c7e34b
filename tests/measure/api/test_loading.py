"""A loaded model is the caller's: whatever happens in between, it has its extension, numbers and mode again."""

import contextlib
import json

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import ropewalk as rw
from ropewalk.hf.attach.handle import handle_of
from ropewalk.hf.runtime.layer import PREFIX
from ropewalk.measure.api import loading
from ropewalk.measure.api.loading import kept, opened, weights_of
from ropewalk.measure.api.precision import in_precision
from ropewalk.placement import placing


@pytest.fixture
def model(place):
    return AutoModelForCausalLM.from_pretrained(place / "model")


def learned(model):
    return {name: value.detach().clone() for name, value in model.named_parameters() if PREFIX in name}


def test_an_extension_with_learned_numbers_is_there_again_after_an_error(model):
    rw.extend(model, "t5")
    for name, value in model.named_parameters():
        if PREFIX in name:
            torch.nn.init.normal_(value)
    before = learned(model)
    assert before
    model.train()
    with contextlib.suppress(KeyError), opened(model, None, "") as host:
        assert handle_of(host.model) is None
        assert not host.model.training
        assert host.trained_under.extension == rw.parse("t5")
        raise KeyError
    assert handle_of(model).extension == rw.parse("t5")
    assert model.training
    after = learned(model)
    assert after.keys() == before.keys()
    assert all(torch.equal(after[name], before[name]) for name in before)


def test_its_tokenizer_is_the_one_beside_its_weights_or_the_one_that_is_passed(model, place):
    with opened(model, None, "") as host:
        assert host.tokenizer.get_vocab() == AutoTokenizer.from_pretrained(place / "model").get_vocab()
    other = object()
    with opened(model, other, "") as host:
        assert host.tokenizer is other


def test_a_named_model_is_in_float32_and_ready(place):
    with opened(place / "model", None, "cpu") as host:
        assert host.model.dtype == torch.float32
        assert not host.model.training


def test_what_is_no_model_is_refused(place):
    with pytest.raises(rw.InvalidValue, match="a causal language model of transformers"), opened(3, None, ""):
        pass
    with pytest.raises(rw.Unreadable, match="an existing folder"), opened(place / "nowhere", None, ""):
        pass


def test_a_folder_is_kept_where_one_is_named(tmp_path):
    with kept(tmp_path / "mine") as folder:
        assert folder == tmp_path / "mine"
    with kept(None) as folder:
        assert folder.is_dir()
    assert not folder.exists()


LARGE = {
    "model_type": "llama",
    "hidden_size": 8192,
    "intermediate_size": 28672,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "num_hidden_layers": 80,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "dtype": "bfloat16",
}


def test_what_does_not_fit_in_memory_is_refused_before_it_is_loaded(tmp_path, monkeypatch):
    """70,553,706,496 numbers of two bytes, or of four."""
    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", lambda *_, **__: pytest.fail("loaded"))
    monkeypatch.setattr(loading, "free_bytes", lambda: 20 * 2**30)
    (tmp_path / "config.json").write_text(json.dumps(LARGE))
    for dtype, needed in {"": "131.4", "float32": "262.8"}.items():
        words = rf"memory must be at least {needed} GiB free, which the weights of .* need, got '20\.0 GiB'; choose"
        with placing(dtype), pytest.raises(rw.DoesNotFit, match=words):
            weights_of(str(tmp_path))
    with pytest.raises(rw.DoesNotFit, match=r"131\.4 GiB"), opened(tmp_path, object()):
        pass


@pytest.mark.parametrize("free", [2**40, 20 * 2**30])
def test_otherwise_it_is_loaded(tmp_path, monkeypatch, place, free):
    """Also where accelerate leaves a part of it to the disk."""
    asked = []

    def from_pretrained(*_, **how):
        asked.append(how)
        raise OSError("not here")

    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", from_pretrained)
    monkeypatch.setattr(loading, "free_bytes", lambda: free)
    (tmp_path / "config.json").write_text(json.dumps(LARGE))
    with placing(device="auto" if free < 2**40 else ""), pytest.raises(rw.errors.Unreadable):
        weights_of(str(tmp_path))
    assert asked


def test_the_weights_of_a_small_folder_are_not_counted(place, monkeypatch):
    monkeypatch.setattr("ropewalk.hf.use.stand_in.weight_bytes", lambda *_: pytest.fail("counted"))
    weights_of(str(place / "model"))


def test_a_folder_whose_weights_might_not_fit_is_counted(place, monkeypatch):
    size = (place / "model" / "model.safetensors").stat().st_size
    monkeypatch.setattr(loading, "free_bytes", lambda: 2 * size)  # it is in float32, and no larger when it is loaded
    assert weights_of(str(place / "model")).dtype == torch.float32
    monkeypatch.setattr(loading, "free_bytes", lambda: size // 2)
    with pytest.raises(rw.DoesNotFit, match="memory must be"):
        weights_of(str(place / "model"))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_another_precision_is_as_if_it_was_loaded_so(place, dtype):
    """Rotary tables keep float32, in which transformers computes angles."""
    expected = AutoModelForCausalLM.from_pretrained(place / "model", dtype=dtype)
    model = in_precision(AutoModelForCausalLM.from_pretrained(place / "model", dtype=torch.float32), dtype)
    ids = torch.arange(3, 90)[None]
    with torch.no_grad():
        assert torch.equal(model(ids).logits, expected(ids).logits)
    assert model.dtype == dtype
    assert {name: value.dtype for name, value in model.named_buffers()} == {
        name: value.dtype for name, value in expected.named_buffers()
    }
    assert "table" not in rw.inspect(model).own_schedule
