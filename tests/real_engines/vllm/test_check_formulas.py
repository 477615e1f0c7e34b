"""The formulas by which `ropewalk check` knows vLLM, against vLLM's own rotary tables and lengths."""

import json
import math
import random
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig

import ropewalk as rw
from ropewalk.engines.rules.rotation import Asked, RopeConfig
from ropewalk.engines.vllm.rules import RULES

from engines.check.folders import RELEASED
from engines.export.exported import exported
from hf.kinds import seeing
from real_engines.process import ask

VERSION = (0, 32, 0)  # what tests/real_engines/vllm/requirements.txt installs
# Whose tables vLLM's own get_rope makes; others are latent, transformers', or longer than is computed here.
ASKED = {
    *(
        "Qwen3-8B",
        "Qwen3-Next-80B-A3B-Instruct",
        "Qwen3.5-35B-A3B",
        "Qwen3.5-35B-A3B with YaRN",
        "Qwen3-VL-4B-Instruct",
    ),
    *("GLM-4.5-Air", "LFM2-1.2B", "MiniMax-M2", "c4ai-command-r-v01", "Minitron-4B-Base"),
}
SCRIPT = Path(__file__).parent / "rope.py"


def drawn(count=120):
    """Configs of every type, drawn from a seed; lengths are short, since vLLM computes whole tables."""
    draw = random.Random(7)
    for number in range(count):
        kind = ("default", "linear", "dynamic", "yarn", "llama3", "longrope", "proportional")[number % 7]
        pairs, original, factor = (
            draw.choice([16, 32, 64]),
            draw.choice([128, 200, 512]),
            draw.choice([1.5, 2.0, 3.7, 8.0]),
        )
        rope = {"rope_type": kind, "rope_theta": draw.choice([10_000.0, 500_000.0, 1e6])}
        longer = math.ceil(original * factor)
        if kind in ("linear", "dynamic", "yarn", "llama3"):
            rope["factor"] = factor
        if kind in ("yarn", "llama3", "longrope"):
            rope["original_max_position_embeddings"] = original
        if kind == "yarn":
            rope |= draw.choice(
                [{}, {"attention_factor": 1.3}, {"mscale": 1.0, "mscale_all_dim": 0.7}, {"mscale": 0.8}]
            )
            rope |= draw.choice([{}, {"beta_fast": 20.0, "beta_slow": 2.0}]) | draw.choice([{}, {"truncate": False}])
            rope |= draw.choice([{}, {"attn_factor": 0.5}])  # which it does not read
        if kind == "llama3":
            rope |= {"low_freq_factor": 1.0, "high_freq_factor": draw.choice([1.0, 4.0])}
        if kind == "longrope":
            rope |= {name: [draw.uniform(1, 9) for _ in range(pairs)] for name in ("short_factor", "long_factor")}
            rope |= draw.choice([{}, {"attention_factor": 1.4}, {"short_mscale": 1.1, "long_mscale": 1.2}])
        if kind == "proportional":
            rope["partial_rotary_factor"] = 0.25
        elif number % 3 == 0 and kind != "longrope":
            rope["partial_rotary_factor"] = 0.5
        longest = longer if kind in ("llama3", "longrope") or number % 2 else original
        also = {"original_max_position_embeddings": original} if kind == "longrope" and number % 2 else {}
        model_type = "gemma3_text" if number % 11 == 0 else "llama"
        served = draw.choice([original, longest])
        yield {
            "rope": rope,
            "head_dim": 2 * pairs,
            "max_len": longest,
            "served": served,
            "model_type": model_type,
            "also": also,
        }


def of_sections():
    """YaRN of models whose tokens have several positions, with what their code in vLLM hands to get_rope."""
    rope = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 128}
    rope |= {"mrope_section": [4, 6, 6], "attention_factor": 1.1}
    for model_type, more in (("qwen3_vl_text", {"mrope_positions_factor": 1}), ("qwen2_5_vl_text", {})):
        case = {"rope": rope, "head_dim": 32, "max_len": 512, "served": 512, "also": {}}
        yield {**case, "model_type": model_type, "more": more}


def config_of(case):
    """The same as `ropewalk check` reads it."""
    return RopeConfig(
        model_type=case["model_type"],
        parts={"": case["rope"]},
        head_dims={"": case["head_dim"]},
        max_len=case["max_len"],
        text=case["also"],
    )


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    cases = [*drawn(), *of_sections()]
    return cases, ask("vllm", SCRIPT, cases, tmp_path_factory.mktemp("rope"), seconds=300)


