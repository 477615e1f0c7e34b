"""What CONTRIBUTING.md shows for a backend, done to the letter in a copy of the package."""

import os
import subprocess
import sys

from mutants.test_mutants import contributed_blocks, copy, edit, run_tests  # noqa: F401, fixtures among them

USED = """
import torch
from ropewalk import Facts, parse, reference_attention
from ropewalk.attention import attend, explain
from ropewalk.attention.backends.choose import choices

facts = Facts(trained_len=32, head_dim=16, heads=4, kv_heads=2)
extension, generator = parse("rerope:window=20+log_n"), torch.Generator().manual_seed(0)
q, k, v = (torch.randn(2, heads, 50, size, generator=generator) for heads, size in ((4, 16), (2, 16), (2, 6)))
print(explain(q, k, v, extension, facts))
error = (attend(q, k, v, extension, facts).double() - reference_attention(q, k, v, extension, facts)).abs().max()
print("right" if error < 1e-5 else error)
print(choices())
"""
HOLDS = "test_something_always_carries test_every_backend_is_a_candidate_somewhere test_the_page_of_choices_is_the_list"


def test_a_backend_costs_one_file_and_its_lines_in_one_list(copy, run_tests):  # noqa: F811
    blocks = contributed_blocks("A backend of your own")
    new, listing = (name for name in blocks if name.startswith("ropewalk/attention/backends/"))
    imported, row = blocks[listing].rstrip().splitlines()
    (copy / new).write_text(blocks[new])
    before = "from ropewalk.attention.backends.flash import FLASH\n"
    edit(copy / listing, before, f"{imported}\n{before}")
    case = row.partition(": ")[0]
    old = next(line for line in (copy / listing).read_text().splitlines() if line.startswith(case))
    edit(copy / listing, old, row)
    checks = " ".join(f"attention/backends/test_choose.py::{name}" for name in HOLDS.split())
    status, output = run_tests(copy, f"architecture {checks}")
    assert status == 0, output
    environment = {**os.environ, "PYTHONPATH": str(copy)}
    done = subprocess.run([sys.executable, "-c", USED], cwd=copy, env=environment, capture_output=True, text=True)
    explained, verdict, *table = done.stdout.splitlines()
    assert "exact: the formula over 50 keys in float64; the fused kernels need values of the same size" in explained
    assert verdict == "right", done.stderr
    assert "flash, exact, dense" in "".join(table)
    edit(copy / listing, row, old)
    assert run_tests(copy, checks)[0] == 1  # outside the list it is noticed
