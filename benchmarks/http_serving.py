"""Serving over HTTP: `ropewalk serve` and `transformers serve` on the same requests, side by side in one run.

    python benchmarks/http_serving.py [--quick]

Eight requests at once, of about 195 + 64 tokens of the carried model, float32, on all cores; the servers take turns in
every round. The model is a copy without an end token, so that all write 64 tokens. Before that: how long `ropewalk
serve` takes from its start to the first byte of /health, and until it answers. Appended to
benchmarks/results/serving.jsonl.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from serving import DECODED, LINES, NAMES, PROMPT, REQUESTS, TARGET, prompts, wall

from rounds import append, ratios, rounds

THEIRS = ["-c", "from transformers.cli.transformers import main; main()", "serve", "--device", "cpu"]
PLAIN, BATCHED = "transformers serve", "transformers serve --continuous-batching"
LONGEST = 120.0  # seconds that a server may take to start


class Served(NamedTuple):
    """A server, and how long it took."""

    url: str
    first_byte: float  # seconds from its start until /health answers anything
    ready: float  # and until it answers that the model is loaded


def main(often: int) -> list[dict[str, Any]]:
    """The rows of both tables."""
    from transformers import AutoTokenizer

    from ropewalk.models import DEFAULT

    tokenizer, seeds = AutoTokenizer.from_pretrained(DEFAULT), itertools.count()

    def texts() -> list[str]:
        return [tokenizer.decode(ids) for ids in prompts(REQUESTS, PROMPT, seed=next(seeds))]

    with tempfile.TemporaryDirectory() as place, ExitStack() as servers:
        folder = str(endless(Path(DEFAULT), Path(place) / "endless"))
        lines = [word for line in LINES for word in ("--extensions", line)]
        ours = servers.enter_context(server(["-m", "ropewalk", "serve", folder, *lines, "--to", str(TARGET)]))
        theirs = servers.enter_context(server([*THEIRS, "--dtype", "float32"]))
        batched = servers.enter_context(server([*THEIRS, "--dtype", "float32", "--continuous-batching"]))
        candidates = {PLAIN: asking(theirs, folder, texts), BATCHED: asking(batched, folder, texts)}
        candidates |= {f"ropewalk serve @{name}": asking(ours, f"endless@{name}", texts) for name in NAMES}
        times = rounds(candidates, often, seconds=wall)
    start = {"first byte of /health": round(ours.first_byte, 2), "ready": round(ours.ready, 2)}
    return [table(times), {"case": "start of ropewalk serve, seconds", **start}]


def table(times: Mapping[str, list[float]]) -> dict[str, Any]:
    """Medians, and our throughput to theirs."""
    goals: dict[str, float] = {}
    for other in (PLAIN, BATCHED):
        to_other = ratios(dict(times), other)
        ours = [name for name in times if name.startswith("ropewalk")]
        goals |= {f"{name}: throughput to {other}": round(1 / to_other[name]["median"], 2) for name in ours}
    middle = {name: round(statistics.median(values), 3) for name, values in times.items()}
    return {"case": f"{REQUESTS} requests of {PROMPT} + {DECODED} tokens over HTTP, seconds", **middle, **goals}


def endless(model: Path, folder: Path) -> Path:
    """A copy of a model that has no end token."""
    shutil.copytree(model, folder)
    for name in ("config.json", "generation_config.json"):
        values = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps({**values, "eos_token_id": None}))
    return folder


def asking(served: Served, model: str, texts: Callable[[], list[str]]) -> Callable[[], object]:
    """A run of all requests at once."""
    asked = {"model": model, "max_tokens": DECODED, "temperature": 0}

    def one(text: str) -> None:
        answer = fetch(f"{served.url}/v1/completions", {**asked, "prompt": text})
        assert answer["usage"]["completion_tokens"] == DECODED, answer

    def all_at_once() -> None:
        with ThreadPoolExecutor(REQUESTS) as clients:
            list(clients.map(one, texts()))

    return all_at_once


def fetch(url: str, body: Mapping[str, Any] | None = None) -> Any:
    """The answer to a request."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=LONGEST) as answer:
        return json.load(answer)


@contextmanager
def server(arguments: list[str]) -> Iterator[Served]:
    """A server in a process of its own, on a free port of this machine."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, *arguments, "--host", "127.0.0.1", "--port", str(port)]
    began, environment = time.perf_counter(), {**os.environ, "HF_HUB_OFFLINE": "1"}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, env=environment, **quiet) as process:
        url, answers = f"http://127.0.0.1:{port}", dict[bool, float]()
        while True not in answers:
            assert process.poll() is None, f"{command} ended"
            assert time.perf_counter() - began < LONGEST, f"{command} does not answer"
            status = health(url)
            if status is not None:
                answers.setdefault(status == 200, time.perf_counter() - began)
        yield Served(url, min(answers.values()), answers[True])
        process.terminate()


def health(url: str) -> int | None:
    """The status of /health; nothing while nobody listens."""
    time.sleep(0.01)
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=5) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as refused:
        return refused.code
    except (urllib.error.URLError, ConnectionError):
        return None


if __name__ == "__main__":
    quick = "--quick" in sys.argv
    result = main(1 if quick else 9)
    for row in result:
        print(json.dumps(row, indent=1))
    if not quick:
        print(append("serving", result))
