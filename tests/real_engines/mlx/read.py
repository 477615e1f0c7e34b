"""Runs in mlx-lm's environment: the log-probabilities of every token that an exported folder gives to prompts.

A question holds the command that the export printed, and token ids; the model is loaded and the prompt is read as
`mlx_lm.server` does, in chunks that go through the cache. With `write` only the prompt's own tokens are told, and so
many more are written.
"""

import argparse
import json
import shlex
import sys
from pathlib import Path

import mlx.core as mx
import numpy
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.utils import load_model

sys.path.append(str(Path(__file__).parents[1]))

from reading import read_and_write

CHUNK = 2048  # prefill_step_size


def options(command):
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--model", type=Path, required=True)
    program, *flags = shlex.split(command)
    assert program == "mlx_lm.server", program
    return parser.parse_args(flags)


def log_probabilities(model, ids):
    cache, rows = make_prompt_cache(model), []
    for start in range(0, len(ids), CHUNK):
        logits = model(mx.array([ids[start : start + CHUNK]]), cache=cache)[0].astype(mx.float32)
        rows.append(numpy.array(logits - mx.logsumexp(logits, axis=-1, keepdims=True)))
    return numpy.concatenate(rows)


def written(model, ids, count):
    cache = make_prompt_cache(model)
    return read_and_write(
        lambda part, start: numpy.array(model(mx.array([part]), cache=cache)[0].astype(mx.float32)), ids, count
    )


def main():
    question, answer = json.loads(Path(sys.argv[1]).read_text()), {}
    for name, job in question.items():
        model, _ = load_model(options(job["command"]).model)
        if "write" in job:
            answer[f"{name}/said"], answer[f"{name}/chosen"], _ = written(model, job["ids"], job["write"])
        else:
            answer[name] = log_probabilities(model, job["ids"])
    numpy.savez(sys.argv[2], **answer)


main()
