"""Builds wheel and sdist, checks their metadata, and uses the wheel in a clean environment outside of this checkout.

python tools/release.py         (make dist)
python tools/release.py --tag   tag what was built before (make release)
"""

from __future__ import annotations

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
NEEDED = ("py.typed", "models/default/model.safetensors", "models/default/config.json", "models/default/tokenizer.json")
QUICK = ("compare", "default", "yarn", "--lengths", "512,1k", "--samples", "2", "--tasks", "passkey:samples=2")


def main() -> None:
    """All of it; the first failure ends it."""
    if "--tag" in sys.argv:
        print(f"tagged {tag(ROOT)}; git push --tags publishes it")
        return
    begun = time.monotonic()
    shutil.rmtree(DIST, ignore_errors=True)
    _run(sys.executable, "-m", "build", "--outdir", DIST, ROOT)
    wheel, sdist = next(DIST.glob("*.whl")), next(DIST.glob("*.tar.gz"))
    _run(sys.executable, "-m", "twine", "check", "--strict", wheel, sdist)
    _check_files(wheel, sdist)
    with tempfile.TemporaryDirectory() as folder:
        _use(wheel, Path(folder))
    print(f"{wheel.name} and {sdist.name} are in dist/, ready; {time.monotonic() - begun:.0f} s")


def _check_files(wheel: Path, sdist: Path) -> None:
    """Nothing of the package is left out: every source file, and the data that it reads."""
    sources = {str(path.relative_to(ROOT)) for path in (ROOT / "ropewalk").rglob("*.py")}
    templates = {str(path.relative_to(ROOT)) for path in (ROOT / "ropewalk").rglob("*.html")}
    needed = sources | templates | {f"ropewalk/{name}" for name in NEEDED}
    with zipfile.ZipFile(wheel) as archive:
        missing = needed - set(archive.namelist())
    with tarfile.open(sdist) as archive:
        missing |= needed - {name.partition("/")[2] for name in archive.getnames()}
    if missing:
        sys.exit(f"missing from the archives: {', '.join(sorted(missing))}")


def _use(wheel: Path, folder: Path) -> None:
    """Install the wheel and run the quick comparison where no checkout is."""
    venv.create(folder / "env", with_pip=True)
    python = folder / "env" / "bin" / "python"
    _run(python, "-m", "pip", "install", "--quiet", "--constraint", ROOT / "constraints.txt", wheel, cwd=folder)
    _run(folder / "env" / "bin" / "ropewalk", *QUICK, "--out", folder / "report", cwd=folder)
    if not (folder / "report" / "report.html").exists():
        sys.exit("the installed wheel wrote no report")


def tag(root: Path) -> str:
    """Tag the version of a checkout: one that is committed, and whose changes are all listed under that version."""
    if _said("git", "status", "--porcelain", cwd=root):
        sys.exit("the checkout has changes that are not committed; commit them first")
    found = re.search(r'^__version__ = "(.+)"$', (root / "ropewalk" / "__init__.py").read_text("utf-8"), re.MULTILINE)
    version = found[1] if found else sys.exit("ropewalk/__init__.py has no __version__")
    unreleased, listed, _ = (root / "CHANGELOG.md").read_text("utf-8").partition(f"\n## [{version}] - ")
    if not listed:
        sys.exit(f"CHANGELOG.md has no section [{version}]; add it, with its date")
    if "\n- " in unreleased:
        sys.exit(f"CHANGELOG.md lists changes above [{version}]; move them there, or raise __version__")
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
