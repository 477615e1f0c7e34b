"""Tasks from outside the package: in a file, in an installed package; what is refused, and what a change means."""

import copy
import pickle
import re
import subprocess
import sys
import textwrap

import pytest

import ropewalk as rw
from ropewalk.errors import Conflict, InvalidValue, RopewalkError, UnknownName, Unreadable
from ropewalk.measure.comparison import runner as cells
from ropewalk.measure.comparison.comparison import measure_candidates
from ropewalk.measure.comparison.runner import Cell, measure_here
from ropewalk.measure.comparison.store import Store
from ropewalk.measure.comparison.workers import side_by_side
from ropewalk.measure.tasks import Context, Passkey
from ropewalk.measure.tasks.outside import source_mark, tasks_in
from ropewalk.measure.tasks.task_line import tasks_named

from measure.subjects import TRAINED, subject

HEAD = '''
"""Counting: the length of the text, and a number of the file."""
from dataclasses import dataclass
from typing import Annotated, ClassVar
from ropewalk.measure.metrics.intervals import LOSS, means
from ropewalk.measure.tasks.task import Task
'''
TASK = """
@dataclass(frozen=True, kw_only=True)
class {title}(Task):
    name: ClassVar[str] = "{name}"
    more: Annotated[int, "added to the length"] = 0

    def measure(self, subject, length, sample):
        return {{"loss": float(length + self.more + {number})}}

    def condense(self, results):
        return means(results, loss=LOSS)
"""


@pytest.fixture
def write(tmp_path):
    """A file with tasks, by their names."""

    def written(*names, number=0, file="my_task.py", more=""):
        tasks = "".join(TASK.format(title=name.title(), name=name, number=number) for name in names)
        path = tmp_path / file
        path.write_text(HEAD.lstrip() + tasks + textwrap.dedent(more))
        return str(path)

    return written


def test_a_file_has_all_its_tasks_with_their_values(write):
    path = write("counting", "other")
    counting, other = tasks_in(path)
    assert tasks_named(f"{path}:more=3,samples=5,passkey", 2) == (
        Context(samples=2),
        counting(more=3, samples=5),
        other(more=3, samples=5),
        Passkey(samples=2),
    )
    assert tasks_in(path) == (counting, other)  # the file runs once
    with pytest.raises(UnknownName, match="counting has no parameter 'mor'; did you mean 'more'"):
        tasks_named(f"{path}:mor=3", 2)


def test_a_path_may_be_relative_and_have_blanks(write, tmp_path, monkeypatch):
    (tmp_path / "a folder").mkdir()
    write("counting", file="a folder/my task.py")
    monkeypatch.chdir(tmp_path)
    assert [task.name for task in tasks_named("./a folder/my task.py", 2)] == ["context", "counting"]


def test_classes_with_an_underscore_and_imported_ones_are_no_tasks_of_the_file(write):
    more = """
    from ropewalk.measure.tasks import Passkey
    class _Base(Task):
        pass
    class Material:
        pass
    Same = Counting
    """
    assert [task.name for task in tasks_in(write("counting", more=more))] == ["counting"]


