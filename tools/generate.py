"""Writes what follows from the sources: pages below docs/, the tables of the front pages, and the pictures.

python tools/generate.py           write
python tools/generate.py --check   fail if a text is not what the sources say

docs/models.md takes minutes, and is written by tools/models.py (make sweep); tests/test_models_page.py checks a sample.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path

from card_table import card_table, passkeys_found, puzzles_solved
from command_line import command_line_page
from demo_table import demo_table
from engines_page import engines_page
from gallery import draw_gallery, gallery_page
from generated_part import with_part
from markdown_table import table_of
from notebooks import notebook_page
from real_page import draw_real, front_table, real_page

from ropewalk.extension import presets
from ropewalk.extension.slots import SLOTS
from ropewalk.measure import tasks
from ropewalk.measure.report.submitted import board_page
from ropewalk.methods.docstrings import HOMES, page_of
from ropewalk.methods.record import parameter_rows
from ropewalk.methods.spec import Spec
from ropewalk.page.catalogue import catalogue
from ropewalk.page.typeset import latex

ROOT = Path(__file__).resolve().parents[1]
CARD = ROOT / "ropewalk" / "models" / "default" / "README.md"
BOARD = ROOT / "docs" / "results" / "leaderboard"
FRONT_PAGES = ("README.md", "README.zh.md")
CHINESE = {  # what the rows of the table of methods mean
    "frequencies": "theta：每对维度转得多快",
    "reach": "查询能看到哪些键，每个键看起来有多远",
    "biases": "bias_h(距离)：因键的远近而加到 logit 上的值",
    "scales": "scale(i)：一行查询的 logit 乘以多少",
    "positions": "token 如何编号",
    "decoding": "多个上下文的下一 token 分布如何合为一个",
    "surgery": "改变权重：输入 state dict 和模型信息 (facts)，输出新的",
}
PAPER = re.compile(r"arXiv:([\d.]+\d)|kexue\.fm/(\d+)")


def methods_page() -> str:
    """Every method and every preset, from their docstrings and fields."""
    parts = ["# Methods", "Generated from the sources by `make docs`; a method's page is its own docstring."]
    for slot, (family, methods, *_) in SLOTS.items():
        module = sys.modules[family.__module__].__doc__ or ""
        parts += [f"## {slot}/", module.split("\n\n")[0]]
        for method in methods:
            parts += _method(slot, method)
    parts += ["## Presets", "Papers and systems as compositions; `ropewalk show NAME` prints what each consists of."]
    rows = [(f"`{preset.__name__}`", page_of(preset).idea, page_of(preset).source) for preset in presets.ALL]
    return "\n\n".join([*parts, table_of(("preset", "what it is", "source"), rows)]) + "\n"


def tasks_page() -> str:
    """Every task of `ropewalk compare --tasks`, from its docstring and fields."""
    parts = [
        "# Tasks",
        "Generated from the sources by `make docs`: what `ropewalk compare --tasks NAME:PARAMETER=VALUE,...` measures. "
        "By default that is `context:questions=8`; with `--all` it is context, passkey and damage. Where `--tasks` "
        "gives no `samples`, `--samples` (8) applies; the defaults below are those of the Python classes.",
    ]
    for task in tasks.ALL:
        description = (sys.modules[task.__module__].__doc__ or "").strip()
        shown = f"Headline metric: `{task.headline}`{' (share of correct answers)' if task.scored else ''}."
        parts += [f"## {task.name}", f"```text\n{description}\n```", shown, *_parameters(task)]
    return "\n\n".join(parts) + "\n"


def _method(slot: str, method: type[Spec]) -> list[str]:
    page = page_of(method)
    parts = [f"### {slot}.{method.name}", page.idea, f"```math\n{latex(page.formula)}\n```", f"Source: {page.source}"]
    parts += [page.notes] if page.notes else []
    return parts + _parameters(method)


def _parameters(spec: type[Spec]) -> list[str]:
    """A table, where there are any."""
    rows = [(f"`{row.name}`", row.default, row.rule, row.meaning) for row in parameter_rows(spec)]
    return [table_of(("parameter", "default", "must be", "meaning"), rows)] if rows else []


def presets_table(name: str) -> str:
    """The table of a README: what each preset does, and its paper."""
    pages = [(preset.__name__, page_of(preset)) for preset in presets.ALL]
    if name == "README.md":
        rows = [(f"`{name}`", page.idea.removesuffix("."), paper(page.source)) for name, page in pages]
        return table_of(("preset", "what it does", "source"), rows)
    rows = []
    for preset, page in pages:
        told = catalogue()[preset]["chinese"] or page.idea
        source = "本项目" if page.source.startswith("ours") else paper(page.source)
        rows.append((f"`{preset}`", told.removesuffix("。"), source))
    return table_of(("预设", "作用", "出处"), rows)


def paper(source: str) -> str:
    """The first author and year of a source, with a link if it has one."""
    author = re.split("[,;:]", source)[0].removesuffix(".")
    found = PAPER.search(source)
    if found is None:
        return author
    arxiv, kexue = found.groups()
    return f"[{author}]({f'https://arxiv.org/abs/{arxiv}' if arxiv else f'https://kexue.fm/archives/{kexue}'})"


def _in_code(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def methods_table() -> str:
    """The table of README.zh.md: one row per factor, with what the factor means."""
    rows = {slot: _in_code(method.name for method in methods) for slot, (_, methods, *_) in SLOTS.items()}
    lines = [
        f"| {CHINESE[slot]} | [{slot}/](ropewalk/{HOMES.get(slot, f'methods/{slot}')}) | {listed} |"
        for slot, listed in rows.items()
    ]
    return "\n".join(["| 槽位 | 目录 | 方法 |", "|---|---|---|", *lines])


def front_page(name: str) -> str:
    """README.md or README.zh.md with its tables as the sources and the results say."""
    text = with_part((ROOT / name).read_text(), "real", front_table(name))
    text = with_part(text, "presets", presets_table(name))
    return text if name == "README.md" else with_part(text, "methods", methods_table())


def card() -> str:
    """The card of the model that comes with Ropewalk, with its two tables as the results say."""
    text = with_part(CARD.read_text(), "figures", f"{card_table()}\n\n{passkeys_found()} {puzzles_solved()}")
    return with_part(text, "demo", demo_table())


def main() -> None:
    """Write or check."""
    texts = {
        ROOT / "docs" / "methods.md": methods_page(),
        ROOT / "docs" / "tasks.md": tasks_page(),
        ROOT / "docs" / "gallery.md": gallery_page(),
        ROOT / "docs" / "engines.md": engines_page(),
        ROOT / "docs" / "command-line.md": command_line_page(),
        ROOT / "docs" / "notebook.md": notebook_page(),
        ROOT / "docs" / "results" / "real" / "README.md": real_page(),
        BOARD / "leaderboard.md": board_page(BOARD),
        CARD: card(),
        **{ROOT / name: front_page(name) for name in FRONT_PAGES},
    }
    if "--check" in sys.argv:
        stale = [path.name for path, text in texts.items() if not path.exists() or path.read_text() != text]
        if stale:
            sys.exit(f"{', '.join(stale)} must be what the sources say; run make docs")
        return
    for path, text in texts.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    from pictures import draw_all

    draw_all(ROOT / "docs" / "pictures")
    draw_gallery()
    draw_real()


if __name__ == "__main__":
    main()
