"""python -m gpu: see docs/performance.md, or --help. `make gpu` calls it with the right interpreter and path."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
from pathlib import Path

from gpu.case import STEPS, Place


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(prog="make gpu", description=__doc__)
    parser.add_argument(
        "--dry-run", action="store_true", help="every step on the CPU with tiny shapes; nothing is stored"
    )
    parser.add_argument("--out", type=Path, help="a folder for copies of the results and the log")
    parser.add_argument("--steps", nargs="+", choices=STEPS, default=list(STEPS), help="only these")
    parser.add_argument("--again", action="store_true", help="measure again what was measured with the same code")
    parser.add_argument("--minutes", type=float, default=9.3, help="for all steps together")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)  # the process that measures
    return parser


def main() -> int:
    """Run the steps, or be the process of one."""
    options = arguments().parse_args()
    if options.work:
        from gpu.worker import work

        orders = json.loads(sys.stdin.read())
        return work(orders["steps"], orders["done"], Place(orders["device"], orders["dry"]), orders["seconds"])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the process of a step is ended as well
    import torch

    from gpu.record import RESULTS, Results
    from gpu.run import Run
    from gpu.table import table

    dry = options.dry_run or not torch.cuda.is_available()
    if dry and not options.dry_run:
        print("torch sees no CUDA GPU here: this is a dry run on the CPU, with tiny shapes. Its figures mean nothing.")
    name = "dry run" if dry else torch.cuda.get_device_name()
    with tempfile.TemporaryDirectory() as scratch:
        path = (options.out or Path(scratch)) / "dry-run.jsonl" if dry else RESULTS
        results = Results(path, name, options.out)
        run = Run(results, Place("cpu" if dry else "cuda", dry), again=options.again or dry)
        complete = run.steps(options.steps, 60 * options.minutes)
        print(table(results, options.steps, dry=dry))
    return 0 if complete else 1


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    sys.exit(main())
