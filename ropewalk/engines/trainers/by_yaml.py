"""Trainers whose settings are a YAML file, as their sources read it.

LLaMA-Factory (0.9.5: model/model_utils/rope.py, hparams/model_args.py):

rope_scaling    linear, dynamic, yarn or llama3, by name alone: without the base, which transformers 5 stops at, and
                with a factor of its own, ceil(cutoff_len / trained length)
config.json     everything that transformers reads, where rope_scaling is not set

So the schedule is written into a folder, and the settings point at it. It allows transformers 4.55 too, which does not
read rope_parameters.

axolotl (0.19.0: loaders/utils.py, loaders/model.py; transformers 5.16.1):

overrides_of_model_config    set on the model's config before the model is made: any rotary parameters, if complete
rope_scaling                 refused by axolotl itself
sequence_len                 raises max_position_embeddings, and nothing else

Only the top of a config is set, and no weight changes.
"""

from __future__ import annotations

from typing import Any

import yaml

from ropewalk.engines import transformers as plain
from ropewalk.engines.rules.statement import EngineReading, StatedModel
from ropewalk.errors import DoesNotFit

KEYS = ("rope_parameters", "max_position_embeddings", "original_max_position_embeddings")
FOLDER = "write a folder with --target transformers, and set base_model to it"


def yaml_lines(values: dict[str, Any]) -> str:
    """Settings as lines, in order; numbers are written so that YAML reads them as numbers."""
    nested = any(isinstance(value, dict) for value in values.values())
    style = None if nested else False  # lists of numbers on as few lines as they need
    lines: str = yaml.safe_dump(values, sort_keys=False, default_flow_style=style, width=120)
    return lines.rstrip()


def llama_factory(place: str, stated: StatedModel) -> str:
    """The lines of its file."""
    lines = yaml_lines({"model_name_or_path": place, "cutoff_len": stated.length})
    return f"{lines}\n# no rope_scaling: the folder's config has the schedule. Needs transformers 5."


def axolotl(place: str, stated: StatedModel) -> str:
    """The lines of its file."""
    overrides = {key: getattr(stated.text, key) for key in KEYS if hasattr(stated.text, key)}
    settings = {"base_model": place, "sequence_len": stated.length, "overrides_of_model_config": overrides}
    return yaml_lines(settings)


def rewrite_for_axolotl(stated: StatedModel) -> EngineReading | DoesNotFit:
    """Everything that a config says, where nothing else has to change."""
    reading = plain.rewrite(stated)
    if stated.window is not None:
        return DoesNotFit.because("reach", "axolotl's settings carry a schedule, and no window", remedy=FOLDER)
    if stated.config is not stated.text:
        sentence = "axolotl sets the top of a config only, and this model's schedule is in a part of it"
        return DoesNotFit.because("config", sentence, remedy=FOLDER)
    if reading.folded != 1:
        sentence = "the temperature would have to be folded into weights, which axolotl's settings cannot do"
        return DoesNotFit.because("temperature", sentence, remedy=FOLDER)
    return reading
