"""`check --running`: whether the schedule of a folder is in force in an engine that answers over HTTP."""

import json

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import ropewalk as rw
from ropewalk import DoesNotFit, InvalidValue, UnknownName
from ropewalk.cli.main import run
from ropewalk.cli.output import KEYS
from ropewalk.engines.check.running import TextPart, check_running
from ropewalk.models import DEFAULT

from engines.check.answering import echo, prefixes, refusing, running
from real_server import Server

TARGET = 4096
TOKENS = 700  # 512 within the trained length


def carried():
    return AutoModelForCausalLM.from_pretrained(DEFAULT, dtype=torch.float32).eval()


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Exports of the carried model: its schedule by name, in the plugin's plan, in the sidecar, and another base."""
    place, tokenizer = tmp_path_factory.mktemp("running"), AutoTokenizer.from_pretrained(DEFAULT)
    exports = {"yarn": "transformers", "yarn+log_n": "vllm", "ntk": "transformers"}
    for line, target in exports.items():
        model = rw.extend(carried(), line, target_len=TARGET).model
        rw.export(model, place / line, target=target, target_len=TARGET, tokenizer=tokenizer)
    rw.save(rw.extend(carried(), "rerope+log_n").model, place / "rerope+log_n", tokenizer=tokenizer)
    return place


@pytest.fixture(scope="module")
def models():
    """The carried model without an extension, and under one for each folder."""
    lines = ("yarn", "yarn+log_n", "rerope+log_n")
    return {"": carried()} | {line: rw.extend(carried(), line, target_len=TARGET).model for line in lines}


@pytest.mark.sampled(cases=1)
@pytest.mark.parametrize(
    ("line", "protocol"), [("yarn", echo), ("yarn", prefixes), ("yarn+log_n", echo), ("rerope+log_n", echo)]
)
def test_in_force_and_not_applied(folders, models, line, protocol):
    for served, verdict in ((line, "in force"), ("", "not applied")):
        with running(protocol(models[served])) as url:
            checked = check_running(url, str(folders / line), target_len=TOKENS)
        assert checked.verdict == verdict, str(checked)
        near = [part.to_schedule if served else part.to_plain for part in checked.parts if part.apart > 0.02]
        assert near
        assert max(near) < 1e-3
        assert [part.name for part in checked.parts] == ["within", "beyond"]


def test_another_schedule_and_other_weights(folders, models):
    with running(echo(models["rerope+log_n"])) as url:  # exact within the trained length, and beyond it near neither
        checked = check_running(url, str(folders / "yarn"), target_len=TOKENS)
    assert checked.verdict in ("cannot tell", "not applied")
    assert checked.parts[0].verdict == "not applied"
    other = carried()
    other.model.layers[0].mlp.down_proj.weight.data.normal_()
    with running(echo(other)) as url:
        checked = check_running(url, str(folders / "yarn"), target_len=TOKENS)
    assert checked.verdict == "cannot tell"
    assert "does it have the same weights" in str(checked)


@pytest.mark.parametrize(
    ("gaps", "verdict"),
    [
        ((0.001, 0.9), "in force"),
        ((0.38, 0.9), "cannot tell"),  # yarn's numbers, asked for by_parts
        ((0.9, 0.2), "not applied"),
        ((0.9, 0.3), "cannot tell"),
    ],
)
def test_one_model_must_be_nearer_by_far(gaps, verdict):
    assert TextPart("beyond", 64, *gaps, apart=0.9).verdict == verdict


@pytest.mark.parametrize(
    ("folder", "said"), [("ntk", "ntk is another base"), (DEFAULT, "the checkpoint has no schedule")]
)
def test_nothing_to_compare_with(folders, models, folder, said):
    with running(echo(models[""])) as url:
        checked = check_running(url, str(folders / folder))
    assert checked.verdict == "cannot tell"
    assert said in str(checked)


def test_a_text_in_which_both_are_alike(folders, models):
    """ReRoPE keeps what is within its window."""
    with running(echo(models["rerope+log_n"])) as url:
        checked = check_running(url, str(folders / "rerope+log_n"), target_len=64)
    assert checked.verdict == "cannot tell"
    assert "reads alike; --to takes a longer one" in str(checked)


def test_an_engine_without_log_probabilities(folders):
    with running(refusing(404, "no such route")) as url:
        checked = check_running(url, str(folders / "yarn"), target_len=TOKENS)
    assert str(checked).startswith("cannot tell: the engine gives no log-probabilities of a prompt")
    assert not checked.is_same


@pytest.mark.sampled(cases=4)
@pytest.mark.parametrize(
    ("answer", "names", "asked", "error", "said"),
    [
        (
            refusing(400, "maximum context length is 512"),
            ["m"],
            {},
            DoesNotFit,
            "refuses a prompt of 699 tokens: maximum context length is 512; --to",
        ),
        (refusing(500, "out of paper"), ["m"], {}, DoesNotFit, "fails with status 500: out of paper"),
        (refusing(401, "who are you?"), ["m"], {}, DoesNotFit, "wants a key; set ROPEWALK_API_KEY to it"),
        (refusing(404, ""), ["one", "two"], {}, DoesNotFit, "serves 2 models; known: one, two; say which by --model"),
        (refusing(404, ""), ["one", "two"], {"served": "tow"}, UnknownName, "no model 'tow'; did you mean 'two'"),
        (refusing(404, ""), ["m"], {"target_len": 8}, InvalidValue, "--to must be at least 32 tokens"),
    ],
)
def test_errors(folders, answer, names, asked, error, said):
    with running(answer, names) as url, pytest.raises(error, match=said):
        check_running(url, str(folders / "yarn"), **{"target_len": TOKENS, **asked})


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--running", "http://127.0.0.1:9"], "http://127.0.0.1:9 cannot be reached: Connection refused; start the"),
        (["--running", "localhost:8000"], "--running must be an address such as http://127.0.0.1:8000"),
        (["--running", "http://localhost:port"], "--running must be an address such as http://127.0.0.1:8000"),
        (["--model", "m"], "--model is a name in a running engine; add --running URL"),
    ],
)
def test_wrong_use(capsys, arguments, said):
    assert run(["check", "default", *arguments]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.nightly
def test_ropewalks_own_server(folders, capsys):
    """With the schedule, and without it, by the command."""
    server = Server("default", "rope", "--extensions", "yarn", "--to", "4k", "--port", "0").ready()
    try:
        for served, status, verdict in (("default@yarn", 0, "in force"), ("default", 1, "not applied")):
            asked = ["check", str(folders / "yarn"), "--running", f"{server.url}/v1", "--model", served, "--json"]
            assert run(asked) == status
            said = json.loads(capsys.readouterr().out)
            assert set(said) == set(KEYS["check --running"])
            assert (said["verdict"], said["served"], said["target_len"]) == (verdict, served, 1024)
            assert {part["verdict"] for part in said["parts"]} == {verdict}
    finally:
        server.end()
