"""LLaMA-Factory, as its source reads settings (0.9.5: model/model_utils/rope.py, hparams/model_args.py):

rope_scaling    linear, dynamic, yarn or llama3, by name alone: without the base, which transformers 5 stops at, and
                with a factor of its own, ceil(cutoff_len / trained length)
config.json     everything that transformers reads, where rope_scaling is not set

So the schedule is written into a folder, and the settings point at it. It allows transformers 4.55 too, which does not
read rope_parameters.
"""

from __future__ import annotations

from ropewalk.engines.rules.statement import StatedModel
from ropewalk.engines.trainers.yaml_lines import yaml_lines
from ropewalk.engines.transformers import rewrite as rewrite


def command(place: str, stated: StatedModel) -> str:
    """The lines of the YAML file."""
    lines = yaml_lines({"model_name_or_path": place, "cutoff_len": stated.length})
    return f"{lines}\n# no rope_scaling: the folder's config has the schedule. Needs transformers 5."
