"""The vLLM plugin's attention against vLLM's own, on one model: prefill and decode, side by side in one process.

    python benchmarks/plugin.py FOLDER [--quick] [--compiled]

FOLDER holds a model (SmolLM2-135M, say). It is exported under each line, and this file runs itself in .venv-vllm (`make
engines` makes it), with vLLM's own attention on the folder as the baseline: bfloat16, one thread, CPU time of the
process that computes. Every engine takes its turn in every round, so that its requests decode a few tokens, or read a
prompt. The last case is a quarter beyond the trained length, where vLLM's own has the speed but not the model. vLLM
computes eagerly unless --compiled. Figures are medians of round-by-round ratios: how fast the plugin is, 1 being vLLM's
own. Ten minutes on an idle core; appended to benchmarks/results/plugin.jsonl, but for --quick, which leaves out what
takes long.
"""

from __future__ import annotations

import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from rounds import append, ratios, rounds

ROOT = Path(__file__).resolve().parents[1]
ENGINE = ROOT / ".venv-vllm" / "bin" / "python"
EXPORTS = "ROPEWALK_EXPORTS"  # the folder of the exported models, in the environment of the second process
OWN, LINES = "vLLM's own", ("dynamic_yarn", "rerope+log_n")
DECODE = ((1, 500), (8, 500), (1, 4000), (8, 4000))  # requests, tokens before
PREFILL = (500, 4000)
CHUNK, PAGES, TARGET = 2048, 400, 32_768
STEPS = 8  # tokens that each request decodes in a round


def main(folder: Path) -> None:
    """Export here, measure in the engine's environment."""
    from transformers import AutoModelForCausalLM

    import ropewalk as rw

    with tempfile.TemporaryDirectory() as place:
        (Path(place) / "0").symlink_to(folder.resolve())
        for number, line in enumerate(LINES, 1):
            model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
            rw.extend(model, line, target_len=TARGET)
            rw.export(model, Path(place) / str(number), target="vllm", target_len=TARGET)
        paths = os.pathsep.join([str(ROOT), str(ROOT / "benchmarks")])
        quiet = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_LOGGING_LEVEL": "ERROR", "VLLM_NO_USAGE_STATS": "1"}
        space = {"VLLM_CPU_KVCACHE_SPACE": "4", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"}
        there = {EXPORTS: place, "HF_HUB_OFFLINE": "1", "VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1"}
        environment = {**os.environ, "PYTHONPATH": paths, **there, **quiet, **space}
        subprocess.run([ENGINE, "benchmarks/plugin.py", *sys.argv[1:]], cwd=ROOT, env=environment, check=True)


class Served:
    """One engine and its requests."""

    def __init__(self, place: Path, *, compiled: bool) -> None:
        from vllm import LLM

        limits = {"max_num_batched_tokens": CHUNK, "max_num_seqs": 8, "max_model_len": TARGET}
        cache = {"num_gpu_blocks_override": PAGES, "enable_prefix_caching": False, "async_scheduling": False}
        kind = {"dtype": "bfloat16", "skip_tokenizer_init": True, "enforce_eager": not compiled}
        self.engine = LLM(str(place), **limits, **cache, **kind).llm_engine
        self.names = map(str, itertools.count())

    def add(self, length: int, decoded: int) -> str:
        """A request of random tokens."""
        from vllm import SamplingParams

        name = next(self.names)
        ids = torch.randint(3, 2000, (length,), generator=torch.Generator().manual_seed(int(name))).tolist()
        params = SamplingParams(max_tokens=decoded, temperature=0, ignore_eos=True, detokenize=False)
        self.engine.add_request(name, {"prompt_token_ids": ids}, params)
        return name

    def steps(self, count: int) -> None:
        """So many steps of all requests."""
        for _ in range(count):
            self.engine.step()

    def read(self, length: int) -> None:
        """A prompt, and one token after it."""
        self.add(length, 1)
        while self.engine.has_unfinished_requests():
            self.engine.step()

    def start(self, requests: int, length: int, decoded: int) -> list[str]:
        """Requests that are decoding when this returns."""
        names, begun = [self.add(length, decoded) for _ in range(requests)], set()
        while len(begun) < requests:
            begun |= {output.request_id for output in self.engine.step() if output.outputs[0].token_ids}
        return names


def inside(place: Path, folder: Path, *, quick: bool, compiled: bool) -> None:
    """All cases."""
    torch.set_num_threads(1)
    trained = json.loads((folder / "config.json").read_text())["max_position_embeddings"]
    engines = {name: Served(place / str(number), compiled=compiled) for number, name in enumerate((OWN, *LINES))}
    count, cases = (1, DECODE[:3]) if quick else (5, (*DECODE, (1, trained + trained // 4)))
    rows = [prefill(engines, length, count) for length in PREFILL]
    rows += [decode(engines, requests, length, count) for requests, length in cases]
    if not quick:
        print(append("plugin", [{"model": folder.name, "compiled": compiled}, *rows]))


def prefill(engines: dict[str, Served], length: int, count: int) -> dict[str, Any]:
    """Reading a prompt."""
    times = rounds({name: lambda e=engine: e.read(length) for name, engine in engines.items()}, count)
    return said(f"prefill of {length}", times, length)


def decode(engines: dict[str, Served], requests: int, length: int, count: int) -> dict[str, Any]:
    """Decoding after so many tokens."""
    room = (count + 2) * STEPS
    names = {name: engine.start(requests, length, room) for name, engine in engines.items()}
    candidates: dict[str, Callable[[], object]] = {
        name: lambda e=engine: e.steps(STEPS) for name, engine in engines.items()
    }
    times = rounds(candidates, count)
    for name, engine in engines.items():
        engine.engine.abort_request(names[name])
    return said(f"decode, {requests} x {length}", times, requests * STEPS)


def said(case: str, times: dict[str, list[float]], tokens: int) -> dict[str, Any]:
    """Milliseconds a token, and how fast each is, 1 being vLLM's own."""
    each = {name: round(1e3 * statistics.median(elapsed) / tokens, 2) for name, elapsed in times.items()}
    speed = {name: round(1 / value["median"], 3) for name, value in ratios(times, OWN).items()}
    row = {"case": case, "milliseconds a token": each, "speed": speed}
    print(json.dumps(row), flush=True)
    return row


if __name__ == "__main__":
    asked = next(Path(word) for word in sys.argv[1:] if not word.startswith("--"))
    if EXPORTS in os.environ:
        inside(Path(os.environ[EXPORTS]), asked, quick="--quick" in sys.argv, compiled="--compiled" in sys.argv)
    else:
        main(asked)
