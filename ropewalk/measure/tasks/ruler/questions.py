"""qa_1 and qa_2: a question about one document, or several together, among documents that do not answer it.

The user provides documents and questions: a file with one JSON object per line,

    {"question": "...", "answers": ["...", "..."], "context": "..."}             qa_1: one document answers it
    {"question": "...", "answers": ["...", "..."], "context": ["...", "..."]}    qa_2: several do, together

Source: Hsieh et al. 2024, arXiv:2404.06654, sec. 3, with RULER's wording; there SQuAD and HotpotQA. Deviations: no
document is used twice, so a file that is too small for a length is refused, and the order is drawn for each sample.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from ropewalk.errors import InvalidValue, Unreadable
from ropewalk.files import holds, json_lines, read_bytes, require_text
from ropewalk.measure.material.prompts import GrowingPrompt
from ropewalk.measure.tasks.ruler.puzzle import Puzzle, PuzzleMaterial

TASK = "Answer the question based on the given documents. Only give me the answer and do not output any other words."
BEFORE = TASK + "\n\nThe following are given documents.\n\n"
AFTER = "\n\n" + TASK + "\n\nQuestion: {question} Answer:"
QUESTION_REPLY = 32


class Question(NamedTuple):
    """A row of the file."""

    question: str
    answers: tuple[str, ...]
    contexts: tuple[str, ...]


def about_one(material: PuzzleMaterial) -> Puzzle:
    """A question that one document answers."""
    return _puzzle(material, several=False)


def about_several(material: PuzzleMaterial) -> Puzzle:
    """A question that needs several documents."""
    return _puzzle(material, several=True)


def _puzzle(material: PuzzleMaterial, *, several: bool) -> Puzzle:
    random, rows = material.random, _rows(material.questions, several)
    row, order = random.choice(rows), random.random()
    others = sorted({text for other in rows for text in other.contexts} - set(row.contexts))
    random.shuffle(others)

    def text(count: int) -> str:
        documents = [*row.contexts, *others[:count]]
        Random(f"{order}/{count}").shuffle(documents)
        listed = "\n\n".join(f"Document {number}:\n{document}" for number, document in enumerate(documents, 1))
        return BEFORE + listed + AFTER.format(question=row.question)

    growing = GrowingPrompt(text, f" {row.answers[0]}", QUESTION_REPLY, in_units=True, most=len(others))
    return Puzzle(growing, row.answers, QUESTION_REPLY, any_of=True)


def _rows(path: str | None, several: bool) -> tuple[Question, ...]:
    if path is None:
        sentence = "qa_1 and qa_2 need a file of questions about your documents"
        remedy = "give questions=FILE.jsonl, one object per line with question, answers and context"
        raise InvalidValue.because("questions", sentence, remedy=remedy)
    place = place_of(path)
    rows = tuple(row for row in _read(place, place.stat().st_mtime_ns) if (len(row.contexts) > 1) == several)
    if not rows:
        contexts = "several contexts" if several else "one context"
        raise Unreadable("questions", f"a file with questions that have {contexts}", path)
    return rows


def place_of(path: str) -> Path:
    """Where a file of questions is."""
    with suppress(RuntimeError):  # the home of an unknown user
        place = Path(path).expanduser()
        if holds(place.is_file):
            return place
    raise Unreadable("questions", "a file that exists", path)


def mark_of(path: str) -> str:
    """A hash of the content of a file of questions."""
    return hashlib.sha256(read_bytes(place_of(path), "questions", "a file that exists")).hexdigest()


@lru_cache(maxsize=2)
def _read(place: Path, changed: int) -> tuple[Question, ...]:
    """The rows of a file; `changed` makes the cache forget an older content."""
    return tuple(_question(row, where) for where, row in json_lines(place, "questions"))


def _question(read: Any, where: str) -> Question:
    row = read if isinstance(read, dict) else {}
    question, answers, contexts = row.get("question"), _texts(row.get("answers")), _texts(row.get("context"))
    if not isinstance(question, str) or not answers or not contexts:
        raise Unreadable(where, "an object with question, answers and context, each text or a list of texts", read)
    for text in (question, *answers, *contexts):
        require_text(text, where)
    return Question(question, answers, contexts)


def _texts(value: Any) -> tuple[str, ...]:
    """A text or a list of texts; empty for anything else."""
    listed = value if isinstance(value, list) else [value]
    return tuple(listed) if all(isinstance(text, str) and text.strip() for text in listed) else ()
