"""FoPE is no rotation: a config that says it is refused by name, wherever its keys stand."""

import json

import pytest

import ropewalk as rw
from ropewalk import DoesNotFit
from ropewalk.hf.checkpoint.fetch import fetch_config

from hf.models import tiny

ENGINES = ("vllm", "sglang", "lmdeploy", "transformers", "llama.cpp", "mlx", "exllamav3", "ollama")
# As Intern-S1-Pro states it, as vLLM's own model passes it on, and each key alone.
STATED = {
    "fope_init_factor": {"fope_init_factor": 0.5, "fope_sep_head": True, "num_inv_freq": None},
    "use_fope": {"use_fope": True},
    "fope_sep_head": {"fope_sep_head": False},
    "num_inv_freq": {"num_inv_freq": 3},
    "rope_type": {"rope_type": "fope"},
}
SENTENCE = r"FoPE \(Fourier Position Embedding; {} in its config\): its cos and sin are mixed by learned matrices, "
REMEDY = "serve it unchanged: vLLM, SGLang and LMDeploy have code of their own"


def written(folder, *, within="", key="rope_parameters", model_type="llama", **parameters):
    """The config of a tiny llama with more rope parameters: in the whole, or in a part of it."""
    values = tiny("llama").config.to_dict()
    values |= {key: {**values.pop("rope_parameters"), **parameters}, "architectures": ["LlamaForCausalLM"]}
    values = {"text_config": values} if within else values
    (folder / "config.json").write_text(json.dumps({**values, "model_type": model_type}))
    return folder


@pytest.mark.parametrize("key", STATED)
def test_what_reads_a_config_refuses_it(tmp_path, key):
    place = written(tmp_path, **STATED[key])
    for ask in (rw.inspect, rw.check, fetch_config):
        with pytest.raises(DoesNotFit, match=SENTENCE.format(key)) as refused:
            ask(str(place))
        assert REMEDY in str(refused.value)


@pytest.mark.parametrize("engine", ENGINES)
def test_check_refuses_it_for_every_engine(tmp_path, engine):
    with pytest.raises(DoesNotFit, match="not a rotation"):
        rw.check(str(written(tmp_path, fope_sep_head=True)), engine=engine)


@pytest.mark.parametrize("key", STATED)
def test_a_loaded_model_is_refused_too(key):
    model = tiny("llama")
    model.config.rope_parameters |= STATED[key]
    for ask in (rw.inspect, lambda model: rw.extend(model, "yarn:factor=4"), lambda model: rw.check(model.config)):
        with pytest.raises(DoesNotFit, match=SENTENCE.format(key)):
            ask(model)


def test_it_is_named_where_only_its_own_code_could_read_the_config(tmp_path):
    """Intern-S1-Pro: a type that transformers does not have, with the parameters in its language model."""
    stated = STATED["fope_init_factor"]
    place = written(tmp_path, within="text_config", key="rope_scaling", model_type="interns1_pro", **stated)
    with pytest.raises(DoesNotFit, match=SENTENCE.format("fope_init_factor")):
        rw.inspect(str(place))


def test_one_type_of_layer_is_enough():
    model = tiny("gemma3_text")
    model.config.rope_parameters["full_attention"]["use_fope"] = True
    with pytest.raises(DoesNotFit, match=SENTENCE.format("use_fope")):
        rw.extend(model, "yarn:factor=4")


def test_keys_that_are_empty_say_nothing(tmp_path):
    empty = {"fope_init_factor": None, "fope_sep_head": None, "num_inv_freq": None, "use_fope": False}
    assert rw.inspect(str(written(tmp_path, **empty))).facts.trained_len == tiny("llama").config.max_position_embeddings
    assert rw.check(str(tmp_path), engine="transformers").verdict == "same"
