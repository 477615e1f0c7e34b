"""A loaded model is the caller's: whatever happens in between, it has its extension, numbers and mode again."""

import contextlib

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import ropewalk as rw
from ropewalk.hf.attach.handle import handle_of
from ropewalk.hf.runtime.layer import PREFIX
from ropewalk.measure.loading import kept, opened


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
