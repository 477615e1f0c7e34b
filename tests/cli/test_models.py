"""The verbs for models on a small model in a folder, and everything that can be wrong with what they are given."""

import json
import shlex
import shutil
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

import ropewalk as rw
from ropewalk import inspect
from ropewalk.cli.main import run
from ropewalk.cli.models import folder_for
from ropewalk.cli.parser import EXAMPLES
from ropewalk.cli.verbs.check import ENGINES as CHECKED
from ropewalk.cli.verbs.export import ENGINES, WITHOUT_FOLDER
from ropewalk.cli.verbs.page import page
from ropewalk.cli.verbs.train import train
from ropewalk.engines.targets import ENGINES as RULES, TARGETS
from ropewalk.errors import Unreadable
from ropewalk.models import DEFAULT

from hf.models import tiny
from hf.own_code import bringing_code

LONG = ("yarn", "--to", "128", "-o")


def test_inspect(folder, capsys):
    assert run(["inspect", str(folder), "--to", "1k"]) == 0
    assert "target length         1,024 tokens, 32 times as many" in capsys.readouterr().out
    assert run(["inspect", str(folder), "--to", "16"]) == 0
    assert "target length         16 tokens, within the trained length" in capsys.readouterr().out
    assert run(["inspect", str(folder), "--json"]) == 0
    read = json.loads(capsys.readouterr().out)
    assert (read["trained_len"], read["target_len"]) == (32, 256)


def test_extend_and_export(folder, tmp_path, capsys):
    assert run(["extend", str(folder), *LONG, str(tmp_path / "long")]) == 0
    assert "AutoModelForCausalLM.from_pretrained" in capsys.readouterr().out
    assert AutoModelForCausalLM.from_pretrained(tmp_path / "long").config.rope_parameters["factor"] == 4.0
    assert AutoTokenizer.from_pretrained(tmp_path / "long")("w7")["input_ids"] == [7]
    assert run(["export", str(folder), *LONG, str(tmp_path / "served"), "--target", "sglang"]) == 0
    assert f"--model-path {tmp_path / 'served'} --context-length 128" in capsys.readouterr().out
    assert (tmp_path / "served" / "tokenizer.json").exists()


def test_a_trainer_gets_lines_instead_of_a_folder(folder, tmp_path, capsys):
    assert run(["export", str(folder), "yarn", "--to", "128", "--target", "axolotl"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("native")
    assert f"base_model: {folder}\nsequence_len: 128\n" in printed
    assert "rope_type: yarn" in printed
    out = str(tmp_path / "long")
    assert run(["export", str(folder), "yarn", "--to", "128", "--target", "llama-factory", "-o", out]) == 0
    assert f"model_name_or_path: {out}\ncutoff_len: 128\n" in capsys.readouterr().out
    assert (tmp_path / "long" / "tokenizer.json").exists()


@pytest.mark.parametrize(("options", "kind"), [([], "plugin"), (["--plugin"], "plugin"), (["--no-plugin"], "frozen")])
def test_a_dynamic_schedule_for_vllm_is_exact_by_the_plugin_or_static(folder, tmp_path, capsys, options, kind):
    line = ["export", str(folder), "dynamic_yarn", "--to", "128", "-o", str(tmp_path / "out"), *options]
    assert run(line) == 0
    assert capsys.readouterr().out.startswith(f"{kind} (")


def test_engines_are_those_that_export_knows():
    assert set(ENGINES) == {name for name, rules in RULES.items() if rules.export}
    assert tuple(RULES) == CHECKED


@pytest.mark.sampled(cases=3)
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("extend yarn {folder} -o {out}", "is a folder, and an extension is expected here; name the model first"),
        ("inspect no/such/folder", "model must be an existing folder, a GGUF file, a config.json, default, or"),
        ("inspect {folder} --to abc", "--to must be a whole number such as 512, 32k or 1m, got 'abc'"),
        ("inspect {folder} --to 0", "--to must be at least 1"),
        ("extend {folder} yarm --to 128 -o {out}", "there is no preset or method 'yarm'; did you mean 'yarn'?"),
        ("extend {folder} yarn:faktor=4 -o {out}", "faktor"),
        ("extend {folder} yarn:factor=0.5 -o {out}", "factor must be at least 1"),
        ("extend {folder} yarn --to 16 -o {out}", "--to must be above the trained length (32)"),
        ("extend {folder} yarn -o {out}", "yarn needs factor; write yarn:factor=..."),
        ("extend {folder} yarn --to 128 -o {folder}", "must be new or empty"),
        ("export {folder} yarn --to 128 -o {out} --target olama", "Known: transformers, vllm, sglang, llama.cpp"),
        ("export {folder} yarn --to 128 -o {out} --target torchtitan", "so --out must be left out"),
        ("generate {folder} yarn", "give exactly one of --prompt, --prompt-file, --contexts"),
        (
            "generate {folder} yarn --prompt w1 --prompt-file x",
            "give exactly one of --prompt, --prompt-file, --contexts",
        ),
        ("generate {folder} yarn --prompt-file {out}", "No such file"),
        ("generate {folder} yarn --prompt-file {folder}", "Is a directory"),
        ("generate {folder} yarn --prompt-file {folder}/model.safetensors", "UTF-8"),
        ("generate {folder} nbce --contexts {out} --question w1", "--contexts must be an existing folder"),
        ("generate {folder} nbce --contexts {folder}", "give --contexts and --question together or not at all"),
        ("generate {folder} yarn --prompt w1 --max-new-tokens 0", "--stream generates without end"),
        ("generate {folder} yarn --prompt w1 --top-p 0.5", "--temperature must be above 0 with --top-p"),
        ("generate {folder} yarn --prompt w1 --device gpu9", "--device must be"),
        ("generate {folder} --to 1k --prompt w1", "--to needs an extension"),
        ("generate {folder} nbce --prompt w1", "nbce needs --contexts and --question"),
    ],
)
def test_what_is_wrong_is_said_in_one_line_before_weights_are_read(
    folder, tmp_path, monkeypatch, capsys, arguments, said
):
    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", lambda *_, **__: pytest.fail("loaded"))
    assert run([part.format(folder=folder, out=tmp_path / "out") for part in arguments.split()]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert said in shown.err
    assert shown.err.startswith("ropewalk: ")
    assert shown.err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def without_tokenizer(place):
    for path in place.glob("tokenizer*"):
        path.unlink()


def cut_off(place):
    weights = place / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:5000])


