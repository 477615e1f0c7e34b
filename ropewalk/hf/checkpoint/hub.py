"""Whether the hub answers, asked once and shortly before anything is fetched from it.

huggingface_hub asks six times for every file, with pauses in between: a minute or two where there is no network. So it
is told to look only into its cache where the hub does not answer one short question.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread
from time import monotonic

from huggingface_hub import constants, get_session
from huggingface_hub.errors import LocalEntryNotFoundError, OfflineModeIsEnabled

from ropewalk.errors import Unreadable
from ropewalk.files import holds, why

HUB_TIMEOUT = 2.5  # seconds
LONGER = "HF_HUB_ETAG_TIMEOUT"  # huggingface_hub's own variable for how long it waits for such an answer
GATEWAYS = (502, 503, 504)  # what a proxy answers where it cannot reach the hub
NOT_CACHED = (LocalEntryNotFoundError, OfflineModeIsEnabled)
NO_FILE = "does not appear to have a file named"  # transformers says of weights that are not in the cache
ANSWER_SECONDS = (
    60.0  # seconds for which an answer holds: a config, a tokenizer and weights are fetched one after the other
)

_KNOWN: dict[str, tuple[float, str]] = {}  # when it was asked, and why it did not answer


def why_silent(model: str | Path) -> str:
    """Why the hub cannot be asked for a model; empty where it answers, and for a folder, which needs no hub."""
    if holds(Path(model).exists):
        return ""
    if constants.is_offline_mode():
        return "HF_HUB_OFFLINE is set"
    asked, reason = _KNOWN.get(constants.ENDPOINT, (0.0, ""))
    if not asked or monotonic() - asked > ANSWER_SECONDS:
        reason = _ask(constants.ENDPOINT)
        _KNOWN[constants.ENDPOINT] = monotonic(), reason
    return f"there is no network, or {constants.ENDPOINT} does not answer ({reason})" if reason else ""


@contextmanager
def cache_only(silent: str) -> Iterator[None]:
    """Have everything be read from the cache while the hub is silent.

    By huggingface_hub's own switch: transformers does not pass `local_files_only` on to all that it fetches.
    """
    before = constants.HF_HUB_OFFLINE
    try:
        constants.HF_HUB_OFFLINE = before or bool(silent)
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


def not_cached(model: str | Path, silent: str) -> Unreadable:
    """The error of a model that is neither in the cache nor to be fetched. The next try asks the hub again."""
    _KNOWN.pop(constants.ENDPOINT, None)
    again = f"try again when it answers ({LONGER}=30 waits longer)"
    remedy = f"pass a folder or a GGUF file, or {'unset it' if constants.is_offline_mode() else again}"
    sentence = f"{silent}, and {model} is not in the cache at {constants.HF_HUB_CACHE}, or only in part"
    return Unreadable.because("model", sentence, remedy=remedy)


def is_missing(reason: BaseException) -> bool:
    """Whether the error, or one that led to it, says that a file is not in the cache."""
    return any(isinstance(error, NOT_CACHED) or NO_FILE in str(error) for error in _chain(reason))


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _ask(endpoint: str) -> str:
    """Why it did not answer; empty where it did, whatever it said.

    In a thread, since no time limit reaches a name server that does not answer.
    """
    said: list[str] = []
    patience = HUB_TIMEOUT
    with suppress(ValueError):
        patience = float(os.environ.get(LONGER, HUB_TIMEOUT))

    def ask() -> None:
        try:
            status = get_session().head(endpoint, timeout=patience, follow_redirects=False).status_code
            said.append(f"HTTP status {status}" if status in GATEWAYS else "")
        except Exception as reason:  # of the network, of certificates, of a proxy, of an address that is none
            said.append(why(reason))

    asking = Thread(target=ask, daemon=True)
    asking.start()
    asking.join(patience)
    return said[0] if said else f"it said nothing in {patience:g} s"