def test_tables_temperatures_and_lengths_are_those_of_vllm(answers):
    cases, said = answers
    for number, case in enumerate(cases):
        config, shown = config_of(case), json.dumps(case)
        computed = RULES.rotation(config, "", Asked(VERSION, case["served"], case["served"]))
        torch.testing.assert_close(
            torch.tensor(said[f"{number}.speed"]), computed.inv_freq, rtol=3e-6, atol=0, msg=shown
        )
        assert said[f"{number}.size"] == pytest.approx(computed.temperature, rel=1e-6), shown
        assert said[f"{number}.rows"] == computed.rows, shown
        assert said[f"{number}.length"] == RULES.length(config, VERSION).default, shown


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["qwen3_vl", "qwen2_5_vl"])
def test_tokens_of_images_turn_as_in_vllms_own_module(tmp_path, name):
    """In one batch with text: a plan's table at four times the positions is vLLM's own table."""
    rope = exported(seeing(name), tmp_path / "out", "pi:factor=4", plugin=True)[1]["text_config"]["rope_parameters"]
    text, image = [[i] * 3 for i in range(7)], [[7, 7 + row, 7 + column] for row in range(3) for column in range(4)]
    positions = torch.tensor([*text, *image, *([i] * 3 for i in range(11, 20))]).T
    queries = torch.randn(positions.shape[1], 2 * 16, generator=torch.Generator().manual_seed(5))
    layout = {key: value for key, value in rope.items() if key.startswith(("mrope", "rope_theta"))}
    case = {"head_dim": 16, "max_len": 128, "served": 128, "queries": queries.tolist()}
    cases = [
        {**case, "rope": {"rope_type": "default", **layout}, "positions": positions.tolist()},
        {**case, "rope": rope, "positions": (4 * positions).tolist()},
        {**case, "rope": {"rope_type": "default", **layout}, "positions": positions[:1].expand(3, -1).tolist()},
    ]
    said = ask("vllm", SCRIPT, cases, tmp_path, seconds=300)
    own, planned, without_axes = (torch.tensor(said[f"{number}.rotated"]) for number in range(3))
    torch.testing.assert_close(planned, own, rtol=0, atol=2e-6)
    assert (without_axes - own).abs().max() > 0.1


@pytest.mark.nightly
def test_where_vllm_is_installed_its_own_code_is_asked(tmp_path):
    """The same answer as by formula, beside vLLM's older transformers."""
    cases, here = [], []
    for number, case in enumerate(case for case in drawn(14) if case["rope"]["rope_type"] != "proportional"):
        folder, rope = tmp_path / str(number), {**case["rope"]}
        LlamaConfig(
            head_dim=case["head_dim"], max_position_embeddings=case["max_len"], rope_parameters=rope
        ).save_pretrained(folder)
        cases.append({"folder": str(folder), "served": case["served"]})
        here.append(rw.check(folder, engine="vllm@0.32", target_len=case["served"]).to_json())
    there = json.loads(str(ask("vllm", SCRIPT.with_name("check_here.py"), cases, tmp_path, seconds=300)["said"]))
    for ours, theirs in zip(here, there, strict=True):
        assert theirs["source"].startswith("its own code, 0.32.0, installed here")
        for key in ("verdict", "allowed_len", "default_len", "ignored"):
            assert ours[key] == theirs[key], (ours, theirs)
        for mine, own in zip(ours["layers"], theirs["layers"], strict=True):
            assert own["inv_freq"]["engine"] == pytest.approx(mine["inv_freq"]["engine"], rel=3e-6)
            assert own["inv_freq"]["engine"] != mine["inv_freq"]["engine"]  # theirs is in float32
            assert own["temperature"]["engine"] == pytest.approx(mine["temperature"]["engine"], rel=1e-6)
            assert own["table_rows"] == mine["table_rows"]


@pytest.mark.nightly
def test_released_configs_are_read_there_as_here(tmp_path):
    """Its own code, at the lengths of the makers; a quarter of a head, sections, Cohere's length."""
    cases = []
    for name, config in RELEASED.items():
        folder = tmp_path / name
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(config))
        cases.append({"folder": str(folder), "served": rw.check(folder, engine="vllm").target_len})
    there = json.loads(str(ask("vllm", SCRIPT.with_name("check_here.py"), cases, tmp_path, seconds=500)["said"]))
    for (name, case), theirs in zip(zip(RELEASED, cases, strict=True), there, strict=True):
        ours = rw.check(case["folder"], engine="vllm@0.32", target_len=case["served"]).to_json()
        for key in ("verdict", "allowed_len", "default_len", "ignored", "trained_len"):
            assert ours[key] == theirs[key], (name, key)
        for mine, own in zip(ours["layers"], theirs["layers"], strict=True):
            assert own["inv_freq"]["engine"] == pytest.approx(mine["inv_freq"]["engine"], rel=3e-6), name
            assert own["temperature"]["engine"] == pytest.approx(mine["temperature"]["engine"], rel=1e-6)
            assert own["table_rows"] == mine["table_rows"], name
            assert name not in ASKED or own["inv_freq"]["engine"] != mine["inv_freq"]["engine"], name  # in float32
