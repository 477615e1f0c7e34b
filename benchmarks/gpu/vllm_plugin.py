"""What vLLM serves with Ropewalk's plugin: log-probabilities against ours, and tokens per second against its own YaRN.

Goals: a plan by tables is at least 0.98 as fast as vLLM's own schedule; log-probabilities differ by less than rounding.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

import ropewalk as rw
from ropewalk.models import DEFAULT

from gpu.case import OutOfTime, Place, Row, goal

TARGET = 4096
REAL, DRY = (16, 2048, 128), (2, 200, 4)  # requests, and their tokens read and decoded
OWN = "vLLM's own yarn"
SERVED = {  # the line, and whether the plugin is to be used
    OWN: ("yarn", False),
    "yarn by tables": ("yarn", True),
    "yarn + log n by tables": ("yarn+log_n", None),
    "streaming by attention": ("streaming", None),
    "ReRoPE + log n by attention": ("rerope+log_n", None),
    "dynamic yarn by attention": ("dynamic_yarn", None),
}
FASTER = 0.98  # goal for plans that tables carry
CLOSE = 5e-3  # goal, float32


def measured(place: Place, left: float) -> list[Row]:
    """Every export, one engine at a time; speeds are those of one run."""
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    until, rows = time.monotonic() + left, []
    requests, length, decoded = place.either(REAL, DRY)
    prompts = torch.randint(3, 2000, (requests, length), generator=torch.Generator().manual_seed(0)).tolist()
    for name, (line, plugin) in SERVED.items():
        if time.monotonic() > until:
            raise OutOfTime(f"{name} and what comes after it were not begun", rows)
        with tempfile.TemporaryDirectory() as folder:
            expected = exported(line, plugin, Path(folder) / "served", prompts[0], place)
            gap, speed = asked(Path(folder) / "served", prompts, expected, decoded, eager=place.dry)
        base = rows[0]["tokens per second"] if rows else speed
        row = {"case": name, "tokens per second": speed, "difference": gap, **goal("difference", CLOSE)}
        rows.append({**row, "to vLLM's own": round(speed / base, 3), "goal by tables": FASTER})
    return rows


def exported(line: str, plugin: bool | None, folder: Path, ids: list[int], place: Place) -> torch.Tensor:
    """Write the export; what our own attention says of a prompt."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(DEFAULT, dtype=torch.float32).to(place.device).eval()
    rw.extend(model, line, target_len=TARGET)
    rw.export(model, folder, target="vllm", target_len=TARGET, plugin=plugin)
    with torch.no_grad():
        return model(torch.tensor([ids], device=place.device)).logits[0].float().log_softmax(-1).cpu()


def asked(
    folder: Path, prompts: list[list[int]], expected: torch.Tensor, decoded: int, eager: bool
) -> tuple[float, float]:
    """The largest difference over the first prompt, and the tokens per second of all of them.

    A dry run is `eager`: it checks names and shapes, and compiling six engines takes minutes.
    """
    from vllm import LLM, SamplingParams

    options: dict[str, Any] = {"dtype": "float32", "max_model_len": TARGET, "skip_tokenizer_init": True}
    options["enforce_eager"] = eager
    llm = LLM(str(folder), enable_prefix_caching=False, gpu_memory_utilization=0.3, **options)
    scored = SamplingParams(max_tokens=1, temperature=0, prompt_logprobs=5, detokenize=False)
    answer = llm.generate([{"prompt_token_ids": prompts[0]}], scored, use_tqdm=False)[0]
    said = enumerate(answer.prompt_logprobs[1:])
    gaps = [abs(one.logprob - float(expected[at, word])) for at, row in said for word, one in row.items()]
    free = SamplingParams(max_tokens=decoded, temperature=0, ignore_eos=True, detokenize=False)
    began = time.perf_counter()
    llm.generate([{"prompt_token_ids": ids} for ids in prompts], free, use_tqdm=False)
    return max(gaps), round(len(prompts) * (len(prompts[0]) + decoded) / (time.perf_counter() - began), 1)
