"""A user's message in a chat template: a program that came with the model, and may raise whatever it likes."""

from __future__ import annotations

from typing import Any

from ropewalk.errors import DoesNotFit
from ropewalk.files import why


def chat_prompt(tokenizer: Any, message: str) -> str:
    """The text that the model reads; refused where its template refuses the message."""
    turn = [{"role": "user", "content": message}]
    try:
        return str(tokenizer.apply_chat_template(turn, tokenize=False, add_generation_prompt=True))
    except MemoryError:
        raise
    except Exception as wrong:
        sentence = f"the model's chat template cannot write the message: {type(wrong).__name__}: {why(wrong)}"
        raise DoesNotFit.because("chat template", sentence, remedy="correct the template beside the model") from wrong
