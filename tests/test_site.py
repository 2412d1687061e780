"""The whole site, which takes a minute of a processor: `run.py docs`; and the check with which its build ends."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.required import missing
from tests.support.slowness import GUARD
from tools.site_check import faults

ROOT = Path(__file__).parents[1]
SITE = ROOT / ".cache" / "docs"


@pytest.fixture(scope="module")
def site() -> Path:
    """Build the site."""
    command = [sys.executable, "run.py", "docs"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=10 * GUARD, check=False)
    if "cannot be installed" in done.stderr or "needs Python" in done.stderr:
        missing(f"Sphinx cannot be installed here: {done.stderr[-500:]}")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "The site is in .cache/docs/index.html"
    return SITE


@pytest.mark.matrix
def test_it_is_built_without_a_warning(site: Path) -> None:
    """Each page of docs/ is in the site, beside the files for search and for language models, and no source."""
    pages = {page.relative_to(ROOT / "docs").with_suffix(".html") for page in (ROOT / "docs").rglob("*.md")}

    assert [str(page) for page in sorted(pages) if not (site / page).exists()] == []
    assert {"searchindex.js", "objects.inv", "llms.txt", "llms-full.txt", "404.html"} <= {
        p.name for p in site.iterdir()
    }
    assert not (site / "_sources").exists()


@pytest.mark.matrix
def test_it_loads_nothing_from_elsewhere(site: Path) -> None:
    """A page and its search work without a network."""
    loads = re.compile(
        r"<(?:script|img|iframe)[^>]* src=\"(https?:[^\"]*)|<link rel=\"stylesheet\"[^>]* href=\"(https?:[^\"]*)"
    )
    found = {match for page in site.rglob("*.html") for match in loads.findall(page.read_text("utf-8"))}

    assert found == set()


@pytest.mark.matrix
def test_the_reference_is_for_readers(site: Path) -> None:
    """No page shows what only Python, Sphinx or type checkers can read, a field twice, or a link that leads nowhere."""
    assert len(list((site / "reference").glob("*.html"))) > 30
    assert list(faults(site)) == []


@pytest.mark.matrix
def test_a_field_is_described_once(site: Path) -> None:
    """The page of an attrs class has each field in the list of attributes, and not as a member, too."""
    page = (site / "reference" / "turn.html").read_text("utf-8")

    assert len(re.findall(r"<strong>bot_text</strong>", page)) == 1
    assert 'id="rtvi_sync.Turn.bot_text"' not in page
    assert 'id="rtvi_sync.Turn.expect"' in page


@pytest.mark.matrix
def test_a_member_is_shown_by_the_class_that_has_it(site: Path) -> None:
    """A class names its base in place of the members of that base; errors have the methods of Python's exceptions."""
    errors = (site / "reference" / "errors.html").read_text("utf-8")
    transport = (site / "reference" / "websocket-transport.html").read_text("utf-8")

    assert 'id="rtvi_sync.RequestTimeoutError"' in errors
    assert "with_traceback" not in errors
    assert "send_message" not in transport
    assert re.search(r"Extends <a [^>]*title=\"rtvi_sync.Transport\"", transport)


@pytest.mark.matrix
def test_what_the_package_makes_has_no_constructor(site: Path) -> None:
    """A signature with the parts inside the package would tell readers nothing."""
    page = (site / "reference" / "expect.html").read_text("utf-8")

    assert "Made by" in page
    assert "bus" not in re.sub(r"<[^>]*>", "", page).split()
    assert "<strong>for_</strong>" in page


@pytest.mark.parametrize(
    ("article", "fault"),
    [
        ("<dt>f(a: TypeAliasForwardRef('Texts'))</dt>", "'ForwardRef'"),
        ("<dt>f(a=&lt;function f&gt;)</dt>", "'<function'"),
        ("<dt>f(a: <span>~collections</span>.abc.Callable)</dt>", "'~collections.'"),
        ("<dt>f(<em>_runtime</em>: int)</dt>", "'_runtime:'"),
        ("<p>.. code-block:: python</p>", "'.. c'"),
        ("<p>alias of <code>TranscriptData</code></p>", "'alias of'"),
        ("<dt>add_note()</dt>", "'add_note'"),
        ('<p><a href="missing.html#id">a</a></p>', "'missing.html#id'"),
        ('<p><a href="FILE:LINE">a</a></p>', "'FILE:LINE'"),
        (
            '<dd class="field-odd"><ul><li><p><strong>a</strong></p></li><li><p><strong>a</strong></p></li></ul></dd>',
            "the field 'a' twice",
        ),
    ],
)
def test_a_fault_is_found(article: str, fault: str, tmp_path: Path) -> None:
    """The check names the page and the fault."""
    write_page(tmp_path, article)

    (found,) = faults(tmp_path)

    assert found.startswith("page.html: ")
    assert fault in found


def test_right_pages_have_no_fault(tmp_path: Path) -> None:
    """Code may contain anything, a page may link to itself and elsewhere, and two lists may have the same name."""
    write_page(
        tmp_path,
        """<pre>.. code-block:: python, <b>~a.b</b>, add_note</pre><code>_private: </code>
        <p><a href="page.html?a#b">x</a><a href="#b">x</a><a href="https://example.com">x</a></p>
        <dd class="field-odd"><p><strong>a</strong></p></dd><dd class="field-even"><p><strong>a</strong></p></dd>""",
    )

    assert list(faults(tmp_path)) == []


def write_page(folder: Path, article: str) -> None:
    """Write the one page of a reference."""
    (folder / "reference").mkdir()
    html = f"<html><head><link href='page.html'></head><nav>add_note</nav><article>{article}</article></html>"
    (folder / "reference" / "page.html").write_text(html, "utf-8")
