"""Every reach against the relative positions that the authors' own code was measured to use."""

import pytest
import torch

from ropewalk.methods.reach import DualChunk, LambdaMask, LeakyReRoPE, ReRoPE, SelfExtend, Sinks, String, Window

from golden_tables import golden
from methods.reach.relative import relative

TABLES = golden("relative_positions")["matrices"]
REACHES = {
    "rerope_w5": ReRoPE(window=5),
    "leaky_rerope_w5_k4": LeakyReRoPE(window=5, leak=4),
    "self_extend_G4_W4": SelfExtend(window=4, group=4),
    "self_extend_G2_W6": SelfExtend(window=6, group=2),
    "dca_c8_w3_s5": DualChunk(chunk=8, local=3),
    "lm_infinite_local6_global2_limit6": LambdaMask(window=6, n_sink=2),
}


def table(name):
    rows = [[torch.nan if cell is None else cell for cell in row] for row in TABLES[name]]
    return torch.tensor(rows, dtype=torch.float64)


@pytest.mark.parametrize("name", REACHES)
def test_relative_positions_equal_the_authors(name):
    expected = table(name)
    torch.testing.assert_close(relative(REACHES[name], len(expected)), expected, rtol=0, atol=0.02, equal_nan=True)


def test_self_extend_shifts_as_the_paper_where_the_group_does_not_divide_the_window():
    """The measured prefill shifts by 5 - 5/3, the paper and the same authors' flash decoding by 5 - 5//3."""
    expected = table("self_extend_G3_W5")
    far = (torch.arange(16)[:, None] - torch.arange(16)) >= 5
    expected = torch.where(far, expected - (5 - 5 / 3) + (5 - 5 // 3), expected)
    torch.testing.assert_close(relative(SelfExtend(window=5, group=3), 16), expected, rtol=0, atol=0.02, equal_nan=True)


def test_string_equals_the_authors_decoding():
    """Their decoding begins beyond the window of S = 6 tokens."""
    expected = table("string_S6_W2_decode")[6:]
    got = relative(String(shift=6, local=2), 16)[6:]
    torch.testing.assert_close(got, expected, rtol=0, atol=0.02, equal_nan=True)


def test_string_counts_the_key_at_the_shift_once_where_the_authors_prefill_counts_it_twice():
    got = relative(String(shift=6, local=2), 16)
    for i, row in enumerate(TABLES["string_S6_W2_prefill"]):
        for j, cell in enumerate(row[: i + 1]):
            assert cell == [6, 2] if i - j == 6 else got[i, j] == pytest.approx(cell, abs=0.02)
            assert i - j != 6 or got[i, j] == 2


def test_streaming_sees_and_numbers_the_authors_cache():
    """start 2, recent 4: with the current token the window is 5."""
    trace = TABLES["streaming_start2_recent4_token_by_token"]
    seen = relative(Sinks(window=5, n_sink=2), len(trace))
    for step in trace:
        row = seen[step["token"]]
        assert (~row.isnan()).nonzero().flatten().tolist() == step["visible_tokens"]
        expected = [step["query_position"] - position for position in step["key_positions"]]
        assert row[~row.isnan()].tolist() == expected


def test_window_counts_the_query_itself():
    """A rolling buffer of W slots, written and then read, holds the query and the W - 1 tokens before it."""
    seen = relative(Window(window=3), 6)
    assert [(~row.isnan()).sum().item() for row in seen] == [1, 2, 3, 3, 3, 3]
    assert seen[5].isnan().tolist() == [True, True, True, False, False, False]
