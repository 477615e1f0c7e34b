"""Runs in vLLM's environment: `rw.check` of configs, which calls vLLM's own code there."""

import json
import sys
from pathlib import Path

import numpy

from ropewalk.engines.check.check import check

cases = json.loads(Path(sys.argv[1]).read_text())
answers = [check(case["folder"], engine="vllm@0.32", target_len=case["served"]).to_json() for case in cases]
numpy.savez(sys.argv[2], said=numpy.array(json.dumps(answers)))
