"""Near copies, by hand: how much of a text stands in known texts, wherever its lines break."""

from random import Random

import pytest
from hypothesis import given, strategies as st

from ropewalk.texts.near_copies import ENOUGH_LINES, STRETCH, Content, KnownTexts

LETTERS = "".join(chr(97 + number % 26) for number in Random(0).choices(range(26), k=2000))


def know(*texts, code=False):
    known = KnownTexts()
    for text in texts:
        known.add(Content.of(text, code=code))
    return known


@given(begin=st.integers(0, 1000), before=st.integers(0, 100), random=st.randoms())
def test_a_stretch_is_found_wherever_it_stands_and_however_it_is_spaced(begin, before, random):
    """Two stretches in a row hold a whole one of those that are known."""
    part = LETTERS[begin : begin + 2 * STRETCH]
    spaced = "".join(letter + random.choice(["", "", " ", "\n", "\u3000"]) for letter in part)
    known = know(LETTERS)
    assert known.have(Content.of("#" * before + spaced + "#" * (6 * STRETCH - before), code=False))
    assert not known.have(Content.of("#" * 8 * STRETCH, code=False))


@pytest.mark.parametrize(("others", "is_copy"), [(8, True), (9, False), (20, False)])
def test_it_is_a_copy_from_more_than_a_tenth_on(others, is_copy):
    known = know(LETTERS[:STRETCH])
    assert known.have(Content.of(LETTERS[:STRETCH] + "#" * others * STRETCH, code=False)) == is_copy


@pytest.mark.parametrize(("own", "is_copy"), [(18, True), (26, True), (27, False), (30, False)])
def test_lines_are_copied_from_more_than_a_tenth_on(own, is_copy):
    """Three known lines of 21, 29, 30 and 33."""
    lines = [f"{number}: {LETTERS[60 * number : 60 * number + 50]}" for number in range(33)]
    known = know("\n".join(lines[:3]))
    assert known.have(Content.of("\n".join(lines[: 3 + own]), code=False)) == is_copy


def test_code_and_text_of_many_lines_are_compared_by_lines_alone():
    """Lines that differ in their beginning alone, and are no copies of each other then."""
    rest = LETTERS[: 2 * STRETCH]
    for count, code, is_copy in (
        (ENOUGH_LINES, False, False),
        (ENOUGH_LINES - 1, False, True),
        (ENOUGH_LINES - 1, True, False),
    ):
        one, other = ("\n".join(f"{mark}{number} {rest}" for number in range(count)) for mark in "ab")
        assert know(one, code=code).have(Content.of(other, code=code)) == is_copy, (count, code)
        assert know(one, code=code).have(Content.of(one, code=code))


def test_paragraphs_and_short_lines_are_not_many_lines():
    rest = LETTERS[: 3 * STRETCH]
    for layout in (f"{rest * 4}", "\n".join(rest[n : n + 20] for n in range(0, len(rest), 20))):
        one, other = ("\n".join(f"{mark}{number} {layout}" for number in range(ENOUGH_LINES)) for mark in "ab")
        assert know(one).have(Content.of(other, code=False))


def test_nothing_is_a_copy_of_nothing():
    for text in ("", " \n", "short", LETTERS):
        assert not KnownTexts().have(Content.of(text, code=False))
        assert not know("", "short").have(Content.of(text, code=False))
