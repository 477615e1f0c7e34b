"""The command as a shell meets it: its help, its errors, its end."""

import contextlib
import os
import pty
import re
import resource
import shlex
import signal
import subprocess
import sys

import pytest

from ropewalk.cli.main import run
from ropewalk.cli.parser import EXAMPLES
from ropewalk.train.recipes import recipe as running

PROMPT = " ".join(f"w{1 + n % 90}" for n in range(5000))
COMMAND = [sys.executable, "-m", "ropewalk"]
SURROUNDINGS = {"PATH": "", "PYTHONIOENCODING": "utf-8", "PYTHONPATH": ":".join(sys.path), "TERM": "xterm"}
each_verb = pytest.mark.parametrize("verb", EXAMPLES, ids=lambda verb: verb.__name__)


@pytest.mark.sampled(cases=4)
@each_verb
def test_help_has_an_example_that_is_understood(verb, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(running, "run", lambda recipe, out, texts, options: recipe.read(texts))  # no training
    assert run([verb.__name__, "--help"]) == 0
    assert EXAMPLES[verb] in " ".join(capsys.readouterr().out.split())
    done = run(shlex.split(EXAMPLES[verb])[1:])
    said = capsys.readouterr().err
    assert done == 0 or "existing" in said  # there is no ./model and no book.txt


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["bogus"], "No such command 'bogus'; "),
        (["generate"], "Missing argument 'model'; "),
        (["inspect", "x", "--target-len", "4"], "No such option: --target-len"),
        (["show", "--heads", "many"], "Invalid value for '--heads'"),
    ],
)
def test_misuse_is_one_line(arguments, said, capsys):
    assert run(arguments) == 2
    shown = capsys.readouterr().err
    assert said in shown
    assert re.search(r"ropewalk.*; see ropewalk.* --help\n$", shown)
    assert shown.count("\n") == 1


def test_nothing_shows_the_help(capsys):
    assert run([]) == 2
    shown = capsys.readouterr()
    assert "Commands" in shown.out
    assert shown.err == ""


@pytest.mark.nightly
def test_a_missing_package_is_named():
    """In a process of its own, where nothing has imported it before."""
    line = ["generate", "owner/name", "yarn", "--prompt", "x"]
    code = f"import sys; sys.modules['transformers'] = None; from ropewalk.cli.main import run; run({line!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=SURROUNDINGS)
    assert "pip install transformers" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.nightly
def test_too_little_memory_is_said_to_be_too_little(monkeypatch, capsys):
    def gone(*_, **__):
        raise MemoryError

    monkeypatch.setattr("ropewalk.cli.extension_page.parse", gone)
    assert run(["show", "yarn:factor=2"]) == 2
    assert capsys.readouterr().err.startswith("ropewalk: out of memory for the model and its cache; ")


def test_what_is_wrong_on_the_line_is_said_before_transformers_is_imported(folder, tmp_path):
    lines = [
        ["inspect", "no/such/folder"],
        ["extend", str(folder), "yarm", "-o", str(tmp_path / "out")],
        ["extend", str(folder), "yarn", "-o", str(folder)],
        ["export", str(folder), "yarn", "-o", str(tmp_path / "out"), "--target", "olama"],
        ["check", str(folder), "--engine", "vlm"],
        ["generate", str(folder), "yarn", "--to", "abc", "--prompt", "x"],
        ["generate", str(folder), "yarn", "--prompt-file", str(tmp_path / "out")],
    ]
    code = f"import sys; from ropewalk.cli.main import run; print([run(line) for line in {lines!r}])"
    code += "; print('transformers' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=SURROUNDINGS)
    assert done.stdout == "[2, 2, 2, 2, 2, 2, 2]\nFalse\n"


@pytest.fixture
def endless(folder, tmp_path):
    """A stream that goes on, its first bytes read."""
    (tmp_path / "prompt.txt").write_text("w1 w2")
    line = [*COMMAND, "generate", str(folder), "streaming", "--prompt-file", str(tmp_path / "prompt.txt"), "--stream"]
    running = subprocess.Popen(
        line,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=SURROUNDINGS,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # tests in the background ignore it
    )
    assert running.stdout.read(10)
    yield running
    running.kill()
    running.communicate()


@pytest.mark.nightly
def test_control_c_ends_in_one_line(endless):
    endless.send_signal(signal.SIGINT)
    _, said = endless.communicate(timeout=60)
    assert endless.returncode == 130
    assert said.decode() == "ropewalk: stopped\n"


