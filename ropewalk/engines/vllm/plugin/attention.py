"""Ropewalk's attention inside vLLM, for layers that rotary modules cannot carry.

Keys come unrotated (rotary.py leaves them alone), are rotated as they are stored in vLLM's pages, and all requests of a
step are computed together by ropewalk.attention.paged: continuous batches, prompts in chunks, prefix caching and
drafts of a few tokens included. Every layer has its own plan, which comes with the model's config.

Source: vLLM 0.32, model_executor/layers/attention/attention.py and v1/attention/backend.py.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar

import torch
from torch import Tensor
from vllm.config import VllmConfig, get_current_vllm_config
from vllm.model_executor.layers.attention import Attention
from vllm.model_executor.models.utils import extract_layer_index
from vllm.platforms import current_platform
from vllm.v1.attention.backend import (
    AttentionBackend,
    AttentionImpl,
    AttentionMetadataBuilder,
    AttentionType,
    CommonAttentionMetadata,
    MultipleOf,
)
from vllm.v1.attention.backends import registry
from vllm.v1.kv_cache_interface import AttentionSpec, KVCacheLayout, KVCacheSpec

from ropewalk.attention.paged import PagedBatch, PagedLayer
from ropewalk.attention.paged.rows import PageStages
from ropewalk.attention.problem import layer_terms
from ropewalk.engines.layer_plan import LayerPlan, plan_of_layer, plans_of_model
from ropewalk.engines.vllm.plugin.cpu_kernel import by_kernel
from ropewalk.engines.vllm.plugin.pages import page_spec
from ropewalk.errors import DoesNotFit
from ropewalk.methods.facts import MODEL, SINKS

WITHOUT = "serve this model without Ropewalk's extension"
AGAIN = "export the model again, from the checkpoint that vLLM loads"
FLOATS = ("auto", "float32", "float16", "bfloat16")


class RopewalkBackend(AttentionBackend):
    """Attention over pages of ropewalk's layout. On a CPU it goes by the name of vLLM's own, which knows no other."""

    forward_includes_kv_cache_update = True  # rotating a key needs its position, which only `forward` knows
    supported_dtypes: ClassVar[list[torch.dtype]] = [torch.float16, torch.bfloat16, torch.float32]

    @staticmethod
    def get_name() -> str:
        """vLLM's name of this backend."""
        return "CPU_ATTN" if current_platform.is_cpu() else "CUSTOM"

    @staticmethod
    def get_impl_cls() -> type[AttentionImpl]:
        """The implementation of one layer."""
        return RopewalkImpl

    @staticmethod
    def get_builder_cls() -> type[AttentionMetadataBuilder]:
        """What makes a step's metadata."""
        return BatchBuilder

    @staticmethod
    def get_supported_kernel_block_sizes(kv_cache_spec: Any = None) -> list[int | MultipleOf]:
        """Pages of any size."""
        return [MultipleOf(1)]

    @classmethod
    def supported_kv_cache_layouts(cls) -> tuple[KVCacheLayout, ...]:
        """Each page is one piece of memory."""
        return (KVCacheLayout.LBHNC,)

    @classmethod
    def supports_sink(cls) -> bool:
        """A model's own sinks are computed."""
        return True

    @classmethod
    def supports_sliding_window(cls) -> bool:
        """A plan has the window that its layer keeps."""
        return True


@dataclass
class StepMetadata:
    """What vLLM hands to every layer in a step."""

    batch: PagedBatch
    num_actual_tokens: int


class BatchBuilder(AttentionMetadataBuilder[StepMetadata]):
    """Makes the batch of a step once, for all layers whose pages are numbered alike."""

    def __init__(
        self, kv_cache_spec: AttentionSpec, layer_names: list[str], vllm_config: VllmConfig, device: torch.device
    ) -> None:
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)

    def build(
        self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata, fast_build: bool = False
    ) -> StepMetadata:
        """The requests of this step."""
        step = common_attn_metadata
        if step.causal is not True:
            sentence = "Ropewalk's attention is causal, and this model needs another mask"
            raise DoesNotFit.because("attention", sentence, remedy=WITHOUT)
        starts = step.query_start_loc_cpu[: step.num_reqs + 1].tolist()
        lengths = step.seq_lens[: step.num_reqs].tolist()
        size = self.kv_cache_spec.block_size
        batch = PagedBatch(starts, lengths, step.block_table_tensor, step.slot_mapping, size=size)
        return StepMetadata(batch, step.num_actual_tokens)


