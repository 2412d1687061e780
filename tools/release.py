"""Rehearse a release: build it, check it, and install it as users do. `python3 run.py release`, without an account.

The sdist and the wheel in .cache/release/dist stand for the index. Each Python installs them with each extra into an
environment of its own, without a compiler, runs the first block of README there, and does the extra's job. Each other
block of README runs in an environment of its own, too, with just the extras that README names above it.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs

from rtvi_sync import RTVIError, __version__
from rtvi_sync.explanations import DOCUMENTATION
from rtvi_sync.testing import EmbeddedBot

from .blocks import URL, Block, blocks_of
from .environments import read_project
from .extras import JOBS
from .machine import (
    CACHE,
    ROOT,
    VENV_PYTHON,
    SetupError,
    find_python,
    log_tail,
    print_step,
    run_quietly,
    run_uv,
    started,
)
from .readme import relative_links, with_whole_addresses

FOLDER = CACHE / "release"
DIST = FOLDER / "dist"
README = ROOT / "README.md"
COMPILED = ("audio",)  # extras with a package that has no wheel for Linux
SECONDS = 1800.0
BLOCK_SECONDS = 300.0  # on a busy machine
# pyroma misses these until a person has given the project an owner.
PERSONAL = re.compile(r"author|\burl\b", re.IGNORECASE)
# What only a person can replace: the account that has the repository, and what is true until the first release.
UNFINISHED = re.compile(r"\bOWNER/|@OWNER\b|no release on PyPI yet")


@attrs.frozen
class Case:
    """An installation of the release, and the block of README that runs there.

    Attributes:
        minor: The minor version of Python 3.
        block: The block.
        extras: The extras that are installed with it, such as "sounddevice,aec", or "".
        source: True to install from the sdist, False from the wheel.
    """

    minor: int
    block: Block
    extras: str = ""
    source: bool = False

    def __str__(self) -> str:
        """Return the case as the user reads it."""
        parts = [f"Python 3.{self.minor}", self.extras or "no extra", *self.block.needs.packages]
        parts += ["from the sdist"] if self.source else []
        return ", ".join([*parts, f"README's block {self.block.number}"])


def cases_of(minor: int, extras: Sequence[str]) -> list[Case]:
    """Return the cases of a Python: each extra, the blocks of README, and the sdist."""
    first, *others = blocks_of(README)
    return [
        *(Case(minor, first, extra) for extra in extras),
        *(Case(minor, block, block.extras) for block in others),
        Case(minor, first, source=True),
    ]


def build(repository: str) -> None:
    """Build the sdist, and the wheel from it, of the project's files with a README for the index."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    DIST.mkdir(parents=True)
    plain = FOLDER / "plain"
    _build("--sdist", "--outdir", plain, ROOT)  # whose list of files is that of the release
    shutil.unpack_archive(next(plain.iterdir()), FOLDER)
    tree = FOLDER / f"rtvi_sync-{__version__}"
    readme = tree / "README.md"
    readme.write_text(with_whole_addresses(readme.read_text("utf-8"), repository, __version__, tree), "utf-8")
    _build("--outdir", DIST, tree)
    names = {path.name for path in DIST.iterdir()}
    wanted = {f"rtvi_sync-{__version__}.tar.gz", f"rtvi_sync-{__version__}-py3-none-any.whl"}
    if names != wanted:
        raise SetupError(f"The build made {sorted(names)} in place of {sorted(wanted)}")


def _build(*words: object) -> None:
    if not run_quietly([sys.executable, "-m", "build", *words], SECONDS):
        raise SetupError(f"The build failed: {cause()}")


def cause() -> str:
    """Return the last line of the log."""
    return "".join(log_tail(1)).strip()


def unfinished() -> list[str]:
    """Return the files that a person has to finish before the first release."""
    pages = [ROOT / "pyproject.toml", *ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("samples/**/*.md")]
    found = [page for page in pages if UNFINISHED.search(page.read_text("utf-8"))]
    if not DOCUMENTATION:
        found.append(ROOT / "rtvi_sync/explanations.py")
    return sorted(page.relative_to(ROOT).as_posix() for page in found)