def without_keys(place):
    state = load_file(place / "model.safetensors")
    save_file({name: value for name, value in state.items() if "k_proj" not in name}, place / "model.safetensors")


@pytest.mark.sampled(cases=3)
@pytest.mark.parametrize(
    ("breaking", "said"),
    [
        (lambda place: (place / "config.json").unlink(), "a folder with a config.json"),
        (lambda place: (place / "config.json").write_text("{"), "correct its config.json"),
        (lambda place: (place / "config.json").write_text("{}"), "model_type"),
        (lambda place: (place / "model.safetensors").unlink(), "fetch again"),
        (cut_off, "fetch again"),
        (without_keys, "k_proj.weight"),
        (without_tokenizer, "one with a tokenizer"),
    ],
)
def test_a_model_that_is_broken_is_said_in_one_line(folder, tmp_path, capsys, breaking, said):
    shutil.copytree(folder, tmp_path / "broken")
    breaking(tmp_path / "broken")
    assert run(["extend", str(tmp_path / "broken"), *LONG, str(tmp_path / "out")]) == 2
    shown = capsys.readouterr()
    assert said in shown.err
    assert shown.err.startswith("ropewalk: ")
    assert shown.err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["broken"]


def test_a_tokenizer_of_another_model(folder, tmp_path, capsys):
    shutil.copytree(folder, tmp_path / "small")
    tiny("llama", num_hidden_layers=1, vocab_size=50).save_pretrained(tmp_path / "small")
    assert run(["generate", str(tmp_path / "small"), "--prompt", "w3 w99"]) == 2
    assert "tokenizer must be the model's, with 50 tokens, got 'token 99'" in capsys.readouterr().err


def test_a_model_saved_with_its_extension_generates_without_one(folder, tmp_path, capsys):
    given = ["--prompt", " ".join(f"w{1 + n % 90}" for n in range(50)), "--max-new-tokens", "6"]
    assert run(["extend", str(folder), "rerope:window=8", "-o", str(tmp_path / "long")]) == 0
    capsys.readouterr()
    said = []
    for line in ([str(tmp_path / "long")], [str(folder), "rerope:window=8"], [str(folder)]):
        assert run(["generate", *line, *given]) == 0
        said.append(capsys.readouterr().out)
    assert said[0] == said[1]
    assert said[0] != said[2]


@pytest.mark.sampled(cases=4)
@pytest.mark.parametrize("verb", [verb for verb in EXAMPLES if "./model" in EXAMPLES[verb] and verb is not train])
def test_the_carried_model_has_a_name_for_every_verb(verb, monkeypatch, tmp_path):
    asked = []

    def plausible(model, **_):
        asked.append(model)
        raise Unreadable("model", "another", model)

    monkeypatch.chdir(tmp_path)  # of these modules, the one that the others import from comes last
    for module in ("cli.verbs.inspect", "cli.verbs.page", "engines.check.reading", "hf.load_options"):
        monkeypatch.setattr(f"ropewalk.{module}.require_plausible", plausible)
    line = EXAMPLES[verb].replace("./model ", "default ").replace("--prompt-file book.txt", "--prompt w1")
    assert run(shlex.split(line)[1:]) == 2
    assert asked == [str(DEFAULT)]


