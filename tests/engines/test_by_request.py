"""Which table rotates each token of a step, without vLLM: of its classes no more than the names are there."""

import sys
from importlib import import_module
from types import ModuleType, SimpleNamespace
from unittest.mock import patch

from torch import nn

from ropewalk.engines.layer_plan import ModelPlan

from engines.export.exported import exported
from hf.models import tiny

LAYERS = "vllm.model_executor.layers.rotary_embedding"
NAMES = {
    "vllm.config": {"get_current_vllm_config": None},
    f"{LAYERS}.base": {"RotaryEmbedding": type("RotaryEmbedding", (nn.Module,), {})},
    f"{LAYERS}.mrope": {"MRotaryEmbedding": type("MRotaryEmbedding", (nn.Module,), {})},
}
PLUGIN = "ropewalk.engines.vllm.plugin"


def plugin():
    """The two modules of the plugin that are tested; nobody else sees them or the names that they stand on."""
    import_module("ropewalk.engines.layer_plan")  # and what it imports stays
    made = {name: ModuleType(name) for name in NAMES}
    for name, module in made.items():
        vars(module).update(NAMES[name])
    with patch.dict(sys.modules, made):
        for name in ("rotary", "by_request"):
            sys.modules.pop(f"{PLUGIN}.{name}", None)
        return import_module(f"{PLUGIN}.rotary"), import_module(f"{PLUGIN}.by_request")


def test_a_request_has_the_table_that_covers_its_prompt_and_its_answer(tmp_path):
    """Tables of 128, 256 and 512 tokens lie one after the other. A request that only pools has no answer."""
    rotary, by_request = plugin()
    model = tiny("llama", max_position_embeddings=128, num_hidden_layers=1)
    _, config, _ = exported(model, tmp_path / "out", "dynamic_yarn", target_len=None, request_factors=(1, 2, 4))
    module = type("Several", (rotary.OfRequests, nn.Module), {})()
    module.plan = ModelPlan.from_json(config["rope_parameters"]["ropewalk"])
    module.hold([0, 128, 384], tokens=8)
    asked = {"short": (100, 28), "answered at length": (100, 29), "pooled": (300, None)}
    requests = {
        name: SimpleNamespace(num_prompt_tokens=prompt, sampling_params=most and SimpleNamespace(max_tokens=most))
        for name, (prompt, most) in asked.items()
    }
    batch = SimpleNamespace(req_ids=["answered at length", "pooled", "short"])
    runner = SimpleNamespace(get_model=lambda: module, requests=requests, input_batch=batch)
    assert by_request.choosing_tables(lambda *given: "prepared")(runner, None, [2, 3, 1]) == "prepared"
    assert module.starts_t.tolist() == [128, 128, 384, 384, 384, 0, 0, 0]
