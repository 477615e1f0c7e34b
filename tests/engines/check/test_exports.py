"""What `rw.export` writes for an engine is the same there, and is told apart under the others."""

import shlex

import pytest
import torch
from hypothesis import given, settings, strategies as some

import ropewalk as rw
from ropewalk import DoesNotFit
from ropewalk.engines.rules.statement import state_extension
from ropewalk.engines.targets import ENGINES
from ropewalk.hf.attach.extend import attach_layers, extended
from ropewalk.hf.probe.facts import facts_of
from ropewalk.hf.probe.probe import probe

from engines.export import test_engines as schedules
from hf.models import tiny

EXTENSIONS = (
    *("yarn:factor=4", "pi:factor=4", "ntk:factor=4", "llama3:factor=4", "dynamic_yarn"),
    *("yarn:factor=4+cope+resonance", "dynamic_yarn+resonance", "p_rope:share=0.5"),
    "frequencies.by_parts:factor=4,low_turns=2,high_turns=16+scales.temperature:value=1.3",
)
EXPORTED = sorted(name for name, rules in ENGINES.items() if rules.export)
NAMES = ("llama", "mistral", "qwen3", "phi3", "gemma3_text")
BEYOND = 130  # not a multiple of the trained length


def written(model, folder, text, target, target_len=128):
    with extended(model, text):
        return rw.export(model, folder, target=target, target_len=target_len)


@pytest.mark.sampled(cases=1)
@pytest.mark.parametrize("target", ["vllm", "sglang", "llama.cpp", "mlx", "transformers"])
@pytest.mark.parametrize("name", NAMES)
def test_an_export_is_the_same_in_its_engine(tmp_path, name, target):
    plain = {"gemma3_text": {"layer_types": ["full_attention"] * 2}, "mistral": {"sliding_window": None}}
    model, ran = tiny(name, num_hidden_layers=2, **plain.get(name, {})), 0
    for number, text in enumerate(EXTENSIONS):
        folder = tmp_path / str(number)
        try:
            written(model, folder, text, target)
        except DoesNotFit:  # this engine cannot carry it
            continue
        checked = rw.check(folder, engine=target, target_len=128)
        assert checked.verdict == "same", f"{text}\n{checked}"
        ran += 1
    # llama.cpp drops Phi-3's schedule, and fixes a pattern of windows for Gemma 3 that this small one has not.
    assert ran >= (0 if name in ("phi3", "gemma3_text") and target == "llama.cpp" else 2)


@pytest.mark.sampled(cases=1)
@pytest.mark.parametrize("name", ["glm4_moe", "qwen3_next", "qwen3_5_text"])
def test_heads_that_rotate_in_part(tmp_path, name):
    """SGLang reads a quarter, and for Qwen3-Next the base, beside the rope parameters, where the export states them."""
    model = tiny(name, num_hidden_layers=4, rope_theta=500_000.0)
    for target in ("vllm", "sglang", "llama.cpp", "transformers"):
        written(model, tmp_path / target, "yarn:factor=4", target)
        checked = rw.check(tmp_path / target, engine=target, target_len=128)
        assert checked.verdict == "same", str(checked)


@pytest.mark.parametrize("text", EXTENSIONS)
def test_a_length_beyond_the_factor(tmp_path, text):
    """vLLM's table would end: the export lowers it."""
    written(tiny("llama", num_hidden_layers=1), tmp_path / "out", text, "vllm", BEYOND)
    checked = rw.check(tmp_path / "out", engine="vllm", target_len=BEYOND)
    assert checked.verdict == "same", str(checked)