@pytest.fixture
def own_code(folder, tmp_path, monkeypatch):
    """A model that brings code of its own."""
    monkeypatch.setattr(sys, "stdin", None)  # nobody is asked
    with bringing_code(folder, tmp_path, monkeypatch) as made:
        yield made


@pytest.mark.sampled(cases=1)
@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("extend {} yarn --to 128", "model-yarn-128"),
        ("extend {} yarn:factor=4", "model-yarn"),
        ("extend {} rerope:window=8+log_n:strength=1.5 --to 128", "model-rerope+log_n-128"),
        ("export {} yarn --to 128 --target sglang", "model-yarn-128-sglang"),
    ],
)
def test_a_folder_without_a_name_is_named_by_what_is_in_it(folder, tmp_path, monkeypatch, capsys, line, name):
    shutil.copytree(folder, tmp_path / "in" / "model")
    (tmp_path / "out").mkdir()
    monkeypatch.chdir(tmp_path / "out")
    command = shlex.split(line.format(tmp_path / "in" / "model"))
    assert run(command) == 0
    assert [place.name for place in Path().iterdir()] == [name]
    assert name in capsys.readouterr().out
    assert rw.load(name) is not None
    assert run(command) == 2  # nothing is overwritten
    assert "directory must be new or empty" in capsys.readouterr().err


def test_names_of_folders():
    assert folder_for("owner/name", "yarn", "32k") == "name-yarn-32k"
    assert folder_for("/a/b/Llama-3.1-Q8_0.gguf", "resonance:inner=(yarn:factor=4)+log_n", "") == (
        "Llama-3.1-Q8_0-resonance+log_n"
    )
    assert folder_for("owner/name:x.gguf", "../../etc", "32k", "vllm") == "namex-....etc-32k-vllm"


def test_what_needs_no_folder_gets_none(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for target in WITHOUT_FOLDER:
        assert run(["export", str(folder), "by_parts:factor=4", "--to", "128", "--target", target]) == 0
    assert list(tmp_path.iterdir()) == []
    assert set(WITHOUT_FOLDER) == {name for name, target in TARGETS.items() if not target.folder}


RUNNING = ["inspect {}", "generate {} --prompt w1 --max-new-tokens 1"]
OTHERS = ["extend {} yarn --to 64 -o x", "compare {} yarn", "fit {}", "eval {} yarn --tasks x", "diagnose {} yarn"]


@pytest.mark.sampled(cases=3)
@pytest.mark.parametrize("verb", [*RUNNING, *OTHERS, "stream {} yarn --tokens 64"])
def test_code_that_comes_with_a_model_runs_where_it_is_asked_for(own_code, tmp_path, monkeypatch, capsys, verb):
    (_, mark), given = own_code, verb.format(own_code[0]).split()
    monkeypatch.chdir(tmp_path)
    assert run(given) == 2
    said = capsys.readouterr().err
    assert "--trust-remote-code" in said
    assert said.count("\n") == 1
    assert not mark.exists()
    if verb in RUNNING:
        assert run([*given, "--trust-remote-code"]) == 0
        assert mark.exists()


@pytest.mark.nightly
def test_a_corrected_trained_length_counts_for_every_verb(folder, tmp_path, capsys):
    known = inspect(str(folder)).facts.trained_len
    asked = ["--trained-len", str(known // 2)]
    assert run(["inspect", str(folder), *asked]) == 0
    assert f"trained on            {known // 2} tokens" in capsys.readouterr().out
    assert run(["extend", str(folder), "yarn", "--to", str(2 * known), "-o", str(tmp_path / "out"), *asked]) == 0
    assert "by_parts:factor=4" in capsys.readouterr().out
    assert run(["inspect", str(folder)]) == 0
    assert f"trained on            {known} tokens" in capsys.readouterr().out
    assert (
        run(["extend", str(folder), "yarn", "--to", str(known), "-o", str(tmp_path / "x"), "--trained-len", "0"]) == 2
    )
    assert "--trained-len must be at least 1" in capsys.readouterr().err
    for verb in EXAMPLES:
        assert run([verb.__name__, "--help"]) == 0
        assert verb is page or "--trained-len" in capsys.readouterr().out
