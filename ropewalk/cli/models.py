"""What the verbs for models share: arguments, checks before a model is loaded, and loading.

Checks come in the order of their cost: the line, then the config and the tokenizer, then the weights.
"""

from __future__ import annotations

import ctypes
import inspect
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ropewalk import folders
from ropewalk.errors import InvalidValue
from ropewalk.models import path_of
from ropewalk.notation import length
from ropewalk.trained_to import stated, trained_to
from ropewalk.trust import trusting

if TYPE_CHECKING:
    from ropewalk import extension as extensions  # importing it takes a second
    from ropewalk.parsing import Line

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of malloc.h
SMALL = 100_000_000  # parameters below which a model is measured in float32 on a CPU

Model = Annotated[
    str,
    typer.Argument(
        callback=path_of,
        help="a folder, a name on the hub, or default: the model that comes with Ropewalk",
        show_default=False,
    ),
]
Extension = Annotated[str, typer.Argument(help="such as yarn or rerope:window=512+log_n", show_default=False)]
To = Annotated[str, typer.Option("--to", metavar="LENGTH", help="the target length, such as 32k or 1m")]
Device = Annotated[str, typer.Option(help="such as cpu or cuda:1; a GPU where there is one")]
Out = Annotated[str, typer.Option("--out", "-o", metavar="FOLDER", help="a new folder, such as ./model-32k")]

Trust = Annotated[bool, typer.Option("--trust-remote-code", help="run the code that comes with a model")]


TrainedLen = Annotated[
    str, typer.Option("--trained-len", metavar="LENGTH", help="the trained length, if the model's config is wrong")
]


def of_models(verb: Callable[..., None]) -> Callable[..., None]:
    """A verb with the options of all verbs that load models: --trained-len and --trust-remote-code."""
    signature = inspect.signature(verb, eval_str=True)

    @wraps(verb)
    def with_options(*, trained_len: str = "", trust_remote_code: bool = False, **kwargs: Any) -> None:
        with trained_to(target(trained_len, "--trained-len")), trusting(trust_remote_code):
            verb(**kwargs)

    options = {"trained_len": ("", TrainedLen), "trust_remote_code": (False, Trust)}
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, (default, kind) in options.items()
    ]
    with_options.__signature__ = signature.replace(parameters=[*signature.parameters.values(), *added])  # type: ignore[attr-defined]
    return with_options


def target(to: str, field: str = "--to") -> int | None:
    """The target length of an option; None without one."""
    tokens = length(to, field) if to else None
    if tokens is not None and tokens < 1:
        raise InvalidValue(field, "at least 1", to)
    return tokens


def require_plausible(model: str, extension: str = "") -> Line | None:
    """The line, read; at once refused are a folder that does not exist and a line with a name that does not exist."""
    folders.require_plausible(model)
    if not extension:
        return None
    from ropewalk.parsing import read_line

    return read_line(extension)


def fitting(
    model: str, line: str | Line, to: str, field: str = "--to", *, needed: int | None = None
) -> extensions.Extension:
    """The extension for the lengths and layers in the model's config, before its weights are loaded.

    Without --to the target length is what is needed, and at least the trained one.
    """
    from ropewalk.hf.attach.extend import require_beyond
    from ropewalk.hf.probe.checkpoint_schedule import parsed_for
    from ropewalk.hf.probe.facts import lengths_of
    from ropewalk.parsing import read_line

    line = read_line(line)
    text = _config(model).get_text_config()
    (known, original), length_asked = lengths_of(text), target(to, field)
    require_beyond(field, length_asked, original if line.instead else known)
    reached = max(known, needed) if length_asked is None and needed else length_asked
    return parsed_for(text, line, reached)


def tokenizer_of(model: str) -> Any:
    """The model's tokenizer."""
    from ropewalk.hf.checkpoint.fetch import fetch_tokenizer

    return quietly(fetch_tokenizer, model)


def weights_of(model: str) -> Any:
    """The model, under the extension that was saved with it, if any."""
    from ropewalk.hf import load
    from ropewalk.hf.probe.facts import correct

    loaded = quietly(load, model)
    if stated() is not None:  # stored on the model, for other processes and machines too
        correct(loaded, stated())
    return loaded


def placed(model: Any, device: str, *, small_in_float32: bool = True) -> Any:
    """The model on its device; a small one on a CPU in float32."""
    import torch

    where = device or ("cuda" if torch.cuda.is_available() else "cpu")
    if where == "cpu":
        _keep_memory()
    if small_in_float32 and where == "cpu" and sum(parameter.numel() for parameter in model.parameters()) < SMALL:
        model = model.float()
    try:
        return model.to(where).eval()
    except (AssertionError, RuntimeError) as reason:  # torch without CUDA, an index too high, an unknown word
        detail = str(reason).splitlines()[0] if str(reason) else type(reason).__name__
        raise InvalidValue("--device", "an available device", where, remedy=detail) from reason


def _keep_memory() -> None:
    """Make the C library keep the memory of large tensors: allocating it again costs a tenth of the reading time."""
    with suppress(OSError, AttributeError):  # another system, another library
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(M_MMAP_THRESHOLD, 2**30)
        mallopt(M_TRIM_THRESHOLD, 2**31 - 1)


def _config(model: str) -> Any:
    from ropewalk.hf.checkpoint.fetch import fetch_config

    return quietly(fetch_config, model)


def quietly(how: Callable[[str], Any], model: str) -> Any:
    """Call a loader of transformers without its warnings, and without progress bars outside a terminal."""
    from transformers.utils import logging

    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    if not sys.stderr.isatty():
        logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    return how(model)
