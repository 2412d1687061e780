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
    import contextlib
    import os
    import shutil
    import signal
    import subprocess
    from collections.abc import Callable, Sequence
    from concurrent.futures import ThreadPoolExecutor
    from functools import partial
    from pathlib import Path

    from tools.environments import (
        INSTALL_SECONDS,
        autobahn,
        bundle,
        install,
        make_environment,
        own_environment,
        read_project,
        report_damage,
        requirements_of,
    )
    from tools.machine import (
        BASE,
        CACHE,
        LOG,
        ROOT,
        STEP_SECONDS,
        SetupError,
        explained,
        find_python,
        leave,
        log_tail,
        quiet,
        say,
    )
    from tools.results import VARIABLE, Result, summary
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
  bench [--quick] [--only NAME] ...        how fast the package is, beside other clients: docs/performance.md
  lint [--require] [ruff arguments]        ruff check and format, mypy, pyright, the import contracts, bandit and
                                           pip-audit; with --require it fails, too, where pyright cannot be had or no
                                           list of known vulnerabilities can be reached

All that is needed is set up first, in .venv/ and .cache/ of this folder."""

# Names of tables in pyproject.toml, the one place that lists packages.
DEMO_PARTS = ("testing", "cli")
SAMPLE_PARTS = (*DEMO_PARTS, "samples")
SAMPLE_EXTRAS = {"video_transport": ("video",), "load_test": ("locust",)}  # of those that need more than the others
SOAK_PARTS = (*DEMO_PARTS, "soak")
BENCH_PARTS = (*SOAK_PARTS, "speed", "locust", "bench")
TEST_PARTS = (*SOAK_PARTS, "resample", "screen", "speed", "locust", "samples", "bench", "test")
LINT_PARTS = (*TEST_PARTS, "lint")
PYRIGHT_PARTS = (*LINT_PARTS, "pyright")

# Minor versions of Python 3 that can hold each Pipecat, the preferred one first.
PIPECAT = {"1.14.0": (11, 12, 13), "0.0.108": (11, 12, 13, 10), "0.0.73": (11, 12, 10)}
MATRIX_PIPECAT = {"1.5.0": (11, 12, 13), "1.2.1": (11, 12, 13)}  # with `test --matrix` only
# What `test --matrix` runs the tests with besides this Python: minor versions of Python 3, versions of protobuf.
PYTHONS = (10, 11, 12, 13, 14)
PROTOBUFS = ("4.25", "5.29", "6.33", "7")
# What `bench` measures besides this Python's: minor versions of Python 3, and client libraries. Each of those is in an
# environment of its own, by the group with this name; Pipecat is in the newest of those above.
BENCH_PYTHONS = (10, 11, 12, 13)
PEERS = ("peer-websockets", "peer-picows", "peer-client-js")
PAGES = {"peer-client-js": ROOT / "benchmarks/peers/client_js"}  # of those that run in a browser
# The command that shows a program to be there, and the Debian packages that bring it.
PROGRAMS = {
    "pulseaudio": ("pulseaudio", "libasound2-plugins"),
    "pactl": ("pulseaudio-utils",),
    "Xvfb": ("xvfb",),
    "chromium": ("chromium",),
    "strace": ("strace",),
    "tmux": ("tmux",),
    "valgrind": ("valgrind",),
}
# The extras for devices, whose packages need more of the machine than pip brings: the module that shows that all is
# there, how to say that it is not, and the Debian packages that it takes.
DEVICES = {
    "audio": (
        "pyaudio",
        "PyAudio: cannot be built here (needs gcc and portaudio19-dev)",
        ("gcc", "libc6-dev", "python3-dev", "portaudio19-dev"),
    ),
    "video": (
        "cv2",
        "OpenCV: cannot be had here (needs opencv-python, libgl1 and libglib2.0-0)",
        ("libgl1", "libglib2.0-0"),
    ),
}

DEMO_SECONDS = 1800.0
TEST_SECONDS = 6 * 3600.0  # on a busy machine; what hangs is ended by the tests themselves
# Hundreds of tests start an interpreter: none of these has to compile the package.
FOR_TESTS = {"PYTHONDONTWRITEBYTECODE": ""}
SOAK_SECONDS = 7 * 24 * 3600.0
BENCH_SECONDS = 6 * 3600.0

# Most tests wait most of the time, so more of them go on than there are cores. More processes than these would wait,
# too: for the one that has the longest group of tests.
PROCESSES = min((os.cpu_count() or 1) + 2, 6)


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


def has_devices(python: Path, part: str) -> bool:
    """True if an environment has all that the extra for some devices takes."""
    return quiet([python, "-c", f"import {DEVICES[part][0]}"])


def install_devices(python: Path) -> list[str]:
    """Add to a test environment what drives devices; one line for each that this machine does not allow."""
    lacking = []
    project = read_project(python)
    for part, (_, trouble, _) in DEVICES.items():
        if not has_devices(python, part):
            with contextlib.suppress(SetupError):
                install(python, requirements_of(project, (part,)), f"the packages for {part}")
            if not has_devices(python, part):
                lacking.append(trouble)
    return lacking


def install_programs(python: Path) -> list[str]:
    """Install the programs that the tests use and what their environment needs of the system for devices, where this
    user may; the names of the programs that are still missing."""
    missing = [name for name in PROGRAMS if not shutil.which(name)]
    devices = [part for part in DEVICES if not has_devices(python, part)]
    wanted = [*missing, *(f"the libraries for {part}" for part in devices)]
    if wanted and shutil.which("apt-get") and hasattr(os, "geteuid") and os.geteuid() == 0:
        say("Installing " + ", ".join(wanted))
        packages = [package for name in missing for package in PROGRAMS[name]]
        packages += [package for part in devices for package in DEVICES[part][2]]
        os.environ["DEBIAN_FRONTEND"] = "noninteractive"
        quiet(["apt-get", "update"])
        quiet(["apt-get", "install", "-y", "--no-install-recommends", *packages], INSTALL_SECONDS)
    return [name for name in missing if not shutil.which(name)]


def real_parts(python: Path, versions: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Set up the real parts, of Pipecat these versions: variables that tell the tests where they are, and one line for
    each that is not there."""
    # Side by side: pip keeps one core busy for half a minute, for each.
    with ThreadPoolExecutor() as pool:
        missing = pool.submit(install_programs, python)
        environments = {version: pool.submit(pipecat_environment, version) for version in versions}
    variables: dict[str, str] = {}
    lacking = [f"{name}: not here, and not to be installed by this user" for name in missing.result()]
    for version, environment in environments.items():
        try:
            variables["RTVI_PIPECAT_" + version.replace(".", "_")] = str(environment.result())
        except (SetupError, OSError) as error:
            lacking.append(f"Pipecat {version}: {error}")
    return variables, lacking


