"""What vLLM calls in each of its processes (entry point `vllm.general_plugins`), once or several times."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

from ropewalk.engines.layer_plan import plan_in, plans_of
from ropewalk.engines.vllm.versions import UNSUPPORTED, why_unknown
from ropewalk.errors import DoesNotFit

_OURS = "_from_ropewalk"  # of a function of vLLM that was replaced: it was done already


def register() -> None:
    """Replace what vLLM makes rotary modules and models with. A config without a plan gets what it got before."""
    import vllm
    from vllm.model_executor.layers import rotary_embedding
    from vllm.model_executor.model_loader import utils

    unknown = why_unknown(vllm.__version__)
    _replace(
        rotary_embedding, "get_rope", lambda theirs: _refuse_plans(theirs, unknown) if unknown else _with_plan(theirs)
    )
    _replace(utils, "initialize_model", lambda theirs: _refuse_unplanned(theirs, unknown))
    if not unknown:
        from vllm.model_executor.layers.attention import Attention
        from vllm.v1.engine.core import EngineCore

        from ropewalk.engines.vllm.plugin import attention, by_request, pages

        _replace(EngineCore, "preprocess_add_request", by_request.naming_factors)
        _replace(Attention, "__init__", attention.following_plans)
        attention.register_backend()
        pages.register_pages()


def _replace(module: Any, name: str, made: Callable[[Any], Any]) -> None:
    """Replace a function where it is defined, a module or a class, and in modules that imported it already."""
    theirs = getattr(module, name)
    if hasattr(theirs, _OURS):
        return
    ours = wraps(theirs)(made(theirs))
    setattr(ours, _OURS, True)
    for holder in [module, *sys.modules.values()]:
        if getattr(holder, "__dict__", {}).get(name) is theirs:
            setattr(holder, name, ours)


def _with_plan(theirs: Callable[..., Any]) -> Callable[..., Any]:
    """`get_rope`: our module where the rope parameters have a plan, else vLLM's."""
    signature = inspect.signature(theirs)

    def get_rope(*args: Any, **kwargs: Any) -> Any:
        asked = signature.bind(*args, **kwargs)
        asked.apply_defaults()
        plan = plan_in(asked.arguments["rope_parameters"])
        if plan is None:
            return theirs(*args, **kwargs)
        from ropewalk.engines.vllm.plugin.rotary import Sections, rotary_module

        values = asked.arguments
        head_size, parameters = values["head_size"], values["rope_parameters"]
        _require_plain(parameters, values["dual_chunk_attention_config"])
        rotary_dim = parameters.get("rope_dim") or int(head_size * parameters.get("partial_rotary_factor", 1.0))
        neox = values["is_neox_style"]
        section, interleaved = parameters.get("mrope_section"), bool(parameters.get("mrope_interleaved"))
        axes = Sections(tuple(section), interleaved, values["mrope_positions_factor"]) if section else None
        return rotary_module(plan, head_size, rotary_dim, values["max_position"], neox, values["dtype"], axes)

    return get_rope


def _require_plain(parameters: dict[str, Any], dual_chunk: Any) -> None:
    """Refuse what else a rotary module of vLLM may do."""
    other = [name for name in UNSUPPORTED if parameters.get(name)]
    other += ["dual_chunk_attention_config"] * bool(dual_chunk)
    if other:
        raise DoesNotFit.because("rope_parameters", f"Ropewalk's rotary module for vLLM does not support {other[0]}")


def _refuse_unplanned(theirs: Callable[..., Any], unknown: str) -> Callable[..., Any]:
    """`initialize_model`: refuses what would be computed without its plan."""

    def initialize_model(vllm_config: Any, *args: Any, model_config: Any = None, **kwargs: Any) -> Any:
        config = model_config or vllm_config.model_config
        if unknown:
            if plans_of(config.hf_text_config):
                raise _unknown(unknown)
            return theirs(vllm_config, *args, model_config=model_config, **kwargs)
        from ropewalk.engines.vllm.plugin.by_request import choosing_tables, require_followed
        from ropewalk.engines.vllm.plugin.refusals import require_applied, require_loadable

        require_loadable(config)
        if require_followed(vllm_config):
            from vllm.v1.worker.gpu_model_runner import GPUModelRunner

            _replace(GPUModelRunner, "_prepare_inputs", choosing_tables)
        model = theirs(vllm_config, *args, model_config=model_config, **kwargs)
        require_applied(model, config, whole=vllm_config.parallel_config.pipeline_parallel_size == 1)
        return model

    return initialize_model


def _refuse_plans(theirs: Callable[..., Any], unknown: str) -> Callable[..., Any]:
    """`get_rope` of an unknown version: a plan is refused."""
    signature = inspect.signature(theirs)

    def get_rope(*args: Any, **kwargs: Any) -> Any:
        if plan_in(signature.bind(*args, **kwargs).arguments.get("rope_parameters")) is not None:
            raise _unknown(unknown)
        return theirs(*args, **kwargs)

    return get_rope


def _unknown(reason: str) -> DoesNotFit:
    return DoesNotFit.because("vLLM", reason, remedy="install a version that was tested, or a newer Ropewalk")
