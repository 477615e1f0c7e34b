"""What to cite for an extension, as BibTeX: the papers that its methods name as their sources, and Ropewalk.

A source has a surname, a year and a number; papers.json has authors and titles, once for all methods that name them.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import cache
from importlib.metadata import version
from pathlib import Path

from ropewalk.extension.extension import Extension
from ropewalk.extension.notation import INSTEAD
from ropewalk.extension.parsing import PRESETS, Line, methods_of, parse, read_line
from ropewalk.files import read_record
from ropewalk.methods.docstrings import FACTORS, HOMES, list_folder, page_of
from ropewalk.methods.spec import with_inner

CITED = re.compile(  # Peng et al. 2023 (YaRN), "A title", arXiv:2309.00071; or its number alone
    r"(?:(?P<author>[\w-]+(?: (?:&|and) [\w-]+)?)(?P<others> et al\.)? (?P<year>(?:19|20)\d\d)"
    r"(?: \((?P<name>[^()]+)\))?"
    r"(?:, \"?(?P<title>(?<=\")[^\"]+|[A-Z]\w+(?: \w+)*)\"?)?(?:, (?=arXiv|kexue))?)?"
    r"(?:(?P<site>arXiv:|kexue\.fm/)(?P<number>\d+(?:\.\d+)?))?"
)
REPOSITORY = re.compile(r"([\w.-]+/[\w.-]+), [\w./-]*\.\w")  # and one of its files
LINKS = {"arXiv:": "https://arxiv.org/abs/", "kexue.fm/": "https://kexue.fm/archives/"}
SPECIAL = str.maketrans(
    {letter: f"\\{letter}" for letter in "&%$#_"}
    | {"{": r"\textbraceleft{}", "}": r"\textbraceright{}", "\\": r"\textbackslash{}"}  # BibTeX counts braces
    | {"~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "|": r"\textbar{}"}
    | {"<": r"\textless{}", ">": r"\textgreater{}"}
)
HEADER = "Papers have all their authors, or the first of more than twelve; what has no number has surnames alone."
BLOGGER = "Su, Jianlin"
BLOG = "Scientific Spaces, article {} (in Chinese)"  # the blog's own English name; most styles print no Chinese
OF_ROPEWALK = {  # as CITATION.cff says it
    "author": "{The Ropewalk authors}",
    "title": "{Ropewalk: the methods of length extrapolation, composable on any causal language model}",
    "year": "2026",
    "note": f"Version {version('ropewalk')}",
}
EXAMPLE_LENGTHS = {"trained_len": 4096, "target_len": 32768}  # with which a preset is built to see what it consists of

Entry = tuple[str, dict[str, str]]  # a key, and the fields as BibTeX has them


def cite(*extensions: str | Extension) -> str:
    """What to cite for extensions, in BibTeX: the sources of their methods and presets, and Ropewalk.

        print(rw.cite("yarn+log_n", "rerope"))

    A paper that several methods name is one entry. A comment above the entries has the whole source of each method.

    Args:
        extensions: lines, paths of files that an extension was written to, or `Extension`s.
    """
    sources, known = dict.fromkeys(source for one in extensions for source in _sources(one)), _known()
    entries = dict(entry for _, source in sources for entry in _entries(source, known))
    said = [HEADER, *(f"{name}: {source}" if source else f"{name} names no source" for name, source in sources)]
    # Between entries BibTeX reads an @ alone, as the beginning of one.
    comments = "".join(f"% {' '.join(words.replace('@', '(at)').split())}\n" for words in said)
    return "\n".join([comments, *(_written(*entry) for entry in [*entries.items(), ("ropewalk", OF_ROPEWALK)])])


def in_latex(text: str) -> str:
    """Text of which LaTeX and BibTeX take no sign for more than itself."""
    return text.translate(SPECIAL)


def _written(key: str, fields: dict[str, str]) -> str:
    return "\n".join([f"@misc{{{key},", *(f"  {name} = {{{value}}}," for name, value in fields.items()), "}\n"])


def _sources(extension: str | Extension) -> Iterator[tuple[str, str]]:
    """Each method and preset by its name on the line, with what its docstring says of its source."""
    line = Line("", (), extension) if isinstance(extension, Extension) else read_line(extension)
    if line.stored is not None:
        yield from _of_methods(line.stored)
    for term in line.terms:
        if term.name in PRESETS:
            source = page_of(PRESETS[term.name]).source
            yield term.name, source
            if not any(_entries(source, {})):  # a composition of ours: its parts are others'
                yield from _of_methods(parse(term.name, **EXAMPLE_LENGTHS))
        elif term.name != INSTEAD:
            for kind in methods_of(term):
                yield kind.origin.written or kind.name, page_of(kind).source


def _of_methods(extension: Extension) -> Iterator[tuple[str, str]]:
    for spec in [one for part in extension.parts for specs in part.specs.values() for one in specs]:
        for method in with_inner(spec):
            yield method.origin.written or method.name, page_of(method).source


@cache
def _known() -> dict[str, Entry]:
    """By its number every paper of which Ropewalk names the author, as fully as anywhere: elsewhere it has less."""
    pages = [page for folder in (*FACTORS, *HOMES) for _, page in list_folder(folder)]
    cited = [cited for page in pages for cited in CITED.finditer(page.source) if cited["author"] and cited["number"]]
    entries = [(cited["number"], _entry(cited)) for cited in cited]
    return dict(sorted(entries, key=lambda entry: len(entry[1][1])))


def _entries(source: str, known: dict[str, Entry]) -> Iterator[Entry]:
    """What a source names: every paper with a number, and what it begins with."""
    for cited in CITED.finditer(source):
        if cited["number"]:
            yield known.get(cited["number"]) or _entry(cited)
        elif cited["author"] and cited.start() == 0 and (cited["title"] or source[cited.end() :][:1] in ",;."):
            yield _entry(cited)
    if place := REPOSITORY.match(source):
        yield _slug(place[1]), {"title": in_latex(place[1]), "url": f"https://github.com/{place[1]}"}


@cache
def _papers() -> dict[str, dict[str, str]]:
    """Authors and title by the number of a paper."""
    return read_record(Path(__file__).with_name("papers.json"), "the papers that methods name")


def _entry(cited: re.Match[str]) -> Entry:
    author, year, name, title, site, number = (
        cited[part] or "" for part in ("author", "year", "name", "title", "site", "number")
    )
    blog = {"authors": BLOGGER, "title": BLOG.format(number)} if site == "kexue.fm/" else {}
    paper = _papers().get(number, blog)
    title = title or paper.get("title", "")
    surnames = in_latex(author.replace(" & ", " and ")) + " and others" * bool(cited["others"])
    fields = {
        "author": paper.get("authors") or surnames,
        "title": f"{{{in_latex(title)}}}" if title else "",
        "year": year,
        "note": in_latex(name),
        "eprint": number if site == "arXiv:" else "",
        "archivePrefix": "arXiv" if site == "arXiv:" else "",
        "url": LINKS[site] + number if number else "",
    }
    key = f"{_slug(author or site)}{year}-{number or _slug(title)}".rstrip("-")
    return key, {name: value for name, value in fields.items() if value}


def _slug(text: str) -> str:
    """Letters, digits, dots and dashes, as keys have them everywhere."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9.]+", "-", plain).strip("-")
