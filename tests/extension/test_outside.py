"""Methods from outside the package: in a file, in an installed package; and what is refused."""

import copy
import json
import pickle
import subprocess
import sys
import textwrap
from dataclasses import dataclass

import pytest
import torch
from extension.outsiders import HALF, installed

import ropewalk as rw
from ropewalk.engines.vllm.plans import line_of
from ropewalk.errors import Conflict, InvalidValue, NotInstalled, UnknownName, Unreadable
from ropewalk.extension import outside
from ropewalk.extension.slots import SLOTS
from ropewalk.methods.frequencies import Resonance
from ropewalk.methods.frequencies.frequencies import Frequencies, trained_theta
from ropewalk.methods.spec import OURS

from examples import FACTS

TWICE = """
@dataclass(frozen=True, kw_only=True)
class Twice(Half):
    name = "twice"
"""


@pytest.fixture
def write(tmp_path):
    """A file with methods; more code goes to its end."""

    def written(code=HALF, more="", file="my.py"):
        path = tmp_path / file
        path.write_text(code + textwrap.dedent(more))
        return str(path)

    return written


def test_a_line_names_a_file_and_its_class(write):
    path = write()
    extension = rw.parse(f"{path}:Half:factor=4+log_n")
    spec = extension.frequencies
    theta = 10_000.0 ** -(torch.arange(8, dtype=torch.float64) / 8)
    assert torch.allclose(spec.table(FACTS, 1).inv_freq, theta / 2, rtol=1e-15)
    assert rw.parse(f"{path}:half:factor=4+log_n") == rw.parse(f"{path}:factor=4+log_n") == extension
    assert str(spec) == f"{path}:Half:factor=4"
    assert line_of(extension) == "half:factor=4+log_n"  # what is given away has no path
    assert "frequencies.half:factor=4\n    Half: every pair is slowed by the root of the fact" in extension.describe()


def test_a_page_is_that_of_the_class_and_its_absence_is_said(write):
    page = '"""Slower: of the class.\n\n        a formula\n\n    Source: here."""\n    name = "half"'
    with_page = HALF.replace('name = "half"', page)
    said = rw.parse(f"{write(with_page)}:Half:factor=4").describe()
    assert "frequencies.half:factor=4\n    Slower: of the class.\n    a formula\n    Source: here.\n" in said
    without = HALF.partition('"""\n\n')[2]
    said = rw.parse(f"{write(without)}:Half:factor=4").describe()
    assert "frequencies.half:factor=4\n    (its class has no docstring)\n\n    Source: the file my.py\n" in said


def test_a_path_may_be_relative_and_have_blanks(write, tmp_path, monkeypatch):
    (tmp_path / "a folder").mkdir()
    write(file="a folder/my own.py")
    monkeypatch.chdir(tmp_path)
    assert rw.parse("log_n + ./a folder/my own.py : Half : factor=4").frequencies.factor == 4


def test_a_method_of_a_file_stands_inside_another(write):
    inner = rw.parse(f"{write()}:Half:factor=4").frequencies
    extension = rw.parse(f"resonance:inner=({inner})")
    assert extension.frequencies == Resonance(inner=inner)
    assert rw.Extension.from_json(json.dumps(extension.to_json())) == extension


def test_json_has_the_name_of_the_file_and_its_hash(write):
    extension = rw.Extension(layers={1: rw.parse(f"{write()}:Half:factor=4")})
    values = extension.to_json()
    (layer,) = values["layers"].values()
    assert list(layer["frequencies"]) == ["name", "file", "sha256", "factor"]
    assert (layer["frequencies"]["file"], len(layer["frequencies"]["sha256"])) == ("my.py", 64)
    assert rw.Extension.from_json(json.dumps(values)) == extension


