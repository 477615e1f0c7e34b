"""Subjects that share a corpus, and no project where there are several."""

from dataclasses import replace

import pytest
import torch

from ropewalk.errors import DoesNotFit
from ropewalk.texts.corpora import split_of

from measure.subjects import subject
from train.texts import text


def test_a_project_is_in_one_share(tmp_path):
    """Also where there are more documents than projects: what is judged on is of no project that was fitted on."""
    held_out = [name for name in map("project{}".format, range(400)) if split_of(f"{name}/0.txt") == "held out"][:5]
    for size, project in enumerate(held_out, start=1):
        (tmp_path / "many" / project).mkdir(parents=True)
        for n in range(size):
            (tmp_path / "many" / project / f"{n}.txt").write_text(text(10 * size + n))
    whole = replace(subject(tmp_path), corpus=f"folder:{tmp_path / 'many'}")
    halves = [replace(whole, every=2, first=first, _passages=[]) for first in range(2)]
    one, other = (half.projects(half.count(99)) for half in halves)
    assert not set(one) & set(other)
    assert sorted(one + other) == sorted(whole.projects(99))
    assert len(one + other) == 1 + 2 + 3 + 4 + 5
    with pytest.raises(DoesNotFit, match="15 held-out documents of 64 tokens in one of 2 parts of it"):
        halves[0].passages(15)


def test_a_few_projects_are_shared_out_by_document(tmp_path):
    """A folder of one's own may have a single folder inside: one half would be empty."""
    for projects in (1, 3):
        source = tmp_path / str(projects)
        for project in range(projects):
            (source / f"part{project}").mkdir(parents=True)
            for n in range(4):
                (source / f"part{project}" / f"{n}.txt").write_text(text(100 * projects + 10 * project + n))
        whole = replace(subject(tmp_path), corpus=f"all:folder:{source}")
        halves = [replace(whole, every=2, first=first, _passages=[]) for first in range(2)]
        one, other = (half.passages(half.count(99)) for half in halves)
        assert len(one) == len(other) == 2 * projects
        assert len({str(ids.tolist()) for ids in (*one, *other)}) == 4 * projects


def test_shares_are_every_so_many_and_together_all(tmp_path):
    whole = subject(tmp_path, count=240)
    thirds = [replace(whole, every=3, first=first, _passages=[]) for first in range(3)]
    every = whole.passages(6)
    for place, ids in enumerate(every):
        assert torch.equal(ids, thirds[place % 3].passages(2)[place // 3])
    assert len({str(each.marks) for each in (whole, *thirds)}) == 4
