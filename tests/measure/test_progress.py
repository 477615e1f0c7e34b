"""Progress: a bar on a terminal's error stream or in a notebook's cell, lines in a log, or nothing."""

import io
import sys
import time
from types import SimpleNamespace

import pytest
from rich.console import Console

from ropewalk.measure import progress


def shown_progress(monkeypatch, capsys, *, terminal, **given):
    """What the error stream gets while a job reports half and the whole of its work."""
    monkeypatch.setattr("sys.stderr.isatty", lambda: terminal)
    monkeypatch.setenv("TERM", "xterm")
    with progress.showing_progress("reading", **given) as show:
        show(1, 2)
        show(2, 2, "writing")
        show.close()
        show.close()
    said = capsys.readouterr()
    assert said.out == ""
    return said.err


def test_a_line_now_and_then_where_there_is_no_terminal(monkeypatch, capsys):
    """By the clock, also while nothing is reported."""
    monkeypatch.setattr("sys.stderr.isatty", lambda: False)
    monkeypatch.setattr(progress, "FIRST_LINE_SECONDS", 0.01)
    monkeypatch.setattr(progress, "INTERVAL", 0.01)
    with progress.showing_progress("reading", shown="lines") as show:
        time.sleep(0.1)
        show(1, 2)
        time.sleep(0.1)
        show(2, 2, "writing")
        time.sleep(0.1)
    said = capsys.readouterr().err.splitlines()
    assert list(dict.fromkeys(said)) == ["ropewalk: reading", "ropewalk: reading, 50%", "ropewalk: writing, 100%"]
    assert len(said) > 3
    time.sleep(0.05)
    assert capsys.readouterr().err == ""  # it has ended


def test_the_first_line_comes_soon(monkeypatch, capsys):
    monkeypatch.setattr("sys.stderr.isatty", lambda: False)
    monkeypatch.setattr(progress, "FIRST_LINE_SECONDS", 0.02)
    monkeypatch.setattr(progress, "INTERVAL", 1e6)
    with progress.showing_progress("loading the model", shown="lines"):
        time.sleep(0.2)
    assert capsys.readouterr().err == "ropewalk: loading the model\n"


def test_a_line_says_what_is_left(monkeypatch):
    """By what was done since the first second: what is reported before it was done before."""
    clock = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(progress, "FIRST_LINE_SECONDS", 1e6)
    lines = progress.LinesNowAndThen("reading")
    lines.show("reading", 40, 100)
    assert lines._share() == ", 40%"
    clock[0] += 60
    lines.show("reading", 60, 100)  # 20 in 60 s: 40 more take 120 s
    assert lines._share() == ", 60%, about 2 min left"
    clock[0] += 40
    assert lines._share() == ", 60%, about 80 s left"
    clock[0] += 90
    assert lines._share() == ", 60%"  # longer than it seemed: nobody knows
    lines.close()


def test_nothing_where_nobody_looks(monkeypatch, capsys):
    assert shown_progress(monkeypatch, capsys, terminal=False) == ""


def test_a_bar_on_a_terminal(monkeypatch, capsys):
    monkeypatch.setattr(Console, "is_terminal", property(lambda _: True))
    shown = shown_progress(monkeypatch, capsys, terminal=True)
    assert "reading" in shown
    assert "━" in shown
    assert "ropewalk:" not in shown


class Kernel:
    """What IPython has in a notebook: a shell with a kernel, and outputs that can be replaced."""

    def __init__(self, kernel):
        self.outputs, self.shown = [], 0
        shell = SimpleNamespace(kernel=True) if kernel else SimpleNamespace()
        self.modules = {
            "IPython": SimpleNamespace(get_ipython=lambda: shell),
            "IPython.display": SimpleNamespace(display=self.display),
        }

    def display(self, data, *, raw, display_id):
        assert display_id is True
        self.shown += 1
        self.update(data, raw=raw)
        return SimpleNamespace(update=self.update)

    def update(self, data, *, raw):
        assert raw is True
        assert set(data) == {"text/html", "text/plain"}
        self.outputs.append(data["text/html"])


def in_kernel(monkeypatch, kernel=True):
    shell = Kernel(kernel)
    for name, module in shell.modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    return shell


def test_one_bar_in_a_notebook_which_is_gone_at_the_end(monkeypatch, capsys):
    shell = in_kernel(monkeypatch)
    assert shown_progress(monkeypatch, capsys, terminal=False) == ""
    assert shell.shown == 1
    assert "<progress></progress> reading" in shell.outputs[0]
    assert '<progress value="0.5000"></progress> reading 50%' in shell.outputs[1]
    assert "writing 100%" in shell.outputs[2]
    assert shell.outputs[3:] == [""]


def test_a_notebooks_bar_is_not_drawn_too_often(monkeypatch):
    shell = in_kernel(monkeypatch)
    with progress.showing_progress("reading") as show:
        for done in range(1000):
            show(done, 1000)
    assert len(shell.outputs) < 50


def test_ipython_on_a_terminal_is_a_terminal(monkeypatch):
    in_kernel(monkeypatch, kernel=False)
    assert not progress.in_notebook()


@pytest.mark.parametrize("notebook", [False, True])
def test_nothing_where_it_is_off(monkeypatch, capsys, notebook):
    shell = in_kernel(monkeypatch, kernel=notebook)
    assert shown_progress(monkeypatch, capsys, terminal=True, shown=False) == ""
    assert shell.outputs == []


def test_a_label_is_escaped():
    assert progress.bar_as_html("<b>", 3, 2) == '<div><progress value="1.0000"></progress> &lt;b&gt; 100%</div>'


def test_a_note_is_printed_where_progress_is_shown(monkeypatch, capsys):
    monkeypatch.setattr("sys.stderr.isatty", lambda: False)
    for shown in ("lines", True, False):
        with progress.showing_progress("x", shown=shown) as show:
            show.note(f"with {shown}")
    assert capsys.readouterr().err == "ropewalk: with lines\n"


def test_a_terminal_has_the_last_table_above_the_bar(monkeypatch):
    """In place of the one before; a row that is too long is cut, and all is gone at the end."""
    drawn = Console(file=io.StringIO(), force_terminal=True, width=40, height=12, color_system=None)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setattr(progress, "Console", lambda stderr: drawn)
    with progress.showing_progress("reading", shown="lines") as show:
        show(1, 2)
        for table in ("after 1 text\n  yarn  1.5", f"after 2 texts\n  yarn  1.4\n  {'long' * 20}"):
            show.table(table)
        bar = show._display._bar
        paper = Console(file=io.StringIO(), width=40, color_system=None)
        paper.print(bar.get_renderable())
        screen = [line.rstrip() for line in paper.file.getvalue().splitlines()]
        assert screen[:2] == ["after 2 texts", "  yarn  1.4"]
        assert screen[2].startswith("  longlong")
        assert screen[2].endswith("…")
        assert len(screen[2]) == 40
        assert screen[3].startswith("reading")
    assert drawn.file.getvalue().endswith("\x1b[2K")  # the last of its lines is erased too


@pytest.mark.parametrize(("shown", "terminal"), [(False, True), (True, False)])
def test_a_table_is_shown_only_where_progress_is(monkeypatch, capsys, shown, terminal):
    monkeypatch.setattr("sys.stderr.isatty", lambda: terminal)
    with progress.showing_progress("reading", shown=shown) as show:
        show.table("after 1 text")
    assert capsys.readouterr() == ("", "")
