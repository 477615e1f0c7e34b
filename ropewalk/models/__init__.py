"""The model that Ropewalk carries, so that every method can be tried on any machine: models/default/README.md."""

from pathlib import Path

DEFAULT = Path(__file__).parent / "default"
NAME = "default"  # what the command line calls it


def path_of(model: str) -> str:
    """Where a model is; the one that Ropewalk carries has a name of its own."""
    return str(DEFAULT) if model == NAME else model


def named(place: str) -> str:
    """What a model is called where others read it: its name on the hub, or the last part of its folder."""
    return Path(place).name if Path(place).is_absolute() or Path(place).is_dir() else place
