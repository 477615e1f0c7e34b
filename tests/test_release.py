"""A release is tagged when the checkout says everywhere that it is one; workflows and forms name what there is."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from tools.release import absolute_links, tag, vendored

ROOT = Path(__file__).resolve().parents[1]
TARGETS = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def git(folder, *arguments):
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout.split()


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "a")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "a@b")
    (tmp_path / "ropewalk").mkdir()
    (tmp_path / "ropewalk" / "__init__.py").write_text('"""A package."""\n\n__version__ = "1.2.0"\n')
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## [Unreleased]\n\n## [1.2.0] - 2026-01-01\n\n- One.\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "All")
    return tmp_path


def test_a_version_is_tagged_once(checkout):
    assert tag(checkout) == "v1.2.0"
    assert git(checkout, "tag", "--list") == ["v1.2.0"]
    with pytest.raises(SystemExit, match=r"v1\.2\.0 is tagged already; raise __version__"):
        tag(checkout)


@pytest.mark.parametrize(
    ("file", "text", "committed", "said"),
    [
        ("NOTES.md", "new", False, "changes that are not committed; commit them first"),
        (
            "CHANGELOG.md",
            "## [Unreleased]\n\n- New.\n\n## [1.2.0] - 2026-01-01\n",
            True,
            r"lists changes above \[1.2.0\]",
        ),
        ("CHANGELOG.md", "## [Unreleased]\n", True, r"has no section \[1.2.0\]; add it"),
        ("ropewalk/__init__.py", "", True, "has no __version__"),
        ("README.md", "Ropewalk is not on the package index yet", True, r"README.md says .*; write `pip install"),
        ("README.zh.md", "Ropewalk 还没有发布到 PyPI", True, r"README.zh.md says .*; write `pip install"),
    ],
)
def test_what_is_no_release_is_not_tagged(checkout, file, text, committed, said):
    (checkout / file).write_text(text)
    if committed:
        git(checkout, "add", "-A")
        git(checkout, "commit", "-qm", "More")
    with pytest.raises(SystemExit, match=said):
        tag(checkout)
    assert git(checkout, "tag", "--list") == []


def test_links_of_the_index_lead_to_the_repository():
    text = "[a](docs/a.md), [b](https://b.org/x), [c](#c) and ![d](docs/d.png)"
    assert absolute_links(text, "https://r/blob/v1") == (
        "[a](https://r/blob/v1/docs/a.md), [b](https://b.org/x), [c](#c) and ![d](https://r/blob/v1/docs/d.png)"
    )


def test_the_bill_of_materials_names_what_comes_inside():
    found = vendored(ROOT / "ropewalk" / "page" / "web" / "library")
    script = (ROOT / "ropewalk/page/web/library/uPlot.iife.min.js").read_text("utf-8")
    assert f"(v{found['version']})" in script[:300]
    assert found["purl"] == f"pkg:npm/uplot@{found['version']}"
    libraries = {path.parent for path in (ROOT / "ropewalk").rglob("*.min.js")}
    assert libraries == {ROOT / "ropewalk" / "page" / "web" / "library"}  # others would be missing from the bill


def steps(workflow):
    jobs = yaml.safe_load(workflow.read_text())["jobs"].values()
    return [step["run"] for job in jobs for step in job["steps"] if "run" in step]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_calls_targets_of_the_makefile(workflow):
    assert {run.split()[1] for run in steps(workflow) if run.startswith("make ")} <= TARGETS
    assert all(run.startswith("make ") for run in steps(workflow))


def test_the_tiers_run_somewhere():
    called = {run.split()[1] for workflow in WORKFLOWS for run in steps(workflow)}
    assert {"quick", "test", "nightly", "engines", "dist"} <= called


def test_forms_are_forms():
    for form in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"):
        read = yaml.safe_load(form.read_text())
        assert {"name", "description", "body"} <= read.keys()
        assert any(part.get("validations", {}).get("required") for part in read["body"])


def test_the_template_leads_to_the_section_on_methods():
    template = (ROOT / ".github" / "pull_request_template.md").read_text()
    heading = re.search(r"CONTRIBUTING\.md#([\w-]+)", template)[1].replace("-", " ")
    assert f"## {heading.capitalize()}\n" in (ROOT / "CONTRIBUTING.md").read_text()
