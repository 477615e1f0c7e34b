"""How a model that is given by its name is loaded: one record, passed from whoever asks down to transformers.

Importing this loads neither torch nor transformers: the command line refuses a misspelled folder at once.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from ropewalk.errors import InvalidValue, UnknownName, Unreadable
from ropewalk.files import holds
from ropewalk.models import parts_of

AUTO = "auto"
DTYPES = (AUTO, "float32", "bfloat16", "float16")


@dataclass(frozen=True)
class LoadOptions:
    """How a model that is given by its name is loaded; what is left out is chosen when it is loaded.

    dtype: the precision of the weights; "auto" is the checkpoint's precision, or float32 for a small model that is
        measured on a CPU.
    device: such as "cpu" or "cuda:1"; "auto" spreads the model over all GPUs, main memory and disk; by default one GPU
        if there is one.
    revision: a branch, a tag or a commit of a model on the hub, the same for all of its files.
    trust_remote_code: whether code that comes with a model runs; there is no interactive prompt.
    trained_len: the trained length in tokens, where the model's config states a wrong one.
    """

    dtype: str = AUTO
    device: str = ""
    revision: str = ""
    trust_remote_code: bool = False
    trained_len: int | None = None

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise UnknownName("dtype", self.dtype, known=DTYPES)

    @property
    def is_spread(self) -> bool:
        """Whether accelerate chooses the devices."""
        return self.device == AUTO


UNSTATED = LoadOptions()


def require_named(model: Any, options: LoadOptions) -> None:
    """Refuse options of loading for a model that is loaded."""
    if isinstance(model, str | Path):
        return
    for field in fields(LoadOptions):
        name = field.name
        if getattr(options, name) != field.default:
            remedy = f"call model.to({name}) instead" if name in ("device", "dtype") else f"leave {name} out"
            sentence = f"{name} applies only to a model given by name, and this one is already loaded"
            raise InvalidValue.because(name, sentence, remedy=remedy)


def require_plausible(model: str, *, config_is_enough: bool = False) -> None:
    """Refuse early, without network, what is neither a folder with a model nor a name on the hub."""
    if config_is_enough and Path(model).suffix == ".json" and holds(Path(model).is_file):
        return
    repository, gguf = parts_of(model)
    if gguf and (holds(Path(model).is_file) or _could_be_on_the_hub(repository)):
        return
    place = Path(model)
    is_folder = holds(place.is_dir)
    if not is_folder and (gguf or holds(place.exists) or not _could_be_on_the_hub(model)):
        files = "a GGUF file, a config.json" if config_is_enough else "a GGUF file"
        rule = f"an existing folder, {files}, default, or a name on the hub: owner/name or owner/name:file.gguf"
        raise Unreadable("model", rule, model)
    if is_folder and not holds((place / "config.json").is_file):
        raise Unreadable("model", "a folder with a config.json", model, remedy="save_pretrained writes one")


def _could_be_on_the_hub(model: str) -> bool:
    parts = model.split("/")
    return len(parts) == 2 and all(part[:1].isalnum() or part[:1] == "_" for part in parts) and model.isprintable()
