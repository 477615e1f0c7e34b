"""Copy the licence and the card of a model into the folder of changed weights."""

from __future__ import annotations

from pathlib import Path

from transformers import PreTrainedModel

from ropewalk.hf.checkpoint.own_files import WEIGHTS, copy_own, folder_of

NAMES = ("licen", "notice", "copying", "use_policy", "readme")  # the beginnings of their names, in any case


def copy_papers(host: PreTrainedModel, place: Path) -> list[str]:
    """Copy the papers from the model's folder, and name them; nothing is downloaded."""
    source = folder_of(host.name_or_path or "")
    papers = sorted(paper for paper in source.iterdir() if _is_paper(paper)) if source else []
    for paper in papers:
        copy_own(paper, place / paper.name)
    names, verb = ", ".join(paper.name for paper in papers), "was" if len(papers) == 1 else "were"
    return [f"{names} {verb} copied from the original model and may not describe this one"] if papers else []


def _is_paper(path: Path) -> bool:
    name = path.name.lower()
    return name.startswith(NAMES) and not name.endswith(WEIGHTS) and not path.is_dir()
