"""How well hidden states tell the position: states that are made, and verdicts on errors that are made."""

import pytest
import torch

from ropewalk.train.small_models import ModelShape, new_small_model

from studies.zoo.inside.state_positions import position_errors, position_verdicts

LENGTH = 16
SHAPE = ModelShape(vocabulary=300, width=32, inner=48, layers=3, heads=4, trained_len=LENGTH)
IDS = torch.randint(300, (24, 4 * LENGTH), generator=torch.Generator().manual_seed(1))


def with_states(monkeypatch, state_of, layer):
    """A model whose layer of this number gives such states to a position."""
    model = new_small_model(SHAPE).eval()
    monkeypatch.setattr(model.model.layers[layer], "forward", lambda hidden, *_, **__: state_of(hidden))
    return model


def noise(hidden):
    return torch.randn(hidden.shape, generator=torch.Generator().manual_seed(2))


def noise_with_positions(hidden):
    states = noise(hidden)
    states[..., 5] = 3 * torch.arange(hidden.shape[1]) - 7
    return states


@pytest.mark.parametrize(("layer", "name"), [(0, "first"), (1, "middle")])
def test_states_that_hold_the_position_tell_it(monkeypatch, layer, name):
    """Of three layers, with the embeddings before them, the second is the middle one."""
    errors = position_errors(with_states(monkeypatch, noise_with_positions, layer), IDS, LENGTH)
    told = torch.tensor(errors[name])
    assert told.shape == (12, LENGTH)
    assert told.max() < 1e-3


def test_states_without_the_position_tell_little(monkeypatch):
    errors = position_errors(with_states(monkeypatch, noise, 0), IDS, LENGTH)
    assert float(torch.tensor(errors["first"]).mean()) > 3.5  # the middle is off by 4 on average
    few = position_errors(with_states(monkeypatch, noise, 0), IDS[:4], LENGTH)  # fitted without an error
    assert float(torch.tensor(few["first"]).mean()) > 1


def made(*, rope, nope):
    """Errors of three texts and two seeds, by quarter: after the first layer with rotation, the middle one without."""
    return [
        {
            "method": method,
            "seed": seed,
            "state_positions": {
                layer: [[0.01 * (text + seed) + quarters[place // 4] for place in range(16)] for text in range(3)]
            },
        }
        for method, layer, quarters in (("rope", "first", rope), ("nope", "middle", nope))
        for seed in range(2)
    ]


@pytest.mark.parametrize(
    ("rope", "nope", "words"),
    [
        ((1, 1, 1, 1), (1, 1, 1, 2), ("agrees", "agrees", "agrees", "undecided")),
        (
            (3, 3, 3, 2),
            (1, 1, 1, 0.5),
            ("agrees", "disagrees at this size", "disagrees at this size", "disagrees at this size"),
        ),
        ((1, 1, 1, 2), (3, 3, 3, 3), ("disagrees at this size", "agrees", "undecided", "agrees")),
    ],
)
def test_verdicts(rope, nope, words):
    verdicts = position_verdicts(made(rope=rope, nope=nope))
    names = ["position-implicit", "position-first-layer", "late-positions-blur", "late-positions-first-layer"]
    assert [one.claim.name for one in verdicts] == names
    assert tuple((one.reason or one.word) for one in verdicts) == words


def test_each_claim_needs_its_own_methods():
    words = [(one.reason or one.word) for one in position_verdicts(made(rope=(1, 1, 1, 2), nope=(1, 1, 1, 1))[:2])]
    assert words == ["not measured", "agrees", "not measured", "agrees"]
