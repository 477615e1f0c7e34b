"""A pasted config.json is read as Python reads it: lengths, sizes, and the table that the checkpoint came with."""

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from ropewalk.hf.probe.facts import lengths_of, parts_of
from ropewalk.models import DEFAULT

from hf.released import CONFIGS
from page.vectors import different

READ = """(text) => {
  try {
    const {stated, own, notes} = Ropewalk.config.read(text);
    const facts = Ropewalk.config.withTable(stated, own);
    return {facts, table: Ropewalk.frequencies.trained(facts), notes: notes.map(([word]) => word)};
  } catch (refused) {
    if (!(refused instanceof Ropewalk.Refusal)) throw refused;
    return refused.message;
  }
}"""
SIZES = {"hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8, "num_hidden_layers": 24}
FULL = "full_attention"


def released(name):
    """A config.json as its makers have it, with the sizes that ours leave out, and transformers' reading of it."""
    kind, settings, *_ = CONFIGS[name]
    values = {"model_type": kind, **SIZES, **settings}
    known = {key: value for key, value in values.items() if key != "model_type"}
    return values, AutoConfig.for_model(kind, **known).get_text_config()


@pytest.mark.parametrize("name", CONFIGS)
def test_lengths_are_those_of_python(scripts, name):
    values, config = released(name)
    read = scripts.evaluate(READ, json.dumps(values))
    lengths = lengths_of(config)
    assert read["facts"]["trained_len"] == lengths.trained
    assert (read["facts"]["original_len"] or read["facts"]["trained_len"]) == lengths.original


# Of these, our settings are a part of what the makers state: their heads are not hidden_size / heads.
OTHER_HEADS = ("gemma-4", "DeepSeek-V3", "Kimi-K2-Instruct")


@pytest.mark.parametrize("name", [name for name in CONFIGS if name not in OTHER_HEADS])
def test_tables_are_those_of_transformers(scripts, name):
    values, config = released(name)
    values["head_dim"] = config.head_dim = (
        getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    )
    read = scripts.evaluate(READ, json.dumps(values))
    parts = parts_of(config)
    kind = FULL if FULL in parts else ""
    part = parts[kind]
    assert read["facts"]["base"] == part["rope_theta"]
    if part["rope_type"] in ("default", "dynamic"):
        assert read["facts"]["inv_freq"] is None
        return
    layer = {"layer_type": kind} if kind else {}
    table, _ = ROPE_INIT_FUNCTIONS[part["rope_type"]](config, "cpu", seq_len=1, **layer)
    pairs = [(one - other) / one for one, other in zip(table.tolist(), read["table"], strict=True)]
    assert max(map(abs, pairs)) < 1e-5  # transformers computes in float32


def test_gemma_4s_still_pairs(scripts):
    values, _ = released("gemma-4")
    table = scripts.evaluate(READ, json.dumps({**values, "head_dim": 128, "global_head_dim": 512}))["table"]
    moving = 1e6 ** (-torch.arange(0, 128, 2).double() / 512)
    assert different([*moving.tolist(), *[0.0] * 192], table) == ""


def test_deepseeks_latent_keys(scripts):
    values, _ = released("DeepSeek-V3")
    latent = {"kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128}
    read = scripts.evaluate(READ, json.dumps({**values, **latent}))
    assert (read["facts"]["head_dim"], read["facts"]["rotary_dim"], len(read["table"])) == (192, 64, 32)
    assert "note_latent" in read["notes"]


def test_the_carried_model(scripts):
    read = scripts.evaluate(READ, (Path(DEFAULT) / "config.json").read_text())
    facts = {key: read["facts"][key] for key in ("trained_len", "head_dim", "heads", "kv_heads", "layers", "base")}
    assert facts == {"trained_len": 512, "head_dim": 64, "heads": 4, "kv_heads": 4, "layers": 6, "base": 10_000}
    assert read["notes"] == []


def test_what_is_not_understood_is_said(scripts):
    values = {**SIZES, "max_position_embeddings": 4096, "rope_theta": 1e4, "sliding_window": 512}
    values["rope_scaling"] = {"rope_type": "cubic", "factor": 2.0, "gamma": 3}
    assert scripts.evaluate(READ, json.dumps(values))["notes"] == ["note_unknown_type", "note_unread", "note_window"]
    layers = {"full_attention": {"rope_theta": 1e6}, "sliding_attention": {"rope_theta": 1e4}}
    assert scripts.evaluate(READ, json.dumps({**SIZES, "max_position_embeddings": 64, "rope_parameters": layers}))[
        "notes"
    ] == ["note_layer_types"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "config must be JSON"),
        ("[]", "config must be a JSON object, got '[]'"),
        ("{}", "max_position_embeddings must be a length of at least 1, got None"),
        ('{"max_position_embeddings": 64}', "config.hidden_size must be a number above 0, got None"),
        ('{"max_position_embeddings": 64, "hidden_size": "x"}', "config.hidden_size must be a number above 0, got 'x'"),
        ('{"max_position_embeddings": 64, "head_dim": 7}', "head_dim must be a positive even number, got 7"),
        (
            '{"max_position_embeddings": 64, "head_dim": 8, "rope_scaling": {"type": "longrope", "short_factor": [1]}}',
            "short_factor must be 4 numbers above 0, one for each pair, got (1,)",
        ),
    ],
)
def test_what_is_no_config_is_refused(scripts, text, sentence):
    refused = scripts.evaluate(READ, text)
    assert isinstance(refused, str)
    assert refused.startswith(sentence)


@pytest.mark.parametrize("type_", ["yarn", "linear", "llama3", "proportional"])
def test_a_hostile_config_never_breaks_the_page(scripts, type_):
    for value in ("abc", -1, 0, None, [], {}, 1e300, True):
        part = {"rope_type": type_, "factor": value, "rope_theta": value, "low_freq_factor": value}
        text = json.dumps({"max_position_embeddings": 64, "head_dim": 8, "rope_scaling": part})
        assert scripts.evaluate(READ, text)
