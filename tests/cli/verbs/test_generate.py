"""`ropewalk generate`: the tokens are those of the library, printed as they come, the text read in chunks."""

import json
import math
import shutil

import pytest
from transformers import AutoTokenizer

from ropewalk import Facts, ape_stream, contrast_stream, extended, load, nbce_generate, parse, stream
from ropewalk.cli.length_limits import covered_length, limit_of
from ropewalk.cli.main import run

from hf.architectures import small

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
    monkeypatch.setattr("ropewalk.hf.use.long_text.stream.__kwdefaults__", stream.__kwdefaults__ | {"piece": 16})
    monkeypatch.setattr("ropewalk.measure.progress.WorkProgress.__call__", lambda _, *told: read.append(told))
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


def test_one_text_under_two_rotations(folder, tmp_path, capsys):
    rule, more = "positional_contrast:beta=1,new_base=40", ["--prompt", PROMPT, "--max-new-tokens", "6"]
    assert run(["generate", str(folder), f"{rule}+rerope:window=8", *more]) == 0
    model, tokenizer = load(folder), AutoTokenizer.from_pretrained(folder)
    ids = tokenizer(PROMPT, return_tensors="pt")["input_ids"]
    made = list(contrast_stream(model, ids, rule, extension="rerope:window=8", max_new_tokens=6))
    assert capsys.readouterr().out == tokenizer.decode(made) + "\n"
    (tmp_path / "one").write_text(PROMPT)
    assert run(["generate", str(folder), rule, "--contexts", str(tmp_path), "--question", "w7"]) == 2
    assert "positional_contrast reads one text; use --prompt or --prompt-file" in capsys.readouterr().err


def test_contexts_joined_in_attention(folder, tmp_path, capsys):
    contexts, rule = [f"w5 w6 {PROMPT}", "w9 w10"], "ape:temperature=0.8,scale=0.7"
    for name, text in zip(("one", "two"), contexts, strict=True):
        (tmp_path / name).write_text(text)
    asked = ["--contexts", str(tmp_path), "--question", "w7 w8", "--max-new-tokens", "5"]
    assert run(["generate", str(folder), f"{rule}+yarn:factor=4", *asked, "--prefix", "w11 w12"]) == 0
    shown = capsys.readouterr()
    model, tokenizer = load(folder), AutoTokenizer.from_pretrained(folder)
    given = {"decoding": rule, "prefix": "w11 w12", "extension": "yarn:factor=4", "max_new_tokens": 5}
    made = list(ape_stream(model, tokenizer, contexts, "w7 w8", **given))
    assert shown.out == tokenizer.decode(made, skip_special_tokens=True) + "\n"
    assert shown.err == ""  # the schedule covers 128 tokens
    for line, said in (
        ("nbce", "--prefix is for ape alone; leave --prefix out"),
        (f"{rule}+rerope:window=8", "rerope"),
    ):
        assert run(["generate", str(folder), line, *asked, "--prefix", "w11"]) == 2
        assert said in capsys.readouterr().err
    assert run(["generate", str(folder), rule, "--prompt", "w7"]) == 2
    assert "ape needs --contexts and --question" in capsys.readouterr().err


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


def generated(folder, capsys, *given):
    assert run(["generate", str(folder), *given]) == 0
    return capsys.readouterr()


def test_without_a_length_it_is_what_the_prompt_and_its_answer_need(folder, capsys):
    """50 tokens and 14 to come, by a model of 32: a factor of 2."""
    given = ["--prompt", PROMPT, "--max-new-tokens", "14"]
    shown = generated(folder, capsys, "yarn", *given)
    assert shown.out == generated(folder, capsys, "yarn", "--to", "64", *given).out
    assert shown.out == by_library(folder, "yarn:factor=2", max_new_tokens=14) + "\n"
    assert shown.err == ""


def test_a_short_prompt_needs_no_extension(folder, capsys):
    given = ["--prompt", "w1 w2", "--max-new-tokens", "9"]
    assert generated(folder, capsys, "yarn", *given).out == generated(folder, capsys, *given).out


def test_without_end_no_length_is_known(folder, capsys):
    assert run(["generate", str(folder), "yarn", "--prompt", "w1 w2", "--stream"]) == 2
    assert "the target length (--to)" in capsys.readouterr().err


def test_a_prompt_beyond_the_length_to_reach_is_refused(folder, capsys, monkeypatch):
    monkeypatch.setattr("ropewalk.cli.verbs.generate.load_and_place", None)  # would fail where it is called
    assert run(["generate", str(folder), "yarn", "--to", "49", "--prompt", PROMPT]) == 2
    assert capsys.readouterr().err == "ropewalk: --to must be at least the prompt's 50 tokens, got 49\n"


