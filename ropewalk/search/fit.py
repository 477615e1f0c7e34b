"""`rw.fit`: the best extension of a model for a length, with the evidence."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from ropewalk.engines.export import export
from ropewalk.errors import InvalidValue, UnknownName
from ropewalk.extension.extension import Extension
from ropewalk.extension.notation import length as in_tokens
from ropewalk.files import finite, record_json
from ropewalk.hf import save as write_model
from ropewalk.hf.load_options import UNSTATED, LoadOptions, merge_options
from ropewalk.measure.api.argument_checks import seconds, tokens, whole_number
from ropewalk.measure.api.comparing import FEWEST_TEXTS
from ropewalk.measure.api.loading import OpenedModel, load_by_name, open_folder, open_model
from ropewalk.measure.api.precision import in_precision, is_free
from ropewalk.measure.api.progress import Shown, WorkProgress, showing_progress
from ropewalk.measure.api.result import MeasuredResult
from ropewalk.measure.material.subject import Subject, without_extension
from ropewalk.measure.report.html_page import PageTable
from ropewalk.measure.report.tables import interval
from ropewalk.methods.spec import Json
from ropewalk.models import NAME
from ropewalk.search.final_test import FinalTest, FitResult
from ropewalk.search.fitting import Fitting, storage_in
from ropewalk.search.fitting_words import words
from ropewalk.search.goal import LOADERS, OBJECTIVES, SEARCHED, Goal
from ropewalk.search.pace import QUICK, USUAL, Pace, Planning, SearchPlan
from ropewalk.search.report import as_json, ranked_tests, table, title, write_fit
from ropewalk.search.studies import marks_of_study
from ropewalk.search.trials import MeasuredTrial
from ropewalk.search.workers import helped

ELSEWHERE = "all:descriptions"  # the other corpus of the final test
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


@dataclass(frozen=True, kw_only=True)
class FitRequest:
    """What was asked for; every worker reads it, and loads the model for itself."""

    model: Any
    tokenizer: Any
    options: LoadOptions
    corpus: str
    judge_on: str
    pace: Pace
    asked: dict[str, int | None]  # the target length and how many texts; what is not said is planned
    conditions: dict[str, Any]
    storage: str | None
    study: str
    workers: int
    folder: Path
    deadline: float
    budget: float
    plan: SearchPlan | None = None
    dtype: Any = None  # of the weights, where it was planned


def fit(
    model: Any = NAME,
    target_len: int | str | None = None,
    *,
    tokenizer: Any = None,
    budget: float | str = "",
    quick: bool = False,
    deployable: str = "any",
    objective: str = "all",
    max_damage: float | None = None,
    min_retrieval: float | None = None,
    max_slowdown: float | None = None,
    corpus: str = "python",
    judge_on: str = ELSEWHERE,
    samples: int | None = None,
    judges: int | None = None,
    seed: int = 0,
    folder: str | Path | None = None,
    storage: str = "",
    study: str = "fit",
    space: str = "usual",
    lengths: int | str | Sequence[int | str] = (),
    workers: int = 1,
    device: str = "",
    dtype: str = "",
    revision: str = "",
    trust_remote_code: bool = False,
    options: LoadOptions = UNSTATED,
    progress: Shown = True,
) -> FittedExtension:
    """Search for the best extension of a model for a target length, and test it on texts that the search does not see.

        fitted = rw.fit("model", 512, budget="20s", quick=True)
        rw.extend(model, fitted.extension)

    `model`, how it is loaded, `tokenizer`, `corpus` and `progress` are those of `rw.compare`. `target_len` is in tokens
    (32768 or "32k"), by default 8 times the trained length, or 4 or 2 times where the time is short. `budget` is the
    time of the whole run, in seconds or as "20m", the default; what it has time for is planned from the speed of the
    model here. `quick` takes 90 seconds, at most 4 times the trained length and 3 texts. Under `objective` far only the
    tokens count that the base model predicts with its trained length and not with an eighth of it. The answer keeps to
    the conditions on the texts that are searched on; if it breaks one on the test texts, what is written is the best
    hand-set extension that does not, or the sentences say by how much it is broken. `deployable` is any, static, or an
    engine that must load it; `max_damage` limits the rise of the loss on short texts in nats, `min_retrieval` the share
    of passkeys that are found, `max_slowdown` the time.
    `samples` texts are searched on, `judges` others test: by default 16 and 24, or as many as there is time for. The
    answer is tested on the text of `judge_on` too: by default what installed packages say of themselves; empty for
    none. In a `folder` (or an Optuna `storage`) the `study` is kept: the same call resumes it. Ctrl-C, or a notebook's
    stop button, ends the search and tests the best so far.
    `lengths` are shorter ones whose loss counts as much as the target's (512 and "1k", say): the search then minimises
    the mean over all, and tries schedules with a table for each row's length too. `space="schedules"` searches those
    and scales alone, and compares with such rivals: every token attends to the whole text. `space="compositions"`
    searches what composes (a reach, a schedule, scales, which layers read the whole text) by children of the best.
    """
    pace, began = QUICK if quick else USUAL, time.monotonic()
    _require_known(deployable, objective, space)
    options = merge_options(model, options, dtype, device, revision, trust_remote_code)
    _require_room_for(workers, model, options)
    limit = seconds("budget", budget) or pace.budget  # a budget of 0 is refused
    searched = {"deployable": deployable, "objective": objective, "space": space, "lengths": tokens("lengths", lengths)}
    limits = {"max_damage": max_damage, "min_retrieval": min_retrieval, "max_slowdown": max_slowdown}
    asked = _asked(target_len, samples, judges)
    with (
        open_folder(folder) as place,
        showing_progress("loading the model", shown=progress) as shown,
        open_model(model, tokenizer, options) as host,
    ):
        request = FitRequest(
            model=model,
            tokenizer=tokenizer,
            options=options,
            corpus=corpus,
            judge_on=judge_on,
            pace=pace,
            asked=asked,
            conditions={**searched, **limits, "seed": seed},
            storage=storage or None,
            study=study,
            workers=workers,
            folder=place,
            deadline=began + limit,
            budget=limit,
        )
        return _answer(*_begin(request, host, shown), progress)


def _begin(request: FitRequest, host: OpenedModel, shown: WorkProgress) -> tuple[FitRequest, Fitting]:
    """The search with its plan, and the base model measured; what is refused is refused before the plan is shown."""
    shown(0, 0, "planning")
    planning = Planning(
        host=host,
        pace=request.pace,
        deadline=request.deadline,
        lengths=request.conditions["lengths"],
        workers=request.workers,
        judge_on=request.judge_on,
        free_precision=is_free(request.model, host.model, request.options),
        before=marks_of_study(request.storage or storage_in(request.folder), request.study),
    )
    plan = planning.plan(**request.asked)
    request = replace(request, plan=plan, dtype=host.model.dtype)
    fitting = _fitting(request, host)
    shown(0, 0, "reading texts")
    fitting.require_texts()
    for sentence in planning.sentences(plan, request.corpus):
        shown.note(sentence)
    fitting.begin(lambda label, done, of: shown(done, of, label))
    shown.close()
    return request, fitting


def _asked(target_len: int | str | None, samples: int | None, judges: int | None) -> dict[str, int | None]:
    """The length, and how many texts; what the caller leaves out is planned."""
    counts = {"samples": samples, "judges": judges}
    known = {name: whole_number(name, count, least=FEWEST_TEXTS) for name, count in counts.items() if count is not None}
    length = None if target_len is None else in_tokens(str(target_len), "target_len")
    return {"samples": None, "judges": None, **known, "target_len": length}


def _require_known(deployable: str, objective: str, space: str) -> None:
    if deployable not in LOADERS:
        raise UnknownName("engine for deployable", deployable, known=LOADERS)
    if objective not in OBJECTIVES:
        raise UnknownName("objective", objective, known=OBJECTIVES)
    if space not in SEARCHED:
        raise UnknownName("space", space, known=SEARCHED)


def _require_room_for(workers: int, model: Any, options: LoadOptions) -> None:
    """Refuse no workers, and several that cannot load the model, or that would each take all devices."""
    whole_number("workers", workers, least=1)
    if workers > 1 and not isinstance(model, str | Path):
        sentence = "several workers need the name of a model, which each of them loads"
        raise InvalidValue.because("workers", sentence, remedy="leave workers out, or pass a name")
    if workers > 1 and options.is_spread:
        raise InvalidValue.because("device", "each of several workers would take all devices", remedy="name one device")


def _answer(request: FitRequest, fitting: Fitting, shown: Shown) -> FittedExtension:
    with (
        helped(request.workers, partial(_open_fitting, request)) as stop,
        showing_progress(request.study, shown=shown) as progress,
    ):
        if _search(fitting, progress):
            stop()
        fitting.judge_share(0)
    with showing_progress("testing", shown=shown) as progress:
        result = fitting.judge(lambda line, done, of: progress(done, of, f"testing {line}"))
    return FittedExtension(result, fitting.subject)


def _open_fitting(request: FitRequest) -> Fitting:
    """Another process's own model and texts, and the study that all share."""
    host = load_by_name(request.model, request.tokenizer, request.options)
    in_precision(host.model, request.dtype)
    return _fitting(request, host)


def _fitting(request: FitRequest, host: OpenedModel) -> Fitting:
    plan = cast(SearchPlan, request.plan)
    subject, length = host.subject(request.corpus, plan.target_len), plan.target_len
    counts: dict[str, Any] = {"samples": plan.texts.samples, "judges": plan.texts.judges}
    return Fitting(
        subject=subject,
        goal=Goal(facts=subject.facts, target_len=length, **counts, **request.conditions),
        folder=request.folder,
        storage=request.storage,
        name=request.study,
        deadline=request.deadline,
        budget=request.budget,
        workers=request.workers,
        most=plan.texts.most,
        other=host.subject(request.judge_on, length) if request.judge_on else None,
    )


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
        label = f"{len(tried)} tried, best {min(best):.3f}" if best else f"{len(tried)} tried"
        progress(time.monotonic() - began, max(1.0, (end or began) - began), label)

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
