"""What `check` says of a checkpoint that was stretched: what it was trained on, and remedies that work as printed."""

import json
import shlex

import pytest
from transformers import Qwen3Config

import ropewalk as rw
from ropewalk import Unreadable
from ropewalk.cli.main import run
from ropewalk.models import DEFAULT

TRAINED, LENGTH, LONGER = 512, 4096, 8192
ENGINES = ("vllm", "sglang", "llama.cpp", "mlx", "transformers")
TRACELESS = ("ntk", "abf", "longrope", "pi", "dynamic_yarn")  # whose rope parameters do not show them, or not as such


def exported(folder, line, engine, length=LENGTH):
    plain = ["--no-plugin"] if engine == "vllm" else []
    status = run(["export", str(DEFAULT), line, "--to", str(length), "--target", engine, "-o", str(folder), *plain])
    assert status == 0
    return folder


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("engine", "line"), [*((engine, "yarn") for engine in ENGINES), *(("vllm", line) for line in TRACELESS)]
)
def test_an_export_says_what_it_was_trained_on_and_is_not_stretched_again(engine, line, tmp_path):
    folder = exported(tmp_path / "export", line, engine)
    for length in (TRAINED, LENGTH // 2, LENGTH, LONGER):
        checked = rw.check(folder, engine=engine, target_len=length)
        assert (checked.trained_len, checked.made_for_len) == (TRAINED, LENGTH)
        assert f"{TRAINED} tokens, without a schedule; {checked.stretched_by} stretches it to {LENGTH:,}" in str(
            checked
        )
        assert not any("export" in finding.remedy for finding in checked.findings) or length > LENGTH
        assert not any(str(folder) in finding.remedy for finding in checked.findings)
    remedies = {finding.remedy for finding in checked.findings if "ropewalk export" in finding.remedy}
    (remedy,) = remedies
    said, command = remedy.split(": ")
    assert said == "export the original model anew"
    again = tmp_path / "again"
    assert run(shlex.split(command.replace("ORIGINAL", str(DEFAULT)).replace("FOLDER", str(again)))[1:]) == 0
    anew = rw.check(again, engine=engine, target_len=LONGER)
    assert (anew.verdict, anew.trained_len, anew.made_for_len) == ("same", TRAINED, LONGER)


@pytest.mark.nightly
def test_yarn_in_a_config_by_hand_is_replaced_and_not_stretched(tmp_path):
    """As makers say to add it: the remedy counts from the length before it."""
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": TRAINED}
    folder = tmp_path / "by hand"
    exported(folder, "yarn", "transformers")
    config = json.loads((folder / "config.json").read_text())
    del config["ropewalk_export"]
    config["rope_parameters"] = {"rope_theta": config["rope_parameters"]["rope_theta"], **yarn}
    config["max_position_embeddings"] = TRAINED
    (folder / "config.json").write_text(json.dumps(config))
    checked = rw.check(folder, engine="vllm", target_len=LONGER)
    assert (checked.trained_len, checked.made_for_len, checked.stretched_by) == (TRAINED, 4 * TRAINED, "yarn")
    command = next(finding.remedy for finding in checked.findings if "export" in finding.remedy)
    assert run(shlex.split(command.replace("FOLDER", str(tmp_path / "again")))[1:]) == 0
    rope = json.loads((tmp_path / "again" / "config.json").read_text())["rope_parameters"]
    assert (rope["factor"], rope["original_max_position_embeddings"]) == (LONGER / TRAINED, TRAINED)
    assert rw.check(tmp_path / "again", engine="vllm", target_len=LONGER).verdict == "same"


@pytest.mark.parametrize(
    "noted",
    [5, {}, {"trained_len": 0, "target_len": 9, "methods": "x"}, {"trained_len": 1, "target_len": "9", "methods": 3}],
)
def test_a_note_that_no_export_wrote_is_refused(noted):
    config = Qwen3Config(ropewalk_export=noted)
    with pytest.raises((Unreadable, rw.InvalidValue), match="ropewalk_export"):
        rw.check(config)
