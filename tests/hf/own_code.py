"""A model in a folder that brings code of its own; running it leaves a mark."""

import json
import shutil
import sys
from contextlib import contextmanager

from transformers import dynamic_module_utils

CODE = """
import pathlib
from transformers import LlamaConfig, LlamaForCausalLM
pathlib.Path({mark!r}).touch()
class OwnConfig(LlamaConfig):
    model_type = "own"
class OwnModel(LlamaForCausalLM):
    config_class = OwnConfig
"""


@contextmanager
def bringing_code(plain, folder, monkeypatch):
    """The folder of such a model, made of a plain one, and the file that its code leaves."""
    monkeypatch.setattr(dynamic_module_utils, "HF_MODULES_CACHE", str(folder / "cache"))
    monkeypatch.setattr(sys, "path", [*sys.path])
    place, mark = shutil.copytree(plain, folder / "own"), folder / "ran"
    config = json.loads((place / "config.json").read_text())
    names = {"AutoConfig": "own.OwnConfig", "AutoModelForCausalLM": "own.OwnModel"}
    (place / "config.json").write_text(json.dumps(config | {"model_type": "own", "auto_map": names}))
    (place / "own.py").write_text(CODE.format(mark=str(mark)))
    yield place, mark
    for name in [name for name in sys.modules if name.partition(".")[0] == "transformers_modules"]:
        del sys.modules[name]
