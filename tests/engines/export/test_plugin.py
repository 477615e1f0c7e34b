"""Export for vLLM with Ropewalk's plugin: what is in the config is what is in force in the layers."""

import json
import re

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

import ropewalk as rw
from ropewalk import DoesNotFit, InvalidValue, Unreadable, extended
from ropewalk.engines.export import export
from ropewalk.engines.layer_plan import ModelPlan
from ropewalk.engines.vllm import plans
from ropewalk.hf.attach.handle import handle_of
from ropewalk.methods.reach import ReRoPE, Window

from engines.export.exported import TARGET, exported
from hf.kinds import WITH_IMAGES, seeing
from hf.models import tiny
from hf.traces import trace

PLAIN = {"rope_type": "default", "rope_theta": 10_000.0}


def plan_of(parameters):
    assert parameters["rope_type"] == "ropewalk"
    return ModelPlan.from_json(parameters["ropewalk"])


def test_what_only_the_plugin_carries_rides_in_the_config(tmp_path):
    model = tiny("llama", num_hidden_layers=2, rope_parameters=PLAIN)
    before = trace(model)
    result, config, handle = exported(model, tmp_path / "out", "yarn:factor=4+log_n")
    assert result.kind == "plugin"
    assert "vLLM needs Ropewalk installed in its environment" in str(result)
    assert "by vLLM's own kernels, with tables from the plugin" in str(result)
    assert "fp8" not in str(result)
    assert result.command == f"vllm serve {tmp_path / 'out'} --max-model-len {TARGET}"
    assert config["max_position_embeddings"] == TARGET
    plan = plan_of(config["rope_parameters"])
    assert config["ropewalk"] == plan.line
    assert plan.is_tables
    assert plan.target_len == TARGET
    assert [layer.extension for layer in plan.layers] == [layer.extension for layer in handle.layers]
    assert [layer.facts for layer in plan.layers] == [layer.facts for layer in handle.layers]
    assert {(layer.scaling, layer.query_factor) for layer in plan.layers} == {(model.config.head_dim**-0.5, 1.0)}
    state, written = model.state_dict(), load_file(tmp_path / "out" / "model.safetensors")
    assert all(torch.equal(value, state[name]) for name, value in written.items())
    assert trace(model) == before


def test_transformers_stops_at_such_a_folder(tmp_path):
    exported(tiny("llama", num_hidden_layers=1), tmp_path / "out", "log_n")
    with pytest.raises(KeyError, match="ropewalk"):
        AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    with pytest.raises(Unreadable, match="was written for vLLM with Ropewalk's plugin"):
        rw.load(tmp_path / "out")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("rerope:window=8+log_n", "rerope changes which keys"),
        ("biases.kerple_log", "kerple_log adds"),
        ("dynamic_yarn", "dynamic rotates rows of different lengths"),
        ("dynamic_yarn+resonance", "resonance rotates rows of different lengths"),
    ],
)
def test_what_tables_do_not_carry_needs_our_attention(tmp_path, text, reason):
    result, config, handle = exported(tiny("llama", num_hidden_layers=2), tmp_path / "out", text)
    assert result.kind == "plugin"
    assert f"by Ropewalk's attention: {reason}" in str(result)
    assert "not with --kv-cache-dtype fp8" in str(result)
    assert result.command.endswith(f"--max-model-len {TARGET}")
    assert [layer.extension for layer in plan_of(config["rope_parameters"]).layers] == [
        layer.extension for layer in handle.layers
    ]


def test_a_dynamic_schedule_is_exact_or_static_as_asked(tmp_path):
    model = tiny("llama", num_hidden_layers=2)
    result, *_ = exported(model, tmp_path / "plugin", "dynamic_yarn")
    assert (result.kind, "--no-plugin" in str(result)) == ("plugin", True)
    result, config, _ = exported(model, tmp_path / "frozen", "dynamic_yarn", plugin=False)
    assert result.kind == "frozen"
    assert config["rope_parameters"]["rope_type"] == "yarn"


@pytest.mark.parametrize(("text", "exact"), [("dynamic_yarn", True), ("dynamic_yarn+cope", False)])
def test_short_texts_stay_exact_where_no_wrapper_changes_them(tmp_path, text, exact):
    result, *_ = exported(tiny("llama", num_hidden_layers=1), tmp_path / "out", text)
    assert "--no-plugin makes the schedule static" in str(result)
    assert ("short texts stay exact" in str(result)) == exact


