"""How a model is loaded: one record reaches every file that is read, and what makes no sense is refused.

cli/test_loading_options has what the options do to every verb, hf/checkpoint/test_fetch what trust does.
"""

import copy
import json
from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedConfig

import ropewalk as rw
from ropewalk.errors import InvalidValue, UnknownName, Unreadable
from ropewalk.hf import loading
from ropewalk.hf.checkpoint.fetch import fetch_config, fetch_model, fetch_tokenizer
from ropewalk.hf.load_options import DTYPES, LoadOptions, require_named
from ropewalk.hf.loading import load_model, place_model
from ropewalk.hf.probe.facts import corrected_len, trained_len
from ropewalk.models import DEFAULT

from hf.models import tiny

AT_V2 = LoadOptions(revision="v2")
FETCHED = {AutoConfig: fetch_config, AutoTokenizer: fetch_tokenizer, AutoModelForCausalLM: fetch_model}


@pytest.fixture
def offline(monkeypatch):
    """The hub is asked several times, for which no test waits."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("model") / "small"
    tiny("llama", num_hidden_layers=1).save_pretrained(place)
    return str(place)


@pytest.mark.parametrize(
    ("stated", "remedy"),
    [
        ({"dtype": "float32"}, r"call model.to\(dtype\)"),
        ({"device": "cpu"}, r"call model.to\(device\)"),
        ({"revision": "v2"}, "leave revision out"),
        ({"trust_remote_code": True}, "leave trust_remote_code out"),
        ({"trained_len": 64}, "leave trained_len out"),
    ],
)
def test_a_loaded_model_has_none_of_it(stated, remedy):
    model, said = tiny("llama", num_hidden_layers=1), "for a model given by its name; this one is loaded already; "
    require_named(model, LoadOptions())
    require_named("default", LoadOptions(**stated))
    for refused in (
        lambda: require_named(model, LoadOptions(**stated)),
        lambda: rw.inspect(model, options=LoadOptions(**stated)),
        lambda: rw.compare(model, options=LoadOptions(**stated)),
    ):
        with pytest.raises(InvalidValue, match=f"^{next(iter(stated))} is {said}{remedy}$"):
            refused()


def test_an_unknown_dtype_is_refused_with_the_one_that_was_meant():
    with pytest.raises(UnknownName, match="there is no dtype 'bflaot16'; did you mean 'bfloat16'"):
        LoadOptions(dtype="bflaot16")
    assert DTYPES == ("auto", "float32", "bfloat16", "float16")


@pytest.mark.parametrize("kind", FETCHED, ids=lambda kind: kind.__name__)
def test_a_revision_is_passed_on(kind, monkeypatch, offline):
    asked, told = [], []

    def values(name, **options):
        asked.append(options.get("revision"))
        return {}, options

    monkeypatch.setattr(PreTrainedConfig, "get_config_dict", values)  # a config's values are read before it is made
    monkeypatch.setattr(kind, "from_pretrained", lambda name, **options: told.append(options.get("revision")))
    FETCHED[kind]("somebody/model", AT_V2)
    asked_at = len(asked)
    FETCHED[kind]("somebody/model")
    assert told == ["v2", None]
    assert set(asked[:asked_at]) <= {"v2"}
    assert set(asked[asked_at:]) <= {None}
    assert asked or kind is AutoTokenizer


@pytest.mark.parametrize("fetch", FETCHED.values())
def test_a_folder_has_no_revisions(fetch):
    with pytest.raises(InvalidValue, match=r"a revision \(v2\) is for a model on the hub"):
        fetch(DEFAULT, AT_V2)


def test_a_name_that_cannot_be_fetched_is_one_error(offline):
    with pytest.raises(Unreadable):
        fetch_config("nobody/nothing-of-this-name", AT_V2)


def test_a_stated_trained_length_is_the_models_and_its_copies_and_is_not_saved(folder, tmp_path):
    model = load_model(folder, LoadOptions(trained_len=64))
    assert trained_len(model) == corrected_len(model) == 64
    assert trained_len(copy.deepcopy(model)) == 64
    assert rw.inspect(model).facts.trained_len == 64
    known = model.config.max_position_embeddings
    assert known != 64
    model.save_pretrained(tmp_path)
    written = json.loads((tmp_path / "config.json").read_text())
    assert written == json.loads(Path(folder, "config.json").read_text())
    again = rw.load(tmp_path)
    assert (corrected_len(again), trained_len(again)) == (None, known)


def test_every_reading_by_name_takes_a_stated_trained_length(folder):
    options = LoadOptions(trained_len=64)
    assert trained_len(rw.load(folder, options=options)) == trained_len(fetch_model(folder, options)) == 64
    assert rw.inspect(folder, options=options).facts.trained_len == 64  # from the config alone
    assert rw.inspect(folder, options=LoadOptions("float32", trained_len=64)).facts.trained_len == 64
    assert rw.check(folder, options=options).trained_len == 64
    with pytest.raises(InvalidValue, match="trained_len must be"):
        rw.load(folder, options=LoadOptions(trained_len=0))


def test_a_stated_trained_length_is_in_force_when_a_saved_extension_is_put_on(folder, tmp_path):
    model = rw.load(folder)
    rw.extend(model, "rerope:window=8")
    rw.save(model, tmp_path / "saved")
    loaded = rw.load(tmp_path / "saved", options=LoadOptions(trained_len=64))
    assert rw.inspect(loaded).facts.trained_len == 64


def test_a_model_is_placed_in_the_precision_that_is_asked_for(folder):
    small = rw.load(folder, dtype="bfloat16")
    small.train()
    assert place_model(small, LoadOptions(device="cpu"), small_in_float32=False).dtype == torch.bfloat16
    assert place_model(small, LoadOptions("bfloat16", "cpu")).dtype == torch.bfloat16
    placed = place_model(small, LoadOptions(device="cpu"))
    assert placed.dtype == torch.float32
    assert not placed.training
    with pytest.raises(InvalidValue, match="device must be an available device, got 'cuda:99'"):
        rw.load(folder, options=LoadOptions(device="cuda:99"))


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
    for dtype, needed in {"auto": "131.4", "float32": "262.8"}.items():
        words = rf"memory must be at least {needed} GiB free, which the weights of .* need, got '20\.0 GiB'; choose"
        with pytest.raises(rw.DoesNotFit, match=words):
            load_model(str(tmp_path), LoadOptions(dtype))


@pytest.mark.parametrize("free", [2**40, 20 * 2**30])
def test_otherwise_it_is_loaded(tmp_path, monkeypatch, free):
    """Also where accelerate leaves a part of it to the disk."""
    asked = []

    def from_pretrained(*_, **how):
        asked.append(how)
        raise OSError("not here")

    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", from_pretrained)
    monkeypatch.setattr(loading, "free_bytes", lambda: free)
    (tmp_path / "config.json").write_text(json.dumps(LARGE))
    with pytest.raises(Unreadable):
        load_model(str(tmp_path), LoadOptions(device="auto" if free < 2**40 else ""))
    assert asked


def test_the_weights_of_a_small_folder_are_not_counted(folder, monkeypatch):
    monkeypatch.setattr("ropewalk.hf.use.stand_in.weight_bytes", lambda *_: pytest.fail("counted"))
    load_model(folder)


def test_a_folder_whose_weights_might_not_fit_is_counted(folder, monkeypatch):
    size = Path(folder, "model.safetensors").stat().st_size
    monkeypatch.setattr(loading, "free_bytes", lambda: 2 * size)  # it is in float32, and no larger when it is loaded
    assert load_model(folder).dtype == torch.float32
    monkeypatch.setattr(loading, "free_bytes", lambda: size // 2)
    with pytest.raises(rw.DoesNotFit, match="memory must be"):
        load_model(folder)
