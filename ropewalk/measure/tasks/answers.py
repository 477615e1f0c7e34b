"""How an answer is scored: by what the model writes, and by the loss of the right answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from transformers import PreTrainedTokenizerBase

from ropewalk.errors import DoesNotFit
from ropewalk.hf.use.contexts import end_tokens
from ropewalk.hf.use.long_text import score_tokens, stream
from ropewalk.measure.material.prompts import Prompt, require_round_trip, tokens_of, tokens_with_offsets
from ropewalk.measure.material.subject import Subject


class AnswerScore(NamedTuple):
    """The score of one prompt."""

    right: bool  # greedy decoding writes the answer, token by token
    loss: float  # nats per token of the answer, after the prompt


def score_answer(subject: Subject, prompt: Prompt) -> AnswerScore:
    """Both scores from one pass over prompt and answer.

    Greedy decoding is right if every token of the answer is the likeliest after the right ones before it.
    """
    ids = torch.tensor([[*prompt.ids, *prompt.answer_ids]], device=subject.device)
    last = len(prompt.answer_ids)
    scores = score_tokens(subject.model, ids, written=last)
    return AnswerScore(bool(scores.hits[0, -last:].all()), float(scores.losses[0, -last:].double().mean()))


class TextWithAnswers(NamedTuple):
    """The tokens of a text that has its answers in it, and which of them are answers."""

    ids: tuple[int, ...]
    answers: tuple[slice, ...]


def text_with_answers(
    tokenizer: PreTrainedTokenizerBase,
    write: Callable[[int], tuple[str, Sequence[slice]]],
    count: int,
    length: int,
    *,
    fewest: int,
    end: str,
) -> TextWithAnswers:
    """A text cut to `length` tokens. `write` gives one of `count` units, with the characters of its answers.

    The count is doubled until the text is long enough. It must have the `fewest` answers, up to what `end` names.
    """
    ids = list[int]()
    while len(ids) < length:
        text, places = write(count)
        ids, offsets = tokens_with_offsets(tokenizer, text)
        count *= 2
    require_round_trip(tokenizer, ids, text)
    answers = [tokens_of(characters, offsets) for characters in places]
    least = answers[fewest - 1].stop
    if least > length:
        raise DoesNotFit("length", f"at least {least}, the end of {end}", length)
    return TextWithAnswers(tuple(ids[:length]), tuple(answer for answer in answers if answer.stop <= length))


def score_answers(subject: Subject, text: TextWithAnswers) -> list[AnswerScore]:
    """The score of each answer, after all before it, from one reading of the text."""
    scores = score_tokens(subject.model, torch.tensor([text.ids], device=subject.device))
    # The first token has no score: the score of token n stands at n - 1.
    spans = [slice(answer.start - 1, answer.stop - 1) for answer in text.answers]
    return [
        AnswerScore(bool(scores.hits[0, span].all()), float(scores.losses[0, span].double().mean())) for span in spans
    ]


def write_answer(
    subject: Subject, prompt: Prompt, tokens: int, enough: Callable[[str], bool] = lambda text: False
) -> str:
    """Greedy decoding after a prompt, until `tokens` tokens, the end of text, or `enough` of the text."""
    ids = torch.tensor([prompt.ids], device=subject.device)
    ends, written_ids, text = end_tokens(subject.model, subject.tokenizer), list[int](), ""
    for token in stream(subject.model, ids, max_new_tokens=tokens):
        written_ids.append(int(token))
        text = str(subject.tokenizer.decode(written_ids, skip_special_tokens=True))
        if written_ids[-1] in ends or enough(text):
            break
    return text


def match_all(text: str, answers: Sequence[str]) -> float:
    """The share of answers that a text contains, ignoring case (RULER's `string_match_all`)."""
    return sum(answer.lower() in text.lower() for answer in answers) / len(answers)


def match_any(text: str, answers: Sequence[str]) -> float:
    """1 if a text contains any of several wordings (RULER's `string_match_part`)."""
    return float(any(answer.lower() in text.lower() for answer in answers))
