"""A static extension stated in a config for an engine, and what engines have in common in reading it.

A rule of an engine is a pure function of which keys it reads, and how. What it reads differently from transformers is
lowered (stated pair by pair) or not exported; nothing is left to guess.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Annotated, Any, NamedTuple

import torch
from torch import Tensor
from transformers import MistralConfig, PreTrainedModel

from ropewalk.engines.rules.formulas import yarn_temperature as yarn_temperature
from ropewalk.errors import DoesNotFit, Unreadable, name_errors
from ropewalk.extension.extension import Extension
from ropewalk.extension.static import static_table
from ropewalk.hf.checkpoint.config_schedule import STOPPING_DIVISOR, standard_config, why_not_expressible
from ropewalk.hf.probe.facts import EXPORTED, SCHEDULE
from ropewalk.hf.runtime.layer import ExtendedLayer, type_of
from ropewalk.methods.facts import Facts
from ropewalk.methods.reach import Window
from ropewalk.methods.record import AT_LEAST_ONE, Checked

LONGROPE = "longrope"
AS_YARN = "by_parts+yarn_temperature", "yarn"  # the name that people know
QUERY_SCALE = "llama_4_scaling_beta"  # beside it, the original length is what attention scales its queries by


@dataclass
class StatedModel:
    """A static extension as a transformers config, which an engine's rule rewrites."""

    config: Any
    kinds: tuple[str, ...]  # types of the extended layers, where each type has its own parameters
    table: Tensor  # radians per position of every pair in these layers
    length: int
    interleaved: bool  # whether neighbours make a pair
    reaches_all: bool  # whether cos and sin carry the temperature: it multiplies what they reach, and nothing else
    trained_len: int
    changes_short: bool  # whether texts within the trained length are computed otherwise too
    window: int | None = None

    @property
    def text(self) -> Any:
        """The language model's part of the config."""
        return self.config.get_text_config()

    @property
    def parameters(self) -> list[dict[str, Any]]:
        """The rotary parameters of the extension: of the whole model, or of its layer types."""
        parameters = self.text.rope_parameters
        return [parameters[kind] for kind in self.kinds] if self.kinds else [parameters]

    @property
    def type(self) -> str:
        return str(self.parameters[0]["rope_type"])

    @property
    def temperature(self) -> float:
        """The factor of cos and sin."""
        first = self.parameters[0]
        stated = first.get("attention_factor")
        if stated is not None:
            return float(stated)
        return yarn_mscale(first, first.get("mscale_all_dim") or 0.0) if self.type == "yarn" else 1.0

    @property
    def latent(self) -> bool:
        """Whether keys and values come from a latent vector (DeepSeek's attention)."""
        return bool(getattr(self.text, "kv_lora_rank", None))

    @property
    def has_axes(self) -> bool:
        """Whether tokens have several positions, such as those of images (M-RoPE)."""
        return any(part.get("mrope_section") for part in self.parameters)

    @property
    def divisors(self) -> list[float]:
        """The divisor of base^(-2i/d) in every pair."""
        base, pairs = float(self.parameters[0]["rope_theta"]), len(self.table)
        divisors = base ** (-torch.arange(pairs, dtype=torch.float64) / pairs) / self.table
        return [float(divisor) for divisor in divisors.clamp(max=STOPPING_DIVISOR)]


class EngineReading(NamedTuple):
    """How an engine computes what was stated."""

    lowered: bool
    folded: float = 1.0  # the factor of the queries, in the weights
    divisors: bool = False  # whether divisors are among the weights
    unrun: bool = False  # whether the engine was never run with this kind of model
    written: Mapping[str, Any] = {}  # keys of the language model's config that only the engine reads, written last

    @property
    def changes_weights(self) -> bool:
        """Whether a config alone does not say it."""
        return self.folded != 1 or self.divisors


class ExportRules(NamedTuple):
    """What is exported to one engine, or to one trainer."""

    rewrite: Callable[[StatedModel], EngineReading | DoesNotFit]  # rewrites the config, or says why it cannot
    command: Callable[[str, StatedModel], str]  # the command that starts it with a folder, or a trainer's settings
    folder: bool = True  # whether a folder is written; some settings carry the schedule alone


def is_lowered(stated: StatedModel) -> bool:
    """Whether the schedule is stated pair by pair."""
    return stated.type == LONGROPE


def lower(stated: StatedModel) -> None:
    """State the schedule pair by pair: as longrope, with one set of divisors for short texts and long ones."""
    divisors, temperature = stated.divisors, stated.temperature
    for parameters in stated.parameters:
        original = parameters.get("original_max_position_embeddings") if QUERY_SCALE in parameters else None
        kept = {name: value for name, value in parameters.items() if name not in SCHEDULE}
        parameters.clear()
        parameters |= {
            **kept,
            "rope_type": LONGROPE,
            "short_factor": divisors,
            "long_factor": divisors,
            "factor": 1.0,
            "attention_factor": temperature,
            "original_max_position_embeddings": original or stated.length,
        }
    if hasattr(stated.text, "original_max_position_embeddings"):  # transformers prefers this one where it exists
        stated.text.original_max_position_embeddings = stated.length


