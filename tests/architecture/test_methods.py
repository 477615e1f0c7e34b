"""One file, one method, listed once."""

import dataclasses
import importlib

from ropewalk.extension import presets
from ropewalk.extension.slots import SLOTS
from ropewalk.methods import docstrings

from architecture.tree import CONTRACTS, FACTORS, PACKAGE, assert_none

METHODS = [(slot, method) for slot, (_, methods, *_) in SLOTS.items() for method in methods]


def test_slots_are_the_factors_folders():
    assert tuple(SLOTS) == FACTORS == docstrings.FACTORS


def test_what_is_read_from_files_is_what_is_imported():
    for slot in SLOTS:
        assert list(docstrings.list_folder(slot)) == [
            (each.name, docstrings.page_of(each)) for each in SLOTS[slot].methods
        ]


def test_presets_are_read_from_files_as_they_are_imported():
    assert list(docstrings.list_folder("presets")) == [
        (each.__name__, docstrings.page_of(each)) for each in presets.ALL
    ]


def test_every_file_is_a_listed_method():
    files = {f"{folder}.{path.stem}" for folder in FACTORS for path in (PACKAGE / "methods" / folder).glob("*.py")}
    files -= {f"{folder}.{stem}" for folder, contract in CONTRACTS.items() for stem in ("__init__", contract)}
    assert files == {f"{slot}.{method.name}" for slot, method in METHODS}


def test_the_list_is_an_explicit_tuple_without_repetition():
    for folder in FACTORS:
        listed = importlib.import_module(f"ropewalk.methods.{folder}").ALL
        assert isinstance(listed, tuple)
        assert len({method.name for method in listed}) == len(listed), folder


def test_a_method_lives_in_the_file_of_its_name():
    assert_none(
        f"{method.__name__} lives in {method.__module__}"
        for slot, method in METHODS
        if method.__module__ != f"ropewalk.methods.{slot}.{method.name}"
    )


def test_a_method_is_a_final_frozen_record_of_its_factor():
    for slot, method in METHODS:
        assert method.__mro__[1] is SLOTS[slot].family, method
        assert method.__subclasses__() == [], method
        assert dataclasses.is_dataclass(method), method
        assert method.__dataclass_params__.frozen, method
        assert not getattr(method, "__abstractmethods__", None), method


def test_a_method_is_exported_by_its_folder():
    assert_none(
        f"ropewalk.methods.{slot} does not export {method.__name__}"
        for slot, method in METHODS
        if getattr(importlib.import_module(f"ropewalk.methods.{slot}"), method.__name__, None) is not method
    )