def test_a_wrapped_schedule_with_log_n_is_a_table_of_the_plugin(tmp_path):
    result, config, handle = exported(tiny("llama", num_hidden_layers=2), tmp_path / "out", "yarn:factor=4+cope+log_n")
    assert result.kind == "plugin"
    plan = plan_of(config["rope_parameters"])
    assert plan.is_tables
    assert [layer.extension for layer in plan.layers] == [layer.extension for layer in handle.layers]
    table = plan.rotary(64).inv_freq
    assert torch.equal(table, handle.extension.frequencies_or_rope.table(handle.facts, 1).inv_freq)
    assert table[-1] == 0


def test_a_static_schedule_takes_the_plugin_when_asked(tmp_path):
    model = tiny("llama", num_hidden_layers=2)
    assert exported(model, tmp_path / "native", "yarn:factor=4")[0].kind == "native"
    result, config, _ = exported(model, tmp_path / "plugin", "yarn:factor=4", plugin=True)
    assert result.kind == "plugin"
    assert plan_of(config["rope_parameters"]).is_tables


def test_only_types_that_change_have_a_plan(tmp_path):
    """Gemma 3's windowed layers keep their windows and their own rope parameters."""
    model = tiny("gemma3_text", num_hidden_layers=6)
    _, config, handle = exported(model, tmp_path / "out", "yarn:factor=4+log_n")
    parts = config["rope_parameters"]
    assert parts["sliding_attention"]["rope_type"] == "default"
    plan = plan_of(parts["full_attention"])
    assert [layer is None for layer in plan.layers] == [layer.left_alone for layer in handle.layers]
    assert plan.is_tables
    assert plan.planned[0].scaling == pytest.approx(model.config.query_pre_attn_scalar**-0.5)


def test_windowed_layers_that_share_a_rotary_module_have_a_plan_too(tmp_path):
    model = tiny("gemma2", num_hidden_layers=2)
    _, config, handle = exported(model, tmp_path / "out", "rerope:window=8")
    plan = plan_of(config["rope_parameters"])
    kept = next(i for i, layer in enumerate(handle.layers) if layer.left_alone)
    window = handle.layers[kept].probed.window
    assert plan.layers[kept].extension.reach == Window(window=window)
    assert plan.layers[kept].window == window
    assert plan.layers[1 - kept].extension.reach == ReRoPE(window=8)
    assert plan.layers[1 - kept].window is None


def test_layers_that_do_not_rotate_have_a_plan_where_something_changes_them(tmp_path, monkeypatch):
    """vLLM 0.32 has no code of its own for the one such architecture here; the plan is tested all the same."""
    monkeypatch.setattr(plans, "why_not_reached", lambda model_type: "")
    model = tiny("smollm3", num_hidden_layers=2, no_rope_layers=[1, 0])
    _, config, _ = exported(model, tmp_path / "schedule", "yarn:factor=4,high_turns=16,over=head", plugin=True)
    assert plan_of(config["rope_parameters"]).why_not_tables == "yarn_temperature scales layers that do not rotate"
    _, config, _ = exported(model, tmp_path / "rotation", "yarn:factor=4,high_turns=16", plugin=True)
    assert plan_of(config["rope_parameters"]).is_tables
    _, config, _ = exported(model, tmp_path / "table", "frequencies.ntk_mixed:factor=4", plugin=True)
    plan = plan_of(config["rope_parameters"])
    assert plan.layers[1] is None
    assert plan.is_tables


def test_the_layout_of_a_model_stays(tmp_path):
    model = tiny("stablelm", num_hidden_layers=1)
    _, config, handle = exported(model, tmp_path / "out", "pi:factor=4+log_n")
    parameters = config["rope_parameters"]
    assert parameters["partial_rotary_factor"] == model.config.rope_parameters["partial_rotary_factor"]
    assert parameters["rope_theta"] == handle.facts.base
    assert plan_of(parameters).planned[0].facts.rotary_dim == handle.facts.rotary_dim < handle.facts.head_dim
    assert "factor" not in parameters


