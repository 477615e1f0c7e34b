"""Runs in vLLM's environment: what it answers to prompts of token ids, from the folders and by the commands of exports.

A question holds jobs by name. A job has the `command` that the export printed, which vLLM's own parser reads, with
`options` of the test machine behind it, `prompts`, the number of tokens to `decode`, and whether prompts are served
`together` or one after the other. Each answer is named `job/prompt/...`: `ids` and `values` [tokens, k] of the prompt
(row i says token i + 1), `chosen` [decoded], `decoded_ids` and `decoded_values` [decoded, k]. A job that is refused is
answered by `job/refused`, the message. `setup` names what is done before a job, `keeps` leaves its engine running.
"""

import gc
import json
import os
import shlex
import sys
import time
from pathlib import Path
from types import ModuleType

os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")

import numpy
import torch
from vllm import LLM, SamplingParams
from vllm.engine.arg_utils import EngineArgs
from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.utils.argparse_utils import FlexibleArgumentParser

HERE = "--skip-tokenizer-init --max-logprobs 20 --max-num-seqs 32 --max-num-batched-tokens 1024"
TOP = 5


def engine(job):
    words = shlex.split(job["command"])
    while "=" in words[0]:  # of the environment
        os.environ.update([words.pop(0).split("=")])
    program, verb, place, *flags = words
    assert (program, verb) == ("vllm", "serve"), job["command"]
    parser = make_arg_parser(FlexibleArgumentParser())
    asked = parser.parse_args(["--model", place, *flags, *HERE.split(), *shlex.split(job["options"])])
    return LLM.from_engine_args(EngineArgs.from_cli_args(asked))


def served(llm, job):
    count = job["decode"]
    params = SamplingParams(
        max_tokens=max(count, 1),
        temperature=0,
        ignore_eos=True,
        detokenize=False,
        flat_logprobs=True,
        logprobs=TOP,
        prompt_logprobs=TOP if job["scores_prompts"] else None,
    )
    prompts = [{"prompt_token_ids": ids} for ids in job["prompts"]]
    if job["together"]:
        return llm.generate(prompts, params, use_tqdm=False)
    return [llm.generate(prompt, params, use_tqdm=False)[0] for prompt in prompts]


def rows(flat):
    """The `TOP` likeliest tokens of each position with their log-probabilities; positions without any are left out."""
    ids, values = numpy.array(flat.token_ids), numpy.array(flat.logprobs, numpy.float32)
    spans = [range(a, b) for a, b in zip(flat.start_indices, flat.end_indices, strict=True) if b > a]
    order = numpy.array([list(span)[:TOP] for span in spans], numpy.int64)
    return ids[order], values[order]


def bypass_get_rope():
    """A model class that makes its rotary module by itself, as some of vLLM's do."""
    from vllm.model_executor.layers.rotary_embedding import RotaryEmbedding
    from vllm.model_executor.models.llama import LlamaAttention

    def made(self, config, quant_config):
        self.rotary_emb = RotaryEmbedding(self.head_dim, self.head_dim, 2048, 1e4, True, torch.float32)

    LlamaAttention._init_rotary_emb = made


def pretend_another_version():
    """vLLM as it might be when this version of Ropewalk is old."""
    import vllm

    vllm.__version__ = "0.99.0"


def stand_in_for_torchvision():
    """vLLM's Qwen3-VL and Qwen3.5 import it for videos, and its wheel cannot be imported beside torch for CPUs."""
    from transformers.utils import is_torchvision_available
    from vllm.model_executor.models import registry

    assert not is_torchvision_available()  # asked once: it stays so for transformers
    above, name = None, ""
    for part in ("torchvision", "transforms", "v2", "functional"):
        name = f"{name}.{part}".removeprefix(".")
        module = sys.modules[name] = ModuleType(name)
        if above:
            setattr(above, part, module)
        above = module
    registry._run_in_subprocess = lambda asked: asked()


SETUPS = {
    "": lambda: None,
    "videos": stand_in_for_torchvision,
    "bypass": bypass_get_rope,
    "version": pretend_another_version,
}
KEPT = []


def run(name, job, answer):
    SETUPS[job["setup"]]()
    try:
        llm = engine(job)
    except Exception as refusal:
        if not job["may_refuse"]:
            raise
        answer[f"{name}/refused"] = numpy.array(f"{type(refusal).__name__}: {refusal}")
        return
    KEPT.extend([llm] * job["keeps"])
    for _ in range(job["repeat"]):
        begin = time.perf_counter()
        outputs = served(llm, job)
        answer[f"{name}/seconds"] = numpy.array(time.perf_counter() - begin)
    for i, output in enumerate(outputs):
        if job["scores_prompts"]:
            answer[f"{name}/{i}/ids"], answer[f"{name}/{i}/values"] = rows(output.prompt_logprobs)
        answer[f"{name}/{i}/chosen"] = numpy.array(output.outputs[0].token_ids)
        answer[f"{name}/{i}/decoded_ids"], answer[f"{name}/{i}/decoded_values"] = rows(output.outputs[0].logprobs)
        answer[f"{name}/{i}/cached"] = numpy.array(output.num_cached_tokens or 0)


def main():
    gc.freeze()  # what is imported stays; vLLM collects a dozen times while it loads a model
    answer = {}
    for name, job in json.loads(Path(sys.argv[1]).read_text()).items():
        print(name, flush=True)
        run(name, job, answer)
        gc.collect()
    numpy.savez(sys.argv[2], **answer)


main()
