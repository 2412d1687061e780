"""The sample notebook, executed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from traitlets.config import Config

from rtvi_sync.testing import EmbeddedBot
from tests.support.slowness import GUARD

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "samples" / "notebook" / "conversation.ipynb"
ENVIRON = {**{name: value for name, value in os.environ.items() if name != "RTVI_URL"}, "PYTHONPATH": str(ROOT)}
MARKUP = "<script>alert(1)</script>"

LEFT_OVER = """
import threading
from tests.support.threads import end_idle_threads
end_idle_threads()
print([thread.name for thread in threading.enumerate() if thread.name.startswith("rtvi-")])
"""


def start(*arguments: str, **environ: str) -> subprocess.Popen[str]:
    """Start the sample as `run.py sample notebook` does."""
    return subprocess.Popen(
        [sys.executable, "-m", "samples.notebook", *arguments],
        cwd=ROOT,
        env={**ENVIRON, **environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Wait for a process, and return its status, output and errors."""
    output, errors = process.communicate(timeout=GUARD)
    return process.returncode, output, errors


class Executed:
    """A notebook with its outputs, and the output of the program that executed it."""

    def __init__(self, notebook: Any, printed: str = "") -> None:
        self.notebook = notebook
        self.printed = printed

    def html(self, source: str) -> str:
        """Return the one output of the cell with this line, as HTML."""
        (cell,) = (cell for cell in self.notebook.cells if source in cell.source.splitlines())
        (output,) = cell.outputs
        shown: str = output["data"]["text/html"]
        return shown


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Executed, Executed]:
    """Execute the notebook with its own bot and one more cell; and, by the program, with another bot."""
    out = tmp_path_factory.mktemp("notebook") / "executed.ipynb"
    with EmbeddedBot(transcripts=MARKUP, replies=MARKUP) as bot:
        program = start("--execute", "--url", bot.ws_url, "--out", str(out))
        notebook = nbformat.read(NOTEBOOK, as_version=4)
        notebook.cells.append(nbformat.v4.new_code_cell(LEFT_OVER))
        # By default the files would have the same names as the files of the program's kernel.
        files = {"transport": "ipc", "ip": str(out.with_name("kernel"))} if os.name == "posix" else {}
        kernel = Config({"KernelManager": files})
        NotebookClient(notebook, timeout=int(GUARD), kernel_name="python3", config=kernel).execute(env=ENVIRON)
        status, printed, errors = finish(program)
    assert (status, errors) == (0, "")
    return Executed(notebook), Executed(nbformat.read(out, as_version=4), printed)


def test_it_is_kept_clean() -> None:
    """The notebook has no outputs and no execution counts, and few, short, explained cells."""
    cells = nbformat.read(NOTEBOOK, as_version=4).cells
    code = [cell for cell in cells if cell.cell_type == "code"]
    assert all(cell.outputs == [] and cell.execution_count is None for cell in code)
    assert len(code) <= 9
    assert len(cells) >= 2 * len(code) - 2
    assert max(len(cell.source.splitlines()) for cell in code) < 20


def test_it_shows_the_conversation(executed: tuple[Executed, Executed]) -> None:
    """The transcript is complete in the cell that displayed it; the timeline, players and latencies are there."""
    own, _ = executed
    transcript = re.sub(r"<[^>]*>", "", own.html("display(talk)"))
    assert "you Can you hear me?" in transcript
    assert "bot You said: Thank you." in transcript
    assert transcript.endswith("This client ended the session")
    assert own.html("talk.timeline").startswith("<iframe ")
    assert own.html("talk.audio").count("<audio") == 5
    assert len(re.findall(r"<td>spoken</td><td>[^<]+</td>(?:<td>\d+</td>){3}", own.html("talk.latency"))) == 2


def test_nothing_is_left_in_the_kernel(executed: tuple[Executed, Executed]) -> None:
    """The notebook leaves no thread of the client or of the bot in the kernel."""
    own, _ = executed
    assert own.notebook.cells[-1].outputs[0]["text"] == "[]\n"


def test_it_runs_with_a_bot_elsewhere(executed: tuple[Executed, Executed]) -> None:
    """`--url` reaches the notebook, and the program says where the outputs are; the bot's words stay text."""
    _, elsewhere = executed
    transcript = elsewhere.html("display(talk)")
    assert MARKUP not in transcript
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in transcript
    assert re.search(r"The notebook with its outputs is .*executed\.ipynb", elsewhere.printed)


def test_without_jupyter_it_is_executed_and_a_failure_is_one_line(tmp_path: Path) -> None:
    """Without Jupyter the notebook is executed; a failure is one line and status 1, and the outputs are kept."""
    hidden = "import sys; sys.modules['jupyterlab'] = sys.modules['notebook'] = None"
    (tmp_path / "sitecustomize.py").write_text(hidden)
    out, path = tmp_path / "out.ipynb", os.pathsep.join([str(ROOT), str(tmp_path)])
    status, printed, errors = finish(start("--url", "ws://127.0.0.1:1", "--out", str(out), PYTHONPATH=path))
    assert (status, str(out) in printed, "Jupyter is not installed" in printed) == (1, True, True)
    assert re.fullmatch(r"A cell failed: ConnectError: .*127\.0\.0\.1:1.*\n", errors)
    assert nbformat.read(out, as_version=4).cells[1].execution_count == 1


def test_it_opens_in_jupyter_where_that_is_installed(tmp_path: Path) -> None:
    """Jupyter is started on the notebook, with the URL in the environment."""
    (tmp_path / "jupyterlab").mkdir()
    (tmp_path / "jupyterlab" / "__init__.py").touch()
    program = "import os, sys; print(sys.argv[1:], os.environ['RTVI_URL']); sys.exit(3)"
    (tmp_path / "jupyterlab" / "__main__.py").write_text(program)
    path = os.pathsep.join([str(ROOT), str(tmp_path)])
    assert finish(start("--url", "ws://a.test/", PYTHONPATH=path)) == (3, f"['{NOTEBOOK}'] ws://a.test/\n", "")
