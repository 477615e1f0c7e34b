"""The connection to a Ray cluster, and the room that it has."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from importlib import import_module
from signal import SIG_IGN, SIGINT, SIGTERM, default_int_handler, getsignal
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any

from ropewalk.errors import Conflict, DoesNotFit, InvalidValue, Unreadable, not_installed
from ropewalk.hf.use.inspect import sizes
from ropewalk.measure.material.subject import Subject
from ropewalk.measure.metrics.losses import TOKENS_PER_BATCH
from ropewalk.methods.spec import Json
from ropewalk.signals import handling

# Room on a cluster: the memory that a worker needs, and for how many workers there is enough that nobody uses.


MODELS = 2.0  # the model as it arrives, and as it is used
STATES = 12  # hidden states of a token that exist at once in a layer: its input, queries, keys, values, their products
FLOAT32_BYTES = 4  # bytes, also where the model is in half precision: losses are computed in float32


def bytes_needed(subject: Subject) -> int:
    """Bytes: the model, the cache of the longest text, and what is computed for the tokens of one batch."""
    config: Any = subject.model.config.get_text_config()
    weights = sum(parameter.nbytes for parameter in subject.model.parameters())
    cache = sizes(subject.model, target_len=subject.longest).cache_bytes(subject.own.extension)
    inner = int(getattr(config, "intermediate_size", None) or 4 * config.hidden_size)
    numbers = int(config.vocab_size) + STATES * int(config.hidden_size) + 2 * inner
    return int(MODELS * weights + cache + FLOAT32_BYTES * max(TOKENS_PER_BATCH, subject.longest) * numbers)


def workers_with_room(nodes: Sequence[Json], free: Mapping[str, float], need: float) -> tuple[str, int]:
    """GPU or CPU, and for how many workers of `need` bytes there is room; `free` is what no other job holds."""
    alive = [node["Resources"] for node in nodes if node["Alive"]]
    kind = "GPU" if any(node.get("GPU", 0) >= 1 for node in alive) else "CPU"
    most = sum(int(min(node.get(kind, 0), node.get("memory", 0) // need)) for node in alive)
    size = f"{need / 2**30:.3g} GiB"
    if most < 1:
        sentence = f"none of the cluster's {len(alive)} nodes has a {kind} and {size} for a model with its text"
        raise DoesNotFit.because("--ray", sentence, remedy="add a larger node, or shorten --lengths")
    now = int(min(most, free.get(kind, 0), free.get("memory", 0) // need))
    if now < 1:
        sentence = f"other jobs hold the cluster: none of its {len(alive)} nodes has a {kind} and {size} free"
        raise DoesNotFit.because("--ray", sentence, remedy="wait for them to end, or add a node")
    return kind, now


# Reaching a Ray cluster: the address, a wrong one in one line, and a cluster of this machine that leaves nothing.


LOCAL = "local"  # a cluster on this machine, for this command only
CLUSTER_TIMEOUT = 5.0  # seconds for a cluster to answer; Ray waits minutes and then ends the process
GRACE = 5.0  # seconds for the processes of a cluster to end by themselves
RUNNING = "start one with ray start --head, or use local"
GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))  # of HTTP/2, with no settings
SETTINGS = 4  # the kind of the frame that answers it
TOKEN = "if its head asks for a token, set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN"  # as Ray 2.60's do by themselves


def require_reachable(address: str) -> str:
    """Refuse a wrong address before a model is loaded."""
    place = os.environ.get("RAY_ADDRESS", address) if address == "auto" else address
    if place in (LOCAL, "auto"):
        return place
    match = re.fullmatch(r"([^/:]+):(\d{1,5})", place)
    if not match:
        raise InvalidValue("--ray", "local, auto or HOST:PORT", place)
    try:
        answers = _answers(match[1], int(match[2]))
    except (OSError, OverflowError, UnicodeError) as reason:
        raise _no_cluster(place, _words(reason)) from reason
    if not answers:
        raise _no_cluster(place, "what listens there is no Ray head")
    return place


def _answers(host: str, port: int) -> bool:
    """Whether a port may be a Ray head's, which speaks HTTP/2; Ray would try any other for minutes."""
    with socket.create_connection((host, port), timeout=CLUSTER_TIMEOUT) as there:
        if os.environ.get("RAY_USE_TLS", "0").lower() in ("1", "true"):
            return True  # a greeting in the clear would not be answered
        there.sendall(GREETING)
        with there.makefile("rb") as answer:
            frame = answer.read(9)
    return len(frame) > 3 and frame[3] == SETTINGS