def fold(stated: StatedModel, computed: float = 1.0) -> float:
    """Leave the temperature that the engine computes in the config; return the rest, for the weights of the queries."""
    factor = (stated.temperature / computed) ** 2
    for parameters in stated.parameters:
        for name in ("attention_factor", "short_mscale", "long_mscale"):
            if name in parameters:
                parameters[name] = computed
        parameters.pop("attn_factor", None)  # YaRN's own temperature is what is left
    return factor


def place_temperature(stated: StatedModel) -> float:
    """Leave the temperature to cos and sin where these reach every logit, else fold it."""
    if stated.temperature == 1 or stated.reaches_all:
        return 1.0
    if not is_lowered(stated):
        lower(stated)
    return fold(stated)


def state_mscale(stated: StatedModel) -> None:
    """vLLM and SGLang read the temperature of longrope under other names."""
    for parameters in stated.parameters if is_lowered(stated) else ():
        parameters |= {"short_mscale": stated.temperature, "long_mscale": stated.temperature}


def yarn_mscale(parameters: dict[str, Any], all_dim: float) -> float:
    """The temperature that mscale and mscale_all_dim give."""
    mscale = parameters.get("mscale")
    factor = parameters["factor"]
    return yarn_temperature(factor, 1.0 if mscale is None else mscale) / yarn_temperature(factor, all_dim)


def state_latent(stated: StatedModel) -> EngineReading | DoesNotFit:
    """vLLM and SGLang read every schedule of latent attention as DeepSeek's YaRN, whose temperature is mscale's."""
    parameters = stated.parameters[0]
    if stated.type == "default":
        return EngineReading(lowered=False)
    if stated.type != "yarn" or not parameters.get("truncate", True):
        rule = "YaRN with the temperature of its mscale, or another base, where keys are latent"
        return DoesNotFit("schedule", rule, stated.type)
    read = yarn_mscale(parameters, parameters.get("mscale_all_dim") or 0.0)
    if not math.isclose(read, stated.temperature, rel_tol=1e-6):
        rule = f"{read:.4f}, which an engine computes where keys are latent"
        return DoesNotFit("temperature", rule, stated.temperature)
    for name in ("attention_factor", "attn_factor"):  # 1 there makes vLLM ignore mscale_all_dim
        parameters.pop(name, None)
    return EngineReading(lowered=False)


def read_as_deepseek_and_phi(stated: StatedModel) -> EngineReading | DoesNotFit:
    """What vLLM and SGLang share: latent keys by DeepSeek's rule, longrope by Phi's, all else by name."""
    if stated.latent:
        return state_latent(stated)
    if reason := _why_not_of_axes(stated):
        return reason
    folded = place_temperature(stated)
    if is_lowered(stated) and (reason := why_no_longrope(stated)):
        return reason
    state_mscale(stated)
    return EngineReading(is_lowered(stated), folded)


def why_no_longrope(stated: StatedModel) -> DoesNotFit | None:
    """Why the longrope module of vLLM and SGLang does not compute a model; None where it does."""
    if stated.interleaved:
        return DoesNotFit("schedule", "one with a type of its own where pairs are neighbours", LONGROPE)
    return None


def _why_not_of_axes(stated: StatedModel) -> DoesNotFit | None:
    """Why vLLM and SGLang do not compute a schedule where tokens have several positions; None where they do."""
    if not stated.has_axes or stated.type in ("default", "yarn"):
        return None
    return DoesNotFit("schedule", "YaRN or another base where tokens have several positions (M-RoPE)", stated.type)


# A static extension as a transformers config for an engine, with its window.


def state_extension(
    host: PreTrainedModel, extension: Extension, layers: Sequence[ExtendedLayer], target_len: int | None
) -> StatedModel | DoesNotFit:
    """The extension in a copy of the model's config, or the reason why no config says it."""
    window = extension.reach.window if isinstance(extension.reach, Window) else None
    static = extension if window is None else replace(extension, reach=None)
    config = standard_config(host.config, static, layers, target_len)
    if isinstance(config, DoesNotFit):
        return config
    config.architectures, config.dtype = [type(host).__name__], host.dtype
    # A temperature of whole logits and one of the rotation cannot be told apart.
    reason = why_not_expressible(static, layers)
    if reason is not None and any(spec.of_rotation for spec in static.scales):
        return reason
    turning = [layer for layer in layers if layer.probed.rotating and not layer.left_alone]
    first = turning[0]
    model = StatedModel(
        config,
        _kinds(config, turning),
        static_table(static, first.facts),
        config.get_text_config().max_position_embeddings,
        bool(first.probed.interleaved),
        reaches_all=reason is None,
        trained_len=first.facts.trained_len,
        changes_short=bool(static.scales)
        or not torch.equal(static_table(static, first.facts), static_table(Extension(), first.facts)),
    )
    for parameters in model.parameters:
        if parameters["rope_type"] == "yarn":
            beside = model.temperature / yarn_temperature(parameters["factor"])
            if not math.isclose(beside, 1.0, rel_tol=1e-9):  # by which some engines multiply YaRN's own
                parameters["attn_factor"] = beside
    if model.length > model.trained_len and model.changes_short:
        note_stretch(config, first.facts, model.length, static)
    return model if window is None else _state_window(model, window, layers)