@pytest.mark.nightly
def test_a_method_travels_with_its_file_and_json_alone_runs_none(write, tmp_path):
    path = write(HALF.replace("** 0.5", "** 0.25"))  # a file that no other test knows
    extension = rw.parse(f"{path}:Half:factor=16+log_n")
    assert copy.deepcopy(extension) == extension == pickle.loads(pickle.dumps(extension))
    (tmp_path / "one.pickle").write_bytes(pickle.dumps(extension))
    (tmp_path / "extension.json").write_text(json.dumps(extension.to_json()))
    code = """
    import pickle, sys, ropewalk
    def read(line):
        try:
            return ropewalk.parse(line)
        except ropewalk.Unreadable as refused:
            print(refused)
    read("extension.json")
    print(ropewalk.parse("my.py:Half:factor=16+log_n") == read("extension.json"))
    open("my.py", "w").close()
    print(read("extension.json") == pickle.load(open("one.pickle", "rb")))
    """
    run = [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(run, capture_output=True, text=True, cwd=tmp_path)
    refused, *same = done.stdout.splitlines()
    assert refused.startswith("the method half comes from the file my.py, which was not allowed to run here; name the")
    assert "./my.py:half" in refused
    assert same == ["True", "True"], done.stderr


@pytest.mark.parametrize(
    ("code", "asked", "error", "words"),
    [
        ("x = 1\n", "", Unreadable, r"my.py has no method; write a class that is one; CONTRIBUTING.md has an example"),
        ("x = 1\ny = = 2\n", "", Unreadable, r"my.py cannot be run: line 2: SyntaxError: invalid syntax.*; correct it"),
        ("\n1 / 0\n", "", Unreadable, r"my.py cannot be run: line 2: ZeroDivisionError: division by zero; correct it"),
        ("import sys\nsys.exit(3)\n", "", Unreadable, r"my.py cannot be run: line 2: SystemExit: 3; correct it"),
        ("print('hello')\n" + HALF, "", Unreadable, r"my.py prints when it is read: 'hello'; remove that"),
        (HALF, ":Hal", UnknownName, r"my.py has no method 'Hal'; did you mean 'Half'\? It has: Half"),
        (HALF, ":Half:facto=4", UnknownName, r"half has no parameter 'facto'; did you mean 'factor'"),
        (HALF, ":Half", InvalidValue, r"half needs factor; write half:factor=..., or give trained_len and target"),
        (HALF, ":Half:factor=0.5", InvalidValue, r"factor must be at least 1, got 0.5"),
        (HALF, ":dataclass", InvalidValue, r"dataclass in .*my.py is no method; extend one of Frequencies, Reach"),
        (HALF, ":Frequencies", InvalidValue, r"Frequencies in .*my.py is no method; extend one of"),
        (HALF + TWICE, "", InvalidValue, r"my.py has several methods: Half, Twice; name one, as in .*my.py:Half$"),
        (HALF + TWICE.replace("twice", "half"), ":Half", Conflict, r"my.py has 2 methods of the name half; give each"),
        (HALF.replace('    name = "half"\n', ""), ":Half", InvalidValue, r"the method Half in .*my.py needs a name"),
        (HALF.replace('"half"', '"a half"'), ":Half", InvalidValue, r"Half in .*my.py needs a name of letters, digits"),
        (HALF.replace('"half"', "3"), ":Half", InvalidValue, r"Half in .*my.py needs a name of letters, digits"),
        (HALF.replace('"half"', '"yarn"'), ":Half", Conflict, r"method yarn of .*my.py has the name of a method, a"),
        (HALF.replace('"half"', '"log_n"'), ":Half", Conflict, r"method log_n of .*my.py has the name of a method"),
        (HALF.replace('"half"', '"model"'), ":Half", Conflict, r"method model of .*my.py has the name of .* a word of"),
        (HALF.replace("@dataclass", "# @"), ":Half", InvalidValue, r"class Half in .*my.py is no record; write @datac"),
        (HALF.replace("def table", "def tables"), ":Half", InvalidValue, r"half in .*my.py has no function table"),
        (HALF.replace("factor: Factor", "file: str"), ":Half", InvalidValue, r"has a parameter file, which means"),
        (HALF.replace("factor: Factor", 'factor: "Facto"'), ":Half", InvalidValue, r"cannot be read: NameError"),
    ],
)
def test_a_file_that_is_refused(write, code, asked, error, words):
    path = write(code)
    for _ in range(2):  # a second time, too
        with pytest.raises(error, match=words):
            rw.parse(path + asked)


def test_a_path_that_is_refused(write, tmp_path):
    (tmp_path / "folder.py").mkdir()
    for path in ("none.py", "folder.py"):
        with pytest.raises(Unreadable, match=r"must be the path of a file that exists, with a method, such as"):
            rw.parse(f"{tmp_path / path}:Half")
    values = rw.parse(f"{write()}:Half:factor=2").to_json()
    with pytest.raises(InvalidValue, match=r"half fills frequencies, and not reach; write frequencies.half"):
        rw.Extension.from_json({"reach": values["frequencies"]})


@pytest.mark.parametrize("name", ["my.py:Half", "./my.py", "/etc/my.py:Half"])
def test_json_names_no_path(write, name, monkeypatch, tmp_path):
    write("raise RuntimeError('ran')")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UnknownName, match="frequencies has no method"):
        rw.Extension.from_json({"frequencies": {"name": name, "factor": 4}})