# Raises Ctrl-C when a module is first looked for, in a process that hears it as a terminal's process does.
INTERRUPTED = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
class Finder:
    def find_spec(self, name, *_):
        if name == at:
            signal.raise_signal(signal.SIGINT)
at = sys.argv.pop(1)
sys.meta_path.insert(0, Finder())
from ropewalk.cli.main import main
main()
"""


def interrupted(at, line, place):
    arguments = shlex.split(line.replace("./model ", "default ").replace("--prompt-file book.txt", "--prompt w1"))
    command = [sys.executable, "-c", INTERRUPTED, at, *arguments[1:]]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=SURROUNDINGS, cwd=place)


@pytest.mark.sampled(cases=3)
@each_verb
def test_control_c_while_torch_is_imported(verb, tmp_path):
    done = interrupted("torch", EXAMPLES[verb], tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "ropewalk: stopped\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.sampled(cases=1)
@pytest.mark.parametrize("at", ["typer", "rich.console", "numpy", "transformers.modeling_utils", "tokenizers"])
def test_control_c_while_anything_is_imported(at, tmp_path):
    """transformers says of an import that was interrupted that a package is missing, and goes on."""
    done = interrupted(at, "ropewalk generate default --prompt w1 --max-new-tokens 1", tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "ropewalk: stopped\n")


@pytest.mark.nightly
def test_who_is_to_ignore_control_c_ignores_it(tmp_path):
    line = "ropewalk generate default --prompt w1 --max-new-tokens 1"
    ignoring = INTERRUPTED.replace("default_int_handler", "SIG_IGN")
    command = [sys.executable, "-c", ignoring, "torch", *shlex.split(line)[1:]]
    assert subprocess.run(command, capture_output=True, check=False, env=SURROUNDINGS).returncode == 0


def heavy(*arguments):
    """What takes long to import and was imported for a command."""
    code = f"import sys; from ropewalk.cli.main import run; code = run({list(arguments)!r})\n"
    code += "found = {'torch', 'transformers', 'matplotlib', 'numpy', 'optuna'} & set(sys.modules)\n"
    code += "print('imported', code, sorted(found))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=SURROUNDINGS)
    return done.stdout.splitlines()[-1]


@pytest.mark.sampled(cases=3)
@pytest.mark.parametrize("verb", ["", *(verb.__name__ for verb in EXAMPLES)])
def test_help_imports_nothing_that_takes_long(verb):
    assert heavy(*([verb] if verb else []), "--help") == "imported 0 []"


@pytest.mark.nightly
def test_the_list_imports_nothing_that_takes_long():
    assert heavy("show") == "imported 0 []"
    assert heavy("show", "yarn") == "imported 0 ['numpy', 'torch']"  # which is how the other answers are known to count


@pytest.mark.nightly
def test_a_pipe_that_closes_ends_it_silently(endless):
    endless.stdout.close()
    assert endless.wait(timeout=60) == 141
    assert endless.stderr.read() == b""


@pytest.mark.nightly
@pytest.mark.parametrize("verb", ["extend", "export"])
def test_a_full_disk_leaves_nothing(folder, tmp_path, verb):
    done = subprocess.run(
        [*COMMAND, verb, str(folder), "yarn", "--to", "128", "-o", str(tmp_path / "out")],
        capture_output=True,
        text=True,
        check=False,
        env=SURROUNDINGS,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000)),
    )
    assert done.returncode == 2
    assert re.fullmatch(r"ropewalk: .* must be written whole, got .*make room.*\n", done.stderr)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.nightly
def test_a_terminal_sees_how_far_a_text_is_read(folder, tmp_path):
    (tmp_path / "prompt.txt").write_text(PROMPT)
    ours, theirs = pty.openpty()
    given = ["--prompt-file", str(tmp_path / "prompt.txt"), "--max-new-tokens", "3"]
    done = subprocess.Popen(
        [*COMMAND, "generate", str(folder), "streaming", *given],
        stdout=subprocess.PIPE,
        stderr=theirs,
        env=SURROUNDINGS,
    )
    os.close(theirs)
    seen = b""
    with contextlib.suppress(OSError):  # so a terminal says that the other side is gone
        while part := os.read(ours, 1 << 16):
            seen += part
    assert len(done.communicate()[0].split()) == 3
    counts = [int(count.replace(",", "")) for count in re.findall(r"([\d,]+) of 5,000 tokens read", seen.decode())]
    assert counts == sorted(counts)
    assert 5000 in counts
    assert set(counts) <= {2048, 4096, 5000}
