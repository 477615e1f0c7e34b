"""Models and tokenizers as they are measured: loaded by name, placed on a device, or as the caller has them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

from ropewalk import folders
from ropewalk.errors import DoesNotFit, InvalidValue, not_installed
from ropewalk.models import named, parts_of, path_of
from ropewalk.placement import AUTO, free_bytes, placing, wanted_placement
from ropewalk.revision import at_revision, wanted_revision
from ropewalk.trained_to import stated
from ropewalk.trust import trusted, trusting

if TYPE_CHECKING:
    from ropewalk.hf.attach.trained_extension import TrainedExtension
    from ropewalk.measure.material.subject import Subject  # importing these takes seconds

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of malloc.h
GIB = 2**30
MOST_GROWTH = 16  # times: of 2 bits of a GGUF file to float32
SMALL_MODEL = 100_000_000  # parameters below which a model is measured in float32 on a CPU


class OpenedModel(NamedTuple):
    """A model without its extension, its tokenizer, and the extension that it was trained under."""

    model: Any
    tokenizer: Any
    trained_under: TrainedExtension

    def subject(self, corpus: str, longest: int) -> Subject:
        """The model with the texts that it is measured on."""
        from ropewalk.measure.material.subject import Subject

        model, tokenizer, trained_under = self
        return Subject(model=model, tokenizer=tokenizer, own=trained_under, corpus=corpus, longest=longest)


@contextmanager
def loading_as(
    model: Any, *, dtype: str = "", device: str = "", revision: str = "", trust_remote_code: bool = False
) -> Iterator[None]:
    """How a model that is named is loaded inside the block; refused for a loaded one."""
    asked = {"dtype": dtype, "device": device, "revision": revision, "trust_remote_code": trust_remote_code}
    for name, value in asked.items():
        if value and not isinstance(model, str | Path):
            remedy = f"call model.to({name})" if name in ("device", "dtype") else f"leave {name} out"
            sentence = f"{name} is for a model given by its name; this one is loaded already"
            raise InvalidValue.because(name, sentence, remedy=remedy)
    trust = trust_remote_code or trusted()
    with placing(dtype, device), at_revision(revision or wanted_revision()), trusting(trust):
        yield


@contextmanager
def opened(model: Any, tokenizer: Any, device: str = "") -> Iterator[OpenedModel]:
    """A model by name, or a loaded one. A loaded one has its extension and its mode again after the block."""
    if isinstance(model, str | Path):
        with placing(device=device):
            named = opened_by_name(model, tokenizer)
        yield named
        return
    from ropewalk.hf.attach.handle import host_of
    from ropewalk.hf.attach.trained_extension import extension_of
    from ropewalk.measure.material.subject import without_extension

    host: Any = host_of(model)
    trained_under, training = extension_of(host), host.training
    try:
        with without_extension(host):
            yield OpenedModel(host.eval(), _tokenizer_for(host) if tokenizer is None else tokenizer, trained_under)
    finally:
        host.train(training)


@contextmanager
def opened_as(
    model: Any,
    tokenizer: Any,
    *,
    dtype: str = "",
    device: str = "",
    revision: str = "",
    trust_remote_code: bool = False,
    kept_on: str = "",
) -> Iterator[OpenedModel]:
    """A model by name, loaded in this way, or a loaded one; `kept_on` is where it waits if others do the measuring."""
    how = {"dtype": dtype, "device": device, "revision": revision}
    with (
        logging_restored(),
        loading_as(model, **how, trust_remote_code=trust_remote_code),
        opened(model, tokenizer, kept_on) as host,
    ):
        yield host


def opened_by_name(model: str | Path, tokenizer: Any = None) -> OpenedModel:
    """A folder, a name on the hub, or default; its tokenizer is the one beside it, unless another is passed."""
    from ropewalk.hf.attach.trained_extension import taken_off

    name = path_of(str(model))
    folders.require_plausible(name)
    tokenizer = tokenizer_of(name) if tokenizer is None else tokenizer
    loaded = placed(weights_of(name))
    return OpenedModel(loaded, tokenizer, taken_off(loaded))


def _tokenizer_for(host: Any) -> Any:
    """The tokenizer beside the weights that a model was loaded from."""
    if not host.name_or_path:
        sentence = "a model that was not loaded from a folder or from the hub needs a tokenizer"
        raise InvalidValue.because("tokenizer", sentence, remedy="pass tokenizer=...")
    return tokenizer_of(host.name_or_path)


def _require_room(model: str) -> None:
    """Refuse weights that the free memory does not hold, by the model's config; those of a small file are not counted.

    On a GPU too: they pass through main memory.
    """
    from ropewalk.hf.checkpoint.closed_config import is_adapter
    from ropewalk.hf.checkpoint.fetch import fetch_config
    from ropewalk.hf.use.stand_in import weight_bytes

    place, gguf = parts_of(model)
    files = [Path(place) / gguf] if gguf else [*Path(place).glob("*.safetensors"), *Path(place).glob("*.bin")]
    stored = sum(file.stat().st_size for file in files if file.is_file())
    free, wanted = free_bytes(), wanted_placement()
    if 0 < MOST_GROWTH * stored < free or is_adapter(Path(model)):
        return
    needed = weight_bytes(fetch_config(model), "" if wanted.dtype == AUTO else wanted.dtype)
    if needed > free:
        remedy = "choose a smaller model, or --device auto, which leaves to the disk what memory does not hold"
        rule = f"at least {needed / GIB:,.1f} GiB free, which the weights of {named(model)} need"
        raise DoesNotFit("memory", rule, f"{free / GIB:,.1f} GiB", remedy=remedy)


def tokenizer_of(model: str) -> Any:
    """The model's tokenizer."""
    from ropewalk.hf.checkpoint.fetch import fetch_tokenizer

    return quietly(fetch_tokenizer, model)