@pytest.mark.sampled(cases=2)
@pytest.mark.parametrize(
    ("line", "said"),
    [
        ([], "the text now exceeds 32 tokens, the trained length of the model; for more use yarn or rerope"),
        (
            ["log_n"],
            "the text now exceeds 32 tokens, the length that the extension covers; for more use yarn or rerope",
        ),
        (["pi:factor=1.75"], "the text now exceeds 56 tokens, the length that the extension covers; "),
        (
            ["leaky_rerope:window=8,leak=2"],
            "the text now exceeds 55 tokens, the length that the extension covers",
        ),  # 8 + 46 / 2 = 31
        (["yarn", "--to", "60"], "the text now exceeds 60 tokens, the length of --to\n"),
        (["rerope", "--to", "52"], "the text now exceeds 52 tokens, the length of --to\n"),
    ],
)
def test_what_is_beyond_is_said_once(folder, capsys, line, said):
    """20 tokens after 50."""
    shown = generated(folder, capsys, *line, "--prompt", PROMPT, "--max-new-tokens", "20")
    assert shown.err.startswith("ropewalk: the text now exceeds ")
    assert said in shown.err
    assert shown.err.count("\n") == 1
    assert len(shown.out.split()) == 20


@pytest.mark.parametrize(("to", "tokens"), [(None, math.inf), (60, 60)])
def test_a_model_whose_trained_length_is_unknown_is_limited_by_to_alone(to, tokens):
    assert limit_of(small("bloom"), to) == (tokens, "the length of --to")


@pytest.mark.sampled(cases=3)
@pytest.mark.parametrize("line", ["rerope", "streaming", "dynamic_yarn", "window", "self_extend", "nope", "xpos+bca"])
def test_what_shows_no_new_distances_is_not_warned_of(folder, capsys, line):
    assert generated(folder, capsys, line, "--prompt", PROMPT, "--max-new-tokens", "20").err == ""


def test_an_answer_about_contexts_is_as_long_as_the_longest_of_them(folder, tmp_path, capsys):
    for name, text in (("one", "w5 w6"), ("two", " ".join(["w9"] * 28))):
        (tmp_path / name).write_text(text)
    asked = ["--contexts", str(tmp_path), "--question", "w7 w8", "--max-new-tokens", "5"]
    assert "exceeds 32 tokens" in generated(folder, capsys, "nbce", *asked).err
    assert generated(folder, capsys, "nbce", *asked[:-1], "2").err == ""


@pytest.mark.parametrize(
    ("line", "length"),
    [
        ("rope", 32),
        ("yarn:factor=4", 128),
        ("rerope:window=8", math.inf),
        ("window:window=20", math.inf),
        ("window:window=40", 32),  # distances up to 39
        ("self_extend:window=8,group=4", 104),  # i//4 + 8 - 8//4 is 31 up to i = 103
        ("string:shift=10,local=4", 38),  # 32 + 10 - 4
        ("string:shift=10,local=4+yarn:factor=4", 134),
        ("hwfa:window=4", math.inf),  # its last layer turns nothing
        ("hwfa_rerope:window=4,rerope_window=20", math.inf),
    ],
)
def test_lengths_that_are_familiar(line, length):
    facts = Facts(trained_len=32, head_dim=8, layers=3)
    assert covered_length(parse(line, trained_len=32, layers=3), facts) == length


TEMPLATE = (
    "{% for message in messages %}w1 {{ message.content }} w2{% endfor %}{% if add_generation_prompt %} w3{% endif %}"
)


def test_a_chat_goes_through_the_models_template(folder, tmp_path, capsys):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = TEMPLATE
    shutil.copytree(folder, tmp_path / "chats")
    tokenizer.save_pretrained(tmp_path / "chats")
    asked = ["generate", str(tmp_path / "chats"), "--max-new-tokens", "4", "--json"]
    assert run([*asked, "--chat", "--prompt", "w8 w9"]) == 0
    chat = json.loads(capsys.readouterr().out)
    assert run([*asked, "--prompt", "w1 w8 w9 w2 w3"]) == 0
    assert chat == json.loads(capsys.readouterr().out)
    assert run([*asked, "--prompt", "w8 w9"]) == 0
    assert chat["tokens"] != json.loads(capsys.readouterr().out)["tokens"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--prompt", "x"], "the model has no chat template; leave --chat out"),
        (["--contexts", ".", "--question", "x"], "--chat and --contexts do not go together"),
    ],
)
def test_a_chat_needs_a_template_and_one_prompt(folder, given, said, capsys):
    assert run(["generate", str(folder), "nbce" if "--contexts" in given else "", "--chat", *given]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    "template", ["{{ raise_exception('roles must alternate') }}", "{{ 1 / 0 }}", "{% for %}", "{{ x.y.z }}"]
)
def test_a_chat_template_that_raises_is_one_line(folder, tmp_path, capsys, template):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = template
    shutil.copytree(folder, tmp_path / "chats")
    tokenizer.save_pretrained(tmp_path / "chats")
    assert run(["generate", str(tmp_path / "chats"), "--chat", "--prompt", "w8"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("ropewalk: the model's chat template cannot write the message: ")
    assert said.endswith("; correct the template beside the model\n")
    assert said.count("\n") == 1
