"""Lines can be told apart: by colour and dash, on white and on black, and by people who see fewer colours."""

import re
from itertools import combinations, pairwise
from pathlib import Path

import pytest

import ropewalk
from ropewalk.measure.report.drawing.charts import COLOURS, LIGHT, style_of, styles_of

SHEET = (Path(ropewalk.__file__).parent / "measure" / "report" / "templates" / "page.css").read_text()
DARK = dict(re.findall(r"--(\w+): (#\w+)", SHEET.partition("(prefers-color-scheme: dark)")[2].partition("@media")[0]))
BOTH = pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
# How dichromats see: Viénot, Brettel and Mollon 1999, for linear RGB.
SEEN = {
    "all colours": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "no red": ((0.11238, 0.88762, 0), (0.11238, 0.88762, 0), (0.00401, -0.00401, 1)),
    "no green": ((0.29275, 0.70725, 0), (0.29275, 0.70725, 0), (-0.02234, 0.02234, 1)),
}


def linear(colour):
    digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
    parts = [int(digits[n : n + 2], 16) / 255 for n in (0, 2, 4)]
    return [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]


def luminance(colour):
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear(colour), strict=True))


def contrast(a, b):
    light, dark = sorted((luminance(a), luminance(b)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def lab(colour, seen):
    """CIE Lab of a colour as somebody sees it."""
    rgb = linear(colour)
    rgb = [max(0.0, sum(weight * part for weight, part in zip(row, rgb, strict=True))) for row in seen]
    matrix = ((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505))
    white = (0.9505, 1.0, 1.089)
    x, y, z = (
        sum(w * part for w, part in zip(row, rgb, strict=True)) / ref for row, ref in zip(matrix, white, strict=True)
    )
    f = [v ** (1 / 3) if v > 0.008856 else 7.787 * v + 16 / 116 for v in (x, y, z)]
    return 116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])


def distance(a, b, seen):
    return sum((p - q) ** 2 for p, q in zip(lab(a, seen), lab(b, seen), strict=True)) ** 0.5


def test_no_two_of_48_are_drawn_alike():
    assert len({style_of(key) for key in range(48)}) == 48
    assert all(a[0] != b[0] and a[1] != b[1] for a, b in pairwise(map(style_of, range(8))))


SEVERAL = ["pi", "self_extend:window=4096+log_n", "long_reach", "mine", "self_extend+log_n", "yarn", "mild+log_n"]


def test_a_method_keeps_its_colour_in_every_report():
    """Whatever else is compared, in whatever order; of two lines of one method the first has it."""
    whole, alone = styles_of(SEVERAL), {line: styles_of([line])[line] for line in SEVERAL}
    assert {line for line in SEVERAL if whole[line] != alone[line]} == {"self_extend+log_n"}
    others = styles_of(SEVERAL[::-1])
    assert {line for line in SEVERAL if others[line] != alone[line]} == {"self_extend:window=4096+log_n"}


@pytest.mark.parametrize("count", [1, 7, 12, 30, 48])
def test_no_colour_comes_twice_before_all_are_used(count):
    lines = [*SEVERAL, *(f"method_{n}:factor={n}" for n in range(48))][:count]
    keys = styles_of(lines)
    assert set(keys) == set(lines)
    assert sorted(keys.values()) == sorted(set(keys.values()))
    colours = [style_of(key)[0] for key in keys.values()]
    uses = [colours.count(f"c{n}") for n in range(len(COLOURS))]
    assert max(uses) - min(uses) <= 1


@BOTH
def test_a_number_in_a_map_can_be_read_on_every_shade(colours):
    """The fullest cell is a part of the colour, over a part of the grid's."""
    most = dict(zip(("light", "dark"), map(float, re.findall(r"--most: ([.\d]+)", SHEET)), strict=True))
    part = most["light" if colours is LIGHT else "dark"]
    for name in ("shade", "harm"):
        for share in (0, 0.5, 1):
            cell = mixed(colours[name], mixed(colours["grid"], colours["paper"], 0.35), part * share)
            assert contrast(colours["ink"], cell) > 4.5, (name, share)


def mixed(a, b, share):
    parts = zip(
        *(bytes.fromhex((c if len(c) == 7 else "#" + "".join(2 * d for d in c[1:]))[1:]) for c in (a, b)), strict=True
    )
    return "#" + "".join(f"{round(share * one + (1 - share) * other):02x}" for one, other in parts)


def test_the_dark_page_has_a_colour_for_each_of_the_light_one():
    assert DARK.keys() >= LIGHT.keys()


@BOTH
def test_every_colour_stands_out_from_the_paper(colours):
    assert min(contrast(colours["paper"], colours[f"c{n}"]) for n in range(len(COLOURS))) > 4.5


@pytest.mark.parametrize(("count", "least"), [(8, 40), (12, 20)])
@pytest.mark.parametrize("seen", SEEN)
@BOTH
def test_lines_of_one_dash_differ_in_colour_for_everybody(colours, seen, count, least):
    """Colours may be alike to somebody where the dashes differ."""
    styles = [style_of(key) for key in range(count)]
    same_dash = [(a, b) for (a, dash), (b, other) in combinations(styles, 2) if dash == other]
    assert len(same_dash) >= 4
    for a, b in same_dash:
        assert distance(colours[a], colours[b], SEEN[seen]) > least, (a, b)
