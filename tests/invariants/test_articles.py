"""What the five articles say of formulas, kept as identities of public functions. What is expected is worked by hand.

Two more stand beside their methods: the ends of NTK in methods/frequencies/test_by_hand.py, and in
methods/biases/test_by_hand.py that equal even vectors as biases give Sandwich's product.
"""

import math
from functools import partial

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import ropewalk as rw
from ropewalk.methods.biases import GAURotary
from ropewalk.methods.surgery import QKBias

LLAMA = rw.Facts(trained_len=2048, head_dim=128, heads=32, layers=32)
WIDTH, PARAMETERS = 4096, 6_738_415_616  # of LLaMA 7B
THETA = [10_000 ** (-pair / 64) for pair in range(64)]
SLOW = range(41, 64)  # less than a turn in 2,048 tokens: 2048 theta < 2 pi from 64 ln(2048 / 2 pi) / ln 10,000 on
TIMES = 8
SHORT = rw.Facts(trained_len=64, head_dim=16, heads=2)
TEXT = 40


def some(seed, *, heads=2, length=TEXT):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(1, heads, length, 16, generator=generator, dtype=torch.float64)


def radians(line):
    """Per position, of each pair of dimensions of LLaMA at eight trained lengths."""
    schedule = rw.parse(line, trained_len=2048, target_len=TIMES * 2048).frequencies
    return schedule.table(LLAMA, TIMES * 2048).inv_freq.tolist()


def test_pi_puts_the_last_position_an_eighth_before_the_end_of_training():
    """L - 1/s for s trained lengths L. Article 3 says L - 1, of L = 4 and s = 2: 3 instead of 3.5."""
    last = [(TIMES * 2048 - 1) * each for each in radians("pi")]
    assert last == pytest.approx([(2048 - 1 / TIMES) * theta for theta in THETA], rel=1e-14)


def test_under_ntk_all_slow_pairs_but_the_last_turn_farther_than_in_training():
    """By 8^((63 - pair) / 63), from its base of 10,000 8^(64/63)."""
    farther = [TIMES * new / theta for new, theta in zip(radians("ntk"), THETA, strict=True)]
    assert farther == pytest.approx([TIMES ** ((63 - pair) / 63) for pair in range(64)], rel=1e-12)
    assert all(farther[pair] > 1.03 for pair in SLOW[:-1])


def test_of_64_pairs_23_make_less_than_a_turn_in_training():
    slow = [pair for pair, each in enumerate(radians("frequencies.rope")) if 2048 * each < 2 * math.pi]
    assert slow == list(SLOW)
    assert len(slow) == 23


def moved(attention, line, tokens):
    """The largest change of what is attended to when the whole text moves by so many positions."""
    q, k, v = some(0), some(1), some(2)
    at = torch.arange(TEXT)[None]
    near, far = (attention(q, k, v, rw.parse(line), SHORT, rw.Tokens(places)) for places in (at, at + tokens))
    return float((near - far).abs().max())


@pytest.mark.parametrize("attention", [rw.attend, rw.reference_attention])
def test_under_rotation_only_distances_count(attention):
    assert moved(attention, "rope", 1000) < 1e-12
    assert moved(attention, "dynamic_ntk", 1000) > 1e-3  # here positions count


def attention_change(attention, line, bias):
    """The largest change of what is attended to by one bias on all keys."""
    q, k, v = some(0), some(1), some(2)
    run = partial(attention, extension=rw.parse(line), facts=SHORT)
    return float((run(q, k, v) - run(q, k + bias, v)).abs().max())


@pytest.mark.parametrize("attention", [rw.attend, rw.reference_attention])
def test_a_bias_on_keys_cancels_in_the_softmax_unless_keys_rotate(attention):
    bias = some(3, length=1)
    assert attention_change(attention, "nope", bias) < 1e-12
    assert attention_change(attention, "rope", bias) > 1e-2


def test_the_product_of_two_constant_biases_falls_with_the_distance():
    """a^T R_d b of equal vectors is the sum of cos(d theta) over pairs: largest at 0, and falling on the whole."""
    ones = torch.ones(1, 128, dtype=torch.float64)
    distance = torch.arange(512)
    curve = GAURotary(width=128).bias(
        distance, distance, rw.Facts(trained_len=512, head_dim=128), {"a": ones, "b": ones}
    )
    by_hand = [2 * sum(math.cos(far * theta) for theta in THETA) for far in range(512)]
    falls = [each - by_hand[0] for each in by_hand]
    assert (curve[0] - curve[0, 0]).tolist() == pytest.approx(falls, abs=1e-9)
    means = [float(curve[0, begin : 2 * begin].mean()) for begin in (1, 4, 16, 64, 256)]
    assert means == sorted(means, reverse=True)
    assert float(curve[0].argmax()) == 0


def test_biases_on_queries_and_keys_are_a_hair_of_a_models_parameters():
    """2 x 4096 numbers in each of 32 layers of LLaMA 7B: 39 in a million."""
    projection = torch.empty(WIDTH, WIDTH, device="meta")
    state = {f"{layer}.{name}.weight": projection for layer in range(32) for name in ("q_proj", "k_proj", "v_proj")}
    converted, _ = QKBias().convert(state, LLAMA)
    added = sum(each.numel() for name, each in converted.items() if name not in state)
    assert added == 2 * WIDTH * 32
    assert added / PARAMETERS < 1e-3


def two_products(q, k, v, *_, out_shape=None, **__):
    """Every key with every query, twice: torch counts its kernels of GPUs like this, and that of CPUs not at all."""
    return 2 * q[0] * q[1] * q[2] * k[2] * (q[3] + v[3])


def operations(line, length):
    """Of attention over so many tokens."""
    q, k, v = (some(seed, length=length).float() for seed in range(3))
    kernel = {torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: two_products}
    rw.attend(q, k, v, rw.parse(line), SHORT)  # the first call of a process tries its kernels out
    with FlopCounterMode(display=False, custom_mapping=kernel) as counted:
        rw.attend(q, k, v, rw.parse(line), SHORT)
    return counted.get_total_flops()


def test_a_token_of_a_text_of_32_times_the_length_costs_32_times_the_attention():
    """As an article has it of 4,096 and 131,072 tokens; behind a window it costs the same."""
    length, times = 256, 32
    assert operations("rope", times * length) / operations("rope", length) == pytest.approx(times**2)
    assert operations("window:window=64", times * length) / operations("window:window=64", length) < 1.5 * times
