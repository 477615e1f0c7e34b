"""What holds for every verb: help with an example, --json with the documented keys, exit status, output to a pipe."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from cli.eval_task import write_task
from measured_folder import small_folder

from ropewalk.cli import completion, exit_status
from ropewalk.cli.main import run
from ropewalk.cli.models import require_known
from ropewalk.cli.output import KEYS
from ropewalk.cli.parser import EXAMPLES, app
from ropewalk.errors import UnknownName
from ropewalk.extension.parsing import read_line

from train.texts import text

LONG_RUNNING = {"serve", "page"}  # they report nothing: they run until they are stopped, or write a page
SURROUNDINGS = {"PATH": "", "PYTHONIOENCODING": "utf-8", "PYTHONPATH": ":".join(sys.path), "TERM": "xterm-256color"}
VERBS = typer.main.get_command(app).commands
SMALL = "--set vocabulary=300 --set width=32 --set inner=48 --set layers=2 --set heads=2 --set trained_len=32"
LINES = {
    "compare": "compare default yarn --lengths 1k --samples 2 --tasks context --workers 1 -o out",
    "compare --all": "compare {small} --all --to 64 --samples 2 --tasks context --corpus {texts} --workers 1 -o out",
    "diagnose": "diagnose {small} rerope:window=8 --length 64 --texts 1 --corpus {texts} -o out",
    "eval": "eval {small} yarn --to 64 --tasks own --limit 1 --include-path {place} -o out",
    "fit": "fit {small} --to 64 --budget 1s --samples 2 --judges 2 --corpus {texts} -o out --save",
    "show": "show",
    "show EXTENSION": "show yarn+rerope",
    "show --cite": "show yarn --cite",
    "inspect": "inspect default --to 1k",
    "extend": "extend default yarn --to 1k -o out",
    "export": "export default yarn --to 1k --target vllm -o out",
    "check": "check default",
    "generate": "generate default yarn --to 1k --prompt def --max-new-tokens 3",
    "stream": "stream default streaming --tokens 600 -o out",
    "train": "train pretrain --out out --set steps=1 --set rows=2 --set corpus={texts} " + SMALL,
    "train --list": "train --list",
}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    path = small_folder(tmp_path_factory.mktemp("conventions"), texts=160)
    write_task(path, [text(0, words=9)])
    return path


def typed(line, place):
    return line.format(small=place / "model", texts=f"folder:{place / 'texts'}", place=place).split()


@pytest.mark.sampled(cases=2)
@pytest.mark.parametrize("name", LINES)
def test_json_is_all_of_the_output_and_has_the_documented_keys(name, place, tmp_path, monkeypatch, capfd):
    if name == "eval":
        pytest.importorskip("lm_eval", reason="the extra eval is not installed")
    monkeypatch.chdir(tmp_path)
    assert run([*typed(LINES[name], place), "--json"]) == 0
    printed = json.loads(capfd.readouterr().out, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    assert set(printed) == set(KEYS[name])
    if "folder" in printed:
        assert any(Path(printed["folder"]).iterdir())
    files = [path for path in Path().rglob("*.json") if path.name in ("results.json", "diagnosis.json", "stream.json")]
    for file in files:  # the same as the report's file
        stored = json.loads(file.read_text())
        assert set(stored) == set(printed) - {"folder", "load"}
        assert {key for key in stored if stored[key] != printed[key]} <= {"made"} or name == "fit"


def test_every_verb_that_reports_has_it():
    takes = {name for name, verb in VERBS.items() if any("--json" in option.opts for option in verb.params)}
    assert takes == {name.split()[0] for name in KEYS} == set(VERBS) - LONG_RUNNING
    elsewhere = {"check --running", "compare --redo"}  # tests/engines/check/test_running.py, tests/measure/test_redo.py
    assert set(KEYS) - elsewhere == set(LINES)


@pytest.mark.parametrize("verb", [verb.__name__ for verb in EXAMPLES])
def test_help_explains_every_argument_and_has_an_example(verb, capsys):
    assert run([verb, "--help"]) == 0
    assert f"Example: ropewalk {verb}" in " ".join(capsys.readouterr().out.split())
    assert VERBS[verb].help
    for parameter in VERBS[verb].params:
        assert parameter.help, parameter.name


def shell(*arguments, reader=None, **surroundings):
    """The command in a shell of its own; `reader`: what its output is piped into."""
    command = [sys.executable, "-m", "ropewalk", *arguments]
    output = subprocess.PIPE if reader is None else reader
    environment = {**SURROUNDINGS, **surroundings}
    return subprocess.run(command, stdout=output, stderr=subprocess.PIPE, text=True, check=False, env=environment)


def test_the_version():
    done = shell("--version")
    assert (done.returncode, done.stderr) == (exit_status.DONE, "")
    assert re.fullmatch(r"ropewalk \d+\.\d+\.\d+\S*\n", done.stdout)


@pytest.mark.sampled(cases=1)
@pytest.mark.parametrize(
    "line", ["show", "show yarn:factor=2 --json", "--help", "compare --help", "--version", "check default"]
)
def test_output_to_a_reader_that_is_gone(line):
    """As in `ropewalk show | head`, where head ends first: no traceback, and the status of SIGPIPE."""
    read, write = os.pipe()
    os.close(read)
    done = shell(*line.split(), reader=write)
    os.close(write)
    assert (done.returncode, done.stderr) == (exit_status.READER_GONE, "")


@pytest.mark.sampled(cases=6)
@pytest.mark.parametrize("verb", sorted(set(VERBS) - LONG_RUNNING))
def test_wrong_use_is_refused_in_one_line(verb, capsys):
    """An unknown option, and, where a model is loaded, one that does not exist."""
    assert run([verb, "--no-such-option"]) == exit_status.REFUSED
    needed = {"extend": ["yarn", "-o", "x"], "export": ["yarn"], "eval": ["yarn"], "stream": ["yarn"]}
    lines = {
        "show": ["show", "yern"],
        "train": ["train", "pretrian"],
        "generate": ["generate", "no/such/model", "--prompt", "x"],
    }
    assert run(lines.get(verb, [verb, "no/such/model", *needed.get(verb, [])])) == exit_status.REFUSED
    shown = capsys.readouterr()
    assert shown.out == ""
    first, second = shown.err.splitlines()
    assert first.startswith("ropewalk: No such option: --no-such-option")
    assert second.startswith("ropewalk: ")


def test_errors_leave_the_output_empty_with_json_too(capsys):
    assert run(["show", "yern", "--json"]) == exit_status.REFUSED
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("colour", [True, False])
def test_no_color(colour):
    """A terminal is pretended, since colours go to terminals alone; bold and italic are no colours."""
    shown = shell("--help", **{"FORCE_COLOR": "1"} | ({} if colour else {"NO_COLOR": "1"})).stdout
    assert "\x1b[" in shown
    assert bool(re.search(r"\x1b\[(?:\d+;)*[34]\d[;m]", shown)) == colour


def test_every_exit_status_has_its_meaning():
    stated = {value for name, value in vars(exit_status).items() if name.isupper() and isinstance(value, int)}
    assert stated == set(exit_status.MEANINGS)


@pytest.mark.sampled(cases=3)
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("show rero", ["rerope", "rerope_by_parts"]),
        ("show yarn+log_", ["yarn+log_n"]),
        ("compare def", ["default"]),
        ("compare default yarn self_e", ["self_extend"]),
        ("generate default self_e", ["self_extend"]),
        ("fit --deployable vl", ["vllm"]),
        ("export default yarn --target torcht", ["torchtitan"]),
        ("diag", ["diagnose"]),
        ("compare --corp", ["--corpus"]),
        ("show yarn:fac", []),
        ("show dynamic", ["dynamic_ntk", "dynamic_yarn"]),  # dynamic alone is a schedule and a scale
        ("show scales.", ["scales.dynamic"]),
    ],
)
def test_a_shell_completes(line, expected):
    words = ["ropewalk", *line.split()]
    asked = {"COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1), "_ROPEWALK_COMPLETE": "complete_bash"}
    done = shell(**asked)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == expected


def test_every_completed_name_is_one_that_is_read():
    for name, idea in completion.extensions(""):
        assert read_line(name).terms
        assert idea


@pytest.mark.sampled(cases=2)
@pytest.mark.parametrize(
    ("line", "status", "said"),
    [
        ("show", 0, "papers and systems"),
        ("train --list", 0, "the settings of one: ropewalk train recipe --list"),
        ("train pretrian", 2, "there is no recipe 'pretrian'; did you mean 'pretrain'?"),
        ("show yarm", 2, "there is no preset or method 'yarm'; did you mean 'yarn'?"),
        ("show rerop+log_n", 2, "there is no preset or method 'rerop'; did you mean 'rerope' or 'rope'"),
        ("compare default yarn bare rerope+logn", 2, "there is no preset or method 'logn'; did you mean 'log_n'"),
        *((f"{verb} default yarm", 2, "'yarm'; did you mean 'yarn'?") for verb in ("diagnose", "generate", "page")),
        *(
            (f"{verb} default yarm", 2, "'yarm'; did you mean 'yarn'?")
            for verb in ("eval", "extend", "export", "serve")
        ),
        *(
            (f"{line} --out /proc", 2, "where files can be written, got '/proc'")
            for line in ("compare default", "diagnose default", "fit default --to 4k")
        ),
    ],
)
def test_what_is_said_at_once(line, status, said):
    """Lists, and names that do not exist: nothing is imported that takes seconds."""
    code = f"import sys; from ropewalk.cli.main import run; status = run({line.split()!r});"
    code += " sys.exit(99 if {'torch', 'transformers', 'numpy'} & set(sys.modules) else status)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=SURROUNDINGS)
    assert done.returncode == status, done
    assert said in " ".join((done.stdout + done.stderr).lower().split())


@pytest.mark.sampled(cases=2)
@pytest.mark.parametrize("line", ["yarm", "frequencies", "rerop+log_n", "log_nn", "qqqqqqq"])
def test_a_name_is_refused_in_the_words_of_those_that_read_lines(line):
    """The command line knows names from files, and the others from what the files define."""
    with pytest.raises(UnknownName) as at_once:
        require_known(line)
    with pytest.raises(UnknownName) as read:
        read_line(line)
    assert str(at_once.value) == str(read.value)


def test_completion_is_installed_and_imports_nothing_that_takes_long(tmp_path):
    done = shell("--show-completion", "bash", _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    assert "_ROPEWALK_COMPLETE=complete_bash" in done.stdout
    code = "import sys; from ropewalk.cli.completion import extensions; names = extensions('');"
    code += " print(len(names), sorted({'torch', 'transformers', 'numpy'} & set(sys.modules)))"
    command = [sys.executable, "-c", code]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, env=SURROUNDINGS).stdout
    assert re.fullmatch(r"\d\d \[\]\n", printed)
