"""The parts of a release agree: the version, the changelog, the workflows and the rehearsal."""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from rtvi_sync import __version__
from tests.support.required import missing
from tests.support.slowness import GUARD
from tools.blocks import Block, Needs, blocks_of
from tools.environments import read_project
from tools.extras import JOBS
from tools.readme import relative_links, with_whole_addresses
from tools.release import PERSONAL, cases_of, long_description, unfinished

pytestmark = pytest.mark.inside

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
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
    block = blocks_of(README)[0]
    assert "ask(" in block.code
    assert block.output.strip()


def test_the_blocks_of_a_page(tmp_path: Path) -> None:
    """A comment is about the block below it; extras are those that the page names since the heading or block before."""
    page = tmp_path / "page.md"
    page.write_text(
        "`rtvi_sync[cli]`\n\n## Ask\n\n"
        '<!-- bot: replies="Noon."; with: flask -->\n```python\nask()\n```\n\n    Noon.\n\n'
        "It needs `rtvi_sync[aec]`:\n\n```python\nx\n```\n"
    )
    assert blocks_of(page) == [
        Block(1, Needs(bot=' replies="Noon."', packages=["flask"]), "ask()\n", "Noon.\n", ""),
        Block(2, Needs(), "x\n", "", "aec"),
    ]


def test_each_block_of_readme_is_tried_with_its_extras() -> None:
    """Each Python runs every block of README, the first one with each extra."""
    cases = [(case.block.number, case.extras, case.source) for case in cases_of(14, ["", "cli"])]
    blocks = blocks_of(README)
    assert cases == [
        (1, "", False),
        (1, "cli", False),
        *((block.number, block.extras, False) for block in blocks[1:]),
        (1, "", True),
    ]
    assert "sounddevice,aec" in {block.extras for block in blocks}


def test_each_extra_has_a_job() -> None:
    """The page about the installation names each extra, and the rehearsal does the job of each."""
    project = read_project(Path(sys.executable))["project"]
    page = (ROOT / "docs/start/install.md").read_text("utf-8").partition("## Extras")[2].partition("\n## ")[0]
    cells = [line.split("|")[2] for line in page.splitlines() if line.startswith("|")]
    assert {*JOBS, "all"} == {*project["optional-dependencies"]} == {*re.findall(r"`(\w+)`", " ".join(cells))}


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ("[a](docs/a.md)", "[a](https://host/me/it/blob/v1.2/docs/a.md)"),
        ("[a](docs/a.md#b-c)", "[a](https://host/me/it/blob/v1.2/docs/a.md#b-c)"),
        ("![a](docs/a.png)", "![a](https://host/me/it/raw/v1.2/docs/a.png)"),
        ("[a](docs) or [b](docs/)", "[a](https://host/me/it/tree/v1.2/docs) or [b](https://host/me/it/tree/v1.2/docs)"),
        ("[a](https://x.org/y)", "[a](https://x.org/y)"),
    ],
)
def test_links_for_the_index(given: str, made: str, tmp_path: Path) -> None:
    """A file, a folder and a picture have an address of the version that is released."""
    tmp_path.joinpath("docs").mkdir()
    assert with_whole_addresses(given, "https://host/me/it", "1.2", tmp_path) == made


def test_readme_for_the_index_has_no_relative_link() -> None:
    """Nothing in README needs the files beside it when a release is built."""
    text = README.read_text("utf-8")
    assert "docs/_static/talk.png" in relative_links(text)
    assert relative_links(with_whole_addresses(text, "https://host/me/it", "1.2", ROOT)) == []


@pytest.mark.parametrize(
    "line", ["[a](b.md)", "![a](b.png)", "[a](#b)", "[a](http://b.org)", '<img src="b.png">', "[a]: b.md"]
)
def test_links_that_the_index_cannot_follow(line: str) -> None:
    """Files, places of the page, and addresses without TLS, in each way to write a link."""
    assert len(relative_links(f"text\n{line}\n")) == 1


def test_the_description_of_both_files(tmp_path: Path) -> None:
    """The text that the index shows is read from the wheel and the sdist as they are built."""
    metadata = "Metadata-Version: 2.4\nName: x\n\n# x\n\n[a](b.md)\n"
    with zipfile.ZipFile(tmp_path / "x-1.whl", "w") as wheel:
        wheel.writestr("x-1.dist-info/METADATA", metadata)
    with tarfile.open(tmp_path / "x-1.tar.gz", "w:gz") as sdist:
        for name in ("x-1/PKG-INFO", "x-1/x.egg-info/PKG-INFO"):
            member = tarfile.TarInfo(name)
            member.size = len(metadata)
            sdist.addfile(member, io.BytesIO(metadata.encode()))
    for path in tmp_path.iterdir():
        assert long_description(path) == "# x\n\n[a](b.md)\n"


def test_what_a_person_has_to_replace() -> None:
    """The owner is a placeholder in these files, and no other: one address makes all links to the repository."""
    assert {*unfinished()} <= {
        "README.md",
        "SECURITY.md",
        "docs/guides/testing-bots.md",
        "docs/start/first-bot-test.md",
        "docs/start/install.md",
        "pyproject.toml",
        "rtvi_sync/explanations.py",
    }


@pytest.mark.matrix
def test_a_built_release_has_no_relative_link() -> None:
    """The rehearsal builds files whose description an index shows as README is meant."""
    done = subprocess.run(
        [sys.executable, "run.py", "release", "--files"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=5 * GUARD,
        check=False,
    )
    if "could not be installed" in done.stderr:
        missing(f"The tools of a release cannot be installed here: {done.stderr[-500:]}")
    assert (done.returncode, "WRONG" in done.stdout) == (0, False), done.stdout + done.stderr


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
