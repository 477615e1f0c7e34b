"""The page, assembled from its sources below web/: a template, a style sheet and small scripts, in the order of use."""

from __future__ import annotations

import re
from functools import cache
from importlib.metadata import version

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ropewalk.extension.parsing import PRESETS
from ropewalk.methods.facts import Facts
from ropewalk.methods.spec import Json
from ropewalk.page.catalogue import catalogue
from ropewalk.page.drawing import draw_all, grid, ground_of
from ropewalk.page.walk import walk

USUAL = Facts(trained_len=4096, head_dim=128, heads=32, layers=32)  # a Llama
FIRST = ("rope", "rerope+log_n")  # the lines that are shown at first: the unchanged model, and what we advise
OFFERED = ("self_extend+log_n", "rerope_by_parts+log_n", "yarn+log_n", "xpos+bca")  # compositions beside the presets
FACTORS, AT_FIRST = (1, 2, 4, 8, 16, 32, 64), 8  # target lengths, in trained lengths

VIEW: tuple[str, ...] = ("dom", "words", "data", "lines", "state", "share", "charts", "schedule", "matrix", "logits")
VIEW += ("use", "lead", "lookup", "scenes", "walk")
LIVE = ("server", "panel", "losses", "attention", "chat", "live")
SCRIPTS = ("library/uPlot.iife.min.js", *(f"view/{name}.js" for name in VIEW))
SCRIPTS += (*(f"live/{name}.js" for name in LIVE), "view/main.js")
LICENCE = "library/LICENSE"  # of the charts; it goes where they go
COMMENT = re.compile(r"^[ ]*//.*\n", re.MULTILINE)  # a line of its own: it is for readers of the sources
INDENT = re.compile(r"^(?:  )+", re.MULTILINE)  # halved in the page; a test sees to it that no text spans lines
STYLES = ("library/uPlot.min.css", "style.css")


def html(
    facts: Facts = USUAL,
    *,
    lines: tuple[str, ...] = (),
    target_len: int | None = None,
    own_schedule: str = "",
    presets: bool = True,
    example: Json | None = None,
    model: str = "",
) -> str:
    """The whole page as one text.

        Path("page.html").write_text(ropewalk.page.html(), "utf-8")

    It draws what two extensions do to a model with these `facts`, at 1, 2, 4 ... 64 trained lengths and at
    `target_len`. All numbers are in it, for every preset and for the `lines`, of which it shows the first two. So it
    works from a file and on any static host. Without `presets` it asks the server that it came from to draw any other
    line. `own_schedule` names the schedule that the model came with. `example` is what the model showed on a text.
    `model` is what it is called; by default as the example names it.
    """
    loader = PackageLoader("ropewalk.page", "web")
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined)
    environment.policies["json.dumps_kwargs"] = {"sort_keys": False, "separators": (",", ":")}

    def source(name: str) -> Markup:
        return Markup(loader.get_source(environment, name)[0])

    called = model or (str(example["model"]) if example else "")
    named = {"named": called, "usual": facts is USUAL and not called}
    return environment.get_template("page.html").render(
        version=version("ropewalk"),
        data=_data(facts, lines, target_len, presets) | {"own": own_schedule, "example": example, **named},
        licence=source(LICENCE),
        scripts=[Markup(shortened(source(name))) for name in SCRIPTS],
        styles=map(source, STYLES),
    )


def first_lines(lines: tuple[str, ...]) -> tuple[str, str]:
    """The two that are shown at first: those that were asked for; one alone stands beside the unchanged model."""
    base, advised = FIRST
    a, b = lines[:2] if len(lines) > 1 else (base, *(line for line in lines if line != base), advised)[:2]
    return a, b


@cache
def _data(facts: Facts, lines: tuple[str, ...], target_len: int | None, presets: bool) -> Json:
    """Everything that the scripts draw."""
    lengths = sorted({facts.trained_len * factor for factor in FACTORS} | ({target_len} if target_len else set()))
    first = first_lines(lines)
    drawn = ("rope", *first, *lines, *((*PRESETS, *OFFERED) if presets else ()))
    return {
        "catalogue": catalogue(),
        "presets": list(PRESETS),
        "model": {
            "rotating": facts.rotating,
            "base": facts.base,
            "heads": facts.heads,
            "layers": facts.layers,
            **ground_of(facts),
        },
        "first": {"a": first[0], "b": first[1], "to": target_len or AT_FIRST * facts.trained_len},
        "live": not presets,
        "walks": {length: told for length in lengths if (told := walk(facts, length))},
        "lengths": [grid(length) for length in lengths],
        **draw_all(drawn, facts, lengths),
    }


def shortened(script: str) -> str:
    """A script without comments of their own lines, and with half of its indentation."""
    return INDENT.sub(lambda spaces: " " * (len(spaces[0]) // 2), COMMENT.sub("", script))
