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


def test_nothing_is_published_before_a_person_says_so() -> None:
    """A release needs a tag of a version and a variable that is not set; only its last job may write."""
    release = workflow("release.yml")
    assert release[True] == {"push": {"tags": ["v*"]}}  # YAML's `on`
    assert release["permissions"] == {"contents": "read"}
    build, publish = release["jobs"]["build"], release["jobs"]["publish"]
    assert build["if"] == "vars.PUBLISH == 'yes'"
    assert publish["needs"] == "build"
    assert publish["environment"] == "pypi"
    assert "permissions" not in build


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
    """The version of the package has a section of 700 words at most, below the one for the next version."""
    head, *sections = re.split(r"^## \[", (ROOT / "CHANGELOG.md").read_text("utf-8"), flags=re.MULTILINE)
    names = [section.partition("]")[0] for section in sections]
    assert names[:2] == ["Unreleased", __version__]
    assert len((head + sections[1]).split()) <= 700
    assert set(re.findall(r"^### (.*)", sections[0], re.MULTILINE)) <= HEADINGS