class RopewalkImpl(AttentionImpl[StepMetadata]):
    """One layer's attention. `follow` gives it its plan before anything is computed."""

    def __init__(
        self,
        num_heads: int,
        head_size: int,
        scale: float,
        num_kv_heads: int | None = None,
        alibi_slopes: list[float] | None = None,
        sliding_window: int | None = None,
        kv_cache_dtype: str = "auto",
        logits_soft_cap: float | None = None,
        attn_type: str = AttentionType.DECODER,
        kv_sharing_target_layer_name: str | None = None,
        sinks: Tensor | None = None,
        **more: Any,
    ) -> None:
        self.num_heads, self.head_size, self.scale = num_heads, head_size, float(scale)
        self.num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        self.sinks, self.sliding_window, self.kv_cache_dtype = sinks, sliding_window, kv_cache_dtype
        self.softcap = logits_soft_cap or None
        for name, value in {"alibi_slopes": alibi_slopes, **more}.items():
            if value is not None:
                sentence = f"this model passes {name} to vLLM's attention, which Ropewalk's does not support"
                raise DoesNotFit.because("attention", sentence, remedy=WITHOUT)
        if attn_type != AttentionType.DECODER or kv_sharing_target_layer_name is not None:
            sentence = "Ropewalk supports decoder layers with their own keys in vLLM"
            raise DoesNotFit.because("attention", sentence, remedy=WITHOUT)
        if kv_cache_dtype not in FLOATS:
            rule = "a floating type, not quantised: Ropewalk's attention reads its pages itself, and keeps no scales"
            remedy = "give --kv-cache-dtype bfloat16, or export a static schedule, which vLLM's own attention computes"
            raise DoesNotFit("kv_cache_dtype", rule, kv_cache_dtype, remedy=remedy)
        self._stages: PageStages | None = None

    def follow(self, plan: LayerPlan) -> None:
        """Take a plan, after checking that vLLM computes the rest of the layer as the plan supposes."""
        self._require_alike(plan)
        extra = plan.query_factor * plan.scaling * math.sqrt(self.head_size)
        self.query_factor, self.rotating_factor = extra, plan.rotating_factor
        self.rotating = plan.facts.rotating
        build = shared_layer if self.sinks is None else paged_layer  # sinks are the layer's own weights
        self.paged = build(plan, self.num_heads, self.num_kv_heads, self.sinks)

    def _require_alike(self, plan: LayerPlan) -> None:
        facts = plan.facts
        if self.head_size != facts.head_dim or self.num_heads * facts.groups != self.num_kv_heads * facts.heads:
            ours = (facts.heads, facts.groups, facts.head_dim)
            theirs = (self.num_heads, self.num_kv_heads, self.head_size)
            sentence = f"vLLM's layer has {theirs} heads, key heads and size, the export has {ours}"
            raise DoesNotFit.because("heads", sentence, remedy=AGAIN)
        if self.softcap != facts.softcap or (self.sinks is not None) != facts.sinks:
            sentence = "vLLM's cap on the logits, or its sinks, are not those of the export"
            raise DoesNotFit.because("attention", sentence, remedy=AGAIN)
        divided = self.num_heads != facts.heads
        if divided and (plan.extension.biases or len(plan.row_scale(torch.arange(2))) > 1):
            sentence = "biases and scales of each head are not supported with tensor parallelism"
            raise DoesNotFit.because("tensor_parallel_size", sentence, remedy="run with tensor_parallel_size=1")

    def forward(
        self,
        layer: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        kv_cache: Tensor,
        attn_metadata: StepMetadata | None,
        output: Tensor,
        output_scale: Tensor | None = None,
        output_block_scale: Tensor | None = None,
    ) -> Tensor:
        """Store the step's keys and values, and write the outputs of all its tokens."""
        if attn_metadata is None:  # vLLM only measures memory
            return output.zero_()
        if output_scale is not None or output_block_scale is not None:
            raise DoesNotFit.because("attention", "Ropewalk's attention writes no quantised outputs")
        count = attn_metadata.num_actual_tokens
        blocks, groups = kv_cache.shape[:2]
        pages = kv_cache.view(blocks, groups, self.paged.lanes, -1, self.head_size)
        self.paged = by_kernel(self.paged, pages.shape[3], pages.dtype)
        q_thd = self._scaled(query[:count])
        out_thd = self.paged.read(pages, q_thd, key[:count], value[:count], attn_metadata.batch, self._stages_of(pages))
        output[:count] = out_thd.view_as(output[:count])
        return output

    def _scaled(self, q_thd: Tensor) -> Tensor:
        """Queries whose logits have the model's scaling and temperature once they are divided by sqrt(d)."""
        if not math.isclose(self.query_factor, 1, rel_tol=1e-12):
            q_thd = q_thd * self.query_factor
        if self.rotating_factor == 1:
            return q_thd
        return torch.cat([q_thd[..., : self.rotating] * self.rotating_factor, q_thd[..., self.rotating :]], -1)

    def _stages_of(self, pages: Tensor) -> PageStages | None:
        if self._stages is None and self.paged.has_stages:
            self._stages = PageStages(len(pages))
        return self._stages


