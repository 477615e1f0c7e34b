"""`ropewalk serve`: an OpenAI-compatible API for one set of weights under several extensions."""

from __future__ import annotations

import ipaddress
import logging
import os
import re
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from ropewalk.cli.exit_status import STOPPED
from ropewalk.cli.models import (
    Model,
    RequestFactors,
    To,
    extension_argument,
    load_and_place,
    request_factors as read_factors,
    require_plausible,
    target,
)
from ropewalk.errors import InvalidValue, not_installed
from ropewalk.extension.notation import BARE, split_list
from ropewalk.hf.load_options import LoadOptions
from ropewalk.hf.loading import load_tokenizer
from ropewalk.models import DEFAULT, NAME

if TYPE_CHECKING:
    from ropewalk.serve.server import HttpServer
    from ropewalk.serve.service import ServedModels

START = "rerope+log_n"  # of the model that comes with Ropewalk
SAVED = "saved"  # the name of the extension that a model was saved under
PAGE = 64  # tokens of a page
MESSAGE = "ropewalk: stopped\n"
KEY = "ROPEWALK_API_KEY"  # the environment's variable
UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}

Extension = Annotated[
    str, extension_argument("for requests that name none; by default rerope+log_n for Ropewalk's own model, else none")
]
Host = Annotated[str, typer.Option(help="the address to bind; 0.0.0.0 is every network of this machine")]
Port = Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one, and prints it")]
Extensions = Annotated[
    list[str] | None, typer.Option(metavar="LINES", help="more extensions, such as yarn,rerope+log_n; may be repeated")
]
ApiKey = Annotated[str, typer.Option(envvar=KEY, show_default=False, help="key that clients must send")]
Insecure = Annotated[bool, typer.Option("--insecure", help="bind beyond this machine without a key")]
AllowOrigin = Annotated[
    list[str] | None, typer.Option(metavar="URL", help="pages of this origin may call the server; may be repeated")
]
MaxRunning = Annotated[int, typer.Option(min=1, help="requests that are answered at the same time")]
MaxWaiting = Annotated[int, typer.Option(min=0, help="requests that may wait; more are refused")]
CacheMemory = Annotated[str, typer.Option(metavar="SIZE", help="memory for cached keys and values, such as 4GiB")]
ORIGIN = re.compile(r"\*|https?://[^/\s]+")
Drain = Annotated[float, typer.Option(min=0, help="seconds to finish answers after a signal")]
Verbose = Annotated[bool, typer.Option("--verbose", help="log connections and failures")]


class Serving(NamedTuple):
    """What is loaded, and how it is run."""

    model: str
    options: LoadOptions
    start: str
    lines: list[str]
    to: str
    request_factors: tuple[float, ...]
    max_running: int
    max_waiting: int
    cache_bytes: int


def serve(
    model: Model = NAME,
    extension: Extension = "",
    host: Host = "127.0.0.1",
    port: Port = 8000,
    extensions: Extensions = None,
    to: To = "",
    request_factors: RequestFactors = None,
    api_key: ApiKey = "",
    insecure: Insecure = False,
    allow_origin: AllowOrigin = None,
    max_running: MaxRunning = 32,
    max_waiting: MaxWaiting = 256,
    cache_memory: CacheMemory = "4GiB",
    drain: Drain = 30.0,
    verbose: Verbose = False,
    *,
    options: LoadOptions,
) -> None:
    """Serve a model through an OpenAI-compatible API; the extension is part of the model's name (`default@yarn`).

    Without arguments, the model that comes with Ropewalk under rerope+log_n. `@bare` is the base model.
    """
    local = is_loopback(host)
    if not (local or api_key or insecure):
        sentence = f"--host {host} lets other machines call the server, and there is no --api-key"
        raise InvalidValue.because("--host", sentence, remedy=f"pass --api-key, set {KEY}, or pass --insecure")
    require_plausible(model)
    target(to)
    lines = [line for text in extensions or [] for line in split_list(text, "--extensions")]
    start = extension or (START if model == str(DEFAULT) else "")
    if options.is_spread:
        sentence = "serve keeps keys and values on one device, and auto spreads them over several"
        raise InvalidValue.because("--device", sentence, remedy="name one, such as cuda:1")
    for origin in allow_origin or []:
        if not ORIGIN.fullmatch(origin):
            raise InvalidValue("--allow-origin", "* or an origin such as https://example.org", origin)
    size = byte_size(cache_memory, "--cache-memory")
    wanted = Serving(model, options, start, lines, to, read_factors(request_factors), max_running, max_waiting, size)
    names = ("localhost", "127.0.0.1", "[::1]", host.lower()) if local and not api_key else ()
    try:
        from ropewalk.serve.server import HttpServer, bind
        from ropewalk.serve.service import ApiSettings
    except ModuleNotFoundError as missing:
        raise not_installed(missing) from missing
    settings = ApiSettings(api_key=api_key or None, allow_origins=tuple(allow_origin or ()), hosts=names)
    _run(HttpServer(settings, bind(host, port), partial(load, wanted), drain=drain, ready=_announce), verbose=verbose)


