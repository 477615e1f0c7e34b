"""Ask vLLM, in its environment, what it answers to an export: any number of jobs in one process."""

from pathlib import Path
from typing import NamedTuple

import torch

from real_engines import models, process
from real_engines.record import difference

SCRIPT = Path(__file__).parent / "serve.py"


class Job(NamedTuple):
    """Prompts for an export, by the command that it printed; `options` are of the machine, behind the command's own."""

    command: str
    prompts: list
    dtype: str = "float32"
    decode: int = 0
    together: bool = True
    scores_prompts: bool = True
    may_refuse: bool = False
    repeat: int = 1  # measured is the last time
    setup: str = ""
    keeps: bool = False
    options: str = "--enforce-eager --no-enable-prefix-caching"

    @property
    def question(self):
        return {**self._asdict(), "options": f"{self.options} --dtype {self.dtype}"}


class Answer(NamedTuple):
    """What vLLM said of one prompt: the likeliest tokens with their log-probabilities, then of what it wrote."""

    ids: torch.Tensor | None
    values: torch.Tensor | None
    chosen: list
    decoded_ids: torch.Tensor
    decoded_values: torch.Tensor
    cached: int

    def gap(self, ours):
        """The difference from our log-probabilities of the same prompt, within the trained length and beyond it."""
        return difference(ours[:-1], self.values, models.TRAINED, self.ids)


class Served(NamedTuple):
    """The answers to a job's prompts; or why vLLM refused the model."""

    answers: list
    seconds: float
    refused: str = ""


def ask(jobs, folder, seconds=1500, **environment):
    """What vLLM answers to jobs by name."""
    question = {name: job.question for name, job in jobs.items()}
    arrays = process.ask("vllm", SCRIPT, question, folder, seconds, **environment)
    return {name: _served(name, job, arrays) for name, job in jobs.items()}


def _served(name, job, arrays):
    if f"{name}/refused" in arrays:
        return Served([], 0.0, str(arrays[f"{name}/refused"]))
    answers = [_answer(f"{name}/{i}", arrays) for i in range(len(job.prompts))]
    return Served(answers, float(arrays[f"{name}/seconds"]))


def _answer(prefix, arrays):
    def tensor(name):
        values = arrays.get(f"{prefix}/{name}")
        return None if values is None else torch.as_tensor(values)

    chosen, cached = arrays[f"{prefix}/chosen"].tolist(), int(arrays[f"{prefix}/cached"])
    return Answer(tensor("ids"), tensor("values"), chosen, tensor("decoded_ids"), tensor("decoded_values"), cached)
