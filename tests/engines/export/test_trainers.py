"""What trainers are told says what the model does: their settings are applied as their sources apply them."""

import ast
import math
from typing import NamedTuple

import pytest
import torch
import yaml
from transformers import AutoConfig, AutoModelForCausalLM

import ropewalk as rw
from ropewalk import DoesNotFit, InvalidValue, extended
from ropewalk.cli.verbs.export import TRAINERS as ON_THE_LINE
from ropewalk.engines.export import export
from ropewalk.engines.targets import TRAINERS
from ropewalk.engines.trainers.by_yaml import yaml_lines
from ropewalk.extension.parsing import parse

from hf.models import tiny
from hf.traces import logits, trace

IDS = torch.randint(3, 97, (2, 100), generator=torch.Generator().manual_seed(5))
STATIC = ["yarn:factor=4", "by_parts:factor=4", "pi:factor=4", "llama3:factor=4", "abf:new_base=300000"]
LOWERED = "frequencies.ntk_mixed:factor=4+scales.temperature:value=1.3"
OWN_SCRIPT = "use rw.extend in your own script"


@pytest.fixture
def saved(tmp_path):
    """A model that has a name, as one from a folder or the hub has."""
    tiny("llama", num_hidden_layers=2).save_pretrained(tmp_path / "base")
    return AutoModelForCausalLM.from_pretrained(tmp_path / "base").eval()


def test_the_command_line_names_the_same_trainers():
    assert set(ON_THE_LINE) == set(TRAINERS)


def require_same(again, expected):
    torch.testing.assert_close(logits(again.eval(), IDS), expected, rtol=0, atol=2e-3 * float(expected.abs().max()))


def as_axolotl_does(settings):
    """0.19.0, loaders/utils.py: every override is set on the config, from which the model is made."""
    read = yaml.safe_load(settings)
    config = AutoConfig.from_pretrained(read["base_model"])
    for key, value in read["overrides_of_model_config"].items():
        setattr(config, key, value)
    assert read["sequence_len"] == config.max_position_embeddings == 128
    return AutoModelForCausalLM.from_pretrained(read["base_model"], config=config)


@pytest.mark.parametrize("text", [*STATIC, LOWERED, "dynamic_yarn"])
def test_axolotl_makes_the_model_from_its_settings(saved, text):
    before = trace(saved)
    with extended(saved, text):
        result = export(saved, target="axolotl", target_len=128)
        expected = logits(saved, IDS) if text != "dynamic_yarn" else None
    if expected is None:
        with extended(saved, "yarn:factor=4"):
            expected = logits(saved, IDS)
    assert result.kind == {LOWERED: "lowered", "dynamic_yarn": "frozen"}.get(text, "native")
    assert result.directory is None
    require_same(as_axolotl_does(result.command), expected)
    assert trace(saved) == before


def test_numbers_of_yaml_stay_numbers():
    """YAML takes 1e-05 for a text, and 1.0e-05 for a number."""
    values = {"small": 1e-05, "large": 1e20, "table": [1.0, 3e-08], "inside": {"name": "yarn", "flag": True}}
    assert yaml.safe_load(yaml_lines(values)) == values


@pytest.mark.sampled(cases=3)
@pytest.mark.parametrize("text", [*STATIC, LOWERED])
def test_llama_factory_reads_the_folder_without_a_rope_key(saved, tmp_path, text):
    """0.9.5, model/model_utils/rope.py: nothing happens to the config where rope_scaling is not set."""
    with extended(saved, text):
        result = export(saved, tmp_path / "a folder", target="llama-factory", target_len=128)
        expected = logits(saved, IDS)
    read = yaml.safe_load(result.command)
    assert read == {"model_name_or_path": str(tmp_path / "a folder"), "cutoff_len": 128}
    require_same(AutoModelForCausalLM.from_pretrained(read["model_name_or_path"]), expected)


