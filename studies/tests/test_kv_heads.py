"""The claims about key heads: a process counts once."""

import pytest

from studies import kv_heads


def test_what_fewer_key_heads_gain_is_judged_by_processes():
    """Rounds of one process agree, whatever another process says: each process counts once."""
    grouped, one = [1.0] * 3, [0.5, 0.6, 0.55]
    alone = {kv_heads.APART: [3.0, 3.1, 3.2], kv_heads.SHARED: [1.0, 1.0, 1.1]}
    runs = [
        {kv_heads.ALL: times, kv_heads.GROUPED: grouped, kv_heads.ONE: one, **alone}
        for times in ([4.0, 4.4, 3.9], [5.0] * 3)
    ]
    faster, one_faster, as_one, fewer_bytes = kv_heads.verdicts({kv_heads.SECONDS: runs})
    assert [(one.reason or one.word) for one in (faster, one_faster, as_one)] == [
        "undecided",
        "undecided",
        "disagrees at this size",
    ]
    assert fewer_bytes.word == "agrees"
    assert fewer_bytes.above[0].value == pytest.approx(3.0 - 1)
    assert faster.above[0].value == pytest.approx((4.0 + 5.0) / 2 - 1)
    assert faster.above[0].of == 2
    assert one_faster.above[0].value == pytest.approx((4.4 / 0.6 + 5 / 0.55) / 2 - 1)
    assert kv_heads.verdicts({kv_heads.SECONDS: runs * 4})[0].word == "agrees"
    kv_heads.step(2, cached=8)()  # a step leaves the cache as long as it was
    kv_heads.attention(1, cached=8)()
