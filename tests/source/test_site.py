"""The site: its pages are short and in its tables of contents, and its host and its tools fit together."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import run
from tools import llms
from tools.prose import prose

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
#: Words that a page may have, code and tables included.
BUDGETS = {
    "README.md": 780,
    "docs/index.md": 280,
    "docs/start/first-bot-test.md": 1210,
    "docs/start/install.md": 500,
    "AGENTS.md": 1100,
}
BUDGETS |= {page.relative_to(ROOT).as_posix(): 150 for page in ROOT.glob("samples/*/README.md")}
#: Words that the pages of groups may have together, without code and comments.
GROUP_BUDGETS = {("start", "guides"): 22_000, ("background",): 12_000}
COLUMNS = 88  # of a line of code
MEAN = 16  # words of a sentence


def listed(source: Path) -> list[Path]:
    """Return the pages in the tables of contents of a page, and of those in turn."""
    found = [source.parent / f"{entry}.md" for entry in llms.entries(source)]
    return [*found, *(page for entry in found if entry.exists() for page in listed(entry))]


def test_each_page_is_in_one_table_of_contents() -> None:
    """A reader of the site finds each page, once, and no entry leads nowhere."""
    pages = listed(DOCS / "index.md")

    assert sorted(pages) == sorted({*DOCS.rglob("*.md")} - {DOCS / "index.md"})


@pytest.mark.parametrize("name", BUDGETS)
def test_the_page_is_short(name: str) -> None:
    """The first pages that a reader meets keep to their budgets."""
    assert len(ROOT.joinpath(name).read_text("utf-8").split()) <= BUDGETS[name]


def words(text: str) -> int:
    """Return the number of words that have a letter or a digit: the bars of a table are none."""
    return sum(bool(re.search(r"[^\W_]", word)) for word in text.split())


@pytest.mark.parametrize("groups", GROUP_BUDGETS, ids="+".join)
def test_a_group_is_short(groups: tuple[str, ...]) -> None:
    """A reader who needs a guide finds it among few words; a failure lists the longest pages first."""
    pages = [page for group in groups for page in (DOCS / group).glob("*.md")]
    found = {str(page.relative_to(DOCS)): sum(words(line) for _, line in prose(page)) for page in pages}

    assert sum(found.values()) <= GROUP_BUDGETS[groups], sorted(found.items(), key=lambda item: -item[1])


def test_sentences_are_short() -> None:
    """On each page a sentence has 16 words on average."""
    long = {}
    for group in ("start", "guides", "background"):
        for page in (DOCS / group).glob("*.md"):
            lines = [line for _, line in prose(page) if line.strip() and not line.startswith(("#", "|"))]
            sentences = [sentence for line in lines for sentence in re.split(r"(?<=[.!?]) ", line.strip())]
            if sentences and (mean := sum(map(words, sentences)) / len(sentences)) > MEAN:
                long[page.name] = mean

    assert long == {}


def test_code_fits_a_screen() -> None:
    """No block of code in Start and Guides needs a horizontal scroll bar."""
    wide = []
    for group in ("start", "guides"):
        for page in (DOCS / group).glob("*.md"):
            for block in re.findall(r"^```.*?^```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE):
                wide += [f"{page.name}: {line}" for line in block.splitlines() if len(line) > COLUMNS]

    assert wide == []


def test_a_first_screen_has_the_two_commands() -> None:
    """README starts with the demo and the tests."""
    first = "\n".join(ROOT.joinpath("README.md").read_text("utf-8").splitlines()[:16])

    assert "\npython3 run.py demo " in first
    assert "\npython3 run.py test " in first


def test_the_files_for_language_models_fit() -> None:
    """The index has each page with a sentence about it, errors first; the whole is small enough for a context."""
    index = llms.index()
    pages = {page for page in DOCS.rglob("*.md") if page.name != "index.md"}
    lines = [line for line in index.splitlines() if line.startswith("- [")][1:]
    guides = index[index.index("## Guides") :]

    assert {DOCS / address.replace(".html", ".md") for address in re.findall(r"\]\((.*?)\)", "\n".join(lines))} == pages
    assert [line for line in lines if not re.fullmatch(r"- \[[^\]]+\]\(\S+\): .{10,}", line)] == []
    assert guides.startswith("## Guides\n\n- [Errors](guides/errors.html)")


def test_one_file_has_all_that_an_agent_needs() -> None:
    """`llms-full.txt` has each page of Start and Guides, fits, and names the pages and classes that it leaves out."""
    full = llms.full()
    lines = full.splitlines()
    left_out = {name for names in llms.LEFT_OUT.values() for name in names}

    assert len(full.encode()) <= llms.LIMIT == 300_000
    pages = {page for group in ("start", "guides") for page in llms.pages(group)}
    missing = {page for page in pages if page.read_text("utf-8").partition("\n")[0] not in lines}
    assert len(pages) > 30
    assert missing == {*llms.PAGES_LEFT_OUT}
    assert [page for page in missing if llms.address(page) not in full] == []
    described = {name for line in lines for name in re.findall(r"^### (\w+)", line)}
    assert {"RTVIBlueprint", "RTVIVoice", "RTVIUser", "MeasuredClient", "WavSink", "run_many"} <= described
    assert not left_out & described
    assert all(name in full[full.index("# Public names") :] for name in left_out)


def test_its_signatures_are_python() -> None:
    """Defaults in `llms-full.txt` are valid Python and the same in each run; no link leads out of the file."""
    full = llms.full()
    signatures = [line for line in full.splitlines() if re.match(r"(### )?\w+(\.\w+)?\(.*\)", line)]

    assert not re.search(r"NOTHING|<function|0x[0-9a-f]{6}|ForwardRef", "".join(signatures))
    assert [line for line in signatures if re.search(r" = [,)]", line)] == []
    assert "filler: str = ''" in full
    assert "Turn.voice_to_voice (property)" in full
    assert re.findall(r"\]\(\.[^)]*\)", full) == []


def test_the_folder_is_made(tmp_path: Path) -> None:
    """`python -m tools.llms FOLDER` makes the folder."""
    llms.write(tmp_path / "new" / "folder")

    assert {file.name for file in (tmp_path / "new" / "folder").iterdir()} == {"llms.txt", "llms-full.txt"}


def test_what_agents_read_is_true() -> None:
    """AGENTS.md has at most 80 lines; its commands, paths and links exist."""
    text = ROOT.joinpath("AGENTS.md").read_text("utf-8")

    assert len(text.splitlines()) <= 80
    assert set(re.findall(r"python3 run\.py (\w+)", text)) <= {*run.COMMANDS}
    paths = re.findall(r"`((?:rtvi_sync|tests|tools|docs|samples|benchmarks)/[\w./-]*)`", text)
    assert paths
    assert [path for path in paths if not ROOT.joinpath(path).exists()] == []


def test_hosting_uses_what_is_there() -> None:
    """The file for Read the Docs names the configuration and the group of packages that the build uses."""
    text = ROOT.joinpath(".readthedocs.yaml").read_text("utf-8")

    assert ROOT.joinpath(re.findall(r"configuration: (\S+)", text)[0]).exists()
    assert "fail_on_warning: true" in text
    assert re.search(r"--group docs$", text, re.MULTILINE)
    assert "\ndocs = [" in ROOT.joinpath("pyproject.toml").read_text("utf-8")
