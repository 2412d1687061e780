"""Every Python block of README and the docs runs as a reader would run it, and prints the page's output.

`tools/blocks.py` lists the switches in the comment above a block.
"""

from __future__ import annotations

import ast
import importlib
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from rtvi_sync import RTVIClient
from rtvi_sync.testing import EmbeddedBot
from tests.support.processes import python, run_pytest, run_python
from tests.support.required import missing
from tests.support.slowness import GUARD
from tools.blocks import URL, Block, blocks_of

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
PAGES = [README, ROOT / "AGENTS.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINKING = [*PAGES, *sorted({*ROOT.glob("*.md"), *(ROOT / "samples").glob("*/*.md")} - {*PAGES})]
FENCE = re.compile(r"^( *)```([^\n]*)\n(.*?)^\1```", re.DOTALL | re.MULTILINE)  # any block
PYTHON = re.compile(r"^ *(?:(?:from \S+ )?import \w|(?:async )?(?:def|with) .*:$|class \w+.*:$|@\w)", re.MULTILINE)
# A link, or the definition of a label, to a place that is not on another site; each with its anchor.
LINK = re.compile(
    r"\]\((?!https?://)([^)#]*)(?:#([^)]*))?\)|^\[[^\]]+\]: (?!https?://)([^\s#]*)(?:#(\S*))?", re.MULTILINE
)

# A block has to import the modules that it uses, so it starts without modules of the package that others imported.
FIRST = f"""
import sys
sys.path[0] = {str(ROOT)!r}
for name in [name for name in sys.modules if name.partition(".")[0] == "rtvi_sync"]:
    del sys.modules[name]
del name, sys
"""


def parameters(page: Path, *, runs: bool = True) -> list[Any]:
    """Return each block of a page that runs alone, or each one that does not run."""
    blocks = [block for block in blocks_of(page) if block.needs.part_of is None and block.needs.runs is runs]
    return [pytest.param(block, id=f"{page.relative_to(ROOT)}:{block.number}") for block in blocks]


COMPILED = [block for page in PAGES for block in parameters(page, runs=False)]


@pytest.mark.parametrize("block", [block for page in PAGES for block in parameters(page)])
def test_block_runs(block: Block, tmp_path: Path) -> None:
    """A block of the documentation runs to its end in a process of its own, without a Python warning."""
    if "opentelemetry" in block.code or "rtvi_sync.otel" in block.code:
        pytest.importorskip("opentelemetry.sdk", reason="opentelemetry-sdk is not installed")
    # A block writes its files to a folder of the test's; the files that it reads lie where the reader finds them.
    shutil.copytree(ROOT / "rtvi_sync" / "cli", tmp_path / "rtvi_sync" / "cli", ignore=shutil.ignore_patterns("*.py"))

    with block.needs.met(tmp_path) as bot:
        program = block.code if bot is None else block.code.replace(URL, bot.base_url)
        if bot is not None and block.has_tests:
            run_tests(program, bot, tmp_path)
            return
        if bot is not None and block.needs.stops:
            run_until_stopped(program, bot, tmp_path)
            return
        status, out, err = run_python(FIRST + program, folder=tmp_path)

    assert status == 0, err
    assert out == block.output or not block.output


@pytest.mark.parametrize("block", COMPILED)
def test_block_compiles(block: Block) -> None:
    """A block that cannot run compiles, imports names that the package has, and calls methods that the client has."""
    tree = ast.parse(block.code)
    imported = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    for node in imported:
        if node.module is not None and node.module.startswith("rtvi_sync"):
            module = importlib.import_module(node.module)
            assert [name.name for name in node.names if not hasattr(module, name.name)] == []
    used = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and is_client(node.value)}
    assert [name for name in sorted(used) if not hasattr(RTVIClient, name)] == []


def is_client(node: ast.expr) -> bool:
    """Return whether an expression is the variable of a client, or its class."""
    return isinstance(node, ast.Name) and node.id in ("client", "rtvi_client", "RTVIClient")


@pytest.mark.real
@pytest.mark.parametrize("block", [block for block in COMPILED if "from pipecat" in block.values[0].code])
def test_block_of_a_bot_imports_names_of_pipecat(block: Block) -> None:
    """A block for the bot imports names that the newest Pipecat has."""
    python = os.environ.get("RTVI_PIPECAT_1_14_0") or missing("Pipecat 1.14.0 is not installed: run.py test --real")
    imports = [ast.unparse(node) for node in ast.parse(block.code).body if isinstance(node, ast.ImportFrom)]
    done = subprocess.run(
        [python, "-c", "\n".join(imports)], capture_output=True, text=True, timeout=GUARD, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", LINKING, ids=lambda page: str(page.relative_to(ROOT)))
def test_python_is_marked_so(page: Path) -> None:
    """A block without a language is no Python: it would neither run nor be coloured."""
    blocks = FENCE.findall(page.read_text("utf-8"))
    assert [block for _, language, block in blocks if not language and PYTHON.search(block)] == []


def run_tests(program: str, bot: EmbeddedBot, folder: Path) -> None:
    """Run a block that is a file of tests, against a bot."""
    folder.joinpath("test_block.py").write_text(program, "utf-8")
    status, out, err = pytest_in(folder, "--rtvi-url", bot.base_url, "test_block.py")
    assert status == 0, out + err


def pytest_in(folder: Path, *arguments: str) -> tuple[int, str, str]:
    """Run pytest in a folder, as a reader does who has installed the package. Return status, output and errors."""
    words = ("-q", "-p", "no:cacheprovider", "-p", "rtvi_sync.testing.pytest_plugin", *arguments)
    return run_pytest(*words, folder=folder)


def run_until_stopped(program: str, bot: EmbeddedBot, folder: Path) -> None:
    """Run a block that waits for ever, and press Ctrl-C when it has a session."""
    with python(FIRST + program, folder=folder) as process:
        bot.wait_for_session(timeout=GUARD)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=GUARD)
    assert not err or "KeyboardInterrupt" in err.splitlines()[-1], err


TUTORIAL = ROOT / "docs" / "start" / "first-bot-test.md"


def test_the_tutorial_passes_as_it_says(tmp_path: Path) -> None:
    """The parts of the tutorial's file make tests that pass, as many as the page shows at its end."""
    parts: dict[str, list[str]] = {}
    page = TUTORIAL.read_text("utf-8")
    for block in blocks_of(TUTORIAL):
        if block.needs.part_of is not None:
            parts.setdefault(block.needs.part_of, []).append(block.code)
    for name, blocks in parts.items():
        tmp_path.joinpath(name).write_text("\n\n".join(blocks), "utf-8")

    status, out, err = pytest_in(tmp_path)

    assert status == 0, out + err
    promised = re.findall(r"^(\d+ passed) in", page, re.MULTILINE)
    assert re.findall(r"(\d+ passed) in", out) == promised[-1:]
    turns = re.findall(r"^rtvi: \d+ turns; [a-z ]+", page, re.MULTILINE)
    assert re.findall(r"^rtvi: \d+ turns; [a-z ]+", out, re.MULTILINE) == turns[-1:]


def test_the_failure_of_the_tutorial_is_shown(tmp_path: Path) -> None:
    """The change that the tutorial asks for fails with the words that it shows."""
    page = TUTORIAL.read_text("utf-8")
    first = blocks_of(TUTORIAL)[0].code
    shown = re.findall(r"^(expected the bot.*?)\n  turn", page, re.DOTALL | re.MULTILINE)[0]
    wrong = "nine to five".join(first.rsplit("nine to six", 1))
    tmp_path.joinpath("test_shop.py").write_text(wrong, "utf-8")

    status, out, _ = pytest_in(tmp_path, "-k", "opening_hours")

    assert status == 1
    assert shown in re.sub(r"^E +(?:\S+ExpectationError: )?", "", out, flags=re.MULTILINE)


@pytest.mark.real
@pytest.mark.parametrize("block", parameters(README))
def test_block_of_readme_needs_only_the_wheel(block: Block, installed: Path, tmp_path: Path) -> None:
    """A block of README runs after `pip install`, with no extra but the ones beside it, and prints README's output."""
    if block.extras or block.needs.packages:
        pytest.skip("`run.py release` runs it, with what README names beside it")
    with block.needs.met(tmp_path) as bot:
        run = subprocess.run(
            [installed / "python", "-W", "error", "-c", block.code.replace(URL, bot.base_url) if bot else block.code],
            cwd=tmp_path,
            env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
            capture_output=True,
            text=True,
            timeout=GUARD,
            check=False,
        )

    assert run.returncode == 0, run.stderr
    assert run.stdout == block.output or not block.output


@pytest.mark.parametrize("page", LINKING, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    """Every relative link of a page names a file that there is, and a heading of it if it has an anchor."""
    text = re.sub(r"`[^`\n]+`", "", FENCE.sub("", page.read_text("utf-8")))
    links = LINK.findall(text)
    pairs = [(path or defined, anchor or heading) for path, anchor, defined, heading in links]
    assert [pair for pair in pairs if not leads(page.parent / pair[0] if pair[0] else page, pair[1])] == []
    labels = {label or words for words, label in re.findall(r"\[([^\]]+)\]\[([^\]]*)\]", text)}
    assert labels - {*re.findall(r"^\[([^\]]+)\]: ", text, re.MULTILINE)} == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_headings_are_there_once(page: Path) -> None:
    """No page has a heading twice at the second level: a merge may repeat a section, and links lead to the first."""
    headings = re.findall(r"^## (.*)", page.read_text("utf-8"), re.MULTILINE)
    assert sorted(headings) == sorted(set(headings))


def leads(target: Path, anchor: str) -> bool:
    """Return whether a file exists and has a heading for an anchor, if one is given."""
    return target.exists() and (not anchor or anchor in anchors(target))


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}
