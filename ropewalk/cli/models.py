"""What the verbs for models share: loading from a folder or a name, and lengths such as 32k."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ropewalk.errors import Unreadable
from ropewalk.notation import length

Model = Annotated[str, typer.Argument(help="a folder, or a name on the hub")]
Extension = Annotated[str, typer.Argument(help="such as yarn:factor=8+log_n")]
To = Annotated[str, typer.Option("--to", help="the length to reach, e.g. 32k or 1m")]
Out = Annotated[str, typer.Option("--out", "-o", help="a new folder")]


def target(to: str) -> int | None:
    """The length that was asked for."""
    return length(to) if to else None


def loaded(name: str, *, tokenizer: bool = False) -> Any:
    """The model, and its tokenizer where wanted. Loading is not silent about what is missing."""
    from transformers import AutoTokenizer  # importing it takes seconds

    from ropewalk.hf import load

    try:
        model = load(name)
        return (model, AutoTokenizer.from_pretrained(name)) if tokenizer else model
    except (OSError, ValueError) as reason:
        remedy = str(reason).splitlines()[0] if str(reason) else type(reason).__name__
        raise Unreadable("model", "a causal model that transformers loads", name, remedy=remedy) from reason
