"""Folders are rooms: none imports in a circle, and one word means one thing."""

import ast
import collections

import pytest

from architecture.tree import FILES, PACKAGE, imports, module_of, nodes

# Words that say nothing of what they hold: as locals, parameters and loop variables. The budget only falls.
VAGUE, BUDGET = {"own", "each", "given", "found"}, 5


@pytest.mark.parametrize(
    "part",
    [*("methods", "extension", "attention", "hf", "engines", "texts"), *("measure", "search", "train", "serve", "cli")],
)
def test_rooms_do_not_import_in_a_circle(part):
    """Within a part, rooms (and files beside them) form levels: nobody imports whoever imports them."""
    above = {room: set() for room in rooms_of(part)}
    for path in (PACKAGE / part).rglob("*.py"):
        if path.name != "__init__.py":
            above[room_of(module_of(path))] |= {room_of(name) for name in imports(path) if is_in(name, part)}
    levels = {room: others - {room} for room, others in above.items()}
    while free := [room for room, others in levels.items() if not others & levels.keys()]:
        for room in free:
            del levels[room]
    assert not levels


def rooms_of(part):
    return {room_of(module_of(path)) for path in (PACKAGE / part).rglob("*.py")} | {f"ropewalk.{part}"}


def room_of(module):
    return ".".join(module.split(".")[:3])


def is_in(module, part):
    return module.startswith(f"ropewalk.{part}.")


def test_the_design_has_every_room():
    """One page, with a place for each folder of the package."""
    page = (PACKAGE.parent / "DESIGN.md").read_text()
    rooms = {path.parent.name for path in PACKAGE.glob("*/__init__.py")} - {"models"}
    assert {room for room in rooms if f"{room}/" not in page} == set()
    assert page.count("\n") < 100


def test_no_two_public_classes_have_one_name():
    homes = collections.defaultdict(list)
    for path in FILES:
        for node in nodes(path):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(module_of(path))
    assert {name: modules for name, modules in homes.items() if len(modules) > 1} == {}


def test_names_say_what_they_hold():
    stored = collections.Counter(name for path in FILES for name in bound_names(path))
    assert sum(stored[word] for word in VAGUE) <= BUDGET


def bound_names(path):
    for node in nodes(path):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg
