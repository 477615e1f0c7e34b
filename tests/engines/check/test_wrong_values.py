"""Wrong values in a config: one sentence with the field, its rule and the value, before any formula."""

import json
import math

import pytest
from hypothesis import given, settings, strategies as some
from transformers import AutoConfig, LlamaConfig

import ropewalk as rw
from ropewalk import RopewalkError
from ropewalk.cli.main import run
from ropewalk.engines.check.reading import RULES
from ropewalk.engines.targets import ENGINES

from architecture.tree import assert_none
from engines.check.folders import llama

PLAIN = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "head_dim": 16,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "max_position_embeddings": 128,
}
YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 32}
LLAMA3 = {**YARN, "rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0}
LONGROPE = {**YARN, "rope_type": "longrope", "short_factor": [1.0] * 8, "long_factor": [2.0] * 8}
LINEAR = {"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0}
DYNAMIC = {**LINEAR, "rope_type": "dynamic"}
WRONG = [
    *((part, "factor", value) for part in (YARN, LLAMA3, LINEAR, DYNAMIC) for value in ("4", None, math.inf, 0, -4)),
    *((YARN, "factor", value) for value in (math.nan, -math.inf, True, [4.0], {})),
    *((LONGROPE, key, value) for key in ("short_factor", "long_factor") for value in ([1.0] * 7, [], "x", None, 2.0)),
    *((LONGROPE, "long_factor", [*[1.0] * 7, value]) for value in ("2", None, 0, -1.0, math.nan, math.inf)),
    *((LLAMA3, key, value) for key in ("low_freq_factor", "high_freq_factor") for value in ("1", None, math.nan, 0)),
    *((YARN, "attention_factor", value) for value in ("x", math.nan, 0, -1.0)),
    *((YARN, key, value) for key in ("mscale", "mscale_all_dim") for value in ("a", math.inf, -1)),
    *((YARN, "partial_rotary_factor", value) for value in ("a", 2.0, 0.0, -0.5, 0.05)),
    *((YARN, "rope_theta", value) for value in ("10000", -5, 0, 1, math.nan, math.inf)),
    *((YARN, "original_max_position_embeddings", value) for value in ("32", 0, -32, 1.5, math.inf)),
    *((YARN, key, value) for key in ("beta_fast", "beta_slow") for value in ("32", None, -1, math.nan)),
    *((YARN, "rope_type", value) for value in (None, 7, "", ["yarn"])),
    (YARN, "truncate", "no"),
]


def written(folder, **changes):
    (folder / "config.json").write_text(json.dumps({**PLAIN, **changes}))
    return folder


def refused(folder, capsys, engine="vllm@0.32"):
    """What is printed, in one line."""
    assert run(["check", str(folder), "--engine", engine]) == 2, (folder / "config.json").read_text()
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "Traceback" not in shown.err
    return " ".join(shown.err.split())


@pytest.mark.nightly
def test_a_wrong_value_is_one_sentence(tmp_path, capsys):
    said = [
        (refused(written(tmp_path, rope_parameters={**part, key: value}), capsys), key) for part, key, value in WRONG
    ]
    assert_none(sentence for sentence, key in said if key not in sentence)


@pytest.mark.parametrize("engine", sorted(ENGINES))
def test_a_config_in_memory_is_checked_too(engine):
    """transformers checks a config when it is made, and not what is set afterwards."""
    said = [(answer({**part, key: value}, engine), key) for part, key, value in WRONG]
    assert_none(sentence for sentence, key in said if key not in sentence)


def answer(parameters, engine):
    """The refusal of a config in memory, or what was let through."""
    config = llama()
    config.head_dim, config.max_position_embeddings, config.rope_parameters = 16, 128, parameters
    try:
        return f"let through: {list(parameters.values())} as {rw.check(config, engine=engine).verdict}"
    except RopewalkError as refusal:
        return str(refusal)


@pytest.mark.parametrize("value", ["4", None, math.nan, 0])
def test_a_wrong_value_of_one_type_of_layer(value):
    config = AutoConfig.for_model("gemma3_text")
    config.rope_parameters["full_attention"] |= {"rope_type": "linear", "factor": value}
    with pytest.raises(RopewalkError, match=r"config\.rope_parameters\.full_attention\.factor must be a number from 1"):
        rw.check(config)


@pytest.mark.parametrize("key", ["low_freq_factor", "high_freq_factor"])
def test_a_key_that_a_schedule_needs(key):
    config = llama()
    config.rope_parameters = {name: value for name, value in LLAMA3.items() if name != key}
    with pytest.raises(RopewalkError, match=f"{key} is not there, and llama3 needs it"):
        rw.check(config)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("head_dim", value) for value in (-8, 0, "16", 2.5)),
        *(("max_position_embeddings", value) for value in (0, -1, "128", None)),
        *(("num_attention_heads", value) for value in (0, -4)),
        *(("model_max_length", value) for value in ("x", -1, [])),
        *(("llama_4_scaling", value) for value in (1, {}, {"beta": "x", "original_max_position_embeddings": 8})),
        *(("rope_parameters", value) for value in ([1], "yarn", 4)),
    ],
    ids=str,
)
def test_a_wrong_size_or_length(tmp_path, key, value, capsys):
    without = {"head_dim": None} if key == "num_attention_heads" else {}
    folder = written(tmp_path, **{"rope_parameters": YARN, **without, key: value})
    assert ("config" if key == "num_attention_heads" else key) in refused(folder, capsys)


def test_the_sentence_has_the_field_the_rule_and_the_value():
    config = LlamaConfig(rope_parameters=dict(YARN))
    config.rope_parameters["factor"] = "4"
    with pytest.raises(
        RopewalkError, match=r"^config\.rope_parameters\.factor must be a number from 1 to 1,000,000, got '4'$"
    ):
        rw.check(config)


@pytest.mark.parametrize("key", ["attention_factor", "mscale", "mscale_all_dim", "long_mscale"])
@pytest.mark.parametrize("engine", sorted(ENGINES))
def test_null_where_configs_have_it_is_as_if_it_were_not_there(key, engine):
    config, without = (LlamaConfig(head_dim=16, max_position_embeddings=128, rope_parameters=dict(YARN)) for _ in "12")
    config.rope_parameters[key] = None
    one, other = rw.check(config, engine=engine), rw.check(without, engine=engine)
    assert one.to_json() == other.to_json()


numbers = some.one_of(
    some.floats(), some.integers(), some.sampled_from([0.05, 0.5, 1.0, 4.0, 32, 128, 1e20, 1e-320, 10**400])
)
values = some.recursive(
    some.one_of(some.none(), some.booleans(), numbers, some.text(max_size=4)),
    lambda inner: some.one_of(some.lists(inner, max_size=9), some.dictionaries(some.text(max_size=4), inner)),
    max_leaves=9,
)
kinds = some.sampled_from(["default", "linear", "dynamic", "yarn", "longrope", "su", "llama3", "proportional", "ntk"])
KEYS = (*RULES, "short_factor", "long_factor", "mrope_section")
WHOLE = {**LLAMA3, **LONGROPE}


@pytest.mark.nightly
@settings(max_examples=400, deadline=None, derandomize=True)
@given(
    some.one_of(some.sampled_from(["llama", "phi3", "deepseek_v3", "glm4", "gpt_oss", "mixtral", "ministral3"])),
    kinds,
    some.dictionaries(some.sampled_from(KEYS), some.one_of(values, numbers), max_size=3),
    some.sampled_from(sorted(ENGINES)),
    some.sampled_from([None, 2, 32, 33, 4096]),
)
def test_any_value_gives_a_verdict_or_a_sentence(name, kind, changes, engine, target_len):
    """No other error, whatever stands under a rope key."""
    config = AutoConfig.for_model(name)
    config.rope_parameters = {**WHOLE, "rope_type": kind, **changes}
    dims = 64 if name == "deepseek_v3" else 16
    config.head_dim, config.max_position_embeddings = dims, 128
    sets = {key: [1.5] * (dims // 2) for key in ("short_factor", "long_factor") if key not in changes}
    config.rope_parameters |= sets
    try:
        checked = rw.check(config, engine=engine, target_len=target_len)
    except RopewalkError:
        return
    assert checked.verdict in ("same", "differs", "refused", "unknown")
    assert str(checked)
    json.dumps(checked.to_json(), allow_nan=False)
