"""lm-evaluation-harness on an extended model, through its own wrapper of transformers.

Its tasks, prompts and scores are taken as they are but for what `defects` mends.
"""

from __future__ import annotations

import hashlib
import logging
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from copy import deepcopy
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from transformers import PreTrainedModel, PreTrainedTokenizerBase, set_seed

from ropewalk.errors import DoesNotFit, InvalidValue, RopewalkError, UnknownName, Unreadable, not_installed
from ropewalk.evaluation.compare.compare import made_here
from ropewalk.evaluation.lm_eval.fixes import (
    StrictRequests,
    chosen,
    fix_scoring,
    means,
    present,
    require_examples_fit,
    was_measured,
)
from ropewalk.evaluation.material.subject import marks_of
from ropewalk.extension import Extension
from ropewalk.hf.attach.trained_extension import TrainedExtension
from ropewalk.spec import Json

SEED = 1234  # the harness's own for few-shot examples
RESAMPLES = 1000  # for the standard error of what has no formula


class MetricScore(NamedTuple):
    """One metric of one task, or of a group."""

    task: str
    metric: str
    value: float
    error: float | None  # the standard error, where the harness has one
    samples: int


@dataclass(frozen=True, kw_only=True)
class HarnessResult:
    """What the harness says of an extended model."""

    scores: tuple[MetricScore, ...]
    tasks: dict[str, Json]  # version, examples, longest request and prompts' hash of each
    longest: int
    lengths: tuple[int, ...]
    limit: int | None
    marks: dict[str, str]
    made: Json

    def to_json(self) -> Json:
        """Every score and what it depends on."""
        return asdict(self) | {"scores": [score._asdict() for score in self.scores]}


def evaluate(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    extension: Extension,
    names: Sequence[str],
    *,
    longest: int,
    lengths: Sequence[int] = (),
    limit: int | None = None,
    include: Sequence[str] = (),
    batch: int = 1,
    own: TrainedExtension | None = None,
) -> HarnessResult:
    """Run tasks on texts of at most `longest` tokens; `lengths` are for tasks that make their texts themselves."""
    _require_lm_eval()
    lengths, marks = tuple(lengths or [longest]), marks_of(model, tokenizer)
    if tokenizer.eos_token_id is None:
        raise InvalidValue("tokenizer.eos_token", "one of its tokens: the harness ends texts with it", None)
    with _hushed(), TemporaryDirectory() as place:
        tokenizer.save_pretrained(place)  # some tasks read it again, and only from files
        metadata = {"pretrained": place, "tokenizer": place, "max_seq_lengths": list(lengths)}
        manager = _manager(names, include, metadata)
        require_examples_fit(names, tokenizer, lengths)
        tasks = _loaded(manager, names)
        with (own or TrainedExtension()).under(model, extension):
            wrapped = _wrapped(model, tokenizer, longest, batch)
            scores, about = _evaluated(wrapped, tasks, limit)
    made = made_here("lm-eval")
    return HarnessResult(
        scores=scores, tasks=about, longest=longest, lengths=lengths, limit=limit, marks=marks, made=made
    )


def _require_lm_eval() -> None:
    try:
        import lm_eval.models.huggingface  # noqa: F401
    except ModuleNotFoundError as missing:
        raise not_installed(missing) from missing


@contextmanager
def _hushed() -> Iterator[None]:
    """Standard output is for results, and what the harness warns of is refused here or of no concern."""
    logger = logging.getLogger("lm_eval")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        logger.setLevel(before)


def _wrapped(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, longest: int, batch: int) -> Any:
    from lm_eval.models.huggingface import HFLM

    own = deepcopy(tokenizer)  # it is given a padding token
    wrapped: Any = type("StrictHFLM", (StrictRequests, HFLM), {"longest_of": {}, "quiet": not sys.stderr.isatty()})
    return wrapped(pretrained=model, tokenizer=own, max_length=longest, batch_size=batch, backend="causal")


def _manager(names: Sequence[str], include: Sequence[str], metadata: Json) -> Any:
    """Where tasks are looked up: among the given ones alone if these are all, for reading the others' index is slow."""
    from lm_eval.tasks import TaskManager

    for path in include:
        if not Path(path).is_dir():
            raise Unreadable("--include-path", "a folder of tasks", path)
    own = TaskManager(include_path=list(include), include_defaults=False, metadata=metadata)
    if set(names) <= set(own.all_tasks):
        return own
    every = TaskManager(include_path=list(include), metadata=metadata)
    for name in names:
        if name not in every.all_tasks:
            remedy = "lm-eval ls tasks lists them, --include-path adds a folder of tasks"
            close = get_close_matches(name, every.all_tasks) or None
            raise UnknownName("task", name, known=close, owner="lm-evaluation-harness", remedy=remedy)
    return every