@pytest.mark.parametrize(
    ("names", "more", "error", "words"),
    [
        ((), "", Unreadable, r"my_task.py has no task; write a class that extends ropewalk.*Task; CONTRIBUTING.md has"),
        (
            (),
            "x = 1\ny = = 2\n",
            Unreadable,
            r"my_task.py cannot be run: line 7: SyntaxError: invalid syntax.*; correct it",
        ),
        (
            (),
            "\n\n1 / 0\n",
            Unreadable,
            r"my_task.py cannot be run: line 8: ZeroDivisionError: division by zero; correct",
        ),
        ((), "import no_such_module\n", Unreadable, "line 6: ModuleNotFoundError: No module named 'no_such_module'"),
        (
            ("counting",),
            "\nclass Other(Counting):\n    name = 'other'\n",
            InvalidValue,
            "the class Other in .* is no record; wr",
        ),
        (
            (),
            "\n@dataclass(frozen=True, kw_only=True)\nclass Short(Task):\n    name: ClassVar[str] = 'short'\n",
            InvalidValue,
            "the task short in .*my_task.py has no function condense; CONTRIBUTING.md has an example",
        ),
        (
            (),
            "\n@dataclass(frozen=True, kw_only=True)\nclass Short(Task):\n    pass\n",
            InvalidValue,
            "the task Short in .*my_task.py needs a name of letters, digits and underscores; write name: ClassVar",
        ),
        (
            ("counting",),
            "\n@dataclass(frozen=True, kw_only=True)\nclass Again(Counting):\n    pass\n",
            Conflict,
            "my_task.py has 2 tasks of the name counting; give each a name of its own",
        ),
    ],
)
def test_a_file_that_is_refused(write, names, more, error, words):
    path = write(*names, more=more)
    with pytest.raises(error, match=words):
        tasks_named(path, 2)
    with pytest.raises(error, match=words):  # a second time, too
        tasks_named(path, 2)


def test_a_name_of_ours_is_refused(write):
    words = r"the task needle in .*my_task.py has the name of a task of Ropewalk; give it another name"
    with pytest.raises(Conflict, match=words):
        tasks_named(write("counting", "needle"), 2)


def test_a_path_that_is_refused(write, tmp_path):
    with pytest.raises(Unreadable, match=r"tasks must be a file with a task, got .*none.py'; No such file"):
        tasks_named(str(tmp_path / "none.py"), 2)
    with pytest.raises(UnknownName, match=r"no task 'my_task'.*; a file of tasks is named by its path: ./my_task.py"):
        tasks_named("my_task", 2)
    path, copied = write("counting"), write("counting", number=1, file="copy.py")
    with pytest.raises(Conflict, match="the task counting is named twice; name every task once"):
        tasks_named(f"{path},{copied}", 2)


@pytest.mark.nightly
def test_a_task_travels_with_its_file(write, tmp_path):
    (kind,) = tasks_in(write("counting", number=7))
    task = kind(more=2, samples=3)
    assert copy.deepcopy(task) == task == pickle.loads(pickle.dumps(task))
    (tmp_path / "task.pickle").write_bytes(pickle.dumps(task))
    (tmp_path / "my_task.py").unlink()
    code = "import pickle, sys; t = pickle.load(open(sys.argv[1], 'rb')); print(t, t.measure(None, 10, 0))"
    done = subprocess.run([sys.executable, "-c", code, tmp_path / "task.pickle"], capture_output=True, text=True)
    assert done.stdout.strip() == "counting:samples=3,more=2 {'loss': 19.0}", done.stderr


def test_a_key_has_the_file_and_those_of_the_package_stay(write, monkeypatch):
    monkeypatch.setattr(cells, "code_marks", lambda: {"sources": "abc"})  # which changes with the code

    def key(task):
        return Cell(rw.Extension(), task, 64, 0).key({})

    (first,), (same,) = tasks_in(write("counting")), tasks_in(write("counting", file="elsewhere.py"))
    (changed,) = tasks_in(write("counting", number=1))
    assert first().to_json() == changed().to_json()
    assert key(first()) == key(same()) != key(changed())
    assert re.fullmatch("[0-9a-f]{16}", source_mark(first()))
    assert source_mark(Passkey()) == ""
    # The key of a task of the package changes only with the code that measures, or older numbers would be lost.
    assert key(Passkey()) == "b05309621ce617df31fe68d7e277bbf4bfee35cf20d638db97359ea5944dde57"


