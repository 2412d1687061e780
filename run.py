#!/usr/bin/env python3
"""Set up and run rtvi_sync on a machine that has only `python3`.

The first run makes an environment in `.venv/` inside the project and installs what pyproject.toml lists; later runs
start at once. Only the standard library is used; neither pip, nor the venv module, nor a compiler, nor root is
assumed. The syntax stays within Python 3.6, so that an older Python reads far enough to be refused in one line.
"""

import sys

if sys.version_info < (3, 10):  # noqa: UP036 (whoever starts this file may have any Python)
    sys.exit("run.py needs Python 3.10 or newer, and {} is {}.{}".format(sys.executable, *sys.version_info[:2]))

try:
    import ast
    import json
    import os
    import re
    import shutil
    import signal
    import subprocess
    from collections.abc import Sequence
    from concurrent.futures import ThreadPoolExecutor
    from pathlib import Path
    from threading import Lock
    from typing import Any

    from tools.machine import (
        BASE,
        CACHE,
        LOG,
        ROOT,
        STEP_SECONDS,
        VENV_PYTHON,
        SetupError,
        ask,
        find_python,
        find_uv,
        pip_wheels,
        quiet,
    )
except ImportError as lack:
    sys.exit(f"run.py needs the whole standard library, and {sys.executable} lacks some: {lack} (apt install python3)")

HELP = """\
usage: python3 run.py COMMAND ...

  demo [--url URL] ...                     a spoken conversation with the built-in bot, or with the bot at URL
  sample [NAME [--url URL] ...]            a program of samples/, likewise; without a name, the list of them
  test [--real | --matrix] [--require] [pytest arguments]
                                           the tests; --real adds those with real parts (Pipecat, PulseAudio,
                                           Chromium), --matrix every version and the long runs too; with --require
                                           a part that cannot be had fails the run instead of skipping its tests.
                                           Without arguments of pytest's several processes share the tests
  soak [--minutes N] [--seed S] [--output DIR] ...
                                           sessions come and go, faults strike, and nothing may grow: a plot, a
                                           table and a judgement in DIR, .cache/soak if none is given
  lint [--require] [ruff arguments]        ruff, mypy, pyright, the import contracts, bandit and pip-audit; with
                                           --require it fails, too, where pyright cannot be had or no list of known
                                           vulnerabilities can be reached

All that is needed is set up first, in .venv/ and .cache/ of this folder."""

STAMP = "rtvi-sync-setup.json"

# Names of tables in pyproject.toml, the one place that lists packages.
DEMO_PARTS = ("testing", "cli")
SAMPLE_PARTS = (*DEMO_PARTS, "samples")
SOAK_PARTS = (*DEMO_PARTS, "soak")
TEST_PARTS = (*SOAK_PARTS, "resample", "speed", "samples", "test")
LINT_PARTS = (*TEST_PARTS, "lint")
PYRIGHT_PARTS = (*LINT_PARTS, "pyright")

# Minor versions of Python 3 that can hold each Pipecat, the preferred one first.
PIPECAT = {"1.14.0": (11, 12, 13), "0.0.108": (11, 12, 13, 10), "0.0.73": (11, 12, 10)}
MATRIX_PIPECAT = {"1.5.0": (11, 12, 13), "1.2.1": (11, 12, 13)}  # with `test --matrix` only
# What `test --matrix` runs the tests with besides this Python: minor versions of Python 3, versions of protobuf.
PYTHONS = (10, 11, 12, 13, 14)
PROTOBUFS = ("4.25", "5.29", "6.33", "7")
# The command that shows a program to be there, and the Debian packages that bring it.
PROGRAMS = {
    "pulseaudio": ("pulseaudio", "libasound2-plugins"),
    "pactl": ("pulseaudio-utils",),
    "chromium": ("chromium",),
    "strace": ("strace",),
}

