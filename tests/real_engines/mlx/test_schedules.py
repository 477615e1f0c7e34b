"""Exportable schedules in the real mlx-lm: log-probabilities token by token, from the folder of the printed command.

In float32 the bound is 5e-3, as for the other engines: a wrong table, temperature or base is off by 1 to 20. mlx-lm
rounds Gemma's scale of embeddings to bfloat16, which is 2e-3 of it.
"""

import pytest

import ropewalk as rw
from ropewalk import DoesNotFit

from nightly import first_of_each
from real_engines import models
from real_engines.record import difference
from real_engines.served import served, told

EXACT = 5e-3
TOKENS = 2048
STRETCHED = "frequencies.by_parts:factor=8,truncate=false+scales.yarn_temperature:factor=8"
CARRIED = [
    ("yarn:factor=8", "native"),
    ("pi:factor=8", "native"),
    ("ntk:factor=8", "native"),
    ("abf:new_base=500000", "native"),
    ("llama3:factor=8", "native"),
    ("by_parts:factor=8", "native"),
    ("longrope:factor=8", "lowered"),
    (STRETCHED, "lowered"),
    ("dynamic_yarn", "frozen"),
]
FEWER = 1024
BY_MSCALE = "by_parts:factor=4,low_turns=2,high_turns=8+scales.temperature:value=1.3"
NAMED = ("yarn:factor=4", "pi:factor=4", "ntk:factor=4", "llama3:factor=4", BY_MSCALE)
ARCHITECTURES = [(name, text) for name in ("llama", "qwen3", "gemma3_text") for text in NAMED]
ARCHITECTURES += [(name, BY_MSCALE) for name in ("mistral", "qwen2", "olmo2", "granite", "smollm3", "phi3", "seed_oss")]
REFUSED = ["rerope", "streaming", "log_n", "biases.alibi", "window:window=256+yarn:factor=8"]


@pytest.fixture(scope="module")
def record(records):
    return records("mlx", "0.32.2")


@pytest.mark.sampled(cases=1)
@pytest.mark.parametrize("case", first_of_each(CARRIED, lambda case: case[1], lambda case: case[0]))
def test_carried(tmp_path, record, case):
    text, kind = case
    ids = models.prompt(TOKENS)
    gap, said = served(models.carried(), text, ids, tmp_path, to=models.LONGEST, engine="mlx")
    record.ran("default", text, "float32", gap, EXACT, kind=said.kind, tokens=TOKENS)
    assert said.kind == kind
    assert gap.largest < EXACT


@pytest.mark.sampled(cases=2)
@pytest.mark.parametrize(("name", "text"), ARCHITECTURES)
def test_architectures(tmp_path, record, name, text):
    gap, said = served(models.small(name), text, models.random_prompt(FEWER), tmp_path, engine="mlx")
    record.ran(name, text, "float32", gap, EXACT, kind=said.kind, tokens=FEWER)
    assert gap.largest < EXACT


def test_a_folder_of_transformers_is_read_without_its_schedule(tmp_path):
    """Which `check` says; the export for mlx has the keys where mlx-lm looks."""
    model, ids, folder = models.small("llama"), models.random_prompt(FEWER), tmp_path / "model"
    with rw.extended(model, "yarn:factor=4"):
        rw.export(model, folder, target="transformers")
        scheduled = models.log_probabilities(model, ids)
    theirs = told("mlx", f"mlx_lm.server --model {folder}", ids, tmp_path)
    assert difference(models.log_probabilities(model, ids), theirs, models.TRAINED).largest < EXACT
    assert difference(scheduled, theirs, models.TRAINED).inside > 0.1
    assert rw.check(folder, engine="mlx").verdict == "differs"


@pytest.mark.parametrize("text", REFUSED)
def test_refused(tmp_path, record, text):
    with pytest.raises(DoesNotFit) as refused:
        served(models.carried(), text, models.prompt(64), tmp_path, to=models.LONGEST, engine="mlx")
    record.refused("any", text, str(refused.value))


def test_refused_by_name(tmp_path, record):
    with pytest.raises(DoesNotFit) as refused:
        served(models.small("mixtral"), "yarn:factor=4", models.random_prompt(64), tmp_path, engine="mlx")
    record.refused("mixtral", "yarn:factor=4", str(refused.value))
