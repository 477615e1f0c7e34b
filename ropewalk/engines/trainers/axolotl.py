"""axolotl, as its source reads settings (0.19.0: loaders/utils.py, loaders/model.py; transformers 5.16.1):

overrides_of_model_config    set on the model's config before the model is made: any rotary parameters, if complete
rope_scaling                 refused by axolotl itself
sequence_len                 raises max_position_embeddings, and nothing else

Only the top of a config is set, and no weight changes.
"""

from __future__ import annotations

from ropewalk.engines import transformers as plain
from ropewalk.engines.rules.statement import EngineReading, StatedModel
from ropewalk.engines.trainers.yaml_lines import yaml_lines
from ropewalk.errors import DoesNotFit

KEYS = ("rope_parameters", "max_position_embeddings", "original_max_position_embeddings")
FOLDER = "write a folder with --target transformers, and set base_model to it"


def rewrite(stated: StatedModel) -> EngineReading | DoesNotFit:
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


def command(place: str, stated: StatedModel) -> str:
    """The lines of the YAML file."""
    overrides = {key: getattr(stated.text, key) for key in KEYS if hasattr(stated.text, key)}
    settings = {"base_model": place, "sequence_len": stated.length, "overrides_of_model_config": overrides}
    return yaml_lines(settings)
