"""`ropewalk generate`: the tokens are those of the library, shown as they come, the text read in pieces."""

import pytest
from transformers import AutoTokenizer

from ropewalk.cli.main import run
from ropewalk.hf import extended, load, nbce_generate, stream

PROMPT = " ".join(f"w{1 + n % 90}" for n in range(50))


def by_library(folder, extension, **given):
    model, tokenizer = load(folder), AutoTokenizer.from_pretrained(folder)
    ids = tokenizer(PROMPT, return_tensors="pt")["input_ids"]
    with extended(model, extension):
        return tokenizer.decode([int(token) for token in stream(model, ids, **given)])


@pytest.mark.parametrize("drawn", [{}, {"temperature": 0.8, "top_p": 0.9, "seed": 4}])
def test_from_a_file(folder, tmp_path, capsys, drawn):
    (tmp_path / "prompt.txt").write_text(PROMPT)
    given = [f"--{name.replace('_', '-')}={value}" for name, value in {**drawn, "max_new_tokens": 9}.items()]
    text = "streaming:window=10,n_sink=2"
    assert run(["generate", str(folder), text, "--prompt-file", str(tmp_path / "prompt.txt"), *given]) == 0
    shown = capsys.readouterr()
    assert shown.out == by_library(folder, text, max_new_tokens=9, **drawn) + "\n"
    assert shown.err == ""


def test_a_prompt_is_read_in_pieces(folder, monkeypatch, capsys):
    read = []
    monkeypatch.setattr("ropewalk.hf.reading.stream.__kwdefaults__", stream.__kwdefaults__ | {"piece": 16})
    monkeypatch.setattr("ropewalk.cli.showing.Reading.__call__", lambda _, *told: read.append(told))
    assert run(["generate", str(folder), "rerope:window=8", "--prompt", PROMPT, "--max-new-tokens", "2"]) == 0
    assert read == [(16, 50), (32, 50), (48, 50), (50, 50)]


def test_from_contexts_with_the_rest_of_the_extension_around_the_model(folder, tmp_path, capsys):
    contexts = [f"w5 w6 {PROMPT}", f"w9 {PROMPT}"]
    for name, text in zip(("one", "two"), contexts, strict=True):
        (tmp_path / name).write_text(text)
    asked = ["--contexts", str(tmp_path), "--question", "w7 w8", "--max-new-tokens", "5"]
    assert run(["generate", str(folder), "nbce+rerope:window=8", *asked]) == 0
    model, tokenizer = load(folder), AutoTokenizer.from_pretrained(folder)
    with extended(model, "rerope:window=8"):
        answer = nbce_generate(model, tokenizer, contexts, "w7 w8", max_new_tokens=5)
    assert capsys.readouterr().out == f"{answer.text}\n"


def test_the_models_own_end_and_no_end(folder, tmp_path, capsys):
    """The third token of the answer is made the end; with --stream it is one among others."""
    text = by_library(folder, "log_n", max_new_tokens=8).split()
    model, tokenizer = load(folder), AutoTokenizer.from_pretrained(folder)
    model.generation_config.eos_token_id = tokenizer.convert_tokens_to_ids(text[2])
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    for more, expected in (([], text[: text.index(text[2])]), (["--stream"], text)):
        given = ["--prompt", PROMPT, "--max-new-tokens", "8", *more]
        assert run(["generate", str(tmp_path), "log_n", *given]) == 0
        assert capsys.readouterr().out.split() == expected


def test_without_a_count_it_is_128(folder, capsys):
    assert run(["generate", str(folder), "--prompt", "w1 w2"]) == 0
    assert len(capsys.readouterr().out.split()) == 128
