"""Uploading a model to a hub, which is one on this machine: what arrives, what the card says, and what is refused."""

import json
import shlex
import tempfile
from inspect import getdoc
from pathlib import Path
from textwrap import dedent

import peft
import pytest
import torch
from huggingface_hub import constants
from huggingface_hub.repocard import ModelCard
from transformers import AutoModelForCausalLM, AutoTokenizer

import ropewalk as rw
from ropewalk import InvalidValue
from ropewalk.cli.main import run
from ropewalk.hf.checkpoint.fetch import fetch_tokenizer
from ropewalk.models import DEFAULT

from hf.local_hub import asked, refusing, taking_uploads
from hf.models import tiny
from hf.traces import logits

pytestmark = [
    pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning"),  # huggingface_hub's, of httpx
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning"),  # of peft
]

IDS = torch.arange(3, 60)[None]
REROPE, YARN = "rerope:window=8+log_n", "yarn:factor=4"


@pytest.fixture
def hub(monkeypatch, tmp_path):
    with taking_uploads() as hub:
        (tmp_path / "tmp").mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
        asked(monkeypatch, hub.url, tmp_path / "cache")
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setenv("HF_TOKEN", hub.token)
        yield hub
        assert not list((tmp_path / "tmp").iterdir())


def extended(line, name_or_path=""):
    model = tiny("llama", num_hidden_layers=1)
    model.name_or_path = name_or_path
    rw.extend(model, line)
    return model


def card_of(hub, name="owner/name"):
    return ModelCard(hub.files[name]["README.md"].decode())


@pytest.mark.parametrize("line", [YARN, REROPE, "kerple"])
def test_what_is_loaded_from_the_hub_is_what_was_uploaded(hub, tmp_path, line):
    model, tokenizer = extended(line), AutoTokenizer.from_pretrained(DEFAULT)
    assert rw.push_to_hub(model, "owner/name", tokenizer=tokenizer) == f"{hub.url}/owner/name"
    rw.save(model, tmp_path / "saved", tokenizer=tokenizer)
    saved = {path.name: path.read_bytes() for path in (tmp_path / "saved").iterdir()}
    assert {name: content for name, content in hub.files["owner/name"].items() if name != "README.md"} == saved
    again = rw.load("owner/name")
    assert torch.equal(logits(again, IDS), logits(rw.load(tmp_path / "saved"), IDS))
    torch.testing.assert_close(logits(again, IDS), logits(model, IDS))
    assert again.name_or_path == "owner/name"
    assert fetch_tokenizer("owner/name")("a word") == tokenizer("a word")


def test_a_folder_shows_what_would_be_uploaded_and_nothing_is_sent(hub, tmp_path, monkeypatch):
    model, tokenizer = extended(REROPE), AutoTokenizer.from_pretrained(DEFAULT)
    monkeypatch.delenv("HF_TOKEN")
    folder = rw.push_to_hub(model, "owner/name", tokenizer=tokenizer, folder=tmp_path / "first")
    assert (folder, hub.files) == (str(tmp_path / "first"), {})
    monkeypatch.setenv("HF_TOKEN", hub.token)
    rw.push_to_hub(model, "owner/name", tokenizer=tokenizer)
    assert {path.name: path.read_bytes() for path in (tmp_path / "first").iterdir()} == hub.files["owner/name"]


def test_a_revision_of_an_extended_model(hub):
    rw.push_to_hub(extended(REROPE), "owner/name")
    again = rw.load("owner/name", options=rw.LoadOptions(revision="main"))
    assert torch.equal(logits(again, IDS), logits(rw.load("owner/name", revision="main"), IDS))


@pytest.mark.parametrize("line", [YARN, REROPE])
def test_what_was_loaded_once_needs_no_network(hub, monkeypatch, tmp_path, line):
    rw.push_to_hub(extended(line), "owner/name")
    expected = logits(rw.load("owner/name"), IDS)
    assert torch.equal(logits(rw.load("owner/name", local_files_only=True), IDS), expected)
    with refusing() as address:
        asked(monkeypatch, address, tmp_path / "cache")
        assert torch.equal(logits(rw.load("owner/name"), IDS), expected)


def test_the_example_of_the_docstring(hub):
    model, tokenizer = tiny("llama", num_hidden_layers=1), AutoTokenizer.from_pretrained(DEFAULT)
    example = next(one for one in getdoc(rw.push_to_hub).split("\n\n") if one.startswith("    "))
    exec(dedent(example), {"rw": rw, "model": model, "tokenizer": tokenizer})
    assert hub.commits == [("owner/name", "Upload a model with its extension by ropewalk.push_to_hub")]


