"""How an answer is scored: by what the model writes, and by the loss of the right answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from ropewalk.hf import score_tokens, stream
from ropewalk.measure.material.prompts import Prompt
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
    scores = score_tokens(subject.model, ids)
    last = len(prompt.answer_ids)
    return AnswerScore(bool(scores.hits[0, -last:].all()), float(scores.losses[0, -last:].double().mean()))


def write_answer(
    subject: Subject, prompt: Prompt, tokens: int, enough: Callable[[str], bool] = lambda text: False
) -> str:
    """Greedy decoding after a prompt, until `tokens` tokens, the end of text, or `enough` of the text."""
    ids = torch.tensor([prompt.ids], device=subject.device)
    ends, written_ids, text = _ends(subject), list[int](), ""
    for token in stream(subject.model, ids, max_new_tokens=tokens):
        written_ids.append(int(token))
        text = str(subject.tokenizer.decode(written_ids, skip_special_tokens=True))
        if written_ids[-1] in ends or enough(text):
            break
    return text


def _ends(subject: Subject) -> set[int]:
    """The tokens that end a text, by the tokenizer and by the model's settings."""
    of_model = getattr(subject.model.generation_config, "eos_token_id", None)
    listed = of_model if isinstance(of_model, list) else [of_model]
    return {end for end in (subject.tokenizer.eos_token_id, *listed) if isinstance(end, int)}


def match_all(text: str, answers: Sequence[str]) -> float:
    """The share of answers that a text contains, ignoring case (RULER's `string_match_all`)."""
    return sum(answer.lower() in text.lower() for answer in answers) / len(answers)


def match_any(text: str, answers: Sequence[str]) -> float:
    """1 if a text contains any of several wordings (RULER's `string_match_part`)."""
    return float(any(answer.lower() in text.lower() for answer in answers))
