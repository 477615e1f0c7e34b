"""Generated pages are what the sources say."""

import json
import math
import pkgutil
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from PIL import Image
from pymdownx.slugs import slugify

import ropewalk as rw
from ropewalk.extension.slots import SLOTS

from browser import browser

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))

import gallery  # noqa: E402
import website  # noqa: E402


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


def new_pairs(line):
    return gallery._share_of_new_pairs(
        rw.parse(line, trained_len=32, target_len=64, layers=4).at_layer(0, gallery.SMALL)
    )


def test_red_in_the_gallery_is_a_new_angle():
    distance = torch.arange(64)[:, None] - torch.arange(64)
    assert torch.equal(new_pairs("rope"), (distance >= 32).double())
    for line in ("pi", "yarn", "rerope", "self_extend", "nope", "window", "hwfa"):
        assert not new_pairs(line).any(), line
    # NTK slows pair i by 2^(i/31), fastest first; 26 of 32 do not turn once in 32 tokens.
    slow = [i for i in range(32) if 32 * 10_000 ** (-i / 32) < 2 * math.pi]
    assert len(slow) == 26
    for n in (32, 40, 63):
        expected = sum((n + 1) / 2 ** (i / 31) > 32 * (1 + 1e-9) for i in slow) / 26
        assert new_pairs("ntk")[63, 63 - n] == pytest.approx(expected)


def test_a_gallery_picture_of_layers_has_a_row_for_each_kind(tmp_path):
    for line in ("rerope", "hwfa_rerope"):
        gallery._draw(line, tmp_path / f"{line}.png")
    one, two = (Image.open(tmp_path / f"{line}.png").convert("RGBA") for line in ("rerope", "hwfa_rerope"))
    assert (two.width, two.height) == (one.width, 2 * one.height)
    assert one.getpixel((0, 0))[3] == 0  # to be seen on white and on black


@pytest.mark.parametrize("guide", sorted((ROOT / "docs" / "zh" / "guides").glob("*.md")), ids=lambda guide: guide.stem)
def test_commands_of_a_chinese_guide_are_those_of_the_english_one(guide):
    chinese, english = guide.read_text(), (ROOT / "docs" / "guides" / guide.name).read_text()
    blocks = re.findall(r"^```\w*\n.*?^```$", chinese, re.M | re.S)
    inline = re.findall(r"`((?:ropewalk|rw\.|--)[^`\n]*)`", re.sub(r"^```.*?^```$", "", chinese, flags=re.M | re.S))
    assert blocks
    assert inline
    english = english.replace("\n", " ")  # a command may go on in the next line
    assert [part for part in (*blocks, *inline) if part.replace("\n", " ") not in english] == []