@pytest.mark.parametrize(
    ("text", "written_for", "engine", "verdict"),
    [
        (EXTENSIONS[-1], "llama.cpp", "vllm", "refused"),  # its divisors are among the weights
        (EXTENSIONS[-1], "llama.cpp", "transformers", "refused"),
        (EXTENSIONS[-1], "vllm", "llama.cpp", "differs"),
        ("frequencies.by_parts:factor=4,ramp=turns", "vllm", "llama.cpp", "unknown"),
        ("frequencies.by_parts:factor=4,low_turns=2+scales.yarn_temperature:factor=4", "vllm", "llama.cpp", "differs"),
        ("yarn:factor=4", "vllm", "sglang", "same"),
        ("pi:factor=4", "transformers", "vllm", "same"),
    ],
)
def test_an_export_for_another_engine(tmp_path, text, written_for, engine, verdict):
    written(tiny("llama", num_hidden_layers=1), tmp_path / "out", text, written_for)
    checked = rw.check(tmp_path / "out", engine=engine, target_len=128)
    assert checked.verdict == verdict, str(checked)


def test_divisors_that_are_announced_and_are_not_there(tmp_path):
    written(tiny("llama", num_hidden_layers=1), tmp_path / "out", EXTENSIONS[-1], "llama.cpp")
    (tmp_path / "out" / "model.gguf").unlink()
    assert rw.check(tmp_path / "out", engine="llama.cpp", target_len=128).verdict in ("refused", "unknown")


@pytest.mark.sampled(cases=9)
@pytest.mark.parametrize("engine", sorted(ENGINES))
@pytest.mark.parametrize("name", ["llama", "phi3"])
def test_a_saved_folder_is_refused_by_every_engine(tmp_path, engine, name):
    """The folder, its config, and the config alone."""
    rw.save(rw.extend(tiny(name, num_hidden_layers=1), "rerope:window=8").model, tmp_path / "out")
    places = [tmp_path / "out", tmp_path / "out" / "config.json"]
    if name != "phi3":  # transformers stops at Phi-3's alone
        places.append(tmp_path / "config.json")
        places[-1].write_text(places[1].read_text())
    for place in places:
        checked = rw.check(place, engine=engine)
        assert (checked.verdict, checked.command) == ("refused", "")
        (finding,) = checked.findings
        assert finding.sentence == "this folder has an extension in ropewalk.json: load it with ropewalk.load"
        assert finding.remedy.startswith("ropewalk.load runs it")


@pytest.mark.parametrize("saved", ["rerope:window=8+log_n", "dynamic_yarn"])
def test_a_saved_folder_names_the_export_that_vllm_computes(tmp_path, saved):
    """The command of its remedy is carried out, and its folder is checked."""
    rw.save(rw.extend(tiny("llama", num_hidden_layers=1), saved).model, tmp_path / "out", target_len=256)
    (finding,) = rw.check(tmp_path / "out", engine="vllm").findings
    command = shlex.split(finding.remedy.partition("plugin: ")[2])
    assert (command[:3], command[4:]) == (
        ["ropewalk", "export", "ORIGINAL"],
        ["--to", "256", "--target", "vllm", "-o", "FOLDER"],
    )
    original = rw.extend(tiny("llama", num_hidden_layers=1), command[3], target_len=256).model
    rw.export(original, tmp_path / "exported", target="vllm", target_len=256)
    assert rw.check(tmp_path / "exported", engine="vllm").verdict == "same"


def test_a_sidecar_beside_an_open_config(tmp_path):
    model = rw.extend(tiny("llama", num_hidden_layers=1), "rerope:window=8").model
    config = model.config.to_json_string()
    rw.save(model, tmp_path / "out")
    (tmp_path / "out" / "config.json").write_text(config)
    checked = rw.check(tmp_path / "out", engine="vllm")
    assert checked.verdict == "differs"
    assert "ropewalk.json, which adds rerope" in str(checked)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(schedules.plain, schedules.multiples, schedules.came_with, some.sampled_from(EXPORTED))
def test_any_schedule_that_is_written_for_an_engine(text, multiple, own, target):
    """Any schedule, on models that came with one or with none, at any length: same, or refused by the export."""
    try:
        _, said, reading, _ = schedules.read(text, target, multiple, own)
    except DoesNotFit:
        return
    if not reading.divisors:  # which are among the weights
        checked = rw.check(said.config, engine=target, target_len=int(schedules.TRAINED * multiple))
        assert checked.verdict == "same", f"{text} for {target}, on {own}\n{checked}"


