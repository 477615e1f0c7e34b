"""Models whose attention is written into their layers: static schedules by their tables, and nothing else."""

import math

import pytest
import torch
from transformers import AutoModelForCausalLM, FalconConfig, FalconForCausalLM

from ropewalk import DoesNotFit, Extension, extend, extended, inspect, load, save
from ropewalk.engines.export import export
from ropewalk.hf.probe.inline_rotation import position_tables
from ropewalk.hf.probe.probe import probe

from hf.architectures import small
from hf.traces import logits, off, trace

MODULES, TABLES = ["falcon", "gpt_neox_japanese"], ["gptj", "codegen"]
IDS = torch.randint(3, 90, (1, 60), generator=torch.Generator().manual_seed(0))
CLOSE = 2e-4  # of the largest logit: angles are rounded in another order


def with_rows(model, factor, rows=256):
    """transformers' own table, at positions divided by a factor, written into the buffer by hand."""
    for module in model.modules():
        if hasattr(module, "embed_positions"):
            pairs = module.embed_positions.shape[1] // 2
            theta = 10_000 ** (-torch.arange(pairs) / pairs) / factor
            angle = torch.arange(rows)[:, None] * theta
            module.embed_positions = torch.cat([angle.sin(), angle.cos()], 1)
    return model


def stretched(name, **schedule):
    """The model with a schedule of transformers' own."""
    model = small(name)
    config = type(model.config)(**{**model.config.to_dict(), "rope_parameters": {"rope_theta": 10_000.0, **schedule}})
    other = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    other.load_state_dict(model.state_dict())
    return other


