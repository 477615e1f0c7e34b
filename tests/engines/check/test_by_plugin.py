"""Folders that `rw.export` wrote for Ropewalk's plugin in vLLM: the plan is read, and refused as loading refuses it."""

import json
from functools import cache
from importlib.metadata import EntryPoint

import pytest
from hypothesis import given, settings, strategies as some

import ropewalk as rw
from ropewalk.engines.check import by_plugin, check as check_module
from ropewalk.engines.layer_plan import KEY
from ropewalk.engines.targets import ENGINES
from ropewalk.engines.vllm.versions import ALWAYS_YARN, BY_TRANSFORMERS
from ropewalk.hf.attach.extend import extended

from hf.models import tiny

LINES = (
    "rerope:window=8+log_n",
    "yarn:factor=4+log_n",
    "dynamic_yarn",
    "biases.kerple_log",
    "string:shift=10,local=4",
    "lampe:head=6,tail=3,length=60,mapped=20",
    "self_logistic:window=8,capacity=5,rate=0.3",
)
TARGET = 128


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One export, whose config the tests change."""
    place = tmp_path_factory.mktemp("exported") / "out"
    with extended(tiny("llama", num_hidden_layers=2), LINES[0]) as handle:
        rw.export(handle.model, place, target="vllm", target_len=TARGET)
    return place


@pytest.fixture
def changed(folder, tmp_path):
    """The exported config with some keys changed."""

    def write(*, rope=None, **values):
        config = json.loads((folder / "config.json").read_text())
        config["rope_parameters"] |= rope or {}
        (tmp_path / "config.json").write_text(json.dumps({**config, **values}))
        return tmp_path

    return write


@cache
def plan_text(folder):
    return json.loads((folder / "config.json").read_text())["rope_parameters"][KEY]


def reason(checked):
    assert checked.verdict == "refused", str(checked)
    first = next(finding for finding in checked.findings if finding.kind == "refused")
    assert first.remedy
    return first.sentence


@pytest.mark.sampled(cases=7)
@pytest.mark.parametrize("name", ["llama", "qwen3", "gemma3_text", "lfm2"])
@pytest.mark.parametrize("line", LINES)
def test_an_export_is_the_same_and_names_what_it_needs(tmp_path, name, line):
    more = {"layer_types": ["conv", "full_attention", "conv", "conv"]} if name == "lfm2" else {}
    model = tiny(name, num_hidden_layers=6 if name == "gemma3_text" else 4, **more)
    with extended(model, line):
        rw.export(model, tmp_path / "out", target="vllm", target_len=TARGET, plugin=True)
    checked = rw.check(tmp_path / "out", engine="vllm@0.32")
    assert checked.verdict == "same", str(checked)
    assert not {"ropewalk", "ropewalk_export"} & set(checked.ignored)  # the plan and the note
    (said,) = [finding for finding in checked.findings if "environment" in finding.sentence]
    written = json.loads((tmp_path / "out" / "config.json").read_text())[KEY]
    assert said.sentence == f"the config is for {written}, and needs Ropewalk in vLLM's environment"
    assert "pip install" in said.remedy


def test_a_vllm_that_is_here_without_the_plugin(folder, monkeypatch):
    monkeypatch.setattr(check_module, "installed_version", lambda engine: "0.32.0")
    monkeypatch.setattr(check_module, "is_installed", lambda asked, installed: False)
    monkeypatch.setattr(by_plugin, "entry_points", lambda group: [])
    assert "vLLM is installed here without it" in reason(rw.check(folder, engine="vllm"))
    installed = EntryPoint("ropewalk", "ropewalk.engines.vllm.plugin:register", "vllm.general_plugins")
    monkeypatch.setattr(by_plugin, "entry_points", lambda group: [installed])
    assert rw.check(folder, engine="vllm").verdict == "same"


@pytest.mark.parametrize("engine", ["sglang", "llama.cpp", "transformers"])
def test_other_engines_have_no_plugin(folder, engine):
    assert "knows no rope type 'ropewalk'" in reason(rw.check(folder, engine=engine))


@pytest.mark.parametrize("version", ["0.19", "0.29", "0.30.0", "0.31.0"])
def test_versions_that_were_not_tested(folder, version):
    said = reason(rw.check(folder, engine=f"vllm@{version}"))
    assert said == f"this version of Ropewalk was tested with vLLM 0.32.x, and vLLM is {version}"


def test_a_plan_that_is_not_there(changed):
    assert "has no plan" in reason(rw.check(changed(rope={KEY: None})))


@pytest.mark.parametrize("plan", ["", "{}", "{", "[]", "null", {}, 3, ["{}"]], ids=str)
def test_a_plan_that_is_corrupt(changed, plan):
    """An object would be a type of layer for what reads rope parameters by type."""
    folder = changed(rope={KEY: plan})
    if isinstance(plan, dict):
        assert rw.check(folder).verdict != "same"
        return
    said = reason(rw.check(folder))
    assert ("cannot be read: plan must be" if isinstance(plan, str) else "not the text of an export") in said


def test_a_plan_of_a_method_that_is_not_known(folder, changed):
    plan = plan_text(folder).replace("rerope", "rerape")
    assert "rerape" in reason(rw.check(changed(rope={KEY: plan})))


@pytest.mark.parametrize("layers", [1, 3, 30])
def test_another_number_of_layers(changed, layers):
    said = reason(rw.check(changed(num_hidden_layers=layers)))
    assert said == f"the plan has 2 layers, and num_hidden_layers is {layers}"


def test_lengths_beyond_the_plan(changed, folder):
    assert "at most, not 256" in reason(rw.check(folder, target_len=256))
    for asked in (None, 64):
        said = reason(rw.check(changed(max_position_embeddings=256), target_len=asked))
        assert said == "the plan is for 128 tokens at most, and max_position_embeddings is 256"


def test_the_remedy_is_another_export_of_the_original(changed, folder):
    for checked in (
        rw.check(folder, target_len=256),
        rw.check(changed(max_position_embeddings=64), target_len=TARGET),
        rw.check(changed(rope={KEY: "{}"})),
    ):
        remedies = [finding.remedy for finding in checked.findings if finding.kind == "refused"]
        assert any("from the original model" in remedy for remedy in remedies)
        assert not any("ropewalk export" in remedy for remedy in remedies)


@pytest.mark.parametrize("kind", sorted(BY_TRANSFORMERS & {"olmo2", "gpt_neox", "phi", "smollm3", "starcoder2"}))
def test_models_that_vllm_has_no_code_of(changed, kind):
    said = reason(rw.check(changed(model_type=kind)))
    assert f"vLLM has no code of its own for {kind}, and the plugin cannot reach transformers'" in said


def test_models_that_vllm_always_computes_yarn_for(changed):
    assert "YaRN for gpt_oss whatever its config says" in reason(rw.check(changed(model_type=ALWAYS_YARN)))


def test_what_the_plugin_does_not_support(changed):
    assert "xdrope_section" in reason(rw.check(changed(rope={"xdrope_section": [2, 2, 2, 2]})))


def test_an_option_that_replaces_what_the_plugin_reads(changed):
    checked = rw.check(changed(rope={"rope_type": "default"}), engine="vllm")
    assert checked.verdict == "differs"
    assert "was written for rerope:window=8+log_n" in checked.findings[0].sentence


@settings(max_examples=150, deadline=None, derandomize=True)
@given(some.data())
def test_any_damage_to_a_plan_is_refused_or_read(folder, data):
    """Never another error than the plan's own."""
    plan = json.loads(plan_text(folder))
    place = plan
    while isinstance(place, dict | list) and place:
        key = data.draw(some.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
        if not isinstance(place[key], dict | list) or not place[key] or data.draw(some.booleans()):
            place[key] = data.draw(some.sampled_from([None, True, -1, 0, 1e300, "x", [], {}, [1], {"x": 1}]))
            break
        place = place[key]
    config = tiny("llama", num_hidden_layers=2).config
    config.max_position_embeddings = TARGET
    config.rope_parameters = {"rope_type": KEY, "rope_theta": 1e4, KEY: json.dumps(plan)}
    for engine in ENGINES:
        assert rw.check(config, engine=engine).verdict in ("same", "refused")
