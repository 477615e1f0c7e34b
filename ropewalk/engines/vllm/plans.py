"""Export for an engine with Ropewalk's plugin: the model's own weights, and in its config the plan of every layer.

No engine is needed: the folder's weights are loaded and compared, and the plan is read back as the plugin reads it.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from ropewalk.engines.layer_plan import KEY, LayerPlan, ModelPlan
from ropewalk.engines.rules.statement import QUERY_SCALE, note_stretch
from ropewalk.engines.vllm.versions import why_not_reached
from ropewalk.errors import DoesNotFit
from ropewalk.extension.extension import Extension
from ropewalk.extension.inputs import layer_extension
from ropewalk.extension.outside import require_portable, write_files
from ropewalk.extension.static import freeze, is_dynamic, request_lengths, why_not_in_pages
from ropewalk.hf.attach.attention import why_not_supported
from ropewalk.hf.attach.handle import Handle
from ropewalk.hf.checkpoint.closed_config import ROPE_TYPE
from ropewalk.hf.checkpoint.config_schedule import why_not_valid
from ropewalk.hf.checkpoint.fetch import TRUST, fetch_config, fetch_model, runs_own_code
from ropewalk.hf.checkpoint.sidecar import is_same, whole_state
from ropewalk.hf.probe.capture import OWN_MASK
from ropewalk.hf.probe.facts import SCHEDULE, TwoTables
from ropewalk.hf.probe.host import loadable_config, quiet, require_savable
from ropewalk.hf.runtime.layer import ExtendedLayer, freeze_layer, is_lifted, type_of
from ropewalk.hf.use.save import save_weights
from ropewalk.methods.facts import MODEL
from ropewalk.methods.spec import Spec

TRUSTING = " --trust-remote-code"  # methods in files of the folder run with it, and are refused without
TEXT_ALONE = " --language-model-only"
FIRST_RUNNER = "VLLM_USE_V2_MODEL_RUNNER=0 "  # the only one that tells the plugin whose token is whose
Plans = dict[str, ModelPlan]  # by type of layer; under "" where all layers share their rope parameters


def plans_for(host: PreTrainedModel, handle: Handle, target_len: int | None) -> Plans | DoesNotFit:
    """The plan of every layer, or the reason why no plan can say it."""
    length = _length(handle, target_len)
    text, line = host.config.get_text_config(), line_of(handle.extension)
    if length is None:
        return DoesNotFit.because("target_len", f"{line} has no length of its own", remedy="pass target_len (--to)")
    if reason := _why_not_planned(text, handle):
        return reason
    require_portable(handle.extension.methods)
    kinds, indices = _kinds(text), _indices(host, handle.layers)
    if isinstance(indices, DoesNotFit):
        return indices
    layers: dict[str, dict[int, LayerPlan]] = {}
    for layer, index in zip(handle.layers, indices, strict=True):
        kind = type_of(layer, text.layer_types) if kinds else ""
        if _is_changed(layer, bool(kinds)):
            layers.setdefault(kind, {})[index] = _plan_layer(layer)
    plans = {
        kind: ModelPlan(tuple(map(chosen.get, range(1 + max(indices)))), length, line, version("ropewalk"))
        for kind, chosen in layers.items()
    }
    if not plans:
        return DoesNotFit.because("model", "the extension changes no layer of this model")
    by_tables = all(plan.is_tables for plan in plans.values())
    return (None if by_tables else _why_not_attended(handle.layers)) or plans


def plans_by_request(
    host: PreTrainedModel, handle: Handle, factors: Sequence[float], target_len: int | None
) -> Plans | DoesNotFit:
    """Plans of which a request takes that of the smallest factor that covers it, or why there are none."""
    line, lengths = line_of(handle.extension), request_lengths(factors, handle.facts)
    if not is_dynamic(handle.extension):
        sentence = f"{line} has no factor that a request could choose"
        return DoesNotFit.because("request_factors", sentence, remedy="export a dynamic one, such as dynamic_yarn")
    if target_len not in (None, lengths[-1]):
        rule = f"{lengths[-1]}, which the largest factor covers, or left out"
        return DoesNotFit("target_len", rule, target_len, remedy="name the factor of that length last")
    by_length: list[Plans] = []
    for length in lengths:
        layers = tuple(freeze_layer(layer, length) for layer in handle.layers)
        static = replace(handle, extension=freeze(handle.extension, handle.facts, length), layers=layers)
        plans = plans_for(host, static, length)
        if isinstance(plans, DoesNotFit):
            return plans
        if why := next((plan.why_not_tables for plan in plans.values() if not plan.is_tables), ""):
            return DoesNotFit.because("request_factors", f"a factor for each request is chosen among tables, and {why}")
        by_length.append(plans)
    *shorter, whole = by_length
    said = f"{line}, static at {', '.join(f'{factor:g}' for factor in factors)} by request"
    return {
        kind: replace(plan, line=said, shorter=tuple(plans[kind] for plans in shorter)) for kind, plan in whole.items()
    }


def line_of(extension: Extension) -> str:
    """The methods of an extension in a line, for people; layers of their own are only mentioned."""
    specs = "+".join(spec.under(spec.name) for specs in extension.specs.values() for spec in specs) or "rope"
    return f"{specs} with layers of their own" if extension.layers else specs


def is_for_text_alone(plans: Plans, config: Any) -> bool:
    """Whether a model sees images and gives their tokens several positions, and a plan has one position a token."""
    text = config.get_text_config()
    sees = text is not config and bool((text.rope_parameters or {}).get("mrope_section"))
    return sees and not all(plan.reads_images for plan in plans.values())


def complete(command: str, plans: Plans, config: Any) -> str:
    """A command that starts vLLM, with what plans need of it."""
    chooses = any(plan.shorter for plan in plans.values())
    runs = any(spec.origin.sha256 for spec in methods_of(plans))
    return FIRST_RUNNER * chooses + command + TRUSTING * runs + TEXT_ALONE * is_for_text_alone(plans, config)


def methods_of(plans: Plans) -> list[Spec]:
    """The methods of all plans, without repeats."""
    every = [layer for plan in plans.values() for one in plan.by_request for layer in one.planned]
    return list(dict.fromkeys(spec for layer in every for spec in layer.extension.methods))


def notes_on_methods(plans: Plans) -> list[str]:
    """What vLLM needs for methods that are not Ropewalk's."""
    methods = methods_of(plans)
    packages = dict.fromkeys(spec.origin.package for spec in methods if spec.origin.package)
    files = dict.fromkeys(spec.origin.file for spec in methods if spec.origin.file)
    return [
        *(f"vLLM needs {package} installed in its environment too: a method comes from it" for package in packages),
        *(f"{file} is a method's code, which vLLM runs with --trust-remote-code alone" for file in files),
    ]


