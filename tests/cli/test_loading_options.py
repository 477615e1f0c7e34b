"""How a model is loaded is said the same way to every verb that loads one; verbs are those of the parser."""

import json
import shlex

import pytest
import torch
import typer
from transformers import AutoModelForCausalLM

import ropewalk as rw
from ropewalk.cli.main import run
from ropewalk.cli.models import load_and_place
from ropewalk.cli.parser import EXAMPLES, app
from ropewalk.hf.load_options import LoadOptions
from ropewalk.models import DEFAULT

from hf.local_hub import asked as ask_hub, serving
from hf.models import tiny

VERBS = typer.main.get_command(app).commands
OPTIONS = {"--dtype", "--device", "--revision", "--trust-remote-code"}
LINES = {verb.__name__: example for verb, example in EXAMPLES.items()}
INSTEAD = {
    "inspect": "ropewalk inspect ./model --device cpu",  # without, a config is enough
    "serve": "ropewalk serve ./model rerope+log_n --port 0",
    "generate": "ropewalk generate ./model rerope+log_n --prompt x",
    "train": "ropewalk train pretrain --list",
}
# train: the precision is a setting, and the devices are accelerate's.
SETTINGS_OF_THEIR_OWN = {"train"}


def line_of(verb):
    return shlex.split(INSTEAD.get(verb, LINES[verb]).replace("./model", "default", 1))[1:]


@pytest.fixture
def asked(monkeypatch, tmp_path):
    """What from_pretrained was called with; nothing is loaded."""
    calls = []

    def from_pretrained(name, **kwargs):
        calls.append(kwargs)
        raise OSError("not loaded here")

    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", from_pretrained)
    monkeypatch.chdir(tmp_path)
    return calls


def options_of(verb):
    return {name for option in VERBS[verb].params for name in (*option.opts, *option.secondary_opts)}


@pytest.mark.sampled(cases=3)
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_verb_has_all_of_them_where_it_loads_weights(verb, asked, capfd):
    run(line_of(verb))
    assert bool(asked) == (options_of(verb) >= OPTIONS), capfd.readouterr().err
    assert bool(asked) or verb in SETTINGS_OF_THEIR_OWN or not {"--dtype", "--device"} & options_of(verb)


@pytest.mark.sampled(cases=4)
@pytest.mark.parametrize("verb", [verb for verb in VERBS if options_of(verb) >= OPTIONS])
def test_they_reach_transformers(verb, asked):
    pytest.importorskip("accelerate")
    device = "cpu" if verb == "serve" else "auto"
    run([*line_of(verb), "--dtype", "bfloat16", "--device", device, "--trust-remote-code"])
    assert asked[0]["dtype"] == "bfloat16"
    assert asked[0].get("device_map") == (None if verb == "serve" else "auto")
    assert asked[0]["trust_remote_code"] is True


@pytest.mark.sampled(cases=3)
@pytest.mark.parametrize("verb", [verb for verb in VERBS if options_of(verb) >= OPTIONS])
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--dtype bflaot16", "there is no dtype 'bflaot16'; did you mean 'bfloat16'? Known: auto, float32, bfloat16"),
        ("--device gpu9", "--device must be a device that torch has here, such as cpu, or auto, got 'gpu9'"),
        ("--device meta", "--device must be a device that torch has here, such as cpu, or auto, got 'meta'"),
        ("--device cuda:99", "--device must be a device that torch has here"),
        ("--revision v2", "leave --revision out"),
    ],
)
def test_what_is_wrong_is_one_sentence(verb, asked, capsys, options, said):
    assert run([*line_of(verb), *options.split()]) == 2
    shown = capsys.readouterr().err
    assert said in shown
    assert shown.count("\n") == 1
    assert not asked


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("compare default yarn --ray local --device cpu", "give --ray or --device, not both"),
        ("compare default yarn --ray local --device auto", "give --ray or --device, not both"),
        ("fit default --workers 2 --device auto", "each of several workers would take all devices; name one device"),
        (
            "serve default --device auto",
            "serve keeps keys and values on one device, and auto spreads them over several",
        ),
        ("check default --dtype bfloat16", "No such option: --dtype"),
        ("train pretrain --device cpu", "No such option: --device"),
    ],
)
def test_what_makes_no_sense_together_is_refused(asked, capsys, line, said):
    assert run(line.split()) == 2
    assert said in capsys.readouterr().err
    assert not asked


@pytest.mark.parametrize(("dtype", "size"), [("float32", 4), ("bfloat16", 2), ("float16", 2), ("auto", 2)])
def test_the_model_has_the_precision(tmp_path, capsys, dtype, size):
    tiny("llama", num_hidden_layers=1).bfloat16().save_pretrained(tmp_path)
    assert run(["inspect", str(tmp_path), "--to", "1k", "--json", "--dtype", dtype]) == 0
    keys = 2 * 2 * 16 * 1024 * size  # keys and values, heads, dimensions, tokens
    assert json.loads(capsys.readouterr().out)["cache_bytes"] == keys


