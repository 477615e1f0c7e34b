"""`ropewalk train`, as a user runs it: recipes listed, run, resumed, refused."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ropewalk.cli.main import run
from ropewalk.cli.parser import app
from ropewalk.errors import Conflict, InvalidValue, RopewalkError, UnknownName
from ropewalk.train.recipes.listing import recipe, recipes

from train.texts import folder_of

SMALL = {"vocabulary": 300, "width": 32, "inner": 48, "layers": 2, "heads": 2, "trained_len": 32, "rows": 2}


def ropewalk(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "ropewalk", "train", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env={"COLUMNS": "200", "PATH": "", "PYTHONIOENCODING": "utf-8", "PYTHONPATH": ":".join(sys.path)},
    )


def settings(**others):
    return [part for name, value in {**SMALL, **others}.items() for part in ("--set", f"{name}={value}")]


def within(*arguments):
    """In this process, for speed; what is refused is raised."""
    result = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["train", *map(str, arguments)])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.output


@pytest.mark.nightly
def test_a_recipe_is_run_and_gone_on_with_by_the_same_command(tmp_path):
    asked = ["pretrain", "--out", tmp_path / "run", *settings(corpus=folder_of(tmp_path / "texts"), extension="alibi")]
    said = within(*asked, "--set", "steps=3")
    assert "3/3" in said  # Trainer's bar
    assert f"Trained: {tmp_path / 'run' / 'model'}" in said
    kept = (tmp_path / "run" / "model" / "model.safetensors").read_bytes()
    within(*asked, "--set", "steps=3")
    assert (tmp_path / "run" / "model" / "model.safetensors").read_bytes() == kept
    within(*asked, "--set", "steps=5", "--set", "progress=false")  # longer is the same run
    assert (tmp_path / "run" / "checkpoint-5").is_dir()
    assert json.loads((tmp_path / "run" / "model" / "ropewalk.json").read_text())["extension"]["biases"]
    with pytest.raises(Conflict, match=r"began with other values of learning_rate;"):
        within(*asked, "--set", "steps=5", "--set", "learning_rate=1e-3")


@pytest.mark.nightly
def test_fewer_steps_than_are_done_are_refused(tmp_path):
    """The folder holds the longer model; a shorter one cannot be had from it."""
    out = tmp_path / "run"
    asked = ["pretrain", "--out", out, *settings(corpus=folder_of(tmp_path / "texts"), progress="false", save_every=2)]
    within(*asked, "--set", "steps=4")
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    for steps in (1, 3):
        with pytest.raises(InvalidValue, match=f"steps must be at least 4, .*run, got {steps}; choose another folder"):
            within(*asked, "--set", f"steps={steps}")
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before
    assert "Trained" in within(*asked, "--set", "steps=4")
    (out / "checkpoint-4" / "trainer_state.json").unlink()  # as if it had been killed after the second step
    assert "Trained" in within(*asked, "--set", "steps=3")


def test_a_place_that_cannot_be_a_folder_is_refused_before_the_work(tmp_path, monkeypatch):
    """As every verb does that writes; in one sentence, whatever the recipe."""
    monkeypatch.setattr("ropewalk.train.recipes.recipe.run", lambda *given: pytest.fail("the recipe was begun"))
    (tmp_path / "notes.txt").write_text("mine")
    for out in (tmp_path / "notes.txt", tmp_path / "notes.txt" / "run"):
        with pytest.raises(InvalidValue, match="--out must be a folder, or a new name for one"):
            within("pretrain", "--out", out, *settings(steps=1))
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_what_was_refused_before_it_began_may_be_said_anew(tmp_path):
    asked = ["pretrain", "--out", tmp_path / "run", *settings(steps=1, progress="false")]
    with pytest.raises(RopewalkError, match="a path that exists"):
        within(*asked, "--set", "corpus=folder:/nowhere")
    assert not (tmp_path / "run").exists()
    corpus = folder_of(tmp_path / "texts")
    assert "Trained" in within(*asked, "--set", f"corpus={corpus}")
    with pytest.raises(Conflict, match=r"began with other values of corpus;"):
        within(*asked, "--set", "corpus=python")


def test_questions_that_were_made_are_kept_whatever_is_refused_then(tmp_path, monkeypatch):
    def asks_and_refuses(out, settings, options):
        (Path(out) / "questions.jsonl").write_text("{}")
        raise InvalidValue("length", "longer", 8)

    ours = recipe("long_instruct")._replace(run=asks_and_refuses)
    monkeypatch.setattr("ropewalk.train.recipes.listing.recipe", lambda name: ours)
    with pytest.raises(InvalidValue, match="length must be longer"):
        within("long_instruct", "--out", tmp_path / "run", "--set", "steps=1", "--set", "model=x", "--set", "length=8")
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["questions.jsonl", "recipe.json"]


def test_a_folder_with_somebodys_model_is_left_alone(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "NOTES.txt").write_text("mine")
    with pytest.raises(InvalidValue, match="out must be new, or a folder where a recipe was begun"):
        within("pretrain", "--out", tmp_path, *settings(steps=1))
    assert [path.name for path in tmp_path.rglob("*")] == ["model", "NOTES.txt"]


@pytest.mark.nightly
def test_two_trainings_in_one_folder_are_one(tmp_path):
    """The second is refused at once, and leaves the folder as it is."""
    corpus, place = folder_of(tmp_path / "texts"), tmp_path / "run"
    begun = ["train", "pretrain", "--out", str(place), *settings(corpus=corpus, steps=10**6, progress="false")]
    first = subprocess.Popen([sys.executable, "-m", "ropewalk", *begun], stderr=subprocess.PIPE)
    try:
        while not (place / "plan.json").is_file():
            assert first.poll() is None, first.stderr.read()
            time.sleep(0.05)
        for more in ([], ["--set", "seed=1"]):
            with pytest.raises(Conflict, match=f"another training writes to {place}; wait until it ends, or choose"):
                within(*begun[1:], *more)
    finally:
        first.terminate()
        first.communicate()
    assert first.returncode == 130
    assert len(list(place.glob("checkpoint-*"))) == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_before_the_first_step_ends_it_as_any_other(tmp_path, monkeypatch, number):
    ours = recipe("pretrain")._replace(run=lambda *_, **__: os.kill(os.getpid(), number))
    monkeypatch.setattr("ropewalk.train.recipes.listing.recipe", lambda name: ours)
    assert run(["train", "pretrain", "-o", str(tmp_path / "run"), "--set", "steps=3"]) == 130
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


@pytest.mark.nightly
def test_without_progress_nobody_shows_a_bar(tmp_path):
    quiet = settings(corpus=folder_of(tmp_path / "texts"), steps=2, progress="false")
    done = ropewalk("pretrain", "--out", tmp_path / "run", *quiet)
    assert done.stdout.endswith(f"Trained: {tmp_path / 'run' / 'model'}\n")
    assert not [line for line in done.stderr.splitlines() if "%|" in line or "examples" in line]  # nor those of loading


def test_what_a_signal_stopped_is_said_to_be_stopped(tmp_path, monkeypatch, capsys):
    ours = recipe("pretrain")._replace(run=lambda *_, **__: None)  # no step was done
    monkeypatch.setattr("ropewalk.train.recipes.listing.recipe", lambda name: ours)
    assert run(["train", "pretrain", "-o", str(tmp_path / "run"), "--set", "steps=3"]) == 130
    said = capsys.readouterr().err
    assert "the same command resumes" in said
    assert said.endswith("ropewalk: stopped\n")


def test_everything_is_listed_with_what_it_must_be():
    everything = " ".join(within("--list").replace("│", " ").split())
    for name, each in recipes().items():
        assert f" {name} {each.idea} " in everything
        shown = within(name, "--list")
        assert f"{name}: " in shown
        for row in each.rows():
            assert row.meaning, row.name
            assert f" {row.name} " in shown
    assert "0.18" in within("pretrain", "--list")  # its share of passkeys
    alone = within("uptrain_gqa", "--list")
    assert "kv_heads" in alone
    assert "answers_only" not in alone


def test_defaults_that_are_listed_are_those_that_run():
    for each in recipes().values():
        stated = {row.name: row.default for row in each.rows()}
        missing = {name: "1" for name, default in stated.items() if default == "must be given"}
        assert each.read(missing).plan.learning_rate == float(stated["learning_rate"])
    assert recipe("pretrain").read({"steps": "1"}).puzzles.shares()["passkey"] == 0.18
    assert "passkey" not in recipe("pretrain").read({"steps": "1", "passkey": "0"}).puzzles.shares()
    texts = {"steps": "2k", "extension": "yarn:factor=4+log_n", "model": "x", "length": "1k"}
    read = recipe("carry_on").read(texts)
    assert (read.plan.steps, read.extension, read.length) == (2048, "yarn:factor=4+log_n", 1024)


@pytest.mark.parametrize("name", recipes())
def test_default_rates_are_those_of_trainings(name):
    """A rate of 1e-2 already ruins a model; a tenth of a millionth teaches it nothing."""
    values = recipe(name).defaults()
    highest = 0.1 if name == "retrieval_heads" else 1e-2  # gates from 0 to 1, and no weights
    assert 1e-6 < values["learning_rate"] < highest
    assert 0 <= values.get("warmup", 0.0) < 1


def test_recipe_json_has_all_settings_on_one_level():
    """Runs that were begun by earlier versions are resumed: the names stay."""
    written = recipe("pretrain").read({"steps": "7"}).written()
    assert (written["steps"], written["width"], written["puzzles"]["passkey"]) == (7, 256, 0.18)
    assert not {"plan", "shape"} & written.keys()


@pytest.mark.parametrize(
    ("arguments", "kind", "said"),
    [
        (["fly"], UnknownName, "there is no recipe 'fly'. Known: pretrain"),
        (["pretrain"], InvalidValue, "train needs a folder; run ropewalk train pretrain --out FOLDER"),
        (["pretrain", "-o", "{out}"], InvalidValue, "pretrain needs steps; pass --set steps=..."),
        (
            ["pretrain", "-o", "{out}", "--set", "steps"],
            RopewalkError,
            "setting must be written key=value, got 'steps'",
        ),
        (
            ["pretrain", "-o", "{out}", "--set", "steps=1", "--set", "steps=2"],
            RopewalkError,
            "--set steps=... is there twice",
        ),
        (
            ["pretrain", "-o", "{out}", "--set", "step=1"],
            UnknownName,
            "pretrain has no setting 'step'; did you mean 'steps'?",
        ),
        (["pretrain", "-o", "{out}", "--set", "steps=0"], InvalidValue, "steps must be at least 1, got 0"),
    ],
)
def test_what_is_refused(tmp_path, arguments, kind, said):
    with pytest.raises(kind) as refused:
        within(*(part.format(out=tmp_path / "x") for part in arguments))
    assert said in str(refused.value)
    assert not (tmp_path / "x").exists()


@pytest.mark.nightly
def test_a_refusal_is_one_line(tmp_path):
    done = ropewalk("carry_on", "-o", tmp_path / "x", "--set", "steps=1", "--set", "model=none")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("ropewalk: carry_on needs extension")
    assert "Traceback" not in done.stderr
