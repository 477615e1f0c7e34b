"""Models without a rotary module: what needs no rotation works on them, and schedules are refused."""

import pytest
import torch

import ropewalk as rw
from ropewalk.errors import DoesNotFit

from hf.architectures import small
from hf.models import tiny

# OPT calls its decoder and passes its base model by; Granite without bases has a rotary module and does not call it.
KINDS = ["gpt2", "biogpt", "kimi_linear", "jamba", "opt", "whisper", "granite_swa without bases"]
WORKING = ["log_n", "window:window=12", "streaming:window=12,n_sink=2", "alibi"]
IDS = torch.randint(3, 90, (1, 60), generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module", params=KINDS)
def model(request):
    if request.param == "granite_swa without bases":
        return tiny("granite_swa", layer_rope_theta=[0, 0, 0, 0])
    return small(request.param)


@pytest.mark.sampled
@pytest.mark.parametrize("line", WORKING)
@torch.no_grad()
def test_what_needs_no_rotation_works(model, line):
    plain = model(IDS).logits
    with rw.extended(model, line):
        assert not torch.allclose(model(IDS).logits, plain, atol=1e-3) or line == "log_n"
        torch.testing.assert_close(model(IDS[:, :2]).logits[:, :1], plain[:, :1], atol=1e-3, rtol=1e-3)
    assert torch.equal(model(IDS).logits, plain)


@torch.no_grad()
def test_a_window_hides_what_is_before_it():
    model = small("gpt2")
    other = torch.cat([IDS[:, :1] + 1, IDS[:, 1:]], 1)
    with rw.extended(model, "window:window=4"):
        one, two = (model(ids).logits[:, -1] for ids in (IDS, other))
    torch.testing.assert_close(one, two)  # two layers see seven tokens back


@pytest.mark.sampled
@pytest.mark.parametrize("line", ["yarn:factor=4", "dynamic_yarn", "rerope:window=8", "self_extend:window=8", "nope"])
def test_what_only_changes_the_rotation_is_refused(model, line):
    with pytest.raises(DoesNotFit, match="no layer of this model rotates them"):
        rw.extend(model, line, target_len=256)


@pytest.mark.sampled(cases=4)
def test_an_inspection_says_so(model):
    seen = str(rw.inspect(model))
    assert "No layer rotates its queries and keys." in seen
    assert "no layer of this model rotates them" in " ".join(seen.split())