def test_the_temperature_that_a_checkpoint_came_with_stays(tmp_path):
    own = {**PLAIN, "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8}
    model = tiny("llama", num_hidden_layers=1, rope_parameters=own)
    _, config, handle = exported(model, tmp_path / "out", "log_n")
    plan = plan_of(config["rope_parameters"])
    assert plan.planned[0].query_factor == pytest.approx(handle.layers[0].probed.temperature ** 2) != 1
    assert plan.planned[0].facts.inv_freq == handle.layers[0].facts.inv_freq
    assert "factor" not in config["rope_parameters"]


def test_what_was_learned_is_in_the_plan(tmp_path):
    model = tiny("llama", num_hidden_layers=2)
    with extended(model, "scales.head_scale"):
        handle = handle_of(model)
        for depth, layer in enumerate(handle.layers):
            layer.weights["head_scale"]["lambda"].data.copy_(torch.tensor([1.0, 2, 3, 4]) + depth)
        export(model, tmp_path / "out", target="vllm", target_len=TARGET)
    plan = plan_of(json.loads((tmp_path / "out" / "config.json").read_text())["rope_parameters"])
    assert plan.layers[0].weights["head_scale"]["lambda"].tolist() == [1, 2, 3, 4]
    assert plan.layers[1].weights["head_scale"]["lambda"].tolist() == [2, 3, 4, 5]
    assert not any("ropewalk" in name for name in load_file(tmp_path / "out" / "model.safetensors"))


def test_attention_layers_are_numbered_as_in_the_model(tmp_path):
    """A hybrid's second layer is its first attention layer."""
    kinds = ["conv", "full_attention", "conv", "full_attention"]
    model = tiny("lfm2", num_hidden_layers=4, layer_types=kinds)
    _, config, _ = exported(model, tmp_path / "out", "yarn:factor=4+log_n")
    assert [layer is None for layer in plan_of(config["rope_parameters"]).layers] == [True, False, True, False]


@pytest.mark.parametrize(
    ("name", "text", "options", "match"),
    [
        ("llama", "rerope:window=8", {"target_len": None}, "rerope:window=8 has no length of its own"),
        ("llama", "dynamic_yarn", {"target_len": None}, "target_len"),
        ("llama", "log_n", {"plugin": False}, "log_n"),
        ("llama", "yarn:factor=4", {"plugin": True, "target": "sglang"}, "only vllm has one"),
        ("llama", "log_n", {"target": "sglang"}, "log_n"),
        ("deepseek_v3", "log_n", {}, "latent"),
        (
            "doge",
            "log_n",
            {},
            "layer 0 makes a mask of its own, or chooses its keys, which the plugin for vLLM does not",
        ),
        ("gpt_oss", "log_n", {"target_len": 512}, "vLLM computes YaRN for gpt_oss whatever its config says"),
        *(
            (name, "log_n", {}, f"no code of its own for {name}, and the plugin")
            for name in ("olmo2", "gpt_neox", "phi")
        ),
        ("olmo2", "dynamic_yarn", {}, "--no-plugin makes the schedule static"),
        ("gemma3_text", "log_n", {"lift_windows": True}, "lifted windows cannot be exported"),
    ],
)
def test_refusals_name_the_reason(tmp_path, name, text, options, match):
    model = tiny(name, num_hidden_layers=6 if name == "gemma3_text" else 1)
    with pytest.raises(DoesNotFit, match=match):
        exported(model, tmp_path / "out", text, **options)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "text", "kind", "for_text_alone"),
    [
        ("qwen3_vl", "yarn:factor=4", "native", False),
        ("qwen2_5_vl", "abf:new_base=500000", "native", False),
        ("qwen2_5_vl", "yarn:factor=4", "plugin", False),  # vLLM would compute another ramp
        ("glm4v", "yarn:factor=4", "plugin", False),
        ("qwen3_vl", "pi:factor=4", "plugin", False),  # vLLM's own module would take one position a token
        ("qwen3_vl", "dynamic_yarn", "plugin", True),
        ("qwen3_vl", "yarn:factor=4+log_n", "plugin", True),
        ("qwen3_vl", "rerope:window=8", "plugin", True),
    ],
)
def test_tokens_that_have_several_positions(tmp_path, name, text, kind, for_text_alone):
    """The sections stay in the config, also where a language model is part of a larger one."""
    result, config, _ = exported(seeing(name), tmp_path / "out", text)
    assert result.kind == kind
    parameters = config["text_config"]["rope_parameters"]
    assert parameters["mrope_section"] == WITH_IMAGES[name]["text_config"]["rope_parameters"]["mrope_section"]
    assert parameters["rope_type"] == ("ropewalk" if kind == "plugin" else text.split(":")[0].replace("abf", "default"))
    assert ("--language-model-only" in result.command) == for_text_alone
    if kind == "plugin":
        assert plan_of(parameters).reads_images != for_text_alone


@pytest.mark.parametrize("text", ["pi:factor=4", "llama3:factor=4", "longrope:factor=4"])
def test_sglang_has_a_module_of_several_positions_for_yarn_alone(tmp_path, text):
    with pytest.raises(DoesNotFit, match=r"YaRN or another base where tokens have several positions \(M-RoPE\)"):
        exported(seeing("qwen3_vl"), tmp_path / "out", text, target="sglang")
    assert exported(seeing("qwen3_vl"), tmp_path / "yarn", "yarn:factor=4", target="sglang")[0].kind == "native"


