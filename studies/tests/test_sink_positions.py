"""Claims about positions inside a cache, from made-up losses; and the losses themselves."""

import pytest
import torch
from torch.nn.functional import cross_entropy
from transformers import LlamaConfig, LlamaForCausalLM

import ropewalk as rw

from studies import sink_positions as module


def verdicts(text, *, cache=2.0):
    """Of six projects; a later text is a little harder."""

    def losses(level):
        return {str(times): [level(times) + 0.001 * n for n in range(6)] for times in module.TIMES}

    of = {module.TEXT: text, module.CACHE: lambda times: cache}
    figures = {positions: dict.fromkeys(module.SCORED, losses(level)) for positions, level in of.items()}
    return module.verdicts({"projects": list("abcdef"), module.LOSSES: figures})


def words(text):
    return {one.word for one in verdicts(text)}


def test_every_claim_can_hold_and_fail():
    assert words(lambda times: 2.5) == {"agrees"}
    assert words(lambda times: 1.5) == {"disagrees at this size"}
    assert words(lambda times: 2.5 if times < 8 else 2.0) == {"undecided"}


def test_a_difference_is_that_of_each_length_beyond_the_trained_one():
    (first, _) = verdicts(lambda times: 2.0 + times / 10)
    assert [one.value for one in first.above] == pytest.approx([0.2, 0.4, 0.8])
    assert [value for value, _ in first.curves["positions of the text"]] == [1, 2, 4, 8]


def test_losses_are_of_the_last_tokens_of_the_beginnings(monkeypatch):
    monkeypatch.setattr(module, "END_TOKENS", 3)
    torch.manual_seed(0)
    small = LlamaConfig(vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16)
    model, length = LlamaForCausalLM(small).eval(), 8
    ids = torch.randint(50, (8 * length,), generator=torch.Generator().manual_seed(0))
    with rw.extended(model, module.lines(length)[module.CACHE], trained_len=length):
        found = module.losses_of(model, ids, length)
        for times in module.TIMES:
            begun = ids[: times * length]
            with torch.no_grad():
                each = cross_entropy(model(input_ids=begun[None]).logits[0, :-1].double(), begun[1:], reduction="none")
            assert found[module.END][str(times)] == pytest.approx(float(each[-3:].mean()), abs=2e-5)
            half = float(each[-times * length // 2 :].mean())
            assert found[module.HALF][str(times)] == pytest.approx(half, abs=2e-5)


def test_both_lines_show_the_same_keys():
    facts = rw.Facts(trained_len=16, head_dim=8)
    for line in module.lines(16).values():
        spans = rw.parse(line).reach.spans()
        assert [int(span.stop(torch.tensor(40)) - span.start(torch.tensor(40))) for span in spans] == [12, 4]
        rw.parse(line).check_against(facts)
