"""Claims about LM-Infinite on models with ALiBi, from made-up losses; and the losses of a small model."""

import pytest
import torch
from torch.nn.functional import cross_entropy
from transformers import LlamaConfig, LlamaForCausalLM

import ropewalk as rw

from studies import alibi_reach as module
from studies.claims import FEW_SEEDS


def words(plain, infinite, seeds=3):
    """Losses by trained lengths, of six projects; a later text is a little harder."""
    lines = {module.PLAIN: plain, module.INFINITE: infinite}
    figures = {
        line: {str(times): [level[times] + 0.0001 * n for n in range(6)] for times in module.TIMES}
        for line, level in lines.items()
    }
    kept = {"projects": list("abcdef"), module.LOSSES: {str(seed): figures for seed in range(seeds)}}
    return {one.claim.name: one.reason or one.word for one in module.verdicts(kept)}


GROWS, FLAT, EQUAL = ({1: 2.0, 2: 2.0, 4: 2.1, 8: at} for at in (2.5, 2.0, 2.02))


def test_every_claim_can_hold_and_fail():
    assert words(GROWS, FLAT) == {"lm-infinite-on-alibi": "agrees", "lm-infinite-on-alibi-flat": "agrees"}
    assert words(FLAT, GROWS) == {
        "lm-infinite-on-alibi": "disagrees at this size",
        "lm-infinite-on-alibi-flat": "disagrees at this size",
    }
    assert words(FLAT, FLAT)["lm-infinite-on-alibi"] == "undecided"


def test_two_seeds_do_not_suffice():
    assert set(words(GROWS, FLAT, seeds=2).values()) == {FEW_SEEDS}
    assert set(words(GROWS, FLAT, seeds=0).values()) == {"not measured"}


def test_a_model_that_was_trained_under_alibi_is_read_under_both_lines(tmp_path):
    torch.manual_seed(0)
    small = LlamaConfig(vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16)
    small.max_position_embeddings = 16
    model, ids = LlamaForCausalLM(small).eval(), torch.randint(50, (2, 128))
    rw.extend(model, "alibi")
    rw.save(model, tmp_path)
    with torch.no_grad():
        logits = model(input_ids=ids).logits[:, -16:-1].double()
    expected = [float(cross_entropy(row, text[-15:])) for row, text in zip(logits, ids, strict=True)]
    plain = module.losses_of(tmp_path, module.LINES[module.PLAIN], ids, 16)
    other = module.losses_of(tmp_path, module.LINES[module.INFINITE], ids, 16)
    assert plain["8"] == pytest.approx(expected, abs=2e-4)
    assert plain["1"] == pytest.approx(other["1"], abs=1e-4)
    assert plain["8"] != pytest.approx(other["8"], abs=1e-4)
