"""How an answer is judged: by what the model writes, and by the loss of the right answer when it is given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from ropewalk.evaluation.material.prompts import Prompt
from ropewalk.evaluation.material.subject import Subject
from ropewalk.hf import score_tokens, stream


class AnswerScore(NamedTuple):
    """The verdict on one prompt."""

    right: bool  # greedy writing gives the answer, token by token
    loss: float  # nats per token of the answer, given the prompt


def score_answer(subject: Subject, prompt: Prompt) -> AnswerScore:
    """One pass over prompt and answer tells both: greedy writing is right when every token of the answer is likeliest
    after the right ones before it.
    """
    ids = torch.tensor([[*prompt.ids, *prompt.answer_ids]], device=subject.model.device)
    found = score_tokens(subject.model, ids)
    last = len(prompt.answer_ids)
    return AnswerScore(bool(found.hits[0, -last:].all()), float(found.losses[0, -last:].double().mean()))


def written(subject: Subject, prompt: Prompt, tokens: int, enough: Callable[[str], bool] = lambda text: False) -> str:
    """What the model writes after a prompt, the likeliest token each time: until so many, its end, or `enough`."""
    ids = torch.tensor([prompt.ids], device=subject.model.device)
    ends, said, text = _ends(subject), list[int](), ""
    for token in stream(subject.model, ids, max_new_tokens=tokens):
        said.append(int(token))
        text = str(subject.tokenizer.decode(said, skip_special_tokens=True))
        if said[-1] in ends or enough(text):
            break
    return text


def _ends(subject: Subject) -> set[int]:
    """What a model says when it has done, by its tokenizer and by its own settings."""
    own = getattr(subject.model.generation_config, "eos_token_id", None)
    listed = own if isinstance(own, list) else [own]
    return {end for end in (subject.tokenizer.eos_token_id, *listed) if isinstance(end, int)}


def found_all(text: str, answers: Sequence[str]) -> float:
    """The share of answers that are in a text, in whatever case (RULER's `string_match_all`)."""
    return sum(answer.lower() in text.lower() for answer in answers) / len(answers)


def found_any(text: str, answers: Sequence[str]) -> float:
    """1 where any of several wordings is in a text (RULER's `string_match_part`)."""
    return float(any(answer.lower() in text.lower() for answer in answers))
