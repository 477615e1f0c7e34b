"""Models as they are measured: without their extensions, with a tokenizer; and the folder of the numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ropewalk import folders
from ropewalk.errors import InvalidValue
from ropewalk.hf.attach.handle import host_of
from ropewalk.hf.attach.trained_extension import TrainedExtension, extension_of, take_off
from ropewalk.hf.checkpoint.closed_config import is_adapter
from ropewalk.hf.checkpoint.fetch import fetch_config
from ropewalk.hf.load_options import UNSTATED, LoadOptions, require_plausible
from ropewalk.hf.loading import load_model, load_tokenizer, place_model, restore_logging
from ropewalk.hf.probe.facts import TrainedLengths, lengths_of
from ropewalk.measure.arguments import RunOptions
from ropewalk.measure.material.subject import Subject, without_extension
from ropewalk.models import path_of

SUBJECTS_KEPT = 4  # a plan asks for texts of some lengths, and one of them is measured


@dataclass(frozen=True)
class OpenedModel:
    """A model without its extension, its tokenizer, and the extension that it was trained under."""

    model: Any
    tokenizer: Any
    trained_under: TrainedExtension

    @cached_property
    def subject(self) -> Callable[[str, int], Subject]:
        """The model with the texts of a corpus, of a length; the texts that were asked for last are kept."""
        new = partial(Subject, model=self.model, tokenizer=self.tokenizer, own=self.trained_under)
        return lru_cache(SUBJECTS_KEPT)(lambda corpus, longest: new(corpus=corpus, longest=longest))


@contextmanager
def open_model(model: Any, options: LoadOptions = UNSTATED) -> Iterator[OpenedModel]:
    """A model by name, or a loaded one. A loaded one has its extension and its mode again after the block."""
    with restore_logging():
        if isinstance(model, str | Path):
            yield load_by_name(model, options)
            return
        host: Any = host_of(model)
        trained_under, training = extension_of(host), host.training
        try:
            with without_extension(host):
                tokenizer = RunOptions.of(options).tokenizer
                yield OpenedModel(host.eval(), tokenizer or _tokenizer_beside(host), trained_under)
        finally:
            host.train(training)


def stated_lengths(model: Any, options: LoadOptions) -> TrainedLengths | None:
    """The trained lengths in the config of a name, before weights are read; an adapter has none."""
    if not isinstance(model, str | Path):
        return None
    name = path_of(str(model))
    require_plausible(name)
    if is_adapter(Path(name)):
        return None
    return lengths_of(fetch_config(name, options).get_text_config(), corrected=options.trained_len)


def load_by_name(model: str | Path, options: LoadOptions = UNSTATED) -> OpenedModel:
    """A folder, a name on the hub, or default; its tokenizer is the one beside it, unless another is passed.

    Workers of a cluster have the accelerators; here it is then on the CPU.
    """
    name, run = path_of(str(model)), RunOptions.of(options)
    require_plausible(name)
    tokenizer = run.tokenizer or load_tokenizer(name, run)
    run = replace(run, device="cpu") if run.ray else run
    loaded = place_model(load_model(name, run), run)
    return OpenedModel(loaded, tokenizer, take_off(loaded))


def _tokenizer_beside(host: Any) -> Any:
    """The tokenizer beside the weights that a model was loaded from."""
    if not host.name_or_path:
        sentence = "a model that was not loaded from a folder or from the hub needs a tokenizer"
        raise InvalidValue.because("tokenizer", sentence, remedy="pass options=RunOptions(tokenizer=...)")
    return load_tokenizer(host.name_or_path)


@contextmanager
def open_folder(folder: str | Path | None) -> Iterator[Path]:
    """The folder of the numbers: the caller's, or one that is removed after the block."""
    if folder is not None:
        folders.require_writable(Path(folder))
        yield Path(folder)
        return
    with TemporaryDirectory(prefix="ropewalk-") as place:
        yield Path(place)
