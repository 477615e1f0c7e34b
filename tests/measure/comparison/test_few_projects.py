"""A comparison on texts of too few projects."""

import math

import torch

from ropewalk.measure.comparison.changes import changes_by_position
from ropewalk.measure.comparison.comparison import measure_candidates
from ropewalk.measure.comparison.store import Store
from ropewalk.measure.metrics.losses import HeldOutTexts
from ropewalk.measure.report.advice import advice
from ropewalk.measure.tasks import Context, Damage, Perplexity

from measure.subjects import subject


def test_texts_of_too_few_projects_support_no_verdict(tmp_path):
    """Six texts of three projects: the value stays, and no number claims to be certain. Three files are three draws."""
    who = subject(tmp_path, longest=64, count=300)
    chosen = who.reading(HeldOutTexts(torch.stack(who.passages(6)), ("a", "a", "a", "b", "c", "c")))
    tasks = [Context(samples=6), Damage(samples=6), Perplexity(samples=6)]
    made = measure_candidates(chosen, ["yarn"], [64], Store(tmp_path / "few"), tasks=tasks)
    for one in made.candidates:
        assert one.verdict.words.startswith("too few projects to tell")
        assert math.isfinite(one.change.value)
        assert one.change[1:] == (-math.inf, math.inf, 6)
        assert all(row.numbers["loss"].low == 0 for row in one.rows if row.task.name == "context")
    assert made.lead_over(made.base)[1:] == (-math.inf, math.inf, 6)
    assert changes_by_position(made, made.candidates[1])[0].change[1:] == (-math.inf, math.inf, 6)
    said = advice(made)
    assert said.startswith("The 6 texts are of 3 projects, too few for a verdict: take a corpus with more projects")
    files = who.reading(HeldOutTexts(torch.stack(who.passages(3)), ("a.txt", "b.txt", "c.txt")))
    alone = measure_candidates(files, ["yarn"], [64], Store(tmp_path / "files"), tasks=[Context(samples=3)])
    assert all(math.isfinite(one.change.low) for one in alone.candidates)