@pytest.mark.parametrize("name", [*MODULES, *TABLES])
def test_what_they_rotate(name):
    model = small(name)
    before, layers = trace(model), probe(model)
    assert trace(model) == before
    assert len(layers) == model.config.num_hidden_layers
    dims = getattr(model.config, "rotary_dim", None) or 16
    assert {(layer.rotating, layer.head_dim, layer.heads) for layer in layers} == {(dims, 16, 4)}
    expected = [10_000 ** (-2 * pair / dims) for pair in range(dims // 2)]
    for layer in layers:
        assert layer.inv_freq == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("name", [*MODULES, *TABLES])
def test_static_schedules_by_tables(name, tmp_path):
    model = small(name)
    before, bare = trace(model), logits(model, IDS, use_cache=False)
    with extended(model, Extension(), mode="tables"):
        assert off(logits(model, IDS, use_cache=False), bare) < CLOSE
    with extended(model, "pi:factor=4") as handle:
        assert handle.mode == "tables"
        whole = logits(model, IDS, use_cache=False)
        assert off(whole, bare) > 0.01
        with torch.no_grad():
            first = model(IDS[:, :40], use_cache=True)
            rest = model(IDS[:, 40:], past_key_values=first.past_key_values, use_cache=True)
        assert off(torch.cat([first.logits, rest.logits], 1), whole) < CLOSE
        save(model, tmp_path / "saved")
    assert trace(model) == before
    assert torch.equal(logits(model, IDS, use_cache=False), bare)
    assert off(logits(load(tmp_path / "saved"), IDS, use_cache=False), whole) < CLOSE


@pytest.mark.parametrize("name", MODULES)
def test_schedules_are_those_of_transformers(name):
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
    for line, schedule in (("pi:factor=4", {"rope_type": "linear", "factor": 4.0}), ("yarn:factor=4", yarn)):
        with extended(small(name), line) as handle:
            got = logits(handle.model, IDS, use_cache=False)
        assert off(got, logits(stretched(name, **schedule), IDS, use_cache=False)) < CLOSE


@pytest.mark.parametrize("name", TABLES)
def test_a_table_by_position_is_that_of_a_hand(name):
    """It grows with the length to reach: transformers' own ends at the 64 tokens of its config."""
    model = small(name)
    with extended(model, "pi:factor=4") as handle:
        got = logits(model, IDS, use_cache=False)
        assert [table.rows for _, table, _ in position_tables(model)] == [256] * len(handle.layers)
        longer = logits(model, IDS.repeat(1, 4), use_cache=False)
    by_hand = with_rows(small(name), 4)
    assert off(got, logits(by_hand, IDS, use_cache=False)) < CLOSE
    assert off(longer, logits(by_hand, IDS.repeat(1, 4), use_cache=False)) < CLOSE


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_table_in_half_precision_is_read_by_its_formula(dtype):
    model = small("gptj").to(dtype)
    assert probe(model)[0].inv_freq == pytest.approx([10_000 ** (-pair / 4) for pair in range(4)], rel=1e-9)
    holder = next(module for module in model.modules() if hasattr(module, "embed_positions"))
    with extended(model, "pi:factor=4"):
        assert holder.embed_positions.dtype == torch.float32
    assert holder.embed_positions.dtype == dtype


def test_other_numbers_are_no_table():
    module = torch.nn.Module()
    for name, values in {
        "ramp": torch.arange(64.0).reshape(8, 8),
        "flat": torch.ones(8),
        "odd": torch.ones(8, 3),
    }.items():
        module.register_buffer(name, values, persistent=False)
    angle = torch.arange(32)[:, None] * torch.tensor([1.0, 0.3])
    module.register_buffer("cos_first", torch.cat([angle.cos(), angle.sin()], 1), persistent=False)
    module.register_buffer("saved", torch.cat([angle.sin(), angle.cos()], 1))
    (only,) = position_tables(module)
    assert (only[1].name, only[1].rows, only[1].sin_first) == ("cos_first", 32, False)
    assert only[2][0] == pytest.approx([1.0, 0.3], rel=1e-6)
    assert only[2][1] == 1


@pytest.mark.parametrize("name", [*MODULES, *TABLES])
@pytest.mark.parametrize("line", ["rerope:window=16", "dynamic_yarn", "log_n", "window:window=16"])
def test_everything_else_is_refused(name, line):
    model = small(name)
    before = trace(model)
    with pytest.raises(DoesNotFit, match="ForCausalLM does not use transformers' attention interface, and"):
        extend(model, line)
    with pytest.raises(DoesNotFit, match="does not use transformers' attention interface"):
        extend(model, "pi:factor=4", mode="attention")
    assert trace(model) == before


def positions_of(model):
    return next(module for module in model.modules() if hasattr(module, "embed_positions")).embed_positions.clone()


@pytest.mark.parametrize("name", TABLES)
def test_a_temperature_is_in_sin_and_cos_and_one_of_whole_logits_is_refused(name):
    """Some dimensions do not rotate: sin and cos do not reach them."""
    model = small(name)
    with extended(model, "by_parts:factor=4"):
        plain = positions_of(model)
    with extended(model, "yarn:factor=4"):
        warm = positions_of(model)
    torch.testing.assert_close(warm, (0.1 * math.log(4) + 1) * plain, rtol=1e-6, atol=1e-7)
    with pytest.raises(DoesNotFit, match="temperature must be 1 where some dimensions do not rotate"):
        extend(model, "yarn:factor=4,over=head")


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("target", ["vllm", "sglang", "transformers"])
def test_a_config_without_rope_parameters_is_not_exported(name, target, tmp_path):
    with extended(small(name), "by_parts:factor=4") as handle, pytest.raises(DoesNotFit, match="with rope parameters"):
        export(handle.model, tmp_path / "out", target=target, target_len=256)


def falcon(**changed):
    config = {"vocab_size": 101, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    return FalconForCausalLM(FalconConfig(**config, max_position_embeddings=64, **changed)).eval()


def test_a_rotary_module_whose_answer_is_not_used_is_none():
    """Falcon calls it under ALiBi too."""
    with pytest.raises(DoesNotFit, match=r"does not use transformers' attention interface$"):
        probe(falcon(alibi=True))


def test_a_window_that_is_not_seen_is_refused():
    model = falcon()
    model.config.sliding_window = 20
    with pytest.raises(DoesNotFit, match=r"its config has a window \(sliding_window\)"):
        extend(model, "pi:factor=4")


def test_it_is_said_and_the_cache_is_measured():
    seen = inspect(falcon(multi_query=True), target_len=256)
    assert seen.carried == "FalconForCausalLM does not use transformers' attention interface"
    assert (seen.tabled, seen.facts.heads, seen.facts.groups) == ("", 4, 1)
    assert seen.cache_bytes() == 2 * 256 * 2 * 16 * 4
    assert math.isclose(seen.turns[0], 64 / (2 * math.pi), rel_tol=1e-5)
