"""Tasks of lm-evaluation-harness, run on extended models."""

from __future__ import annotations

import hashlib
import logging
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from transformers import PreTrainedModel, PreTrainedTokenizerBase, set_seed

from ropewalk.errors import DoesNotFit, InvalidValue, RopewalkError, UnknownName, Unreadable, not_installed
from ropewalk.extension.extension import Extension
from ropewalk.hf.attach.trained_extension import TrainedExtension
from ropewalk.measure.comparison.store import provenance
from ropewalk.measure.lm_eval.fixes import (
    StrictRequests,
    choose,
    fix_scoring,
    means,
    present,
    require_examples_fit,
    was_measured,
)
from ropewalk.measure.material.subject import marks_of
from ropewalk.methods.spec import Json

# Samples that fit: for benchmarks whose texts have many lengths, some beyond what a model reads.


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


# Corrections to how lm-evaluation-harness defines tasks (lm-eval 0.4.13), made in the index of one run.
#
# - InfiniteBench: its columns are a mapping where `datasets` wants its own type, so that no task loads; and four tasks
#   ask for splits named `_en` that the data calls `_eng` (EleutherAI/lm-evaluation-harness, issue 3895).
# - BABILong: its loader takes the name of one length, such as 4k, and breaks on the list that RULER's takes.
#
# The files and modules of the harness stay as they are.


BABILONG, INFINITEBENCH = "babilong_qa", "infinitebench_"
KILO = 1024
LENGTHS = {kilos * KILO: f"{kilos}k" for kilos in (0, 1, 2, 4, 8, 16, 32, 64, 128)}  # of BABILong


def correct_definitions(index: dict[str, Any], lengths: Sequence[int], longest: int) -> None:
    """Put corrected entries into an index of tasks."""
    from lm_eval.tasks._yaml_loader import load_yaml

    def babilong(definition: Json) -> Json:
        loaded = definition.get("custom_dataset")
        return definition | {"custom_dataset": _load_one_length(loaded, lengths, longest)} if loaded else definition

    corrections = {BABILONG: babilong, INFINITEBENCH: with_its_columns}
    for name, entry in list(index.items()):
        for begin, correct in corrections.items():
            if name.startswith(begin) and entry.yaml_path is not None:
                definition = correct(load_yaml(entry.yaml_path, resolve_func=True))
                index[name] = replace(entry, yaml_path=None, cfg=definition)


def with_its_columns(definition: Json) -> Json:
    """A definition whose columns are of the type that `datasets` wants, and whose split exists.

    with_its_columns({"test_split": "longbook_qa_en"})    # {"test_split": "longbook_qa_eng"}
    """
    options, split = dict(definition.get("dataset_kwargs") or {}), str(definition.get("test_split", ""))
    if isinstance(options.get("features"), dict):
        options["features"] = _columns(options["features"])
    corrected = {"dataset_kwargs": options} if options else {}
    return definition | corrected | ({"test_split": f"{split}g"} if split.endswith("_en") else {})


def _columns(mapping: dict[str, Any]) -> Any:
    from datasets import Features, Sequence, Value

    if isinstance(mapping, Features):
        return mapping
    columns = {name: Value(column["dtype"]) for name, column in mapping.items()}
    return Features(
        {name: Sequence(columns[name]) if mapping[name].get("sequence") else columns[name] for name in mapping}
    )


def _load_one_length(loaded: Callable[..., Any], lengths: Sequence[int], longest: int) -> Callable[..., Any]:
    """BABILong's loader, with the name of the length."""

    def load(**options: Any) -> Any:
        return loaded(**options | {"max_seq_lengths": babilong_length(lengths, longest)})

    return load


def babilong_length(lengths: Sequence[int], longest: int) -> str:
    """The name of the length that is asked for; by default the longest below the longest request.

    babilong_length([4096], 8192)    # "4k"
    babilong_length([], 8192)        # "4k": texts of 8k and a question are longer than 8,192 tokens
    """
    if len(lengths) > 1:
        sentence = f"BABILong reads one length at a time, and --lengths has {len(lengths)}"
        raise DoesNotFit.because("--lengths", sentence, remedy="run it once for each length")
    if not lengths:
        return [name for length, name in LENGTHS.items() if length < longest][-1]
    if lengths[0] not in LENGTHS:
        raise InvalidValue("--lengths", "a length of BABILong's", lengths[0], known=LENGTHS.values())
    return LENGTHS[lengths[0]]


