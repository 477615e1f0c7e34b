"""Weights: golden pooling, what pooling must not change, and stretching against torch."""

import pytest
import torch

from ropewalk import Extension, Facts, reference_attention
from ropewalk.errors import DoesNotFit
from ropewalk.methods.surgery import MHAToGQA, QKBias, StretchPositions

from golden_tables import golden

TABLE = golden("gqa_meanpool")
FACTS = Facts(trained_len=16, head_dim=TABLE["head_dim"], heads=TABLE["n_heads"])


def test_pooling_equals_the_table():
    weight = torch.tensor(TABLE["wk(out,in)"])
    state = {"model.layers.0.self_attn.k_proj.weight": weight, "model.norm.weight": torch.ones(6)}
    pooled, facts = MHAToGQA(kv_heads=TABLE["n_kv"], modules=("k_proj",)).convert(state, FACTS)
    expected = torch.tensor(TABLE["pooled_wk"])
    torch.testing.assert_close(pooled["model.layers.0.self_attn.k_proj.weight"], expected, rtol=0, atol=1e-6)
    assert facts.kv_heads == 2
    assert facts.heads == 8
    assert pooled["model.norm.weight"] is state["model.norm.weight"]
    assert state["model.layers.0.self_attn.k_proj.weight"] is weight


def test_pooling_equal_heads_changes_nothing():
    """Heads that are equal within each contiguous group attend as before; groups taken in strides would mix them."""
    facts = Facts(trained_len=16, head_dim=8, heads=4)
    hidden = torch.randn(1, 9, 12, dtype=torch.float64)
    half = torch.randn(2, 2, 8, 12, dtype=torch.float64)
    state = {
        f"{name}_proj.weight": half[which].repeat_interleave(2, 0).flatten(0, 1) for which, name in enumerate("kv")
    }
    pooled, narrow = MHAToGQA(kv_heads=2).convert(state, facts)
    q = torch.randn(1, 4, 9, 8)

    def attend(weights, its_facts):
        k, v = ((hidden @ weights[f"{name}_proj.weight"].T).unflatten(-1, (-1, 8)).transpose(1, 2) for name in "kv")
        return reference_attention(q, k, v, Extension(), its_facts)

    torch.testing.assert_close(attend(pooled, narrow), attend(state, facts))


def test_pooling_averages_biases_and_keeps_the_type():
    state = {
        "k_proj.weight": torch.ones(8, 3),
        "v_proj.weight": torch.ones(8, 3).bfloat16(),
        "v_proj.bias": torch.tensor([0.0, 1, 2, 3, 4, 5, 6, 7]),
    }
    pooled, _ = MHAToGQA(kv_heads=2).convert(state, Facts(trained_len=4, head_dim=2, heads=4))
    assert pooled["v_proj.bias"].tolist() == [1, 2, 5, 6]
    assert pooled["v_proj.weight"].dtype == torch.bfloat16


def test_pooling_refuses_what_it_cannot_divide():
    with pytest.raises(DoesNotFit, match="kv_heads must be a divisor of the model's 8 key heads, got 3"):
        MHAToGQA(kv_heads=3).convert({"k_proj.weight": torch.ones(32, 2)}, FACTS)
    with pytest.raises(DoesNotFit, match=r"of 32 rows \(key heads x head_dim\), got \(31, 2\)"):
        MHAToGQA(kv_heads=2).convert(dict.fromkeys(("k_proj.weight", "v_proj.weight"), torch.ones(31, 2)), FACTS)
    with pytest.raises(DoesNotFit, match="the model has no weights ending in k_proj"):
        MHAToGQA(kv_heads=2).convert({"blocks.0.attn.qk_proj.weight": torch.ones(32, 2)}, FACTS)


def test_every_projection_named_must_be_there():
    with pytest.raises(DoesNotFit, match="no weights ending in v_proj"):
        MHAToGQA(kv_heads=2).convert({"k_proj.weight": torch.ones(32, 2)}, FACTS)
    with pytest.raises(DoesNotFit, match="no weights ending in k_proj"):
        QKBias().convert({"q_proj.weight": torch.ones(32, 2)}, FACTS)
    with pytest.raises(DoesNotFit, match=r"q_proj.weight must be a matrix, got \(4,\)"):
        QKBias().convert({"q_proj.weight": torch.ones(4), "k_proj.weight": torch.ones(4, 2)}, FACTS)


@pytest.mark.parametrize("table", [torch.ones(0, 2), torch.ones(3), torch.ones(4, 2, dtype=torch.int64)])
def test_what_is_no_table_of_positions_is_refused(table):
    with pytest.raises(DoesNotFit, match=r"position_embeddings\.weight must be a table of floating-point numbers"):
        StretchPositions(target_len=6).convert({"position_embeddings.weight": table}, FACTS)


def test_qk_bias_starts_at_zero_and_refuses_a_second_one():
    state = {
        "a.q_proj.weight": torch.ones(4, 3),
        "a.k_proj.weight": torch.ones(2, 3),
        "a.v_proj.weight": torch.ones(2, 3),
    }
    changed, facts = QKBias().convert(state, FACTS)
    assert facts == FACTS
    assert set(changed) - set(state) == {"a.q_proj.bias", "a.k_proj.bias"}
    assert changed["a.q_proj.bias"].tolist() == [0, 0, 0, 0]
    with pytest.raises(DoesNotFit, match="without biases"):
        QKBias().convert(changed, FACTS)


@pytest.mark.parametrize(("ends", "align_corners"), [("centred", False), ("kept", True)])
def test_stretching_equals_torch(ends, align_corners):
    table = torch.randn(7, 5, dtype=torch.float64)
    spec = StretchPositions(target_len=18, ends=ends, module="pos_embed")
    changed, _ = spec.convert({"encoder.pos_embed": table}, FACTS)
    expected = torch.nn.functional.interpolate(table.T[None], size=18, mode="linear", align_corners=align_corners)[0].T
    torch.testing.assert_close(changed["encoder.pos_embed"], expected)


def test_stretching_carries_rows_that_are_no_positions():
    table = torch.tensor([[9.0], [0.0], [2.0]])
    spec = StretchPositions(target_len=3, untouched=1, ends="kept")
    changed, _ = spec.convert({"position_embeddings.weight": table}, FACTS)
    assert changed["position_embeddings.weight"].flatten().tolist() == [9, 0, 1, 2]


def test_stretching_never_shrinks():
    with pytest.raises(DoesNotFit, match="target_len must be at least the 7 rows"):
        StretchPositions(target_len=6).convert({"position_embeddings.weight": torch.ones(7, 2)}, FACTS)
