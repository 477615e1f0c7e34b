"""The model that Ropewalk carries, so that every method can be tried on any machine: models/default/README.md.

A checkout has it. For the package index it is a distribution of its own, ropewalk-demo-model, which puts it here: it is
nine tenths of what would be downloaded.
"""

from pathlib import Path

from ropewalk.errors import NotInstalled

DEFAULT = Path(__file__).parent / "default"
GGUF = ".gguf"
NAME = "default"  # what the command line calls it


def path_of(model: str) -> str:
    """Where a model is; the one that Ropewalk carries has a name of its own."""
    if model != NAME:
        return model
    if not (DEFAULT / "config.json").is_file():
        sentence = f"the model {NAME} is not installed"
        raise NotInstalled.because("model", sentence, remedy="pip install ropewalk-demo-model, or name another model")
    return str(DEFAULT)


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
