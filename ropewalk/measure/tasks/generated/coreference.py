"""Multi-round coreference: a long conversation in which one thing is asked for several times; give the second of them.

    User: Write a poem about the fox. ... User: Prepend 71432 to the 2nd (1 indexed) poem about the fox. ...

Between the `needles` identical requests are others: for the same kind of text about something else, and for other kinds
about the same thing. The score of a reply that begins with the marker is the similarity of the rest with the right text
(`difflib.SequenceMatcher.ratio`), of any other reply 0. `chance` is the score of repeating any one of the texts that
answer the same request.

Source: OpenAI 2025, the data set MRCR (MIT), with its question and its score, after Vodrahalli et al. 2024,
arXiv:2409.12640 (Michelangelo). Deviations: texts are two generated sentences in one line instead of a language
model's prose; the marker is a number of five digits with a space after it instead of ten characters; speakers are named
in plain text instead of a chat template; only the reply's first line counts; the few tokens that no exchange fills are
held-out text before the conversation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from random import Random
from typing import Annotated, ClassVar, NamedTuple

from ropewalk.measure.material.prompts import GrowingPrompt, Prompt, fill_prompt, require_count
from ropewalk.measure.material.secrets import ADJECTIVES, NOUNS
from ropewalk.measure.material.subject import Subject
from ropewalk.measure.metrics.intervals import LOSS, SHARE
from ropewalk.measure.tasks.answers import score_answer, write_answer
from ropewalk.measure.tasks.retrieval import Ranges, Retrieval
from ropewalk.methods.record import ABOVE_ONE
from ropewalk.methods.spec import Json

KINDS = ("poem", "riddle", "story", "letter", "song", "speech")
REQUEST = "User: Write a {kind} about the {topic}.\n"
REPLY = "Assistant: {text}\n"
QUESTION = (
    "User: Prepend {marker} to the {place} (1 indexed) {kind} about the {topic}."
    " Do not include any other text in your response.\nAssistant:"
)
SENTENCES = (
    "The {topic} waited beside the {adjective} {noun}.",
    "No {noun} is so {adjective}, said every {topic}.",
    "Somebody left his {topic} in my {adjective} {noun}.",
    "At noon they met: one {adjective} {noun}, one {topic}.",
    "How {adjective} was that {noun}, until some {topic} came!",
    "Every {topic} dreams of {noun} after {noun2}, each {adjective}.",
    "Take this {topic}; give me your {noun}, be it {adjective} or {adjective2}.",
    "{noun2} and {noun}, {adjective} and {adjective2}: where has our {topic} gone?",
)
TOPICS = 8  # of a conversation
SHORTEST_EXCHANGE = 16  # tokens; no request with its reply is shorter under any tokenizer
LAST_DIGIT = {1: "st", 2: "nd", 3: "rd"}


class Exchange(NamedTuple):
    """A request, and the text that answers it."""

    kind: str
    topic: str
    text: str

    def __str__(self) -> str:
        return REQUEST.format(kind=self.kind, topic=self.topic) + REPLY.format(text=self.text)


class PosedConversation(NamedTuple):
    """The prompt of a sample, and all texts that answer the request in question."""

    prompt: Prompt
    marker: str
    texts: tuple[str, ...]
    asked: int
    depth: float  # of the right text, between 0 and 1

    def score(self, reply: str) -> float:
        """The score of a reply."""
        return similarity(reply, self.marker, self.texts[self.asked])

    @property
    def chance(self) -> float:
        """The mean score of repeating one of the texts that answer the request."""
        return sum(self.score(f"{self.marker} {text}") for text in self.texts) / len(self.texts)


@dataclass(frozen=True, kw_only=True)
class Coreference(Retrieval):
    name: ClassVar[str] = "coreference"
    headline: ClassVar[str] = "score"
    shares: ClassVar[tuple[str, ...]] = ("score", "right")
    averages: ClassVar[Ranges] = {"loss": LOSS, "chance": SHARE}
    needles: Annotated[int, ABOVE_ONE, "identical requests, one of which is asked for"] = 2

    def measure(self, subject: Subject, length: int, sample: int) -> Json:
        """One conversation."""
        posed = self.posed(subject, length, sample)
        text = write_answer(subject, posed.prompt, len(posed.prompt.answer_ids), lambda reply: "\n" in reply.strip())
        score, loss = posed.score(text), score_answer(subject, posed.prompt).loss
        numbers = {"score": score, "right": score == 1, "loss": loss, "chance": posed.chance}
        return {**numbers, "depth": posed.depth, "wrote": text}

    def prompt(self, subject: Subject, length: int, sample: int) -> Prompt:
        """The prompt of a sample: the same for every extension."""
        return self.posed(subject, length, sample).prompt

    def posed(self, subject: Subject, length: int, sample: int) -> PosedConversation:
        """A conversation with its question."""
        random = self.chance(subject, length, sample)
        topics, kind = random.sample(NOUNS, TOPICS), random.choice(KINDS)
        marker, asked = str(random.randrange(10_000, 100_000)), random.randrange(self.needles)
        texts = _texts(random, topics[0], self.needles)
        depths = sorted(random.random() for _ in texts)
        others = _others(random, topics, kind, length // SHORTEST_EXCHANGE)
        question = QUESTION.format(marker=marker, place=ordinal(asked + 1), kind=kind, topic=topics[0])

        def conversation(count: int) -> str:
            exchanges = others[:count]
            for number, (text, depth) in enumerate(zip(texts, depths, strict=True)):
                exchanges.insert(number + round(depth * count), Exchange(kind, topics[0], text))
            return "".join(map(str, exchanges)) + question

        growing = GrowingPrompt(conversation, f" {marker} {texts[asked]}")
        prompt, _ = fill_prompt(subject.tokenizer, growing, length, subject.filler(random))
        require_count(prompt, dict.fromkeys(texts, 1))
        return PosedConversation(prompt, marker, tuple(texts), asked, depths[asked])


def similarity(reply: str, marker: str, text: str) -> float:
    """The score of a reply: 0 without the marker, else how similar its first line is to the text.

    similarity(" 71432 abcd", "71432", "abxx")    # 0.5
    """
    line = reply.strip().partition("\n")[0]
    if not line.startswith(marker):
        return 0.0
    return SequenceMatcher(None, line.removeprefix(marker).strip(), text).ratio()


def ordinal(number: int) -> str:
    """A place in a row: 1st, 2nd, 3rd, 4th, 11th."""
    return f"{number}{'th' if number % 100 in (11, 12, 13) else LAST_DIGIT.get(number % 10, 'th')}"


def _texts(random: Random, topic: str, count: int) -> list[str]:
    """Texts about one thing, all different."""
    texts: dict[str, None] = {}
    while len(texts) < count:
        texts[_text(random, topic)] = None
    return list(texts)


def _text(random: Random, topic: str) -> str:
    return " ".join(_sentence(random, form, topic) for form in random.sample(SENTENCES, 2))


def _sentence(random: Random, form: str, topic: str) -> str:
    (noun, noun2), (adjective, adjective2) = random.sample(NOUNS, 2), random.sample(ADJECTIVES, 2)
    return form.format(topic=topic, noun=noun, noun2=noun2, adjective=adjective, adjective2=adjective2)


def _others(random: Random, topics: Sequence[str], kind: str, count: int) -> list[Exchange]:
    """Requests for everything but the one thing of the one kind."""
    wanted = [(one, topic) for one in KINDS for topic in topics if (one, topic) != (kind, topics[0])]
    return [Exchange(one, topic, _text(random, topic)) for one, topic in random.choices(wanted, k=count)]
