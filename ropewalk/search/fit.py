"""`rw.fit`: the best extension of a model for a length, with the evidence."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import RenderableType

from ropewalk.engines.export import export
from ropewalk.errors import DoesNotFit, InvalidValue
from ropewalk.extension.extension import Extension
from ropewalk.extension.notation import length as in_tokens
from ropewalk.files import finite, record_json
from ropewalk.hf.attach.extend import extended, require_beyond
from ropewalk.hf.load_options import UNSTATED, LoadOptions
from ropewalk.hf.use.save import save as write_model
from ropewalk.measure.arguments import FEWEST_TEXTS, RunOptions, seconds, whole_number
from ropewalk.measure.comparison.plan import in_precision, is_free
from ropewalk.measure.diagnostics.attention_weights import mass_far_by_key_head
from ropewalk.measure.material.subject import Subject, without_extension
from ropewalk.measure.opened_model import OpenedModel, load_by_name, open_folder, open_model, stated_lengths
from ropewalk.measure.progress import WorkProgress, showing_progress
from ropewalk.measure.report.tables import interval
from ropewalk.measure.report.written_tables import PageTable
from ropewalk.measure.result import TERMINAL_WIDTH, MeasuredResult
from ropewalk.methods.spec import Json
from ropewalk.models import NAME
from ropewalk.search.conditions import HEADS, LOADERS, Conditions
from ropewalk.search.final_test import FinalTest, FitResult
from ropewalk.search.fitting import Fitting, storage_in
from ropewalk.search.fitting_words import words
from ropewalk.search.goal import Goal
from ropewalk.search.pace import QUICK, USUAL, Planning, SearchPlan
from ropewalk.search.report import as_json, ranked_tests, table, title, write_fit
from ropewalk.search.studies import marks_of_study, require_storage
from ropewalk.search.trials import MeasuredTrial
from ropewalk.search.workers import helped
from ropewalk.texts.corpora import require_source

ELSEWHERE = "all:descriptions"  # the other corpus of the final test
NONE_STATED = Conditions()
ENGINES = LOADERS[2:]  # those that can run it, after any and static


@dataclass(frozen=True, repr=False)
class FittedExtension(MeasuredResult):
    """The result of `rw.fit`: `extension` is what to use; `fit` has all tests and trials."""

    fit: FitResult
    subject: Subject = field(compare=False)  # the model and the texts

    @property
    def extension(self) -> Extension:
        """What to use: `rw.extend(model, fitted.extension)`."""
        return self.fit.advised

    @property
    def title(self) -> str:
        """The goal."""
        return title(self.fit)

    @property
    def sentences(self) -> list[str]:
        """Which extension it is, and how certain that is."""
        return [words(self.fit)]

    @property
    def table(self) -> PageTable:
        """The answer and all others that were tested, the lowest loss first."""
        return table(self.fit)

    @property
    def brief(self) -> PageTable:
        """The loss, and how far it is behind the answer's."""
        rows = ((tested.line, f"{tested.loss.value:.3f}", interval(tested.behind)) for tested in ranked_tests(self.fit))
        return PageTable(("extension", "loss", "behind [95% CI]"), tuple(rows))

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A record for each extension of the final test; `loss` and `behind` have 95 % intervals."""
        return [_record(tested) for tested in _tests(self.fit)]

    def for_terminal(self) -> Iterator[RenderableType]:
        """All that were tested, and which to use."""
        head, rows = self.table.head, self.table.rows
        yield PageTable(head[:-1], tuple(row[:-1] for row in rows)).for_terminal()  # the last column is for the page
        yield ""
        yield textwrap.fill(self.sentences[0], TERMINAL_WIDTH)

    def to_dict(self) -> Json:
        """Everything, trial by trial, as `results.json`."""
        return record_json(as_json(self.fit))

    def write(self, folder: str | Path, *, command: str = "", pictures: str = "") -> Path:
        """Write `extension.json`, `report.html` and `results.json`; return the path of the page."""
        return write_fit(self.fit, Path(folder), command=command, pictures=pictures)

    def save(self, folder: str | Path) -> str:
        """Write the extended model to a new folder, and return how to load it: for the engine of the goal, if any."""
        model, goal, tokenizer = self.subject.model, self.fit.goal, self.subject.tokenizer
        with without_extension(model), self.subject.under(self.fit.written.extension):
            if goal.deployable in ENGINES:
                length = goal.target_len
                return str(export(model, folder, target=goal.deployable, target_len=length, tokenizer=tokenizer))
            how = write_model(model, folder, target_len=goal.target_len, tokenizer=tokenizer)
        return f"The model: {folder}; load it with {how}"


@dataclass(frozen=True)
class SearchOptions(RunOptions):
    """How a search runs: the options of `RunOptions`, and how the study is stored.

    quick: an answer in 90 seconds, for at most 4 times the trained length, from 3 texts.
    seed: of what is drawn at random.
    storage: an Optuna storage that other machines share; by default a file in the folder.
    study: the study's name; an existing one is resumed.
    """

    quick: bool = False
    seed: int = 0
    storage: str = ""
    study: str = "fit"


@dataclass(frozen=True, kw_only=True)
class FitRequest:
    """What was asked for; every worker reads it, and loads the model for itself."""

    model: Any
    conditions: Conditions
    corpus: str
    judge_on: str
    options: SearchOptions
    folder: Path
    deadline: float  # by time.monotonic()
    budget: float
    plan: SearchPlan
    dtype: Any  # of the weights


def fit(
    model: Any = NAME,
    target_len: int | str | None = None,
    *,
    conditions: Conditions = NONE_STATED,
    budget: float | str = "",
    corpus: str = "python",
    judge_on: str = ELSEWHERE,
    samples: int | None = None,
    judges: int | None = None,
    folder: str | Path | None = None,
    options: LoadOptions = UNSTATED,
) -> FittedExtension:
    """Search for the best extension of a model for a target length, and test it on texts that the search does not see.

        fitted = rw.fit("model", 512, budget="20s", options=rw.SearchOptions(quick=True))
        rw.extend(model, fitted.extension)

    The answer keeps to the conditions on the texts that are searched on. `extension` is that answer, unless on the test
    texts a hand-set extension is significantly better, or the answer breaks a condition there and a hand-set extension
    does not: then it is the best such hand-set extension. If every tested extension breaks a condition, `sentences`
    says by how much. Ctrl-C, or a notebook's stop button, ends the search and tests the best so far.

    Args:
        model: as in `rw.compare`.
        target_len: in tokens (32768 or "32k"); by default 8 times the trained length, or 4 or 2 times where the time is
            short.
        conditions: what the answer must keep to, such as `Conditions(deployable="vllm", max_damage=0.01)`.
        budget: the time of the whole run, in seconds or as "20m", the default; what fits in it is planned from the
            model's speed on this machine.
        corpus: held-out text.
        judge_on: another text that the answer is tested on too, by default the descriptions of installed packages;
            empty for none.
        samples: how many texts are searched on; by default 16, or as many as there is time for.
        judges: how many other texts test the answer; by default 24, or as many as there is time for.
        folder: where the study is kept: the same call resumes it.
        options: a `LoadOptions` says how a named model is loaded; a `SearchOptions` also says how the search runs.
    """
    began, run = time.monotonic(), SearchOptions.of(options)
    pace = QUICK if run.quick else USUAL
    run.check(model, least_workers=1, unused=("ray", "after_round"))
    _require_room_for(run.workers, model, run)
    limit = seconds("budget", budget) or pace.budget  # a budget of 0 is refused
    length = None if target_len is None else in_tokens(str(target_len), "target_len")
    counts = {"samples": samples, "judges": judges}
    asked = {
        name: None if count is None else whole_number(name, count, least=FEWEST_TEXTS) for name, count in counts.items()
    }
    for source in filter(None, (corpus, judge_on)):
        require_source(source)
    _require_lengths(model, run, length, conditions)
    if run.storage:
        require_storage(run.storage)
    with (
        open_folder(folder) as place,
        showing_progress("loading the model", shown=run.progress) as shown,
        open_model(model, run) as host,
    ):
        shown(0, 0, "planning: timing the model")
        planning = Planning(
            host=host,
            pace=pace,
            deadline=began + limit,
            lengths=conditions.lengths,
            workers=run.workers,
            judge_on=judge_on,
            free_precision=is_free(model, host.model, run),
            before=marks_of_study(run.storage or storage_in(place), run.study),
        )
        plan = planning.plan(length, **asked)
        request = FitRequest(
            model=model,
            conditions=conditions,
            corpus=corpus,
            judge_on=judge_on,
            options=run,
            folder=place,
            deadline=began + limit,
            budget=limit,
            plan=plan,
            dtype=host.model.dtype,  # the plan chooses it
        )
        return _answer(request, _begin(request, host, planning, shown))


def _begin(request: FitRequest, host: OpenedModel, planning: Planning, shown: WorkProgress) -> Fitting:
    """The search, and the base model measured; what is refused is refused before the plan is shown."""
    fitting = _fitting(request, host)
    shown(0, 0, "reading texts")
    fitting.require_texts()
    for sentence in planning.sentences(request.plan, request.corpus):
        shown.note(sentence)
    fitting.begin(lambda label, done, of: shown(done, of, label))
    shown.close()
    return fitting


def _require_room_for(workers: int, model: Any, options: LoadOptions) -> None:
    """Refuse several workers that cannot load the model, or that would each take all devices."""
    if workers > 1 and not isinstance(model, str | Path):
        sentence = "several workers need the name of a model, which each of them loads"
        raise InvalidValue.because("workers", sentence, remedy="leave workers out, or pass a name")
    if workers > 1 and options.is_spread:
        raise InvalidValue.because("device", "each of several workers would take all devices", remedy="name one device")


def _require_lengths(model: Any, options: LoadOptions, length: int | None, conditions: Conditions) -> None:
    """Refuse, before the weights are read, lengths that the config already rules out."""
    if length is not None and (stated := stated_lengths(model, options)):
        require_beyond("target_len", length, stated.original)
    if length is not None and max(conditions.lengths, default=0) >= length:
        raise DoesNotFit("lengths", f"below the target ({length})", max(conditions.lengths), remedy="leave it out")


def _answer(request: FitRequest, fitting: Fitting) -> FittedExtension:
    run = request.options
    with (
        helped(run.workers, partial(_open_fitting, request)) as stop,
        showing_progress("searching", shown=run.progress) as progress,
    ):
        if _search(fitting, progress):
            stop()
        progress(0, 0, "testing extensions set by hand")
        fitting.judge_share(0)
    with showing_progress("testing", shown=run.progress) as progress:
        result = fitting.judge(lambda line, done, of: progress(done, of, f"testing {line}"))
    return FittedExtension(result, fitting.subject)


def _open_fitting(request: FitRequest) -> Fitting:
    """Another process's own model and texts, and the study that all share."""
    host = load_by_name(request.model, request.options)
    in_precision(host.model, request.dtype)
    return _fitting(request, host)


