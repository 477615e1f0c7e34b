"""Copy the licence and the card of a model into the folder of changed weights."""

from __future__ import annotations

import shutil
from pathlib import Path

from huggingface_hub import try_to_load_from_cache
from transformers import PreTrainedModel

NAMES = ("licen", "notice", "copying", "use_policy", "readme")  # the beginnings of their names, in any case


def copy_papers(host: PreTrainedModel, place: Path) -> list[str]:
    """Copy the papers from the model's folder, and name them; nothing is downloaded."""
    source = _source(host.name_or_path or "")
    papers = sorted(paper for paper in source.iterdir() if _is_paper(paper)) if source else []
    for paper in papers:
        shutil.copyfile(paper, place / paper.name)
    names, verb = ", ".join(paper.name for paper in papers), "was" if len(papers) == 1 else "were"
    return [f"{names} {verb} copied from the original model and may not describe this one"] if papers else []


def _source(name: str) -> Path | None:
    """The folder that the model came from: a local one, or the hub's cache."""
    if not name:
        return None
    if Path(name).is_dir():
        return Path(name)
    try:
        config = try_to_load_from_cache(name, "config.json")
    except ValueError:  # not a name on the hub
        return None
    return Path(config).parent if isinstance(config, str) else None


def _is_paper(path: Path) -> bool:
    return path.name.lower().startswith(NAMES) and path.is_file()