def test_two_tables_of_a_checkpoint_are_refused(tmp_path):
    divisors = [1.0] * 8
    own = {**PLAIN, "rope_type": "longrope", "short_factor": divisors, "long_factor": [2.0] * 8, "factor": 4.0}
    own |= {"original_max_position_embeddings": 32, "attention_factor": 1.0}
    model = tiny("phi3", num_hidden_layers=1, rope_parameters=own, max_position_embeddings=128)
    with pytest.raises(DoesNotFit, match="two tables"):
        exported(model, tmp_path / "out", "log_n", target_len=512)


def test_a_config_class_that_knows_one_type_is_refused(tmp_path):
    """vLLM reads Phi-3's config by the same class."""
    model = tiny("phi3", num_hidden_layers=1)
    with pytest.raises(DoesNotFit, match="Phi3Config does not accept"):
        exported(model, tmp_path / "out", "log_n")


def test_a_class_that_ignores_the_plan_is_refused(tmp_path, monkeypatch):
    """A model class without a table of rope types, as remote code may be."""
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    monkeypatch.setitem(ROPE_INIT_FUNCTIONS, "ropewalk", lambda *args, **kwargs: (torch.ones(8), 1.0))
    model = tiny("llama", num_hidden_layers=1)
    with pytest.raises(DoesNotFit, match="would load as the base model"):
        exported(model, tmp_path / "out", "log_n")


FACTORS = (1, 2, 4)


def by_request(model, place, text="dynamic_yarn", **options):
    return exported(model, place, text, **{"target_len": None, "request_factors": FACTORS, **options})


@pytest.mark.parametrize("kind", ["llama", "gemma3_text"])
def test_a_factor_for_each_request_is_a_plan_for_each(tmp_path, kind):
    model = tiny(kind, max_position_embeddings=128, num_hidden_layers=6)
    result, config, _ = by_request(model, tmp_path / "out")
    parameters = config["rope_parameters"]
    plan = plan_of(parameters.get("full_attention", parameters))
    assert [one.target_len for one in plan.by_request] == [128, 256, 512]
    assert [plan.index_of(length) for length in (1, 128, 129, 256, 257, 512)] == [0, 0, 1, 1, 2, 2]
    for factor, one in zip(FACTORS, plan.by_request, strict=True):
        with extended(model, f"yarn:factor={factor}") as handle:
            static = next(layer for layer in handle.layers if not layer.left_alone)
        (planned, *_), first = one.planned, torch.tensor([0])
        tables = [x.extension.frequencies_or_rope.table(x.facts, 1).inv_freq for x in (planned, static)]
        scales = [[spec.scale(first, x.facts, {}) for spec in x.extension.scales] for x in (planned, static)]
        assert torch.equal(*tables)
        assert scales[0] == scales[1]
    assert result.command == f"VLLM_USE_V2_MODEL_RUNNER=0 vllm serve {tmp_path / 'out'} --max-model-len 512"
    assert "by vLLM's own kernels, with tables from the plugin" in str(result)
    assert "--override-generation-config" in str(result)
    assert config["ropewalk"].endswith("static at 1, 2, 4 by request")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"text": "yarn:factor=4"}, "has no factor that a request could choose; export a dynamic one"),
        ({"text": "dynamic_yarn+rerope:window=8"}, "chosen among tables, and rerope changes which keys"),
        ({"target": "sglang"}, "needs Ropewalk's plugin"),
        ({"plugin": False}, "needs Ropewalk's plugin"),
        ({"target_len": 128}, "512, which the largest factor covers"),
        ({"request_factors": (2, 1)}, "growing numbers of at least 1"),
    ],
)
def test_a_factor_for_each_request_that_cannot_be_is_refused(tmp_path, options, reason):
    with pytest.raises((DoesNotFit, InvalidValue), match=re.escape(reason)):
        by_request(tiny("llama", max_position_embeddings=128), tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_plans_of_requests_that_were_tampered_with_are_refused(tmp_path):
    _, config, _ = by_request(tiny("llama", max_position_embeddings=128), tmp_path / "out")
    written = json.loads(config["rope_parameters"]["ropewalk"])
    first, second = written["shorter"]
    for wrong in ([second, first], [first, first], "no list", [json.dumps({**written, "shorter": []})]):
        with pytest.raises(Unreadable):
            ModelPlan.from_json(json.dumps({**written, "shorter": wrong}))
