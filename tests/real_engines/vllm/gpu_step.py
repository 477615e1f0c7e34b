"""Runs in vLLM's environment: the step of `make gpu` that measures the plugin, with tiny shapes on the CPU."""

import json
import os
import sys
from pathlib import Path

import numpy

os.environ |= {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_LOGGING_LEVEL": "ERROR", "VLLM_NO_USAGE_STATS": "1"}
sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))

if __name__ == "__main__":
    from gpu.case import Place
    from gpu.vllm_plugin import measured

    rows = measured(Place("cpu", dry=True), 400)
    numpy.savez(sys.argv[2], rows=json.dumps(rows))
