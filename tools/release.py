"""Builds what goes to the package index, checks it, and uses it in a clean environment outside of this checkout.

python tools/release.py         build, check and use (make dist)
python tools/release.py --use   use what was built, under this Python (make use-dist PYTHON=python3.13)
python tools/release.py --tag   tag what was built before (make release)

There are two distributions: ropewalk, and ropewalk-demo-model, the model that Ropewalk carries. The first is small
since it is without the second; a checkout has both.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
BILL = ROOT / "build" / "ropewalk.cdx.json"  # every package that the wheel brings, with version and licence
MODEL = "ropewalk/models/default"
SOURCES = ("*.py", "*.html", "*.js", "*.css")
NEEDED = ("ropewalk/py.typed", "ropewalk/page/web/library/uPlot.iife.min.js")
LICENCES = ("LICENSE", "ropewalk/page/web/library/LICENSE")
LARGEST = 2_000_000  # bytes of ropewalk's wheel
QUICK = ("compare", "default", "yarn", "--lengths", "512,1k", "--samples", "2", "--tasks", "passkey:samples=2")
UNPUBLISHED = ("not on the package index yet", "还没有发布到 PyPI")  # in the words of each front page


def main() -> None:
    """All of it; the first failure ends it."""
    begun = time.monotonic()
    if "--tag" in sys.argv:
        print(f"tagged {tag(ROOT)}; git push --tags publishes it")
        return
    if "--use" in sys.argv:
        _use()
        return
    shutil.rmtree(DIST, ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder:
        for stage in (_without_model(Path(folder) / "ropewalk"), _model_alone(Path(folder) / "model")):
            _run(sys.executable, "-m", "build", "--outdir", DIST, stage)
        _check_files(Path(folder) / "ropewalk")
    _run(sys.executable, "-m", "twine", "check", "--strict", *sorted(DIST.iterdir()))
    _use(bill=True)
    kilobytes = ", ".join(f"{path.name} {path.stat().st_size / 1000:,.0f} kB" for path in sorted(DIST.iterdir()))
    print(
        f"ready in dist/: {kilobytes}; {BILL.relative_to(ROOT)} lists what they bring; {time.monotonic() - begun:.0f} s"
    )


def _without_model(stage: Path) -> Path:
    """The checkout's files but for the model; links of README lead to the repository, where its address is known."""
    for name in _said("git", "ls-files", cwd=ROOT).splitlines():
        if not name.startswith(f"{MODEL}/") and (ROOT / name).is_file():
            (stage / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, stage / name)
    if address := repository():
        project, readme = stage / "pyproject.toml", stage / "README.md"
        project.write_text(project.read_text("utf-8") + f"\n[project.urls]\n{_urls(address)}\n", "utf-8")
        readme.write_text(absolute_links(readme.read_text("utf-8"), f"{address}/blob/v{version_of(ROOT)}"), "utf-8")
    else:
        print("no address of a repository is known (git remote add origin ...): the metadata has no URLs")
    return stage


def _model_alone(stage: Path) -> Path:
    """The model, and the description of its own distribution."""
    shutil.copytree(ROOT / MODEL, stage / MODEL)
    shutil.copy2(ROOT / "LICENSE", stage / "LICENSE")
    project = (ROOT / "tools" / "demo_model.toml").read_text("utf-8").replace("@version@", version_of(ROOT))
    if address := repository():
        project += f"\n[project.urls]\n{_urls(address)}\n"
    (stage / "pyproject.toml").write_text(project, "utf-8")
    return stage


def repository() -> str:
    """The address of the repository: the workflow's, or where the checkout was cloned from; '' for a folder."""
    if name := os.environ.get("GITHUB_REPOSITORY"):
        return f"{os.environ.get('GITHUB_SERVER_URL', 'https://github.com')}/{name}"
    command = ("git", "remote", "get-url", "origin")
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    address = re.sub(r"^git@([^:]+):", r"https://\1/", found.stdout.strip()).removesuffix(".git")
    return address if address.startswith("https://") else ""


def _urls(address: str) -> str:
    pages = {"Source": address, "Changelog": f"{address}/blob/main/CHANGELOG.md", "Issues": f"{address}/issues"}
    return "\n".join(f'{name} = "{page}"' for name, page in pages.items())


def absolute_links(text: str, folder: str) -> str:
    """A page whose links to files of the checkout lead to a folder on the web; the index shows README without them."""
    return re.sub(r"\]\((?!https?://|#)([^)]+)\)", rf"]({folder}/\1)", text)


def version_of(root: Path) -> str:
    """The version that ropewalk/__init__.py states."""
    found = re.search(r'^__version__ = "(.+)"$', (root / "ropewalk" / "__init__.py").read_text("utf-8"), re.MULTILINE)
    return found[1] if found else sys.exit("ropewalk/__init__.py has no __version__")


def _wheel(name: str) -> Path:
    found = sorted(DIST.glob(f"{name}-*.whl"))
    return found[0] if found else sys.exit(f"dist/ has no wheel of {name}; make dist builds it")


