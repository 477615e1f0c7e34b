"""What sources claim of methods without training, judged by what `ropewalk compare` measured of the carried model.

python -m studies.untrained FOLDER       collect its results, and measure the largest logits on the same texts
python -m studies.untrained far FOLDER   collect what was measured at 16 trained lengths, on other texts
python -m studies.untrained              judge what was collected again, after a change of the claims

Figures are losses of the last tokens of each text, after so much context.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ropewalk.measure.metrics.intervals import Estimate, crossed_mean

from studies.claims import ARTICLE_1, ARTICLE_3, ARTICLE_5, NATS, Claim, JudgedClaim, Unit, judge
from studies.records import command_of, read, write

PLACE = Path(__file__).resolve().parent / "results" / "untrained" / "untrained.json"
BASE, YARN, BY_PARTS = "rope", "yarn", "by_parts"
OTHER_TEMPERATURES = tuple(f"by_parts+yarn_temperature:factor=8,coefficient={value}" for value in ("0.05", "0.2"))
WITH_LOG_N = (YARN, "rerope", "self_extend")
STATIC = ("pi", "ntk", BY_PARTS, YARN)
ONE_SINK, EIGHT_SINKS = "streaming:n_sink=1", "streaming:n_sink=8"
LOGITS, LOGIT_TEXTS = Unit("logits", digits=2), 8
LOSS, LARGEST, FIGURES, FAR = "loss", "largest logit", "figures of texts", "at 16 trained lengths"
UNITS = {LOSS: NATS, LARGEST: LOGITS}
TIMES, FARTHEST = (1, 2, 4, 8), 16
SMALL = 0.02  # nats: a difference too small to report, as in `compare`
YARN_SOURCE, INFINITE_SOURCE, STREAMING_SOURCE = "arXiv:2309.00071", "arXiv:2308.16137", "arXiv:2309.17453"


class Reading(NamedTuple):
    """A figure of the model as it reads under a line, at so many trained lengths, in a sum."""

    weight: float
    line: str
    times: int = 8
    what: str = LOSS

    def __str__(self) -> str:
        """Without its weight."""
        of = "" if self.what == LOSS else f"{self.what} of "
        return f"{of}{self.line} at {self.times}x"


def below(line: str, other: str, times: int = 8) -> tuple[Reading, ...]:
    """By how much the loss under one line is below that under another."""
    return Reading(1, other, times), Reading(-1, line, times)


SHORT = Reading(1, BASE, 1)
CLAIMS = (
    Claim("log-n-embeds", "log-n combines with other methods: without training it lowers the loss at 8x under YaRN, "
          "ReRoPE and Self-Extend.", ARTICLE_1,
          tuple(below(f"{line}+log_n", line) for line in WITH_LOG_N), theirs="'can be put into any other work'"),
    Claim("pi-over-none", "Without training PI reads 8x better than plain rotation.",
          ARTICLE_3, (below("pi", BASE),),
          theirs="'so the model can understand' positions beyond its length"),
    Claim("by-parts-untrained", "Without training NTK by parts is better than NTK at 8x.", YARN_SOURCE,
          (below(BY_PARTS, "ntk"),)),
    Claim("yarn-temperature", "YaRN's temperature makes NTK by parts better over the whole of the longer context: "
          "without training, set to 8x, it is better at 2x, 4x and 8x.", YARN_SOURCE,
          tuple(below(YARN, BY_PARTS, times) for times in (2, 4, 8))),
    Claim("yarn-coefficient", "YaRN's 0.1 ln s + 1 is the best temperature: without training it is better at 8x than "
          "with 0.05 and with 0.2.", YARN_SOURCE, tuple(below(YARN, other) for other in OTHER_TEMPERATURES),
          theirs=f"0.1, fitted to LLaMA; 'fits many models and data' ({ARTICLE_5})"),
    Claim("yarn-extremes", "YaRN's temperature prevents extreme logits: at 8x the largest one is smaller than under "
          "NTK by parts alone.", ARTICLE_3,
          ((Reading(1, BY_PARTS, what=LARGEST), Reading(-1, YARN, what=LARGEST)),),
          note="Nearly by construction: YaRN's temperature multiplies every logit by (0.1 ln 8 + 1)^2, which is 1.46."),
    Claim("static-harm", "Without training every static schedule harms short texts, NTK by parts as well: PI, NTK, NTK "
          "by parts and YaRN by more than 0.02.", ARTICLE_5,
          tuple(below(BASE, line, 1) for line in STATIC), SMALL),
    Claim("logits-grow", "Beyond the trained length logits grow without bound: the largest one is larger at 2x than at "
          "1x, at 4x than at 2x, and at 8x than at 4x.", INFINITE_SOURCE,
          tuple((Reading(1, BASE, 2 * times, LARGEST), Reading(-1, BASE, times, LARGEST)) for times in (1, 2, 4)),
          theirs="a theorem", note="A longer text has more keys, so chance alone may raise the maximum. Under NTK by "
          "parts it does not: there it is the same at every length. Four lengths cannot show growth without bound."),
    Claim("lm-infinite-better", "LM-Infinite reads 8x better than plain rotation.", INFINITE_SOURCE,
          (below("lm_infinite", BASE),), theirs="figures of losses and of generated text"),
    Claim("lm-infinite-flat", "LM-Infinite loses nothing at 8x: its loss is at most 0.02 above the model's at 1x.",
          INFINITE_SOURCE, ((SHORT, Reading(-1, "lm_infinite")),), -SMALL),
    Claim("streaming-flat", "StreamingLLM loses nothing at 8x: its loss is at most 0.02 above the model's at 1x.",
          STREAMING_SOURCE, ((SHORT, Reading(-1, "streaming")),), -SMALL),
    Claim("streaming-first", "StreamingLLM needs the first four tokens: at 8x it is better than a window alone.",
          STREAMING_SOURCE, (below("streaming", "window"),), theirs="perplexity 5.40 instead of 5,158"),
    Claim("streaming-four", "Four first tokens serve better than one: at 8x the loss is lower.", STREAMING_SOURCE,
          (below("streaming", ONE_SINK),), theirs="models whose training texts begin with no marker need four"),
    Claim("streaming-eight", "More than four first tokens gain little: at 8x eight gain less than 0.02.",
          STREAMING_SOURCE, (below("streaming", EIGHT_SINKS),), -SMALL),
)  # fmt: skip
FAR_CLAIMS = (
    Claim("16x", "From 2,048 to 32,768 tokens nothing is lost by much: without training a method, here `long_reach`, "
          "reads 16x at most 0.02 above the model's loss at 1x.", ARTICLE_1,
          ((SHORT, Reading(-1, "long_reach", FARTHEST)),), -SMALL, "16x, an aim; the bound is ours"),
)  # fmt: skip


Figures = Mapping[str, Mapping[str, Mapping[str, Sequence[float]]]]  # of texts, by kind, line and trained lengths


def figures_of(results: Mapping[str, Any], largest: Mapping[str, Mapping[str, Sequence[float]]]) -> Figures:
    """The losses that `ropewalk compare` measured, and the largest logits."""
    length, base = results["trained_len"], {"bare": BASE}
    losses = {
        base.get(candidate["line"], candidate["line"]): {
            str(row["length"] // length): [sample["loss"] for sample in row["samples"]]
            for row in candidate["rows"]
            if row["task"] == "context"
        }
        for candidate in results["candidates"]
    }
    return {LOSS: losses, LARGEST: largest}


class Readings:
    """What was measured: by line, trained lengths and kind, one figure for each text; texts of a project are alike."""

    def __init__(self, figures: Figures, projects: Sequence[str]) -> None:
        self._projects = projects
        self._of = {
            (line, int(times), what): of_texts
            for what, by_line in figures.items()
            for line, by_times in by_line.items()
            for times, of_texts in by_times.items()
        }

    def sum(self, terms: Sequence[Reading], *, least: float = -math.inf) -> Estimate:
        """A sum of figures, with its interval over projects."""
        rows = [[term.weight * figure for figure in self._of[term.line, term.times, term.what]] for term in terms]
        of_texts = [math.fsum(of_text) for of_text in zip(*rows, strict=True)]
        return crossed_mean([of_texts], groups=self._projects[: len(of_texts)], least=least)

    def curve(self, line: str, what: str) -> list[tuple[float, Estimate]]:
        """By length of the text."""
        measured = [times for times in (*TIMES, FARTHEST) if (line, times, what) in self._of]
        return [(times, self.sum([Reading(1, line, times, what)], least=0)) for times in measured]


def verdicts(kept: Mapping[str, Any]) -> list[JudgedClaim]:
    """What the figures say of every claim."""
    return [*_judged(kept, CLAIMS), *_judged(kept.get(FAR), FAR_CLAIMS)]


def _judged(kept: Mapping[str, Any] | None, claims: Sequence[Claim]) -> list[JudgedClaim]:
    """None of what was not measured."""
    if kept is None:
        return []
    ours = Readings(kept[FIGURES], kept["projects"])
    return [verdict(claim, ours) for claim in claims]


def verdict(claim: Claim, ours: Readings) -> JudgedClaim:
    """What the readings say of one claim."""
    what = claim.sums[0][0].what
    lines = dict.fromkeys(term.line for terms in claim.sums for term in terms)
    return judge(
        claim,
        [ours.sum(terms) for terms in claim.sums],
        UNITS[what],
        ("length of the text, in trained lengths", "loss of the last tokens, nats" if what == LOSS else what),
        {line: ours.curve(line, what) for line in lines},
    )


def largest_logits(results: Mapping[str, Any]) -> dict[str, dict[str, list[float]]]:
    """The largest logit in each text, over layers, heads, sampled queries and their keys; schedules are set to 8x.

    The losses have to be of the same model and texts.
    """
    from ropewalk import extended, load
    from ropewalk.hf.checkpoint.fetch import fetch_tokenizer
    from ropewalk.hf.probe.facts import trained_len
    from ropewalk.measure.diagnostics import logit_growth
    from ropewalk.measure.material.subject import Subject, marks_of
    from ropewalk.models import path_of

    place = path_of("default")
    model, tokenizer = load(place), fetch_tokenizer(place)
    length = trained_len(model)
    corpus = results["marks"]["corpus"]
    subject = Subject(model=model, tokenizer=tokenizer, corpus=corpus, longest=max(TIMES) * length)
    if results["marks"]["weights"] != marks_of(model, tokenizer)["weights"]:
        sys.exit("the losses are of another model than the one that Ropewalk carries")
    if results["made"]["texts"][:LOGIT_TEXTS] != subject.text_marks(LOGIT_TEXTS)[:LOGIT_TEXTS]:
        sys.exit("the losses are of other texts than are installed here")
    found: dict[str, dict[str, list[float]]] = {}
    for line in (BASE, BY_PARTS, YARN):
        with extended(model, line, target_len=subject.longest, mode="attention"):
            found[line] = {
                str(times): [
                    _largest(logit_growth(model, ids[None, -times * length :])) for ids in subject.passages(LOGIT_TEXTS)
                ]
                for times in TIMES
            }
    return found


def _largest(growth: Any) -> float:
    return float(round(max(value for layer in growth.largest.layers for value in layer if not math.isnan(value)), 4))


def collect(folder: Path) -> Mapping[str, Any]:
    """What the claims follow from; what was measured at 16 trained lengths stays."""
    results = read(folder / "results.json")
    kept = {**_origin(results), FIGURES: figures_of(results, largest_logits(results))}
    far = read(PLACE).get(FAR) if PLACE.is_file() else None
    return {**kept, FAR: far} if far else kept


def collect_far(folder: Path) -> Mapping[str, Any]:
    """What is stored, with what was measured at 16 trained lengths."""
    results = read(folder / "results.json")
    return {**read(PLACE), FAR: {**_origin(results), FIGURES: figures_of(results, {})}}


def _origin(results: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: results[name] for name in ("made", "marks", "projects")}
    return {**kept, "command": command_of(results)}


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["far", place]:
            kept = collect_far(Path(place))
        case [place]:
            kept = collect(Path(place))
        case []:
            kept = read(PLACE)
        case _:
            sys.exit(__doc__)
    write(PLACE, kept, verdicts(kept))
