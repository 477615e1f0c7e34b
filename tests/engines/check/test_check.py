"""`rw.check` on configs as released, and on the faults that users report."""

import copy
import itertools
import json
import math
import re
import shlex
import subprocess
import sys

import pytest
from transformers import AutoConfig, Qwen2Config, Qwen3Config

import ropewalk as rw
from ropewalk import DoesNotFit, InvalidValue, UnknownName, Unreadable
from ropewalk.cli.output import KEYS
from ropewalk.engines.targets import ENGINES
from ropewalk.hf.load_options import LoadOptions
from ropewalk.models import DEFAULT

from engines.check.folders import K, llama
from hf.released import CONFIGS

ENGINE_NAMES = ("vllm", "vllm@0.29", "sglang", "llama.cpp", "transformers")
# What each engine makes of a released config without flags, at its own length. vLLM's table for `dynamic` ends before
# the length that it then serves. Llama 4's queries are scaled by the model's own code.
# llama.cpp truncates gpt-oss' ramp.
VERDICTS = {
    "Llama-3.1-8B": ("same", "same", "same", "same", "same"),
    "Llama-3.2-1B": ("same", "same", "same", "same", "same"),
    "gemma-3-4b": ("same", "same", "same", "same", "same"),
    "gemma-4": ("same", "same", "same", "same", "same"),
    "Qwen2.5-7B-Instruct with YaRN": ("refused", "same", "refused", "same", "same"),
    "Qwen3-8B with YaRN": ("refused", "same", "refused", "same", "same"),
    "Phi-3-mini-128k": ("differs", "differs", "differs", "differs", "same"),
    "Phi-4-mini": ("differs", "differs", "differs", "differs", "same"),
    "DeepSeek-V3": ("same", "same", "same", "same", "same"),
    "Kimi-K2-Instruct": ("same", "same", "same", "same", "same"),
    "gpt-oss-20b": ("same", "same", "same", "differs", "same"),
    "Ministral-3-8B": ("differs", "differs", "same", "same", "same"),
    "Llama-4-Scout": ("same", "same", "same", "same", "same"),
    "GLM-4-9B-0414": ("same", "same", "same", "same", "same"),
    "internlm2.5-like, dynamic": ("differs", "differs", "differs", "same", "same"),
    "deepseek-coder-6.7b": ("same", "same", "same", "same", "same"),
}


def released(name):
    kind, settings, *_ = CONFIGS[name]
    return AutoConfig.for_model(kind, **copy.deepcopy(settings))


def yarn(factor=4.0, length=32 * K, **rope):
    return llama("yarn", length, factor=factor, original_max_position_embeddings=8 * K, **rope)


def text(checked):
    """The page on one line."""
    return " ".join(str(checked).split())


def said(checked, kind):
    return [finding for finding in checked.findings if finding.kind == kind]


@pytest.mark.parametrize("name", list(CONFIGS))
def test_released_configs(name):
    checked = [rw.check(released(name), engine=engine) for engine in ENGINE_NAMES]
    assert tuple(answer.verdict for answer in checked) == VERDICTS[name], "\n\n".join(map(str, checked))
    assert {answer.target_len for answer in checked} == {CONFIGS[name][2]}


@pytest.mark.parametrize("name", list(CONFIGS))
@pytest.mark.parametrize("engine", ["vllm", "vllm@0.29", "sglang"])
def test_flags_mend_what_they_are_printed_for(name, engine):
    """The keys of the printed flags, put into the config: then the engine computes what was meant."""
    before, config = rw.check(released(name), engine=engine), released(name)
    flags = [match for match in map(overrides, (finding.remedy for finding in before.findings)) if match]
    for changes in flags:
        for key, value in changes.items():
            setattr(config, key, value)
        after = rw.check(config, engine=engine, target_len=before.target_len)
        assert not said(after, "refused"), str(after)
        meant, computed = before.layers[-1].meant, after.layers[-1].engine
        assert math.isclose(computed.scale, meant.scale, rel_tol=1e-5)
        assert ((computed.inv_freq - meant.inv_freq).abs() <= 1e-5 * meant.inv_freq).all()
    wanted = name in ("Qwen2.5-7B-Instruct with YaRN", "Qwen3-8B with YaRN") and engine != "vllm@0.29"
    wanted |= (name, engine == "sglang") in (("Ministral-3-8B", False), ("internlm2.5-like, dynamic", True))
    assert len(flags) >= wanted


