"""The loss of every token, against torch's cross entropy of all logits."""

import re

import pytest
import torch
from torch.nn.functional import cross_entropy

from ropewalk import InvalidValue
from ropewalk.attention import nll, token_loss, token_scores
from ropewalk.attention.token_loss import IGNORED, TOKENS_PER_BLOCK, WORDS_PER_BLOCK

from another_device import another_device, here, there


def inputs(tokens, words, dim=16, dtype=torch.float64, bias=False):
    rng = torch.Generator().manual_seed(0)
    hidden = torch.randn(tokens, dim, generator=rng).to(dtype).requires_grad_()
    head = torch.randn(words, dim, generator=rng).to(dtype).requires_grad_()
    shift = torch.randn(words, generator=rng).to(dtype).requires_grad_() if bias else None
    return hidden, head, torch.randint(0, words, (tokens,), generator=rng), shift


def naive(hidden, head, targets, bias):
    logits = hidden @ head.mT + (0 if bias is None else bias)
    return cross_entropy(logits, targets, reduction="none", ignore_index=IGNORED)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        (1, 1),
        (7, 3),
        (TOKENS_PER_BLOCK + 5, WORDS_PER_BLOCK + 11),
        (2 * TOKENS_PER_BLOCK + 3, 9),
        (30, 3 * WORDS_PER_BLOCK + 1),
    ],
)
def test_losses_and_gradients_are_cross_entropys(tokens, words, bias):
    one, other = inputs(tokens, words, bias=bias), inputs(tokens, words, bias=bias)
    one[2][::3] = other[2][::3] = IGNORED
    slope = torch.randn(tokens, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    got, expected = nll(*one), naive(*other)
    torch.testing.assert_close(got, expected)
    got.backward(slope)
    expected.backward(slope)
    for a, b in zip(one, other, strict=True):
        if a is not None and a.requires_grad:
            torch.testing.assert_close(a.grad, b.grad)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(
    ("tokens", "words"), [(7, 3), (TOKENS_PER_BLOCK + 5, WORDS_PER_BLOCK + 11), (30, 2 * WORDS_PER_BLOCK)]
)
def test_a_hit_is_the_first_of_the_highest_logits(tokens, words, bias):
    """Numbers are few and whole, so that many words tie; every second target is the choice."""
    rng = torch.Generator().manual_seed(0)
    hidden, head = (torch.randint(-1, 2, (n, 4), generator=rng).double() for n in (tokens, words))
    shift = torch.randint(0, 2, (words,), generator=rng).double() if bias else None
    chosen = (hidden @ head.mT + (0 if shift is None else shift)).argmax(-1)
    targets = torch.where(torch.arange(tokens) % 2 == 0, chosen, (chosen + 1) % words)
    got = token_scores(hidden[None], head, targets[None], shift)
    assert torch.equal(got.hits[0], targets == chosen)
    assert torch.equal(got.losses[0], nll(hidden, head, targets, shift))


@pytest.mark.parametrize("bias", [False, True])
def test_on_another_device_the_same_by_blocks_of_its_own(bias, monkeypatch):
    """More blocks than one in both directions, with logits that tie."""
    monkeypatch.setattr(token_loss, "ON_GPU", (5, 7))
    rng = torch.Generator().manual_seed(0)
    hidden, head = (torch.randint(-1, 2, (n, 4), generator=rng).double() for n in (13, 30))
    shift = torch.randint(0, 2, (30,), generator=rng).double() if bias else None
    logits = hidden @ head.mT + (0 if shift is None else shift)
    targets = torch.where(torch.arange(13) % 2 == 0, logits.argmax(-1), (logits.argmax(-1) + 1) % 30)
    with another_device():
        moved = [there(hidden[None]), there(head), there(targets[None]), None if shift is None else there(shift)]
        got = token_scores(*moved)
        losses = nll(*moved)
    torch.testing.assert_close(here(got.losses)[0], naive(hidden, head, targets, shift))
    assert torch.equal(here(got.losses), here(losses))
    assert torch.equal(here(got.hits)[0], targets == logits.argmax(-1))


def test_the_highest_of_all_tiles_and_not_of_the_last_ones():
    """The first block's highest is 3, the second's 1, the third's 2; for one token the order is reversed."""
    head = torch.zeros(3 * WORDS_PER_BLOCK, 1, dtype=torch.float64)
    head[[5, WORDS_PER_BLOCK + 5, 2 * WORDS_PER_BLOCK + 5], 0] = torch.tensor([3.0, 1.0, 2.0], dtype=torch.float64)
    hidden = torch.tensor([1.0, 1.0, 1.0, -1.0], dtype=torch.float64)[:, None]
    targets = torch.tensor([5, WORDS_PER_BLOCK + 5, 2 * WORDS_PER_BLOCK + 5, 0])
    got = token_scores(hidden, head, targets)
    assert got.hits.tolist() == [True, False, False, True]
    torch.testing.assert_close(got.losses, naive(hidden, head, targets, None))


@pytest.mark.parametrize("bias", [False, True])
def test_products_beyond_the_range_of_float16(bias):
    """Over three blocks: their logits go up to 90,000, where float16 ends at 65,504."""
    rng = torch.Generator().manual_seed(0)
    targets = torch.randint(0, 2 * WORDS_PER_BLOCK + 5, (9,), generator=rng)
    hidden, head = (
        torch.full((9, 2), 300.0),
        torch.randint(200, 300, (2 * WORDS_PER_BLOCK + 5, 2), generator=rng).float() / 2,
    )
    shift = torch.randn(len(head), generator=rng).half() if bias else None
    one, other = ([x.half().to(dtype).requires_grad_() for x in (hidden, head)] for dtype in (torch.half, torch.double))
    got, expected = nll(*one, targets, shift), naive(*other, targets, None if shift is None else shift.double())
    torch.testing.assert_close(got.double(), expected, rtol=0, atol=0.02)
    torch.testing.assert_close(token_scores(*one, targets, shift).losses, got, rtol=0, atol=0)
    for way, leaves in ((got, one), (expected, other)):
        way.sum().backward()
        assert all(leaf.grad.isfinite().all() for leaf in leaves)
    for a, b in zip(one, other, strict=True):
        torch.testing.assert_close(a.grad.double(), b.grad, rtol=2e-2, atol=2e-2 * float(b.grad.abs().max()))


def test_what_is_not_scored_is_no_hit():
    hidden, head, _, _ = inputs(4, 9)
    got = token_scores(hidden, head, torch.full((4,), IGNORED))
    assert (got.losses.tolist(), got.hits.tolist()) == ([0.0] * 4, [False] * 4)


def test_half_precision_is_summed_up_in_single():
    hidden, head, targets, _ = inputs(200, 5000, dim=64, dtype=torch.bfloat16)
    got = nll(hidden, head, targets)
    assert got.dtype == torch.float32
    exact = naive(hidden.double(), head.double(), targets, None)
    assert float((got.mean() - exact.mean()).abs().detach()) < 0.01


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_rounding_makes_no_loss_negative(dtype):
    """A target far above all other words: the loss is about 0, and its two parts must be rounded alike."""
    rng = torch.Generator().manual_seed(0)
    head, targets = torch.randn(100, 512, generator=rng) * 0.05, torch.randint(0, 100, (500,), generator=rng)
    hidden = (torch.randn(500, 512, generator=rng) + 1000 * head[targets]).to(dtype)
    got = nll(hidden, head.to(dtype), targets)
    assert got.isfinite().all()
    assert (got >= 0).all()
    assert float(got.max()) < 1e-3


def test_nothing_to_score():
    hidden, head, targets, _ = inputs(4, 9)
    assert nll(hidden[:0], head, targets[:0]).shape == (0,)
    assert nll(hidden, head, torch.full((4,), IGNORED)).tolist() == [0, 0, 0, 0]
    assert torch.equal(nll(hidden, head, targets.to(torch.uint8)), nll(hidden, head, targets))


@pytest.mark.parametrize("bias", [True, False])
def test_nothing_to_score_has_gradients_of_zero(bias):
    hidden, head, targets, shift = inputs(4, 9, bias=bias)
    leaves = [x for x in (hidden, head, shift) if x is not None]
    loss = nll(hidden[:0], head, targets[:0], shift).sum()
    assert all(not slope.any() for slope in torch.autograd.grad(loss, leaves))


def test_any_leading_shape():
    hidden, head, targets, _ = inputs(24, 50)
    got = nll(hidden.view(2, 3, 4, 16), head, targets.view(2, 3, 4))
    torch.testing.assert_close(got.flatten(), nll(hidden, head, targets))


def test_memory_is_that_of_a_block(monkeypatch):
    """No matrix of all tokens by all words is ever computed, and blocks share their memory."""
    sizes, places = [], set()

    def noting(multiply):
        def noted(*arguments, **named):
            made = multiply(*arguments, **named)
            sizes.append(made.numel())
            places.update([made.data_ptr()] if "out" in named else [])
            return made

        return noted

    monkeypatch.setattr(torch.Tensor, "__matmul__", noting(torch.Tensor.__matmul__))
    monkeypatch.setattr(torch, "mm", noting(torch.mm))
    hidden, head, targets, _ = inputs(3 * TOKENS_PER_BLOCK, 3 * WORDS_PER_BLOCK, dim=4)
    losses = nll(hidden, head, targets)
    assert len(sizes) == 9
    assert len(places) == 1
    losses.sum().backward()
    assert max(sizes) <= TOKENS_PER_BLOCK * WORDS_PER_BLOCK


def test_impossible_words_and_huge_logits():
    hidden, head, targets, bias = inputs(50, 2 * WORDS_PER_BLOCK, bias=True)
    with torch.no_grad():
        bias[WORDS_PER_BLOCK:] = -torch.inf
        targets[:] = targets % WORDS_PER_BLOCK
        for size in (1.0, 1e3, 1e6):
            expected = naive(hidden * size, head, targets, bias)
            torch.testing.assert_close(nll(hidden * size, head, targets, bias), expected)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda h, w, t, b: (h[:, :8], w, t, b),
            "hidden and head must be [..., d] and [words, d], got '(5, 8) and (9,",
        ),
        (lambda h, w, t, b: (h, w.float(), t, b), "head must be of the hidden states' type (torch.float64)"),
        (lambda h, w, t, b: (h, w, t[:4], b), "targets must be whole numbers of shape (5,), got (4,)"),
        (lambda h, w, t, b: (h, w, t + 9, b), "targets must be words of the head (0 to 8) or -100"),
        (lambda h, w, t, b: (h, w, t, torch.zeros(3)), "bias must be floating-point numbers for 9 words, got (3,)"),
    ],
)
def test_what_does_not_fit_is_refused(change, message):
    with pytest.raises(InvalidValue, match=re.escape(message)):
        nll(*change(*inputs(5, 9)))
