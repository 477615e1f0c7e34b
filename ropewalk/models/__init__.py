"""The model that Ropewalk carries, so that every method can be tried on any machine: models/default/README.md."""

from pathlib import Path

DEFAULT = Path(__file__).parent / "default"
NAME = "default"  # what the command line calls it
