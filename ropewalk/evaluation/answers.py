"""How an answer is judged: by what the model writes, and by the loss of the right answer when it is given."""

from __future__ import annotations

from typing import NamedTuple

import torch

from ropewalk.evaluation.prompts import Prompt
from ropewalk.evaluation.subject import Subject
from ropewalk.hf import judge


class Answer(NamedTuple):
    """The verdict on one prompt."""

    right: bool  # greedy writing gives the answer, token by token
    loss: float  # nats per token of the answer, given the prompt


def judged(subject: Subject, prompt: Prompt) -> Answer:
    """One pass over prompt and answer tells both: greedy writing is right when every token of the answer is likeliest
    after the right ones before it.
    """
    ids = torch.tensor([[*prompt.ids, *prompt.answer_ids]], device=subject.model.device)
    found = judge(subject.model, ids)
    last = len(prompt.answer_ids)
    return Answer(bool(found.hits[0, -last:].all()), float(found.losses[0, -last:].double().mean()))