@pytest.mark.parametrize(
    "change", [{"file": "../my.py"}, {"file": "/etc/my.py"}, {"file": 3}, {"sha256": None}, {"name": 1}]
)
def test_json_of_a_file_that_is_refused(write, change):
    values = rw.parse(f"{write()}:Half:factor=4").to_json()["frequencies"]
    with pytest.raises(Unreadable, match="one whose method has a name, a file of the same folder and its sha256"):
        rw.Extension.from_json({"frequencies": {**values, **change}})


# In a folder, beside JSON


@pytest.fixture
def folder(write, tmp_path):
    """A folder with the JSON of a method that did not run in this process, and its file."""

    def made(number):
        code = HALF.replace("** 0.5", f"** 0.{number}")
        path = write(code, file="saved.py")
        values = rw.parse(f"{path}:Half:factor=4").to_json()
        outside._KNOWN.clear()
        return tmp_path, values

    return made


def test_a_file_of_a_folder_runs_only_if_it_is_trusted(folder):
    place, values = folder(31)
    with pytest.raises(Unreadable, match=r"half comes with .* as code, in saved.py; read that file, then pass"):
        outside.admit(values, place, trusted=False)
    with pytest.raises(Unreadable, match="not allowed to run here"):
        rw.Extension.from_json(values)
    outside.admit(values, place, trusted=True)
    assert rw.Extension.from_json(values).frequencies.factor == 4
    outside.admit(values, place, trusted=False)  # the same code runs here already


def test_a_file_that_was_changed_is_refused_with_both_hashes(folder):
    place, values = folder(32)
    (place / "saved.py").write_text("raise RuntimeError('ran')")
    kept = values["frequencies"]["sha256"][:12]
    for trusted in (False, True):
        with pytest.raises(Unreadable, match=rf"saved.py is not the file that half was: its hash .* not with {kept}"):
            outside.admit(values, place, trusted=trusted)
    (place / "saved.py").unlink()
    with pytest.raises(Unreadable, match=r"has no saved.py, from which its method half comes; copy it there"):
        outside.admit(values, place, trusted=True)


def test_files_are_written_beside_and_replace_no_other(write, tmp_path):
    one, two = (rw.parse(f"{write(code)}:Half:factor=4") for code in (HALF, HALF + "\n"))
    place = tmp_path / "out"
    place.mkdir()
    outside.write_files(one.methods, place)
    assert (place / "my.py").read_text() == HALF
    outside.write_files(one.methods, place)
    with pytest.raises(Conflict, match=r"another file named my.py already; rename the method's file"):
        outside.write_files(two.methods, place)
    (place / "kept.json").write_text(json.dumps(one.to_json()))
    outside.write_files(two.methods, place, earlier=place / "kept.json")  # of an earlier save into this folder
    assert (place / "my.py").read_text() == HALF + "\n"