class Rope(NamedTuple):
    """The settings of torchtitan's rotary modules with their values, as 0.3.0 has them."""

    dim: int
    max_seq_len: int
    theta: float = 10000.0
    scaling: str = "none"
    scaling_factor: float = 8.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_position_embeddings: int = 8192
    rope_factor: float = 1.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    original_seq_len: int = 4096
    truncate: bool = True

    @property
    def table(self):
        """models/common/rope.py, rewritten: radians per position of every pair."""
        plain = torch.tensor([self.theta ** (-2 * i / self.dim) for i in range(self.dim // 2)], dtype=torch.float64)
        if self.scaling == "llama":
            turns = self.original_max_position_embeddings * plain / (2 * math.pi)
            kept = ((turns - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor)).clamp(0, 1)
            return plain * kept + plain / self.scaling_factor * (1 - kept)
        if self.scaling == "yarn":
            ends = [
                self.dim * math.log(self.original_seq_len / (turns * 2 * math.pi)) / (2 * math.log(self.theta))
                for turns in (self.beta_fast, self.beta_slow)
            ]
            low, high = (math.floor(ends[0]), math.ceil(ends[1])) if self.truncate else ends
            low, high = max(low, 0), min(high, self.dim - 1)
            kept = 1 - ((torch.arange(self.dim // 2).double() - low) / max(high - low, 0.001)).clamp(0, 1)
            return plain * kept + plain / self.rope_factor * (1 - kept)
        assert self.scaling == "none"
        return plain


def as_torchtitan_does(settings):
    """The module that the lines name, and its settings; the lines are Python."""
    call = next(node for node in ast.walk(ast.parse(settings)) if isinstance(node, ast.Call))
    return ast.unparse(call.func), Rope(**{word.arg: ast.literal_eval(word.value) for word in call.keywords})


@pytest.mark.parametrize(
    "text", ["by_parts:factor=4", "frequencies.by_parts:factor=4,truncate=false", "abf:new_base=300000"]
)
@pytest.mark.parametrize(("name", "module"), [("llama", "ComplexRoPE"), ("qwen3", "CosSinRoPE")])
def test_torchtitan_computes_the_table_from_its_settings(name, module, text):
    model = tiny(name, num_hidden_layers=1, max_position_embeddings=512)
    with extended(model, text) as handle:
        result = export(model, target="torchtitan", target_len=2048)
        expected = parse(text).frequencies_or_rope.table(handle.facts, 1).inv_freq
    called, rope = as_torchtitan_does(result.command)
    assert called == f"{module}.Config"
    assert (rope.dim, rope.max_seq_len) == (16, 2048)
    torch.testing.assert_close(rope.table, expected, rtol=1e-6, atol=0)
    assert "training.seq_len=2048" in result.command


def test_torchtitan_has_llama3_for_llama_alone():
    llama, qwen = (tiny(name, num_hidden_layers=1, max_position_embeddings=512) for name in ("llama", "qwen3"))
    with extended(llama, "llama3:factor=4") as handle:
        rope = as_torchtitan_does(export(llama, target="torchtitan").command)[1]
        expected = handle.extension.frequencies_or_rope.table(handle.facts, 1).inv_freq
    torch.testing.assert_close(rope.table, expected, rtol=1e-6, atol=0)
    with extended(qwen, "llama3:factor=4"), pytest.raises(DoesNotFit, match="default, yarn, which torchtitan's qwen3"):
        export(qwen, target="torchtitan")


@pytest.mark.parametrize("target", TRAINERS)
@pytest.mark.parametrize("text", ["rerope:window=8", "log_n", "biases.alibi", "self_extend:window=8,group=4"])
def test_what_attention_does_is_left_to_ones_own_script(saved, tmp_path, target, text):
    folder = tmp_path / "out" if TRAINERS[target].folder else None
    with extended(saved, text), pytest.raises(DoesNotFit, match=OWN_SCRIPT) as refused:
        export(saved, folder, target=target, target_len=128)
    assert refused.value.field in ("reach", "scales", "biases")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("target", "name", "text", "why"),
    [
        ("torchtitan", "llama", "yarn:factor=4", "no temperature, and would train without 1.1386; use by_parts"),
        ("torchtitan", "llama", "pi:factor=4", "one of default, yarn, llama3, which torchtitan's llama has"),
        ("torchtitan", "mistral", "by_parts:factor=4", "a plain llama or qwen3 or qwen3_moe for torchtitan"),
        ("torchtitan", "llama", "window:window=16", "a plain llama or qwen3"),
        ("axolotl", "llama", "window:window=16", "and no window; write a folder with --target transformers"),
        (
            "axolotl",
            "smollm3",
            "yarn:factor=4,over=head",
            "folded into weights.*write a folder with --target transformers",
        ),
    ],
)
def test_what_settings_cannot_say_is_refused(target, name, text, why):
    more = {"sliding_window": None} if name == "mistral" else {}
    more |= {"no_rope_layers": [1, 0]} if name == "smollm3" else {}
    model = tiny(name, num_hidden_layers=2, **more)
    with extended(model, text), pytest.raises(DoesNotFit, match=why):
        export(model, target=target, target_len=128)


def test_a_folder_is_named_where_one_is_written_and_nowhere_else(saved, tmp_path):
    with extended(saved, "pi:factor=4"):
        with pytest.raises(InvalidValue, match="axolotl need no folder, so directory must be left out"):
            export(saved, tmp_path / "out", target="axolotl")
        with pytest.raises(InvalidValue, match="llama-factory reads a folder, so directory must be a new one"):
            export(saved, target="llama-factory")
        with pytest.raises(InvalidValue, match="vllm reads a folder"):
            export(saved, target="vllm")
        assert rw.export(tiny_unnamed(), target="axolotl", target_len=128).command.startswith("base_model: MODEL")


def tiny_unnamed():
    model = tiny("llama", num_hidden_layers=1)
    rw.extend(model, "pi:factor=4")
    return model
