"""Load a model by its name and place it on a device, by the options of whoever asks.

transformers is imported when something is loaded, not before: importing it takes seconds.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ropewalk.errors import DoesNotFit, InvalidValue, not_installed
from ropewalk.hf.load_options import AUTO, UNSTATED, LoadOptions
from ropewalk.models import named, parts_of

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of malloc.h
GIB = 2**30
MOST_GROWTH = 16  # times: of 2 bits of a GGUF file to float32
SMALL_MODEL = 100_000_000  # parameters below which a model is measured in float32 on a CPU
LONG = 100  # characters of an error that is passed on


def load_model(model: str, options: LoadOptions = UNSTATED) -> Any:
    """The model in the precision and on the device that are asked for, under the extension saved with it, if any."""
    from ropewalk.hf.use.save import load

    silence_transformers()
    if not options.is_spread:
        _require_room(model, options)
    return load(model, options=options)


def load_tokenizer(model: str, options: LoadOptions = UNSTATED) -> Any:
    """The model's tokenizer."""
    from ropewalk.hf.checkpoint.fetch import fetch_tokenizer

    silence_transformers()
    return fetch_tokenizer(model, options)


def place_model(model: Any, options: LoadOptions = UNSTATED, *, small_in_float32: bool = True) -> Any:
    """The model where it computes, ready; a small one on a CPU in float32, unless a precision is asked for."""
    import torch

    from ropewalk.hf.use.save import move

    if options.is_spread:
        return model.eval()
    where = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    if where == "cpu":
        keep_memory()
    if small_in_float32 and options.dtype == AUTO and where == "cpu" and is_small(model):
        model = model.float()
    return move(model, where).eval()


def is_small(model: Any) -> bool:
    """Whether float32 costs little; quantised weights have no other precision."""
    from ropewalk.hf.probe.host import format_of

    return not format_of(model) and sum(parameter.numel() for parameter in model.parameters()) < SMALL_MODEL


def _require_room(model: str, options: LoadOptions) -> None:
    """Refuse weights that the free memory does not hold, by the model's config; those of a small file are not counted.

    On a GPU too: they pass through main memory.
    """
    from ropewalk.hf.checkpoint.closed_config import is_adapter
    from ropewalk.hf.checkpoint.fetch import fetch_config
    from ropewalk.hf.use.stand_in import weight_bytes

    stored = sum(file.stat().st_size for file in weight_files(model))
    free = free_bytes()
    if 0 < MOST_GROWTH * stored < free or is_adapter(Path(model)):
        return
    needed = weight_bytes(fetch_config(model, options), "" if options.dtype == AUTO else options.dtype)
    if needed > free:
        remedy = "choose a smaller model, or --device auto, which leaves to the disk what memory does not hold"
        rule = f"at least {needed / GIB:,.1f} GiB free, which the weights of {named(model)} need"
        raise DoesNotFit("memory", rule, f"{free / GIB:,.1f} GiB", remedy=remedy)


def weight_files(model: str) -> list[Path]:
    """The files of weights in a folder, or the GGUF file; none where they are on the hub."""
    place, gguf = parts_of(model)
    files = [Path(place) / gguf] if gguf else [*Path(place).glob("*.safetensors"), *Path(place).glob("*.bin")]
    return [file for file in files if file.is_file()]


def free_bytes() -> int:
    """Free main memory, by the account of the system; more than any machine has where it keeps none."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:  # systems other than Linux
        return 2**62
    amounts = dict(line.split(":", 1) for line in lines)
    return 1024 * int(amounts["MemAvailable"].split()[0])


def keep_memory() -> None:
    """Make the C library keep the memory of large tensors: allocating it again costs a tenth of the reading time."""
    with suppress(OSError, AttributeError):  # another system, another library
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(M_MMAP_THRESHOLD, 2**30)
        mallopt(M_TRIM_THRESHOLD, 2**31 - 1)


def require_device(name: str) -> None:
    """Refuse a device that torch does not have here, before weights are read."""
    try:
        if name == AUTO:
            import accelerate as accelerate
        elif name:
            import torch

            torch.ones(1, device=name).item()  # meta has none
    except ModuleNotFoundError as missing:
        raise not_installed(missing) from missing
    except Exception as reason:  # every kind of device raises another
        said = str(reason).partition("\n")[0]
        detail = said if len(said) < LONG else ""  # torch lists all of its backends, and where to report
        rule = "a device that torch has here, such as cpu, or auto"
        raise InvalidValue("device", rule, name, remedy=detail) from reason


def silence_transformers() -> None:
    """From now on transformers loads without warnings and progress bars."""
    from transformers.utils import logging

    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]


@contextmanager
def restore_logging() -> Iterator[None]:
    """After the block transformers reports as much as before: the process is the caller's."""
    from transformers.utils import logging

    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        (logging.enable_progress_bar if bars else logging.disable_progress_bar)()  # type: ignore[no-untyped-call]
