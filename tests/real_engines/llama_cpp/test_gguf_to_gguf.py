"""Y.gguf from X.gguf in the real llama.cpp, beside the model that transformers reads from X.gguf, extended here.

By the printed command with a cache in float32, by the command as it is printed, and by the options for X.gguf that are
printed where these say the same.
"""

import numpy as np
import pytest
import torch

import ropewalk as rw
from ropewalk.hf.checkpoint.fetch import fetch_model

from engines.export.exported import quantised
from nightly import first_of_each
from real_engines import models
from real_engines.process import ask
from real_engines.served import EXACT, SCRIPTS

TOKENS = 1024
MEAN = 1e-3
PRINTED = 1e-2  # a cache in float16
# How the file has it: by a name, as another base, as divisors, with a temperature beside it.
LINES = {
    "yarn": "name",
    "pi": "name",
    "ntk": "base",
    "by_parts": "divisors",
    "llama3": "divisors",
    "longrope:factor=8": "temperature",
    "yarn:factor=8+scales.temperature:value=1.1": "temperature",
}


def asked(folder, ids, **commands):
    return ask(
        "llama.cpp",
        SCRIPTS["llama.cpp"],
        {name: {"command": said, "ids": ids} for name, said in commands.items()},
        folder,
    )


def mean(one, other):
    return float(np.abs(one - other).mean())


@pytest.mark.parametrize("line", first_of_each(list(LINES), LINES.get, str))
def test_our_numbers(plain, tmp_path, line):
    said = rw.export(plain, tmp_path / "Y.gguf", target="llama.cpp", extension=line, target_len=models.LONGEST)
    ids = models.prompt(TOKENS)
    with rw.extended(model := fetch_model(plain, dtype=torch.float32), line, target_len=models.LONGEST):
        ours = models.log_probabilities(model, ids).numpy()
    options = [note.partition(": ")[2] + EXACT for note in said.notes if note.startswith("the same without this file")]
    more = {"options": options[0]} if options else {}
    theirs = asked(tmp_path, ids, exact=said.command + EXACT, printed=said.command, **more)
    assert mean(theirs["exact"], ours) < MEAN
    assert mean(theirs["printed"], ours) < PRINTED
    assert bool(options) == (LINES[line] in ("name", "base"))
    if options:
        assert np.array_equal(theirs["options"], theirs["exact"])


def test_quantised_weights_stay_so(plain, tmp_path):
    """llama.cpp rounds what it multiplies them by as well: no more under the schedule than without it."""
    source, ids = quantised(plain, tmp_path / "X.gguf"), models.prompt(TOKENS)
    said = rw.export(source, tmp_path / "Y.gguf", target="llama.cpp", extension="yarn", target_len=models.LONGEST)
    model = fetch_model(source, dtype=torch.float32)
    bare = models.log_probabilities(model, ids).numpy()
    with rw.extended(model, "yarn", target_len=models.LONGEST):
        ours = models.log_probabilities(model, ids).numpy()
    before = f"llama-server -m {source} -c {models.LONGEST}{EXACT}"
    theirs = asked(tmp_path, ids, before=before, after=said.command + EXACT)
    inside = slice(models.TRAINED)
    assert mean(theirs["after"], ours) < 2 * mean(theirs["before"][inside], bare[inside])
