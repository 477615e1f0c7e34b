"""A model that was trained under an extension: taken off, put on again, and under others, with what it has learned."""

import pytest
import torch

from ropewalk import Extension, extended, load, parse
from ropewalk.hf.attach.extend import extend
from ropewalk.hf.attach.handle import handle_of
from ropewalk.hf.attach.trained_extension import TrainedExtension, take_off

from hf.models import tiny
from hf.traces import logits

IDS = torch.randint(3, 97, (1, 60), generator=torch.Generator().manual_seed(5))
TRAINED_UNDER = ["hwfa_rerope:window=8,rerope_window=16,layers=4", "kerple", "yarn:factor=2", "log_n+window:window=9"]


def trained(line):
    """A model whose extension has learned something."""
    model = tiny("llama")
    extend(model, line)
    for number, (name, value) in enumerate(model.named_parameters()):
        if "ropewalk_" in name:
            value.data += 0.1 + number / 1000
    return model


@pytest.mark.sampled(cases=2)
@pytest.mark.parametrize("line", TRAINED_UNDER)
def test_what_is_taken_off_is_put_on_again(line):
    model = trained(line)
    expected = logits(model, IDS)
    bare = logits(tiny("llama"), IDS)
    own = take_off(model)
    assert own.extension == parse(line)
    assert torch.equal(logits(model, IDS), bare)
    with own.under(model, Extension()) as handle:
        assert handle.extension == parse(line)
        assert torch.equal(logits(model, IDS), expected)
    assert torch.equal(logits(model, IDS), bare)


def test_a_loaded_model_is_as_it_was_saved(tmp_path):
    model = trained("kerple")
    model.save_pretrained(tmp_path)
    again = load(tmp_path)
    own = take_off(again)
    with own.under(again, Extension()):
        torch.testing.assert_close(logits(again, IDS), logits(model, IDS))


def test_a_line_keeps_what_it_does_not_say_and_what_that_has_learned():
    model = trained("kerple")
    learned = {name: value.clone() for name, value in model.named_parameters() if "ropewalk_" in name}
    own = take_off(model)
    with own.under(model, parse("window:window=9")) as handle:
        assert handle.extension == parse("kerple+window:window=9")
        assert {name for name, _ in model.named_parameters() if "ropewalk_" in name} == set(learned)
        assert all(torch.equal(model.get_parameter(name), value) for name, value in learned.items())
        got = logits(model, IDS)
    with extended(tiny("llama"), "kerple+window:window=9") as fresh:
        assert not torch.allclose(logits(fresh.model, IDS), got, atol=1e-3)  # whose slopes have learned nothing


def test_a_model_without_one_is_as_it_was():
    model = tiny("llama")
    assert take_off(model) == TrainedExtension()
    with TrainedExtension().under(model, parse("yarn:factor=2")):
        got = logits(model, IDS)
    with extended(model, "yarn:factor=2"):
        assert torch.equal(logits(model, IDS), got)
    assert handle_of(model) is None
