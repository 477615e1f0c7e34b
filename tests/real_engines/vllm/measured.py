"""An export measured in vLLM, or refused by it."""

from functools import partial
from typing import NamedTuple

import torch

import ropewalk as rw
from ropewalk import DoesNotFit

from real_engines import models
from real_engines.vllm.asking import Job, ask

TARGET = 2048

MORE = {"gpt_neox": {"num_key_value_heads": 4}}  # it has as many, and vLLM would believe another number

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
    alone: bool  # whether some layers are left alone, and keep vLLM's own angles in float32


def exported(architecture, method, dtype, folder, plugin=None):
    """One pair; refused where the export refuses it."""
    if architecture == "carried":
        made, ids = models.carried, models.prompt(TARGET - 1)
    else:
        made = partial(models.small, architecture, **MORE.get(architecture, {}))
        ids = models.random_prompt(TARGET - 1)
    model = made(dtype=getattr(torch, dtype))
    handle = rw.extend(model, method, target_len=TARGET)
    result = rw.export(model, folder, target="vllm", target_len=TARGET, plugin=plugin)
    said = models.log_probabilities(model, ids)
    # The plugin's angles are those of our attention, in float64. A model's own rotary module has them in float32.
    mode = "attention" if result.kind == "plugin" else None
    exact = models.log_probabilities(_in_float32(made, model, method, mode), ids)
    alone = any(layer.left_alone for layer in handle.layers)
    return Pair(architecture, method, dtype, result, ids, exact, float((said - exact).abs().max()), alone)


def _in_float32(made, rounded, method, mode):
    """The same weights, computed with in float32."""
    model = made(dtype=torch.float32)
    with torch.no_grad():
        state = dict(rounded.named_parameters())
        for name, parameter in model.named_parameters():
            parameter.copy_(state[name])
    rw.extend(model, method, target_len=TARGET, mode=mode)
    return model


def served(pairs, tmp_path, **options):
    jobs = {
        str(i): Job(pair.exported.command, [pair.ids], pair.dtype, may_refuse=True, **options)
        for i, pair in enumerate(pairs)
    }
    return list(ask(jobs, tmp_path).values())


def bound_of(pair):
    if pair.dtype == "float32":
        return BOUND["native" if pair.alone else pair.exported.kind]
    return 2 * pair.rounding  # vLLM rounds at other places


def measured_or_refused(wanted, tmp_path, records):
    """All pairs that the export accepts, measured and checked; the others are written down with the reason."""
    pairs, record = [], records("vllm", "0.32.0")
    for i, names in enumerate(wanted):
        try:
            pairs.append(exported(*names, tmp_path / str(i)))
        except DoesNotFit as reason:
            record.refused(*names[:2], str(reason))
    check(pairs, served(pairs, tmp_path), record)
    return pairs


def check(pairs, answers, record):
    """Write down what was measured or refused, and name every pair beyond its bound."""
    wrong = []
    for pair, said in zip(pairs, answers, strict=True):
        names, bound, kind = (pair.architecture, pair.method, pair.dtype), bound_of(pair), pair.exported.kind
        if said.refused:
            record.refused(*names[:2], said.refused.removeprefix("DoesNotFit: "))
            wrong.append((*names, said.refused))
            continue
        gap = said.answers[0].gap(pair.expected)
        record.ran(*names, gap, bound, kind=kind, tokens=TARGET)
        if gap.largest > bound:
            wrong.append((*names, gap))
    assert wrong == []