def _loaded(manager: Any, names: Sequence[str]) -> Json:
    """The tasks with their data. Each is drawn by itself: its prompts do not depend on which others there are."""
    found: Json = {"tasks": {}, "groups": {}, "group_map": {}}
    for name in names:
        set_seed(SEED)
        try:
            part = manager.load([name])
        except (RopewalkError, MemoryError):
            raise
        except Exception as reason:
            raise _without_data(name, reason) from reason
        for kind, each in part.items():
            found[kind].update(each)
    for name, task in found["tasks"].items():
        if getattr(task, "UNSAFE_CODE", False) or getattr(task, "MULTIMODAL", False):
            raise DoesNotFit("--tasks", "tasks of text, which do not run what a model writes", name)
        if task.get_config("num_fewshot") is None:
            task.set_config(key="num_fewshot", value=0)
        task.set_fewshot_seed(seed=SEED)
    fix_scoring(found["tasks"].values())
    return found


def _without_data(name: str, reason: Exception) -> RopewalkError:
    """Which task it was, of a group, and what was said."""
    if isinstance(reason, ModuleNotFoundError):
        return not_installed(reason)
    holders: list[Any] = [frame.f_locals.get("self") for frame, _ in traceback.walk_tb(reason.__traceback__)]
    inner = [each.config.task for each in holders if hasattr(getattr(each, "config", None), "task")]
    said = next(iter(str(reason).strip().splitlines()), "").rstrip(".")
    remedy = f"{type(reason).__name__}: {said}; leave it out, or fetch its data where there is a network"
    return Unreadable("--tasks", "tasks whose data can be had", inner[-1] if inner else name, remedy=remedy)


def _evaluated(wrapped: Any, tasks: Json, limit: int | None) -> tuple[tuple[MetricScore, ...], dict[str, Json]]:
    from lm_eval import evaluator

    set_seed(SEED)
    given = {name: chosen(task.eval_docs, limit) for name, task in tasks["tasks"].items()} if limit else None
    found = evaluator.evaluate(lm=wrapped, task_dict=tasks, samples=given, bootstrap_iters=RESAMPLES)
    scores: list[MetricScore] = []
    for name in tasks["tasks"]:
        scores += _scores(name, found["results"][name], found["samples"][name])
    for name in tasks["groups"]:
        scores += _of_group(name, found, scores)
    return tuple(scores), {name: _about(name, found, wrapped.longest_of) for name in tasks["tasks"]}


def _scores(name: str, metrics: Mapping[str, Any], samples: Sequence[Json]) -> Iterator[MetricScore]:
    for key, value in metrics.items():
        metric, comma, chain = key.partition(",")
        if comma and not metric.endswith("_stderr") and present(metric, value):
            error = metrics.get(f"{metric}_stderr,{chain}")
            of = sum(each["filter"] == chain and was_measured(metric, each) for each in samples)
            shown = metric if chain == "none" else f"{metric} ({chain})"
            yield MetricScore(name, shown, float(value), error if isinstance(error, float) else None, of)


def _of_group(name: str, found: Json, scores: Sequence[MetricScore]) -> Iterator[MetricScore]:
    """The harness's own means, but for RULER's."""
    members = [each for each in scores if each.task in found["group_subtasks"].get(name, ())]
    own = found.get("groups", {}).get(name, {})
    values = {score.metric: score.value for score in _scores(name, own, []) if not score.metric.isdigit()}
    for metric, value in (values | means(members)).items():
        yield MetricScore(name, metric, value, None, sum(each.samples for each in members if each.metric == metric))


def _about(name: str, found: Json, longest_of: Mapping[str, int]) -> Json:
    prompts = "".join(each["prompt_hash"] for each in found["samples"][name])
    return {
        "version": found["versions"].get(name),
        "examples": found["n-shot"].get(name),
        "longest_request": longest_of.get(name),  # nothing where a text is read in windows
        "prompts": hashlib.sha256(prompts.encode()).hexdigest()[:16],
    }