def write_plans(host: PreTrainedModel, plans: Plans, place: Path) -> None:
    """Write the weights and the config with its plans, and read both back."""
    require_savable(host)
    save_weights(host, place)
    config_with(host, plans).save_pretrained(place)
    write_files(methods_of(plans), place)
    _verify(host, plans, place)


def config_with(host: PreTrainedModel, plans: Plans) -> Any:
    """A copy of the model's config with the plans in its rope parameters."""
    config = copy.deepcopy(host.config)
    config._attn_implementation = None
    config.architectures, config.dtype = [type(host).__name__], host.dtype
    text = config.get_text_config()
    parts = text.rope_parameters or {}
    for kind, plan in plans.items():
        stated = _with_plan(parts[kind] if kind else parts, plan)
        if kind:
            text.rope_parameters[kind] = stated
        else:
            text.rope_parameters = stated
    if reason := why_not_valid(text):
        raise reason
    plan = next(iter(plans.values()))
    text.max_position_embeddings = plan.target_len
    first = plan.planned[0]
    if plan.target_len > first.facts.trained_len:
        note_stretch(config, first.facts, plan.target_len, first.extension)
    setattr(text, KEY, plan.line)  # an engine whose options replace the rope parameters would leave no trace else
    return config


def _with_plan(part: dict[str, Any], plan: ModelPlan) -> dict[str, Any]:
    """Rope parameters with a plan in place of a schedule; the model's layout stays."""
    layout = {name: value for name, value in part.items() if name not in SCHEDULE}
    if QUERY_SCALE in part:
        layout["original_max_position_embeddings"] = part["original_max_position_embeddings"]
    return {**layout, "rope_type": ROPE_TYPE, "rope_theta": plan.planned[0].facts.base, KEY: plan.to_json()}


def _kinds(text: Any) -> tuple[str, ...]:
    """The types of layers, where each has rope parameters of its own."""
    parts = text.rope_parameters or {}
    return tuple(kind for kind, part in parts.items() if isinstance(part, dict))


def _is_changed(layer: ExtendedLayer, separate: bool) -> bool:
    """Whether the engine needs a plan for a layer. `separate`: whether its type has rope parameters of its own."""
    if layer.left_alone:
        return layer.probed.rotating > 0 and not separate  # it shares a rotary module with layers that are changed
    local = layer.extension
    return layer.probed.rotating > 0 or bool(local.reach or local.biases or local.scales)


def _plan_layer(layer: ExtendedLayer) -> LayerPlan:
    probed = layer.probed
    weights = {name: group for name, group in layer.weights.items() if name != MODEL}
    return LayerPlan(
        extension=layer.extension,
        facts=layer.facts,
        scaling=probed.scaling,
        query_factor=layer.factor / (probed.scaling * math.sqrt(probed.head_dim)),
        rotating_factor=layer.rotating_factor,
        window=probed.window if layer.keeps_window else None,
        rotates=probed.rotating > 0,
        norm_follows=probed.norm_follows,
        weights={name: {key: x.detach().double().cpu() for key, x in group.items()} for name, group in weights.items()},
    )