@pytest.mark.sampled(cases=12)
@pytest.mark.parametrize(
    "name", ["glm4", "stablelm", "granite", "olmo2", "ministral3", "mixtral", "starcoder2", "smollm3"]
)
@pytest.mark.parametrize("target", EXPORTED)
def test_other_architectures(name, target):
    """Same, refused by the export, or a model whose code in that engine was not read: never another schedule."""
    model = tiny(name, num_hidden_layers=2, **({"sliding_window": None} if name in ("mixtral", "starcoder2") else {}))
    layers = probe(model)
    facts = [facts_of(model, layer, len(layers)) for layer in layers]
    for text in ("yarn:factor=4", "pi:factor=4", "ntk:factor=4", "frequencies.by_parts:factor=4,ramp=turns"):
        extension = rw.parse(text, trained_len=facts[0].trained_len, layers=len(layers))
        said = state_extension(model, extension, attach_layers(layers, facts, extension), None)
        reading = said if isinstance(said, DoesNotFit) else ENGINES[target].export.rewrite(said)
        if not isinstance(reading, DoesNotFit) and not reading.divisors:
            checked = rw.check(said.config, engine=target, target_len=said.length)
            assert checked.verdict in ("same", "unknown"), f"{text}\n{checked}"


def test_sglang_reads_a_base_alone_of_some_architectures(tmp_path):
    model = tiny("mixtral", num_hidden_layers=1, sliding_window=None)
    with pytest.raises(DoesNotFit, match="all that SGLang reads of mixtral"):
        written(model, tmp_path / "yarn", "yarn:factor=4", "sglang")
    written(model, tmp_path / "base", "ntk:factor=4", "sglang")
    assert rw.check(tmp_path / "base", engine="sglang", target_len=128).verdict == "same"


@pytest.mark.parametrize("target", ["vllm", "sglang"])
def test_a_scale_of_queries_stands_where_engines_look_for_it(tmp_path, target):
    """And transformers computes the same from the folder, which the export compares."""
    written(tiny("ministral3", num_hidden_layers=1), tmp_path / "out", "pi:factor=4", target, 1024)
    assert rw.check(tmp_path / "out", engine=target, target_len=1024).verdict == "same"


def test_the_remedy_for_llama_cpp_is_one(tmp_path):
    """`ropewalk export MODEL rope`, which check prints, writes the checkpoint's own table as divisors."""
    rope = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 32}
    model = tiny("llama", num_hidden_layers=1, max_position_embeddings=128, rope_parameters={**rope, "truncate": False})
    before = rw.check(model.config, engine="llama.cpp")
    assert before.verdict == "differs"
    assert before.findings[-1].remedy == "ropewalk export LlamaConfig rope --target llama.cpp -o FOLDER"
    written(model, tmp_path / "out", "rope", "llama.cpp", None)
    after = rw.check(tmp_path / "out", engine="llama.cpp")
    assert after.verdict == "same"
    assert after.target_len == before.target_len
    torch.testing.assert_close(after.layers[0].engine.inv_freq, before.layers[0].meant.inv_freq, rtol=1e-6, atol=0)


@pytest.mark.parametrize("name", ["qwen3_next", "qwen3_5_text"])
def test_sglang_finds_the_base_and_the_share_where_it_looks(tmp_path, name):
    """Beside the rope parameters, from which transformers 5 moved them."""
    model = tiny(name, num_hidden_layers=4)
    model.config.rope_parameters["rope_theta"] = 5e5
    model = type(model)(model.config)
    rw.extend(model, "yarn:factor=4")
    rw.export(model, tmp_path / "out", target="sglang")
    checked = rw.check(tmp_path / "out", engine="sglang")
    assert checked.verdict == "same", str(checked)
