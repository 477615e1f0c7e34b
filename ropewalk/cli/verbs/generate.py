"""`ropewalk generate`: stream text under an extension, from a prompt or from a folder of contexts."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from ropewalk.cli.models import (
    Model,
    To,
    extension_argument,
    load_and_place,
    parse_for_model,
    require_plausible,
    target,
)
from ropewalk.cli.output import AsJson, print_json
from ropewalk.errors import Conflict, DoesNotFit, InvalidValue, Unreadable
from ropewalk.files import read_text
from ropewalk.hf.load_options import LoadOptions
from ropewalk.hf.loading import load_tokenizer
from ropewalk.measure.progress import WorkProgress, showing_progress

if TYPE_CHECKING:
    from ropewalk.extension import extension as extensions

DEFAULT_NEW_TOKENS = 128  # default of --max-new-tokens

Extension = Annotated[str, extension_argument("such as yarn or rerope+log_n; empty for the base model")]
Prompt = Annotated[str, typer.Option(help="the text to continue")]
PromptFile = Annotated[str, typer.Option(metavar="FILE", help="a file with the prompt, such as book.txt")]
Chat = Annotated[bool, typer.Option("--chat", help="the prompt is a user's message, in the model's chat template")]
Contexts = Annotated[
    str, typer.Option(metavar="FOLDER", help="one text file per context, for --question with EXTENSION nbce or ape")
]
Question = Annotated[str, typer.Option(help='question about the contexts, such as "Who wrote it?"')]
Prefix = Annotated[str, typer.Option(help="text before every context, with EXTENSION ape")]
Count = Annotated[
    int | None, typer.Option(metavar="COUNT", help=f"tokens at most; {DEFAULT_NEW_TOKENS} unless --stream")
]
Stream = Annotated[bool, typer.Option("--stream", help="generate until Ctrl-C or --max-new-tokens, past end tokens")]
Temperature = Annotated[float, typer.Option(help="0 is greedy, 1 samples from the model's distribution")]
TopP = Annotated[float, typer.Option(help="sample from this share of the probability, such as 0.9")]
Seed = Annotated[int, typer.Option(help="random seed of sampling")]


class GenerateRequest(NamedTuple):
    """What to generate, and from what."""

    ids: Any  # of the prompt, [tokens]; None with contexts
    contexts: list[str]
    question: str
    prefix: str
    endless: bool
    sampling: dict[str, Any]
    read: int  # tokens before the first generated one; of the longest context, where there are several
    target_len: int | None


def generate(
    model: Model,
    extension: Extension = "",
    prompt: Prompt = "",
    prompt_file: PromptFile = "",
    chat: Chat = False,
    contexts: Contexts = "",
    question: Question = "",
    prefix: Prefix = "",
    max_new_tokens: Count = None,
    stream: Stream = False,
    temperature: Temperature = 0.0,
    top_p: TopP = 1.0,
    seed: Seed = 0,
    to: To = "",
    as_json: AsJson = False,
    *,
    options: LoadOptions,
) -> None:
    """Continue a prompt, or answer a question about several contexts. Texts of any length are read in chunks.

    Without --to the extension is sized for the prompt and the tokens to generate.
    """
    _require_one_source(prompt, prompt_file, contexts, question)
    if chat and contexts:
        sentence = "--chat and --contexts do not go together: contexts are read without the chat template"
        raise Conflict.because("--chat", sentence, remedy="leave --chat out")
    if contexts and stream:
        sentence = "--stream and --contexts do not go together: --stream writes without end, and an answer ends"
        raise Conflict.because("--stream", sentence, remedy="leave --stream out")
    if as_json and stream and max_new_tokens is None:
        sentence = "--json and --stream do not go together: --json is printed at the end, and --stream has no end"
        raise Conflict.because("--json", sentence, remedy="pass --max-new-tokens")
    sampling = _sampling(max_new_tokens, stream, temperature, top_p, seed)
    texts = _texts(Path(contexts)) if contexts else []
    text = _text(Path(prompt_file)) if prompt_file else prompt
    target_len = target(to)
    if target_len and not extension:
        raise InvalidValue.because("EXTENSION", "--to needs an extension", remedy="pass yarn, or leave --to out")
    line = require_plausible(model, extension)
    tokenizer = load_tokenizer(model, options)
    ids = None if contexts else _prompt_ids(tokenizer, text, chat=chat)
    read = _longest(tokenizer, texts, prefix, question) if ids is None else len(ids)
    if target_len and read > target_len:
        raise DoesNotFit("--to", f"at least the prompt's {read:,} tokens", target_len)
    request = GenerateRequest(ids, texts, question, prefix, stream, sampling, read, target_len)
    needed = None if sampling["max_new_tokens"] is None else read + sampling["max_new_tokens"]
    fitted = parse_for_model(model, line, to, options, needed=needed) if line else None
    rule = _decoding(request, fitted)
    host = load_and_place(model, options)
    with _tokens(request, host, tokenizer, fitted, rule) as (tokens, progress):
        if as_json:
            _write_json(tokenizer, tokens, read, fitted)
        else:
            _write(tokenizer, tokens, progress)


def _require_one_source(prompt: str, prompt_file: str, contexts: str, question: str) -> None:
    """Refuse none or several texts, and a question without contexts."""
    if sum(map(bool, (prompt, prompt_file, contexts))) != 1:
        raise InvalidValue.because("prompt", "give exactly one of --prompt, --prompt-file, --contexts")
    if bool(contexts) != bool(question):
        raise InvalidValue.because("--question", "give --contexts and --question together or not at all")


def _sampling(count: int | None, stream: bool, temperature: float, top_p: float, seed: int) -> dict[str, Any]:
    """How tokens are sampled, and how many."""
    if count is not None and count < 1:
        raise InvalidValue("--max-new-tokens", "at least 1", count, remedy="--stream generates without end")
    if not 0 <= temperature < float("inf"):
        raise InvalidValue("--temperature", "0 or above", temperature)
    if not 0 < top_p <= 1:
        raise InvalidValue("--top-p", "above 0 and at most 1", top_p)
    if top_p < 1 and temperature == 0:
        remedy = "pass --temperature 1, or leave --top-p out"
        raise InvalidValue("--temperature", "above 0 with --top-p", temperature, remedy=remedy)
    count = count if count is not None or stream else DEFAULT_NEW_TOKENS
    return {"max_new_tokens": count, "temperature": temperature, "top_p": top_p, "seed": seed}


def _text(path: Path) -> str:
    text = read_text(path, "file", "an existing text file")
    if not text:
        raise InvalidValue("file", "not empty", str(path))
    return text


def _texts(folder: Path) -> list[str]:
    """Every file of a folder, by name."""
    if not folder.is_dir():
        raise Unreadable("--contexts", "an existing folder", str(folder))
    texts = [_text(path) for path in sorted(folder.iterdir()) if path.is_file() and not path.name.startswith(".")]
    if not texts:
        raise InvalidValue("--contexts", "a folder with one file per context", str(folder))
    return texts


def _longest(tokenizer: Any, contexts: list[str], prefix: str, question: str) -> int:
    """Tokens of the longest context with what stands before it, and the question."""
    rows = [len(tokenizer(context, verbose=False)["input_ids"]) for context in contexts]
    around = (tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"] for text in (prefix, question))
    return max(rows) + sum(map(len, around))


def _prompt_ids(tokenizer: Any, prompt: str, *, chat: bool) -> Any:
    """The tokens of the prompt; of a chat, as the model's template writes it."""
    from ropewalk.hf.checkpoint.tokens import chat_prompt, prompt_ids, token_ids

    if chat and not getattr(tokenizer, "chat_template", None):
        sentence = "the model has no chat template"
        raise DoesNotFit.because("--chat", sentence, remedy="leave --chat out: the prompt is continued as it is")
    with showing_progress("tokenising") as progress:
        if chat:
            return token_ids(tokenizer, chat_prompt(tokenizer, prompt), progress=progress)
        return prompt_ids(tokenizer, prompt, progress=progress)


