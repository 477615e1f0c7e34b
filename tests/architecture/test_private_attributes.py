"""What Ropewalk stores on models, modules and caches is read through one accessor each."""

import pytest

from architecture.tree import FILES, PACKAGE

TESTS = PACKAGE.parent / "tests"
HOMES = {  # the attribute, where it is set and read, and the accessor for everybody else
    "_ropewalk_handle": ("hf/attach/handle.py", "def handle_of("),
    "_ropewalk_trained_len": ("hf/probe/facts.py", "def corrected_len("),
    "_ropewalk_shifts": ("hf/runtime/hooks.py", "def _require_same_start("),
    "_ropewalk": ("hf/runtime/layer.py", "def layer_of("),
    "_ropewalk_owner": ("hf/runtime/caches.py", "class Owner("),
}
# A literal here states that the attribute is absent, where no accessor applies: models that are no transformers model.
ABSENCE = "assert not hasattr("


@pytest.mark.parametrize("attribute", HOMES)
def test_a_private_attribute_is_named_in_one_file(attribute):
    home, accessor = HOMES[attribute]
    assert [path for path in FILES if f'"{attribute}"' in path.read_text()] == [PACKAGE / home]
    assert accessor in (PACKAGE / home).read_text()


@pytest.mark.parametrize("attribute", HOMES)
def test_no_test_reads_it_either(attribute):
    lines = [
        (path.name, line.strip())
        for path in TESTS.rglob("*.py")
        if path.name != "test_private_attributes.py"
        for line in path.read_text().splitlines()
        if f'"{attribute}"' in line and ABSENCE not in line
    ]
    assert lines == []


def test_the_names_of_these_attributes_are_imported_by_nobody():
    for path in FILES:
        text = path.read_text()
        assert not any(f"import {name}" in text for name in ("_HANDLE", "_LAYER", "_CORRECTED", "_SHIFTS", "_MARK")), (
            path
        )
