"""Every study: of which model, what its claims follow from, how they are judged, and the command that measures it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from studies import (
    alibi_reach,
    computed,
    contexts,
    generation,
    kv_heads,
    order,
    pieces,
    released,
    restricted,
    sink_positions,
    switches,
    thresholds,
    untrained,
)
from studies.claims import JudgedClaim
from studies.frozen import settled
from studies.models_table import table_in
from studies.records import read
from studies.tuned import claims as tuned
from studies.zoo.claims import verdicts as of_zoo

ROOT = Path(__file__).resolve().parent
RESULTS, REAL = ROOT / "results", ROOT.parent / "docs" / "results" / "real"
REAL_SMALL, REAL_LONG = "SmolLM2, 135 M, 8k", "Gemma 3, 270 M, 32k"
LARGER, CARRIED, SMALL = "ours, 31 M, 512", "carried, 7 M, 512", "small, 0.7 M, 64"
NO_MODEL = "formulas and machines"
MODELS = (REAL_SMALL, REAL_LONG, LARGER, CARRIED, SMALL, NO_MODEL)  # columns of the table of claims, real ones first

TABLE = (
    "Run so, it keeps what that folder has, measures what is missing, and judges all claims. A new measurement needs"
    " another folder, or this one without its `measured`, `models` and `base.json`. It trains on the texts of the"
    " installed packages."
)
TEXTS = "`python` is the text of the installed packages: with others the figures differ, within the intervals or not."
MACHINES = "Other machines give other ratios."
TRAIN = "train"  # the extra of pip that a command needs


class Study(NamedTuple):
    """Results with claims: what they are of, what they follow from, and the command that makes them."""

    name: str
    model: str
    words: str  # what was done with the model
    place: Path
    read: Callable[[Path], Mapping[str, Any]]
    verdicts: Callable[[Mapping[str, Any]], Sequence[JudgedClaim]]
    command: str
    time: str
    anew: str = ""  # what a new measurement needs besides
    extra: str = ""

    @property
    def judged(self) -> list[JudgedClaim]:
        """Its claims, by what was measured; none where nothing was."""
        if not self.place.exists():
            return []
        return [settled(self.name, one) for one in self.verdicts(self.read(self.place))]


def _compare(name: str, model: str, words: str, place: Path, command: str, time: str) -> Study:
    """What `ropewalk compare` measured of a model, judged like what it measured of the carried one."""
    return Study(name, model, words, place, untrained.of_results, untrained.verdicts, command, time)


def _tuned(name: str, model: str, words: str, more: str, time: str, anew: str = TABLE) -> Study:
    command = f"python -m studies tuned --out studies/results/{name} {more}"
    return Study(name, model, words, RESULTS / name, table_in, tuned.verdicts, command, time, anew, TRAIN)


def _carried(name: str, words: str, module: Any, command: str, time: str, model: str = CARRIED, **more: str) -> Study:
    return Study(name, model, words, RESULTS / name / f"{name}.json", read, module.verdicts, command, time, **more)


SMALL_BASE = "--set model=studies/results/zoo/models/rope-0/model"
STUDIES = (
    _compare(
        "real-smollm2", REAL_SMALL, "SmolLM2-135M-Instruct, read without training",
        REAL / "SmolLM2-135M-Instruct.json.gz", "make real", "days of one core, 18 minutes of a large GPU",
    ),
    _compare(
        "real-gemma3", REAL_LONG, "Gemma 3 270M, read without training",
        REAL / "gemma-3-270m.json.gz", "make real", "days of one core",
    ),
    _compare(
        "larger", LARGER, "our model of 31 million parameters, trained on 512 tokens and read without training",
        RESULTS / "larger" / "results.json",
        "ropewalk compare LARGER/model yarn ntk pi dynamic_yarn rerope+log_n window --lengths 512,4k --corpus stdlib "
        "--samples 16 --out FOLDER", "25 minutes of one core; the training took 6 hours",
    ),
    _carried(
        "untrained", "the model that Ropewalk carries, trained on 512 tokens and read without training", untrained,
        "ropewalk compare default pi ntk by_parts yarn by_parts+yarn_temperature:factor=8,coefficient=0.05 "
        "by_parts+yarn_temperature:factor=8,coefficient=0.2 log_n yarn+log_n rerope rerope+log_n self_extend "
        "self_extend+log_n window streaming streaming:n_sink=1 streaming:n_sink=8 lm_infinite "
        "--lengths 512,1k,2k,4k --samples 24 --corpus python --tasks context --out FOLDER && "
        "python -m studies.untrained FOLDER", "an hour of one core", anew=TEXTS,
    ),
    Study(
        "zoo", SMALL, "small models, trained on 64 tokens", RESULTS / "zoo", table_in, of_zoo,
        "python -m studies zoo --out studies/results/zoo", "eleven hours of one core", TABLE, TRAIN,
    ),
    _tuned(
        "tuned-zoo", SMALL, "a small model, trained on 64 tokens and then on 512",
        f"{SMALL_BASE} --set methods=none,pi,ntk,yarn,abf,dynamic,drope,short,dynamic_yarn,yarn_4x,xpos_abf,abf_half,"
        "abf_short", "two hours of one core", f"{TABLE} The base model is one of the zoo, and is there.",
    ),
    _tuned(
        "tuned-default", CARRIED, "the model that Ropewalk carries, trained on 512 tokens and then on 4,096",
        "--set rows=1 --set bf16=true", "a day of one core",
    ),
    _tuned(
        "tuned-far", SMALL, "a small model, trained on 64 tokens and then on 1,024",
        f"{SMALL_BASE} --set longest=32 --set rows=1 --set log_every=5 "
        "--set methods=base,pi_half,ntk_half,yarn_half,yarn_half_dynamic,yarn_beyond",
        "two hours of one core", f"{TABLE} The base model is one of the zoo, and is there.",
    ),
    _carried(
        "contexts", "the model that Ropewalk carries, asked for passkeys in one of several texts of 512 tokens",
        contexts,
        "ropewalk compare default rope --lengths 1k,2k,4k,8k --samples 24 --corpus python --out FOLDER --tasks "
        "many_contexts:pooling=mean,beta=0.25,many_contexts:pooling=max,beta=0.25,many_contexts:pooling=product,"
        "many_contexts:beta=0,many_contexts:beta=0.25,many_contexts:beta=0.5,many_contexts:beta=1 && "
        "ropewalk compare default rope --lengths 1k,8k --samples 48 --corpus python --out MORE --tasks "
        "many_contexts:beta=0.25 && python -m studies.contexts FOLDER MORE && "
        "ropewalk compare default rope --lengths 8k --samples 48 --corpus python --out BESIDE --tasks "
        "many_contexts:beta=0.25,many_contexts:pooling=retrieved && python -m studies.contexts retrieval BESIDE",
        "an hour of one core", anew=TEXTS,
    ),
    _carried(
        "kv-heads", "a model of random weights with 16 query heads, 8,192 cached tokens, one CPU thread", kv_heads,
        "python -m studies.kv_heads", "half an hour of one core", NO_MODEL, anew=MACHINES,
    ),
    _carried(
        "restricted", "attention over 8,192 random tokens, one CPU thread; for caches the carried model",
        restricted,
        "python -m studies.restricted", "half an hour of one core", NO_MODEL, anew=MACHINES,
    ),
    _carried(
        "switches", "small models, trained on 64 tokens and then on 512", switches,
        "python -m studies zoo --out FOLDER --set methods=longer_from_40,longer_from_80 --set steps=1500 --set "
        "log_every=5 --set texts=4 && python -m studies.switches FOLDER",
        "half an hour of one core", SMALL, anew=TABLE.split(". ", 1)[1], extra=TRAIN,
    ),
    _carried(
        "order", "the model that Ropewalk carries, on texts with swapped tokens", order,
        "python -m studies.order", "3 minutes of one core", anew=TEXTS,
    ),
    _carried(
        "thresholds", "the model that Ropewalk carries, under YaRN with other thresholds", thresholds,
        "python -m studies.thresholds", "30 minutes of one core", anew=TEXTS,
    ),
    _carried(
        "generation", "the model that Ropewalk carries, which writes after texts of 4,096 tokens", generation,
        "python -m studies.generation", "30 minutes of one core", anew=TEXTS,
    ),
    _carried(
        "released", "configs of released models, as their makers publish them", released,
        "python -m studies.released", "seconds", NO_MODEL, anew="The record has every value with its page.",
    ),
    _carried(
        "sink-positions", "the model that Ropewalk carries, under attention sinks", sink_positions,
        "python -m studies.sink_positions", "20 minutes of one core", anew=TEXTS,
    ),
    _carried(
        "pieces", "the model that Ropewalk carries, asked for what stands in two texts of 512 tokens", pieces,
        "python -m studies.pieces", "15 minutes of one core", anew="Its texts are of Python's standard library.",
    ),
    _carried(
        "alibi-reach", "small models with ALiBi, trained on 64 tokens", alibi_reach,
        "python -m studies zoo --out FOLDER --set methods=alibi && python -m studies.alibi_reach FOLDER",
        "half an hour of one core", SMALL, anew=TABLE.split(". ", 1)[1], extra=TRAIN,
    ),
    Study(
        "computed", NO_MODEL, "formulas, computed in float64", ROOT / "computed.py", lambda _: {}, computed.verdicts,
        "python -m studies.pages", "seconds", "Nothing in it was measured or drawn, so intervals have no width.",
    ),
)  # fmt: skip


@cache
def judged() -> tuple[tuple[Study, JudgedClaim], ...]:
    """Every claim, study by study."""
    return tuple((study, one) for study in STUDIES for one in study.judged)


def by_name() -> Iterator[tuple[str, list[tuple[Study, JudgedClaim]]]]:
    """Every claim once, with what each study says of it, real models first."""
    names = dict.fromkeys(one.claim.name for _, one in judged())
    for name in names:
        yield name, [(study, one) for study, one in judged() if one.claim.name == name]