def _length(handle: Handle, target_len: int | None) -> int | None:
    """The length that the engine may serve: as asked, or the schedule's; None where neither states one."""
    stretch = handle.extension.frequencies_or_rope.stretch
    if target_len is not None:
        return target_len
    return None if math.isinf(stretch) or stretch == 1 else int(handle.facts.trained_len * stretch)


def _indices(host: PreTrainedModel, layers: Sequence[ExtendedLayer]) -> list[int] | DoesNotFit:
    """The numbers of the attention layers in the model's list of layers, which may contain layers without attention."""
    names = {module: name for name, module in host.named_modules()}
    numbers = [[int(part) for part in names[layer.probed.module].split(".") if part.isdecimal()] for layer in layers]
    indices = [of_layer[0] for of_layer in numbers if len(of_layer) == 1]
    if len(indices) < len(layers) or len(set(indices)) < len(layers):
        name = names[layers[0].probed.module]
        return DoesNotFit("model", "one whose attention layers are numbered, one in each layer", name)
    return indices


def _why_not_planned(text: Any, handle: Handle) -> DoesNotFit | None:
    """What vLLM would compute otherwise, whatever the plan says; None where there is nothing."""
    if reason := why_not_reached(text.model_type):
        static = "--no-plugin makes the schedule static" if is_dynamic(handle.extension) else ""
        return DoesNotFit.because("model", reason, remedy=static)
    if not hasattr(text, "rope_parameters"):
        return DoesNotFit("config", "one with rope parameters", type(text).__name__)
    if getattr(text, "kv_lora_rank", None):
        return DoesNotFit.because("model", "the plugin for vLLM cannot extend attention whose keys are latent (MLA)")
    for layer in handle.layers:
        if layer.probed.own_mask:
            sentence = f"layer {layer.depth} {OWN_MASK}, which the plugin for vLLM does not carry"
            return DoesNotFit.because("model", sentence)
        if layer.probed.chunk is not None:
            return DoesNotFit.because("model", "the plugin for vLLM does not support layers that attend within chunks")
        if is_lifted(layer):
            sentence = "lifted windows cannot be exported: vLLM frees the keys that leave a model's own window"
            return DoesNotFit.because("windows", sentence)
        if isinstance(layer.extension.frequencies_or_rope, TwoTables):
            sentence = "a plan cannot hold the checkpoint's two tables, one for short texts and one for long ones"
            return DoesNotFit.because("frequencies", sentence, remedy="add +instead to replace both")
    return None


def _why_not_attended(layers: Sequence[ExtendedLayer]) -> DoesNotFit | None:
    """Which layers Ropewalk's attention in vLLM does not compute as transformers does, and why; None where it does."""
    if reason := why_not_supported([layer.probed for layer in layers]):
        return reason
    for layer in layers:
        if reason := why_not_in_pages(layer.extension, layer.facts):
            return reason
        layer_extension(layer.extension, layer.facts, layer.weights)  # refuses a table that is not finite
        if layer.probed.slots:
            sentence = f"layer {layer.depth} attends several times in one forward"
            return DoesNotFit.because("model", f"{sentence}, and the plugin's attention does not")
        if layer.facts.weighted:
            sentence = f"layer {layer.depth} has norms with weights after the rotation"
            return DoesNotFit.because("model", f"{sentence}, and the plugin's attention does not")
        if layer.probed.first or layer.probed.clockwise:
            sentence = f"layer {layer.depth} rotates {'clockwise' if layer.probed.clockwise else 'other dimensions'}"
            return DoesNotFit.because("model", f"{sentence}, and the plugin's attention does not")
    return None


def _verify(host: PreTrainedModel, plans: Plans, place: Path) -> None:
    """Refuse a folder whose weights or plans are not the model's when they are read again."""
    trusting: dict[str, Any] = {TRUST: True} if runs_own_code(host) else {}
    same_config = {"config": loadable_config(host), "dtype": host.dtype, **trusting}
    again, info = fetch_model(place, output_loading_info=True, **same_config)
    state = whole_state(host)
    changed = [name for name, value in again.state_dict().items() if not is_same(value, state.get(name))]
    if info["missing_keys"] or changed:
        name = sorted([*info["missing_keys"], *changed])[0]
        raise DoesNotFit.because("model", f"the saved model is not the same when loaded: {name} differs")
    config = fetch_config(place, **trusting)
    _require_unknown_to_transformers(host, config)
    text = config.get_text_config()
    for kind, plan in plans.items():
        part = text.rope_parameters[kind] if kind else text.rope_parameters
        if ModelPlan.from_json(part[KEY]).to_json() != plan.to_json():
            raise DoesNotFit.because("plan", "the plan is not the same when it is read again")


def _require_unknown_to_transformers(host: PreTrainedModel, config: Any) -> None:
    """Refuse a model class that ignores the rope type: transformers would load the folder as the base model."""
    try:
        with torch.device("meta"), quiet(host):
            type(host)(config)
    except KeyError as unknown:
        if unknown.args == (ROPE_TYPE,):
            return
        raise
    sentence = f"{type(host).__name__} in transformers ignores the plan, and would load as the base model"
    raise DoesNotFit.because("model", sentence)
