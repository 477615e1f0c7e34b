"""Serving: our engine, plain `generate` and vLLM on the same requests, side by side in one run.

    python benchmarks/serving.py [--quick]

Eight requests of 195 + 64 tokens of the carried model, float32, on all cores. Each side is a process of its own, since
two pools of worker threads in one process slow each other down; they take turns in every round. vLLM runs in .venv-vllm
(`make engines` makes it) and is left out where that is missing. Then the time between tokens of a short request while a
long prompt is being read. Appended to benchmarks/results/serving.jsonl.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch

from rounds import append, ratios, rounds

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "ropewalk" / "models" / "default"
VLLM = ROOT / ".venv-vllm" / "bin" / "python"
ROLE = "ROPEWALK_BENCHMARK_ROLE"  # in the environment of the other processes: which one it is
IN_VLLM, IN_GENERATE = "vllm", "generate"
LINES = ("rerope+log_n", "dynamic_yarn", "streaming")
NAMES = ("bare", *LINES)
REQUESTS, PROMPT, DECODED, LONG, TARGET = 8, 195, 64, 16_000, 32_768


def prompts(count: int, length: int = PROMPT, seed: int = 0) -> list[list[int]]:
    """Random tokens."""
    return torch.randint(3, 2000, (count, length), generator=torch.Generator().manual_seed(seed)).tolist()


def main(often: int) -> list[dict[str, Any]]:
    """The rows of both tables."""
    seeds = iter(range(10**6))  # new prompts every time: nothing is read from a cache
    with ours() as batch, ExitStack() as others:
        candidates: dict[str, Callable[[], object]] = {
            "generate, 8": others.enter_context(other_process(Path(sys.executable), IN_GENERATE)),
            **{f"{name}, {count}": batch(name, count, seeds) for name in NAMES for count in (1, REQUESTS)},
        }
        if VLLM.exists():
            candidates["vLLM, 8"] = others.enter_context(other_process(VLLM, IN_VLLM))
        times = rounds(candidates, often, seconds=wall)
        rows = [{"case": f"{REQUESTS} requests of {PROMPT} + {DECODED} tokens, seconds", **table(times)}]
        return [*rows, {"case": "between tokens, milliseconds", **batch.waiting()}]


def table(times: dict[str, list[float]]) -> dict[str, Any]:
    """Medians, and the ratios that the goals are about."""
    middle = {name: statistics.median(values) for name, values in times.items()}
    alone = {name: REQUESTS * middle[f"{name}, 1"] / middle[f"{name}, {REQUESTS}"] for name in NAMES}
    goals = {f"{name}: throughput of {REQUESTS} to 1": round(ratio, 2) for name, ratio in alone.items()}
    for other in sorted({"generate, 8", "vLLM, 8"} & times.keys()):
        to_other = ratios(times, other)
        speeds = {name: 1 / to_other[f"{name}, {REQUESTS}"]["median"] for name in NAMES}
        goals |= {f"{name}: throughput to {other}": round(speed, 2) for name, speed in speeds.items()}
    return {**{name: round(value, 3) for name, value in middle.items()}, **goals}


def wall(run: Callable[[], object]) -> float:
    """Seconds by the clock: processes and threads are compared."""
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


class Batches:
    """Our engine with its event loop."""

    def __init__(self, engine: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._engine, self._loop = engine, loop

    def __call__(self, name: str, count: int, seeds: Iterator[int]) -> Callable[[], object]:
        """A run of so many requests at once."""
        return lambda: self._loop.run_until_complete(self._all(name, prompts(count, seed=next(seeds))))

    async def _all(self, name: str, texts: list[list[int]]) -> None:
        await asyncio.gather(*(self._one(name, text, DECODED, timed=False) for text in texts))

    async def _one(self, name: str, text: list[int], count: int, *, timed: bool = True) -> list[float]:
        """When each token came. Log-probabilities come with each token, text where it is certain."""
        from ropewalk.serve.generation.request import Request, Sampling

        sampling = Sampling(count, temperature=0, logprobs=0 if timed else None, ignore_eos=True)
        answer = self._engine.generate(Request(name, (tuple(text),), sampling))
        return [time.perf_counter() async for token in answer if token.id is not None]

    def waiting(self) -> dict[str, Any]:
        """Milliseconds between the tokens of a short request, alone and while a long prompt is read."""
        return self._loop.run_until_complete(self._waiting())

    async def _waiting(self) -> dict[str, Any]:
        name = "rerope+log_n"
        idle = await self._one(name, prompts(1, seed=-1)[0], 200)
        long = asyncio.create_task(self._one(name, prompts(1, LONG, seed=-2)[0], 1))
        busy: list[list[float]] = []
        began = time.perf_counter()
        while not long.done():
            busy.append(await self._one(name, prompts(1, seed=-3 - len(busy))[0], 100))
        read = long.result()[0] - began
        return {
            "idle": gaps([idle]),
            f"while {LONG} tokens are read": gaps(busy),
            "seconds until they are read": round(read, 1),
        }


def gaps(arrivals: list[list[float]]) -> dict[str, float]:
    """The times between tokens."""
    between = sorted(1e3 * (b - a) for times in arrivals for a, b in itertools.pairwise(times))
    last = between[int(0.99 * (len(between) - 1))]
    middle, mean = statistics.median(between), statistics.mean(between)
    return {"median": round(middle, 2), "mean": round(mean, 2), "99 %": round(last, 1)}


@contextmanager
def ours() -> Iterator[Batches]:
    """Our engine under all extensions."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from ropewalk.hf.loading import keep_memory
    from ropewalk.models import DEFAULT
    from ropewalk.serve.generation.engine import Engine
    from ropewalk.serve.generation.model import ServedModel, served_extensions

    keep_memory()  # as `ropewalk serve` does
    host = AutoModelForCausalLM.from_pretrained(DEFAULT, dtype=torch.float32).eval()
    served = served_extensions(host, {line: line for line in LINES}, target_len=TARGET)
    model = ServedModel(host, served, size=64, limit=2**31)
    engine, loop = Engine(model, AutoTokenizer.from_pretrained(DEFAULT), name="default"), asyncio.new_event_loop()
    engine.start()
    yield Batches(engine, loop)
    loop.run_until_complete(engine.close())
    model.close()


