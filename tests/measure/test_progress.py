"""Progress: a bar on a terminal's error stream or in a notebook's cell, lines in a log, or nothing."""

from rich.console import Console

from ropewalk.measure import progress


def shown_progress(monkeypatch, capsys, *, terminal, **given):
    """What the error stream gets while a job reports half and the whole of its work."""
    monkeypatch.setattr(progress, "INTERVAL", 0.0)
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
    shown = shown_progress(monkeypatch, capsys, terminal=False, shown="lines")
    assert shown == "ropewalk: reading, 50%\nropewalk: writing, 100%\n"


def test_nothing_where_nobody_looks(monkeypatch, capsys):
    assert shown_progress(monkeypatch, capsys, terminal=False) == ""


def test_a_bar_on_a_terminal(monkeypatch, capsys):
    monkeypatch.setattr(Console, "is_terminal", property(lambda _: True))
    shown = shown_progress(monkeypatch, capsys, terminal=True)
    assert "reading" in shown
    assert "━" in shown
    assert "ropewalk:" not in shown
