"""One text under two rotations: as if two models, of the two bases, had read it without a cache."""

import pytest
import torch

import ropewalk as rw
from ropewalk import DoesNotFit, InvalidValue, extended, nbce_generate, parse
from ropewalk.methods.decoding import PositionalContrast

from hf.models import tiny

IDS = torch.randint(3, 97, (1, 50), generator=torch.Generator().manual_seed(8))
RULE = "positional_contrast:beta=1.5,new_base=40"


@pytest.fixture(scope="module")
def model():
    return tiny("llama", num_hidden_layers=2)


def of_base(model, base):
    """A model of its own that rotates by this base: the same weights, another config."""
    rotated = tiny("llama", num_hidden_layers=2, rope_parameters={"rope_type": "default", "rope_theta": base})
    rotated.load_state_dict(model.state_dict())
    return rotated


def by_hand(own, fast, beta, count):
    ids = IDS
    for _ in range(count):
        with torch.no_grad():
            near, far = (m(input_ids=ids, use_cache=False).logits[0, -1].log_softmax(-1) for m in (fast, own))
        ids = torch.cat([ids, ((1 + beta) * far - beta * near).argmax().view(1, 1)], 1)
    return ids[0, IDS.shape[1] :].tolist()


def test_is_what_two_models_say_without_a_cache(model):
    expected = by_hand(model, of_base(model, 40.0), 1.5, 12)
    assert list(rw.contrast_stream(model, IDS, RULE, max_new_tokens=12, piece=7)) == expected
    assert expected != by_hand(model, model, 0, 12), "the contrast changes nothing"


def test_without_beta_it_is_the_model_alone(model):
    rule = PositionalContrast(beta=0, new_base=40)
    alone = [int(token) for token in rw.stream(model, IDS, max_new_tokens=8)]
    assert list(rw.contrast_stream(model, IDS, rule, max_new_tokens=8)) == alone


@pytest.mark.parametrize("text", ["rerope:window=8+log_n", "window:window=20"])
def test_under_an_extension_both_are(model, text):
    fast = of_base(model, 40.0)
    with extended(model, text), extended(fast, text):
        expected = by_hand(model, fast, 1.5, 8)
    assert list(rw.contrast_stream(model, IDS, RULE, extension=text, max_new_tokens=8)) == expected


def test_the_model_is_left_alone_and_lends_its_weights():
    own = tiny("llama", num_hidden_layers=2)
    before, table = own(IDS).logits, own.model.rotary_emb.inv_freq.clone()
    own.train()
    answer = rw.contrast_stream(own, IDS, RULE)
    next(answer)
    assert all(module.training for module in own.modules())
    assert torch.equal(own.model.rotary_emb.inv_freq, table)
    assert torch.equal(own.eval()(IDS).logits, before)
    own.lm_head.weight.data.zero_()  # also for the answer under way: every token is as likely as the first
    assert next(answer) == 0


def test_tokens_can_be_drawn_again(model):
    given = {"temperature": 1.0, "top_k": 20, "max_new_tokens": 8}
    drawn = [list(rw.contrast_stream(tiny("llama"), IDS, RULE, seed=seed, **given)) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]


def test_progress_counts_both_readings(model):
    told = []
    next(rw.contrast_stream(model, IDS, RULE, piece=20, progress=lambda done, total: told.append((done, total))))
    assert told == [(40, 100), (80, 100), (100, 100)]


def test_combining_by_hand():
    """(1 + 1/2) ln p - 1/2 ln p', to a constant: shares of p^(3/2) / p'^(1/2)."""
    logp = torch.tensor([[0.5, 0.25, 0.25], [0.5, 0.4, 0.1]], dtype=torch.float64).log()
    got = PositionalContrast(beta=0.5, new_base=2).combine(logp).logp.exp()
    expected = [0.5**1.5 / 0.5**0.5, 0.4**1.5 / 0.25**0.5, 0.1**1.5 / 0.25**0.5]
    torch.testing.assert_close(got, torch.tensor(expected, dtype=torch.float64))
    with pytest.raises(InvalidValue, match="one text under two rotations"):
        PositionalContrast(beta=0.5, new_base=2).combine(torch.cat([logp, logp[:1]]))


def test_refusals(model):
    for rule, more, match in (
        ("nbce", {}, "decoding must be a rule for one text"),
        ("positional_contrast:beta=1,new_base=20000", {}, "new_base must be below 10000"),
        (RULE, {"extension": "yarn:factor=4"}, "leave the schedule out"),
        (RULE, {"extension": "nope"}, "leave the schedule out"),
        (RULE, {"piece": 0}, "piece"),
    ):
        with pytest.raises((InvalidValue, DoesNotFit), match=match):
            rw.contrast_stream(model, IDS, rule, **more)
    for ids in (IDS[0], IDS.expand(2, -1), IDS[:, :0], "text"):
        with pytest.raises(InvalidValue, match="ids"):
            rw.contrast_stream(model, ids, RULE)
    with extended(model, "rerope:window=8"), pytest.raises(InvalidValue, match="pass it as `extension`"):
        rw.contrast_stream(model, IDS, RULE)
    with pytest.raises(DoesNotFit, match=r"extend cannot apply positional_contrast.*use rw.contrast_stream"):
        rw.extend(model, RULE)
    with pytest.raises(InvalidValue, match=r"readings of one text; use rw.contrast_stream"):
        nbce_generate(model, lambda *_, **__: {"input_ids": [3]}, ["w5"], "w6", decoding=RULE)
    assert parse(RULE).decoding == PositionalContrast(beta=1.5, new_base=40)
