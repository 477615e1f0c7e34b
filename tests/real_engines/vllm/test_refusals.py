"""Never served with the extension left out: whatever vLLM would compute without it is refused while it loads."""

import json

import pytest
import torch

import ropewalk as rw

from real_engines import models
from real_engines.vllm.asking import Job, ask

TARGET = 1024
IDS = models.random_prompt(9)
PLAIN = {"rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A llama under a method that vLLM has no name for, and the command that serves it."""
    place = tmp_path_factory.mktemp("refusals") / "plugin"
    return place, _exported(place)


def _exported(place, method="yarn+log_n"):
    model = models.small("llama")
    rw.extend(model, method, target_len=TARGET)
    return rw.export(model, place, target="vllm", target_len=TARGET).command


def _job(command, more="", **kwargs):
    return Job(f"{command} {more}", [IDS], may_refuse=True, **kwargs)


def _changed(place, copy, change):
    """A copy of an export whose config was changed by hand."""
    copy.mkdir()
    for file in place.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    config = json.loads((place / "config.json").read_text())
    change(config)
    (copy / "config.json").write_text(json.dumps(config))
    return f"vllm serve {copy} --max-model-len {TARGET}"


def _plan(change):
    def changed(config):
        plan = json.loads(config["rope_parameters"]["ropewalk"])
        change(plan)
        config["rope_parameters"]["ropewalk"] = json.dumps(plan)

    return changed


def test_what_would_drop_the_plan_is_refused(folder, tmp_path):
    place, command = folder
    yarn = json.dumps({"rope_parameters": {"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e4}})
    fewer = _changed(place, tmp_path / "fewer", lambda config: config.update(num_hidden_layers=1))
    more = _changed(place, tmp_path / "more", lambda config: config.update(num_hidden_layers=3))
    head = _changed(place, tmp_path / "head", _plan(lambda plan: plan["plans"][0]["facts"].update(head_dim=64)))
    scaling = _changed(place, tmp_path / "scaling", _plan(lambda plan: plan["plans"][0].update(scaling=0.5)))
    method = _changed(place, tmp_path / "method", _plan(_with_unknown_method))
    sections = _changed(place, tmp_path / "sections", lambda config: config["rope_parameters"].update(use_fope=True))
    jobs = {
        "overrides": (_job(command, f"--hf-overrides '{yarn}'"), "leave out --hf-overrides"),
        "theta": (_job(command, "--hf-overrides '{\"rope_theta\": 20000.0}'"), "--hf-overrides changes rope_theta"),
        "plain": (_job(_changed(place, tmp_path / "plain", lambda config: config.update(PLAIN))), "have no plan"),
        "transformers": (_job(command, "--model-impl transformers"), "leave out --model-impl transformers"),
        "longer": (_job(command.replace(str(TARGET), str(2 * TARGET))), f"at most {TARGET}"),
        "fewer": (_job(fewer), "has no attention layer 1, which the plan changes"),
        "more": (_job(more), "layers.2.self_attn.attn is an attention layer that the plan does not know"),
        "head": (_job(head), "rotary module must be"),
        "scaling": (_job(scaling), "the scaling of model.layers.0.self_attn.attn must be 0.5"),
        "method": (_job(method), "log_m"),
        "sections": (_job(sections), "does not support use_fope"),
        "latent": (_job(_changed(place, tmp_path / "latent", _latent)), "where keys are latent (MLA)"),
        "bypass": (_job(command, setup="bypass"), "does not take the rotation of model.layers.0.self_attn.attn"),
    }
    served = ask({name: job for name, (job, _) in jobs.items()}, tmp_path, VLLM_ALLOW_LONG_MAX_MODEL_LEN="1")
    for name, (_, words) in jobs.items():
        assert words in served[name].refused, f"{name}: {served[name].refused or 'served'}"


def _latent(config):
    """A plan in the config of a model with latent attention, which our export refuses."""
    ranks = {"q_lora_rank": None, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 16}
    experts = {"n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1}
    names = {"model_type": "deepseek_v3", "architectures": ["DeepseekV3ForCausalLM"], "num_key_value_heads": 4}
    config.update({**ranks, **experts, **names, "moe_intermediate_size": 32, "head_dim": 8})


def _with_unknown_method(plan):
    plan["plans"][0]["extension"]["scales"][-1]["name"] = "log_m"


@pytest.mark.nightly
def test_without_the_plugin_it_is_refused(folder, tmp_path):
    _, command = folder
    served = ask({"job": _job(command)}, tmp_path, VLLM_PLUGINS="another")
    assert "Unknown RoPE scaling type ropewalk" in served["job"].refused


@pytest.mark.nightly
def test_a_worker_without_the_plugin_refuses_it(folder, tmp_path):
    """In a process of its own, the engine says why, and the caller that it did not start."""
    _, command = folder
    environment = {"VLLM_PLUGINS": "another", "VLLM_ENABLE_V1_MULTIPROCESSING": "1"}
    served = ask({"job": _job(command)}, tmp_path, **environment)
    assert "Engine core initialization failed" in served["job"].refused


@pytest.mark.nightly
def test_an_unknown_version_refuses_plans_and_nothing_else(folder, tmp_path):
    _, command = folder
    model = models.small("llama")
    rw.extend(model, "yarn", target_len=TARGET)
    native = rw.export(model, tmp_path / "native", target="vllm", target_len=TARGET)
    assert native.kind == "native"
    served = ask({"plugin": _job(command, setup="version"), "native": _job(native.command)}, tmp_path)
    assert "was tested with vLLM 0.32.x, and vLLM is 0.99.0" in served["plugin"].refused
    assert served["native"].answers[0].gap(models.log_probabilities(model, IDS)).largest < 1e-3


def test_the_plugin_serves_the_folder_of_these_tests(folder, tmp_path):
    _, command = folder
    model = models.small("llama")
    rw.extend(model, "yarn+log_n", target_len=TARGET)
    served = ask({"job": _job(command)}, tmp_path)["job"]
    assert served.refused == ""
    assert served.answers[0].gap(models.log_probabilities(model, IDS)).largest < 1e-4
    assert torch.equal(served.answers[0].decoded_ids[0, :1], torch.tensor(served.answers[0].chosen))