def weights_of(model: str) -> Any:
    """The model in the precision and on the device that are asked for, under the extension saved with it, if any."""
    from ropewalk.hf import load
    from ropewalk.hf.probe.facts import correct

    wanted = wanted_placement()
    if not wanted.is_spread:
        quietly(_require_room, model)
    how: dict[str, Any] = {} if wanted.dtype == AUTO else {"dtype": wanted.dtype}
    how |= {"device_map": AUTO} if wanted.is_spread else {}
    loaded = quietly(partial(load, **how), model)
    if stated() is not None:  # stored on the model, for other processes and machines too
        correct(loaded, stated())
    return loaded if wanted.device in ("", AUTO) else _moved(loaded, wanted.device)


def placed(model: Any, *, small_in_float32: bool = True) -> Any:
    """The model where it computes, ready; a small one on a CPU in float32, unless a precision is asked for."""
    import torch

    wanted = wanted_placement()
    if wanted.is_spread:
        return model.eval()
    where = wanted.device or ("cuda" if torch.cuda.is_available() else "cpu")
    if where == "cpu":
        keep_memory()
    if small_in_float32 and wanted.dtype == AUTO and where == "cpu" and is_small(model):
        model = model.float()
    return _moved(model, where).eval()


def is_small(model: Any) -> bool:
    """Whether float32 costs little; quantised weights have no other precision."""
    from ropewalk.hf.probe.quantised import format_of

    return not format_of(model) and sum(parameter.numel() for parameter in model.parameters()) < SMALL_MODEL


def _moved(model: Any, where: str) -> Any:
    """The model on one device."""
    try:
        return model.to(where)
    except (AssertionError, RuntimeError, ValueError) as reason:  # without CUDA, an index too high, quantised weights
        detail = str(reason).splitlines()[0] if str(reason) else type(reason).__name__
        raise InvalidValue("device", "an available device", where, remedy=detail) from reason


LONG = 100  # characters of an error that is passed on


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


def keep_memory() -> None:
    """Make the C library keep the memory of large tensors: allocating it again costs a tenth of the reading time."""
    with suppress(OSError, AttributeError):  # another system, another library
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(M_MMAP_THRESHOLD, 2**30)
        mallopt(M_TRIM_THRESHOLD, 2**31 - 1)


def quietly(how: Callable[[str], Any], model: str) -> Any:
    """Call a loader of transformers without its warnings and progress bars."""
    from transformers.utils import logging

    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    return how(model)


@contextmanager
def logging_restored() -> Iterator[None]:
    """After the block transformers reports as much as before: the process is the caller's."""
    from transformers.utils import logging

    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        (logging.enable_progress_bar if bars else logging.disable_progress_bar)()  # type: ignore[no-untyped-call]


@contextmanager
def kept(folder: str | Path | None) -> Iterator[Path]:
    """The folder of the numbers: the caller's, or one that is removed after the block."""
    if folder is not None:
        folders.require_writable(Path(folder))
        yield Path(folder)
        return
    with TemporaryDirectory(prefix="ropewalk-") as place:
        yield Path(place)
