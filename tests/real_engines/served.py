"""A model exported by `rw.export` and read by an engine, with exactly the printed command, beside our own numbers."""

from pathlib import Path

import ropewalk as rw
from ropewalk.engines.export import freeze

from real_engines import models
from real_engines.process import ask
from real_engines.record import difference

FOLDERS = {"llama.cpp": "llama_cpp", "mlx": "mlx"}


def told(engine, command, ids, folder):
    """The engine's log-probabilities of a prompt: tokens x vocabulary."""
    read = Path(__file__).parent / FOLDERS[engine] / "read.py"
    (theirs,) = ask(engine, read, {"prompt": {"command": command, "ids": ids}}, folder).values()
    return theirs


def served(model, text, ids, folder, to=None, tokenizer=None, engine="llama.cpp"):
    """How far the engine's log-probabilities are from ours, and the export. A frozen schedule is compared as frozen."""
    place = folder / "exported"
    with rw.extended(model, text) as handle:
        said = rw.export(model, place, target=engine, target_len=to, tokenizer=tokenizer)
        static = freeze(handle.extension, handle.facts, to)
    with rw.extended(model, static):
        ours = models.log_probabilities(model, ids)
    return difference(ours, told(engine, said.command, ids, folder), models.TRAINED), said
