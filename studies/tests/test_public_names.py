"""A study uses names of Ropewalk that anybody may use."""

import ast
from pathlib import Path

STUDIES = Path(__file__).resolve().parents[1]


def test_studies_import_no_private_name():
    offenders = [
        f"{path.relative_to(STUDIES)}: {alias.name}"
        for path in STUDIES.rglob("*.py")
        if "tests" not in path.parts
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("ropewalk")
        for alias in node.names
        if alias.name.startswith("_")
    ]
    assert offenders == []
