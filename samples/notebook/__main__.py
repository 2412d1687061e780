"""A notebook that follows a conversation: transcript, players, latencies.

    python3 run.py sample notebook --url http://localhost:7860

opens it in Jupyter, where that is installed (`pip install jupyterlab`). With --execute, or without Jupyter, it is run
from top to bottom, and a copy with all outputs is written beside it. Without a URL it talks to the embedded bot.
"""

import argparse
import importlib.util
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from rtvi_sync import RTVIClient
from rtvi_sync.cli import run_program

NOTEBOOK = Path(__file__).with_name("conversation.ipynb")
JUPYTERS = ("jupyterlab", "notebook")


def open_in(jupyter: str) -> int:
    """Serve the notebook until Ctrl-C."""
    with subprocess.Popen([sys.executable, "-m", jupyter, str(NOTEBOOK)]) as server:
        try:
            return server.wait()
        except KeyboardInterrupt:
            return server.wait()  # it was interrupted too, and asks for a confirmation


def execute(out: Path) -> int:
    """Execute the notebook, and write a copy with its outputs even if a cell fails. Return the exit status."""
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError
    from traitlets.config import Config

    notebook = nbformat.read(NOTEBOOK, as_version=4)
    failure = None
    with tempfile.TemporaryDirectory() as folder:
        # Where possible the kernel's connection is files of this run alone, not ports.
        files = {"transport": "ipc", "ip": str(Path(folder, "kernel"))} if os.name == "posix" else {}
        kernel = Config({"KernelManager": files})
        try:
            NotebookClient(notebook, timeout=120, kernel_name="python3", config=kernel).execute()
        except CellExecutionError as error:
            failure = f"{error.ename}: {error.evalue}"
    nbformat.write(notebook, out)
    print("The notebook with its outputs is", out)
    if failure is not None:
        print("A cell failed:", failure, file=sys.stderr)
    return failure is not None


def main() -> int:
    """Read the command line, open or execute the notebook, and return the exit status."""
    parser = argparse.ArgumentParser(prog="run.py sample notebook", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--url", help="where the bot is: ws://..., or http://... of its server")
    parser.add_argument("--execute", action="store_true", help="run it here, without a browser")
    parser.add_argument("--out", type=Path, default=NOTEBOOK.with_suffix(".executed.ipynb"), help="where to write it")
    given = parser.parse_args()
    if given.url:
        RTVIClient.for_url(given.url)  # refuses a wrong URL here, and not in a cell
        os.environ["RTVI_URL"] = given.url
    jupyter = next(filter(importlib.util.find_spec, JUPYTERS), None)
    if jupyter and not given.execute:
        return open_in(jupyter)
    if not given.execute:
        print("Jupyter is not installed here (pip install jupyterlab), so the notebook is run without a browser.")
    return execute(given.out)


if __name__ == "__main__":
    sys.exit(run_program(main))
