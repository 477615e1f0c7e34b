"""`ropewalk generate`: tokens as they come, under an extension, from a prompt or from a folder of contexts."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from ropewalk.cli.models import Extension, Model, To, loaded, target
from ropewalk.errors import InvalidValue


def generate(
    model: Model,
    extension: Extension,
    prompt: Annotated[str, typer.Option(help="the text to go on from")] = "",
    prompt_file: Annotated[str, typer.Option(help="a file that holds it")] = "",
    contexts: Annotated[str, typer.Option(help="a folder of texts that a question is asked about")] = "",
    question: Annotated[str, typer.Option(help="the question")] = "",
    max_new_tokens: Annotated[int, typer.Option(help="how many; 0 goes on until it is stopped")] = 128,
    temperature: Annotated[float, typer.Option(help="0 takes the likeliest")] = 0.0,
    top_p: Annotated[float, typer.Option(help="share of probability that is drawn from")] = 1.0,
    seed: Annotated[int, typer.Option(help="of what is drawn")] = 0,
    to: To = "",
) -> None:
    """Go on from a prompt without end, or answer a question about several contexts (then the extension may be nbce)."""
    from ropewalk.hf import extended

    if max_new_tokens < 0:
        raise InvalidValue("max_new_tokens", "0 (without end) or above", max_new_tokens)
    drawn = {"temperature": temperature, "top_p": top_p, "seed": seed}
    host, tokenizer = loaded(model, tokenizer=True)
    if contexts:
        texts = [path.read_text() for path in sorted(Path(contexts).iterdir()) if path.is_file()]
        asked = {"decoding": extension, "max_new_tokens": max_new_tokens, **drawn}
        _show(tokenizer, _answers(host, tokenizer, texts, question, asked))
        return
    text = Path(prompt_file).read_text() if prompt_file else prompt
    if not text:
        raise InvalidValue("prompt", "given, as such, as a file or as contexts", text)
    with extended(host, extension, target_len=target(to)):
        _show(tokenizer, _continues(host, tokenizer, text, {"max_new_tokens": max_new_tokens or None, **drawn}))


def _answers(host: Any, tokenizer: Any, texts: list[str], question: str, asked: dict[str, Any]) -> Iterator[int]:
    from ropewalk.hf import nbce_stream

    return (token.id for token in nbce_stream(host, tokenizer, texts, question, **asked))


def _continues(host: Any, tokenizer: Any, text: str, drawn: dict[str, Any]) -> Iterator[int]:
    """The tokens up to the model's own end; while the prompt is read, its length is shown."""
    from ropewalk.hf import stream
    from ropewalk.hf.contexts import end_tokens

    ids = tokenizer(text, return_tensors="pt")["input_ids"].to(host.device)
    tokens = (int(token) for token in stream(host, ids, **drawn))
    with Console(stderr=True).status(f"reading {ids.shape[1]:,} tokens"):
        first = next(tokens)
    ends = end_tokens(host, tokenizer)
    return itertools.takewhile(lambda token: token not in ends, itertools.chain([first], tokens))


def _show(tokenizer: Any, tokens: Iterator[int]) -> None:
    """Text as it grows; a piece is held back while it may still be half of a character."""
    seen: list[int] = []
    shown = 0
    for token in tokens:
        seen.append(token)
        text = tokenizer.decode(seen, skip_special_tokens=True)
        if not text.endswith("\ufffd"):
            sys.stdout.write(text[shown:])
            sys.stdout.flush()
            shown = len(text)
        if text.endswith("\n"):  # a line that is done is not decoded again
            seen, shown = [], 0
    sys.stdout.write("\n")
