"""The page, assembled from its sources below web/: a template, a style sheet and small scripts, in the order of use."""

from __future__ import annotations

import re
from functools import cache
from importlib.metadata import version

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ropewalk.page.catalogue import catalogue

# The scripts mirror the equation: one file for each slot, and what stands around the slots.
EQUATION = (
    *("errors", "notation", "record", "facts", "frequencies", "reach", "scales", "biases"),
    *("presets", "extension", "diagnostics", "config"),
)
VIEW = ("dom", "words", "chinese", "state", "charts", "schedule", "matrix", "logits", "engines", "use")
LIVE = ("server", "panel", "losses", "attention", "chat", "live")
SCRIPTS = (*(f"equation/{name}.js" for name in EQUATION), "library/uPlot.iife.min.js")
SCRIPTS += (*(f"view/{name}.js" for name in VIEW), *(f"live/{name}.js" for name in LIVE), "view/main.js")
LICENCE = "library/LICENSE"  # of the charts; it goes where they go
COMMENT = re.compile(r"^[ ]*//.*\n", re.MULTILINE)  # a line of its own: it is for readers of the sources
INDENT = re.compile(r"^(?:  )+", re.MULTILINE)  # halved in the page; a test sees to it that no text spans lines
STYLES = ("library/uPlot.min.css", "style.css")


@cache
def html(*, config: str = "", lines: tuple[str, ...] = (), target_len: int | None = None) -> str:
    """The whole page as one text.

        Path("page.html").write_text(ropewalk.page.html(), "utf-8")

    It works from a file and on any static host. Where a server of Ropewalk answers beside it, it shows live panels too.
    It opens with a model, by the text of its config.json, with one or two `lines`, and at a target length, where these
    are passed; an address that says something else counts more.
    """
    told = {"config": config, **dict(zip("ab", lines, strict=False)), "target_len": target_len}
    opening = {name: value for name, value in told.items() if value}
    loader = PackageLoader("ropewalk.page", "web")
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined)
    environment.policies["json.dumps_kwargs"] = {"sort_keys": False}  # the order of slots is that of the equation

    def source(name: str) -> Markup:
        return Markup(loader.get_source(environment, name)[0])

    return environment.get_template("page.html").render(
        version=version("ropewalk"),
        catalogue=catalogue(),
        opening=opening,
        licence=source(LICENCE),
        scripts=[Markup(shortened(source(name))) for name in SCRIPTS],
        styles=map(source, STYLES),
    )


def shortened(script: str) -> str:
    """A script without comments of their own lines, and with half of its indentation."""
    return INDENT.sub(lambda spaces: " " * (len(spaces[0]) // 2), COMMENT.sub("", script))