def _decoding(request: GenerateRequest, extension: extensions.Extension | None) -> Any:
    """The decoding method that combines several contexts, where there are several."""
    rule = extension.decoding if extension else None
    if request.contexts and not rule:
        raise InvalidValue("extension", "a decoding method for --contexts, such as nbce", str(extension))
    if request.prefix and not (rule and rule.of_attention):
        raise InvalidValue.because("--prefix", "--prefix is for ape alone", remedy="leave --prefix out")
    if rule and not rule.of_contexts:
        if request.contexts:
            raise InvalidValue.because(
                "--contexts", f"{rule.name} reads one text", remedy="use --prompt or --prompt-file"
            )
        return rule
    if rule and not request.contexts:
        raise InvalidValue.because("--contexts", f"{rule.name} needs --contexts and --question")
    return rule


def _write(tokenizer: Any, tokens: Iterator[int], progress: WorkProgress) -> None:
    """Print tokens as they come."""
    from ropewalk.hf.checkpoint.tokens import GrowingText

    text = GrowingText(tokenizer)
    try:
        for token in tokens:
            piece = text.push(token)
            progress.close()
            sys.stdout.write(piece)
            sys.stdout.flush()
        sys.stdout.write(text.rest())
    finally:
        sys.stdout.write("\n")


