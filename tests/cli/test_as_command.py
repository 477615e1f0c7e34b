"""Errors name an option as it is typed, where the wrong value is that option's and not another part's."""

import pytest

from ropewalk.cli.main import run
from ropewalk.cli.parser import as_typed, options_of
from ropewalk.cli.verbs.compare import compare
from ropewalk.cli.verbs.fit import fit
from ropewalk.errors import DoesNotFit, InvalidValue, UnknownName


@pytest.mark.sampled(cases=2)
@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("show yarn --head-dim 7", "ropewalk: --head-dim must be a positive even number, got 7\n"),
        ("show yarn --trained-len 0", "ropewalk: --trained-len must be at least 1, got 0\n"),
        ("compare default yarn --tasks passkey:samples=0", "ropewalk: samples must be at least 1, got 0\n"),
        ("compare default hwfa:layers=-1", "ropewalk: layers must be"),
        (
            "compare default --samples 0",
            "ropewalk: Invalid value for '--samples': Input should be greater than or equal to 2, got '0'",
        ),
        ("compare default --samples=many", "ropewalk: Invalid value for '--samples': Input should be a valid integer"),
    ],
)
def test_the_command_line(line, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(line.split()) == 2
    assert capsys.readouterr().err.startswith(message)


def test_the_last_value_of_an_option_counts(capsys):
    assert run(["compare", "default", "--samples", "4", "--samples=1"]) == 2
    assert ", got '1'; see ropewalk compare --help" in capsys.readouterr().err


OPTIONS = options_of(fit)


def test_options_as_they_are_typed():
    assert OPTIONS["to"] == "--to"
    assert OPTIONS["max_damage"] == "--max-damage"
    assert OPTIONS["as_json"] == "--json"
    assert not {"model", "extensions"} & {*OPTIONS, *options_of(compare)}


@pytest.mark.parametrize(
    ("refused", "values", "written"),
    [
        (InvalidValue("max_damage", "above 0", -1.0), {"max_damage": -1.0}, "--max-damage must be above 0, got -1.0"),
        (DoesNotFit("target_len", "above 512", 512), {"to": "512"}, "--to must be above 512, got 512"),
        (DoesNotFit("target_len", "above 512", 1024), {"to": "1k"}, "--to must be above 512, got 1024"),
        (InvalidValue("folder", "a folder", "x"), {"out": "x"}, "--out must be a folder, got 'x'"),
        (InvalidValue("seed", "at least 0", -1), {"seed": 3}, "seed must be at least 0, got -1"),
        (InvalidValue("extension", "text", 3), {}, "extension must be text, got 3"),
        (InvalidValue.because("seed", "the seed is odd"), {"seed": 3}, "the seed is odd"),
        (
            InvalidValue.because("corpus", "passkey: corpus must be one of a: b, got 'x'"),
            {"corpus": "x"},
            "passkey: --corpus must be one of a: b, got 'x'",
        ),
        (UnknownName("corpus", "x"), {"corpus": "x"}, "there is no corpus 'x'."),
    ],
)
def test_a_message(refused, values, written):
    assert as_typed(refused, OPTIONS, values) == written