def paged_layer(plan: LayerPlan, heads: int, groups: int, sink_h: Tensor | None) -> PagedLayer:
    """The layer's attention, for the heads of this device."""
    facts = replace(plan.facts, heads=heads, kv_heads=groups)
    sinks = {} if sink_h is None else {MODEL: {SINKS: sink_h}}
    with torch.device("cpu"):  # vLLM builds models under a default device
        return PagedLayer(layer_terms(plan.extension, facts, {**plan.weights, **sinks}))


# Layers of one plan share their attention, and with it what a step computes once.
shared_layer = lru_cache(maxsize=256)(paged_layer)


class ExtendedAttention(Attention):
    """vLLM's attention layer with Ropewalk's implementation, and pages as that needs them."""

    impl: RopewalkImpl

    def get_kv_cache_spec(self, vllm_config: VllmConfig) -> KVCacheSpec | None:
        """The layer's pages."""
        return page_spec(super().get_kv_cache_spec(vllm_config), self.impl.paged)


def following_plans(theirs: Callable[..., None]) -> Callable[..., None]:
    """`Attention.__init__`: an extended layer where the model's config has a plan for it, else vLLM's."""
    signature = inspect.signature(theirs)

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        plan = _plan_for(signature.bind(self, *args, **kwargs).arguments.get("prefix", ""))
        if plan is None:
            theirs(self, *args, **kwargs)
            return
        if type(self) is not Attention:
            raise DoesNotFit("attention layer", "vLLM's Attention", type(self).__name__)
        theirs(self, *args, **{**kwargs, "attn_backend": RopewalkBackend})
        self.__class__, self.sliding_window = ExtendedAttention, None  # the plan has the window, if the layer keeps it
        self.impl.follow(plan)

    return __init__


def register_backend() -> None:
    """Name the backend where vLLM looks names up; may be called again."""
    if not current_platform.is_cpu():
        registry.register_backend(registry.AttentionBackendEnum.CUSTOM, f"{__name__}.{RopewalkBackend.__name__}")


def _plan_for(name: str) -> LayerPlan | None:
    """The plan of the layer that is being built, where it needs Ropewalk's attention."""
    config = get_current_vllm_config().model_config
    if config is None or not plans_of_model(config):
        return None
    planned = plan_of_layer(config.hf_text_config, extract_layer_index(name))
    return None if planned is None or planned[0].is_tables else planned[1]