def _fitting(request: FitRequest, host: OpenedModel) -> Fitting:
    plan, run = request.plan, request.options
    subject, length = host.subject(request.corpus, plan.target_len), plan.target_len
    return Fitting(
        subject=subject,
        goal=Goal(
            facts=subject.facts,
            target_len=length,
            samples=plan.texts.samples,
            judges=plan.texts.judges,
            seed=run.seed,
            heads=_by_far_attention(subject) if request.conditions.space == HEADS else (),
            **vars(request.conditions),
        ),
        folder=request.folder,
        storage=run.storage or None,
        name=run.study,
        deadline=request.deadline,
        budget=request.budget,
        workers=run.workers,
        most=plan.texts.most,
        other=host.subject(request.judge_on, length) if request.judge_on else None,
    )


def _by_far_attention(subject: Subject) -> tuple[int, ...]:
    """The key heads of the whole model, from the one with most attention far away, on a text of the trained length."""
    known, near = subject.facts.trained_len, max(1, subject.facts.trained_len // 16)
    ids = subject.begun(subject.passages(FEWEST_TEXTS)[0], known)[None]
    with without_extension(subject.model), extended(subject.model, Extension(), mode="attention"):
        shares = mass_far_by_key_head(subject.model, ids, near=near)
    numbered = [share for layer in shares for share in layer]
    return tuple(sorted(range(len(numbered)), key=lambda number: -numbered[number]))


def _search(fitting: Fitting, progress: WorkProgress) -> bool:
    """Whether it was interrupted."""
    began, end = time.monotonic(), fitting.end
    if end is not None and end <= began:
        more = fitting.deadline and began - end  # what the final test needs beyond the budget
        late = f"the budget is about {more:.0f} s too short for the final test: it takes longer, and little is searched"
        progress.note(late)
    best: list[float] = []
    tried: list[int] = []

    def beat() -> None:
        label = f"searching, {len(tried)} tried" + (f", best {min(best):.3f}" if best else "")
        progress(time.monotonic() - began, max(0.0, (end or began) - began), label)  # 0: no share is told

    def watch(trial: MeasuredTrial) -> None:
        tried.append(trial.number)
        if trial.keeps and trial.figures:
            best.append(trial.figures.loss)
        beat()

    interrupted = fitting.search(watch=watch, beat=beat)
    if interrupted:
        progress.note("search stopped; the best so far is tested (Ctrl-C again stops the test too)")
    return interrupted


def _tests(fit: FitResult) -> list[FinalTest]:
    """The answer, and all others that were tested."""
    return [fit.answer, *(tested for tested in fit.beside if tested.extension != fit.answer.extension)]


def _record(tested: FinalTest) -> dict[str, Any]:
    loss, behind = tested.loss, tested.behind
    return {
        "extension": tested.line,
        "texts": loss.of,
        "loss": finite(loss.value),
        "loss_low": finite(loss.low),
        "loss_high": finite(loss.high),
        "behind": finite(behind.value),
        "behind_low": finite(behind.low),
        "behind_high": finite(behind.high),
        "damage": finite(tested.damage.value),
        "slowdown": finite(tested.slowdown),
        "passkeys": finite(tested.keys.value) if tested.keys else None,
    }
