"""What sources claim of methods without training, judged on every model that `ropewalk compare` measured.

python -m studies.untrained FOLDER       collect its results of the carried model, and measure the largest logits on the
                                         same texts

Figures are losses of the last tokens of each text, after so much context. The base model at its trained length has read
just the last of the text: the row that every user has without any method.
"""

from __future__ import annotations

import gzip
import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from ropewalk.measure.metrics.intervals import Estimate, crossed_mean

from studies.carried import carried
from studies.claims import ARTICLE_1, ARTICLE_3, ARTICLE_5, LEVEL, NATS, Claim, JudgedClaim, Unit, judge
from studies.records import command_of, read, write

PLACE = Path(__file__).resolve().parent / "results" / "untrained" / "untrained.json"
BASE, YARN, BY_PARTS = "rope", "yarn", "by_parts"
OTHER_TEMPERATURES = tuple(f"by_parts+yarn_temperature:factor=8,coefficient={value}" for value in ("0.05", "0.2"))
WITH_LOG_N = (YARN, "rerope", "self_extend")
STATIC = {"pi": "PI", "ntk": "NTK", BY_PARTS: "NTK by parts", YARN: "YaRN"}
ONE_SINK, EIGHT_SINKS = "streaming:n_sink=1", "streaming:n_sink=8"
LOGITS, LOGIT_TEXTS = Unit("logits", digits=2), 8
LOSS, LAST_HALF, LARGEST, FIGURES = "loss", "loss of the last half", "largest logit", "figures of texts"
UNITS = {LOSS: NATS, LAST_HALF: NATS, LARGEST: LOGITS}
TIMES = (1, 2, 4, 8)
SMALL = 0.02  # nats: a difference too small to report, as in `compare`
BREAKS = 1.0  # nats: a rise that nobody can read past
ALONE = "the unchanged model's on the last trained length alone"
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


def claims_at(longest: int, lines: Sequence[str]) -> Iterator[Claim]:
    """The claims, for a model that was read under these lines up to so many trained lengths."""
    far = f"at {longest}x"
    static = [line for line in STATIC if line in lines]
    embedded = [line for line in WITH_LOG_N if {line, f"{line}+log_n"} <= set(lines)]
    yield from _of_rotation(longest, far, static)
    yield from _of_yarn(longest, far)
    yield from _of_first_tokens(longest, far)
    if embedded:
        names = ", ".join(embedded)
        yield Claim(
            "log-n-embeds",
            f"log-n combines with other methods: without training it lowers the loss {far} under {names}.",
            ARTICLE_1,
            tuple(below(f"{line}+log_n", line, longest) for line in embedded),
            theirs="'can be put into any other work'",
        )


def _of_rotation(longest: int, far: str, static: Sequence[str]) -> Iterator[Claim]:
    yield Claim(
        "rope-fails",
        f"Plain rotation fails beyond its length: {far} its loss is more than 1 nat above {ALONE}.",
        "kexue.fm/9577",
        ((Reading(1, BASE, longest), Reading(-1, BASE, 1)),),
        BREAKS,
        "accuracy 52.37 % at 1x, 17.87 % at 8x; the bound is ours",
    )
    yield Claim(
        "pi-over-none",
        f"Without training PI reads {longest}x better than plain rotation.",
        ARTICLE_3,
        (below("pi", BASE, longest),),
        theirs="'so the model can understand' positions beyond its length; names no training; articles 2 and 5 say "
        "that PI needs it",
    )
    yield Claim(
        "ntk-untrained",
        f"Without training NTK is better than PI {far}.",
        "kexue.fm/9675; 9706",
        (below("ntk", "pi", longest),),
        theirs="39.27 instead of 13.54 % of accuracy",
    )
    yield Claim(
        "by-parts-untrained",
        f"Without training NTK by parts is better than NTK {far}.",
        YARN_SOURCE,
        (below(BY_PARTS, "ntk", longest),),
    )
    if static:
        names = " and ".join([", ".join(STATIC[line] for line in static[:-1]), STATIC[static[-1]]]).removeprefix(
            " and "
        )
        yield Claim(
            "static-harm",
            f"Without training a static schedule harms texts of the trained length: {names} by more than 0.02.",
            ARTICLE_5,
            tuple(below(BASE, line, 1) for line in static),
            SMALL,
        )
    yield Claim(
        "dynamic-yarn-short",
        "Without training YaRN with dynamic scaling leaves texts of the trained length unchanged.",
        YARN_SOURCE,
        ((SHORT, Reading(-1, "dynamic_yarn", 1)),),
        -SMALL,
    )
    yield Claim(
        "logits-grow",
        "Beyond the trained length logits grow without bound: the largest one is larger at 2x "
        "than at 1x, at 4x than at 2x, and at 8x than at 4x.",
        INFINITE_SOURCE,
        tuple((Reading(1, BASE, 2 * times, LARGEST), Reading(-1, BASE, times, LARGEST)) for times in (1, 2, 4)),
        theirs="a theorem",
        note="A longer text has more keys, so chance alone may raise the maximum. Under "
        "NTK by parts it does not: there it is the same at every length. Four lengths cannot show growth "
        "without bound.",
    )


