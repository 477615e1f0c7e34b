"""What `check` says of mlx-lm: it depends on where base and schedule stand in config.json."""

import json

import pytest
from transformers import AutoConfig

import ropewalk as rw
from ropewalk import DoesNotFit

from engines.export.exported import exported
from hf.models import tiny

YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}


def folder_of(tmp_path, name, base=20_000.0, schedule=None, inside=False, **own):
    """A config as releases have it, with keys beside each other, or as transformers 5 saves it."""
    values = {"model_type": name, "head_dim": 16, "hidden_size": 64, "num_attention_heads": 4, **own}
    values |= {"num_hidden_layers": 2, "max_position_embeddings": 256}
    beside = {"rope_theta": base} | ({"rope_scaling": schedule} if schedule else {})
    values |= (
        {"rope_parameters": {"rope_type": "default", "rope_theta": base, **(schedule or {})}} if inside else beside
    )
    (tmp_path / "config.json").write_text(json.dumps(values))
    return tmp_path


@pytest.mark.parametrize("name", ["llama", "mistral", "qwen2", "qwen3", "granite", "smollm3"])
def test_a_released_config_is_read(tmp_path, name):
    assert rw.check(folder_of(tmp_path, name, schedule=YARN), engine="mlx").verdict == "same"


@pytest.mark.parametrize(
    ("name", "verdict", "base"),
    [
        ("llama", "differs", 10_000.0),
        ("qwen2", "differs", 1e6),
        ("mixtral", "differs", 1e6),
        ("qwen3", "same", 20_000.0),
        ("granite", "refused", None),
        ("qwen3_moe", "refused", None),
    ],
)
def test_what_transformers_saves_is_dropped_by_most(tmp_path, name, verdict, base):
    checked = rw.check(folder_of(tmp_path, name, inside=True), engine="mlx")
    assert checked.verdict == verdict
    if base:
        assert float(checked.layers[0].engine.inv_freq[1]) == pytest.approx(base ** (-1 / 8))
    if verdict == "differs":
        assert "rope_parameters.rope_theta" in checked.ignored
        assert any("as transformers 5 writes it" in finding.sentence for finding in checked.findings)
        assert any("export" in finding.remedy and "rope --target mlx" in finding.remedy for finding in checked.findings)


@pytest.mark.parametrize("name", ["mixtral", "qwen3_moe", "starcoder2"])
def test_some_read_a_base_alone(tmp_path, name):
    checked = rw.check(folder_of(tmp_path, name, schedule=YARN, sliding_window=None), engine="mlx")
    assert checked.verdict == "differs"
    assert "rope_parameters.factor" in checked.ignored


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"truncate": False}, "pair"),
        ({"attention_factor": 1.0}, "logits are multiplied by"),
        ({"mscale": 0.5, "mscale_all_dim": 0.5}, ""),
    ],
)
def test_keys_of_yarn(tmp_path, more, said):
    checked = rw.check(folder_of(tmp_path, "llama", schedule={**YARN, **more}), engine="mlx")
    assert checked.verdict == ("differs" if said else "same")
    assert said in str(checked)
    assert ("rope_parameters.attention_factor" in checked.ignored) == ("attention_factor" in more)


def test_longrope_has_its_long_divisors_for_short_texts_too(tmp_path):
    sets = {"short_factor": [1.0] * 8, "long_factor": [4.0] * 8}
    checked = rw.check(folder_of(tmp_path, "llama", schedule={**YARN, "rope_type": "longrope", **sets}), engine="mlx")
    assert checked.verdict == "differs"
    assert [finding.sentence.count("in texts of 64 tokens") for finding in checked.findings] == [1]
    assert checked.findings[0].remedy.startswith("no key of the config mends it")


def test_a_schedule_that_grows_keeps_the_keys_of_each_chunk(tmp_path):
    dynamic = {"rope_type": "dynamic", "factor": 4.0}
    assert "chunk" in str(rw.check(folder_of(tmp_path, "llama", schedule=dynamic), engine="mlx", target_len=512))


def test_a_model_that_was_not_read(tmp_path):
    assert rw.check(AutoConfig.for_model("falcon"), engine="mlx").verdict == "unknown"
    model = tiny("gpt_neox", num_hidden_layers=1)
    with pytest.raises(DoesNotFit, match="one whose code in mlx-lm was read"):
        exported(model, tmp_path / "out", "ntk:factor=4", target="mlx")


def test_an_export_has_the_keys_that_mlx_reads(tmp_path):
    """The base of its local layers and their period among them; transformers and the engines read the same from it."""
    rope = {"rope_type": "default", "rope_theta": 1e4}
    parts = {"sliding_attention": rope, "full_attention": {**rope, "rope_theta": 3e4}}
    model = tiny("gemma3_text", num_hidden_layers=6, rope_parameters=parts)
    text = "yarn:factor=4+scales.temperature:value=1.2"
    _, stored, _ = exported(model, tmp_path / "out", text, target="mlx")
    assert (stored["rope_theta"], stored["rope_local_base_freq"], stored["sliding_window_pattern"]) == (3e4, 1e4, 6)
    assert stored["rope_scaling"]["mscale"] > 1
    for engine in ("mlx", "transformers", "vllm"):
        assert rw.check(tmp_path / "out", engine=engine, target_len=128).verdict == "same"


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("mixtral", "yarn:factor=4", "all that mlx-lm reads of mixtral"),
        ("llama", "window:window=16+yarn:factor=4", "no window in Mistral's layers"),
        ("gemma3_text", "yarn:factor=4", "periodic, which is what mlx-lm computes"),
    ],
)
def test_refused(tmp_path, name, text, why):
    layers = {"layer_types": ["full_attention", "sliding_attention"]}
    own = {"gemma3_text": layers, "mixtral": {"sliding_window": None}}
    with pytest.raises(DoesNotFit, match=why):
        exported(tiny(name, num_hidden_layers=2, **own.get(name, {})), tmp_path / "out", text, target="mlx")
