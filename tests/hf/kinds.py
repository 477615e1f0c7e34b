"""Models that do what the usual ones do not, for what must be refused or carried."""

from typing import Any

import torch
from transformers import CONFIG_MAPPING, AutoModelForImageTextToText
from transformers.integrations.sdpa_attention import repeat_kv
from transformers.modeling_utils import AttentionInterface

from hf.models import BASE

TEXT = {**{name: value for name, value in BASE.items() if name != "num_hidden_layers"}, "num_hidden_layers": 2}
SEEING = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
TILES = {"image_size": 28, "patch_size": 14}
IMAGE = 90  # the token that stands for a part of one
AXES = {"rope_type": "default", "rope_theta": 10_000.0, "mrope_section": [2, 3, 3]}
PATCHES = {"depth": 2, "num_heads": 2, "patch_size": 4, "spatial_merge_size": 2, "temporal_patch_size": 2}
WIDTHS = {"hidden_size": 32, "intermediate_size": 64, "out_hidden_size": 64}
MARKS = {"image_token_id": IMAGE, "video_token_id": 91, "vision_start_token_id": 92, "vision_end_token_id": 93}
KINDS = ["sliding_attention", "full_attention"]
SIGLIP = {"model_type": "siglip_vision_model", **SEEING, **TILES}
WITH_IMAGES: dict[str, dict[str, Any]] = {
    "llava": {
        "vision_config": {"model_type": "clip_vision_model", "projection_dim": 32, **SEEING, **TILES},
        "text_config": {"model_type": "llama", **TEXT},
        "image_token_index": IMAGE,
        "vision_feature_layer": -1,
    },
    "gemma3": {
        "text_config": {**TEXT, "sliding_window": 40, "query_pre_attn_scalar": 16, "layer_types": KINDS},
        "vision_config": SIGLIP,
        "mm_tokens_per_image": 4,
        "image_token_index": IMAGE,
    },
    "paligemma": {
        "text_config": {"model_type": "gemma", **TEXT},
        "vision_config": {**SIGLIP, "projection_dim": 64, "num_image_tokens": 4},
        "image_token_index": IMAGE,
        "projection_dim": 64,
    },
    "qwen2_vl": {
        "text_config": {**TEXT, "rope_parameters": AXES},
        "vision_config": {**PATCHES, "embed_dim": 32, "hidden_size": 64, "in_channels": 3},
        **MARKS,
    },
    "qwen2_5_vl": {
        "text_config": {**TEXT, "rope_parameters": AXES},
        "vision_config": {**PATCHES, **WIDTHS, "fullatt_block_indexes": [1], "window_size": 16},
        **MARKS,
    },
    "qwen3_vl": {
        "text_config": {**TEXT, "rope_parameters": {**AXES, "mrope_interleaved": True}},
        "vision_config": {**PATCHES, **WIDTHS, "deepstack_visual_indexes": [0], "num_position_embeddings": 16},
        **MARKS,
    },
    "glm4v": {
        "text_config": {**TEXT, "rope_parameters": {**AXES, "mrope_section": [1, 1, 2], "partial_rotary_factor": 0.5}},
        "vision_config": {**PATCHES, **WIDTHS, "image_size": 28},
        **{"image_token_id": IMAGE, "video_token_id": 91, "image_start_token_id": 92, "image_end_token_id": 93},
        **{"video_start_token_id": 94, "video_end_token_id": 95},
    },
}
for _own in WITH_IMAGES.values():
    _own["text_config"].pop("eos_token_id", None)


def seeing(name: str) -> Any:
    """A small model that sees images."""
    torch.manual_seed(0)
    config = CONFIG_MAPPING[name](**WITH_IMAGES[name])
    model = AutoModelForImageTextToText.from_config(config, attn_implementation="eager").eval()
    model.generation_config.suppress_tokens = [IMAGE, 91]  # a random model would ask for images
    return model


def an_image(name: str) -> dict[str, Any]:
    """A text with one image in it, of four tokens."""
    draw = torch.Generator().manual_seed(3)
    before, after = (torch.randint(3, 80, (1, count), generator=draw) for count in (10, 15))
    ids = torch.cat([before, torch.tensor([[92]]), torch.full((1, 4), IMAGE), torch.tensor([[93]]), after], 1)
    if "rope_parameters" in WITH_IMAGES[name]["text_config"]:
        pixels = {"pixel_values": torch.randn(16, 96, generator=draw), "image_grid_thw": torch.tensor([[1, 4, 4]])}
        return {"input_ids": ids, **pixels, "mm_token_type_ids": (ids == IMAGE).long()}
    types = {"token_type_ids": (ids == IMAGE).long()} if name in ("gemma3", "paligemma") else {}
    return {"input_ids": ids, "pixel_values": torch.randn(1, 3, 28, 28, generator=draw), **types}


def mean_norms(model: Any) -> Any:
    """The model with norms after the rotation that take the mean away, which no rotation survives."""
    for layer in model.model.layers:
        for name in ("query_layernorm", "key_layernorm"):
            norm = torch.nn.LayerNorm(16)
            setattr(layer.self_attn, name, norm)
            for parameter in norm.parameters():
                parameter.data.add_(0.3 * torch.rand(16))
    return model


def hiding(model: Any, window: int = 20) -> Any:
    """The model with attention of its own, which hides keys beyond a window, and tells nobody."""

    def attention(module, q_bhid, k_bgjd, v_bgjd, attention_mask=None, scaling=1.0, **_):
        k_bhjd, v_bhjd = (repeat_kv(x, module.num_key_value_groups) for x in (k_bgjd, v_bgjd))
        queries, keys = q_bhid.shape[2], k_bhjd.shape[2]
        i, j = torch.arange(keys - queries, keys)[:, None], torch.arange(keys)
        far = (j > i) | (j <= i - window)
        weight = (q_bhid @ k_bhjd.mT * scaling).masked_fill(far, -torch.inf).softmax(-1)
        return (weight @ v_bhjd).transpose(1, 2).contiguous(), None

    AttentionInterface.register("ropewalk_hiding", attention)
    model.set_attn_implementation("ropewalk_hiding")
    return model