def _of_yarn(longest: int, far: str) -> Iterator[Claim]:
    yield Claim(
        "yarn-untrained",
        f"Without training YaRN is better than NTK and PI {far}.",
        YARN_SOURCE,
        (below(YARN, "ntk", longest), below(YARN, "pi", longest)),
    )
    yield Claim(
        "yarn-temperature",
        "YaRN's temperature makes NTK by parts better over the whole of the longer "
        "context: without training, set to 8x, it is better at 2x, 4x and 8x.",
        YARN_SOURCE,
        tuple(below(YARN, BY_PARTS, times) for times in (2, 4, 8)),
    )
    yield Claim(
        "yarn-coefficient",
        "YaRN's 0.1 ln s + 1 is the best temperature: without training it is better at 8x than with 0.05 and with 0.2.",
        YARN_SOURCE,
        tuple(below(YARN, other) for other in OTHER_TEMPERATURES),
        theirs=f"0.1, fitted to LLaMA; 'fits many models and data' ({ARTICLE_5})",
    )
    yield Claim(
        "yarn-extremes",
        "YaRN's temperature prevents extreme logits: at 8x the largest one is smaller than under NTK by parts alone.",
        ARTICLE_3,
        ((Reading(1, BY_PARTS, what=LARGEST), Reading(-1, YARN, what=LARGEST)),),
        note="The article writes softmax(QK / t) and gives no t. YaRN's paper has sqrt(1 / t) = 0.1 ln(s) + 1, which "
        "multiplies every logit by (0.1 ln 8 + 1)^2 = 1.46; queries and keys of later layers change with it. "
        "`yarn-smooths` is of the same sentence.",
    )


def _of_first_tokens(longest: int, far: str) -> Iterator[Claim]:
    yield Claim(
        "window-at-inference",
        f"Without training, a window makes a trained model better {far}.",
        "kexue.fm/9431",
        (below("window", BASE, longest),),
    )
    yield Claim(
        "lm-infinite-better",
        f"LM-Infinite reads {longest}x better than plain rotation.",
        INFINITE_SOURCE,
        (below("lm_infinite", BASE, longest),),
        theirs="figures of losses and of generated text",
    )
    yield Claim(
        "lm-infinite-flat",
        f"LM-Infinite loses nothing {far}: its loss is at most 0.02 above {ALONE}.",
        INFINITE_SOURCE,
        ((SHORT, Reading(-1, "lm_infinite", longest)),),
        -SMALL,
    )
    yield Claim(
        "streaming-flat",
        f"StreamingLLM loses nothing {far}: its loss is at most 0.02 above {ALONE}.",
        STREAMING_SOURCE,
        ((SHORT, Reading(-1, "streaming", longest)),),
        -SMALL,
    )
    yield Claim(
        "streaming-first",
        f"StreamingLLM needs the first four tokens: {far} it is better than a window alone.",
        STREAMING_SOURCE,
        (below("streaming", "window", longest),),
        theirs="perplexity 5.40 instead of 5,158",
    )
    yield Claim(
        "streaming-four",
        f"Four first tokens serve better than one: {far} the loss is lower.",
        STREAMING_SOURCE,
        (below("streaming", ONE_SINK, longest),),
        theirs="models whose training texts begin with no marker need four",
    )
    yield Claim(
        "streaming-eight",
        f"More than four first tokens gain little: {far} eight gain less than 0.02.",
        STREAMING_SOURCE,
        (below("streaming", EIGHT_SINKS, longest),),
        -SMALL,
    )


Figures = Mapping[str, Mapping[str, Mapping[str, Sequence[float]]]]  # of texts, by kind, line and trained lengths