def overrides(remedy):
    """The JSON of `--hf-overrides` or `--json-model-override-args`."""
    words = shlex.split(remedy) if "--" in remedy else []
    values = (value for word, value in itertools.pairwise(words) if word.endswith(("overrides", "override-args")))
    return json.loads(next(values, "null"))


def test_keys_that_llama_cpp_does_not_read():
    """Its converter writes betas and attention_factor, and llama.cpp its own; of StableLM it keeps the base."""
    rope = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8 * K}
    stablelm = AutoConfig.for_model("stablelm", max_position_embeddings=32 * K, rope_parameters=rope)
    for config, names in (
        (yarn(attention_factor=1.1, beta_fast=16), ["attention_factor", "beta_fast"]),
        (stablelm, ["factor", "original_max_position_embeddings"]),
    ):
        assert sorted(rw.check(config, engine="llama.cpp").ignored) == [f"rope_parameters.{name}" for name in names]


def test_an_attention_factor_that_old_versions_drop():
    """vLLM #46280 and #48351, prime-rl #2802: dropped up to 0.29, read since 0.30. attn_factor mends it."""
    config = yarn(attention_factor=1.0)
    assert rw.check(config, engine="vllm@0.30").verdict == "same"
    old = rw.check(config, engine="vllm@0.29.0")
    assert old.verdict == "differs"
    assert "rope_parameters.attention_factor" in old.ignored
    times = (0.1 * math.log(4) + 1) ** 2
    assert f"logits are multiplied by {times:.4f} instead of 1.0000" in text(old)
    (finding,) = said(old, "differs")
    assert overrides(finding.remedy)["rope_parameters"]["attn_factor"] == pytest.approx(1 / times**0.5)
    assert rw.check(config, engine="sglang").verdict == "differs"


@pytest.mark.parametrize(("attn_factor", "temperature"), [({}, 1.0), ({"attn_factor": 1.25}, 1.25)])
def test_a_temperature_that_old_versions_let_a_config_switch_off(attn_factor, temperature):
    """vLLM up to 0.29 reads apply_yarn_scaling, with which attn_factor alone is left; nothing else reads it."""
    config, usual = yarn(apply_yarn_scaling=False, **attn_factor), (0.1 * math.log(4) + 1) ** 2
    (old,) = said(rw.check(config, engine="vllm@0.29"), "differs")
    assert f"logits are multiplied by {temperature**2:.4f} instead of {usual:.4f}" in " ".join(old.sentence.split())
    assert rw.check(config, engine="vllm@0.30").verdict == "same"


def test_logits_that_old_versions_let_a_config_switch_off():
    """DeepSeek's are multiplied by the square of mscale_all_dim's temperature, before 0.31 unless told not to."""
    settings = copy.deepcopy(CONFIGS["DeepSeek-V3"][1])
    rope = settings["rope_scaling"]
    rope["apply_yarn_scaling"] = False
    config = AutoConfig.for_model("deepseek_v3", **settings)
    before, after = (rw.check(config, engine=f"vllm@{version}").layers[-1].engine.scale for version in ("0.30", "0.31"))
    assert after / before == pytest.approx((0.1 * rope["mscale_all_dim"] * math.log(rope["factor"]) + 1) ** 2)


def test_betas_that_llama_cpp_ignores():
    config = yarn(beta_fast=16.0)
    assert rw.check(config, engine="vllm").verdict == "same"
    checked = rw.check(config, engine="llama.cpp")
    assert checked.verdict == "differs"
    assert "rope_parameters.beta_fast" in checked.ignored
    (finding,) = said(checked, "differs")
    assert re.search(r"pair \d+ rotates by", finding.sentence)
    assert finding.remedy == "ropewalk export LlamaConfig rope --target llama.cpp -o FOLDER"
    assert rw.check(yarn(beta_fast=32.0, beta_slow=1.0), engine="llama.cpp").verdict == "same"
    assert rw.check(yarn(attention_factor=1.0), engine="llama.cpp").verdict == "differs"
    assert rw.check(yarn(truncate=False), engine="llama.cpp").verdict == "differs"


@pytest.mark.parametrize("engine", ["vllm", "vllm@0.29"])
def test_a_factor_too_small_for_the_length(engine):
    checked = rw.check(yarn(length=128 * K), engine=engine, target_len=128 * K)
    assert checked.verdict in ("differs", "refused")
    assert "the table ends at 32,768 positions" in text(checked)
    assert f"the checkpoint is for {32 * K:,} tokens" in text(checked)
    assert f"yarn --to {128 * K}" in text(checked)


