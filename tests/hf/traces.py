"""All that attaching could leave behind in a model."""

from typing import Any

import torch
from transformers.cache_utils import DYNAMIC_LAYER_TYPE_MAPPING, STATIC_LAYER_TYPE_MAPPING
from transformers.masking_utils import AttentionMaskInterface
from transformers.modeling_utils import AttentionInterface

IDS = torch.arange(3, 30)[None]


def trace(model: Any, *, numbers: bool = True) -> dict[str, Any]:
    """Names, keys, buffers, hooks, attributes, configs, modes; and what others share: classes and registries."""
    return {
        "modules": [(name, type(module).__name__, module.training) for name, module in model.named_modules()],
        "state": {name: numbers and value.sum().item() for name, value in model.state_dict().items()},
        "buffers": {name: numbers and value.double().sum().item() for name, value in model.named_buffers()},
        "hooks": [
            (len(module._forward_hooks), len(module._forward_pre_hooks), len(module._forward_hooks_with_kwargs))
            for module in model.modules()
        ],
        "attributes": [sorted(module.__dict__) for module in model.modules()],
        "config": model.config.to_dict() | {"attention": model.config._attn_implementation},
        "generation": model.generation_config.to_dict(),
        "classes": {
            (kind.__name__, name): id(value)
            for kind in type(model).__mro__
            for name, value in vars(kind).items()
            if not name.endswith("_cached_value")  # where transformers remembers what it found out
        },
        "caches": {**DYNAMIC_LAYER_TYPE_MAPPING, **STATIC_LAYER_TYPE_MAPPING},
        "registries": [_foreign(each()) for each in (AttentionInterface, AttentionMaskInterface)],
    }


def _foreign(registry: Any) -> dict[str, Any]:
    """What is registered by others: our own names are no one else's."""
    return {name: each for name, each in registry.items() if not name.startswith("ropewalk")}


def logits(model: Any, ids: torch.Tensor = IDS, **given: Any) -> torch.Tensor:
    """Without gradients."""
    with torch.no_grad():
        return model(input_ids=ids, **given).logits


def off(got: torch.Tensor, expected: torch.Tensor) -> float:
    """The largest difference, of the largest number."""
    return float((got - expected).abs().max() / expected.abs().max())
