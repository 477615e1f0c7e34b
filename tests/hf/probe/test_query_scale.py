"""Models that scale the rows of their queries themselves do not take the same scale a second time."""

import pytest
import torch

from ropewalk import DoesNotFit, Extension, extended, inspect, parse

from hf.models import tiny

IDS = torch.randint(3, 97, (1, 60), generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize(
    ("name", "line", "setting"),
    [
        ("ministral3", "llama4_temperature", "llama_4_scaling_beta"),
        ("ministral3", "llama4_temperature:beta=0.3,first=1+log_n", "llama_4_scaling_beta"),
        ("llama4_text", "llama4_temperature", "attn_temperature_tuning"),
        ("llama4_text", "irope", "attn_temperature_tuning"),
    ],
)
def test_its_own_scale_is_refused_a_second_time(name, line, setting):
    sentence = rf"the model has llama4_temperature of its own \({setting} in its config\), which would count twice"
    own = {"attn_temperature_tuning": True} if name == "llama4_text" else {}
    with pytest.raises(DoesNotFit, match=sentence), extended(tiny(name, **own), line):
        pass


def test_inspect_says_so():
    said = {method.name: method.why_not for method in inspect(tiny("ministral3"), target_len=512).methods}
    assert "which would count twice" in said["ministral3"]
    assert said["by_parts"] == ""


def test_one_layer_is_enough():
    layers, model = {3: parse("llama4_temperature")}, tiny("llama4_text", attn_temperature_tuning=True)
    with pytest.raises(DoesNotFit, match="count twice"), extended(model, Extension(layers=layers)):
        pass


def test_layers_of_the_same_model_that_do_not_scale_take_it():
    """Llama 4 scales in its layers without rotation, every fourth."""
    model = tiny("llama4_text", attn_temperature_tuning=True)
    with extended(model, Extension(layers={0: parse("llama4_temperature")})):
        pass


def test_without_its_own_scale_the_model_takes_ours_and_gives_the_same_answers():
    """Llama 4's own code in its layers without rotation, and ours in its place."""
    theirs, ours = (
        tiny("llama4_text", floor_scale=6, attn_scale=0.4, attn_temperature_tuning=on) for on in (True, False)
    )
    place = Extension(layers={3: parse("llama4_temperature:beta=0.4,length=6,first=1")})
    with torch.no_grad():
        expected, without = theirs(IDS, use_cache=False).logits, ours(IDS, use_cache=False).logits
        with extended(ours, place):
            got = ours(IDS, use_cache=False).logits
    assert (without - expected).abs().max() > 1e-3
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)
