"""The claims about the cost of windows and of YaRN's temperature: what is timed, what is counted, and the verdicts."""

import pytest
import torch

import ropewalk as rw

from studies import restricted
from studies.processes import ratio


def test_a_masked_window_is_the_window_that_is_computed():
    """Apart from the rotation, which only one of them has: a table without angles."""
    torch.manual_seed(0)
    facts = rw.Facts(trained_len=64, head_dim=restricted.DIM, heads=restricted.HEADS)
    kinds = restricted.candidates(1024)
    assert list(kinds) == ["full", "masked", "windows", "by_parts", "yarn"]
    cells = {name: dict(zip(run.__code__.co_freevars, run.__closure__, strict=True)) for name, run in kinds.items()}
    q, k, v = (cells["masked"][name].cell_contents for name in "qkv")
    plain = rw.parse(f"window:window={restricted.WINDOW}+nope")
    torch.testing.assert_close(kinds["masked"](), rw.attention.attend(q, k, v, plain, facts), atol=1e-4, rtol=1e-4)
    assert not torch.allclose(kinds["masked"](), kinds["full"](), atol=1e-3)
    assert not torch.allclose(kinds["yarn"](), kinds["by_parts"](), atol=1e-3)


def test_the_bytes_of_a_cache_are_those_of_its_keys_and_values():
    """Six layers of four heads of 64, in bfloat16."""
    sizes = restricted.cached([256, 1024])
    token = 2 * 6 * 4 * 64 * 2
    assert sizes["rope"] == [256 * token, 1024 * token]
    for size in sizes[f"window:window={restricted.WINDOW}"]:  # its own size from the first token on, and a few indices
        assert restricted.WINDOW * token <= size < 1.01 * restricted.WINDOW * token


def seconds(**times):
    """Three processes that differ a little."""
    kinds = ("full", "masked", "windows", "by_parts", "yarn")
    return [{kind: [times.get(kind, 1.0) * (1 + 0.01 * run)] * 3 for kind in kinds} for run in range(3)]


def words(runs, window=(10, 10, 10, 10)):
    sizes = {"rope": [10, 20, 40, 80], f"window:window={restricted.WINDOW}": list(window)}
    return {
        one.claim.name: (one.reason or one.word)
        for one in restricted.verdicts({restricted.SECONDS: runs, restricted.BYTES: sizes})
    }


def test_verdicts_follow_from_the_ratios():
    cheap = words(seconds(windows=0.2))
    assert set(cheap.values()) == {"agrees"}
    dear = words(seconds(masked=0.5, windows=0.9, yarn=1.2), window=(10, 20, 40, 80))
    assert set(dear.values()) == {"disagrees at this size"}


def test_a_process_counts_once_with_its_median():
    runs = [{"full": [1.0, 1.0, 9.0], "masked": [1.0, 2.0, 1.0]}, {"full": [4.0], "masked": [1.0]}]
    assert ratio(runs, "full", "masked").value == pytest.approx((1.0 + 4.0) / 2)