def test_a_plain_model_beyond_its_length():
    checked = rw.check(llama(), engine="vllm", target_len=32 * K)
    assert checked.verdict == "refused"
    assert "vllm allows 8,192 tokens with this config, not 32,768" in text(checked)
    assert "ropewalk export LlamaConfig yarn --to 32768 --target vllm -o FOLDER" in text(checked)
    other = rw.check(llama(), engine="transformers", target_len=32 * K)
    assert other.verdict == "same"
    assert [finding.kind for finding in other.findings] == ["warning"]


def test_a_dynamic_config():
    """Static in vLLM before 0.22, plain since; dropped by llama.cpp; by the batch in transformers."""
    config, beyond = llama("dynamic", factor=4.0), 16 * K
    names = ("vllm", "vllm@0.21", "sglang", "llama.cpp")
    asked = [rw.check(config, engine=name, target_len=8 * K).verdict for name in names]
    assert asked == ["same", "differs", "differs", "same"]
    assert {rw.check(config, engine=name, target_len=beyond).verdict for name in ENGINE_NAMES} == {"differs"}
    assert "the table ends at 8,192 positions" in text(rw.check(config, engine="vllm", target_len=beyond))
    assert "keys in the cache keep the table of their step" in text(
        rw.check(config, engine="transformers", target_len=beyond)
    )


def test_the_length_that_is_served_without_flags():
    """It is judged where no length was asked for: what a server without flags does."""
    config, sentence = llama("dynamic", factor=4.0), "without flags 32,768 tokens are served, and the table ends"
    (finding,) = said(rw.check(config, engine="vllm"), "differs")
    assert (sentence in finding.sentence, finding.remedy) == (True, "--max-model-len 8192")
    asked = rw.check(config, engine="vllm", target_len=8 * K)
    assert (asked.verdict, asked.command) == ("same", finding.remedy)
    assert any(sentence in warning.sentence for warning in said(asked, "warning"))


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_no_flags_where_the_engine_refuses(engine):
    """Flags that do not work are not printed."""
    for checked in (rw.check(llama(), engine=engine, target_len=32 * K), rw.check(llama("ntk"), engine=engine)):
        assert (checked.verdict, checked.command, checked.to_json()["flags"]) == ("refused", "", "")
    assert rw.check(llama(), engine=engine).command


def test_no_remedy_that_the_tool_refuses(tmp_path):
    """`ropewalk export` takes a model, not a config; and what an engine does not read, it does not carry."""
    llama().save_pretrained(tmp_path)
    (tmp_path / "other.json").write_text((tmp_path / "config.json").read_text())
    for place in (tmp_path, tmp_path / "config.json", tmp_path / "other.json"):
        assert "-> ropewalk export MODEL yarn --to 32768" in text(rw.check(place, target_len=32 * K))
    (tmp_path / "model.safetensors").touch()
    for place in (tmp_path, tmp_path / "config.json"):
        assert f"-> ropewalk export {tmp_path} yarn" in str(rw.check(place, target_len=32 * K))
    mixtral = AutoConfig.for_model("mixtral", max_position_embeddings=8 * K)
    checked = rw.check(mixtral, engine="sglang", target_len=32 * K)
    assert checked.verdict == "refused"
    assert "no export for this engine" in text(checked)
    assert "ropewalk export MixtralConfig" not in text(checked)


def test_longrope_of_another_architecture_than_phi():
    sets = {"short_factor": [1.0] * 64, "long_factor": [4.0] * 64, "original_max_position_embeddings": 8 * K}
    config = llama("longrope", 32 * K, factor=4.0, attention_factor=1.0, **sets)
    assert rw.check(config, engine="transformers").verdict == "differs"
    assert rw.check(config, engine="transformers", target_len=8 * K).verdict == "same"
    alike = llama("longrope", 32 * K, **{**sets, "short_factor": [4.0] * 64}, factor=4.0, attention_factor=1.3)
    checked = rw.check(alike, engine="vllm")
    assert checked.verdict == "differs"  # its temperature is read as short_mscale and long_mscale
    (finding,) = said(checked, "differs")
    assert overrides(finding.remedy)["rope_parameters"]["long_mscale"] == 1.3
    assert rw.check(alike, engine="llama.cpp").verdict == "unknown"


