"""A model exported by `rw.export` and read by llama.cpp, beside our own numbers.

By the printed command, with a cache in float32 where the model is: by default it is in float16, under flash attention.
"""

from pathlib import Path

import torch

import ropewalk as rw
from ropewalk.engines.export import freeze

from real_engines import models
from real_engines.process import ask
from real_engines.record import difference

READ = Path(__file__).parent / "read.py"
EXACT = " -fa off -ctk f32 -ctv f32"


def served(model, text, ids, folder, to=None, tokenizer=None):
    """How far llama.cpp's log-probabilities are from ours, and the export. A frozen schedule is compared as frozen."""
    place = folder / "exported"
    with rw.extended(model, text) as handle:
        said = rw.export(model, place, target="llama.cpp", target_len=to, tokenizer=tokenizer)
        static = freeze(handle.extension, handle.facts, to)
    with rw.extended(model, static):
        ours = models.log_probabilities(model, ids)
    command = said.command + (EXACT if model.dtype == torch.float32 else "")
    (theirs,) = ask("llama.cpp", READ, {"prompt": {"command": command, "ids": ids}}, folder).values()
    return difference(ours, theirs, models.TRAINED), said
