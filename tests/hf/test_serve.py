"""`transformers serve` on what `rw.save` wrote: the same tokens, or a refusal that says why."""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest
import torch
from transformers import AutoModelForCausalLM

from ropewalk import extended, models, save
from ropewalk.hf.checkpoint.closed_config import SENTENCE
from ropewalk.hf.checkpoint.fetch import fetch_tokenizer

# In the dev extra from Python 3.11 on; fastapi is not for 3.10.
pytest.importorskip("fastapi", reason="transformers[serving] is not installed")
PROMPT = "The pass key is 71432.\n" + "The grass is green. Here we go.\n" * 60 + "What is the pass key? The pass key is"
SERVE = "from transformers.cli.transformers import main; main()"


@pytest.fixture(scope="module")
def model():
    return AutoModelForCausalLM.from_pretrained(models.DEFAULT, dtype=torch.float32).eval()


@pytest.fixture(scope="module")
def folders(model, tmp_path_factory):
    """A static schedule, which a config carries, and an extension that only the sidecar does."""
    place, tokenizer = tmp_path_factory.mktemp("served"), fetch_tokenizer(models.DEFAULT)
    for name, line in {"yarn": "yarn:factor=8", "rerope": "rerope+log_n"}.items():
        with extended(model, line):
            save(model, place / name, tokenizer=tokenizer)
    return place


class Server:
    """A server of transformers on a free port of this machine."""

    def __init__(self, log, *options):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url, self.log = f"http://127.0.0.1:{port}", log
        line = ["serve", "--host", "127.0.0.1", "--port", str(port), "--device", "cpu", "--dtype", "float32", *options]
        environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
        with log.open("wb") as out:
            command = [sys.executable, "-c", SERVE, *line]
            self.process = subprocess.Popen(command, stdout=out, stderr=out, env=environment)

    def __enter__(self):
        for _ in range(600):
            try:
                urllib.request.urlopen(f"{self.url}/health", timeout=5).close()
                return self
            except urllib.error.URLError:
                assert self.process.poll() is None, self.log.read_text()
                time.sleep(0.2)
        raise AssertionError(self.log.read_text())

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()

    def complete(self, folder):
        asked = {"model": str(folder), "prompt": PROMPT, "max_tokens": 12, "temperature": 0}
        head = {"content-type": "application/json"}
        request = urllib.request.Request(f"{self.url}/v1/completions", json.dumps(asked).encode(), head)
        with urllib.request.urlopen(request, timeout=240) as answer:
            return json.load(answer)["choices"][0]["text"]


@pytest.mark.nightly
@pytest.mark.parametrize(
    "options",
    [
        pytest.param([], id="alone", marks=pytest.mark.nightly),
        pytest.param(["--continuous-batching", "--cb-num-blocks", "64"], id="batched"),
    ],
)
def test_a_static_schedule_is_served_and_nothing_is_served_without_its_extension(model, folders, tmp_path, options):
    tokenizer = fetch_tokenizer(models.DEFAULT)
    ids = torch.tensor([tokenizer(PROMPT).input_ids])

    def written():
        new = model.generate(ids, max_new_tokens=12, do_sample=False)[0, ids.shape[1] :]
        return tokenizer.decode(new, skip_special_tokens=True)

    with extended(model, "yarn:factor=8"):
        expected = written()
    assert ids.shape[1] > 512  # beyond the trained length, where the base model writes something else
    assert written() != expected
    with Server(tmp_path / "log", *options) as server:
        assert server.complete(folders / "yarn") == expected
        with pytest.raises(urllib.error.HTTPError):
            server.complete(folders / "rerope")
    assert SENTENCE in (tmp_path / "log").read_text()
