"""A checkpoint whose rotation was dropped: saved in a standard config, and read back as what does not rotate."""

import pytest
import torch
from transformers import AutoModelForCausalLM

import ropewalk as rw
from ropewalk.errors import DoesNotFit

from hf.models import tiny

IDS = torch.randint(3, 90, (1, 60), generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module", params=["llama", "qwen3", "glm"])  # with norms; with half of a head rotated
def both(request, tmp_path_factory):
    """The model as it was, and the dropped one as plain transformers loads it."""
    place, model = tmp_path_factory.mktemp(request.param) / "dropped", tiny(request.param, num_hidden_layers=2)
    with rw.extended(model, "nope"):
        assert rw.save(model, place, target_len=model.config.max_position_embeddings).startswith("transformers.")
    return model, AutoModelForCausalLM.from_pretrained(place).eval()


@torch.no_grad()
def read(model, line=""):
    if not line:
        return model(IDS).logits
    with rw.extended(model, line):
        return model(IDS).logits


def test_plain_transformers_reads_it_without_rotation(both):
    model, dropped = both
    torch.testing.assert_close(read(dropped), read(model, "nope"), rtol=1e-4, atol=1e-4)
    assert not torch.allclose(read(dropped), read(model), atol=1e-2)


@pytest.mark.parametrize("line", ["log_n:clipped=false", "window:window=12", "alibi"])
def test_what_needs_no_rotation_is_what_it_is_under_nope(both, line):
    model, dropped = both
    full = line if line == "alibi" else f"nope+{line}"
    torch.testing.assert_close(read(dropped, line), read(model, full), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("log_n", "the checkpoint came without rotation: it is kept"),
        ("nope", "the checkpoint came without rotation: it is kept"),
        ("ntk:factor=2+instead", "the checkpoint came without rotation: ntk:factor=2 replaces it"),
    ],
)
def test_a_handle_says_what_happens(both, line, words):
    with rw.extended(both[1], line) as handle:
        assert handle.own_schedule.startswith(words)


@pytest.mark.parametrize("line", ["rope", "nope"])
def test_it_may_be_left_as_it_is(both, line):
    assert torch.equal(read(both[1], line), read(both[1]))


@pytest.mark.parametrize(
    "line", ["yarn:factor=4", "dynamic_yarn", "rerope:window=8", "self_extend:window=8", "pi:factor=2"]
)
def test_what_only_changes_the_rotation_is_refused(both, line):
    with pytest.raises(DoesNotFit, match=r"no layer of this model rotates them; .*\+instead rotates again"):
        rw.extend(both[1], line)


def test_instead_rotates_again(both):
    model, dropped = both
    torch.testing.assert_close(read(dropped, "ntk:factor=2+instead"), read(model, "ntk:factor=2"), rtol=1e-3, atol=1e-3)


def test_an_inspection_says_so(both):
    seen = rw.inspect(both[1])
    page = str(seen)
    assert "none: its rotation was dropped; +instead rotates again" in " ".join(page.split())
    assert "No layer rotates its queries and keys." in page
    assert "rotation              none" in page
    assert "log_n" in seen.applying
    assert {"yarn", "rerope", "pi"} <= set(seen.refused)
