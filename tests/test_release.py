"""The parts of a release agree: the version, the changelog, the workflows and the rehearsal."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from rtvi_sync import __version__
from tools.release import BLOCK, PERSONAL

pytestmark = pytest.mark.inside

ROOT = Path(__file__).parents[1]
HEADINGS = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
WORKFLOWS = ROOT / ".github" / "workflows"
ACTIONS = {
    "actions/attest-build-provenance",
    "actions/attest-sbom",
    "actions/checkout",
    "actions/deploy-pages",
    "actions/download-artifact",
    "actions/setup-python",
    "actions/upload-artifact",
    "actions/upload-pages-artifact",
    "pypa/gh-action-pypi-publish",
}


def workflow(name: str) -> Any:
    """Return a workflow, parsed."""
    yaml = pytest.importorskip("yaml")
    return yaml.safe_load((WORKFLOWS / name).read_text("utf-8"))


def minors(text: str) -> set[str]:
    """Return the minor versions of Python 3 that a text names."""
    return set(re.findall(r"\b3\.(1\d)\b", text))


def test_the_workflows_have_each_python() -> None:
    """CI and the release use the Pythons that pyproject.toml lists."""
    listed = set(re.findall(r"Python :: 3\.(\d+)", (ROOT / "pyproject.toml").read_text("utf-8")))
    (setup,) = (step for step in workflow("release.yml")["jobs"]["build"]["steps"] if "python-version" in str(step))
    assert minors(setup["with"]["python-version"]) == listed
    assert minors(" ".join(workflow("ci.yml")["jobs"]["test"]["strategy"]["matrix"]["python"])) == listed


@pytest.mark.parametrize("name", ["ci.yml", "docs.yml", "release.yml"])
def test_the_actions_are_pinned(name: str) -> None:
    """Each action is one of those that the project uses, by its commit, and a comment names the version."""
    text = (WORKFLOWS / name).read_text("utf-8")
    used = re.findall(r"uses: (.*)", text)
    assert [use for use in used if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", use)] == []
    assert {use.partition("@")[0] for use in used} <= ACTIONS
    everywhere = {use for file in WORKFLOWS.glob("*.yml") for use in re.findall(r"uses: (.*)", file.read_text("utf-8"))}
    assert len({use.partition("@")[0] for use in everywhere}) == len(everywhere)  # one version of each


def test_a_job_has_the_rights_that_it_needs() -> None:
    """The default is to read; each right to write is in a job that runs no code of the project and no package."""
    rights = {
        (file.name, job): part["permissions"]
        for file in sorted(WORKFLOWS.glob("*.yml"))
        for job, part in workflow(file.name)["jobs"].items()
        if "permissions" in part
    }
    assert rights == {
        ("docs.yml", "pages"): {"pages": "write", "id-token": "write"},
        ("release.yml", "publish"): {"id-token": "write", "attestations": "write"},
        ("release.yml", "release-page"): {"contents": "write"},
    }
    assert all(workflow(file.name)["permissions"] == {"contents": "read"} for file in WORKFLOWS.glob("*.yml"))


def test_what_is_left_to_the_owner_is_listed() -> None:
    """CONTRIBUTING.md names each file in which `OWNER` stands for the account of the project, or its mail."""
    listed = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    files = [*ROOT.glob("*.*"), *(ROOT / "docs").rglob("*.*"), *(ROOT / ".github").rglob("*.*")]
    left = {
        file.relative_to(ROOT).as_posix()
        for file in files
        if file.suffix in (".md", ".py", ".toml", ".yml") and re.search(r"\bOWNER\b", file.read_text("utf-8"))
    }
    assert {file for file in left - {"CONTRIBUTING.md"} if f"`{file}`" not in listed} == set()


def test_nothing_is_published_before_a_person_says_so() -> None:
    """A release needs a tag of a version and a variable that is not set; the page follows what is on the index."""
    release = workflow("release.yml")
    assert release[True] == {"push": {"tags": ["v*"]}}  # YAML's `on`
    jobs = release["jobs"]
    assert jobs["build"]["if"] == "vars.PUBLISH == 'yes'"
    assert {name: job.get("needs") for name, job in jobs.items()} == {
        "build": None,
        "sbom": "build",
        "publish": ["build", "sbom"],
        "release-page": "publish",
    }
    assert jobs["publish"]["environment"] == "pypi"


def test_the_first_block_of_readme_shows_its_output() -> None:
    """The block that the rehearsal runs in each environment is the first of README, with its output."""
    block = BLOCK.search((ROOT / "README.md").read_text("utf-8"))
    assert block is not None
    assert "ask(" in block["code"]
    assert block["output"].strip()


def test_a_block_that_names_its_bot() -> None:
    """The comment above a block is about that block alone."""
    found = BLOCK.search('<!-- bot: replies="Noon." -->\n```python\nask()\n```\n\n    Noon.\n\n```python\nx\n```\n')
    assert found is not None
    assert found.groupdict() == {"bot": 'replies="Noon."', "code": "ask()\n", "output": "    Noon.\n"}


@pytest.mark.parametrize(
    ("line", "personal"),
    [
        ("Your package does not have author data.", True),
        ("Your package should have a 'url' field with a link to the project home page.", True),
        ("Your package does not have keywords data.", False),
    ],
)
def test_what_is_left_to_a_person(line: str, personal: bool) -> None:
    """Author and URL, and nothing else."""
    assert bool(PERSONAL.search(line)) == personal


def test_the_changelog_has_the_version_in_one_page() -> None:
    """Each version has a section of 700 words at most; the package's is below the one for the next version."""
    head, *sections = re.split(r"^## \[", (ROOT / "CHANGELOG.md").read_text("utf-8"), flags=re.MULTILINE)
    names = [section.partition("]")[0] for section in sections]
    assert names[:2] == ["Unreleased", __version__]
    assert {
        name: len(part.split()) for name, part in zip(names, sections, strict=True) if len(part.split()) > 700
    } == {}
    assert len(head.split()) <= 50
    assert set(re.findall(r"^### (.*)", sections[0], re.MULTILINE)) <= HEADINGS
