"""Folders are rooms: none is a hall of files, none imports in a circle, and one word means one thing."""

import ast
import collections

import pytest

from architecture.tree import FILES, PACKAGE, imports, module_of, parsed

MOST_FILES = 12  # of a folder that has no folders in it
FOLDERS = sorted({path.parent for path in FILES})
# Words that say nothing of what they hold: as locals, parameters and loop variables. The budget only falls.
VAGUE, BUDGET = {"own", "each", "given", "found"}, 5


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.relative_to(PACKAGE.parent).as_posix())
def test_no_folder_is_a_hall_of_files(folder):
    files = [path for path in folder.glob("*.py") if path.name != "__init__.py"]
    rooms = [path for path in folder.iterdir() if path.is_dir() and any(path.glob("*.py"))]
    assert rooms or len(files) <= MOST_FILES


@pytest.mark.parametrize("part", ["attention", "hf", "evaluation", "lab", "search", "report", "measure", "cli"])
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


def test_no_two_public_classes_have_one_name():
    homes = collections.defaultdict(list)
    for path in FILES:
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(module_of(path))
    assert {name: modules for name, modules in homes.items() if len(modules) > 1} == {}


def test_names_say_what_they_hold():
    stored = collections.Counter(name for path in FILES for name in bound_names(parsed(path)))
    assert sum(stored[word] for word in VAGUE) <= BUDGET


def bound_names(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg
