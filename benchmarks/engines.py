"""Ropewalk inside vLLM against vLLM's own kernels, side by side in one process.

    python benchmarks/engines.py [--quick]

Exports the carried model, then runs itself in .venv-vllm (`make engines` makes it). Two tables, appended to
benchmarks/results/engines.jsonl: one step of attention of decoding requests at 2,048 tokens, against vLLM's kernel over
its own pages; and tokens per second of a served batch, against the same schedule in vLLM's own rotary module.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rounds import append, ratios, rounds

ROOT = Path(__file__).resolve().parents[1]
ENGINE = ROOT / ".venv-vllm" / "bin" / "python"
EXPORTS = "ROPEWALK_EXPORTS"  # the folder of the exported models, in the environment of the second process
LENGTH, SIZE, TARGET = 2048, 128, 2048
SHAPES = {"4 heads": (4, 4, 64), "32 heads, 8 key heads": (32, 8, 64)}  # heads, key heads, size of a head
LINES = ("rope", "rerope:window=128", "self_extend:window=128,group=8", "streaming:window=128", "dynamic_yarn", "alibi")
SERVED = {
    "vLLM's own yarn": ("yarn", False),
    "yarn by the plugin's tables": ("yarn", True),
    "yarn + log n by the plugin's tables": ("yarn+log_n", None),
    "streaming by the plugin's attention": ("streaming", None),
    "ReRoPE + log n by the plugin's attention": ("rerope+log_n", None),
    "dynamic yarn by the plugin's attention": ("dynamic_yarn", None),
}
REQUESTS, PROMPT, DECODED = 16, 256, 64


def main() -> None:
    """Export here, measure in the engine's environment."""
    from transformers import AutoModelForCausalLM

    import ropewalk as rw
    from ropewalk.models import DEFAULT

    with tempfile.TemporaryDirectory() as place:
        for number, (line, plugin) in enumerate(SERVED.values()):
            model = AutoModelForCausalLM.from_pretrained(DEFAULT, dtype=torch.float32)
            rw.extend(model, line, target_len=TARGET)
            rw.export(model, Path(place) / str(number), target="vllm", target_len=TARGET, plugin=plugin)
        paths = os.pathsep.join([str(ROOT), str(ROOT / "benchmarks")])
        quiet = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_LOGGING_LEVEL": "ERROR", "VLLM_NO_USAGE_STATS": "1"}
        space = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"}
        environment = {**os.environ, "PYTHONPATH": paths, EXPORTS: place, "HF_HUB_OFFLINE": "1", **quiet, **space}
        subprocess.run([ENGINE, "benchmarks/engines.py", *sys.argv[1:]], cwd=ROOT, env=environment, check=True)


def inside(place: Path, quick: bool) -> None:
    """Both tables."""
    torch.set_num_threads(1)
    torch.cpu._init_amx()  # as vLLM's worker does, where the processor has it
    rows = [*steps(3 if quick else 15), *throughput(place, 1 if quick else 7)]
    for row in rows:
        print(json.dumps(row))
    if not quick:
        print(append("engines", rows))


def steps(count: int) -> list[dict[str, Any]]:
    """A step of attention, planning included as in one of six layers."""
    rows = []
    for shape, dtype, requests in product(SHAPES, (torch.float32, torch.bfloat16), (1, 8, 32)):
        step = Step(requests, *SHAPES[shape], dtype)
        candidates = {"vLLM": theirs(step), **{line: ours(line, step) for line in LINES}}
        result = ratios(rounds(candidates, count), "vLLM")
        name = f"step at {LENGTH}, {requests} requests, {shape}, {str(dtype)[6:]}"
        rows.append({"case": name, "to vLLM": {key: value["median"] for key, value in result.items()}})
    return rows


@dataclass(frozen=True)
class Step:
    """The last of LENGTH tokens of each request, and the pages of all of them."""

    requests: int
    heads: int
    groups: int
    size: int
    dtype: torch.dtype

    @property
    def table(self) -> Tensor:
        """The pages of each request; the first page of all is vLLM's own."""
        return torch.arange(1, self.pages, dtype=torch.int32).view(self.requests, -1)

    @property
    def pages(self) -> int:
        """Of all requests, and vLLM's own."""
        return self.requests * (LENGTH // SIZE + 1) + 1

    @property
    def slots(self) -> Tensor:
        """Where each request's token is stored."""
        return self.table[:, (LENGTH - 1) // SIZE].long() * SIZE + (LENGTH - 1) % SIZE

    def random(self, *shape: int) -> Tensor:
        """Normal numbers in the type of the step."""
        return torch.randn(*shape).to(self.dtype)


def ours(line: str, at: Step) -> Callable[[], object]:
    """Six layers, as a model has them: the first one plans the step."""
    from ropewalk import Facts, parse
    from ropewalk.attention.paged import PagedBatch, PagedLayer
    from ropewalk.attention.paged.rows import PageStages
    from ropewalk.attention.problem import layer_terms
    from ropewalk.engines.vllm.plugin.cpu_kernel import by_kernel

    facts = Facts(trained_len=512, head_dim=at.size, heads=at.heads, kv_heads=at.groups)
    terms = layer_terms(parse(line, trained_len=512, target_len=4096), facts)
    layer = by_kernel(PagedLayer(terms), SIZE, at.dtype)
    pages = at.random(at.pages, at.groups, layer.lanes, SIZE, at.size)
    table, slots = at.table, at.slots
    q, k = (at.random(at.requests, heads, at.size) for heads in (at.heads, at.groups))
    stages = PageStages(len(pages)) if layer.has_stages else None

    def step() -> None:
        batch = PagedBatch(list(range(at.requests + 1)), [LENGTH] * at.requests, table, slots, size=SIZE)
        for _ in range(6):
            layer.read(pages, q, k, k, batch, stages)

    return step


def theirs(at: Step) -> Callable[[], object]:
    """The same by vLLM's kernels: storing, the plan of a step once, and attention."""
    from vllm import _custom_ops as ops
    from vllm.v1.attention.backends.cpu_attn import _get_attn_isa

    isa = _get_attn_isa(at.dtype, SIZE, at.size, "auto")
    cache = at.random(at.pages, at.groups, SIZE, 2 * at.size)
    keys, values = cache.view(-1, at.groups, SIZE * 2, at.size).chunk(2, dim=2)
    table, slots = at.table, at.slots
    q, k = (at.random(at.requests, heads, at.size) for heads in (at.heads, at.groups))
    out, starts = q.clone(), torch.arange(at.requests + 1, dtype=torch.int32)
    lengths = torch.full((at.requests,), LENGTH, dtype=torch.int32)
    scales = {"k_scale": 1.0, "v_scale": 1.0, "kv_cache_dtype": "auto"}
    heads = {"num_heads": at.heads, "num_kv_heads": at.groups, "head_dim": at.size}
    sizes = {"num_reqs": at.requests, **heads, "dtype": at.dtype}
    plain = {"causal": True, "dynamic_causal": None}

    def step() -> None:
        plan = ops.cpu_attn_get_scheduler_metadata(
            **sizes, **plain, seq_lens=lengths, query_start_loc=starts, sliding_window_size=-1, isa=isa,
            enable_kv_split=True, kv_cache_dtype="auto",
        )  # fmt: skip
        for _ in range(6):
            ops.cpu_attn_reshape_and_cache(k, k, keys, values, slots, isa, **scales)
            ops.cpu_attention_with_kv_cache(
                query=q, key_cache=keys, value_cache=values, output=out, query_start_loc=starts, seq_lens=lengths,
                scale=at.size**-0.5, alibi_slopes=None, sliding_window=-1, block_table=table, softcap=0.0,
                scheduler_metadata=plan, s_aux=None, **plain, **scales,
            )  # fmt: skip

    return step


def throughput(place: Path, count: int) -> list[dict[str, Any]]:
    """Tokens per second of a batch of requests, to those of vLLM's own schedule; all models are loaded at once."""
    from vllm import LLM, SamplingParams

    common = {"dtype": "float32", "max_model_len": TARGET, "skip_tokenizer_init": True, "enforce_eager": True}
    limits = {"max_num_batched_tokens": 1024, "max_num_seqs": REQUESTS, "enable_prefix_caching": False}
    params = SamplingParams(max_tokens=DECODED, temperature=0, ignore_eos=True, detokenize=False)
    draw = torch.Generator().manual_seed(0)
    prompts = [
        {"prompt_token_ids": torch.randint(3, 2000, (PROMPT,), generator=draw).tolist()} for _ in range(REQUESTS)
    ]
    candidates = {}
    for number, name in enumerate(SERVED):
        llm = LLM(str(place / str(number)), num_gpu_blocks_override=80, **common, **limits)
        candidates[name] = lambda llm=llm: llm.generate(prompts, params, use_tqdm=False)
    result = ratios(rounds(candidates, count), next(iter(SERVED)))
    speeds = {name: round(1 / value["median"], 3) for name, value in result.items()}
    return [
        {"case": f"{REQUESTS} requests of {PROMPT} + {DECODED} tokens, float32", "tokens per second to vLLM's": speeds}
    ]


if __name__ == "__main__":
    if EXPORTS in os.environ:
        inside(Path(os.environ[EXPORTS]), "--quick" in sys.argv)
    else:
        main()