# lm-evaluation-harness on an extended model, through its wrapper of transformers.
#
# Its tasks, prompts and scores are unchanged, apart from what `fixes` lists.


SEED = 1234  # the harness's seed for few-shot examples
HARNESS_RESAMPLES = 1000  # for standard errors without a formula


class MetricScore(NamedTuple):
    """One metric of one task, or of a group."""

    task: str
    metric: str
    value: float
    error: float | None  # the standard error, if the harness has one
    samples: int


@dataclass(frozen=True, kw_only=True)
class HarnessResult:
    """The harness's results for an extended model."""

    scores: tuple[MetricScore, ...]
    tasks: dict[str, Json]  # by name: version, examples, longest request and a hash of the prompts
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
    answer: int | None = None,
    fitting: bool = False,
    own: TrainedExtension | None = None,
) -> HarnessResult:
    """Run tasks on texts of at most `longest` tokens; `lengths` are for tasks that generate their texts.

    `answer` is the most tokens that a model writes, `fitting` leaves out samples that are too long.
    """
    _require_lm_eval()
    asked, lengths, marks = lengths, tuple(lengths or [longest]), marks_of(model, tokenizer)
    if tokenizer.eos_token_id is None:
        raise InvalidValue("tokenizer.eos_token", "one of its tokens, since the harness ends texts with it", None)
    with _quiet(), TemporaryDirectory() as place:
        tokenizer.save_pretrained(place)  # some tasks read it from files
        metadata = {"pretrained": place, "tokenizer": place, "max_seq_lengths": list(lengths)}
        manager = _manager(names, include, metadata)
        correct_definitions(manager.task_index, asked, longest)
        require_examples_fit(names, tokenizer, lengths)
        tasks = _load(manager, names)
        if answer is not None:
            shorten_answers(tasks["tasks"], answer)
        with (own or TrainedExtension()).under(model, extension):
            wrapped = _wrap(model, tokenizer, longest, batch)
            scores, about = _evaluate(wrapped, tasks, limit, fitting)
    for name in about:
        about[name] |= {"data": babilong_length(asked, longest)} if name.startswith(BABILONG) else {}
    made = provenance("lm-eval")
    return HarnessResult(
        scores=scores, tasks=about, longest=longest, lengths=lengths, limit=limit, marks=marks, made=made
    )


def _require_lm_eval() -> None:
    try:
        import lm_eval.models.huggingface  # noqa: F401
    except ModuleNotFoundError as missing:
        raise not_installed(missing) from missing


@contextmanager
def _quiet() -> Iterator[None]:
    """Standard output is for results; the harness's warnings are errors here, or irrelevant."""
    logger = logging.getLogger("lm_eval")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        logger.setLevel(before)


def _wrap(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, longest: int, batch: int) -> Any:
    from lm_eval.models.huggingface import HFLM

    copied = deepcopy(tokenizer)  # the harness adds a padding token
    wrapped: Any = type("StrictHFLM", (StrictRequests, HFLM), {"longest_of": {}, "quiet": not sys.stderr.isatty()})
    return wrapped(pretrained=model, tokenizer=copied, max_length=longest, batch_size=batch, backend="causal")


def _manager(names: Sequence[str], include: Sequence[str], metadata: Json) -> Any:
    """Where tasks are looked up: only in `include` if it has them all, since reading the harness's index is slow."""
    from lm_eval.tasks import TaskManager

    for path in include:
        if not Path(path).is_dir():
            raise Unreadable("--include-path", "a folder of tasks", path)
    included = TaskManager(include_path=list(include), include_defaults=False, metadata=metadata)
    if set(names) <= set(included.all_tasks):
        return included
    everything = TaskManager(include_path=list(include), metadata=metadata)
    for name in names:
        if name not in everything.all_tasks:
            remedy = "lm-eval ls tasks lists them, --include-path adds a folder of tasks"
            close = get_close_matches(name, everything.all_tasks) or None
            raise UnknownName("task", name, known=close, owner="lm-evaluation-harness", remedy=remedy)
    return everything


