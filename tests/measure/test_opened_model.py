"""A loaded model is the caller's: whatever happens in between, it has its extension, numbers and mode again."""

import contextlib

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import ropewalk as rw
from ropewalk.hf.attach.handle import handle_of
from ropewalk.hf.load_options import LoadOptions
from ropewalk.hf.runtime.layer import PREFIX
from ropewalk.measure.arguments import RunOptions
from ropewalk.measure.comparison.plan import in_precision
from ropewalk.measure.opened_model import open_folder, open_model


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
    with contextlib.suppress(KeyError), open_model(model) as host:
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
    with open_model(model) as host:
        assert host.tokenizer.get_vocab() == AutoTokenizer.from_pretrained(place / "model").get_vocab()
        assert host.subject("stdlib", 64) is host.subject("stdlib", 64)  # its texts are searched for once
    other = object()
    with open_model(model, RunOptions(tokenizer=other)) as host:
        assert host.tokenizer is other


def test_a_named_model_is_in_float32_and_ready(place):
    with open_model(place / "model", options=LoadOptions(device="cpu")) as host:
        assert host.model.dtype == torch.float32
        assert not host.model.training


def test_what_is_no_model_is_refused(place):
    with pytest.raises(rw.InvalidValue, match="a causal language model of transformers"), open_model(3):
        pass
    with pytest.raises(rw.Unreadable, match="an existing folder"), open_model(place / "nowhere"):
        pass


def test_a_named_model_that_memory_does_not_hold_is_refused(place, monkeypatch):
    monkeypatch.setattr("ropewalk.hf.loading.free_bytes", lambda: 1000)
    with pytest.raises(rw.DoesNotFit, match="memory must be"), open_model(place / "model", object()):
        pass


def test_a_folder_is_kept_where_one_is_named(tmp_path):
    with open_folder(tmp_path / "mine") as folder:
        assert folder == tmp_path / "mine"
    with open_folder(None) as folder:
        assert folder.is_dir()
    assert not folder.exists()


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
