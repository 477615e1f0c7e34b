"""A revision reaches every file that is fetched, and means nothing for a folder."""

import pytest
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedConfig

from ropewalk.cli.main import run
from ropewalk.errors import InvalidValue, Unreadable
from ropewalk.hf.checkpoint.fetch import fetch_config, fetch_model, fetch_tokenizer
from ropewalk.models import DEFAULT
from ropewalk.revision import at_revision, wanted_revision


@pytest.fixture(autouse=True)
def offline(monkeypatch):
    """No test here waits for the hub, which is asked several times."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


FETCHED = {AutoConfig: fetch_config, AutoTokenizer: fetch_tokenizer, AutoModelForCausalLM: fetch_model}


@pytest.mark.parametrize("kind", FETCHED, ids=lambda kind: kind.__name__)
def test_it_is_passed_on(kind, monkeypatch):
    asked, told = [], []

    def values(name, **options):
        asked.append(options.get("revision"))
        return {}, options

    monkeypatch.setattr(PreTrainedConfig, "get_config_dict", values)  # a config's values are read before it is made
    monkeypatch.setattr(kind, "from_pretrained", lambda name, **options: told.append(options.get("revision")))
    with at_revision("v2"):
        FETCHED[kind]("somebody/model")
    asked_at = len(asked)
    FETCHED[kind]("somebody/model")
    assert told == ["v2", None]
    assert set(asked[:asked_at]) <= {"v2"}
    assert set(asked[asked_at:]) <= {None}
    assert asked or kind is AutoTokenizer
    assert wanted_revision() == ""


@pytest.mark.parametrize("fetch", FETCHED.values())
def test_a_folder_has_none(fetch):
    with at_revision("v2"), pytest.raises(InvalidValue, match=r"a revision \(v2\) is for a model on the hub"):
        fetch(DEFAULT)


def test_every_verb_has_the_option(capsys):
    assert run(["generate", "default", "--prompt", "x", "--revision", "v2"]) == 2
    assert "leave --revision out" in capsys.readouterr().err


def test_a_name_that_cannot_be_fetched_is_one_error():
    with at_revision("v2"), pytest.raises(Unreadable):
        fetch_config("nobody/nothing-of-this-name")
