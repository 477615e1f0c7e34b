"""What a link in a model's folder brings in from elsewhere is written by no verb, however the link is made."""

import os
import shutil
import socket
from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

import ropewalk as rw
from ropewalk import Unreadable
from ropewalk.cli.main import run
from ropewalk.engines.targets import TARGETS
from ropewalk.hf.checkpoint.own_files import _open, _own, copy_own
from ropewalk.hf.checkpoint.sidecar import copy_papers
from ropewalk.train.recipes.building_blocks import checkpoint, keep

from hf.models import tiny

pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")  # of peft
SECRET = '{"key": "PRIVATE"}'
DEFAULT = Path(rw.__file__).parent / "models" / "default"


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    place = tmp_path_factory.mktemp("made") / "model"
    tiny("llama", num_hidden_layers=1, vocab_size=2048).save_pretrained(place)
    AutoTokenizer.from_pretrained(DEFAULT).save_pretrained(place)
    return place


@pytest.fixture
def loaded(own, tmp_path):
    """A folder of a model with nothing wrong, and what is loaded from it; the secret is beside the folder."""
    place = tmp_path / "model"
    shutil.copytree(own, place)
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "secret").write_text(SECRET)
    (tmp_path / "private" / "secret").chmod(0o600)
    return place, AutoModelForCausalLM.from_pretrained(place), AutoTokenizer.from_pretrained(place)


def link_to(name, target="../private/secret"):
    def make(place):
        (place / name).parent.mkdir(exist_ok=True)
        (place / name).unlink(missing_ok=True)
        (place / name).symlink_to(target)

    return make


def absolute(place):
    (place / "LICENSE").symlink_to((place / "../private/secret").resolve())


def link_to_a_link(place):
    (place / "first").symlink_to("../private/secret")
    (place / "NOTICE").symlink_to("first")


def through_a_linked_folder(place):
    (place / "texts").symlink_to("../private")
    (place / "LICENSE").symlink_to("texts/secret")


def round_about(place):
    (place / "docs").mkdir()
    (place / "README.md").symlink_to("docs/../../private/secret")


LINKS = {
    "relative": link_to("LICENSE"),
    "absolute": absolute,
    "to a link": link_to_a_link,
    "through a linked folder": through_a_linked_folder,
    "round about": round_about,
    "to nothing": link_to("LICENSE", "../private/nothing"),
    "chat template": link_to("chat_template.jinja"),
    "more templates": link_to("additional_chat_templates/tools.jinja", "../../private/secret"),
    "folder of templates": link_to("additional_chat_templates", "../private"),
    "generation config": link_to("generation_config.json"),
    "tokenizer": link_to("tokenizer.json"),
    "own code": link_to("modeling_own.py"),
}


def _extended(write, line="yarn:factor=4"):
    def verb(model, tokenizer, out):
        with rw.extended(model, line):
            write(model, tokenizer, out)

    return verb


def _save(model, tokenizer, out):
    rw.save(model, out, tokenizer=tokenizer)


def _adapter(model, tokenizer, out):
    from peft import LoraConfig, get_peft_model

    with rw.extended(model, "yarn:factor=4"):
        adapted = get_peft_model(model, LoraConfig(target_modules="all-linear"))
        try:
            rw.save(adapted, out, tokenizer=tokenizer)
        finally:
            adapted.unload()


def _export(target, **options):
    return lambda model, tokenizer, out: rw.export(model, out, target=target, tokenizer=tokenizer, **options)


VERBS = {
    "save": _extended(_save),
    "save beside a sidecar": _extended(_save, "rerope:window=8"),
    "save of an adapter": _adapter,
    "train, at its end": keep,
    "train, at its beginning": lambda model, tokenizer, out: checkpoint(model.name_or_path, out),
    "export with the plugin": _extended(_export("vllm", plugin=True)),
    **{f"export for {name}": _extended(_export(name)) for name, target in TARGETS.items() if target.folder},
}


@pytest.mark.sampled(cases=3)
@pytest.mark.parametrize("verb", VERBS)
def test_nothing_from_elsewhere_is_written(loaded, own, tmp_path, verb):
    place, model, tokenizer = loaded
    for kind, make in LINKS.items():
        make(place)
        said = ""
        try:
            VERBS[verb](model, tokenizer, tmp_path / "out")
        except Unreadable as refused:
            said = str(refused)
        assert "is a link to" in said, kind
        assert "outside the model's folder" in said, kind
        assert "put the file itself in its place" in said, kind
        assert not (tmp_path / "out").exists(), kind
        shutil.rmtree(place)
        shutil.copytree(own, place)