@contextmanager
def other_process(python: Path, role: str) -> Iterator[Callable[[], object]]:
    """A process that runs a batch for every line that it reads."""
    quiet = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_LOGGING_LEVEL": "ERROR", "VLLM_NO_USAGE_STATS": "1"}
    space = {
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": f"0-{(os.cpu_count() or 1) - 1}",
        "HF_HUB_OFFLINE": "1",
        "PYTHONPATH": str(ROOT / "benchmarks"),
    }
    environment = {**os.environ, **quiet, **space, ROLE: role}
    command = [python, "benchmarks/serving.py"]
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdin=-1, stdout=-1, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        while process.stdout.readline().strip() != "ready":
            assert process.poll() is None, f"the process of {role} ended"

        def batch() -> None:
            print(file=process.stdin, flush=True)
            while process.stdout.readline().strip() != "done":
                assert process.poll() is None, f"the process of {role} ended"

        yield batch
        process.stdin.close()


def answer_lines(run: Callable[[list[list[int]]], object]) -> None:
    """In the other processes: a batch for every line."""
    print("ready", flush=True)
    for seed, _ in enumerate(sys.stdin):
        run(prompts(REQUESTS, seed=seed))
        print("done", flush=True)


def in_generate() -> None:
    """A batch of plain `generate`."""
    from transformers import AutoModelForCausalLM

    model: Any = AutoModelForCausalLM.from_pretrained(FOLDER, dtype=torch.float32).eval()
    options = {"max_new_tokens": DECODED, "min_new_tokens": DECODED, "do_sample": False, "pad_token_id": 0}
    answer_lines(lambda texts: model.generate(torch.tensor(texts), **options))


def in_vllm() -> None:
    """A batch in vLLM."""
    from vllm import LLM, SamplingParams

    limits = {"max_model_len": 512, "max_num_seqs": REQUESTS, "enable_prefix_caching": False}
    llm = LLM(str(FOLDER), dtype="float32", skip_tokenizer_init=True, **limits)
    params = SamplingParams(max_tokens=DECODED, temperature=0, ignore_eos=True, detokenize=False)
    answer_lines(lambda texts: llm.generate([{"prompt_token_ids": ids} for ids in texts], params, use_tqdm=False))


if __name__ == "__main__":
    if ROLE in os.environ:
        {IN_VLLM: in_vllm, IN_GENERATE: in_generate}[os.environ[ROLE]]()
    else:
        quick = "--quick" in sys.argv
        result = main(1 if quick else 9)
        for row in result:
            print(json.dumps(row, indent=1))
        if not quick:
            print(append("serving", result))