def test_a_card_whose_config_says_all(hub):
    rw.push_to_hub(extended("yarn:factor=4", "someone/base"), "owner/name")
    card = card_of(hub)
    head = card.data.to_dict()
    assert head == {"base_model": "someone/base", "library_name": "transformers", "tags": ["ropewalk", "long-context"]}
    assert "Trained length: 32 tokens" in card.text
    assert "Target length: 128 tokens" in card.text
    line = card.text.partition("- Extension: `")[2].partition("`")[0]
    assert rw.parse(line) == rw.parse(YARN)
    names = {}
    for block in card.text.split("```python\n")[1:]:
        exec(block.partition("```")[0], names)
        assert isinstance(names.pop("model"), type(tiny("llama")))
    assert names["AutoModelForCausalLM"] is AutoModelForCausalLM
    assert "Nothing was measured for this card" in card.text
    assert f"ropewalk compare someone/base {line} --to 128\n" in card.text


def test_a_card_of_an_extension_that_only_ropewalk_loads(hub):
    rw.push_to_hub(extended(REROPE, "/home/somebody/base"), "owner/name", target_len=96)
    text = card_of(hub).text
    assert "Only Ropewalk loads it" in text
    assert not any(name in text for name in ("AutoModel", "trust_remote_code"))
    assert "Target length: 96 tokens" in text
    assert not any(b"somebody" in content for content in hub.files["owner/name"].values())


def test_the_licence_is_that_of_the_base_models_card_or_none(hub, tmp_path):
    hub.files["someone/base"] = {"README.md": b"---\nlicense: other\nlicense_name: a-name\ntags: [a]\n---\n"}
    hub.private["someone/base"] = False
    rw.push_to_hub(extended(YARN), "owner/one", base_model="someone/base")
    head = card_of(hub, "owner/one").data.to_dict()
    assert (head["base_model"], head["license"], head["license_name"]) == ("someone/base", "other", "a-name")
    (tmp_path / "README.md").write_text("---\nlicense: mit\n---\n")
    rw.push_to_hub(extended(YARN, str(tmp_path)), "owner/two")
    assert card_of(hub, "owner/two").data.to_dict()["license"] == "mit"
    (tmp_path / "README.md").write_text("Under the license of mit.\n")
    rw.push_to_hub(extended(YARN, str(tmp_path)), "owner/three")
    assert "license" not in card_of(hub, "owner/three").data.to_dict()


@pytest.mark.nightly
def test_figures_of_a_comparison(hub, tmp_path, capsys):
    compared = rw.compare("default", [YARN], lengths=[640], samples=2, tasks="passkey:filler=grass")
    model = rw.load("default")
    rw.extend(model, YARN)
    rw.push_to_hub(model, "owner/name", comparison=compared)
    text, found = card_of(hub).text, compared.to_dict()
    for cell in (*compared.table.head, *(cell for row in compared.table.rows for cell in row)):
        assert cell in text
    assert f"The row of this extension is `{YARN}`" in text
    assert all(mark in text for mark in found["made"]["texts"])
    assert f"torch {torch.__version__}" in text
    command = text.partition("```bash\n")[2].partition("\n")[0]
    assert run([*shlex.split(command)[1:], "-o", str(tmp_path / "out")]) == 0
    capsys.readouterr()
    again = json.loads((tmp_path / "out" / "results.json").read_text())
    for one, other in zip(again["candidates"], found["candidates"], strict=True):
        assert [row["numbers"] for row in one["rows"]] == [row["numbers"] for row in other["rows"]]
    with pytest.raises(InvalidValue, match=r"comparison must be a result of rw.compare, got 'dict'"):
        rw.push_to_hub(model, "owner/name", comparison=found)


def test_a_method_in_a_file(hub, tmp_path):
    """It is uploaded, and the card does not say where it lay."""
    guide = (Path(__file__).parents[3] / "CONTRIBUTING.md").read_text()
    (tmp_path / "my_methods.py").write_text(guide.partition("# my_methods.py\n")[2].partition("```")[0])
    model = extended(f"{tmp_path}/my_methods.py:Halfway:window=8")
    rw.push_to_hub(model, "owner/name")
    assert "- Extension: `./my_methods.py:Halfway:window=8`" in card_of(hub).text
    assert "rw.load('owner/name', trust_remote_code=True)" in card_of(hub).text
    assert not any(str(tmp_path).encode() in content for content in hub.files["owner/name"].values())
    assert torch.equal(logits(rw.load("owner/name", trust_remote_code=True), IDS), logits(model, IDS))


