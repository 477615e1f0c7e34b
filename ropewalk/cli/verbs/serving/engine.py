"""The engine of `ropewalk serve`: runs in a thread, since importing torch and reading weights take seconds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ropewalk.cli.models import load_model, target
from ropewalk.extension.notation import BARE
from ropewalk.hf.load_options import LoadOptions
from ropewalk.hf.loading import load_tokenizer, place_model
from ropewalk.models import DEFAULT, NAME

if TYPE_CHECKING:
    from ropewalk.serve.service import ServedModels

SAVED = "saved"  # the name of the extension that a model was saved under
PAGE = 64  # tokens of a page


class Serving(NamedTuple):
    """What is loaded, and how it is run."""

    model: str
    options: LoadOptions
    start: str
    lines: list[str]
    to: str
    max_running: int
    max_waiting: int
    cache_bytes: int


def load(wanted: Serving) -> ServedModels:
    """The engine, started."""
    from ropewalk.extension.parsing import read_line
    from ropewalk.hf.attach.handle import handle_of
    from ropewalk.serve.generation.engine import Engine
    from ropewalk.serve.generation.model import ServedModel, served_extensions
    from ropewalk.serve.service import ServedModels

    lines: dict[str, Any] = {line: line for line in [wanted.start, *wanted.lines] if line not in ("", BARE)}
    for line in lines:
        read_line(line)
    tokenizer, target_len = load_tokenizer(wanted.model, wanted.options), target(wanted.to)
    host = place_model(load_model(wanted.model, wanted.options), wanted.options)
    start, handle = wanted.start or BARE, handle_of(host)
    if handle is not None:  # it was saved under an extension
        lines = {SAVED: handle.extension, **lines}
        start = wanted.start or SAVED
    served = served_extensions(host, lines, target_len=target_len)
    model = ServedModel(host, served, size=PAGE, limit=wanted.cache_bytes)
    engine = Engine(
        model,
        tokenizer,
        name=name_of(wanted.model),
        max_running=wanted.max_running,
        max_waiting=wanted.max_waiting,
    )
    engine.start()
    return ServedModels(engine, start, target_len)


def name_of(model: str) -> str:
    """What clients call a model: its name on the hub, or its folder's."""
    if model == str(DEFAULT):
        return NAME
    place = Path(model)
    return place.resolve().name if place.is_dir() else model