@contextmanager
def connect(address: str) -> Iterator[None]:
    """Ray for as long as a block lasts. A local cluster leaves no files and sends no statistics.

    A connection that the caller has is used, and stays.
    """
    ray = ray_package()
    if ray.is_initialized():
        _require_auto(address)
        yield
        return
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    options: dict[str, Any] = {"address": address, "log_to_driver": False, "logging_level": "ERROR"}
    with _interruptible() as came, ExitStack() as after:
        if address == LOCAL:
            place = after.enter_context(TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True))
            options |= {"include_dashboard": False, "_temp_dir": place}
            after.callback(_end_local, ray, place)  # also after a start that failed
        else:
            after.callback(ray.shutdown)
        try:
            ray.init(**options)
        except (Exception, SystemExit) as reason:  # Ray raises a plain Exception on time-outs, or ends the process
            if came or (address == LOCAL and isinstance(reason, SystemExit) and reason.code == SIGTERM):
                raise KeyboardInterrupt from reason  # it came while Ray had the signal for itself, or during an import
            raise _no_cluster(address, _words(reason), f"{TOKEN}; or ") from reason
        if came:
            raise KeyboardInterrupt
        after.enter_context(_interruptible())  # again: Ray takes SIGTERM for itself, and prints its own stack
        yield


@contextmanager
def _interruptible() -> Iterator[list[int]]:
    """SIGTERM and Ctrl-C as KeyboardInterrupt, during imports too, where the command would end at once and leave
    everything; yields which came, since there a library may swallow it."""
    came: list[int] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        came.append(number)
        default_int_handler(number, frame)

    with handling([SIGTERM, *[SIGINT] * (getsignal(SIGINT) is not SIG_IGN)], interrupt):
        yield came


def _end_local(ray: Any, place: str) -> None:
    """End a cluster of this machine with all of its processes, of which Ray leaves some; no signal cuts that short."""
    psutil: Any = import_module("psutil")  # Ray brings it
    with handling((SIGTERM, SIGINT), lambda number, frame: None):
        started = _processes(place)
        ray.shutdown()
        left = psutil.wait_procs(started | _processes(place), timeout=GRACE)[1]
        for process in left:
            with suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(left, timeout=GRACE)


def _processes(place: str) -> set[Any]:
    """The processes that have a cluster's folder in their command line, and what they started."""
    psutil: Any = import_module("psutil")
    processes: set[Any] = set()
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if any(place in word for word in process.cmdline()):
                processes |= {process, *process.children(recursive=True)}
    return processes - {psutil.Process()}


def _require_auto(address: str) -> None:
    """Refuse another cluster than the one that this process is connected to: Ray knows one at a time."""
    allowed = "auto", os.environ.get("RAY_ADDRESS")  # which auto stands for where it is set
    if address not in allowed:
        sentence = f"this process is connected to Ray already, so it cannot connect to {address}"
        raise Conflict.because("--ray", sentence, remedy="pass auto to use that connection, or end it: ray.shutdown()")


def ray_package() -> Any:
    """Ray, or how to install it."""
    try:
        import ray
    except ModuleNotFoundError as missing:
        raise not_installed(missing) from missing
    return ray


def _words(reason: BaseException) -> str:
    """The first line of an error, or what ended the process."""
    line = next(iter(str(reason).splitlines()), type(reason).__name__).rstrip(".")
    return f"Ray ended with status {line}" if isinstance(reason, SystemExit) else line


def _no_cluster(address: str, words: str, first: str = "") -> Unreadable:
    if address == LOCAL:
        remedy = f"{words}; try again when the machine is less busy, or leave out --ray"
        return Unreadable("--ray", "a cluster that starts on this machine", address, remedy=remedy)
    return Unreadable("--ray", "the address of a running Ray cluster", address, remedy=f"{words}; {first}{RUNNING}")
