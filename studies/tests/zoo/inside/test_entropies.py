"""The entropy of attention in the zoo's models, and what follows for the claims of LM-Infinite and log-n."""

import pytest
import torch

from ropewalk.train.small_models import ModelShape, new_small_model

from studies.zoo.inside.entropies import ROWS, TIMES, entropies
from studies.zoo.inside.entropy_claims import CLAIMS, LOG_N, PLAIN, Entropies, entropy_verdicts

SHAPE = ModelShape(vocabulary=300, width=32, inner=48, layers=2, heads=4, trained_len=16)


def lively():
    """A model whose attention is far from uniform."""
    model = new_small_model(SHAPE)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "q_proj" in name or "k_proj" in name:
                parameter.mul_(20)
    return model.eval()


def by_transformers(model, ids, scale=lambda row: 1.0):
    """The entropies by the weights that transformers returns; with the logits of each row scaled."""
    model.set_attn_implementation("eager")
    with torch.no_grad():
        weights = torch.stack(model(input_ids=ids, output_attentions=True).attentions).double()
    logits = weights.clamp(min=1e-300).log()
    factors = torch.tensor([scale(row) for row in range(ids.shape[1])]).double()
    weights = torch.softmax((logits * factors[:, None]).masked_fill(weights == 0, -torch.inf), -1)
    return -(weights * weights.clamp(min=1e-300).log()).sum(-1).mean((0, 2))


def test_entropies_are_those_of_the_weights():
    model, ids = lively(), torch.randint(300, (3, 140), generator=torch.Generator().manual_seed(1))
    measured = entropies(model, "", ids, trained_len=16)
    expected = by_transformers(model, ids[:, -16 * TIMES :])
    rows = [int(count) - 1 for count in measured["keys"]]
    assert len(rows) == TIMES * ROWS
    assert rows[-1] == 16 * TIMES - 1
    assert torch.allclose(torch.tensor(measured["texts"]).double(), expected[:, rows], atol=1e-4)


def test_under_log_n_rows_are_sharper():
    """Of a single layer, whose queries and keys log-n does not change."""
    torch.manual_seed(0)
    model = lively()
    model.model.layers = model.model.layers[:1]
    model.config.num_hidden_layers = 1
    ids = torch.randint(300, (2, 140), generator=torch.Generator().manual_seed(1))
    measured = entropies(model, "log_n", ids, trained_len=16)
    log_n = lambda row: max(1.0, float(torch.tensor(row + 1.0).log() / torch.tensor(16.0).log()))  # noqa: E731
    expected = by_transformers(model, ids[:, -16 * TIMES :], log_n)
    rows = [int(count) - 1 for count in measured["keys"]]
    assert torch.allclose(torch.tensor(measured["texts"]).double(), expected[:, rows], atol=1e-4)


def models(seeds=3, **growths):
    """Entropies that grow from 1x to 8x by so much, with the logarithm of the keys; texts and seeds differ a little."""
    keys = [2.0 * (row + 1) for row in range(TIMES * ROWS)]

    def texts(growth, seed):
        curve = [growth * torch.tensor(count / 16).log2().item() / 3 for count in keys]
        return [[1 + 0.01 * text + 0.02 * seed + value for value in curve] for text in range(4)]

    return [
        {"method": name, "seed": seed, "entropies": {"keys": keys, "texts": texts(growth, seed)}}
        for name, growth in growths.items()
        for seed in range(seeds)
    ]


def words(plain, log_n):
    return {
        one.claim.name: (one.reason or one.word) for one in entropy_verdicts(models(**{PLAIN: plain, LOG_N: log_n}))
    }


def test_verdicts_by_growth():
    every = words(1.5, 0.05)
    assert every.pop("yarn-smooths") == "not measured"
    assert every == dict.fromkeys(("entropy-grows", "log-n-lowers-entropy", "log-n-keeps-entropy"), "agrees")
    assert words(1.5, 0.5)["log-n-keeps-entropy"] == "disagrees at this size"
    assert words(1.5, -0.5)["log-n-keeps-entropy"] == "disagrees at this size"
    assert words(1.5, 2.0)["log-n-lowers-entropy"] == "disagrees at this size"
    assert words(-1.0, 0.0)["entropy-grows"] == "disagrees at this size"


@pytest.mark.parametrize(("yarn", "word"), [(1.5, "agrees"), (0.5, "disagrees at this size")])
def test_smoother_is_of_higher_entropy(yarn, word):
    verdicts = entropy_verdicts(models(rope_under_by_parts=1.0, rope_under_yarn=yarn))
    assert {one.claim.name: (one.reason or one.word) for one in verdicts}["yarn-smooths"] == word


def test_rows_of_a_length_are_its_last_half():
    one = Entropies({"keys": [8.0, 16.0, 24.0, 32.0, 64.0, 96.0, 120.0, 128.0], "texts": [[*range(8)]]})
    assert one.of_texts(1) == [1]
    assert one.of_texts(2) == [3]
    assert one.of_texts(8) == [7]


def test_without_entropies_nothing_is_judged():
    assert [(one.reason or one.word) for one in entropy_verdicts([{}])] == len(CLAIMS) * ["not measured"]
    curve = entropy_verdicts(models(**{PLAIN: 1.0, LOG_N: 0.5}))[0].curves[PLAIN]
    assert [count for count, _ in curve][:2] == pytest.approx([2, 4])