def run_tests(name: str, python: Path, arguments: Sequence[str], **variables: str) -> Result:
    """Run pytest in the user's sight, and count. A run that is stopped has failed, and keeps no other from running."""
    say(f"Testing with {name}")
    counts = CACHE / "results" / f"{name}.json"
    counts.parent.mkdir(exist_ok=True)
    counts.unlink(missing_ok=True)
    try:
        status = show([python, "-m", "pytest", *arguments], TEST_SECONDS, ROOT, **variables, **{VARIABLE: str(counts)})
    except SetupError as error:
        say(f"{name}: {error}")
        status = 1
    return Result(name, status, counts)


def other_versions() -> tuple[list[Result], list[str]]:
    """Run the tests with other Pythons and protobufs: what came of it, and a line for each that cannot be had."""
    pythons: list[tuple[str, str | None, list[str], str]] = [
        (f"Python 3.{minor}", find_python((minor,)), [], "tests") for minor in PYTHONS if minor != sys.version_info[1]
    ]
    protobufs = [(f"protobuf {v}", BASE, [f"protobuf=={v}.*"], "tests/protocol") for v in PROTOBUFS]
    results, lacking = [], []
    for name, base, pins, tests in [*pythons, *protobufs]:
        try:
            if base is None:
                raise SetupError("was not found")
            python = make_environment(CACHE / name.replace(" ", "-"), base)
            install(python, requirements_of(read_project(python), TEST_PARTS) + pins, f"the packages for {name}")
        except (SetupError, OSError) as error:
            lacking.append(f"{name}: {error}")
            continue
        if tests == "tests":
            lacking += [f"{name}: {line}" for line in install_devices(python)]
        words = ["-q", "-m", "not real and not matrix", "-n", str(PROCESSES), tests]
        results.append(run_tests(name, python, words, **FOR_TESTS))
    return results, lacking


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
        python = own_environment((*SAMPLE_PARTS, *SAMPLE_EXTRAS.get(arguments[0], ())))
        return show([python, "-m", f"samples.{arguments[0]}", *arguments[1:]], None)
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
    variables = FOR_TESTS.copy()
    try:
        own_environment(LINT_PARTS)
    except SetupError as error:
        lacking.append(str(error))
    if ours & {"--real", "--matrix"}:
        places, more = real_parts(python, [*PIPECAT, *(MATRIX_PIPECAT if "--matrix" in ours else ())])
        variables |= places
        lacking += more
    lacking += install_devices(python)
    results: list[Result] = []
    if "--matrix" in ours:
        for places, more in (peers(), set_up({"RTVI_AUTOBAHN": autobahn})):
            variables |= places
            lacking += more
        results, more = other_versions()
        lacking += more
    required = "--require" in ours
    for line in lacking:
        say(f"Cannot be had, what needs it {'fails' if required else 'is skipped by name'}: {line}")
    if required:
        variables["RTVI_REQUIRE_REAL"] = "1"
    selected = "" if "--matrix" in ours else "not matrix" if "--real" in ours else "not real and not matrix"
    rest = [argument for argument in arguments if argument not in ours] or ["-n", str(PROCESSES)]
    if "--matrix" in ours:
        whole = f"Python 3.{sys.version_info[1]}, real parts and long runs"
        results.append(run_tests(whole, python, ["-m", selected, *rest], **variables))
        print(*summary(results, lacking), sep="\n", flush=True)
        status = int(not all(result.good for result in results))
    else:
        status = show([python, "-m", "pytest", "-m", selected, *rest], TEST_SECONDS, ROOT, **variables)
    return 1 if required and lacking else status


