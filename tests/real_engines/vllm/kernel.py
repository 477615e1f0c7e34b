"""Runs in vLLM's environment: attention over pages by its kernel for CPUs, against the oracle."""

import json
import sys
from pathlib import Path

import numpy
import torch
from vllm.platforms import current_platform

sys.path.insert(0, str(Path(__file__).parents[2]))

from ropewalk import Facts, parse
from ropewalk.attention.paged.kernel_layer import KernelLayer
from ropewalk.engines.vllm.plugin.cpu_kernel import by_kernel

from attention.paged.server import Server

TRAINED, TARGET, SIZE = 200, 900, 32
STEPS = ([150, 90, 1], [1, 1, 1], [120, 3, 20], [8, 120, 1], [1, 1, 0], [1, 1, 9], [400, 1, 1], [1, 1, 1])


def largest_error(text, heads, groups, head_dim, dtype, logits, *, kernel):
    """Over the outputs of requests that grow by chunks, drafts and single tokens; queries times `logits`."""
    facts = Facts(trained_len=TRAINED, head_dim=head_dim, heads=heads, kv_heads=groups)
    extension = parse(text, trained_len=TRAINED, target_len=TARGET)
    server = Server(extension, facts, size=SIZE, pages=80, dtype=dtype)
    if kernel:
        server.layer = by_kernel(server.layer, SIZE, dtype)
        assert isinstance(server.layer, KernelLayer)
    server.pages.zero_()
    for length in (800, 500, 300):
        server.add(length)
        server.texts[-1][0].mul_(logits)
    errors = []
    for counts in STEPS:
        pairs = zip(server.step(counts), counts, strict=True)
        errors += [float((out.double() - server.expected(n, c)).abs().max()) for n, (out, c) in enumerate(pairs) if c]
    return max(errors)


if __name__ == "__main__":
    torch.set_num_threads(1)
    current_platform.import_kernels()
    torch.cpu._init_amx()  # as vLLM's worker does
    cases = json.loads(Path(sys.argv[1]).read_text())
    errors = {
        name: [largest_error(*case[:4], getattr(torch, case[4]), case[5], kernel=kernel) for case in cases]
        for name, kernel in {"kernel": True, "products": False}.items()
    }
    numpy.savez(sys.argv[2], **{name: numpy.array(values) for name, values in errors.items()})