@pytest.mark.parametrize("measuring", [measure_here, side_by_side(2)], ids=["here", "two processes"])
def test_a_changed_file_is_measured_anew_and_an_unchanged_one_is_not(write, tmp_path, measuring):
    who, store = subject(tmp_path, longest=64), Store(tmp_path / "cells.sqlite")

    def losses(path):
        seen = []
        how = {"measuring": measuring, "progress": lambda cell, _: seen.append(cell)}
        run = measure_candidates(who, [], [64], store, tasks=tasks_named(path, 2), **how)
        assert len(seen) == 8
        return [sample["loss"] for row in run.base.rows if row.task.name == "counting" for sample in row.samples]

    count = len(store.keys())
    assert losses(write("counting")) == [TRAINED, TRAINED, 64, 64]
    first = len(store.keys())
    assert losses(write("counting")) == [TRAINED, TRAINED, 64, 64]
    assert (count, len(store.keys())) == (0, first)
    assert losses(write("counting", number=5)) == [TRAINED + 5, TRAINED + 5, 69, 69]
    assert len(store.keys()) == first + 4


# Installed packages


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package on the path with a module of tasks; a call says what its entry points lead to."""
    written, place = [], tmp_path / "packages"

    def install(points, names=("counting",), title="my-package", broken=""):
        module = f"{title.replace('-', '_')}_{len(written)}"
        info = place / f"{module}-1.0.dist-info"
        info.mkdir(parents=True)
        tasks = "".join(TASK.format(title=name.title(), name=name, number=0) for name in names)
        (place / f"{module}.py").write_text(HEAD.lstrip() + tasks + broken)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {title}\nVersion: 1.0\n")
        lines = "".join(f"{name} = {module}:{target}\n" for name, target in points.items())
        (info / "entry_points.txt").write_text(f"[ropewalk.tasks]\n{lines}")
        monkeypatch.syspath_prepend(str(place))
        written.append(module)

    yield install
    for module in written:
        sys.modules.pop(module, None)


def test_a_task_of_an_installed_package_is_named_like_one_of_ours(package):
    package({"counting": "Counting"})
    context, task = tasks_named("counting:more=4", 2)
    assert (context, str(task)) == (Context(samples=2), "counting:samples=2,more=4")
    assert re.fullmatch("[0-9a-f]{16}", source_mark(task))
    assert pickle.loads(pickle.dumps(task)) == task
    with pytest.raises(UnknownName, match=r"no task 'countin'; did you mean 'counting'.* Known: context, .*counting"):
        tasks_named("countin", 2)


@pytest.mark.parametrize(
    ("points", "more", "asked", "error", "words"),
    [
        (
            {"needle": "Counting"},
            {},
            "needle",
            Conflict,
            "the task needle of my-package has the name of a task of Ropewalk",
        ),
        (
            {"other": "Counting"},
            {},
            "other",
            InvalidValue,
            "point other of my-package leads to a task of the name counting",
        ),
        (
            {"other": "HEAD"},
            {"broken": "HEAD = 3\n"},
            "other",
            InvalidValue,
            "3 in my-package is no task; extend ropewalk",
        ),
        (
            {"counting": "Missing"},
            {},
            "counting",
            Unreadable,
            "counting of my-package cannot be imported: AttributeError",
        ),
        (
            {"counting": "Counting"},
            {"broken": "1 / 0\n"},
            "counting",
            Unreadable,
            "imported: ZeroDivisionError: division",
        ),
    ],
)
def test_a_package_that_is_refused_where_its_task_is_named(package, points, more, asked, error, words):
    package(points, **more)
    assert [task.name for task in tasks_named("passkey", 2)] == ["context", "passkey"]
    with pytest.raises(error, match=words):
        tasks_named(asked, 2)


def test_two_packages_with_one_name_are_refused(package):
    package({"counting": "Counting"})
    package({"counting": "Counting"}, title="their-package")
    with pytest.raises(Conflict, match=r"counting is offered by several packages: .*-package and .*-package; "):
        tasks_named("counting", 2)


def test_errors_of_ropewalk_in_a_file_stay_as_they_are(write):
    with pytest.raises(RopewalkError, match=r"^window must be at least 1"):
        tasks_named(write("counting", more="\nimport ropewalk\nropewalk.parse('window:window=0')\n"), 2)