@pytest.mark.sampled(cases=6)
@pytest.mark.parametrize("verb", VERBS)
def test_what_belongs_to_the_folder_is_written(loaded, tmp_path, verb):
    """Links within the folder, weights on another disk, and folders that nothing is read from."""
    place, model, tokenizer = loaded
    (place / "texts").mkdir()
    (place / "texts" / "licence").write_text("free")
    (place / "LICENSE").symlink_to("texts/licence")
    (place / "model.safetensors").rename(tmp_path / "weights")
    (place / "model.safetensors").symlink_to(tmp_path / "weights")
    (place / "runs").symlink_to(tmp_path / "private")
    VERBS[verb](model, tokenizer, tmp_path / "out")
    written = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert not any(b"PRIVATE" in path.read_bytes() or path.is_symlink() for path in written)
    if verb.startswith("export"):
        assert (tmp_path / "out" / "LICENSE").read_text() == "free"


@pytest.mark.parametrize("common", [False, True])
def test_a_snapshot_of_the_hub_is_links_to_its_blobs(own, tmp_path, common):
    """In some caches the blobs are links themselves, to blobs that all models share."""
    repository = tmp_path / "hub" / "models--owner--name"
    snapshot, blobs = repository / "snapshots" / "abc", repository / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    shutil.copytree(own, tmp_path / "there")
    (tmp_path / "there" / "LICENSE").write_text("free")
    for number, path in enumerate(sorted((tmp_path / "there").iterdir())):
        if common:
            (tmp_path / "hub" / "blobs" / "ab").mkdir(parents=True, exist_ok=True)
            path.rename(tmp_path / "hub" / "blobs" / "ab" / str(number))
            (blobs / str(number)).symlink_to(f"../../blobs/ab/{number}")
        else:
            path.rename(blobs / str(number))
        (snapshot / path.name).symlink_to(f"../../blobs/{number}")
    model, tokenizer = AutoModelForCausalLM.from_pretrained(snapshot), AutoTokenizer.from_pretrained(snapshot)
    VERBS["export for vllm"](model, tokenizer, tmp_path / "out")
    assert (tmp_path / "out" / "LICENSE").read_text() == "free"
    (snapshot / "NOTICE").symlink_to("../../../../private")
    with pytest.raises(Unreadable, match="is a link to"):
        VERBS["export for vllm"](model, tokenizer, tmp_path / "other")


def test_a_folder_that_is_called_like_a_snapshot_gets_no_more(tmp_path):
    fake = tmp_path / "models--owner--name" / "snapshots" / "abc"
    fake.mkdir(parents=True)
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "secret").write_text(SECRET)
    (fake.parent.parent / "blobs").symlink_to(tmp_path / "private")
    (fake / "LICENSE").symlink_to("../../blobs/secret")
    with pytest.raises(Unreadable, match="is a link to"):
        copy_own(fake / "LICENSE", tmp_path / "copy")


@pytest.mark.parametrize("what", ["pipe", "socket", "link to a pipe"])
def test_what_is_not_a_plain_file_is_not_opened(loaded, tmp_path, what, monkeypatch):
    """Opening a pipe would wait for ever."""
    place, model, _ = loaded
    if what == "socket":
        monkeypatch.chdir(place)  # the path of a socket is short
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind("LICENSE")
    else:
        os.mkfifo(place / ("pipe" if what == "link to a pipe" else "LICENSE"))
    if what == "link to a pipe":
        (place / "LICENSE").symlink_to("pipe")
    (tmp_path / "out").mkdir()
    with pytest.raises(Unreadable, match="is not a plain file"):
        copy_papers(model, tmp_path / "out")


@pytest.mark.parametrize("exchanged", ["file", "folder"])
def test_a_link_that_is_put_in_place_after_the_check_is_not_followed(loaded, tmp_path, exchanged):
    place, *_ = loaded
    (place / "texts").mkdir()
    (place / "texts" / "secret").write_text("free")
    checked = _own(place / "texts" / "secret")
    if exchanged == "file":
        (place / "texts" / "secret").unlink()
        (place / "texts" / "secret").symlink_to(tmp_path / "private" / "secret")
    else:
        (place / "texts").rename(place / "old")
        (place / "texts").symlink_to(tmp_path / "private")
    with pytest.raises((OSError, Unreadable)), _open(checked) as file:
        file.read()


@pytest.mark.sampled(cases=2)
@pytest.mark.parametrize(
    "line",
    [
        "export {model} yarn --to 128 --target vllm -o {out}",
        "export {model} yarn --to 128 --target llama.cpp -o {out}",
        "extend {model} yarn --to 128 -o {out}",
        "fit {model} --to 128 --save -o {out}",
        "train uptrain_gqa --set kv_heads=1 --set steps=1 --set model={model} -o {out}",
    ],
)
def test_every_verb_says_so_before_the_work_begins(loaded, tmp_path, line, capsys, monkeypatch):
    place, *_ = loaded
    LINKS["relative"](place)
    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", None)
    assert run(line.format(model=place, out=tmp_path / "out").split()) == 2
    assert f"{place}/LICENSE is a link to" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
