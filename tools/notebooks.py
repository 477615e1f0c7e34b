"""Runs the notebooks of examples/ without Jupyter, and writes them as pages.

python tools/notebooks.py [NAME ...]   run these again and write their outputs into them
    by default all but which_method, in some minutes: that one measures SmolLM2, in half an hour of one core, or
    the model that the variable MODEL names: a folder, or a name on the hub
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
NAMES = ("write_your_own_method", "compare_methods", "which_method")
OWN_METHOD, COMPARE, WHICH = (ROOT / "examples" / f"{name}.ipynb" for name in NAMES)
OUTPUT_TYPES = ("text/html", "text/plain")
BEGIN = "<!-- written by tools/generate.py from examples/compare_methods.ipynb -->"


def outputs_of(notebook: Path) -> list[list[dict[str, Any]]]:
    """What each code cell prints and shows, as a notebook stores it, from one run of all cells."""
    names: dict[str, Any] = {"__name__": "__main__"}
    return [_run(source(cell), names) for cell in cells(notebook) if cell["cell_type"] == "code"]


def cells(notebook: Path) -> list[dict[str, Any]]:
    """All cells."""
    return list(json.loads(notebook.read_text("utf-8"))["cells"])


def source(cell: dict[str, Any]) -> str:
    """The text of a cell."""
    return "".join(cell["source"])


def _run(code: str, names: dict[str, Any]) -> list[dict[str, Any]]:
    """Run a cell; its last expression is shown, as Jupyter does it."""
    module = ast.parse(code)
    last = module.body.pop() if module.body and isinstance(module.body[-1], ast.Expr) else None
    printed, value = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        exec(compile(module, "cell", "exec", dont_inherit=True), names)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), "cell", "eval", dont_inherit=True), names)
    stream = {"name": "stdout", "output_type": "stream", "text": printed.getvalue().splitlines(keepends=True)}
    return [stream] * bool(stream["text"]) + ([] if value is None else [_shown(value)])


def _shown(value: Any) -> dict[str, Any]:
    html = value._repr_html_() if hasattr(value, "_repr_html_") else ""
    texts = {"text/html": html, "text/plain": repr(value)}
    data = {kind: text.splitlines(keepends=True) for kind, text in texts.items() if text}
    return {"output_type": "execute_result", "execution_count": None, "metadata": {}, "data": data}


def write_outputs(notebook: Path) -> None:
    """Run a notebook and store what it shows."""
    stored, results = json.loads(notebook.read_text("utf-8")), iter(outputs_of(notebook))
    for count, cell in enumerate((cell for cell in stored["cells"] if cell["cell_type"] == "code"), 1):
        cell["execution_count"], cell["outputs"] = count, next(results)
        for output in cell["outputs"]:
            if "execution_count" in output:
                output["execution_count"] = count
    notebook.write_text(json.dumps(stored, indent=1, ensure_ascii=False) + "\n", "utf-8")


def notebook_page() -> str:
    """compare_methods.ipynb as a page: text, code, and what the code shows."""
    return "\n\n".join([BEGIN, *(part for cell in cells(COMPARE) for part in _parts(cell))]) + "\n"


def _parts(cell: dict[str, Any]) -> list[str]:
    if cell["cell_type"] == "markdown":
        return [source(cell)]
    return [f"```python\n{source(cell)}\n```", *(_output(output) for output in cell["outputs"])]


def _output(output: dict[str, Any]) -> str:
    if output["output_type"] == "stream":
        return f"```text\n{''.join(output['text']).rstrip()}\n```"
    kind = next(kind for kind in OUTPUT_TYPES if kind in output["data"])
    text = "".join(output["data"][kind])
    return text if kind == "text/html" else f"```text\n{text}\n```"


if __name__ == "__main__":
    os.chdir(tempfile.mkdtemp())  # they write files
    for name in sys.argv[1:] or NAMES[:2]:
        write_outputs(ROOT / "examples" / f"{name}.ipynb")
