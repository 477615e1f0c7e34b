"""`python -m studies`: train the small models of a study, measure them, and judge what its sources claim.

    python -m studies zoo --out FOLDER [--set key=value ...]
    python -m studies tuned --out FOLDER --set model=MODEL [--set key=value ...]
    python -m studies zoo --list

The same command resumes a study where it was stopped. Settings are written as in `ropewalk train`.
It needs the extra `train`: pip install '.[train]' -c constraints.txt
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from ropewalk.cli.exit_status import REFUSED, STOPPED
from ropewalk.cli.verbs.train import texts_of
from ropewalk.errors import RopewalkError
from ropewalk.signals import as_interrupt

from studies.needs import one_line_if_missing

if TYPE_CHECKING:
    from ropewalk.train.recipes.recipe import Recipe

HOMES = {"zoo": "studies.zoo.zoo", "tuned": "studies.tuned.tuned"}


def study(name: str) -> Recipe:
    """The study of that name, as a recipe. Imports come here and below, since a core install has not what they need."""
    from ropewalk.train.recipes.recipe import Recipe

    return Recipe.of(getattr(import_module(HOMES[name]), name))


def run(chosen: Recipe, out: Path, settings: Mapping[str, str]) -> Path | None:
    """What the recipe makes in the folder, or None where a signal stopped it."""
    from ropewalk.train.recipes.recipe import run as run_recipe

    return run_recipe(chosen, out, settings)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run or resume a study, or list its settings; the exit status is the one of `ropewalk train`."""
    parser = argparse.ArgumentParser(prog="python -m studies", description="Train and measure the models of a study.")
    parser.add_argument("study", choices=HOMES)
    parser.add_argument("--out", type=Path, help="folder of the study; one that was begun there is resumed")
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--list", dest="listed", action="store_true", help="show the settings")
    asked = parser.parse_args(arguments)
    with one_line_if_missing():
        chosen = study(asked.study)
    if asked.listed:
        for row in chosen.rows():
            print(f"{row.name}={row.default}  {row.meaning} {row.rule}".rstrip())
        return 0
    wrong = [text for text in asked.settings if "=" not in text]
    if asked.out is None or wrong:
        parser.error(f"--set must be KEY=VALUE, got {wrong[0]!r}" if wrong else "--out is missing; name a folder")
    try:
        with as_interrupt():
            result = run(chosen, asked.out, texts_of(asked.settings))
    except RopewalkError as refused:
        print(f"studies: {refused}", file=sys.stderr)
        return REFUSED
    except KeyboardInterrupt:
        result = None
    if result is None:
        print("studies: stopped; progress is saved, the same command resumes", file=sys.stderr)
        return STOPPED
    print(f"Written: {result}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
