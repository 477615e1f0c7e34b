"""A model exported by `rw.export` and read by an engine, beside our own numbers.

By the printed command. llama.cpp's cache is in float16 by default, under flash attention. It is in float32 here
where the model is.
"""

from pathlib import Path

import torch

import ropewalk as rw
from ropewalk.extension.static import freeze

from real_engines import models
from real_engines.process import ask
from real_engines.record import difference

EXACT = " -fa off -ctk f32 -ctv f32"  # of llama.cpp
SCRIPTS = {
    engine: Path(__file__).parent / folder / "read.py"
    for engine, folder in (("llama.cpp", "llama_cpp"), ("mlx", "mlx"))
}


def told(engine, command, ids, folder):
    """The engine's log-probabilities of a prompt: tokens x vocabulary."""
    (theirs,) = ask(engine, SCRIPTS[engine], {"prompt": {"command": command, "ids": ids}}, folder).values()
    return theirs


def served(model, text, ids, folder, to=None, tokenizer=None, engine="llama.cpp"):
    """How far the engine's log-probabilities are from ours, and the export. A frozen schedule is compared as frozen."""
    place = folder / "exported"
    with rw.extended(model, text) as handle:
        said = rw.export(model, place, target=engine, target_len=to, tokenizer=tokenizer)
        static = handle.extension if to is None else freeze(handle.extension, handle.facts, to)
    with rw.extended(model, static):
        ours = models.log_probabilities(model, ids)
    command = said.command + (EXACT if engine == "llama.cpp" and model.dtype == torch.float32 else "")
    return difference(ours, told(engine, command, ids, folder), models.TRAINED), said