def _check_files(stage: Path) -> None:
    """Nothing is left out: every source file, the data that it reads, and the licences of what is not ours."""
    sources = [path for kind in SOURCES for path in (stage / "ropewalk").rglob(kind)]
    needed = {str(path.relative_to(stage)) for path in sources} | set(NEEDED)
    model = {f"{MODEL}/{path.name}" for path in (ROOT / MODEL).iterdir() if path.is_file()}
    missing: set[str] = set()
    for name, files in (("ropewalk", needed), ("ropewalk_demo_model", model)):
        with zipfile.ZipFile(_wheel(name)) as archive:
            missing |= files - set(archive.namelist())
            licences = {found.partition("/licenses/")[2] for found in archive.namelist()}
            missing |= set(LICENCES if name == "ropewalk" else LICENCES[:1]) - licences
        with tarfile.open(next(DIST.glob(f"{name}-*.tar.gz"))) as archive:
            missing |= files - {found.partition("/")[2] for found in archive.getnames()}
    if missing:
        sys.exit(f"missing from the archives: {', '.join(sorted(missing))}")
    if (size := _wheel("ropewalk").stat().st_size) > LARGEST:
        sys.exit(f"the wheel of ropewalk has {size:,} bytes; at most {LARGEST:,}, so see what came into it")


def _use(bill: bool = False) -> None:
    """Install the wheels where no checkout is, first without the model, and run the quick comparison."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        venv.create(folder / "env", with_pip=True)
        inside = folder / "env" / "bin"
        install = (inside / "python", "-m", "pip", "install", "--quiet")
        _run(*install, "--constraint", ROOT / "constraints.txt", _wheel("ropewalk"), cwd=folder)
        asked = (inside / "ropewalk", "inspect", "default")
        refused = subprocess.run(asked, cwd=folder, capture_output=True, text=True, check=False)
        if refused.returncode != 2 or "pip install ropewalk-demo-model" not in refused.stderr:
            sys.exit(f"without its model, `ropewalk inspect default` said: {refused.stdout}{refused.stderr}")
        if bill:
            write_bill(BILL, inside / "python")
        _run(*install, _wheel("ropewalk_demo_model"), cwd=folder)
        _run(inside / "ropewalk", *QUICK, "--out", folder / "report", cwd=folder)
        if not (folder / "report" / "report.html").exists():
            sys.exit("the installed wheel wrote no report")


def write_bill(bill: Path, python: Path) -> None:
    """A CycloneDX bill of materials: the packages of an environment, and the scripts that come inside ropewalk."""
    bill.parent.mkdir(parents=True, exist_ok=True)
    _run(sys.executable, "-m", "cyclonedx_py", "environment", "--output-reproducible", "-o", bill, python)
    found = json.loads(bill.read_text("utf-8"))
    found["components"] += [vendored(ROOT / "ropewalk" / "page" / "web" / "library")]
    bill.write_text(json.dumps(found, indent=2) + "\n", "utf-8")


def vendored(folder: Path) -> dict[str, object]:
    """The library that a folder of the package has, as its README names it."""
    named = re.search(r"\buPlot (\d+\.\d+\.\d+)", (folder / "README.md").read_text("utf-8"))
    version = named[1] if named else sys.exit(f"{folder}/README.md names no version of uPlot")
    purl = f"pkg:npm/uplot@{version}"
    licences = [{"license": {"id": "MIT"}}]
    return {"type": "library", "bom-ref": purl, "name": "uplot", "version": version, "licenses": licences, "purl": purl}


def tag(root: Path) -> str:
    """Tag the version of a checkout: one that is committed, and whose changes are all listed under that version."""
    if _said("git", "status", "--porcelain", cwd=root):
        sys.exit("the checkout has changes that are not committed; commit them first")
    version = version_of(root)
    unreleased, listed, _ = (root / "CHANGELOG.md").read_text("utf-8").partition(f"\n## [{version}] - ")
    if not listed:
        sys.exit(f"CHANGELOG.md has no section [{version}]; add it, with its date")
    if "\n- " in unreleased:
        sys.exit(f"CHANGELOG.md lists changes above [{version}]; move them there, or raise __version__")
    for page in root.glob("README*.md"):
        if any(words in page.read_text("utf-8") for words in UNPUBLISHED):
            sys.exit(f"{page.name} says that Ropewalk is {UNPUBLISHED[0]}; write `pip install ropewalk` there")
    name = f"v{version}"
    if _said("git", "tag", "--list", name, cwd=root):
        sys.exit(f"{name} is tagged already; raise __version__")
    _said("git", "tag", "--annotate", name, "--message", f"Ropewalk {version}", cwd=root)
    return name


def _said(*command: str, cwd: Path) -> str:
    return subprocess.run(command, cwd=cwd, check=True, capture_output=True, text=True).stdout.strip()


def _run(*command: object, cwd: Path = ROOT) -> None:
    print("+", *command, flush=True)
    subprocess.run([str(part) for part in command], cwd=cwd, check=True)


if __name__ == "__main__":
    main()
