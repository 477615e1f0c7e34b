"""All that attaching could leave behind in a model."""

from typing import Any

import torch

IDS = torch.arange(3, 30)[None]


def trace(model: Any) -> dict[str, Any]:
    """Names, keys, buffers, hooks, attributes, configs and modes."""
    return {
        "modules": [(name, type(module).__name__, module.training) for name, module in model.named_modules()],
        "state": {name: value.sum().item() for name, value in model.state_dict().items()},
        "buffers": {name: value.double().sum().item() for name, value in model.named_buffers()},
        "hooks": [
            (len(module._forward_hooks), len(module._forward_pre_hooks), len(module._forward_hooks_with_kwargs))
            for module in model.modules()
        ],
        "attributes": [sorted(module.__dict__) for module in model.modules()],
        "config": model.config.to_dict() | {"attention": model.config._attn_implementation},
    }


def logits(model: Any, ids: torch.Tensor = IDS, **given: Any) -> torch.Tensor:
    """Without gradients."""
    with torch.no_grad():
        return model(input_ids=ids, **given).logits