def _load(manager: Any, names: Sequence[str]) -> Json:
    """The tasks with their data. Prompts of a task do not depend on the other tasks."""
    loaded: Json = {"tasks": {}, "groups": {}, "group_map": {}}
    for name in names:
        set_seed(SEED)
        try:
            part = manager.load([name])
        except (RopewalkError, MemoryError):
            raise
        except Exception as reason:
            raise _without_data(name, reason) from reason
        for kind, entries in part.items():
            loaded[kind].update(entries)
    for name, task in loaded["tasks"].items():
        if getattr(task, "UNSAFE_CODE", False) or getattr(task, "MULTIMODAL", False):
            sentence = f"the task {name} has images, or runs code that the model writes"
            raise DoesNotFit.because("--tasks", sentence, remedy="leave it out")
        if task.get_config("num_fewshot") is None:
            task.set_config(key="num_fewshot", value=0)
        task.set_fewshot_seed(seed=SEED)
    fix_scoring(loaded["tasks"].values())
    return loaded


def _without_data(name: str, reason: Exception) -> RopewalkError:
    """The error of a task, which may be one of a group, whose data cannot be loaded."""
    if isinstance(reason, ModuleNotFoundError):
        return not_installed(reason)
    holders: list[Any] = [frame.f_locals.get("self") for frame, _ in traceback.walk_tb(reason.__traceback__)]
    inner = [holder.config.task for holder in holders if hasattr(getattr(holder, "config", None), "task")]
    words = next(iter(str(reason).strip().splitlines()), "").rstrip(".")
    sentence = f"the data of the task {inner[-1] if inner else name} cannot be loaded: {type(reason).__name__}: {words}"
    return Unreadable.because("--tasks", sentence, remedy="leave it out, or download its data first")


def _evaluate(
    wrapped: Any, tasks: Json, limit: int | None, fitting: bool
) -> tuple[tuple[MetricScore, ...], dict[str, Json]]:
    from lm_eval import evaluator

    set_seed(SEED)
    samples, left_out = _samples(wrapped, tasks["tasks"], limit, fitting)
    report = evaluator.evaluate(lm=wrapped, task_dict=tasks, samples=samples, bootstrap_iters=HARNESS_RESAMPLES)
    scores: list[MetricScore] = []
    for name in tasks["tasks"]:
        scores += _scores(name, report["results"][name], report["samples"][name])
    for name in tasks["groups"]:
        scores += _group_scores(name, report, scores)
    about = {name: _about(name, report, wrapped.longest_of) for name in tasks["tasks"]}
    for name, count in left_out.items():
        about[name]["left_out"] = count
    return tuple(scores), about


def _samples(
    wrapped: Any, tasks: Json, limit: int | None, fitting: bool
) -> tuple[dict[str, list[int]] | None, dict[str, int]]:
    """The samples to ask, None for all, and how many of each task were left out."""
    if not fitting:
        return ({name: choose(task.eval_docs, limit) for name, task in tasks.items()} if limit else None), {}
    parts = {name: fitting_samples(wrapped, task, range(len(task.eval_docs)), limit) for name, task in tasks.items()}
    for task in tasks.values():
        task.set_fewshot_seed(seed=SEED)  # examples were drawn to know the sizes
    return {name: part.indices for name, part in parts.items()}, {name: part.left_out for name, part in parts.items()}


def _scores(name: str, metrics: Mapping[str, Any], samples: Sequence[Json]) -> Iterator[MetricScore]:
    for key, value in metrics.items():
        metric, comma, chain = key.partition(",")
        if comma and not metric.endswith("_stderr") and present(metric, value):
            error = metrics.get(f"{metric}_stderr,{chain}")
            of = sum(sample["filter"] == chain and was_measured(metric, sample) for sample in samples)
            title = metric if chain == "none" else f"{metric} ({chain})"
            yield MetricScore(name, title, float(value), error if isinstance(error, float) else None, of)


def _group_scores(name: str, report: Json, scores: Sequence[MetricScore]) -> Iterator[MetricScore]:
    """The harness's means, except for RULER's."""
    members = [score for score in scores if score.task in report["group_subtasks"].get(name, ())]
    metrics = report.get("groups", {}).get(name, {})
    values = {score.metric: score.value for score in _scores(name, metrics, []) if not score.metric.isdigit()}
    for metric, value in (values | means(members)).items():
        yield MetricScore(name, metric, value, None, sum(score.samples for score in members if score.metric == metric))


def _about(name: str, report: Json, longest_of: Mapping[str, int]) -> Json:
    prompts = "".join(sample["prompt_hash"] for sample in report["samples"][name])
    return {
        "version": report["versions"].get(name),
        "examples": report["n-shot"].get(name),
        "longest_request": longest_of.get(name),  # None if texts are read in windows
        "prompts": hashlib.sha256(prompts.encode()).hexdigest()[:16],
    }
