"""Builds site/: what Zensical makes of docs/, two pages that are written for GitHub, and Markdown for programs.

python tools/website.py [FOLDER]

Formulas are MathML, so no script sets them. Beside each page lies its Markdown; site/llms.txt lists these, with a line
for each, and site/llms-full.txt has them all.
"""

from __future__ import annotations

import inspect
import json
import os
import pkgutil
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from ropewalk.extension.slots import SLOTS
from ropewalk.methods.docstrings import page_of
from ropewalk.page.typeset import latex, mathml

ROOT = Path(__file__).resolve().parents[1]
EQUATION = (
    "logit(i,j) = scale(i) * < R(theta, q_at(i)) q_i , R(theta, k_at(j)) k_j > / sqrt(d)  +  bias_h(q_at(i) - k_at(j))"
)
# Pages that lie elsewhere.
CARRIED = {
    "zh/index.md": "README.zh.md",
    "zh/findings.md": "studies/results/findings.zh.md",
}
LEFT_OUT = "[English](findings.md)，带图。各条论断见 [claims.md](claims.md)（英文）。"  # pages that the site has not
SHOWN = "page.html"  # of the carried model, which `make site` writes beside the pages
CHINESE = "中文"  # the section of mkdocs.yml that is built in Chinese
DESCRIPTION = "长度外推的各种方法，可以组合，适用于大多数因果语言模型"
AROUND = {  # the frame of a page in Chinese: sections of mkdocs.yml, and its two colors
    "Ropewalk": "English",
    "Guides": "更多指南（英文）",
    "Families": "模型家族（英文）",
    "Reference": "参考（英文）",
    "Background": "背景（英文）",
    "Dark": "深色",
    "Light": "浅色",
}
SEARCH = {  # what Zensical's script says of a search, which its own translations leave in English
    '"Search"': "查找",
    '"Search results"': "查找结果",
    '"Close search"': "关闭查找",
    '"No results"': "没有结果",
    r'"Loading search\u2026"': "正在加载",
    '"result"': "个结果",
    '"results"': "个结果",
}
# From a file no browser reads search.json or starts a worker; Zensical's script loads search.js there, which is this.
FROM_FILES = """var __index = {index};
Worker = class extends Worker {{
  constructor() {{ super(URL.createObjectURL(new Blob([{worker}]))); }}
}};
"""
IN_ENGLISH = re.compile(r"（\[英文\]\([^)]*\)）")  # beside a link to a page in Chinese
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\((?!https?:|#)([^)#\s]+)(#[^)\s]*)?\)")
SNIPPET = re.compile(r'^--8<-- "([^"]+)"$', re.MULTILINE)
DOCSTRING = re.compile(r"^::: (ropewalk\.[\w.]+)$", re.MULTILINE)


def set_formula(source: str, *_: Any, **__: Any) -> str:
    """Superfences calls this for a block of ```math: LaTeX, which one of our formulas has become."""
    box = 'class="formula" style="overflow-x:auto" tabindex="0" role="group" aria-label="formula"'
    formula = _formulas().get(source.strip())
    if formula is None:
        raise ValueError(f"a block of math is the formula of a method, or EQUATION; this is neither: {source}")
    return f"<div {box}>{formula}</div>"


@cache
def _formulas() -> dict[str, str]:
    """The MathML of every formula, by its LaTeX."""
    formulas = [page_of(method).formula for _, methods, *_ in SLOTS.values() for method in methods]
    return {latex(formula): mathml(formula) for formula in (*formulas, EQUATION)}


def carried_page(page: str, root: Path) -> str:
    """A page for GitHub as one of the site: links lead within the site, or are text."""
    home = PurePosixPath(CARRIED[page])
    places = {source: name for name, source in CARRIED.items()} | {"README.md": "index.md"}

    def lead(match: re.Match[str]) -> str:
        name, link, place = match[1], match[2], match[3] or ""
        target = os.path.normpath(home.parent / link)
        if target in places or target.startswith("docs/"):
            inside = places.get(target, target.removeprefix("docs/"))
            return f"[{name}]({os.path.relpath(inside, PurePosixPath(page).parent)}{place})"
        return name

    return LINK.sub(lead, IN_ENGLISH.sub("", (root / home).read_text().replace(LEFT_OUT, "")))


def markdown_of(page: str, root: Path) -> str:
    """A page as a program reads it: with what it includes, and docstrings in place of their names."""
    text = (root / "docs" / page).read_text()
    text = SNIPPET.sub(lambda match: (root / match[1]).read_text(), text)
    return DOCSTRING.sub(lambda match: _docstring(match[1]), text).replace("README.md)", "index.md)")


def _docstring(name: str) -> str:
    value = pkgutil.resolve_name(name)
    signature = str(inspect.signature(value)) if callable(value) else ""
    return f"### {name}\n\n```text\n{name.rpartition('.')[2]}{signature}\n\n{inspect.getdoc(value)}\n```"


def pages_of(nav: list[Any], section: str = "") -> list[tuple[str, str, str]]:
    """Section, title and path of each page, in the order of mkdocs.yml."""
    pages = []
    for entry in nav:
        for title, under in entry.items():
            inner = section or title
            pages += [(section, title, under)] if isinstance(under, str) else pages_of(under, inner)
    return pages


def first_sentence(text: str) -> str:
    """What a page is about: the first sentence of its first paragraph."""
    paragraphs = [part for part in re.split(r"\n\s*\n", text) if re.match(r"(?!```)[\w*`\[\"《]", part)]
    line = " ".join(LINK.sub(r"\1", paragraphs[0]).split()) if paragraphs else ""
    return re.split(r"(?<=[.。])(?: |(?<=。))", line)[0].rstrip(":：")


def write_markdown(root: Path, site: Path) -> None:
    """Every page's Markdown beside its HTML, their list, and all of them in one file."""
    config = yaml.safe_load((root / "mkdocs.yml").read_text())
    listed, whole, last = [f"# {config['site_name']}", "", f"> {config['site_description']}.", ""], [], ""
    for section, title, page in pages_of(config["nav"]):
        if not page.endswith(".md"):  # page.html, which make site writes
            continue
        text = markdown_of(page, root)
        page = page.replace("README.md", "index.md")  # as Zensical names it
        (site / page).write_text(text)
        if section != last:
            listed += ["", f"## {section}", ""]
        listed.append(f"- [{title}]({page}): {first_sentence(text)}")
        whole.append(f"<!-- {page} -->\n\n{text}")
        last = section
    (site / "llms.txt").write_text("\n".join(listed) + "\n")
    (site / "llms-full.txt").write_text("\n\n".join(whole))


def build(root: Path, config: str) -> None:
    """One language, or the end of the program."""
    paths = os.pathsep.join([str(Path(__file__).parent), str(root), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict", "--config-file", config]
    done = subprocess.run(command, cwd=root, env={**os.environ, "PYTHONPATH": paths}, check=False)
    if done.returncode:
        sys.exit(done.returncode)


def for_readers_of_chinese(config: dict[str, Any]) -> dict[str, Any]:
    """The same site with a frame in Chinese: Chinese pages first, then what there is in English alone."""
    theme, nav = json.loads(json.dumps([config["theme"], config["nav"]]))  # a copy
    pages = {f"zh/{page}" for _, _, page in pages_of(nav)} & {page for _, _, page in pages_of(nav)}
    for section in nav:
        ((title, under),) = section.items()
        if isinstance(under, list):
            section[title] = [entry for entry in under if f"zh/{next(iter(entry.values()))}" not in pages]
    nav.sort(key=lambda section: CHINESE not in section)
    for color in theme["palette"]:
        color["toggle"]["name"] = AROUND[color["toggle"]["name"]]
    named = [{AROUND.get(title, title): under for title, under in section.items()} for section in nav]
    return {**config, "site_description": DESCRIPTION, "theme": {**theme, "language": "zh"}, "nav": named}


def finish_search(site: Path) -> None:
    """Search speaks the language of its page, and works where the site is opened as files."""
    (script,) = site.glob("assets/javascripts/bundle.*.js")
    (worker,) = site.glob("assets/javascripts/workers/search.*.js")
    text = script.read_text()
    for english, chinese in SEARCH.items():
        if english not in text:
            sys.exit(f"{script} does not say {english}: write in website.py what it says")
        text = text.replace(english, f'(document.documentElement.lang==="zh"?"{chinese}":{english})')
    script.write_text(text)
    index = (site / "search.json").read_text()
    (site / "search.js").write_text(FROM_FILES.format(index=index, worker=json.dumps(worker.read_text())))


def lead_to_the_other_language(site: Path) -> None:
    """The languages in the head of a page lead to the same page, where a language has it; so does the logo."""
    pages = {path.relative_to(site).as_posix() for path in site.rglob("*.html")}
    for page in pages:
        text, english = (site / page).read_text(), page.removeprefix("zh/")
        for language, place, home in (("en", english, "index.html"), ("zh", f"zh/{english}", "zh/index.html")):
            link = os.path.relpath(place if place in pages else home, PurePosixPath(page).parent)
            text = re.sub(rf'href="[^"]*"(?= hreflang="{language}")', f'href="{link}"', text)
        if page != english:
            front = os.path.relpath("zh/index.html", PurePosixPath(page).parent)
            text = re.sub(r'href="[^"]*"(?= title="Ropewalk")', f'href="{front}"', text)
        (site / page).write_text(text)


def lead_to_what_is_shown(site: Path) -> None:
    """The guide to the page leads to the one of the carried model, in both languages."""
    for guide in site.rglob("see-a-method.html"):
        link = f'<a href="{os.path.relpath(site / SHOWN, guide.parent)}">{SHOWN}</a>'
        guide.write_text(guide.read_text().replace(f"<code>{SHOWN}</code>", link))


def main(root: Path) -> None:
    """Build."""
    for page in CARRIED:
        (root / "docs" / page).parent.mkdir(exist_ok=True)
        (root / "docs" / page).write_text(carried_page(page, root))
    config = yaml.safe_load((root / "mkdocs.yml").read_text())
    with TemporaryDirectory(dir=root, prefix=".site-") as folder:  # in the root, to which the paths of a config lead
        chinese = Path(folder).name
        in_chinese = {**for_readers_of_chinese(config), "site_dir": f"{chinese}/site"}
        place = root / f"{chinese}.yml"
        try:
            place.write_text(yaml.safe_dump(in_chinese, allow_unicode=True, sort_keys=False))
            build(root, place.name)
        finally:
            place.unlink(missing_ok=True)
        build(root, "mkdocs.yml")
        shutil.copytree(root / chinese / "site" / "zh", root / "site" / "zh", dirs_exist_ok=True)
    write_markdown(root, root / "site")
    lead_to_the_other_language(root / "site")
    lead_to_what_is_shown(root / "site")
    finish_search(root / "site")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve() if sys.argv[1:] else ROOT)
