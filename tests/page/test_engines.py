"""What the page says of engines is what `export` does; the flags that it shows are what `check` finds right."""

import json
import re
import shlex

import pytest
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

import ropewalk as rw
from ropewalk.errors import RopewalkError
from ropewalk.extension.parsing import PRESETS, read_line
from ropewalk.page import html
from ropewalk.page.engines import ENGINES, in_engines

from hf.models import tiny

MORE = (
    *("ntk_old:factor=8", "temperature:value=1.3", "rerope+log_n", "window+yarn", "yarn:high_turns=16"),
    *(
        "longrope:long=[1,2,2,2,2,2,2,2]",
        "dynamic_yarn+rerope",
        "yarn+resonance",
        "xpos+resonance",
        "partial:share=0.5",
    ),
)
LONG = {"num_hidden_layers": 4, "max_position_embeddings": 256}  # lampe maps no text to fewer than some 50 tokens
LLAMA = rw.Facts(trained_len=4096, head_dim=64, heads=4, layers=4)


def exported(line, engine, place):
    """The word of `export` for a small Llama under a line."""
    model = tiny("llama", **LONG)
    target = 8 * model.config.max_position_embeddings
    try:
        rw.extend(model, line, target_len=target)
        return rw.export(model, place, target=engine, target_len=target).kind
    except RopewalkError:
        return "refused"


@pytest.mark.sampled(cases=2)
@pytest.mark.parametrize("line", [*PRESETS, *MORE])
def test_the_kind_is_that_of_export(line, tmp_path):
    facts = rw.inspect(tiny("llama", **LONG)).facts
    kinds, _ = in_engines(read_line(line), facts, 8 * facts.trained_len)
    assert kinds == {engine: exported(line, engine, tmp_path / engine) for engine in ENGINES}


@pytest.mark.parametrize("line", ["yarn", "pi", "ntk:factor=16", "abf", "llama3", "by_parts", "yarn:low_turns=2"])
def test_vllms_flags_are_right_by_check(line):
    target = 32_768
    overrides, length = options(in_engines(read_line(line), LLAMA, target).flags)
    assert length == target
    plain = {"hidden_size": 256, "num_attention_heads": 4, "max_position_embeddings": 4096}
    config = LlamaConfig(**{**plain, **overrides}, architectures=["LlamaForCausalLM"])
    checked = rw.check(config, engine="vllm@0.32", target_len=target)
    assert checked.is_same, str(checked)
    extension = rw.parse(line, trained_len=4096, target_len=target)
    table, factor = transformers_table(config)
    wanted = extension.frequencies_or_rope.table(LLAMA, target).inv_freq
    torch.testing.assert_close(table.double(), wanted, rtol=1e-6, atol=0)
    scale = 1.0
    for spec in extension.scales:
        scale *= float(spec.scale(torch.tensor([0]), LLAMA, {}))
    assert factor**2 == pytest.approx(scale, rel=1e-12)


def options(flags):
    """The changed config and the length of a command line."""
    name, changes, other, length = shlex.split(flags)
    assert (name, other) == ("--hf-overrides", "--max-model-len")
    return json.loads(changes), int(length)


def transformers_table(config):
    kind = config.rope_parameters["rope_type"]
    if kind == "default":
        return config.rope_parameters["rope_theta"] ** -(torch.arange(0, 64, 2).double() / 64), 1.0
    return ROPE_INIT_FUNCTIONS[kind](config, "cpu")


@pytest.mark.parametrize(
    "line", ["rerope", "dynamic_yarn", "longrope", "window", "alibi", "yarn:factor=2", "xpos", "nbce"]
)
def test_no_flags_are_shown_where_vllm_alone_computes_something_else(line):
    assert in_engines(read_line(line), LLAMA, 32_768).flags == ""


def test_the_commands_name_verbs_that_exist():
    assert set(re.findall(r"ropewalk (\w+) (?:MODEL|\$\{MODEL\})", html())) == {
        "generate",
        "compare",
        "export",
        "page",
        "serve",
    }
