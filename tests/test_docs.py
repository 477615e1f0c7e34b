"""Generated pages are what the sources say."""

import json
import pkgutil
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import ropewalk as rw
from ropewalk.extension.slots import SLOTS

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))

import gallery  # noqa: E402


def test_generated_pages_are_current():
    done = subprocess.run(
        [sys.executable, "tools/generate.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_pictures_are_there_and_small():
    shown = [*gallery.pictures_named((ROOT / "docs" / "gallery.md").read_text()), "results/real/real.png"]
    assert len(shown) > 35
    for name in (*shown, "pictures/reach.png", "pictures/frequencies.png"):
        assert (ROOT / "docs" / name).read_bytes().startswith(b"\x89PNG")
    pictures = [path for path in (ROOT / "docs" / "pictures").rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in pictures) < 1_500_000


def test_the_gallery_has_every_method():
    methods = {f"{slot}.{method.name}" for slot, (_, listed, *_) in SLOTS.items() for method in listed}
    assert methods <= gallery.used_methods()


def test_gallery_pictures_are_drawn(tmp_path, monkeypatch):
    monkeypatch.setattr(gallery, "ALONE", ("partial:share=0.5",))
    monkeypatch.setattr(gallery.presets, "ALL", [gallery.presets.rerope, gallery.presets.xpos, gallery.presets.hwfa])
    gallery.draw_gallery(tmp_path)
    assert {path.stem for path in tmp_path.iterdir()} == {"rerope", "xpos", "hwfa", "partial"}


def test_the_site_lists_every_page():
    config = (ROOT / "mkdocs.yml").read_text()
    pages = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    listed = set(re.findall(r": ([\w/.-]+\.md)$", config, flags=re.MULTILINE))
    assert listed == pages


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site, built from a copy of what it is made of."""
    copy = tmp_path_factory.mktemp("checkout")
    for name in ("mkdocs.yml", "CONTRIBUTING.md", "CHANGELOG.md"):
        shutil.copy(ROOT / name, copy)
    for name in ("docs", "ropewalk"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", "*.safetensors"))
    command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict"]
    done = subprocess.run(command, cwd=copy, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return copy / "site"


@pytest.mark.nightly
def test_the_site_finds_words_and_needs_no_network(site):
    items = json.loads((site / "search.json").read_text())["items"]
    found = {item["location"].partition("#")[0] for item in items if "StreamingLLM" in item["text"]}
    assert {"guides/endless-chat.html", "decisions/0002-token-numbers-and-distances.html", "methods.html"} <= found
    front = (site / "index.html").read_text()
    assert not re.findall(r'(?:src|href)="https?://[^"]+\.(?:js|css|woff2?)"', front)


@pytest.mark.nightly
def test_the_api_reference_comes_from_the_docstrings(site):
    page = (site / "api.html").read_text()
    for name in ("parse", "extend", "score", "export", "reference_attention"):
        assert (getattr(rw, name).__doc__ or "").split(".")[0].split("`")[0].split('"')[0].strip() in page


def test_the_api_page_names_what_there_is():
    page = (ROOT / "docs" / "api.md").read_text()
    names = re.findall(r"^::: ropewalk\.([\w.]+)$", page, flags=re.MULTILINE)
    public = {
        name
        for name in rw.__all__
        if not isinstance(getattr(rw, name), type) or not issubclass(getattr(rw, name), Exception)
    }
    assert {name.rpartition(".")[2] for name in names} >= public
    for name in names:
        assert pkgutil.resolve_name(f"ropewalk.{name}").__doc__


@pytest.mark.nightly
def test_every_link_within_the_site_leads_to_a_file(site):
    broken = []
    for page in site.rglob("*.html"):
        for link in re.findall(r'href="([^"#?]+)', page.read_text()):
            if not re.match(r"[a-z]+:|//|/", link) and not (page.parent / link).exists():
                broken.append(f"{page.relative_to(site)}: {link}")
    assert sorted(set(broken)) == []