def notes_on_lengths(stated: StatedModel) -> list[str]:
    """What a user of a static schedule may not expect, in words."""
    if stated.changes_short:
        return [f"texts within {stated.trained_len:,} tokens change too; `ropewalk compare` measures by how much"]
    if stated.length > stated.trained_len and stated.window is None:
        return [f"nothing stretches the model: its loss rises beyond {stated.trained_len:,} tokens, its trained length"]
    return []


def note_stretch(config: Any, facts: Facts, length: int, extension: Extension) -> None:
    """Say in a config what the model was trained on, and what stretches it: the rope parameters may not show it."""
    text = config.get_text_config()
    before = stretch_in(text)
    trained = facts.trained_len if before is None else before.trained_len
    methods = "+".join(spec.name for specs in extension.specs.values() for spec in specs).replace(*AS_YARN)
    setattr(text, EXPORTED, asdict(Stretch(trained_len=trained, target_len=length, methods=methods)))


def _kinds(config: Any, turning: Sequence[ExtendedLayer]) -> tuple[str, ...]:
    """The types of the extended layers, where the config has rotary parameters per type."""
    text = config.get_text_config()
    if not any(isinstance(part, dict) for part in text.rope_parameters.values()):
        return ()
    return tuple(dict.fromkeys(type_of(layer, text.layer_types) for layer in turning))


def _state_window(model: StatedModel, window: int, layers: Sequence[ExtendedLayer]) -> StatedModel | DoesNotFit:
    """A window in all layers, in the model's config, or in Mistral's for a Llama; or the reason why neither has one."""
    if model.kinds or any(layer.probed.limit is not None for layer in layers):
        return _no_window("where some layers have a window already")
    if model.text.model_type == "llama":
        if model.config.attention_bias or model.config.mlp_bias:
            return _no_window("for a Llama whose projections have biases")
        values = {"model_type": "mistral", "architectures": ["MistralForCausalLM"]}
        model.config = MistralConfig.from_dict({**model.config.to_dict(), **values})  # Llama's attention with a window
    text = model.text
    if not hasattr(text, "sliding_window"):
        return _no_window(": the model's config has no sliding_window")
    text.sliding_window, model.window = window, window
    if getattr(text, "layer_types", None):
        text.layer_types = ["sliding_attention"] * len(layers)
    if hasattr(text, "use_sliding_window"):
        text.use_sliding_window, text.max_window_layers = True, 0
    return model


def _no_window(why: str) -> DoesNotFit:
    sentence = f"window cannot be exported {why}".replace(" :", ":")
    return DoesNotFit.because("reach", sentence, remedy="leave window out")


@dataclass(frozen=True, kw_only=True)
class Stretch(Checked):
    """A schedule that was added to a trained model: its rope parameters may not show it."""

    trained_len: Annotated[int, AT_LEAST_ONE, "tokens that the model was trained on, without the schedule"]
    target_len: Annotated[int, AT_LEAST_ONE, "tokens that it is stretched to"]
    methods: Annotated[str, "what stretches it"]


def stretch_in(text: Any) -> Stretch | None:
    """What `ropewalk export` noted in a config."""
    noted = getattr(text, EXPORTED, None)
    if noted is None:
        return None
    if not isinstance(noted, dict) or set(noted) != {field.name for field in fields(Stretch)}:
        raise Unreadable(EXPORTED, "what `ropewalk export` wrote", noted)
    with name_errors(EXPORTED):
        return Stretch(**noted)


def drafting_key(config: Any) -> str:
    """The key of a config that says how many layers draft tokens ahead (MTP); empty where none do."""
    values = vars(config.get_text_config())
    names = (name for name in values if "nextn" in name or "mtp" in name.split("_"))
    return next((name for name in names if isinstance(values[name], int) and values[name] > 0), "")


def language_model_key(config: Any) -> str:
    """The key under which the language model's config stands; empty where it is the whole config."""
    text = config.get_text_config()
    names = (name for name in vars(config) if getattr(config, name) is text)
    return "" if text is config else next(names, "text_config")
