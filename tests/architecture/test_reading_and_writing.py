"""Who opens files: reading refuses by name and writing leaves nothing half-written, because few places do either."""

import ast

from architecture.tree import FILES, assert_none, module_of, nodes

# What is called, and where that may be. Whoever writes a file writes it into a part that is not in its place yet
# (`folders.replace_files`, `folders.make_folder`), or appends to one whose last line may be cut off.
MAY = {
    # The second reads /proc, the third sources of its own.
    "read_text": {"ropewalk.texts.installed_texts", "ropewalk.hf.loading", "ropewalk.methods.docstrings"},
    "read_bytes": {"ropewalk.files"},
    "write_text": {"ropewalk.folders", "ropewalk.hf.checkpoint.sidecar"},
    "write_bytes": set[str](),
    # The fourth copies from a model's folder and follows no link out of it; the fifth opens /dev/null.
    "open": {
        "ropewalk.files",
        "ropewalk.folders",
        "ropewalk.train.data.puzzles",
        "ropewalk.hf.checkpoint.own_files",
        "ropewalk.cli.main",
    },
    **{name: set[str]() for name in ("copyfile", "copy2", "copytree", "hardlink_to", "symlink_to")},
    "copyfileobj": {"ropewalk.hf.checkpoint.own_files"},
    "from_pretrained": {"ropewalk.hf.checkpoint.fetch"},
    "loads": {"ropewalk.files", "ropewalk.measure.comparison.store", "ropewalk.testing"},
    "load": set[str](),  # of json, torch, numpy
    "load_file": {"ropewalk.hf.checkpoint.sidecar"},
    "mkdtemp": set[str](),
}
OWN = {"write_text", "read_text", "read_bytes"}  # functions of ours by the same names
ROOTS = {"load": ("json", "torch", "pickle", "numpy", "np")}


def calls(path):
    for node in nodes(path):
        if isinstance(node, ast.Call):
            function = node.func
            if isinstance(function, ast.Attribute):
                yield function.attr, function.value, node.lineno
            elif isinstance(function, ast.Name) and function.id not in OWN:
                yield function.id, None, node.lineno
        elif isinstance(node, ast.Attribute) and node.attr == "from_pretrained":
            yield node.attr, node.value, node.lineno


def test_files_are_opened_where_it_is_seen_to():
    assert_none(
        f"{module_of(path)}, line {line}: {name}; ropewalk.files and ropewalk.folders have it"
        for path in FILES
        for name, of, line in calls(path)
        if name in MAY and module_of(path) not in MAY[name] and opens(name, of)
    )


def opens(name, of):
    roots = ROOTS.get(name)
    return roots is None or (isinstance(of, ast.Name) and of.id in roots)


def test_waiting_is_measured_by_a_clock_that_nobody_sets():
    """`time.time` is for what people read; a deadline by it moves when the clock is set."""
    shown = {"ropewalk.serve.responses", "ropewalk.serve.routes"}
    asked = {
        module_of(path)
        for path in FILES
        for name, of, _ in calls(path)
        if name == "time" and isinstance(of, ast.Name) and of.id == "time"
    }
    assert asked <= shown
