"""The sample notebook, from top to bottom."""

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
from rtvi_sync.concurrency.lifecycle import send_idle_home
send_idle_home()
print([thread.name for thread in threading.enumerate() if thread.name.startswith("rtvi-")])
"""


def start(*arguments: str, **environ: str) -> subprocess.Popen[str]:
    """Starts the sample as `run.py sample notebook` does."""
    return subprocess.Popen(
        [sys.executable, "-m", "samples.notebook", *arguments],
        cwd=ROOT,
        env={**ENVIRON, **environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Status, output and errors of a program, when it is done."""
    output, errors = process.communicate(timeout=GUARD)
    return process.returncode, output, errors


class Executed:
    """A notebook with its outputs, and what the program that ran it said."""

    def __init__(self, notebook: Any, said: str = "") -> None:
        self.notebook = notebook
        self.said = said

    def html(self, source: str) -> str:
        """The one output of the cell with this line, as HTML."""
        (cell,) = (cell for cell in self.notebook.cells if source in cell.source.splitlines())
        (output,) = cell.outputs
        shown: str = output["data"]["text/html"]
        return shown


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Executed, Executed]:
    """The notebook on its own bot, with a cell more at the end; and, by the program, on a bot elsewhere."""
    out = tmp_path_factory.mktemp("notebook") / "executed.ipynb"
    with EmbeddedBot(transcripts=MARKUP, replies=MARKUP) as bot:
        program = start("--execute", "--url", bot.ws_url, "--out", str(out))
        notebook = nbformat.read(NOTEBOOK, as_version=4)
        notebook.cells.append(nbformat.v4.new_code_cell(LEFT_OVER))
        # Files of its own: those of the program's kernel would be called alike.
        files = {"transport": "ipc", "ip": str(out.with_name("kernel"))} if os.name == "posix" else {}
        kernel = Config({"KernelManager": files})
        NotebookClient(notebook, timeout=GUARD, kernel_name="python3", config=kernel).execute(env=ENVIRON)
        status, said, errors = finish(program)
    assert (status, errors) == (0, "")
    return Executed(notebook), Executed(nbformat.read(out, as_version=4), said)


def test_it_is_kept_clean() -> None:
    """No outputs, no numbers of runs, few and short cells, each explained."""
    cells = nbformat.read(NOTEBOOK, as_version=4).cells
    code = [cell for cell in cells if cell.cell_type == "code"]
    assert all(cell.outputs == [] and cell.execution_count is None for cell in code)
    assert len(code) <= 8
    assert len(cells) >= 2 * len(code) - 2
    assert max(len(cell.source.splitlines()) for cell in code) < 20


def test_it_shows_the_conversation(executed: tuple[Executed, Executed]) -> None:
    """The transcript in the cell that displayed it, complete, though other cells ran on; players; latencies."""
    own, _ = executed
    transcript = re.sub(r"<[^>]*>", "", own.html("display(talk)"))
    assert "you Can you hear me?" in transcript
    assert "bot You said: Thank you." in transcript
    assert transcript.endswith("This client ended the session")
    assert own.html("talk.audio").count("<audio") == 5
    assert len(re.findall(r"<td>\d+</td><td>\d+</td><td>\d+</td><td>\d+</td>", own.html("talk.latency"))) == 2


def test_nothing_is_left_in_the_kernel(executed: tuple[Executed, Executed]) -> None:
    """No thread of the client's, nor of the bot's."""
    own, _ = executed
    assert own.notebook.cells[-1].outputs[0]["text"] == "[]\n"


def test_it_runs_with_a_bot_elsewhere(executed: tuple[Executed, Executed]) -> None:
    """`--url` reaches the notebook, and the program says where the outputs are; what the bot says stays text."""
    _, elsewhere = executed
    transcript = elsewhere.html("display(talk)")
    assert MARKUP not in transcript
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in transcript
    assert re.search(r"The notebook with its outputs is .*executed\.ipynb", elsewhere.said)


def test_without_jupyter_it_is_executed_and_a_failure_told_in_a_line(tmp_path: Path) -> None:
    """Where there is no Jupyter it says so; where there is no bot the status is 1, and what was run is kept."""
    hidden = "import sys; sys.modules['jupyterlab'] = sys.modules['notebook'] = None"
    (tmp_path / "sitecustomize.py").write_text(hidden)
    out, path = tmp_path / "out.ipynb", os.pathsep.join([str(ROOT), str(tmp_path)])
    status, said, errors = finish(start("--url", "ws://127.0.0.1:1", "--out", str(out), PYTHONPATH=path))
    assert (status, str(out) in said, "Jupyter is not installed" in said) == (1, True, True)
    assert re.fullmatch(r"A cell failed: TransportStartError: .*127\.0\.0\.1:1.*\n", errors)
    assert nbformat.read(out, as_version=4).cells[1].execution_count == 1


def test_it_opens_in_jupyter_where_that_is_installed(tmp_path: Path) -> None:
    """Jupyter is started on the notebook, with the URL in the environment."""
    (tmp_path / "jupyterlab").mkdir()
    (tmp_path / "jupyterlab" / "__init__.py").touch()
    program = "import os, sys; print(sys.argv[1:], os.environ['RTVI_URL']); sys.exit(3)"
    (tmp_path / "jupyterlab" / "__main__.py").write_text(program)
    path = os.pathsep.join([str(ROOT), str(tmp_path)])
    assert finish(start("--url", "ws://a.test/", PYTHONPATH=path)) == (3, f"['{NOTEBOOK}'] ws://a.test/\n", "")
