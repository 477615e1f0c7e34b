"""JSON recall: a dictionary of random identifiers fills the length; the value of one key is asked for.

    {"KEY": "VALUE", ...}    Key: KEY    Corresponding value: VALUE

Two other pairs are shown as solved examples before the question. Sample k asks for the pair at depth (k + 1/2) /
samples. An answer is right if it is exactly the value. `chance` is the score of naming any value of the dictionary: 1 /
pairs.

Source: Liu et al. 2023, arXiv:2307.03172, sec. 3, with the wording of HELMET (Yen et al. 2024, arXiv:2410.02694, "JSON
KV"). Deviations: as many pairs as the length has room for, instead of a fixed number for each length; identifiers have
eight digits unless `ids=uuid`; the depths are a grid over the samples instead of six; the value must be exact instead
of a part of the answer; the few tokens that no pair fills are held-out text before the dictionary.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from random import Random
from typing import Annotated, ClassVar, Literal, NamedTuple
from uuid import UUID

from ropewalk.measure.material.prompts import GrowingPrompt, Prompt, fill_prompt, require_count
from ropewalk.measure.material.subject import Subject
from ropewalk.measure.metrics.intervals import LOSS, SHARE
from ropewalk.measure.tasks.answers import score_answer
from ropewalk.measure.tasks.retrieval import AtDepths, Ranges
from ropewalk.methods.spec import Json

TASK = "\n\nExtract the value corresponding to the specified key in the JSON object below.\n\n"
SHOWN = "Key: {key}\nCorresponding value: {value}\n\n"
ASKED = "Key: {key}\nCorresponding value:"
EXAMPLES = 2
FEWEST_OTHER_PAIRS = 2  # pairs beside the one that is asked for and the examples
SHORTEST_PAIR = 8  # tokens; no pair is shorter under any tokenizer
Pair = tuple[str, str]


class PosedKey(NamedTuple):
    """The prompt of a sample, and the number of its pairs."""

    prompt: Prompt
    pairs: int


@dataclass(frozen=True, kw_only=True)
class JsonRecall(AtDepths):
    name: ClassVar[str] = "json_recall"
    averages: ClassVar[Ranges] = {"loss": LOSS, "chance": SHARE}
    ids: Annotated[Literal["short", "uuid"], "keys and values of eight hexadecimal digits, or uuids"] = "short"

    def measure(self, subject: Subject, length: int, sample: int) -> Json:
        """One dictionary."""
        prompt, pairs = self.posed(subject, length, sample)
        answer = score_answer(subject, prompt)
        return {"right": answer.right, "loss": answer.loss, "chance": 1 / pairs, "depth": self.depth(sample)}

    def prompt(self, subject: Subject, length: int, sample: int) -> Prompt:
        """The prompt of a sample: the same for every extension."""
        return self.posed(subject, length, sample).prompt

    def posed(self, subject: Subject, length: int, sample: int) -> PosedKey:
        """The prompt of a sample with its number of pairs."""
        random = self.chance(subject, length, sample)
        pairs = _pairs(random, 1 + EXAMPLES + FEWEST_OTHER_PAIRS + length // SHORTEST_PAIR, self.ids)
        (key, value), *others = pairs
        examples, order, depth = others[:EXAMPLES], random.random(), self.depth(sample)
        question = "".join(SHOWN.format(key=one, value=its) for one, its in examples) + ASKED.format(key=key)

        def text(more: int) -> str:
            listed = others[: EXAMPLES + FEWEST_OTHER_PAIRS + more]
            Random(f"{order}/{more}").shuffle(listed)
            listed.insert(round(depth * len(listed)), (key, value))
            return json.dumps(dict(listed), indent=1) + TASK + question

        prompt, more = fill_prompt(subject.tokenizer, GrowingPrompt(text, f" {value}"), length, subject.filler(random))
        require_count(prompt, {key: 2, value: 1})
        return PosedKey(prompt, 1 + EXAMPLES + FEWEST_OTHER_PAIRS + more)


def _pairs(random: Random, count: int, kind: str) -> list[Pair]:
    """Keys and values, all different."""
    names: dict[str, None] = {}
    while len(names) < 2 * count:
        name = str(UUID(int=random.getrandbits(128), version=4))
        names[name if kind == "uuid" else name[:8]] = None
    listed = list(names)
    return list(zip(listed[:count], listed[count:], strict=True))
