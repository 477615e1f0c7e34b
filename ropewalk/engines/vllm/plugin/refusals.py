"""What is refused while vLLM loads a model: an extension is never left out silently."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from torch import nn
from vllm.model_executor.layers.attention import Attention
from vllm.model_executor.models.utils import extract_layer_index

from ropewalk.engines.layer_plan import KEY, LayerPlan, ModelPlan, plan_of_layer, plans_of, plans_of_model
from ropewalk.engines.vllm.plugin.rotary import Module
from ropewalk.errors import DoesNotFit


def require_loadable(model_config: Any) -> None:
    """Refuse, before a model is made, what would change or drop its plan."""
    text, overrides = model_config.hf_text_config, model_config.hf_overrides
    plans = plans_of_model(model_config)
    if not plans:
        if line := getattr(text, KEY, None):
            sentence = f"the config says that the model is under {line}, but its rope_parameters have no plan"
            raise DoesNotFit.because("rope_parameters", sentence, remedy="leave out --hf-overrides, or export it again")
        return
    names = overrides if isinstance(overrides, Mapping) else ()
    touched = [name for name in names if "rope" in name or "rotary" in name]
    if touched:
        sentence = f"--hf-overrides changes {touched[0]}, while the model is under {plans[0].line}"
        raise DoesNotFit.because("hf_overrides", sentence, remedy="leave it out, or export the model that you want")
    for plan in plans:
        if model_config.max_model_len > plan.target_len:
            rule = f"at most {plan.target_len}, the length that the model was exported for"
            remedy = "export it for that length (--to)"
            raise DoesNotFit("max_model_len", rule, model_config.max_model_len, remedy=remedy)
    if model_config.using_transformers_backend():
        sentence = f"vLLM runs this model by transformers' code, where the plugin cannot compute {plans[0].line}"
        remedy = "leave out --model-impl transformers; if it was not given, vLLM has no code of its own for the model"
        raise DoesNotFit.because("model_impl", sentence, remedy=remedy)
    if model_config.uses_mrope and not all(plan.reads_images for plan in plans):
        seeing = model_config.multimodal_config
        if seeing is not None and any(seeing.get_limit_per_prompt(kind) for kind in ("image", "video", "audio")):
            sentence = f"{plans[0].line} is computed for text alone: tokens of images have several positions (M-RoPE)"
            raise DoesNotFit.because("model", sentence, remedy="add --language-model-only")
    if model_config.use_mla:
        raise DoesNotFit.because("model", f"{plans[0].line} cannot be computed where keys are latent (MLA)")


def require_applied(model: nn.Module, model_config: Any, *, whole: bool) -> None:
    """Refuse a model that was made without the modules of its plan. `whole`: not one stage of a pipeline."""
    text = model_config.hf_text_config
    plans = plans_of(text)
    if not plans:
        return
    seen = set()
    for name, module in model.named_modules():
        if isinstance(module, Attention):
            index = extract_layer_index(name)
            _require_layer(model, name, module, plan_of_layer(text, index), max(len(plan.layers) for plan in plans))
            seen.add(index)
    wanted = {index for plan in plans for index, layer in enumerate(plan.layers) if layer is not None}
    if whole and not wanted <= seen:
        sentence = f"{type(model).__name__} has no attention layer {min(wanted - seen)}, which the plan changes"
        raise DoesNotFit.because("layers", sentence)


def _require_layer(
    model: nn.Module, name: str, module: Any, planned: tuple[ModelPlan, LayerPlan] | None, layers: int
) -> None:
    """Refuse an attention layer that does not compute its plan."""
    if planned is None:
        if extract_layer_index(name) >= layers:
            raise DoesNotFit.because("layers", f"{name} is an attention layer that the plan does not know")
        return
    plan, layer = planned
    parent = model.get_submodule(name.rpartition(".")[0])
    rotary = [child for child in parent.children() if isinstance(child, Module) and child.plan is plan]
    if layer.rotates and not rotary:
        sentence = f"{type(model).__name__} does not take the rotation of {name} from get_rope"
        raise DoesNotFit.because("model", sentence, remedy=f"vLLM cannot compute {plan.line} for this model")
    if not math.isclose(module.impl.scale, layer.scaling, rel_tol=1e-6):
        raise DoesNotFit(f"the scaling of {name}", f"{layer.scaling:.6g}, as in transformers", module.impl.scale)
    if not plan.is_tables:
        _require_our_attention(plan, name, module)


def _require_our_attention(plan: ModelPlan, name: str, module: Any) -> None:
    """Refuse a layer that was built without Ropewalk's attention."""
    from ropewalk.engines.vllm.plugin.attention import ExtendedAttention

    if not isinstance(module, ExtendedAttention):
        sentence = f"{name} is a {type(module).__name__} of vLLM's, but {plan.why_not_tables}"
        raise DoesNotFit.because("attention", sentence)
