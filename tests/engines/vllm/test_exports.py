"""What vLLM computes from an export is what the extended model computes: every method that can be exported, from the
printed command alone, within the trained length and beyond it."""

from typing import NamedTuple

import pytest
import torch
from engines import models
from engines.record import Difference
from engines.vllm.asking import Job, ask

import ropewalk as rw
from ropewalk import DoesNotFit

TARGET = 2048
CARRIED = {
    "yarn": "native",
    "pi": "native",
    "ntk": "native",
    "llama3": "native",
    "abf": "native",
    "by_parts:factor=8": "native",
    "longrope": "lowered",
    "frequencies.ntk_fixed:factor=8": "lowered",
    "ntk_mixed": "lowered",
    "frequencies.by_parts:factor=8,ramp=turns+scales.yarn_temperature:factor=8": "lowered",
    "window:window=256+yarn": "native",
    "nope": "lowered",
    "yarn+log_n": "plugin",
    "log_n": "plugin",
    "scales.log_n:clipped=false": "plugin",
}
SMALL = [
    "llama",
    "mistral",
    "qwen2",
    "qwen3",
    "gemma3_text",
    "phi3",
    "granite",
    "olmo2",
    "stablelm",
    "gpt_neox",
    "glm4",
]
METHODS = ["yarn", "pi", "ntk", "frequencies.by_parts:factor=4,ramp=turns+scales.temperature:value=1.3", "yarn+log_n"]
MORE = {"gemma3_text": {"num_hidden_layers": 6}}
# Angles in float32 differ from ours in float64 by 1e-3 at most over these lengths; tables of the plugin are exact.
BOUND = {"native": 5e-3, "lowered": 5e-3, "frozen": 5e-3, "plugin": 1e-4}


class Pair(NamedTuple):
    """A model under a method, exported, and what our own attention says of the prompt."""

    architecture: str
    method: str
    dtype: str
    exported: object
    ids: list
    expected: torch.Tensor
    rounding: float  # the difference that the model's type makes to our own log-probabilities


def exported(architecture, method, dtype, folder, plugin=None):
    """One pair; refused where the export refuses it."""
    made = (
        models.carried
        if architecture == "carried"
        else lambda dtype: models.small(architecture, dtype, **MORE.get(architecture, {}))
    )
    ids = models.prompt(TARGET - 1) if architecture == "carried" else models.random_prompt(TARGET - 1)
    model = made(getattr(torch, dtype))
    rw.extend(model, method, target_len=TARGET)
    result = rw.export(model, folder, target="vllm", target_len=TARGET, plugin=plugin)
    said = models.log_probabilities(model, ids)
    exact = said if dtype == "float32" else models.log_probabilities(_in_float32(made, model, method), ids)
    return Pair(architecture, method, dtype, result, ids, exact, float((said - exact).abs().max()))


def _in_float32(made, rounded, method):
    """The same weights, computed with in float32."""
    model = made(torch.float32)
    model.load_state_dict(rounded.state_dict())
    rw.extend(model, method, target_len=TARGET)
    return model


def measured(pairs, tmp_path):
    jobs = {str(i): Job(pair.exported.command, [pair.ids], pair.dtype) for i, pair in enumerate(pairs)}
    served = ask(jobs, tmp_path)
    return [served[str(i)].answers[0].gap(pair.expected) for i, pair in enumerate(pairs)]


def bound_of(pair):
    if pair.dtype == "float32":
        return BOUND[pair.exported.kind]
    return 2 * pair.rounding  # vLLM rounds at other places


def test_the_carried_model_under_every_method(tmp_path, records):
    pairs = [exported("carried", method, "float32", tmp_path / str(i)) for i, method in enumerate(CARRIED)]
    check(pairs, measured(pairs, tmp_path), records("vllm", "0.32.0"))
    assert {pair.method: pair.exported.kind for pair in pairs} == CARRIED


def check(pairs, gaps, record):
    for pair, gap in zip(pairs, gaps, strict=True):
        record.ran(
            pair.architecture, pair.method, pair.dtype, gap, bound_of(pair), kind=pair.exported.kind, tokens=TARGET
        )
    wrong = [
        (pair.architecture, pair.method, gap)
        for pair, gap in zip(pairs, gaps, strict=True)
        if gap.largest > bound_of(pair)
    ]
    assert wrong == []
