"""What vLLM computes from an export is what the extended model computes: every method that can be exported, from the
printed command alone, within the trained length and beyond it."""

import pytest
from extension.outsiders import THREE, method_file

import ropewalk as rw
from ropewalk import extended
from ropewalk.engines.config_only import export_config
from ropewalk.extension.parsing import parse

from nightly import few_by_day, first_of_each
from real_engines import models
from real_engines.vllm.asking import Job, ask
from real_engines.vllm.measured import BOUND, TARGET, check, exported, measured_or_refused, served

CARRIED = {
    "yarn": "native",
    "pi": "native",
    "ntk": "native",
    "llama3": "native",
    "abf": "native",
    "by_parts:factor=8": "native",
    "longrope": "lowered",
    "frequencies.ntk_fixed:factor=8": "lowered",
    "ntk_mixed": "plugin",
    "frequencies.by_parts:factor=8,ramp=turns+scales.yarn_temperature:factor=8": "lowered",
    "window:window=256+yarn": "native",
    "nope": "lowered",
    "yarn+log_n": "plugin",
    "log_n": "plugin",
    "scales.log_n:clipped=false": "plugin",
}
FEW = ("yarn", "longrope", "ntk_mixed", "yarn+log_n")
SMALL = (  # of several layouts of heads, rotating dimensions, norms, windows and scalings
    ("llama", "mistral", "qwen2"),
    ("qwen3", "gemma3_text", "phi3"),
    ("granite", "olmo2", "stablelm"),
    ("gpt_neox", "glm4", "qwen3_next"),
)
WITHOUT_CODE = {
    "olmo2",
    "gpt_neox",
}  # vLLM runs transformers' code for them, which the plugin does not reach: the export refuses
METHODS = ("yarn", "pi", "ntk", "frequencies.by_parts:factor=4,ramp=turns+scales.temperature:value=1.3", "yarn+log_n")
HALF = ("yarn", "pi", "yarn+log_n")  # in bfloat16


@pytest.mark.parametrize("methods", few_by_day(CARRIED, FEW), ids=["few", "others"])
def test_the_carried_model_under_every_method(methods, tmp_path, records):
    pairs = [exported("carried", method, "float32", tmp_path / str(i)) for i, method in enumerate(methods)]
    check(pairs, served(pairs, tmp_path), records("vllm", "0.32.0"))
    assert {pair.method: pair.exported.kind for pair in pairs} == {method: CARRIED[method] for method in methods}


@pytest.mark.nightly
def test_a_quarter_of_each_head_rotates_and_tokens_have_several_positions(tmp_path, records):
    """Qwen3.5's rotation: YaRN as its makers advise it, and what only the plugin computes there."""
    kinds = {"yarn": "native", "pi": "plugin", "dynamic_yarn": "plugin", "rerope:window=256+log_n": "plugin"}
    pairs = [exported("qwen3_5_text", method, "float32", tmp_path / str(i)) for i, method in enumerate(kinds)]
    check(pairs, served(pairs, tmp_path, setup="videos"), records("vllm", "0.32.0"))
    assert {pair.method: pair.exported.kind for pair in pairs} == kinds


@pytest.mark.nightly
def test_a_models_own_weights_by_an_option_or_by_another_config(tmp_path):
    """`--config-only`: no folder for what an option says, and a config.json alone for a plan."""
    model, ids = models.small("qwen3_5_text"), models.random_prompt(TARGET - 1)
    model.save_pretrained(tmp_path / "model")
    jobs, expected = {}, {}
    for text, folder in (("yarn:factor=4", None), ("dynamic_yarn", tmp_path / "config")):
        place = str(tmp_path / "model")
        said = export_config(place, parse(text), folder, target="vllm", target_len=TARGET)
        jobs[text] = Job(said.command, [ids], setup="videos")
        with extended(model, text, target_len=TARGET):
            expected[text] = models.log_probabilities(model, ids)
    for text, answer in ask(jobs, tmp_path).items():
        assert answer.answers[0].gap(expected[text]).largest < BOUND["native"]


@pytest.mark.nightly
def test_methods_in_a_file_of_somebody_else(tmp_path):
    """A schedule, a reach and a bias that learns: the file travels with the plan, and runs where vLLM trusts it."""
    path = method_file(tmp_path, THREE, "three.py")
    line = f"{path}:Slope:factor=8+{path}:Half:window=64+{path}:Pull"
    model, ids = models.carried(), models.prompt(TARGET - 1)
    with extended(model, line, target_len=TARGET):
        expected = models.log_probabilities(model, ids)
        command = rw.export(model, tmp_path / "kept", target="vllm", target_len=TARGET).command
    assert "--trust-remote-code" in command
    answer = ask({"trusted": Job(command, [ids])}, tmp_path)["trusted"]
    assert answer.answers[0].gap(expected).largest < BOUND["plugin"]
    untrusted = command.replace(" --trust-remote-code", "")  # in a process that has not run the file yet
    assert "trust" in ask({"not": Job(untrusted, [ids], may_refuse=True)}, tmp_path)["not"].refused


@pytest.mark.nightly
@pytest.mark.parametrize("names", first_of_each(SMALL, name=" ".join))
def test_small_models_of_other_architectures(tmp_path, records, names):
    pairs = measured_or_refused([(name, method, "float32") for name in names for method in METHODS], tmp_path, records)
    assert {pair.architecture for pair in pairs if pair.exported.kind == "plugin"} == {*names} - {"phi3", *WITHOUT_CODE}


@pytest.mark.nightly
def test_half_precision_differs_by_its_rounding(tmp_path, records):
    wanted = [(name, method, "bfloat16") for name in ("carried", "qwen3", "gemma3_text") for method in HALF]
    measured_or_refused(wanted, tmp_path, records)


@pytest.mark.nightly
def test_every_static_schedule_is_exact_by_the_plugin(tmp_path, records):
    """vLLM's own angles are in float32; the plugin's are rounded once."""
    methods = [method for method, kind in CARRIED.items() if kind != "plugin" and not method.startswith("window")]
    pairs = [exported("carried", method, "float32", tmp_path / str(i), True) for i, method in enumerate(methods)]
    check(pairs, served(pairs, tmp_path), records("vllm", "0.32.0"))
    assert {pair.exported.kind for pair in pairs} == {"plugin"}