def _write_json(tokenizer: Any, tokens: Iterator[int], read: int, extension: extensions.Extension | None) -> None:
    """Print everything at the end."""
    ids = list(tokens)
    text = tokenizer.decode(ids, skip_special_tokens=True)
    described = extension.to_json() if extension else None
    print_json({"text": text, "tokens": ids, "prompt_tokens": read, "extension": described})


@contextmanager
def _tokens(
    request: GenerateRequest, host: Any, tokenizer: Any, extension: extensions.Extension | None, rule: Any
) -> Iterator[tuple[Iterator[int], WorkProgress]]:
    """The tokens of the extended model as they come, and the bar that shows how much of the prompt is read."""
    from ropewalk.cli.length_limits import limit_of, watched
    from ropewalk.extension.extension import Extension
    from ropewalk.hf.attach.trained_extension import take_off

    on_model = replace(extension, decoding=None) if extension else Extension()
    # Twins of the model are under the extension, and the model is not.
    twins = rule is not None and (rule.of_attention or not rule.of_contexts)
    extended = nullcontext() if twins or on_model == Extension() else take_off(host).under(host, on_model)
    with extended, showing_progress("reading", unit="tokens read", shown="lines") as progress:
        source = _answer if request.contexts else _continuation
        tokens = source(host, tokenizer, request, rule, progress, on_model)
        limit = limit_of(host, request.target_len, on_model if twins else None)
        yield watched(tokens, request.read, limit), progress


def _answer(
    host: Any, tokenizer: Any, request: GenerateRequest, rule: Any, progress: Any, extension: Any
) -> Iterator[int]:
    """Tokens of the answer to the question, up to the model's end token."""
    from ropewalk.hf.use.contexts import nbce_stream
    from ropewalk.hf.use.parallel import ape_stream

    options = {**request.sampling, "decoding": rule, "progress": progress}
    if rule.of_attention:
        more = {"prefix": request.prefix, "extension": extension}
        return ape_stream(host, tokenizer, request.contexts, request.question, **more, **options)
    return (token.id for token in nbce_stream(host, tokenizer, request.contexts, request.question, **options))


def _continuation(
    host: Any, tokenizer: Any, request: GenerateRequest, rule: Any, progress: Any, extension: Any
) -> Iterator[int]:
    """Tokens up to the model's end token, or without end."""
    from ropewalk.hf.probe.host import device_of
    from ropewalk.hf.use.contexts import end_tokens
    from ropewalk.hf.use.contrast import contrast_stream
    from ropewalk.hf.use.long_text import stream

    ids = request.ids[None].to(device_of(host))
    vocabulary = len(host.get_input_embeddings().weight)
    if ids.numel() and int(ids.max()) >= vocabulary:
        rule, remedy = f"the model's, with {vocabulary} tokens", "put the model's own tokenizer into its folder"
        raise DoesNotFit("tokenizer", rule, f"token {int(ids.max())}", remedy=remedy)
    sampling = {**request.sampling, "progress": progress}
    tokens: Iterator[int] = (
        (int(token) for token in stream(host, ids, **sampling))
        if rule is None
        else contrast_stream(host, ids, rule, extension=extension, **sampling)
    )
    ends = set() if request.endless else end_tokens(host, tokenizer)
    return itertools.takewhile(lambda token: token not in ends, tokens)
