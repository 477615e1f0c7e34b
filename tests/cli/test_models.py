"""The verbs for models, as a user runs them, on a small model in a folder."""

import subprocess
import sys

import pytest
from hf.models import tiny
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("model")
    own = Tokenizer(WordLevel({"<unk>": 0} | {f"w{n}": n for n in range(1, 101)}, unk_token="<unk>"))
    own.pre_tokenizer = Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=own, unk_token="<unk>").save_pretrained(place)
    model = tiny("llama", num_hidden_layers=2)
    model.generation_config.eos_token_id = None
    model.save_pretrained(place)
    return place


def ropewalk(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "ropewalk", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env={"COLUMNS": "160", "PATH": "", "PYTHONIOENCODING": "utf-8", "PYTHONPATH": ":".join(sys.path)},
    )


def test_inspect(folder):
    shown = ropewalk("inspect", folder, "--to", "1k")
    assert shown.returncode == 0, shown.stderr
    assert "trained on 32 tokens" in shown.stdout
    assert "cache at 1024" in shown.stdout


def test_extend_and_export(folder, tmp_path):
    shown = ropewalk("extend", folder, "yarn", "--to", "128", "-o", tmp_path / "long")
    assert shown.returncode == 0, shown.stderr
    assert "AutoModelForCausalLM.from_pretrained" in shown.stdout
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "long")
    assert again.config.rope_parameters["factor"] == 4.0
    shown = ropewalk("export", folder, "yarn", "--to", "128", "--target-engine", "vllm", "-o", tmp_path / "served")
    assert shown.returncode == 0, shown.stderr
    assert f"vllm serve {tmp_path / 'served'} --max-model-len 128" in shown.stdout


def test_generate_from_a_prompt_and_from_contexts(folder, tmp_path):
    prompt = " ".join(f"w{1 + n % 90}" for n in range(50))
    (tmp_path / "prompt.txt").write_text(prompt)
    given = ("--prompt-file", tmp_path / "prompt.txt", "--max-new-tokens", "6")
    shown = ropewalk("generate", folder, "streaming:window=10,n_sink=2", *given)
    assert shown.returncode == 0, shown.stderr
    assert len(shown.stdout.split()) == 6
    contexts = tmp_path / "contexts"
    contexts.mkdir()
    for name in ("one", "two"):
        (contexts / name).write_text(f"w5 w6 {prompt}")
    asked = ("--contexts", contexts, "--question", "w7 w8", "--max-new-tokens", "5")
    shown = ropewalk("generate", folder, "nbce", *asked)
    assert shown.returncode == 0, shown.stderr
    assert len(shown.stdout.split()) == 5


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("inspect", "no/such/folder"), "model must be"),
        (("generate", "{folder}", "rerope:window=32", "--prompt", "w1"), "window must be"),
        (("generate", "{folder}", "rerope:window=8"), "prompt must be"),
        (("extend", "{folder}", "yarn", "--to", "16", "-o", "out"), "target_len must be"),
        (("extend", "{folder}", "yarn:faktor=4", "-o", "out"), "faktor"),
    ],
)
def test_what_is_refused_is_said_in_one_line(folder, arguments, said):
    done = ropewalk(*(part.format(folder=folder) for part in arguments))
    assert done.returncode == 2
    assert said in done.stderr
    assert sum(line.startswith("ropewalk:") for line in done.stderr.splitlines()) == 1
    assert "Traceback" not in done.stderr