DEMO_SECONDS, TEST_SECONDS, INSTALL_SECONDS = 1800.0, 5400.0, 1200.0
SOAK_SECONDS = 7 * 24 * 3600.0

# Most tests wait most of the time, so more of them go on than there are cores. More processes than these would wait,
# too: for the one that has the longest group of tests.
PROCESSES = min((os.cpu_count() or 1) + 1, 6)

# pip's wheel comes to one place, for one environment at a time.
SEEDING = Lock()

READ_TOML = """
import importlib, json, sys
toml = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "pip._vendor.tomli")
print(json.dumps(toml.loads(open(sys.argv[1], encoding="utf-8").read())))
"""


def say(line: str) -> None:
    """Print one step."""
    print(f"{line}\n", end="", flush=True)  # at once: several threads set up what the tests need


def show(command: Sequence[object], seconds: float | None, cwd: Path | None = None, **variables: str) -> int:
    """Run a command in the user's sight and return its exit status. What ends this program ends the command too."""
    environ = {**os.environ, "PYTHONPATH": str(ROOT), **variables}  # the package is used in place, nothing is built
    child = subprocess.Popen([str(word) for word in command], cwd=cwd, env=environ)
    try:
        status = child.wait(seconds)
    except subprocess.TimeoutExpired:
        raise SetupError(f"stopped after {seconds:.0f} s: {command[2]}") from None
    except KeyboardInterrupt:
        child.wait(10)  # it was interrupted too, and may have a session to end
        raise
    finally:
        end(child)
    return status if status >= 0 else 128 - status


def end(child: "subprocess.Popen[bytes]") -> None:
    """End a process that still runs, as politely as it allows."""
    if child.poll() is None:
        child.terminate()
        try:
            child.wait(10)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


# Environments


