"""`ropewalk generate`: tokens as they come, under an extension, from a prompt or from a folder of contexts."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from ropewalk.cli.models import Model, To, fitting, require_plausible, target, tokenizer_of, weights_of
from ropewalk.cli.progress import pieces, reading
from ropewalk.errors import Conflict, DoesNotFit, InvalidValue, Unreadable
from ropewalk.files import read_text

if TYPE_CHECKING:
    from ropewalk import extension as extensions

TOKENS = 128  # that are made where nothing is said

Extension = Annotated[
    str, typer.Argument(help="such as yarn or rerope+log_n; none: as the model is", show_default=False)
]
Prompt = Annotated[str, typer.Option(help="the text to go on from")]
PromptFile = Annotated[str, typer.Option(metavar="FILE", help="a file that holds it, such as book.txt")]
Contexts = Annotated[
    str, typer.Option(metavar="FOLDER", help="texts that a question is asked about; EXTENSION is nbce")
]
Question = Annotated[str, typer.Option(help='the question, such as "Who wrote it?"')]
Count = Annotated[int | None, typer.Option(metavar="COUNT", help=f"how many at most; {TOKENS} unless --stream")]
Stream = Annotated[bool, typer.Option("--stream", help="go on without end, until Ctrl-C or --max-new-tokens")]
Temperature = Annotated[float, typer.Option(help="0 takes the likeliest, 1 draws as the model says")]
TopP = Annotated[float, typer.Option(help="the share of probability that is drawn from, such as 0.9")]
Seed = Annotated[int, typer.Option(help="of what is drawn")]
Device = Annotated[str, typer.Option(help="such as cpu or cuda:1; a GPU where there is one")]


class GenerateRequest(NamedTuple):
    """What is to be written, from what."""

    prompt: str
    contexts: list[str]
    question: str
    endless: bool
    drawn: dict[str, Any]


class TextBudget(NamedTuple):
    """How long the text becomes, as far as that is known."""

    read: int  # tokens, before the first that is made
    to: int | None  # what --to says


def generate(
    model: Model,
    extension: Extension = "",
    prompt: Prompt = "",
    prompt_file: PromptFile = "",
    contexts: Contexts = "",
    question: Question = "",
    max_new_tokens: Count = None,
    stream: Stream = False,
    temperature: Temperature = 0.0,
    top_p: TopP = 1.0,
    seed: Seed = 0,
    device: Device = "",
    to: To = "",
) -> None:
    """Go on from a prompt, or answer a question about several contexts. The text is read in pieces, however long.

    Without --to the extension is made for the prompt and the tokens that are to come.
    """
    if bool(contexts) != bool(question):
        raise InvalidValue("--question", "given with --contexts and only then", question)
    given = [
        name for name, value in (("prompt", prompt), ("prompt-file", prompt_file), ("contexts", contexts)) if value
    ]
    if len(given) != 1:
        raise InvalidValue("prompt", "given once, by --prompt, --prompt-file or --contexts", given)
    if contexts and stream:
        raise Conflict("--stream", "left out with --contexts, whose answers end", stream)
    drawn = _drawn(max_new_tokens, stream, temperature, top_p, seed)
    texts = _texts(Path(contexts)) if contexts else []
    asked = GenerateRequest(_text(Path(prompt_file)) if prompt_file else prompt, texts, question, stream, drawn)
    if target(to) and not extension:
        raise InvalidValue("EXTENSION", "given with --to", extension)
    where = _device(device)
    line = require_plausible(model, extension)
    tokenizer = tokenizer_of(model)
    read = _length(tokenizer, asked)
    if to and read > (target(to) or 0):
        raise DoesNotFit("--to", f"at least the {read:,} tokens that are read", target(to))
    needed = None if drawn["max_new_tokens"] is None else read + drawn["max_new_tokens"]
    fitted = fitting(model, line, to, needed=needed) if line else None
    rule = _rule(asked, fitted)
    host = weights_of(model).to(where)
    _write(asked, host, tokenizer, fitted, rule, TextBudget(read, target(to)))


def _drawn(count: int | None, stream: bool, temperature: float, top_p: float, seed: int) -> dict[str, Any]:
    """How tokens are drawn, and how many."""
    if count is not None and count < 1:
        raise InvalidValue("--max-new-tokens", "at least 1", count, remedy="--stream goes on without end")
    if not 0 <= temperature < float("inf"):
        raise InvalidValue("--temperature", "0 or above", temperature)
    if not 0 < top_p <= 1:
        raise InvalidValue("--top-p", "above 0 and at most 1", top_p)
    if top_p < 1 and temperature == 0:
        raise InvalidValue("--temperature", "above 0 with --top-p", temperature, remedy="0 takes the likeliest anyway")
    count = count if count is not None or stream else TOKENS
    return {"max_new_tokens": count, "temperature": temperature, "top_p": top_p, "seed": seed}


def _text(path: Path) -> str:
    text = read_text(path, "file", "a text that is there")
    if not text:
        raise InvalidValue("file", "not empty", str(path))
    return text


def _texts(folder: Path) -> list[str]:
    """Every file of a folder, by name."""
    if not folder.is_dir():
        raise Unreadable("--contexts", "a folder that is there", str(folder))
    found = [_text(path) for path in sorted(folder.iterdir()) if path.is_file() and not path.name.startswith(".")]
    if not found:
        raise InvalidValue("--contexts", "a folder with a file for each context", str(folder))
    return found


def _device(name: str) -> str:
    import torch

    if not name:
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=name)
    except Exception as reason:  # as many as there are kinds of devices
        said = str(reason).splitlines()[0]
        raise InvalidValue("--device", "one that torch has here, such as cpu", name, remedy=said) from reason
    return name


def _length(tokenizer: Any, asked: GenerateRequest) -> int:
    """How many tokens are read before the first that is made: of the longest context, where there are several."""
    if not asked.contexts:
        return len(tokenizer(asked.prompt, verbose=False)["input_ids"])
    rows = [len(tokenizer(each, verbose=False)["input_ids"]) for each in asked.contexts]
    return max(rows) + len(tokenizer(asked.question, add_special_tokens=False, verbose=False)["input_ids"])


def _rule(asked: GenerateRequest, extension: extensions.Extension | None) -> Any:
    """How several contexts become one answer, where there are several."""
    rule = extension.decoding if extension else None
    if asked.contexts and not rule:
        raise InvalidValue("extension", "one with a rule of decoding for --contexts, such as nbce", str(extension))
    if rule and not asked.contexts:
        raise InvalidValue("--contexts", f"given for {rule.name}", "", remedy="and --question")
    return rule


def _write(
    asked: GenerateRequest,
    host: Any,
    tokenizer: Any,
    extension: extensions.Extension | None,
    rule: Any,
    room: TextBudget,
) -> None:
    """Extend, and show what comes."""
    from ropewalk.cli.length_limits import limit_of, watched
    from ropewalk.extension import Extension
    from ropewalk.hf.attach.trained_extension import taken_off

    around = replace(extension, decoding=None) if extension else Extension()
    bare = around == Extension()
    with nullcontext() if bare else taken_off(host).under(host, around), reading() as progress:
        tokens = _answers if asked.contexts else _continues
        try:
            made = watched(tokens(host, tokenizer, asked, rule, progress), room.read, limit_of(host, room.to))
            for piece in pieces(tokenizer, made):
                progress.done()
                sys.stdout.write(piece)
                sys.stdout.flush()
        finally:
            sys.stdout.write("\n")


def _answers(host: Any, tokenizer: Any, asked: GenerateRequest, rule: Any, progress: Any) -> Iterator[int]:
    from ropewalk.hf import nbce_stream

    given = {**asked.drawn, "decoding": rule, "progress": progress}
    return (token.id for token in nbce_stream(host, tokenizer, asked.contexts, asked.question, **given))


def _continues(host: Any, tokenizer: Any, asked: GenerateRequest, _: Any, progress: Any) -> Iterator[int]:
    """The tokens up to the model's own end, or without end."""
    from ropewalk.hf import stream
    from ropewalk.hf.use.contexts import end_tokens

    ids = tokenizer(asked.prompt, return_tensors="pt")["input_ids"].to(host.device)
    words = len(host.get_input_embeddings().weight)
    if ids.numel() and int(ids.max()) >= words:
        raise DoesNotFit("tokenizer", f"the model's, of {words} words", int(ids.max()))
    tokens = (int(token) for token in stream(host, ids.long(), progress=progress, **asked.drawn))
    ends = set() if asked.endless else end_tokens(host, tokenizer)
    return itertools.takewhile(lambda token: token not in ends, tokens)
