"""A factor for each request inside vLLM: before each step, which table every token is rotated by.

The rotary modules have the tables of all factors one after the other (rotary.py). Keys of one factor are no use to
another, so a request's factor also goes into the names of its cached pages.

Source: vLLM 0.32, v1/worker/gpu_model_runner.py (`_prepare_inputs`) and v1/engine/core.py (`preprocess_add_request`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ropewalk.engines.layer_plan import ModelPlan, plans_of_model
from ropewalk.engines.vllm.plans import FIRST_RUNNER
from ropewalk.engines.vllm.plugin.rotary import OfRequests
from ropewalk.errors import DoesNotFit

_MODULES = "_ropewalk_modules"  # of vLLM's runner: the rotary modules that have several tables


def require_followed(vllm_config: Any) -> bool:
    """Whether a model has a factor for each request; refused is what runs a step's tokens in another order."""
    if plan_by_request(vllm_config.model_config) is None:
        return False
    parallel = vllm_config.parallel_config
    for odd, remedy in (
        (vllm_config.use_v2_model_runner, f"start it with {FIRST_RUNNER.strip()}"),
        (parallel.enable_dbo, "leave out --enable-dbo"),
        (parallel.prefill_context_parallel_size > 1, "leave out --prefill-context-parallel-size"),
    ):
        if odd:
            sentence = "a factor for each request needs a step's tokens in the order of its requests"
            raise DoesNotFit.because("request_factors", sentence, remedy=remedy)
    return True


def plan_by_request(model_config: Any) -> ModelPlan | None:
    """A plan of a model that is chosen for each request; None where one plan computes all."""
    plans = plans_of_model(model_config)
    return next((plan for plan in plans if plan.shorter), None)


def naming_factors(theirs: Callable[..., Any]) -> Callable[..., Any]:
    """`EngineCore.preprocess_add_request`: the names of a request's cached pages say its factor."""

    def preprocess_add_request(self: Any, request: Any) -> Any:
        plan = plan_by_request(self.vllm_config.model_config)
        if plan is not None:
            ids, embedded = request.prompt_token_ids, request.prompt_embeds
            index = plan.index_of(_end(len(embedded if ids is None else ids), request.sampling_params))
            request.cache_salt = f"{request.cache_salt or ''} ropewalk {plan.by_request[index].target_len}"
        return theirs(self, request)

    return preprocess_add_request


def choosing_tables(theirs: Callable[..., Any]) -> Callable[..., Any]:
    """The runner's `_prepare_inputs`: each token's table too."""

    def _prepare_inputs(self: Any, scheduler_output: Any, num_scheduled_tokens: Any) -> Any:
        prepared = theirs(self, scheduler_output, num_scheduled_tokens)
        if not hasattr(self, _MODULES):
            modules = self.get_model().modules()
            setattr(self, _MODULES, [one for one in modules if isinstance(one, OfRequests) and one.starts])
        requests = [self.requests[name] for name in self.input_batch.req_ids]
        lengths = [_end(request.num_prompt_tokens, request.sampling_params) for request in requests]
        for module in getattr(self, _MODULES):
            module.choose(lengths, num_scheduled_tokens)
        return prepared

    return _prepare_inputs


def _end(prompt: int, sampling: Any) -> int:
    """How many tokens a request may have with its answer; one that only pools has none."""
    return prompt + (sampling.max_tokens or 0 if sampling else 0)
