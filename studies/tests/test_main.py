"""`python -m studies`: settings and refusals; what a signal finds half saved becomes whole, and nothing else begins."""

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import ropewalk as rw
from ropewalk.errors import Conflict
from ropewalk.train.checkpoints import last_checkpoint
from ropewalk.train.recipes.recipe import run
from ropewalk.train.small_models import ModelShape, new_small_model

from studies import __main__ as module
from train.signals import heard, sending, trainings
from train.texts import folder_of, tokenizer

SHAPE = {"vocabulary": 300, "width": 32, "inner": 48, "layers": 2, "heads": 2, "trained_len": 32}
SETTINGS = {
    "zoo": {**SHAPE, "methods": "hwfa,rope", "texts": 2, "seeds": 2},
    "tuned": {"methods": "pi,yarn", "texts": 2, "passkeys": 1, "seeds": 2},
}


def command(name, tmp_path):
    new_small_model(ModelShape(**SHAPE), end=tokenizer().eos_token_id).save_pretrained(tmp_path / "base")
    tokenizer().save_pretrained(tmp_path / "base")
    corpus = folder_of(tmp_path / "texts", count=240, words=300)
    from_a_model = {"model": tmp_path / "base"} if name == "tuned" else {}
    values = {"corpus": corpus, "steps": 2, "rows": 2, "progress": "false", **from_a_model, **SETTINGS[name]}
    parts = [part for key, value in values.items() for part in ("--set", f"{key}={value}")]
    return [name, "--out", str(tmp_path / "out"), *parts]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("moment", ["checkpoint", "model"])
@pytest.mark.parametrize("name", module.HOMES)
def test_what_is_being_saved_is_saved_and_nothing_else_begins(name, moment, tmp_path, monkeypatch, capsys):
    number = signal.SIGINT if moment == "model" else signal.SIGTERM
    asked = command(name, tmp_path)
    begun, sent = trainings(monkeypatch), sending(number, monkeypatch, moment)
    with heard():
        assert module.main(asked) == 130
    assert sent == [number]
    assert len(begun) == 1
    assert "the same command resumes" in capsys.readouterr().err
    place = next((tmp_path / "out" / "models").iterdir())
    assert last_checkpoint(place) is not None
    rw.load(place / "model")
    assert not list((tmp_path / "out" / "measured").glob(f"{place.name}*"))


def test_a_signal_before_the_first_step(tmp_path, monkeypatch, capsys):
    ours = module.study("zoo")._replace(run=lambda *_, **__: os.kill(os.getpid(), signal.SIGTERM))
    monkeypatch.setattr(module, "study", lambda name: ours)
    with heard():
        assert module.main(["zoo", "--out", str(tmp_path / "out")]) == 130
    assert capsys.readouterr().err == "studies: stopped; progress is saved, the same command resumes\n"


def test_a_zoo_takes_more_methods_and_seeds_and_no_other_budget(tmp_path):
    begun = []
    ours = module.study("zoo")._replace(run=lambda out, settings: begun.append(settings.methods))
    run(ours, tmp_path, {"methods": "rope"})
    run(ours, tmp_path, {"methods": "rope,hwfa", "seeds": "5", "progress": "false"})
    assert begun == ["rope", "rope,hwfa"]
    with pytest.raises(Conflict, match=r"began with other values of steps;"):
        run(ours, tmp_path, {"steps": "6000"})


def test_settings_are_listed_and_have_one_level(capsys):
    assert module.main(["zoo", "--list"]) == 0
    listed = capsys.readouterr().out
    assert "steps=3000  " in listed
    assert "methods=" in listed
    written = module.study("zoo").read({}).written()
    assert (written["steps"], written["width"], written["characters"]) == (3000, 96, 20_000_000)
    assert written["puzzles"] == {"repeats": 0.4, "recall": 0.1}
    assert not {"plan", "shape"} & written.keys()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["zoo"], "--out is missing; name a folder"),
        (["zoo", "--out", "x", "--set", "steps"], "--set must be KEY=VALUE, got 'steps'"),
        (["fly"], "invalid choice: 'fly'"),
    ],
)
def test_a_misused_command_is_refused(arguments, said, capsys):
    with pytest.raises(SystemExit) as left:
        module.main(arguments)
    assert left.value.code == 2
    assert said in capsys.readouterr().err


def test_an_unknown_setting_is_one_line(tmp_path, capsys):
    assert module.main(["zoo", "--out", str(tmp_path / "out"), "--set", "stepz=1"]) == 2
    assert capsys.readouterr().err.startswith("studies: zoo has no setting 'stepz'")
    assert not (tmp_path / "out").exists()


ROOT = Path(__file__).resolve().parents[2]
COMMANDS = sorted(
    {
        command
        for page in (ROOT / "README.zh.md", ROOT / "studies" / "README.md")
        for command in re.findall(r"`python -m studies ((?:zoo|tuned) [^`]*)`", page.read_text())
    }
)


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_on_the_pages_are_understood(command, tmp_path, monkeypatch):
    begun = []

    def read(study, out, settings):
        begun.append(study.read(settings))
        return out

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(module, "run", read)
    assert module.main(shlex.split(command)) == 0
    assert len(begun) == 1


CORE = """
import importlib.util, runpy, sys
absent = {"accelerate", "datasets", "peft", "tensorboard", "matplotlib"}
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name in absent else found(name, package)
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in absent:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
sys.argv = sys.argv[1:]
runpy.run_module(sys.argv[0], run_name="__main__")
"""


@pytest.mark.parametrize(
    ("command", "status", "said"),
    [
        ("studies zoo --list", 2, r"studies: accelerate is not installed; .*pip install .*\btrain\b.*\n"),
        ("studies.findings --check", 2, r"studies: matplotlib is not installed; .*pip install .*\bpictures\b.*\n"),
        ("studies.pages --draw", 2, r"studies: matplotlib is not installed; .*pip install .*\bpictures\b.*\n"),
        ("studies.pages --check", 0, ""),
        ("studies.restricted --help", 0, ""),
        ("studies.kv_heads --help", 0, ""),
    ],
)
def test_a_core_install_runs_a_command_or_says_what_it_lacks(command, status, said):
    """In one line; and --help measures nothing, which would take half an hour."""
    asked = [sys.executable, "-c", CORE, *command.split()]
    done = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == status, done.stderr
    assert re.fullmatch(said, done.stderr), done.stderr
    assert ("--quick" in done.stdout) == ("--help" in command)