def read_stamp(folder: Path) -> dict[str, Any]:
    """What a set-up left in an environment: the Python under it and the requirements that were installed."""
    try:
        stamp: dict[str, Any] = json.loads((folder / STAMP).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return stamp


def write_stamp(folder: Path, base: str, installed: Sequence[str]) -> None:
    """Note in an environment how far its set-up is."""
    (folder / STAMP).write_text(json.dumps({"base": base, "installed": installed}, indent=1), encoding="utf-8")


def make_environment(folder: Path, base: str) -> Path:
    """The Python of the environment in a folder, which is made, with pip in it, unless it is there already."""
    python = folder / VENV_PYTHON
    identity = ask(base, "-c", "import os, sys; print(os.path.realpath(sys.executable), sys.version)")
    if python.exists() and read_stamp(folder).get("base") == identity:
        return python
    say(f"Making {folder.relative_to(ROOT)}")
    uv = find_uv()
    if not (
        (uv and fill(folder, uv, "venv", "--allow-existing", "--seed", "--python", base, folder))
        or fill(folder, base, "-m", "venv", folder)
    ):
        make_by_hand(folder, base)
        seed_pip(python)
    write_stamp(folder, identity, [])
    return python


def empty(folder: Path) -> None:
    """Clear away what an earlier try left. The stamp comes first: even a half-made environment is known for ours."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    write_stamp(folder, "", [])


def fill(folder: Path, *command: object) -> bool:
    """Run a command that makes an environment; True if it could."""
    empty(folder)
    return quiet(command)


def make_by_hand(folder: Path, base: str) -> None:
    """Lay out a virtual environment without the venv module: Python itself looks only for these two files."""
    empty(folder)
    python = folder / VENV_PYTHON
    real = Path(base).resolve()
    facts = f"home = {real.parent}\ninclude-system-site-packages = false\n"
    (folder / "pyvenv.cfg").write_text(facts, encoding="utf-8")
    python.parent.mkdir()
    for name in (python.name, "python3"):  # the second is the one that other programs look for
        python.with_name(name).symlink_to(real)
    if ask(python, "-c", "import sys; print(sys.prefix)") != str(folder):
        raise SetupError(f"{base} makes no virtual environment: install its venv module (apt install python3-venv)")


def seed_pip(python: Path) -> None:
    """Install pip from a wheel of itself, which runs straight from the file."""
    with SEEDING:
        for wheel in pip_wheels():
            if quiet([python, wheel / "pip", "install", "--no-index", "--no-deps", wheel]):
                return
    raise SetupError("no pip was found: install it (apt install python3-pip) or set PIP_INDEX_URL to a package index")


def install(python: Path, requirements: Sequence[str], what: str) -> None:
    """Install requirements into the environment of a Python, unless its stamp says that they are there."""
    folder = python.parents[1]
    stamp = read_stamp(folder)
    if set(requirements) <= set(stamp["installed"]):
        return
    say(f"Installing {what}")
    uv = find_uv()
    pip = [python, "-m", "pip", "install", "--no-input", "--disable-pip-version-check", "--prefer-binary"]
    if not (
        (uv and quiet([uv, "pip", "install", "--python", python, *requirements], INSTALL_SECONDS))
        or quiet([*pip, *requirements], INSTALL_SECONDS)
    ):
        raise SetupError(f"{what}: could not be installed")
    # What was installed for another command is still there, unless it is one of these in another version.
    names = {package_of(line) for line in requirements}
    others = [line for line in stamp["installed"] if package_of(line) not in names]
    write_stamp(folder, stamp["base"], [*requirements, *others])


def package_of(requirement: str) -> str:
    """The normalized name of the package that a requirement is about."""
    return re.sub(r"[-_.]+", "-", re.split(r"[^\w.-]", requirement, maxsplit=1)[0]).lower()


def requirements_of(project: dict[str, Any], parts: Sequence[str]) -> list[str]:
    """The package's own requirements and those of the named extras and groups of a parsed pyproject.toml."""
    tables = {**project["project"]["optional-dependencies"], **project["dependency-groups"]}
    lines = [line for part in parts for line in tables[part]]
    # A group that includes another one is named in `parts` beside it.
    return [*project["project"]["dependencies"], *(line for line in lines if isinstance(line, str))]


def read_project(python: Path) -> dict[str, Any]:
    """pyproject.toml, read by the Python of an environment: before 3.11 only its pip brings a reader of TOML."""
    text = ask(python, "-c", READ_TOML, ROOT / "pyproject.toml")
    if not text:
        raise SetupError("pyproject.toml cannot be read")
    project: dict[str, Any] = json.loads(text)
    return project


def own_environment(parts: Sequence[str]) -> Path:
    """The Python of the project's own environment, with the named extras and groups."""
    folder = ROOT / ".venv"
    if folder.exists() and not (folder / STAMP).exists():
        folder = CACHE / "venv"  # the user made that one: it is not ours to rebuild
    python = make_environment(folder, BASE)
    install(python, requirements_of(read_project(python), parts), f"the packages for {parts[-1]}")
    return python


# Real parts of the tests


def pipecat_environment(version: str) -> Path:
    """The Python of an environment of its own for one version of Pipecat."""
    minors = {**PIPECAT, **MATRIX_PIPECAT}[version]
    lines = (ROOT / f"tests/pipecat/requirements-{version}.txt").read_text(encoding="utf-8").splitlines()
    base = find_python(minors)
    if base is None:
        raise SetupError("needs Python " + " or ".join(f"3.{minor}" for minor in minors) + ", none was found")
    python = make_environment(CACHE / f"pipecat-{version}", base)
    install(python, [line for line in lines if line and not line.startswith("#")], f"Pipecat {version}")
    return python


def install_programs() -> list[str]:
    """Install the programs that the tests use, where this user may; the names of those that are still missing."""
    missing = [name for name in PROGRAMS if not shutil.which(name)]
    if missing and shutil.which("apt-get") and hasattr(os, "geteuid") and os.geteuid() == 0:
        say("Installing " + ", ".join(missing))
        packages = [package for name in missing for package in PROGRAMS[name]]
        os.environ["DEBIAN_FRONTEND"] = "noninteractive"
        quiet(["apt-get", "update"])
        quiet(["apt-get", "install", "-y", "--no-install-recommends", *packages], INSTALL_SECONDS)
    return [name for name in missing if not shutil.which(name)]


def real_parts(versions: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Set up the real parts, of Pipecat these versions: variables that tell the tests where they are, and one line for
    each that is not there."""
    # Side by side: pip keeps one core busy for half a minute, for each.
    with ThreadPoolExecutor() as pool:
        missing = pool.submit(install_programs)
        environments = {version: pool.submit(pipecat_environment, version) for version in versions}
    variables: dict[str, str] = {}
    lacking = [f"{name}: not here, and not to be installed by this user" for name in missing.result()]
    for version, environment in environments.items():
        try:
            variables["RTVI_PIPECAT_" + version.replace(".", "_")] = str(environment.result())
        except (SetupError, OSError) as error:
            lacking.append(f"Pipecat {version}: {error}")
    return variables, lacking


def other_versions() -> tuple[int, list[str]]:
    """Run the tests with other Pythons and protobufs: the worst exit status, and a line for each that cannot be had."""
    pythons: list[tuple[str, str | None, list[str], str]] = [
        (f"Python 3.{minor}", find_python((minor,)), [], "tests") for minor in PYTHONS
    ]
    protobufs = [(f"protobuf {v}", BASE, [f"protobuf=={v}.*"], "tests/protocol") for v in PROTOBUFS]
    worst, lacking = 0, []
    for name, base, pins, tests in [*pythons, *protobufs]:
        try:
            if base is None:
                raise SetupError("was not found")
            python = make_environment(CACHE / name.replace(" ", "-"), base)
            install(python, requirements_of(read_project(python), TEST_PARTS) + pins, f"the packages for {name}")
        except (SetupError, OSError) as error:
            lacking.append(f"{name}: {error}")
            continue
        say(f"Testing with {name}")
        command = [python, "-m", "pytest", "-q", "-m", "not real and not matrix", tests]
        worst = max(worst, show(command, TEST_SECONDS, ROOT))
    return worst, lacking


# Commands


def demo(arguments: list[str]) -> int:
    """Hold the conversation; the arguments are those of `python -m rtvi_sync demo`."""
    return show([own_environment(DEMO_PARTS), "-m", "rtvi_sync", "demo", *arguments], DEMO_SECONDS)


def sample_programs() -> dict[str, Path]:
    """The samples by name: each is a file, or a package whose entry is its `__main__.py`."""
    files = {path.stem: path for path in ROOT.glob("samples/*.py")}
    return dict(sorted({**files, **{path.parent.name: path for path in ROOT.glob("samples/*/__main__.py")}}.items()))


def sample(arguments: list[str]) -> int:
    """Start a sample with what it needs; without a name, say which there are. It runs for as long as it likes."""
    programs = sample_programs()
    if arguments and arguments[0] in programs:
        return show([own_environment(SAMPLE_PARTS), "-m", f"samples.{arguments[0]}", *arguments[1:]], None)
    asked = not arguments or arguments[0] in ("-h", "--help")
    width = max(map(len, programs), default=0)
    lines = [f"  {name:{width}}  {summary_of(path)}" for name, path in programs.items()]
    lines = ["usage: python3 run.py sample NAME [--url URL] ...", "", *lines]
    if asked:
        print(*lines, sep="\n")
        return 0
    print(f"run.py: no such sample: {arguments[0]}", "", *lines, sep="\n", file=sys.stderr)
    return 2


def summary_of(program: Path) -> str:
    """The first line of what a program says about itself."""
    return (ast.get_docstring(ast.parse(program.read_text(encoding="utf-8"))) or "").partition("\n")[0]


def test(arguments: list[str]) -> int:
    """Run pytest; its own arguments are passed on untouched. Without any, several processes share the tests."""
    ours = {"--real", "--matrix", "--require"} & set(arguments)
    python = own_environment(TEST_PARTS)
    lacking: list[str] = []
    # Hundreds of tests start an interpreter: none has to compile the package anew.
    variables = {"PYTHONDONTWRITEBYTECODE": ""}
    try:
        own_environment(LINT_PARTS)
    except SetupError as error:
        lacking.append(str(error))
    if ours & {"--real", "--matrix"}:
        places, more = real_parts([*PIPECAT, *(MATRIX_PIPECAT if "--matrix" in ours else ())])
        variables |= places
        lacking += more
    versions = 0
    if "--matrix" in ours:
        versions, more = other_versions()
        lacking += more
    required = "--require" in ours
    for line in lacking:
        say(f"Cannot be had, what needs it {'fails' if required else 'is skipped by name'}: {line}")
    if required:
        variables["RTVI_REQUIRE_REAL"] = "1"
    selected = "" if "--matrix" in ours else "not matrix" if "--real" in ours else "not real and not matrix"
    rest = [argument for argument in arguments if argument not in ours] or ["-n", str(PROCESSES)]
    status = show([python, "-m", "pytest", "-m", selected, *rest], TEST_SECONDS, ROOT, **variables)
    return 1 if required and lacking else max(status, versions)


def soak(arguments: list[str]) -> int:
    """Let sessions come and go; the arguments are those of `python -m tools.soak`."""
    return show([own_environment(SOAK_PARTS), "-m", "tools.soak", *arguments], SOAK_SECONDS)


def lint(arguments: list[str]) -> int:
    """Check style, types and floors, and look for weak spots, ours and those of what is installed; all always run."""
    python = own_environment(LINT_PARTS)
    required = "--require" in arguments
    pyright = pyright_checks()
    contracts = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    checks = [
        ["-m", "ruff", "check", *(argument for argument in arguments if argument != "--require")],
        ["-m", "mypy"],
        *pyright,
        ["-c", contracts],
        ["-m", "bandit", "-q", "-c", "pyproject.toml", "-r", "rtvi_sync", "run.py", "tools", "samples"],
        ["-m", "tools.audit", *(["--require"] if required else [])],
    ]
    path = f"{python.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"  # where pyright looks for its Python
    lacking = int(required and not pyright)
    return max(lacking, *(show([python, *check], STEP_SECONDS, ROOT, PATH=path) for check in checks))


def pyright_checks() -> list[list[str]]:
    """What pyright looks at: the program that uses the whole interface, and all that the package exports."""
    try:
        own_environment(PYRIGHT_PARTS)
    except SetupError as error:
        say(f"NOT CHECKED by pyright, which cannot be had: {error}")
        return []
    return [["-m", "pyright", "tests/typing"], ["-m", "pyright", "--verifytypes", "rtvi_sync", "--ignoreexternal"]]


COMMANDS = {"demo": demo, "sample": sample, "test": test, "soak": soak, "lint": lint}


def main(arguments: list[str]) -> int:
    """Run the command that the arguments name; returns the exit status."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(HELP)
        return 0
    if arguments[0] not in COMMANDS:
        print(f"run.py: no such command: {arguments[0]}\n\n{HELP}", file=sys.stderr)
        return 2
    # So that what was started is ended too.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        CACHE.mkdir(exist_ok=True)
        LOG.write_text("", encoding="utf-8")
        return COMMANDS[arguments[0]](arguments[1:])
    except KeyboardInterrupt:
        return 130
    except (SetupError, OSError, subprocess.TimeoutExpired) as error:
        tail = LOG.read_text(encoding="utf-8", errors="replace").splitlines()[-15:] if LOG.exists() else []
        print(*(f"  | {line}" for line in tail), f"run.py: {error}", sep="\n", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