def anchors(page):
    """What GitHub and the site call the headings of a page."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)
    named = set(re.findall(r'<a id="([^"]+)">', text))
    return named | {
        slugify(case="lower")(re.sub(r"[`*]", "", line), "-") for line in re.findall(r"^#+ (.+)$", text, re.M)
    }


def test_links_lead_somewhere():
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "studies").rglob("*.md")]
    astray = []
    for page in pages:
        for file, heading in re.findall(r"\]\((?!http)([^)#\s]*)#?([^)\s]*)\)", page.read_text()):
            target = page.parent / file if file else page
            if not target.exists() or (heading and heading not in anchors(target)):
                astray.append(f"{page.relative_to(ROOT)}: {file}#{heading}")
    assert astray == []


def test_the_site_lists_every_page():
    config = (ROOT / "mkdocs.yml").read_text()
    pages = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")} | set(website.CARRIED)
    assert set(re.findall(r": ([\w/.-]+\.md)$", config, flags=re.MULTILINE)) == pages


def test_the_site_can_set_every_formula():
    """A block of ```math is what one of our formulas becomes in LaTeX; the site has its MathML."""
    pages = [*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")]
    blocks = [block for page in pages for block in re.findall(r"^```math\n(.*?)^```", page.read_text(), re.M | re.S)]
    assert len(blocks) > 60
    assert all(website.set_formula(block).count("<math") == 1 for block in blocks)


def test_links_of_a_page_that_lies_elsewhere_lead_within_the_site(tmp_path):
    (tmp_path / "README.zh.md").write_text(
        "[a](docs/gallery.md#pi) [b](README.md) [c](studies/results/findings.zh.md)"
        "（[英文](studies/results/findings.md)） [d](Makefile) [e](https://kexue.fm)"
    )
    shown = website.carried_page("zh/index.md", tmp_path)
    assert shown == "[a](../gallery.md#pi) [b](../index.md) [c](findings.md) d [e](https://kexue.fm)"


def test_the_findings_name_no_page_that_the_site_has_not():
    shown = website.carried_page("zh/findings.md", ROOT)
    assert "带图" not in shown
    assert "claims.md" not in shown


def test_markdown_of_the_site(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "site" / "a").mkdir(parents=True)
    (tmp_path / "mkdocs.yml").write_text(
        "site_name: R\nsite_description: What it is\nnav:\n- Home: index.md\n- Part:\n  - One: a/one.md\n"
    )
    (tmp_path / "NEWS.md").write_text("# News\n\nIt came. It stays.\n")
    (tmp_path / "docs" / "index.md").write_text('--8<-- "NEWS.md"\n')
    (tmp_path / "docs" / "a").mkdir()
    (tmp_path / "docs" / "a" / "one.md").write_text("# One\n\n```bash\nx\n```\n\nSee [it](two.md), now.\n")
    website.write_markdown(tmp_path, tmp_path / "site")
    listed = "# R\n\n> What it is.\n\n- [Home](index.md): It came.\n\n## Part\n\n- [One](a/one.md): See it, now.\n"
    assert (tmp_path / "site" / "llms.txt").read_text() == listed
    assert (tmp_path / "site" / "index.md").read_text() == "# News\n\nIt came. It stays.\n\n"
    whole = (tmp_path / "site" / "llms-full.txt").read_text()
    assert whole.index("# News") < whole.index("See [it](two.md)")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site, built from a copy of what it is made of."""
    copy = tmp_path_factory.mktemp("checkout")
    for name in ("mkdocs.yml", "CONTRIBUTING.md", "CHANGELOG.md", *website.CARRIED.values()):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, copy / name)
    for name in ("docs", "ropewalk"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", "*.safetensors"))
    command = [sys.executable, str(ROOT / "tools" / "website.py"), str(copy)]
    done = subprocess.run(command, cwd=copy, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return copy / "site"


@pytest.mark.nightly
def test_the_site_finds_words_and_needs_no_network(site):
    search = json.loads((site / "search.json").read_text())
    assert {"外", "推"} <= set(re.split(search["config"]["separator"], "长度外推"))  # each character is a word
    items = search["items"]
    found = {item["location"].partition("#")[0] for item in items if "StreamingLLM" in item["text"]}
    assert {"guides/endless-chat.html", "decisions/0002-token-numbers-and-distances.html", "methods.html"} <= found
    front = (site / "index.html").read_text()
    assert not re.findall(r'(?:src|href)="https?://[^"]+\.(?:js|css|woff2?)"', front)


@pytest.mark.nightly
def test_every_page_of_the_site_has_its_markdown_beside_it(site):
    pages = {page.relative_to(site) for page in site.rglob("*.html")} - {Path("404.html")}
    listed = {Path(link) for link in re.findall(r"\]\(([^)]+\.md)\): \S", (site / "llms.txt").read_text())}
    assert {page.with_suffix(".md") for page in pages} == listed
    assert all((site / page).read_text() in (site / "llms-full.txt").read_text() for page in listed)
    assert "target_len" in (site / "api.md").read_text()


@pytest.mark.nightly
def test_chinese_pages_are_chinese_around_their_text_too(site):
    for page in (site / "zh").rglob("*.html"):
        text = page.read_text()
        assert '<html lang="zh"' in text
        assert not re.search(r">\s*(Search|On this page|Back to top|Guides|Reference|Background)\s*<|=\"Dark\"", text)
    assert "On this page" in (site / "guides" / "measure.html").read_text()


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("page", "english", "chinese"),
    [
        ("guides/measure.html", "measure.html", "../zh/guides/measure.html"),
        ("zh/guides/measure.html", "../../guides/measure.html", "measure.html"),
        ("zh/findings.html", "../index.html", "findings.html"),
        ("index.html", "index.html", "zh/index.html"),
        ("gallery.html", "gallery.html", "zh/index.html"),
    ],
)
def test_a_page_leads_to_itself_in_the_other_language(site, page, english, chinese):
    links = dict(re.findall(r'<a href="([^"]*)" hreflang="(\w+)"', (site / page).read_text()))
    assert links == {english: "en", chinese: "zh"}


@pytest.mark.nightly
def test_formulas_of_the_site_are_set(site):
    assert (site / "methods.html").read_text().count("<math") == sum(len(listed) for _, listed, *_ in SLOTS.values())
    assert "<math" in (site / "guides" / "one-equation.html").read_text()


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
def test_nobody_stumbles_over_a_page_of_the_site(site):
    """Every page once: on a telephone in light colors, or on a desk in dark ones."""
    look = (ROOT / "tests" / "site_faults.js").read_text().partition("\n")[2]
    telephone = {"viewport": {"width": 390, "height": 844}, "color_scheme": "light"}
    desk = {"viewport": {"width": 1280, "height": 900}, "color_scheme": "dark"}
    pages = sorted(set(site.rglob("*.html")) - {site / "404.html"})
    faults = {}
    with browser() as chromium:
        for first, kind in enumerate((telephone, desk)):
            shown = chromium.new_page(**kind)
            for page in pages[first::2]:
                shown.goto(page.as_uri())
                if found := shown.evaluate(look):
                    faults[str(page.relative_to(site))] = found
        shown.goto((site / "zh" / "index.html").as_uri())  # opened as a file, its search works, and speaks Chinese
        shown.locator(".md-search__button").click()
        shown.keyboard.type("外推")
        shown.get_by_text(re.compile(r"^\d+ 个结果$")).wait_for()
    assert faults == {}


@pytest.mark.nightly
def test_every_link_within_the_site_leads_to_a_file(site):
    broken = []
    for page in site.rglob("*.html"):
        for link in re.findall(r'href="([^"#?]+)', page.read_text()):
            if link.endswith("page.html"):  # `make site` writes it beside the others, by its next line
                assert "-o site/page.html\n" in (ROOT / "Makefile").read_text()
            elif not re.match(r"[a-z]+:|//|/", link) and not (page.parent / link).exists():
                broken.append(f"{page.relative_to(site)}: {link}")
    assert sorted(set(broken)) == []