def soak(arguments: list[str]) -> int:
    """Let sessions come and go; the arguments are those of `python -m tools.soak`."""
    return show([own_environment(SOAK_PARTS), "-m", "tools.soak", *arguments], SOAK_SECONDS)


def set_up(places: dict[str, Callable[[], Path]]) -> tuple[dict[str, str], list[str]]:
    """Make environments, by the variables that say where their Pythons are; these, and lines for what cannot be had."""
    variables: dict[str, str] = {}
    lacking = []
    for variable, make in places.items():
        try:
            variables[variable] = str(make())
        except (SetupError, OSError) as error:
            lacking.append(f"{variable}: {error}")
    return variables, lacking


def peers() -> tuple[dict[str, str], list[str]]:
    """Set up the client libraries that `bench` compares."""
    places: dict[str, Callable[[], Path]] = {"RTVI_PEER_PIPECAT": partial(pipecat_environment, next(iter(PIPECAT)))}
    for group in PEERS:
        name = group.partition("-")[2].replace("-", "_").upper()
        places[f"RTVI_PEER_{name}"] = partial(bench_environment, group, (sys.version_info[1],), (group,))
    return set_up(places)


def pythons() -> tuple[dict[str, str], list[str]]:
    """Set up the Pythons that `bench` compares."""
    return set_up(
        {
            f"RTVI_PYTHON_3_{minor}": partial(bench_environment, f"Python 3.{minor}", (minor,), ("speed",))
            for minor in BENCH_PYTHONS
        }
    )


