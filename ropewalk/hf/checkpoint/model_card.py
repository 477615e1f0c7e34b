"""Licence and card of a model, copied beside weights that are written anew."""

from __future__ import annotations

import shutil
from pathlib import Path

from huggingface_hub import try_to_load_from_cache
from transformers import PreTrainedModel

NAMES = ("licen", "notice", "copying", "use_policy", "readme")  # how such files begin, in any case


def copy_papers(host: PreTrainedModel, place: Path) -> list[str]:
    """Copy what stands beside the model's own weights, and say what; nothing is fetched."""
    source = _source(host.name_or_path or "")
    papers = sorted(each for each in source.iterdir() if _is_paper(each)) if source else []
    for each in papers:
        shutil.copyfile(each, place / each.name)
    names = ", ".join(each.name for each in papers)
    return [f"copied from the model, whose weights or config have changed here: {names}"] if papers else []


def _source(name: str) -> Path | None:
    """The folder that the model came from: its own, or the one that was fetched from the hub."""
    if not name:
        return None
    if Path(name).is_dir():
        return Path(name)
    try:
        config = try_to_load_from_cache(name, "config.json")
    except ValueError:  # no name of the hub
        return None
    return Path(config).parent if isinstance(config, str) else None


def _is_paper(path: Path) -> bool:
    return path.name.lower().startswith(NAMES) and path.is_file()
