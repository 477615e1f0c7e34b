"""Samples that fit: for benchmarks whose texts have many lengths, some beyond what a model reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ropewalk.errors import DoesNotFit, InvalidValue


class FittingSamples(NamedTuple):
    """Which samples of a task are asked, and how many were left out because they do not fit."""

    indices: list[int]
    left_out: int


def fitting_samples(wrapped: Any, task: Any, indices: Sequence[int], limit: int | None) -> FittingSamples:
    """The first `limit` of these samples that fit, with their answers; at least one must.

    fitting_samples(wrapped, task, range(len(task.eval_docs)), 100)    # FittingSamples([0, 3, ...], 12)
    """
    task.build_all_requests(samples=list(indices), rank=0, world_size=1)
    sizes: dict[int, int] = {}
    for request in task.instances:
        sizes[request.doc_id] = max(sizes.get(request.doc_id, 0), _size(wrapped, request))
    fitting = [number for number in indices if sizes[number] <= wrapped.max_length]
    if not fitting:
        rule = f"at least {min(sizes.values()):,}, for the shortest sample of {task.config.task} with its answer"
        raise DoesNotFit("--to", rule, wrapped.max_length)
    return FittingSamples(fitting[:limit], len(sizes) - len(fitting))


def _size(wrapped: Any, request: Any) -> int:
    """Tokens of a request with its answer; texts that are read in windows have any length."""
    counts = {"loglikelihood": wrapped.pair_tokens, "generate_until": wrapped.prompt_tokens}
    return counts[request.request_type](*request.args) if request.request_type in counts else 0


def shorten_answers(tasks: Mapping[str, Any], answer: int) -> None:
    """Let no task write more than so many tokens."""
    writing = [task for task in tasks.values() if task.OUTPUT_TYPE == "generate_until"]
    if not writing:
        raise InvalidValue.because("--answer", "none of the tasks lets the model write", remedy="leave out --answer")
    for task in writing:
        asked = dict(task.config.generation_kwargs or {})
        least = min(answer, asked.get("max_gen_toks", answer))
        task.set_config(key="generation_kwargs", value={"max_gen_toks": least}, update=True)