@pytest.mark.nightly
def test_a_model_spread_by_accelerate_writes_the_same(capsys):
    pytest.importorskip("accelerate")
    said = []
    for device in ("auto", "cpu"):
        assert run(f"generate default rerope+log_n --prompt def --max-new-tokens 4 --device {device}".split()) == 0
        said.append(capsys.readouterr().out)
    assert said[0] == said[1]


@pytest.mark.nightly
@pytest.mark.parametrize("verb", ["extend", "export"])
def test_a_revision_is_not_asked_of_the_folder_that_is_written(tmp_path, monkeypatch, capsys, verb):
    with serving(DEFAULT) as address:
        ask_hub(monkeypatch, address, tmp_path)
        line = [verb, "owner/name", "yarn:factor=2", "--revision", "main", "-o", str(tmp_path / "out")]
        assert run(line) == 0, capsys.readouterr().err


def test_a_recipe_that_makes_its_own_model_takes_none_of_it(tmp_path, capsys):
    for option in (["--revision", "v2"], ["--trained-len", "1k"], ["--trust-remote-code"]):
        assert run(["train", "pretrain", "-o", str(tmp_path / "out"), *option]) == 2
        said = f"ropewalk: {option[0]} says how a model is loaded, and pretrain makes a new one; leave {option[0]} out"
        assert capsys.readouterr().err == f"{said}\n"
    assert not (tmp_path / "out").exists()


def test_a_recipe_loads_its_model_by_them(tmp_path, capsys):
    line = ["train", "drope", "-o", str(tmp_path / "out"), "--set", "model=default", "--set", "steps=1"]
    assert run([*line, "--revision", "v2"]) == 2
    assert "leave --revision out" in capsys.readouterr().err


@pytest.mark.nightly
def test_extend_writes_in_the_precision(tmp_path, capsys):
    assert run(["extend", "default", "yarn:factor=2", "-o", str(tmp_path / "out"), "--dtype", "bfloat16"]) == 0
    assert AutoModelForCausalLM.from_pretrained(tmp_path / "out").dtype == torch.bfloat16


def test_python_takes_the_same_by_the_same_names():
    compared = {"lengths": [1024], "tasks": "context", "samples": 2}
    with pytest.raises(rw.UnknownName, match="did you mean 'bfloat16'"):
        rw.compare(DEFAULT, ["yarn"], options=rw.LoadOptions(dtype="bflaot16"), **compared)
    with pytest.raises(rw.InvalidValue, match=r"a revision \(v2\) is for a model on the hub"):
        rw.diagnose(DEFAULT, options=rw.RunOptions(revision="v2", progress=False))
    with pytest.raises(rw.InvalidValue, match="each of several workers"):
        rw.fit(DEFAULT, options=rw.SearchOptions(workers=2, device="auto"))
    assert rw.inspect(DEFAULT, dtype="bfloat16").bytes_per_number == 2
    model = rw.load(DEFAULT, dtype="bfloat16")
    assert model.dtype == torch.bfloat16
    for refused in (
        lambda: rw.inspect(model, dtype="float32"),
        lambda: rw.compare(model, options=rw.LoadOptions("float32")),
    ):
        with pytest.raises(rw.InvalidValue, match="dtype applies only to a model given by name"):
            refused()


def test_a_chat_needs_a_template(capsys):
    assert run(["generate", "default", "--prompt", "x", "--chat"]) == 2
    shown = capsys.readouterr().err
    assert shown == "ropewalk: the model has no chat template; leave --chat out: the prompt is continued as it is\n"


def test_a_model_is_run_in_float32_where_bfloat16_is_far_slower(tmp_path, monkeypatch, capsys):
    """As on a processor without bfloat16, which took 300 seconds for what takes 130 in float32; a choice is kept."""
    rw.load(DEFAULT, dtype="bfloat16").save_pretrained(tmp_path / "half")
    for slower, dtype in ((6.0, torch.float32), (1.5, torch.bfloat16)):
        times = {torch.float32: 1.0, torch.bfloat16: slower}
        monkeypatch.setattr("ropewalk.measure.comparison.plan.product_seconds", times.get)
        assert load_and_place(str(tmp_path / "half"), LoadOptions(device="cpu")).dtype is dtype
        assert ("computing in float32" in capsys.readouterr().err) == (dtype is torch.float32)
        chosen = load_and_place(str(tmp_path / "half"), LoadOptions("bfloat16", "cpu"))
        assert chosen.dtype is torch.bfloat16
