"""Label map: examples of inputs with labels fill the length; which label has a new input?

    amber fox    label: 71    calm bell    label: 23    ...    shiny fox    label:

The label of an input depends on its second word alone. Examples come in rounds, each with every label once in a new
order, so that the example that decides can be a whole round away. An answer is right if it is exactly the label.
`chance` is 1 / labels.

Source: many-shot in-context learning as HELMET measures it (Yen et al. 2024, arXiv:2410.02694, "ICL"), with its
wording, numbers instead of names for labels, and balanced rounds. Deviations: inputs are made up instead of questions
of TREC, Banking77 and others, with 16 labels instead of 6 to 151; as many examples as the length has room for; the few
tokens that no example fills are held-out text before the prompt.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from ropewalk.measure.material.prompts import GrowingPrompt, Prompt, fill_prompt
from ropewalk.measure.material.subject import Subject
from ropewalk.measure.metrics.intervals import LOSS, SHARE
from ropewalk.measure.tasks.answers import score_answer
from ropewalk.measure.tasks.many_shot.examples import LABELS, TASK, example, label_of
from ropewalk.measure.tasks.retrieval import Ranges, Retrieval
from ropewalk.methods.spec import Json

SHORTEST_EXAMPLE = 6  # tokens; no example is shorter under any tokenizer


@dataclass(frozen=True, kw_only=True)
class LabelMap(Retrieval):
    name: ClassVar[str] = "label_map"
    averages: ClassVar[Ranges] = {"loss": LOSS, "chance": SHARE}
    labels: Annotated[int, LABELS, "different labels; the shortest text shows each once"] = 16

    def measure(self, subject: Subject, length: int, sample: int) -> Json:
        """One map."""
        answer = score_answer(subject, self.prompt(subject, length, sample))
        return {"right": answer.right, "loss": answer.loss, "chance": 1 / self.labels}

    def prompt(self, subject: Subject, length: int, sample: int) -> Prompt:
        """The prompt of a sample: the same for every extension."""
        random = self.chance(subject, length, sample)
        rule = label_of(random, self.labels)
        nouns = list(rule)
        asked = example(random, rule, random.choice(nouns))
        rounds = 1 + length // SHORTEST_EXAMPLE // self.labels
        order = [noun for _ in range(rounds) for noun in random.sample(nouns, len(nouns))]
        shown = [str(example(random, rule, noun, but=asked.text)) for noun in order]

        def text(more: int) -> str:
            return TASK + "".join(shown[: self.labels + more]) + asked.question

        growing = GrowingPrompt(text, f" {asked.label}")
        return fill_prompt(subject.tokenizer, growing, length, subject.filler(random)).prompt