def bench_environment(name: str, minors: Sequence[int], parts: Sequence[str]) -> Path:
    """The Python, of one of these minor versions of 3, of an environment that `bench` alone needs."""
    base = BASE if sys.version_info[1] in minors else find_python(minors)
    if base is None:
        raise SetupError("was not found")
    python = make_environment(CACHE / ("bench-" + name.replace(" ", "-")), base)
    install(python, requirements_of(read_project(python), parts), f"the packages for {name}")
    if name in PAGES:
        bundle(PAGES[name], python.parents[1] / "page")
    return python


def bench(arguments: list[str]) -> int:
    """Measure; the arguments are those of `python -m benchmarks`."""
    python = own_environment(BENCH_PARTS)
    found, lacking = peers()
    others, more = pythons()
    lacking += [f"{name}: not here, and not to be installed by this user" for name in install_programs(python)]
    for line in [*lacking, *more, *install_devices(python)]:
        say(f"Cannot be had, is left out by name: {line}")
    return show([python, "-m", "benchmarks", *arguments], BENCH_SECONDS, ROOT, **found, **others)


def lint(arguments: list[str]) -> int:
    """Check style, types and floors, and look for weak spots, ours and those of what is installed; all always run."""
    python = own_environment(LINT_PARTS)
    required = "--require" in arguments
    pyright = pyright_checks()
    contracts = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    checks = [
        ["-m", "ruff", "check", *(argument for argument in arguments if argument != "--require")],
        ["-m", "ruff", "format", "--check"],
        ["-m", "mypy"],
        *pyright,
        ["-c", contracts],
        ["-m", "bandit", "-q", "-c", "pyproject.toml", "-r", "rtvi_sync", "run.py", "tools", "samples"],
        ["-m", "tools.audit", *(["--require"] if required else [])],
    ]
    path = f"{python.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"  # where pyright looks for its Python
    failed = [" ".join(check[:3]) for check in checks if show([python, *check], STEP_SECONDS, ROOT, PATH=path)]
    for check in failed:
        say(f"FAILED: {check}")
    return 1 if failed or (required and not pyright) else 0


def pyright_checks() -> list[list[str]]:
    """What pyright looks at: the program that uses the whole interface, and all that the package exports."""
    try:
        own_environment(PYRIGHT_PARTS)
    except SetupError as error:
        say(f"NOT CHECKED by pyright, which cannot be had: {error}")
        return []
    return [["-m", "pyright", "tests/typing"], ["-m", "pyright", "--verifytypes", "rtvi_sync", "--ignoreexternal"]]


COMMANDS = {"demo": demo, "sample": sample, "test": test, "soak": soak, "bench": bench, "lint": lint}


def end_by_signal(number: int, _frame: object) -> None:
    """End this program, and with it what its threads wait for."""
    leave()
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    sys.exit(128 + number)


def main(arguments: list[str]) -> int:
    """Run the command that the arguments name; returns the exit status."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(HELP)
        return 0
    if arguments[0] not in COMMANDS:
        print(f"run.py: no such command: {arguments[0]}\n\n{HELP}", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, end_by_signal)  # so that what was started is ended too
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else it is ignored, as by nohup
        signal.signal(signal.SIGINT, end_by_signal)
    try:
        with contextlib.suppress(OSError):  # a folder that cannot be written will do if nothing has to be set up
            CACHE.mkdir(exist_ok=True)
            LOG.write_text("", encoding="utf-8")
        status = COMMANDS[arguments[0]](arguments[1:])
    except KeyboardInterrupt:
        return 130
    except (SetupError, OSError, subprocess.TimeoutExpired) as error:
        tail = [] if isinstance(error, OSError) else log_tail()
        print(*(f"  | {line}" for line in tail), f"run.py: {explained(error, tail)}", sep="\n", file=sys.stderr)
        return 1
    if status not in (0, 130):
        report_damage()
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
