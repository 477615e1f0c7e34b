"""Near copies of a text, by itself: corpora's tests have documents."""

from random import Random

import pytest

from ropewalk.near_copies import COPIED, MANY, STRETCH, Content, KnownTexts

LETTERS = "abcdefghijklmnopqrstuvwxyz     "


def prose(seed, characters):
    return "".join(Random(seed).choices(LETTERS, k=characters))


def known(*texts, code=False):
    every = KnownTexts()
    for text in texts:
        every.add(Content.of(text, code=code))
    return every


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("share", [0.0, 0.05, 0.4, 1.0])
def test_prose_of_one_line_is_a_copy_by_its_share(seed, share):
    """The part that is copied stands at any place, of the known text and of the other one."""
    source, begin = prose(seed, 6000), Random(seed).randrange(1000)
    size = round(share * 4000)
    other = prose(seed + 100, 4000)
    place = Random(seed).randrange(4001 - size)
    text = other[:place] + source[begin : begin + size] + other[place + size :]
    assert known(source).have(Content.of(text, code=False)) == (share > COPIED)


def test_white_space_does_not_hide_a_copy():
    source = prose(0, 3000)
    wrapped = "\n".join(source[place : place + 37] for place in range(0, 3000, 37))
    assert known(source).have(Content.of(wrapped, code=False))


def test_code_is_compared_by_long_lines_alone():
    lines = [prose(n, 60).replace(" ", "x") for n in range(2 * MANY)]
    half = [*lines[:MANY], *(prose(n + 500, 60).replace(" ", "x") for n in range(MANY))]
    assert known("\n".join(lines), code=True).have(Content.of("\n".join(half), code=True))
    joined = "".join(lines)  # one line, which nobody else has
    assert not known("\n".join(lines), code=True).have(Content.of(joined, code=True))


def test_a_text_below_a_stretch_is_no_copy():
    assert not known(prose(0, 3000)).have(Content.of(prose(0, 3000)[: STRETCH - 10].replace(" ", ""), code=False))
    assert not known().have(Content.of("", code=False))
