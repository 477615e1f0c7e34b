"""An engine, asked in a process and an environment of its own: a question as JSON goes in, arrays come back."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy

ROOT = Path(__file__).resolve().parents[2]
PYTHONS = {"llama.cpp": ".venv-llama", "mlx": ".venv-mlx", "vllm": ".venv-vllm"}


def ask(engine, script, question, folder, seconds=500, **environment):
    """What `script` (it reads the question at argv[1] and saves numpy's .npz at argv[2]) answers, as a dict of arrays.

    The process sees this checkout as `ropewalk` (PYTHONPATH), no network, and the variables in `environment`.
    """
    python = ROOT / PYTHONS[engine] / "bin" / "python"
    assert python.exists(), f"{engine} is not installed in {PYTHONS[engine]}: run `make engines`"
    asked, answered = Path(folder) / "question.json", Path(folder) / "answer.npz"
    asked.write_text(json.dumps(question))
    answered.unlink(missing_ok=True)
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1", **environment}
    done = subprocess.run(
        [str(python), str(script), str(asked), str(answered)],
        env=variables,
        timeout=seconds,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    sys.stdout.write(done.stdout)  # pytest shows it where a test fails
    assert done.returncode == 0, done.stdout[-4000:]
    assert answered.exists(), f"{script} saved no answer"
    with numpy.load(answered) as arrays:
        return dict(arrays)
