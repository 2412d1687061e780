"""Rehearse a release: build it, check it, and install it as users do. `python3 run.py release`, without an account.

The sdist and the wheel in .cache/release/dist stand for the index. Each Python installs them with each extra into an
environment of its own, without a compiler, and runs the first block of README.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs

from rtvi_sync import __version__

from .environments import read_project
from .machine import CACHE, ROOT, VENV_PYTHON, SetupError, find_python, log_tail, print_step, run_quietly, run_uv

FOLDER = CACHE / "release"
DIST = FOLDER / "dist"
COMPILED = ("audio",)  # extras with a package that has no wheel for Linux
SECONDS = 1800.0
# pyroma misses these until a person has given the project an owner.
PERSONAL = re.compile(r"author|\burl\b", re.IGNORECASE)
# A block of Python, the options of the bot that it talks to, and its output.
BLOCK = re.compile(
    r"(?:^<!-- bot: (?P<bot>[^\n;]*)[^\n]* -->\n)?^```python\n(?P<code>.*?)^```\n(?:\n(?P<output>(?: {4}[^\n]*\n)+))?",
    re.DOTALL | re.MULTILINE,
)
BOT_URL = "http://localhost:7860"


@attrs.frozen
class Case:
    """An installation of the release.

    Attributes:
        minor: The minor version of Python 3.
        extra: The extra that is installed with it, or "".
        source: True to install from the sdist, False from the wheel.
    """

    minor: int
    extra: str = ""
    source: bool = False

    def __str__(self) -> str:
        """Return the case as the user reads it."""
        return f"Python 3.{self.minor}, {self.extra or 'no extra'}{', from the sdist' if self.source else ''}"


def build() -> None:
    """Build the sdist, and the wheel from it."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    DIST.mkdir(parents=True)
    if not run_quietly([sys.executable, "-m", "build", "--outdir", DIST, ROOT], SECONDS):
        raise SetupError(f"The build failed: {log_tail(1)}")
    names = {path.name for path in DIST.iterdir()}
    wanted = {f"rtvi_sync-{__version__}.tar.gz", f"rtvi_sync-{__version__}-py3-none-any.whl"}
    if names != wanted:
        raise SetupError(f"The build made {sorted(names)} in place of {sorted(wanted)}")


def faults() -> Iterator[str]:
    """Yield the faults of the files."""
    files = sorted(DIST.iterdir())
    wheels = [path for path in files if path.suffix == ".whl"]
    yield from _complaints("twine", "check", "--strict", *files)
    yield from _complaints("check_wheel_contents", *wheels)
    rated = _run("pyroma", "--min=1", *(path for path in files if path not in wheels)).stdout
    found = rated.split("-" * 30 + "\n")[2].strip().splitlines()
    yield from (f"pyroma: {line}" for line in found if not PERSONAL.search(line))
    print_step(f"pyroma: {rated.partition('Final rating: ')[2].splitlines()[0]}; left to a person: {len(found)}")


def _run(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)


def _complaints(*words: object) -> Iterator[str]:
    done = _run(*words)
    if done.returncode:
        yield f"{words[0]}: {done.stdout}{done.stderr}"


def fault_of(case: Case, base: str) -> str:
    """Install a case with a Python; return its fault, or an empty string."""
    environment = FOLDER / "environment"
    shutil.rmtree(environment, ignore_errors=True)
    python = environment / VENV_PYTHON
    chosen = f"rtvi_sync[{case.extra}]" if case.extra else "rtvi_sync"
    options = ["--find-links", DIST, "--refresh-package", "rtvi_sync", "--python", python]
    if case.source:
        options += ["--no-binary", "rtvi_sync"]
    elif case.extra not in COMPILED:
        options += ["--only-binary", ":all:"]
    with contextlib.nullcontext() if case.extra in COMPILED else no_compiler():
        if not run_uv(sys.executable, "venv", "--python", base, environment, seconds=SECONDS):
            return "no environment could be made"
        if not run_uv(sys.executable, "pip", "install", *options, f"{chosen}=={__version__}", seconds=SECONDS):
            return f"not installed: {log_tail(1)}"
        if not run_uv(sys.executable, "pip", "check", "--python", python, seconds=SECONDS):
            return f"its packages contradict each other: {log_tail(1)}"
        return fault_of_first_block(python)


@contextlib.contextmanager
def no_compiler() -> Iterator[None]:
    """Hide every program of this machine but uv: there is no cc and no gcc."""
    path = os.environ["PATH"]
    uv = shutil.which("uv", path=f"{CACHE / 'uv' / 'bin'}{os.pathsep}{path}")
    with tempfile.TemporaryDirectory() as folder:
        if uv:
            (Path(folder) / Path(uv).name).symlink_to(uv)
        os.environ["PATH"] = folder
        try:
            yield
        finally:
            os.environ["PATH"] = path


def fault_of_first_block(python: Path) -> str:
    """Run the first block of README with an environment's Python; return its fault, or an empty string."""
    block = BLOCK.search((ROOT / "README.md").read_text("utf-8"))
    assert block is not None
    program, output = block["code"], textwrap.dedent(block["output"] or "")
    if block["bot"]:
        program = (
            f"from rtvi_sync.testing import EmbeddedBot\nwith EmbeddedBot({block['bot']}) as bot:\n"
            f"    exec({program!r}.replace({BOT_URL!r}, bot.base_url))\n"
        )
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [python, "-W", "error", "-c", program],
            cwd=folder,
            env=environ,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
    if done.returncode:
        return f"README's first block failed: {done.stderr.strip().splitlines()[-1]}"
    return "" if output in ("", done.stdout) else f"README's first block printed {done.stdout!r}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Rehearse the release; return an exit status."""
    parser = argparse.ArgumentParser(prog="run.py release", description=__doc__)
    parser.add_argument("--python", type=int, nargs="*", metavar="MINOR", help="such as 10 14; default: each")
    parser.add_argument("--extra", nargs="*", metavar="NAME", help='default: each, and none, ""')
    parser.add_argument("--require", action="store_true", help="fail if a Python is not found")
    given = parser.parse_args(arguments)
    project = read_project(Path(sys.executable))["project"]
    minors = re.findall(r"Python :: 3\.(\d+)", "\n".join(project["classifiers"]))
    extras = ["", *project["optional-dependencies"]]
    build()
    wrong = list(faults())
    missing = []
    for minor in given.python or map(int, minors):
        base = find_python((minor,))
        if base is None:
            missing.append(f"Python 3.{minor}")
            continue
        for case in (*(Case(minor, extra) for extra in given.extra or extras), Case(minor, source=True)):
            fault = fault_of(case, base)
            print_step(f"{case}: {fault or 'right'}")
            if fault:
                wrong.append(f"{case}: {fault}")
    for name in missing:
        print_step(f"NOT TRIED, because it was not found: {name}")
    for fault in wrong:
        print_step(f"WRONG: {fault}")
    return int(bool(wrong or (missing and given.require)))


if __name__ == "__main__":
    sys.exit(main())