def long_description(file: Path) -> str:
    """Return the text of a wheel or an sdist that an index shows."""
    if file.suffix == ".whl":
        with zipfile.ZipFile(file) as wheel:
            (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
            metadata = wheel.read(name)
    else:
        with tarfile.open(file) as sdist:
            (member,) = (member for member in sdist if re.fullmatch(r"[^/]+/PKG-INFO", member.name))
            content = sdist.extractfile(member)
            assert content is not None
            metadata = content.read()
    return metadata.decode().partition("\n\n")[2]


def faults() -> Iterator[str]:
    """Yield the faults of the files."""
    files = sorted(DIST.iterdir())
    wheels = [path for path in files if path.suffix == ".whl"]
    yield from _complaints("twine", "check", "--strict", *files)
    yield from _complaints("check_wheel_contents", *wheels)
    for path in files:
        text = long_description(path)
        yield from (f"{path.name}: its description links to {link}" for link in relative_links(text))
        if not text.startswith("# rtvi_sync"):
            yield f"{path.name}: its description is not README"
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
    chosen = f"rtvi_sync[{case.extras}]" if case.extras else "rtvi_sync"
    options = ["--find-links", DIST, "--refresh-package", "rtvi_sync", "--python", python]
    compiled = case.extras in COMPILED
    if case.source:
        options += ["--no-binary", "rtvi_sync"]
    elif not compiled:
        options += ["--only-binary", ":all:"]
    packages = [f"{chosen}=={__version__}", *case.block.needs.packages]
    with contextlib.nullcontext() if compiled else no_compiler():
        if not run_uv(sys.executable, "venv", "--python", base, environment, seconds=SECONDS):
            return "no environment could be made"
        if not run_uv(sys.executable, "pip", "install", *options, *packages, seconds=SECONDS):
            return f"not installed: {cause()}"
        if not run_uv(sys.executable, "pip", "check", "--python", python, seconds=SECONDS):
            return f"its packages contradict each other: {cause()}"
        return fault_of_block(python, case.block) or fault_of_jobs(python, case.extras)


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


def fault_of_block(python: Path, block: Block) -> str:
    """Run a block of README in an empty folder, with an environment's Python; return its fault, or ""."""
    with tempfile.TemporaryDirectory() as folder, block.needs.met(Path(folder)) as bot:
        code = block.code if bot is None else block.code.replace(URL, bot.base_url)
        words = ["-W", "error", "-c", code]
        if block.has_tests and bot is not None:
            Path(folder, "test_block.py").write_text(code, "utf-8")
            words = ["-m", "pytest", "-q", "--rtvi-url", bot.base_url, "test_block.py"]
        done = run_in(folder, [python, *words], bot if block.needs.stops else None)
    last = last_line(done)
    if done.returncode and not (block.needs.stops and last.startswith("KeyboardInterrupt")):
        return f"the block failed: {last}"
    return f"the block printed {done.stdout!r}" if block.output not in ("", done.stdout) else ""


def fault_of_jobs(python: Path, extras: str) -> str:
    """Do the jobs of extras in empty folders, with an environment's Python; return the first fault, or ""."""
    for extra in filter(None, sorted({*JOBS} - {*COMPILED}) if extras == "all" else extras.split(",")):
        with tempfile.TemporaryDirectory() as folder:
            done = run_in(folder, [python, "-c", JOBS[extra]])
        if done.returncode:
            return f"the job of {extra} failed: {last_line(done)}"
    return ""


def run_in(folder: str, words: Sequence[object], bot: EmbeddedBot | None = None) -> subprocess.CompletedProcess[str]:
    """Run a program in a folder. If a bot is given, press Ctrl-C when the program has a session with it."""
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
    with started(words, cwd=folder, env=environ, text=True, stdin=nothing, stdout=pipe, stderr=pipe) as program:
        if bot is not None:
            bot.wait_for_session(timeout=BLOCK_SECONDS)
            program.send_signal(signal.SIGINT)
        out, err = program.communicate(timeout=BLOCK_SECONDS)
    return subprocess.CompletedProcess([*map(str, words)], program.returncode, out, err)


def last_line(done: subprocess.CompletedProcess[str]) -> str:
    """Return the last line that a program has printed, which names its error."""
    return (done.stderr.strip() or done.stdout.strip()).rpartition("\n")[2]


def main(arguments: Sequence[str] | None = None) -> int:
    """Rehearse the release; return an exit status."""
    parser = argparse.ArgumentParser(prog="run.py release", description=__doc__)
    parser.add_argument("--python", type=int, nargs="*", metavar="MINOR", help="such as 10 14; default: each")
    parser.add_argument("--extra", nargs="*", metavar="NAME", help='default: each, and none, ""')
    parser.add_argument("--files", action="store_true", help="build and check the files, and install nothing")
    parser.add_argument("--require", action="store_true", help="fail if a Python or the owner is missing")
    given = parser.parse_args(arguments)
    project = read_project(Path(sys.executable))["project"]
    minors = re.findall(r"Python :: 3\.(\d+)", "\n".join(project["classifiers"]))
    extras = ["", *project["optional-dependencies"]]
    build(project["urls"]["Repository"])
    wrong = list(faults())
    missing = []
    for minor in () if given.files else given.python or map(int, minors):
        base = find_python((minor,))
        if base is None:
            missing.append(f"Python 3.{minor}")
            continue
        for case in cases_of(minor, given.extra or extras):
            try:
                fault = fault_of(case, base)
            except (RTVIError, subprocess.TimeoutExpired) as error:
                fault = f"{error}"
            print_step(f"{case}: {fault or 'right'}")
            if fault:
                wrong.append(f"{case}: {fault}")
    for name in missing:
        print_step(f"NOT TRIED, because it was not found: {name}")
    for name in unfinished():
        print_step(f"left to a person: {name}")
    for fault in wrong:
        print_step(f"WRONG: {fault}")
    return int(bool(wrong or (given.require and (missing or unfinished()))))


if __name__ == "__main__":
    sys.exit(main())
