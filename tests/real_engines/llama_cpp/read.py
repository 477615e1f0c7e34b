"""Runs in llama.cpp's environment: the log-probabilities of every token that a GGUF file gives to prompts.

A question holds the command that the export printed, and a prompt of token ids, or texts to tokenize. With `write` only
the prompt's own tokens are told, and so many more are written. The command's options are those of llama-server; one
that is not known here stops the run. libllama is the server's.
"""

import argparse
import json
import os
import shlex
import sys
from functools import partial
from pathlib import Path

import numpy
from llama_cpp_py_sync._cffi_bindings import get_ffi, get_lib

sys.path.append(str(Path(__file__).parents[1]))

from reading import read_and_write

ffi, lib = get_ffi(), get_lib()
TYPES = {"f32": 0, "f16": 1, "bf16": 30}  # enum ggml_type
FLASH = {"auto": -1, "off": 0, "on": 1}  # enum llama_flash_attn_type
SCALING = {"none": 0, "linear": 1, "yarn": 2}  # enum llama_rope_scaling_type
OVERRIDES = {"int": (0, "val_i64", int), "float": (1, "val_f64", float)}  # enum llama_model_kv_override_type


def options(command):
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("-m", dest="model", required=True)
    parser.add_argument("-c", dest="context", type=int, required=True)
    parser.add_argument("-fa", dest="flash", default="auto", choices=FLASH)
    parser.add_argument("-ctk", dest="keys", default="f16", choices=TYPES)
    parser.add_argument("-ctv", dest="values", default="f16", choices=TYPES)
    parser.add_argument("-np", dest="parallel", type=int, default=1)
    parser.add_argument("--rope-scaling", dest="scaling", choices=SCALING)
    parser.add_argument("--rope-scale", dest="scale", type=float)
    parser.add_argument("--rope-freq-base", dest="base", type=float)
    parser.add_argument("--yarn-orig-ctx", dest="original", type=int)
    parser.add_argument("--override-kv", dest="overrides", action="append", default=[])
    program, *flags = shlex.split(command)
    assert program == "llama-server", program
    return parser.parse_args(flags)


def overridden(texts):
    """llama_model_kv_override, with an empty key at the end."""
    made = ffi.new("struct llama_model_kv_override[]", len(texts) + 1)
    for one, text in zip(made, texts, strict=False):
        key, _, stated = text.partition("=")
        kind, _, value = stated.partition(":")
        one.tag, field, read = OVERRIDES[kind]
        one.key = key.encode()
        setattr(one, field, read(value))
    return made


def load(said):
    how = lib.llama_model_default_params()
    how.kv_overrides = kept = overridden(said.overrides)  # which must outlive the loading
    model = lib.llama_model_load_from_file(said.model.encode(), how)
    del kept
    if model == ffi.NULL:
        sys.exit(f"llama.cpp does not load {said.model}")
    params = lib.llama_context_default_params()
    params.n_ctx, params.n_seq_max, params.kv_unified = said.context, said.parallel, True
    params.n_threads = params.n_threads_batch = int(os.environ.get("OMP_NUM_THREADS", "2"))
    params.type_k, params.type_v, params.flash_attn_type = TYPES[said.keys], TYPES[said.values], FLASH[said.flash]
    if said.scaling:
        params.rope_scaling_type = SCALING[said.scaling]
    if said.scale:
        params.rope_freq_scale = 1 / said.scale
    params.rope_freq_base, params.yarn_orig_ctx = said.base or 0.0, said.original or 0
    context = lib.llama_init_from_model(model, params)
    if context == ffi.NULL:
        sys.exit("llama.cpp makes no context")
    return model, context


def logits(context, ids, start):
    """Of tokens behind `start` others: tokens x vocabulary."""
    words = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(lib.llama_get_model(context)))
    batch = lib.llama_batch_init(len(ids), 0, 1)
    for i, token in enumerate(ids):
        batch.token[i], batch.pos[i], batch.n_seq_id[i] = token, start + i, 1
        batch.seq_id[i][0], batch.logits[i] = 0, True
    batch.n_tokens = len(ids)
    status = lib.llama_decode(context, batch)
    assert status == 0, f"llama_decode answers {status}"
    rows = ffi.buffer(lib.llama_get_logits(context), 4 * words * len(ids))
    lib.llama_batch_free(batch)
    return numpy.frombuffer(rows, numpy.float32).reshape(len(ids), words).copy()


def log_probabilities(context, ids):
    size = lib.llama_n_batch(context)
    parts = [logits(context, ids[start : start + size], start) for start in range(0, len(ids), size)]
    rows = numpy.concatenate(parts).astype(numpy.float64)
    rows -= rows.max(-1, keepdims=True)
    return (rows - numpy.log(numpy.exp(rows).sum(-1, keepdims=True))).astype(numpy.float32)


def tokens(model, text):
    data = text.encode()
    out = ffi.new("llama_token[]", len(data) + 8)
    count = lib.llama_tokenize(lib.llama_model_get_vocab(model), data, len(data), out, len(data) + 8, True, True)
    assert count >= 0
    return numpy.array([out[i] for i in range(count)], numpy.int64)


def main():
    question = json.loads(Path(sys.argv[1]).read_text())
    lib.llama_backend_init()
    answer = {}
    for name, job in question.items():
        model, context = load(options(job["command"]))
        if "write" in job:
            step = partial(logits, context)
            answer[f"{name}/said"], answer[f"{name}/chosen"], _ = read_and_write(step, job["ids"], job["write"])
        elif "ids" in job:
            answer[f"{name}"] = log_probabilities(context, job["ids"])
        for i, text in enumerate(job.get("texts", [])):
            answer[f"{name}/{i}"] = tokens(model, text)
        lib.llama_free(context)
        lib.llama_model_free(model)
    numpy.savez(sys.argv[2], **answer)


main()