def test_a_llama3_schedule_that_is_dropped():
    """llama.cpp's converter writes it in Llama's class; SGLang's Mixtral reads a base and no schedule."""
    rope = {"factor": 8.0, "original_max_position_embeddings": 8 * K, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    rope |= {"rope_type": "llama3", "rope_theta": 500_000.0}
    config = Qwen3Config(max_position_embeddings=64 * K, rope_parameters=rope)
    checked = rw.check(config, engine="llama.cpp")
    assert checked.verdict == "differs"
    assert "rope_parameters.low_freq_factor" in checked.ignored
    assert rw.check(config, engine="sglang").verdict == "same"
    mixtral = AutoConfig.for_model("mixtral", max_position_embeddings=64 * K, rope_parameters=dict(rope))
    assert rw.check(mixtral, engine="sglang").verdict == "differs"
    assert rw.check(mixtral, engine="vllm").verdict == "same"


def test_llama_cpp_drops_even_the_base_of_some_architectures():
    rope = {"rope_type": "default", "rope_theta": 50_000.0}
    config = AutoConfig.for_model("stablelm", rope_parameters=rope)
    assert rw.check(config, engine="llama.cpp").verdict == "differs"
    rope = {"rope_type": "default", "rope_theta": 10_000.0}
    assert rw.check(AutoConfig.for_model("stablelm", rope_parameters=rope), engine="llama.cpp").verdict == "same"


def test_dual_chunk_attention():
    """vLLM #21452 and #49296: the config is read, and the attention for it is gone."""
    dual = {"chunk_size": 262_144, "local_size": 8192, "original_max_position_embeddings": 262_144}
    config = Qwen2Config(max_position_embeddings=1024 * K, dual_chunk_attention_config=dual)
    checked = rw.check(config, engine="vllm")
    assert checked.verdict == "refused"
    assert "remove dual_chunk_attention_config" in text(checked)


def test_what_vllm_stops_at():
    oss = released("gpt-oss-20b")
    oss.rope_parameters = {"rope_type": "default", "rope_theta": 150_000.0}
    assert "stops without factor" in text(rw.check(oss, engine="vllm"))
    latent = released("DeepSeek-V3")
    latent.rope_parameters = {"rope_type": "longrope", "rope_theta": 1e4, "original_max_position_embeddings": 4096}
    latent.rope_parameters |= {"short_factor": [1.0] * 32, "long_factor": [1.0] * 32}
    assert "stops without factor" in text(rw.check(latent, engine="vllm"))
    glm = released("GLM-4-9B-0414")
    glm.rope_parameters |= {"rope_type": "longrope", "original_max_position_embeddings": 4096}
    glm.rope_parameters |= {"short_factor": [1.0] * 32, "long_factor": [1.0] * 32}
    for engine in ("vllm", "sglang"):
        assert "this one's are neighbours" in text(rw.check(glm, engine=engine))


def test_yarn_that_was_added_is_in_force_for_short_texts_too():
    (finding,) = said(rw.check(released("Qwen3-8B with YaRN"), engine="llama.cpp"), "warning")
    assert "in force for short texts too" in finding.sentence
    assert "dynamic schedule" in finding.remedy
    assert not said(rw.check(released("DeepSeek-V3"), engine="vllm"), "warning")  # trained with it


def test_a_corrected_length():
    assert rw.check(llama(), engine="vllm", options=LoadOptions(trained_len=4 * K)).target_len == 4 * K


def test_the_json_has_every_pair():
    checked = rw.check(yarn(attention_factor=1.0), engine="vllm@0.29.0")
    values = json.loads(json.dumps(checked.to_json()))
    assert list(values) == [
        *("model", "engine", "version", "source", "verdict"),
        *("target_len", "trained_len", "trained_source", "made_for_len", "stretched_by", "allowed_len", "default_len"),
        *("layers", "ignored", "findings", "flags"),
    ]
    assert set(values) == set(KEYS["check"])  # what the reference says
    assert (values["engine"], values["version"], values["verdict"]) == ("vllm", "0.29.0", "differs")
    (layer,) = values["layers"]
    assert len(layer["inv_freq"]["engine"]) == len(layer["inv_freq"]["meant"]) == 64
    assert layer["logit_scale"]["meant"] == 1.0
    assert layer["table_rows"] == 32 * K
    assert layer["differs_from_meant"][0]["what"] == "temperature"
    assert values["findings"][0]["kind"] == "differs"
    assert rw.check(llama(), engine="llama.cpp").to_json()["allowed_len"] is None


def test_a_page_fits_a_screen():
    page = str(rw.check(released("gemma-3-4b"), engine="vllm"))
    assert page.startswith("same: the engine computes what the checkpoint is meant to compute")
    assert "full_attention: linear" in page
    assert "tokens, with the checkpoint's schedule\n" in page
    assert re.search(r"trained on +[\d,]+ tokens\n", str(rw.check(llama(), engine="vllm")))
    assert "transformers computes the same" in page
    assert max(map(len, page.splitlines())) <= 100


@pytest.mark.parametrize(
    ("engine", "error", "match"),
    [
        ("vlm", UnknownName, "did you mean 'vllm'"),
        ("vllm@0.33", DoesNotFit, r"vllm 0\.33 reads a config is not known, and is not guessed; known: 0\.19 to 0\.21"),
        ("vllm@0.18.1", DoesNotFit, "not known"),
        ("vllm@0", DoesNotFit, "not known"),
        ("sglang@0.5.9", DoesNotFit, r"0\.5\.22 to 0\.5\.23"),
        ("llama.cpp@b9000", DoesNotFit, "b11434 to b11739"),
        ("transformers@4.57", DoesNotFit, r"5\.20 to 5\.23"),
        ("vllm@latest", InvalidValue, r"vllm@0\.32"),
        ("vllm@", InvalidValue, "a name and a version"),
    ],
)
def test_engines_that_are_not_known(engine, error, match):
    with pytest.raises(error, match=match):
        rw.check(llama(), engine=engine)


@pytest.mark.parametrize(
    ("engine", "version"),
    [("vllm@0.32.0", "0.32.0"), ("vllm", "0.32"), ("llama.cpp@b11500", "b11500"), ("sglang@v0.5.23", "0.5.23")],
)
def test_versions_are_written_as_their_makers_do(engine, version):
    assert rw.check(llama(), engine=engine).version == version


def test_bad_input(tmp_path):
    with pytest.raises(InvalidValue, match="target_len"):
        rw.check(llama(), target_len=0)
    with pytest.raises(Unreadable, match="an existing folder"):
        rw.check(tmp_path / "nothing" / "here")
    (tmp_path / "model.bin").write_bytes(b"")
    with pytest.raises(Unreadable, match=r"a config\.json"):
        rw.check(tmp_path / "model.bin")
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(Unreadable):
        rw.check(tmp_path)
    with pytest.raises(DoesNotFit, match="no rope_parameters"):
        rw.check(AutoConfig.for_model("gpt2"))
    with pytest.raises(DoesNotFit, match="max_position_embeddings"):
        rw.check(llama(length=0))


def test_an_architecture_that_was_not_read():
    config = AutoConfig.for_model("persimmon")
    for engine in ("vllm", "sglang", "llama.cpp"):
        checked = rw.check(config, engine=engine)
        assert checked.verdict == "unknown"
        assert checked.ignored == ()
    assert rw.check(config, engine="transformers").verdict == "same"


def test_a_tokenizer_that_states_less(tmp_path):
    llama().save_pretrained(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 4 * K}))
    checked = rw.check(tmp_path, engine="vllm")
    assert checked.verdict == "refused"
    assert checked.length.allowed == 4 * K


def test_every_engine_has_its_formulas():
    assert set(ENGINES) == {
        *("vllm", "sglang", "llama.cpp", "mlx", "ollama", "ollama-mlx", "lmdeploy", "exllamav3", "transformers")
    }
    for rules in ENGINES.values():
        ends = [end for between in rules.ranges for end in between[:2]]
        assert ends == sorted(ends)


@pytest.mark.nightly
def test_reading_a_config_needs_no_probe():
    """So that it runs in an engine's environment, whose transformers is older."""
    code = "import sys, ropewalk.engines.check.check; print('ropewalk.hf.probe.probe' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
    with pytest.raises(AttributeError, match=r"'ropewalk\.hf' has no attribute 'chek'"):
        rw.hf.chek  # noqa: B018


def test_in_a_notebook_it_is_one_line_that_opens():
    checked = rw.check(DEFAULT, engine="vllm")
    assert repr(checked).startswith("<EngineCheck: vllm ")
    assert len(repr(checked)) < 160
    assert checked._repr_html_().startswith("<details><summary>EngineCheck: vllm ")
    assert "<pre>same: " in checked._repr_html_()
