"""A config for Ropewalk's plugin in vLLM: its plan is read, and refused, as the plugin does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.metadata import entry_points
from typing import Any

from ropewalk.engines.check.versions import ChosenEngine
from ropewalk.engines.layer_plan import KEY, ModelPlan, methods_in_files
from ropewalk.engines.rules.rotation import NoAnswer, RopeConfig
from ropewalk.engines.vllm.versions import UNSUPPORTED, why_not_reached, why_unknown
from ropewalk.errors import RopewalkError
from ropewalk.extension.outside import is_known

ANEW = "export it again from the original model"
ATTENTION = ("attention", "full_attention", "sliding_attention", "chunked_attention")


def plan_of_part(part: Mapping[str, Any]) -> ModelPlan | NoAnswer:
    """The plan among rope parameters, or what is wrong with it."""
    text = part.get(KEY)
    if not isinstance(text, str):
        what = "has no plan" if text is None else "has a plan that is not the text of an export"
        return NoAnswer("refused", f"the config is for Ropewalk's plugin in vLLM, and {what}", ANEW)
    try:
        if unread := [method for method in methods_in_files(text) if not is_known(method)]:
            sentence = f"{unread[0].name} of the plan is code in {unread[0].file}, which was not allowed to run here"
            remedy = "read that file, then check, and start vLLM, with --trust-remote-code"
            return NoAnswer("unknown", sentence, remedy)
        return ModelPlan.from_json(text)
    except RopewalkError as wrong:
        return NoAnswer("refused", f"the plan in the config cannot be read: {wrong}", ANEW)


def find_plan(config: RopeConfig, name: str, engine: ChosenEngine, served: int) -> ModelPlan | NoAnswer:
    """The plan of one type of layer, or the reason why vLLM with the plugin does not load it."""
    if engine.rules.name != "vllm":
        sentence = f"{engine.rules.name} knows no rope type {KEY!r}; Ropewalk's plugin is for vLLM"
        return NoAnswer("refused", sentence, ANEW)
    plan = plan_of_part(config.parts[name])
    if isinstance(plan, NoAnswer):
        return plan
    reasons = _reasons(plan, config, name, engine.written, served)
    return next((NoAnswer("refused", sentence, remedy) for sentence, remedy in reasons), plan)


def _reasons(plan: ModelPlan, config: RopeConfig, name: str, version: str, served: int) -> Iterator[tuple[str, str]]:
    """Why vLLM with the plugin refuses a plan that can be read."""
    if unknown := why_unknown(version):
        yield unknown, "install a version that was tested, or a newer Ropewalk"
    if not_reached := why_not_reached(config.model_type):
        yield f"{not_reached}: it does not compute {plan.line}", "rw.load the original model with it"
    if config.latent:
        yield f"{plan.line} cannot be computed where keys are latent (MLA)", "rw.load the original model with it"
    for key in UNSUPPORTED:
        if config.parts[name].get(key):
            yield f"Ropewalk's rotary module for vLLM does not support {key}", ANEW
    if wrong := _wrong_layers(plan, config.text):
        yield wrong, ANEW
    longest = f"the plan is for {plan.target_len:,} tokens at most"
    if plan.target_len < config.max_len:
        yield f"{longest}, and max_position_embeddings is {config.max_len:,}", ANEW
    if plan.target_len < served:
        yield f"{longest}, not {served:,}", f"{ANEW}, with --to {served}"


def _wrong_layers(plan: ModelPlan, text: Mapping[str, Any]) -> str:
    """What is wrong with the number of layers; a plan may end before layers that have no attention."""
    layers, count = len(plan.layers), text.get("num_hidden_layers")
    kinds = text.get("layer_types") or text.get("layers_block_type") or ()
    rest = kinds[layers:] if isinstance(kinds, list | tuple) else ()
    if not isinstance(count, int):
        return ""
    alike = layers == count or (rest and layers < len(kinds) == count and not any(kind in ATTENTION for kind in rest))
    return "" if alike else f"the plan has {layers} layers, and num_hidden_layers is {count}"


def is_missing(installed: str) -> bool:
    """Whether vLLM is installed in this environment without the plugin."""
    return bool(installed) and not any(point.name == KEY for point in entry_points(group="vllm.general_plugins"))
