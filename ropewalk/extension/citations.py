"""What to cite for an extension, as BibTeX: the papers that its methods name as their sources, and Ropewalk.

A source has a surname, a year and a number; titles of papers stand here, once for all methods that name them.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from importlib.metadata import version

from ropewalk.extension.extension import Extension
from ropewalk.extension.notation import INSTEAD
from ropewalk.extension.parsing import PRESETS, Line, methods_of, parse, read_line
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
HEADER = "Surnames alone, of first authors where there are more than two; what has a link has all names there."
BLOG = "Scientific Spaces, article {} (in Chinese)"  # the blog's own English name; most styles print no Chinese
TITLES = {
    "1706.03762": "Attention Is All You Need",
    "1910.10683": "Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer",
    "2004.05150": "Longformer: The Long-Document Transformer",
    "2010.11929": "An Image is Worth 16x16 Words: Transformers for Image Recognition at Scale",
    "2104.09864": "RoFormer: Enhanced Transformer with Rotary Position Embedding",
    "2108.12409": "Train Short, Test Long: Attention with Linear Biases Enables Input Length Extrapolation",
    "2202.10447": "Transformer Quality in Linear Time",
    "2203.16634": "Transformer Language Models without Positional Encodings Still Learn Positional Information",
    "2204.06745": "GPT-NeoX-20B: An Open-Source Autoregressive Language Model",
    "2205.09921": "KERPLE: Kernelized Relative Positional Embedding for Length Extrapolation",
    "2212.10356": "Dissecting Transformer Length Extrapolation via the Lens of Receptive Field Analysis",
    "2212.10554": "A Length-Extrapolatable Transformer",
    "2212.10947": "Parallel Context Windows for Large Language Models",
    "2305.13245": "GQA: Training Generalized Multi-Query Transformer Models from Multi-Head Checkpoints",
    "2305.16843": "Randomized Positional Encodings Boost Length Generalization of Transformers",
    "2305.19466": "The Impact of Positional Encoding on Length Generalization in Transformers",
    "2306.15595": "Extending Context Window of Large Language Models via Positional Interpolation",
    "2308.12950": "Code Llama: Open Foundation Models for Code",
    "2308.16137": "LM-Infinite: Zero-Shot Extreme Length Generalization for Large Language Models",
    "2309.00071": "YaRN: Efficient Context Window Extension of Large Language Models",
    "2309.10400": "PoSE: Efficient Context Window Extension of LLMs via Positional Skip-wise Training",
    "2309.16039": "Effective Long-Context Scaling of Foundation Models",
    "2309.17453": "Efficient Streaming Language Models with Attention Sinks",
    "2310.04418": "Functional Interpolation for Relative Positions Improves Long Context Transformers",
    "2310.06825": "Mistral 7B",
    "2401.01325": "LLM Maybe LongLM: Self-Extend LLM Context Window Without Tuning",
    "2402.13753": "LongRoPE: Extending LLM Context Window Beyond 2 Million Tokens",
    "2402.17463": "Training-Free Long-Context Scaling of Large Language Models",
    "2403.00071": "Resonance RoPE: Improving Context Length Generalization of Large Language Models",
    "2403.04797": "Found in the Middle: How Language Models Use Long Contexts Better via Plug-and-Play Positional "
    "Encoding",
    "2404.12224": "Length Generalization of Causal Transformers without Position Encoding",
    "2405.04434": "DeepSeek-V2: A Strong, Economical, and Efficient Mixture-of-Experts Language Model",
    "2410.06205": "Round and Round We Go! What makes Rotary Positional Encodings useful?",
    "2410.10819": "DuoAttention: Efficient Long-Context LLM Inference with Retrieval and Streaming Heads",
    "2410.18745": "Why Does the Effective Context Length of LLMs Fall Short?",
    "2501.18795": "Rope to Nope and Back Again: A New Hybrid Attention Strategy",
    "2501.19399": "Scalable-Softmax Is Superior for Attention",
    "2502.05431": "APE: Faster and Longer Context-Augmented Generation via Adaptive Parallel Encoding",
    "2504.08719": "SWAN-GPT: An Efficient and Scalable Approach for Long-Context Language Modeling",
    "2504.18857": "Effective Length Extrapolation via Dimension-Wise Positional Embeddings Manipulation",
    "2505.17296": "SELF: Self-Extend the Context Length With Logistic Growth Function",
    "2505.22842": "Bayesian Attention Mechanism: A Probabilistic Framework for Positional Encoding and Context Length "
    "Extrapolation",
    "2506.08371": "Mitigating Posterior Salience Attenuation in Long-Context LLMs with Positional Contrastive Decoding",
    "2508.02308": "LaMPE: Length-aware Multi-grained Positional Encoding for Adaptive Long-context Scaling Without "
    "Training",
    "2512.10411": "Sliding Window Attention Adaptation",
    "2602.05258": "CoPE: Clipped RoPE as A Scalable Free Lunch for Long Context LLMs",
    "2603.18017": "Frayed RoPE and Long Inputs: A Geometric Perspective",
}
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


def _entry(cited: re.Match[str]) -> Entry:
    author, year, name, title, site, number = (
        cited[part] or "" for part in ("author", "year", "name", "title", "site", "number")
    )
    title = title or TITLES.get(number, "") or (BLOG.format(number) if site == "kexue.fm/" else "")
    fields = {
        "author": in_latex(author.replace(" & ", " and ")) + " and others" * bool(cited["others"]),
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
