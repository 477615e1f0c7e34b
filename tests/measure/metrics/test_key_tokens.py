"""Key tokens: the rule by hand, windows against a loop over the definition."""

import pytest
import torch
from torch.nn.functional import cross_entropy

from ropewalk.errors import DoesNotFit
from ropewalk.measure.metrics.perplexity import is_key, key_tokens

from hf.models import tiny

TEXT = torch.randint(3, 97, (83,), generator=torch.Generator().manual_seed(3))


def llama():
    """With weights that make far tokens matter."""
    return tiny("llama", num_hidden_layers=2, initializer_range=0.25)


def loss(model, context, token):
    """Of one token after its context."""
    with torch.no_grad():
        logits = model(input_ids=context[None], use_cache=False).logits[0, -1]
    return float(cross_entropy(logits[None], token[None]))


def test_the_rule_by_hand():
    far, near = torch.tensor([0.5, 0.5, 2.5, 1.9, 1.0]), torch.tensor([3.0, 2.5, 9.0, 3.9, 0.0])
    assert is_key(far, near).tolist() == [True, False, False, False, False]  # 2 and less do not exceed 2
    assert is_key(far, near, gain=1).tolist() == [True, True, False, True, False]
    assert is_key(far, near, most=3).tolist() == [True, False, True, False, False]


def test_one_window_after_the_other_as_longppl_reads_them():
    """Windows of near + advance tokens from every advance-th token on; the last `advance` tokens of each are scored."""
    model, near, advance, most = llama(), 8, 5, 8.0
    gained, far = [], []
    for start in range(0, len(TEXT) - near, advance):
        for place in range(start + near, start + near + advance):
            far.append(loss(model, TEXT[:place], TEXT[place]))
            gained.append(loss(model, TEXT[start:place], TEXT[place]) - far[-1])
    for gain in (-0.5, -0.2, 0.05, 0.1, 0.2, 0.3, 0.5):  # at 0 rounding decides where both read the same
        expected = [more > gain and after < most for more, after in zip(gained, far, strict=True)]
        got = key_tokens(model, TEXT, near=near, advance=advance, gain=gain, most=most).tolist()
        assert 2 < sum(expected) < 73
        assert got == [False] * (near - 1) + expected
        shorter = key_tokens(model, TEXT[:81], near=near, advance=advance, gain=gain, most=most).tolist()
        assert shorter[:77] == got[:77]  # the last window, cut short there, begins earlier here


def test_a_model_that_reads_little_has_windows_for_the_far_context_too():
    model = llama()
    got = key_tokens(model, TEXT, near=8, far=16, gain=0.3, most=5.0)
    place = int(got.nonzero()[0]) + 1
    far = [loss(model, TEXT[max(0, place - count) : place], TEXT[place]) for count in range(13, 17)]
    near = [loss(model, TEXT[max(0, place - count) : place], TEXT[place]) for count in (8, 9)]
    assert max(near) - min(far) > 0.3
    assert got.tolist() != key_tokens(model, TEXT, near=8, gain=0.3, most=5.0).tolist()


def windows(model, longest, step):
    """The loss of each token in the first window of `longest` tokens that scores it; they advance by `step`."""
    starts = [0] * longest + [begin for begin in range(step, len(TEXT), step) for _ in range(step)]
    return torch.tensor([loss(model, TEXT[start:place], TEXT[place]) for place, start in enumerate(starts[:80], 1)])


@pytest.mark.parametrize(("near", "near_step", "far", "far_step"), [(9, 2, 16, 4), (1, 1, 2, 1), (1, 1, 3, 1)])
def test_windows_of_the_far_context_advance_by_a_quarter_of_it(near, near_step, far, far_step):
    """So a token is predicted after at least three quarters of them; after all, where a quarter is below one."""
    model = llama()
    far_n, near_n = windows(model, far, far_step), windows(model, near + near_step - 1, near_step)
    for gain in (-0.4, -0.2, 0.1, 0.2, 0.4):  # at 0 rounding decides where both read the same
        expected = is_key(far_n, near_n, gain=gain, most=8.0)
        expected[: near - 1] = False
        got = key_tokens(model, TEXT[:81], near=near, far=far, gain=gain, most=8.0)
        assert 2 < expected.sum() < 78
        assert got[:78].tolist() == expected[:78].tolist()  # the last window may begin earlier


def test_by_default_a_quarter_of_the_near_context_is_scored_at_once():
    model, how = llama(), {"gain": 0.3, "most": 5.0}
    default = key_tokens(model, TEXT, near=8, **how)
    assert default.tolist() == key_tokens(model, TEXT, near=8, advance=2, **how).tolist()
    assert default.tolist() != key_tokens(model, TEXT, near=8, advance=8, **how).tolist()


@pytest.mark.parametrize(("near", "far"), [(82, None), (16, 16), (60, 20)])
def test_a_near_context_that_is_not_shorter(near, far):
    with pytest.raises(DoesNotFit, match="must be shorter than the far one"):
        key_tokens(llama(), TEXT, near=near, far=far)
