"""One file, one method, listed once."""

import dataclasses
import importlib

import pytest

from ropewalk import pages, presets
from ropewalk.slots import SLOTS

from architecture.tree import FACTORS, PACKAGE

METHODS = [(slot, method) for slot, (_, methods, *_) in SLOTS.items() for method in methods]
each_method = pytest.mark.parametrize(("slot", "method"), METHODS, ids=[f"{s}.{m.name}" for s, m in METHODS])


def test_slots_are_the_factors_folders():
    assert tuple(SLOTS) == FACTORS == pages.FACTORS


@pytest.mark.parametrize("slot", SLOTS)
def test_what_is_read_from_files_is_what_is_imported(slot):
    assert list(pages.listed(slot)) == [(each.name, pages.page_of(each)) for each in SLOTS[slot].methods]


def test_presets_are_read_from_files_as_they_are_imported():
    assert list(pages.listed("presets")) == [(each.__name__, pages.page_of(each)) for each in presets.ALL]


@pytest.mark.parametrize("folder", FACTORS)
def test_every_file_is_a_listed_method(folder):
    files = {path.stem for path in (PACKAGE / folder).rglob("*.py")} - {"__init__", "signature"}
    assert files == {method.name for method in SLOTS[folder].methods}


@pytest.mark.parametrize("folder", FACTORS)
def test_the_list_is_an_explicit_tuple_without_repetition(folder):
    listed = importlib.import_module(f"ropewalk.{folder}").ALL
    assert isinstance(listed, tuple)
    assert len({method.name for method in listed}) == len(listed)


@each_method
def test_a_method_lives_in_the_file_of_its_name(slot, method):
    assert method.__module__.startswith(f"ropewalk.{slot}.")
    assert method.__module__.endswith(f".{method.name}")


@each_method
def test_a_method_is_a_final_frozen_record_of_its_factor(slot, method):
    assert method.__mro__[1] is SLOTS[slot].family
    assert method.__subclasses__() == []
    assert dataclasses.is_dataclass(method)
    assert method.__dataclass_params__.frozen
    assert not getattr(method, "__abstractmethods__", None)


@each_method
def test_a_method_is_exported_by_its_folder(slot, method):
    assert getattr(importlib.import_module(f"ropewalk.{slot}"), method.__name__) is method
