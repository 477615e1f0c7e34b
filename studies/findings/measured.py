"""What the models of the studies measured, as the findings ask for it: means, differences and their intervals."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import combinations
from pathlib import Path
from statistics import fmean
from typing import Any

from ropewalk.measure.metrics.intervals import SHARE, Estimate, crossed_mean, difference, mean, share, share_of_answers

from studies.models_table import table_in
from studies.zoo.figures import PLAIN, AccuracyTerm, ZooFigures

RESULTS = Path(__file__).resolve().parents[1] / "results"
DOCS = RESULTS.parents[1] / "docs" / "results"
UNCHANGED = "bare"  # the line of the model without an extension, in what `ropewalk compare` writes
Record = Mapping[str, Any]


def read(place: Path) -> Any:
    """A JSON file, packed or not."""
    content = place.read_bytes()
    return json.loads(gzip.decompress(content) if place.suffix == ".gz" else content)


class Compared:
    """Results of `ropewalk compare` on one model: figures of the same last tokens of each text, by line and length."""

    def __init__(self, results: Record) -> None:
        self.lengths: list[int] = sorted(results["lengths"])
        self.projects: list[str] = results["projects"]
        self._samples = {
            (one["line"], row["task"].partition(":")[0], row["length"]): row["samples"]
            for one in results["candidates"]
            for row in one["rows"]
        }
        self.lines = [one["line"] for one in results["candidates"]]

    @property
    def trained(self) -> int:
        """The trained length."""
        return self.lengths[0]

    def values(self, line: str, length: int, what: str = "loss", task: str = "context") -> list[float]:
        """One figure of every text."""
        return [float(sample[what]) for sample in self._samples[line, task, length]]

    def mean(self, line: str, length: int, what: str = "loss") -> Estimate:
        """A figure, with its interval over projects."""
        return mean(self.values(line, length, what), groups=self.projects)

    def over(self, line: str, length: int, other: str, at: int, what: str = "loss") -> Estimate:
        """By how much a figure is above another one, of the same tokens."""
        values, others = self.values(line, length, what), self.values(other, at, what)
        return difference(values, others, groups=self.projects)

    def over_alone(self, line: str, length: int) -> Estimate:
        """The loss above that of the unchanged model on its last trained length alone, of the same tokens."""
        return self.over(line, length, UNCHANGED, self.trained)

    def far_found(self, line: str, length: int) -> Estimate:
        """The share of numbers farther back than the trained length that are found."""
        asked = [
            [answer["right"] for answer in sample["answers"] if answer["far"]]
            for sample in self._samples[line, "context", length]
        ]
        return share_of_answers(asked, self.projects)

    def passkeys(self, line: str, length: int) -> Estimate:
        """The share of passkeys that are found."""
        right = self.values(line, length, "right", "passkey")
        return share(sum(right), len(right))


class Carried:
    """The model that Ropewalk carries, read without training at 1x, 2x, 4x and 8x."""

    def __init__(self, results: Record) -> None:
        self._figures = results["figures of texts"]
        self._projects: list[str] = results["projects"]

    def of_texts(self, line: str, times: int, what: str = "loss") -> list[float]:
        """One figure of every text."""
        values: list[float] = self._figures[what][line][str(times)]
        return values

    def mean(self, line: str, times: int, what: str = "loss") -> Estimate:
        """A figure, with its interval over projects."""
        return self._interval(self.of_texts(line, times, what))

    def over(self, line: str, times: int, other: str, at: int, what: str = "loss") -> Estimate:
        """By how much a figure is above another one, of the same texts."""
        pairs = zip(self.of_texts(line, times, what), self.of_texts(other, at, what), strict=True)
        return self._interval([one - another for one, another in pairs])

    def _interval(self, of_texts: Sequence[float]) -> Estimate:
        return crossed_mean([of_texts], groups=self._projects[: len(of_texts)])


class Zoo:
    """Small models of 64 tokens, three or five seeds of each method."""

    def __init__(self, folder: Path) -> None:
        kept = table_in(folder)
        self.projects: list[str] = kept["projects"]
        self.trained: int = kept["plan"]["trained_len"]
        self.reach: int = kept["plan"]["layers"] * (self.trained - 1)  # of a window of that length, through all layers
        models = kept["models"]
        self._inside = {(model["method"], model["seed"]): model for model in models}
        self.figures = ZooFigures(models, self.projects)

    def accuracy(self, method: str, times: int, kind: str = PLAIN) -> Estimate:
        """The share of the last tokens that are foretold."""
        return self.figures.sum([AccuracyTerm(1, method, times, kind)], least=0, most=1)

    def over(self, one: tuple[str, int, str], other: tuple[str, int, str]) -> Estimate:
        """By how much one accuracy, of a method, length and kind of text, is above another."""
        return self.figures.sum([AccuracyTerm(1, *one), AccuracyTerm(-1, *other)])

    def seeds(self, method: str, times: int, kind: str = PLAIN) -> list[float]:
        """The accuracy of every seed."""
        return self.figures.all(method, times, kind, "accuracy")

    def entropy(self, method: str, times: int) -> Estimate:
        """Entropy of attention, in nats, of the queries in the last half of so many trained lengths."""
        return self._crossed([self._entropies(method, seed, times) for seed in self.figures.seeds(method)])

    def entropy_over(self, method: str, times: int, other: str, at: int) -> Estimate:
        """By how much an entropy is above another, of the same seeds and texts."""
        tables = [
            [self._entropies(name, seed, length) for seed in self.figures.seeds(name)]
            for name, length in ((method, times), (other, at))
        ]
        rows = [[one - another for one, another in zip(*of_seed, strict=True)] for of_seed in zip(*tables, strict=True)]
        return self._crossed(rows)

    def held_by_one_seed(self, times: int = 8) -> tuple[float, int]:
        """How often one seed's interval over projects, of a difference of two readings of the plain models, holds the
        mean of the other seeds; and of how many."""
        readings = sorted(name for name, seed in self._inside if seed == 0 and self._inside[name, seed]["of"] == "rope")
        held = []
        for one, other in combinations(["rope", *readings], 2):
            of_seeds = [self._differences(one, other, times, seed) for seed in self.figures.seeds(one, other)]
            for nth, of_texts in enumerate(of_seeds):
                others = [fmean(of_seed) for place, of_seed in enumerate(of_seeds) if place != nth]
                held.append(not crossed_mean([of_texts], groups=self.projects).clear_of(fmean(others)))
        return fmean(held), len(held)

    def _differences(self, method: str, other: str, times: int, seed: int) -> list[float]:
        """Of the accuracies of every text."""
        first, second = (
            next(row["accuracy_of_texts"] for row in self._inside[name, seed]["figures"] if _is(row, times))
            for name in (method, other)
        )
        return [a - b for a, b in zip(first, second, strict=True)]

    def _entropies(self, method: str, seed: int, times: int) -> list[float]:
        """Of every text."""
        kept = self._inside[method, seed]["entropies"]
        trained = kept["keys"][-1] / 8
        last = times * trained
        rows = [n for n, count in enumerate(kept["keys"]) if last - trained / 2 < count <= last]
        return [fmean(text[n] for n in rows) for text in kept["texts"]]

    def _crossed(self, table: Sequence[Sequence[float]]) -> Estimate:
        return crossed_mean(table, groups=self.projects[: len(table[0])])


def _is(row: Record, times: int) -> bool:
    return bool(row["times"] == times and row["kind"] == PLAIN)


class Tuned:
    """One base model, trained further under schedules: losses by schedule, steps and length; seeds of that training."""

    def __init__(self, results: Record) -> None:
        self._projects: list[str] = results["projects"]
        longest = max(row["times"] for row in results["models"][0]["figures"])
        self.trained: int = results["longest_text"] // longest
        self.plan: Record = results["plan"]
        self._tables: dict[tuple[str, int, int], list[list[float]]] = {}
        for model in sorted(results["models"], key=lambda one: int(one["seed"])):
            for row in model["figures"]:
                place = model["method"], model["steps"], row["times"]
                self._tables.setdefault(place, []).append(row["losses"])

    def loss(self, method: str, steps: int, times: int) -> Estimate:
        """The loss, with its interval over seeds and projects."""
        return crossed_mean(self._tables[method, steps, times], groups=self._projects)

    def over(self, one: tuple[str, int, int], other: tuple[str, int, int]) -> Estimate:
        """By how much one loss, of a schedule, steps and length, is above another."""
        first, second = self._tables[one], self._tables[other]
        seeds = max(len(first), len(second))  # what is not trained has no seeds: the same model for each
        pairs = zip(*(table * (seeds // len(table)) for table in (first, second)), strict=True)
        rows = [[a - b for a, b in zip(*pair, strict=True)] for pair in pairs]
        return crossed_mean(rows, groups=self._projects)


class ThreeLayers:
    """The first zoo's models of three layers, plain and with biases: accuracies of seeds alone."""

    def __init__(self, folder: Path) -> None:
        self.settings: Record = read(folder / "settings.json")
        self._of: dict[tuple[str, int], list[Record]] = {}
        for place in sorted(folder.glob("*-*.json")):
            for row in read(place)["figures"]:
                if row["kind"] == PLAIN:
                    self._of.setdefault((place.stem.rpartition("-")[0], row["times"]), []).append(row)

    def seeds(self, method: str, times: int, what: str = "last_accuracy") -> list[float]:
        """One figure for every seed."""
        return [float(row[what]) for row in self._of[method, times]]

    def accuracy(self, method: str, times: int, what: str = "last_accuracy") -> Estimate:
        """With its interval over seeds."""
        return mean(self.seeds(method, times, what), least=SHARE[0], most=SHARE[1])

    def over(self, method: str, other: str, times: int, what: str = "last_accuracy") -> Estimate:
        """By how much one accuracy is above another; seeds are paired."""
        return difference(self.seeds(method, times, what), self.seeds(other, times, what))