def figures_of(results: Mapping[str, Any], largest: Mapping[str, Mapping[str, Sequence[float]]]) -> Figures:
    """The losses that `ropewalk compare` measured, of the last tokens and of the last half, and the largest logits."""
    length, base = results["trained_len"], {"bare": BASE}
    rows = {
        base.get(candidate["line"], candidate["line"]): {
            str(row["length"] // length): row["samples"] for row in candidate["rows"] if row["task"] == "context"
        }
        for candidate in results["candidates"]
    }

    def figures(of: Callable[[Mapping[str, Any]], float], needed: str) -> dict[str, dict[str, list[float]]]:
        measured = {
            line: {times: samples for times, samples in by_times.items() if all(needed in one for one in samples)}
            for line, by_times in rows.items()
        }
        return {
            line: {times: list(map(of, samples)) for times, samples in by_times.items()}
            for line, by_times in measured.items()
            if by_times
        }

    last_half = figures(lambda sample: round(fmean(sample["curve"][len(sample["curve"]) // 2 :]), 5), "curve")
    return {LOSS: figures(lambda sample: float(sample["loss"]), "loss"), LAST_HALF: last_half, LARGEST: largest}


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

    def sum(self, terms: Sequence[Reading], level: float = LEVEL, *, least: float = -math.inf) -> Estimate:
        """A sum of figures, with its interval over projects."""
        rows = [[term.weight * figure for figure in self._of[term.line, term.times, term.what]] for term in terms]
        of_texts = [math.fsum(of_text) for of_text in zip(*rows, strict=True)]
        return crossed_mean([of_texts], groups=self._projects[: len(of_texts)], least=least, level=level)

    def has(self, terms: Sequence[Reading]) -> bool:
        """Whether all figures of a sum were measured."""
        return all((term.line, term.times, term.what) in self._of for term in terms)

    @property
    def lines(self) -> list[str]:
        """Everything that the model was read under."""
        return list(dict.fromkeys(line for line, *_ in self._of))

    @property
    def longest(self) -> int:
        """In trained lengths."""
        return max(times for _, times, _ in self._of)

    def curve(self, line: str, what: str) -> list[tuple[float, Estimate]]:
        """By length of the text."""
        measured = sorted(times for one, times, kind in self._of if (one, kind) == (line, what))
        return [(times, self.sum([Reading(1, line, times, what)], least=0)) for times in measured]


def verdicts(kept: Mapping[str, Any]) -> list[JudgedClaim]:
    """What the figures say of every claim that they are enough for."""
    ours = Readings(kept[FIGURES], kept["projects"])
    measured = claims_at(ours.longest, ours.lines)
    return [verdict(claim, ours) for claim in measured if all(map(ours.has, claim.sums))]


def of_results(place: Path) -> Mapping[str, Any]:
    """What the claims follow from, in a file that `ropewalk compare` wrote."""
    text = gzip.decompress(place.read_bytes()) if place.suffix == ".gz" else place.read_bytes()
    results = json.loads(text)
    return {**_origin(results), FIGURES: figures_of(results, {})}


def verdict(claim: Claim, ours: Readings) -> JudgedClaim:
    """What the readings say of one claim."""
    what = claim.sums[0][0].what
    lines = dict.fromkeys(term.line for terms in claim.sums for term in terms)
    said = judge(
        claim,
        ours.sum,
        UNITS[what],
        ("length of the text, in trained lengths", "loss of the last tokens, nats" if what == LOSS else what),
        {line: ours.curve(line, what) for line in lines},
    )
    return replace(said, last_half=over_last_half(claim, ours))


def over_last_half(claim: Claim, ours: Readings) -> JudgedClaim | None:
    """The same claim, with the losses of the last half of each text; of one length, or other text would be compared."""
    sums = tuple(tuple(term._replace(what=LAST_HALF) for term in terms) for terms in claim.sums)
    of_one_length = all(len({term.times for term in terms}) == 1 and terms[0].times > 1 for terms in sums)
    of_losses = all(term.what == LOSS for terms in claim.sums for term in terms)
    if not (of_one_length and of_losses and all(map(ours.has, sums))):
        return None
    return judge(claim._replace(sums=sums), ours.sum, NATS)


def largest_logits(results: Mapping[str, Any]) -> dict[str, dict[str, list[float]]]:
    """The largest logit in each text, over layers, heads, sampled queries and their keys; schedules are set to 8x.

    The losses have to be of the same model and texts.
    """
    from ropewalk import extended
    from ropewalk.hf.probe.facts import trained_len
    from ropewalk.measure.diagnostics.attention_weights import logit_growth
    from ropewalk.measure.material.subject import marks_of

    opened = carried()
    model, tokenizer = opened.model, opened.tokenizer
    length = trained_len(model)
    corpus = results["marks"]["corpus"]
    subject = opened.subject(corpus, max(TIMES) * length)
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
    """What the claims follow from, of the carried model; what was measured apart stays."""
    results = read(folder / "results.json")
    return {
        **(read(PLACE) if PLACE.exists() else {}),
        **_origin(results),
        FIGURES: figures_of(results, largest_logits(results)),
    }


def _origin(results: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: results[name] for name in ("made", "marks", "projects")}
    return {**kept, "command": command_of(results)}


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    write(PLACE, collect(Path(sys.argv[1])))