def _run(server: HttpServer, *, verbose: bool) -> None:
    import asyncio  # not for the other verbs, which are imported along

    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    logging.getLogger("uvicorn").setLevel(logging.INFO if verbose else logging.CRITICAL)
    asyncio.run(server.serve())
    if server.loads:  # its thread may be inside an import, which nothing can interrupt
        sys.stderr.write(MESSAGE if server.interrupted else "")
        sys.stderr.flush()
        os._exit(STOPPED if server.interrupted else 0)


def load(wanted: Serving) -> ServedModels:
    """The engine, started: in a thread, since importing torch and reading weights take seconds."""
    from ropewalk.hf.attach.extend import require_extendable
    from ropewalk.hf.attach.handle import handle_of
    from ropewalk.hf.checkpoint.closed_config import SIDECAR
    from ropewalk.serve.generation.engine import Engine
    from ropewalk.serve.generation.model import ServedModel, require_dynamic, served_extensions
    from ropewalk.serve.service import ServedModels

    lines: dict[str, Any] = {line: line for line in [wanted.start, *wanted.lines] if line not in ("", BARE)}
    target_len = target(wanted.to)
    extensions = [require_extendable(wanted.model, line, target_len, wanted.options) for line in lines]
    if wanted.request_factors and not (Path(wanted.model) / SIDECAR).is_file():  # else it may be the one saved there
        require_dynamic(extensions)
    tokenizer = load_tokenizer(wanted.model, wanted.options)
    host = load_and_place(wanted.model, wanted.options, small_in_float32=True)
    start, handle = wanted.start or BARE, handle_of(host)
    if handle is not None:  # it was saved under an extension
        lines = {SAVED: handle.extension, **lines}
        start = wanted.start or SAVED
    served = served_extensions(host, lines, target_len=target_len, request_factors=wanted.request_factors)
    model = ServedModel(host, served, size=PAGE, limit=wanted.cache_bytes)
    engine = Engine(
        model, tokenizer, name=name_of(wanted.model), max_running=wanted.max_running, max_waiting=wanted.max_waiting
    )
    engine.start()
    return ServedModels(engine, start, target_len)


def name_of(model: str) -> str:
    """What clients call a model: its name on the hub, or its folder's."""
    if model == str(DEFAULT):
        return NAME
    place = Path(model)
    return place.resolve().name if place.is_dir() else model


def _announce(models: ServedModels, url: str) -> None:
    print(f"Ropewalk serves {models.engine.name} ({models.start}) on {url}", flush=True)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def byte_size(text: str, field: str) -> int:
    """A size in bytes, such as 4GiB, 512MiB or 1000000."""
    read = re.fullmatch(r"(\d{1,15}(?:\.\d{1,6})?)\s*([kmgt]?)(i?b)?", text.strip().lower())
    size = int(float(read[1]) * UNITS[read[2]]) if read else 0
    if size < 1:
        raise InvalidValue(field, "a size above 0 such as 4GiB or 512MiB", text)
    return size
