"""Reads a drawing back: numbers from its pixels, by the labels of its own axes."""

import re
from xml.etree import ElementTree

NS = "{http://www.w3.org/2000/svg}"


def parsed(svg):
    return ElementTree.fromstring(str(svg))


def classes(element):
    return (element.get("class") or "").split()


def of_class(root, name):
    return [element for element in root.iter() if name in classes(element)]


def number(label):
    """What a tick says: −0.05, 1,024, 4k."""
    text = label.replace("−", "-").replace(",", "")
    return float(text[:-1]) * 1024 if text.endswith("k") else float(text)


def axis(root, *, upwards):
    """From pixels to numbers, by two ticks of an even axis."""
    ticks = [
        (float(element.get("y")) - 4 if upwards else float(element.get("x")), number(element.text))
        for element in of_class(root, "tick")
        if ("end" in classes(element)) == upwards
    ]
    (a, first), (b, last) = ticks[0], ticks[-1]
    return lambda pixel: first + (pixel - a) / (b - a) * (last - first)


def series(root, key):
    """The group of one extension."""
    return next(
        element
        for element in root.iter()
        if str(key) in (element.get("data-series") or "").split() and element.get("data-name") is not None
    )


def points(path):
    return [tuple(map(float, pair.split())) for pair in re.findall(r"[ML]([-\d. ]+)", path)]


def line(group):
    return points(next(element for element in group.iter() if "line" in classes(element)).get("d"))