def test_a_class_of_a_session_cannot_be_kept():
    members = {"name": "typed", "__module__": "__main__", "table": lambda self, facts, length: trained_theta(facts)}
    kind = dataclass(frozen=True, kw_only=True)(type("Typed", (Frequencies,), members))
    with pytest.raises(InvalidValue, match=r"typed is Typed of the module __main__, where nobody finds it again"):
        outside.require_portable(rw.Extension(frequencies=kind()).methods)


# Installed packages


def test_a_method_of_an_installed_package_is_named_like_one_of_ours(package):
    package({"half": "Half"})
    extension = rw.parse("half:factor=4+log_n")
    assert rw.parse("frequencies.half:factor=4+log_n") == extension
    assert str(extension.frequencies) == "half:factor=4"
    assert extension.to_json()["frequencies"] == {"name": "half", "package": "my-package", "factor": 4.0}
    assert rw.Extension.from_json(extension.to_json()) == extension
    assert pickle.loads(pickle.dumps(extension)) == extension
    with pytest.raises(UnknownName, match="no preset or method 'hal'; did you mean 'half'"):
        rw.parse("hal:factor=4")
    with pytest.raises(InvalidValue, match=r"half fills frequencies, and not reach; write frequencies.half"):
        rw.parse("reach.half:factor=4")
    assert list(outside.source_marks(extension.methods)) == ["half"]


def test_a_class_that_was_imported_by_hand_is_known_by_its_package(package):
    module = package({"half": "Half"})
    kind = __import__(module).Half
    assert kind.origin == OURS
    extension = rw.Extension(frequencies=kind(factor=4))
    assert extension.to_json()["frequencies"]["package"] == "my-package"
    assert rw.Extension.from_json(extension.to_json()) == extension


@pytest.mark.parametrize(
    ("points", "more", "asked", "error", "words"),
    [
        ({"other": "Half"}, "", "other", InvalidValue, "point other of my-package leads to a method of the name half"),
        ({"half": "HEAD"}, "HEAD = 3\n", "half", InvalidValue, "3 in my-package is no method; extend one of Frequenci"),
        ({"half": "Missing"}, "", "half", Unreadable, "half of my-package cannot be imported: AttributeError"),
        ({"half": "Half"}, "1 / 0\n", "half", Unreadable, "imported: ZeroDivisionError: division by zero; correct or"),
        ({"log_n": "Half"}, "", "log_n", Conflict, "the method log_n of my-package has the name of one of Ropewalk"),
    ],
)
def test_a_package_that_is_refused_where_its_method_is_named(package, points, more, asked, error, words):
    package(points, more=more)
    assert rw.parse("pi:factor=2") is not None
    with pytest.raises(error, match=words):
        rw.parse(asked)


def test_two_packages_with_one_name_are_refused(package):
    package({"half": "Half"})
    package({"half": "Half"}, title="their-package")
    with pytest.raises(Conflict, match=r"half is offered by several packages: .*-package and .*-package; uninstall"):
        rw.parse("half:factor=4")


def test_a_package_that_is_missing_is_named(package):
    values = {"frequencies": {"name": "half", "package": "my-package", "factor": 4}}
    with pytest.raises(NotInstalled, match=r"half is of the package my-package, which is not installed.*; pip inst"):
        rw.Extension.from_json(values)
    package({"half": "Half"}, title="their-package")
    with pytest.raises(Conflict, match="half was of the package my-package, and here their-package offers it"):
        rw.Extension.from_json(values)


def test_every_slot_takes_methods_from_outside():
    assert [slot.family for slot in SLOTS.values()] == list(outside.FAMILIES)


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package on the path with a module of methods; a call says what its entry points lead to."""
    with installed(tmp_path / "packages", monkeypatch) as install:
        yield install