class Measured:
    """All records, each read when it is first asked for."""

    def __init__(self, results: Path = RESULTS, docs: Path = DOCS) -> None:
        self._results, self._docs = results, docs

    @cached_property
    def real(self) -> Compared:
        """SmolLM2 of 135 million parameters."""
        return Compared(read(self._docs / "real" / "SmolLM2-135M-Instruct.json.gz"))

    @cached_property
    def larger(self) -> Compared:
        """Our model of 31 million parameters."""
        return Compared(read(self._results / "larger" / "results.json"))

    @cached_property
    def carried(self) -> Carried:
        """Our model of 6.8 million parameters."""
        return Carried(read(self._results / "untrained" / "untrained.json"))

    @cached_property
    def carried_at_16x(self) -> Carried:
        """The same model on other texts, at 1x and 16x."""
        return Carried(read(self._results / "untrained" / "untrained.json")["at 16 trained lengths"])

    @cached_property
    def zoo(self) -> Zoo:
        """Our models of 0.7 million parameters."""
        return Zoo(self._results / "zoo")

    @cached_property
    def three_layers(self) -> ThreeLayers:
        """Models of the first zoo."""
        return ThreeLayers(self._results / "qk-bias-3-layers")

    def tuned(self, name: str) -> Tuned:
        """A tuning table."""
        return Tuned(table_in(self._results / name))

    @cached_property
    def board(self) -> Mapping[str, Record]:
        """The leaderboard's entries on the carried model, by line."""
        return {one["line"]: one for one in read(self._docs / "leaderboard" / "leaderboard.json")["entries"]}

    @cached_property
    def compositions(self) -> Record:
        """Losses of the compositions on the carried model, by corpus and length."""
        kept: Record = read(self._results / "compositions" / "losses.json")
        return kept

    @cached_property
    def contexts(self) -> Record:
        """Answers from many contexts."""
        kept: Record = read(self._results / "contexts" / "contexts.json")
        return kept

    @cached_property
    def kv_heads(self) -> Record:
        """Seconds of a step, by the number of key heads."""
        kept: Record = read(self._results / "kv-heads" / "kv-heads.json")
        return kept
