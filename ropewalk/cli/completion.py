"""What a shell completes: models, extensions, engines. Names are read from files, since importing them takes torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from ropewalk.extension.outside_code import METHODS, packages_of
from ropewalk.methods.docstrings import FACTORS, list_folder
from ropewalk.models import NAME

CORPORA = ("stdlib", "python", "recent", "descriptions", "prose", "folder:", "hub:", "all:")


def models(incomplete: str) -> list[str]:
    """The model that comes with Ropewalk; a shell completes folders by itself."""
    return [NAME] if NAME.startswith(incomplete) else []


def extensions(incomplete: str) -> list[tuple[str, str]]:
    """Presets and methods with what they are, for the last name of a line such as `rerope+lo`."""
    before, plus, last = incomplete.rpartition("+")
    if ":" in last:
        return []  # parameters: `ropewalk show NAME` lists them
    return [(f"{before}{plus}{name}", idea) for name, idea in _names() if name.startswith(last)]


def _names() -> Iterator[tuple[str, str]]:
    """Every preset, and every method that no preset hides; with its slot where several slots have that name."""
    presets = {name: page.idea for name, page in list_folder("presets")}
    methods = [(slot, name, page.idea) for slot in FACTORS for name, page in list_folder(slot) if name not in presets]
    several = Counter(name for _, name, _ in methods)
    yield from presets.items()
    yield from ((name if several[name] == 1 else f"{slot}.{name}", idea) for slot, name, idea in methods)
    yield from ((name, f"of {package}") for name, package in packages_of(METHODS).items())


def one_of(names: Sequence[str]) -> Callable[[str], list[str]]:
    """A completion from a fixed list."""

    def completing(incomplete: str) -> list[str]:
        return [name for name in names if name.startswith(incomplete)]

    return completing
