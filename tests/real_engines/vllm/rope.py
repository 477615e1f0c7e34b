"""Runs in vLLM's environment: the rotary tables that get_rope makes, and the length that is derived from a config.

A question is a list of cases: what a model's attention hands to get_rope, and what the config says of lengths; or
positions, and queries that the module rotates. Ropewalk's plugin is in force where a case has its rope type. With
VLLM_SOURCE, a folder with the `vllm` of an unpacked wheel, both are those of that version instead: its files run on the
rest of the installed one. tests/engines/check/recorded_vllm.json was made so.
"""

import ast
import importlib.util
import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy
import torch
import vllm.config.model
import vllm.model_executor.layers.rotary_embedding as installed
import vllm.transformers_utils.config
import vllm.utils.torch_utils
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.model_executor.custom_op import CustomOp


def of_version(source):
    """get_rope and _get_and_verify_max_len of another version."""
    CustomOp.register = classmethod(lambda cls, name, **options: lambda made: setattr(made, "name", name) or made)
    vllm.utils.torch_utils.direct_register_custom_op = lambda **options: None
    folder = source / "model_executor" / "layers" / "rotary_embedding"
    spec = importlib.util.spec_from_file_location(
        "other_rope", folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    sys.modules["other_rope"] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    text = (source / "config" / "model.py").read_text()
    wanted = [node for node in ast.parse(text).body if getattr(node, "name", "") == "_get_and_verify_max_len"]
    names = {"PretrainedConfig": object, **vars(vllm.transformers_utils.config), **vars(vllm.config.model)}
    exec(compile(ast.Module(wanted, []), "model.py", "exec"), names)
    return module.get_rope, names["_get_and_verify_max_len"]


def main():
    cases = json.loads(Path(sys.argv[1]).read_text())
    get_rope, length = installed.get_rope, vllm.config.model._get_and_verify_max_len
    if os.environ.get("VLLM_SOURCE"):
        get_rope, length = of_version(Path(os.environ["VLLM_SOURCE"]))
    if any(case["rope"]["rope_type"] == "ropewalk" for case in cases):
        from ropewalk.engines.vllm.plugin.register import register

        register()
        get_rope = installed.get_rope
    answers, settings = {}, VllmConfig()
    for number, case in enumerate(cases):
        object.__setattr__(settings, "model_config", SimpleNamespace(max_model_len=case["served"]))
        with set_current_vllm_config(settings):
            made = get_rope(
                case["head_dim"], case["max_len"], True, case["rope"], torch.float32, **case.get("more", {})
            )
        if "positions" in case:
            q_td, positions = torch.tensor(case["queries"]), torch.tensor(case["positions"])
            answers[f"{number}.rotated"] = made.forward_native(positions, q_td, q_td.clone())[0]
            continue
        table = getattr(made, "cos_sin_cache", None)
        first, end = 0, None
        if table is None:  # longrope has two
            table, original = made.long_short_cos_sin_cache, case["rope"]["original_max_position_embeddings"]
            first, end = (original, None) if made.use_long_rope else (0, original)
        table = table[first:end].double()
        cos, sin = table[1].chunk(2)
        answers[f"{number}.speed"], answers[f"{number}.size"] = torch.atan2(sin, cos), torch.hypot(sin, cos)
        answers[f"{number}.rows"] = torch.tensor(len(table))
        config = SimpleNamespace(rope_parameters=case["rope"], model_type=case["model_type"], **case["also"])
        derived = SimpleNamespace(derived_max_model_len_and_key=(case["max_len"], "max_position_embeddings"))
        answers[f"{number}.length"] = torch.tensor(length(config, derived, None, None, False, None))
    numpy.savez(sys.argv[2], **{name: value.numpy() for name, value in answers.items()})


main()
