"""The model that Ropewalk carries, so that every method can be tried on any machine: models/default/README.md."""

from pathlib import Path

DEFAULT = Path(__file__).parent / "default"
GGUF = ".gguf"
NAME = "default"  # what the command line calls it


def path_of(model: str) -> str:
    """Where a model is; the one that Ropewalk carries has a name of its own."""
    return str(DEFAULT) if model == NAME else model


def parts_of(model: str) -> tuple[str, str]:
    """The folder, or the repository, and the GGUF file in it; without one the model itself, and nothing."""
    if not model.endswith(GGUF):
        return model, ""
    repository, _, file = model.partition(":")
    on_hub = bool(file) and repository.count("/") == 1 and repository[0] not in "/."
    return (repository, file) if on_hub else (str(Path(model).parent), Path(model).name)


def named(place: str) -> str:
    """What a model is called where others read it: its name on the hub, or the last part of its folder."""
    return Path(place).name if Path(place).is_absolute() or Path(place).is_dir() else place
