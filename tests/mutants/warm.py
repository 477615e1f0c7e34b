"""A process that has imported what is slow to import, and gives each copy of the package a fork of its own.

It reads a line for each run, {"folder": ..., "arguments": [...], "output": ...}, and answers with pytest's exit status.
"""

import gc
import json
import os
import sys

import hypothesis  # noqa: F401
import numpy  # noqa: F401
import pytest
import torch
import transformers.models.llama.modeling_llama  # noqa: F401
from transformers import AutoModelForCausalLM  # noqa: F401

torch.set_num_threads(1)
gc.freeze()  # pytest collects garbage at its end: not through all that is imported here


def tested(folder, arguments, output, *plugins):
    """In the fork: what pytest says goes to a file, with the package that it tested at the end."""
    os.chdir(folder)
    os.environ["PYTHONPATH"] = folder
    sys.path.insert(0, folder)
    sys.dont_write_bytecode = True
    main = sys.modules["__main__"]
    main.__spec__ = main.__file__ = None  # or a test's helper processes would look for it, and stop
    with open(output, "w") as file:  # noqa: PTH123
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    status = pytest.main(arguments, plugins=list(plugins))
    import ropewalk

    print("\n" + os.path.dirname(ropewalk.__file__), flush=True)  # noqa: PTH120
    os._exit(status)


if __name__ == "__main__":
    for line in sys.stdin:
        run = json.loads(line)
        child = os.fork()
        if child == 0:
            tested(**run)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