@pytest.mark.filterwarnings("ignore:Could not find a config file:UserWarning")  # of peft, which is offline here
def test_an_adapter_names_its_base_model_on_the_hub(hub, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")  # for peft, which would ask another hub whether the base model is there
    tiny("llama", num_hidden_layers=1).save_pretrained(tmp_path / "base")
    hub.files["owner/base"] = {path.name: path.read_bytes() for path in (tmp_path / "base").iterdir()}
    hub.private["owner/base"] = False
    adapted = {}
    for base in ("owner/base", str(tmp_path / "base")):
        rw.extend(model := rw.load(base), REROPE)
        adapted[base] = peft.get_peft_model(model, peft.LoraConfig(target_modules=["q_proj"], init_lora_weights=False))
    with pytest.raises(
        InvalidValue, match=r"in a folder of this machine, .*base_model_name_or_path to the model's name"
    ):
        rw.push_to_hub(adapted[str(tmp_path / "base")], "owner/name")
    rw.push_to_hub(adapted["owner/base"], "owner/name")
    assert card_of(hub).data.to_dict()["base_model"] == "owner/base"
    assert torch.equal(logits(rw.load("owner/name"), IDS), logits(adapted["owner/base"], IDS))


def test_a_second_upload(hub):
    rw.push_to_hub(extended(REROPE), "owner/name")
    hub.files["owner/name"] |= {"README.md": b"---\ntags: [mine]\n---\n", "notes.txt": b"mine"}
    before = dict(hub.files["owner/name"])
    with pytest.raises(InvalidValue, match=r"owner/name has a README.md.*force=True"):
        rw.push_to_hub(extended(YARN), "owner/name")
    assert hub.files["owner/name"] == before
    rw.push_to_hub(extended(YARN), "owner/name", force=True)
    assert set(before) - set(hub.files["owner/name"]) == {"ropewalk.json", "ropewalk.safetensors"}
    assert hub.files["owner/name"]["notes.txt"] == b"mine"
    torch.testing.assert_close(logits(rw.load("owner/name"), IDS), logits(extended(YARN), IDS))


def test_private(hub):
    rw.push_to_hub(extended(YARN), "owner/name", private=True)
    assert hub.private["owner/name"]
    with pytest.raises(InvalidValue, match=r"private already, and private=False was asked for.*settings"):
        rw.push_to_hub(extended(YARN), "owner/name", private=False, force=True)


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("/api/repos/create", 401, "HTTP status 401: .*hf auth login"),
        ("/api/repos/create", 403, "HTTP status 403: .*may write there"),
        ("/api/repos/create", 409, "HTTP status 409: .*choose another name"),
        ("/owner/name.git", 500, "HTTP status 500: .*try again"),
        ("/api/models/owner/name/commit", 412, "HTTP status 412: .*meanwhile"),
    ],
)
def test_what_the_hub_refuses(hub, monkeypatch, path, status, said):
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", lambda _: None)
    hub.refused = {path: status}
    with pytest.raises(InvalidValue, match=f"^owner/name was not uploaded: {said}") as refused:
        rw.push_to_hub(extended(YARN), "owner/name")
    assert "\n" not in str(refused.value)
    assert not hub.commits
    assert hub.token not in str(refused.value)


def test_what_is_refused_before_anything_is_sent(hub, monkeypatch, tmp_path):
    with pytest.raises(InvalidValue, match=r"name must be that of a repository on the hub: owner/name, got 'name'"):
        rw.push_to_hub(extended(YARN), "name")
    with pytest.raises(InvalidValue, match=r"under an extension"):
        rw.push_to_hub(tiny("llama"), "owner/name")
    with pytest.raises(InvalidValue, match=r"rw.push_to_hub\(model, 'owner/name'\)"):
        extended(YARN).save_pretrained(tmp_path / "saved", push_to_hub=True)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "none"))
    monkeypatch.delenv("HF_TOKEN")
    with pytest.raises(InvalidValue, match=r"a token only, and there is none; hf auth login, set HF_TOKEN"):
        rw.push_to_hub(extended(YARN), "owner/name")
    with refusing() as address:
        asked(monkeypatch, address, Path(tmp_path))
        with pytest.raises(InvalidValue, match=r"does not answer.*owner/name cannot be uploaded; folder=PATH writes"):
            rw.push_to_hub(extended(YARN), "owner/name", token=hub.token)
    assert not hub.files
