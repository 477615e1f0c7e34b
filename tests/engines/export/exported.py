"""A model that is exported under an extension."""

import json

from ropewalk.engines.export import export
from ropewalk.hf import extended

TARGET = 128


def exported(model, place, text, **options):
    """The result, the rope parameters in the config, and the handle that was in force."""
    lift = options.pop("lift_windows", False)
    with extended(model, text, lift_windows=lift) as handle:
        result = export(model, place, **{"target": "vllm", "target_len": TARGET, **options})
    config = json.loads((place / "config.json").read_text())
    return result, config, handle
