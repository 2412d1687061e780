#!/usr/bin/env python3
"""Set up and run rtvi_sync on a machine that has only `python3`.

The first run creates an environment in `.venv/` inside the project and installs the packages that pyproject.toml lists;
later runs start at once. This file uses only the standard library, and needs no pip, no venv module, no compiler and no
root. Its syntax stays within Python 3.6, so that an older Python can parse it and print one line.
"""

import sys

if sys.version_info < (3, 10):  # noqa: UP036 (any Python may run this file)
    sys.exit("run.py needs Python 3.10 or newer, and {} is {}.{}".format(sys.executable, *sys.version_info[:2]))

try:
    import signal

    if __name__ == "__main__" and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C during the imports ends the process without a traceback

    import ast
    import contextlib
    import os
    import re
    import shutil
    import subprocess
    import tempfile
    from collections.abc import Callable, Collection, Mapping, Sequence
    from concurrent.futures import ThreadPoolExecutor, wait
    from functools import partial
    from pathlib import Path

    from tools.environments import (
        INSTALL_SECONDS,
        autobahn,
        bundle,
        install,
        install_project,
        make_environment,
        own_environment,
        pinned_environment,
        read_project,
        report_damage,
        requirements_of,
    )
    from tools.links import report
    from tools.local_bot import LOCAL_BOT, add_webrtc, local_bot_environment, serve_local_bot, speak_questions
    from tools.machine import (
        BASE,
        CACHE,
        LOG,
        ROOT,
        STEP_SECONDS,
        VENV_PYTHON,
        SetupError,
        describe_error,
        end_programs,
        find_python,
        log_tail,
        print_step,
        run_quietly,
        started,
        stop,
        stop_signal,
    )
    from tools.results import VARIABLE, Result, summary
except ImportError as lack:
    sys.exit(f"run.py needs the whole standard library, and {sys.executable} lacks some: {lack} (apt install python3)")

HELP = """\
usage: python3 run.py COMMAND ...

  demo [--url URL] ...                     hold a spoken conversation with samples/local_bot, or with the bot at URL;
                                           with --speech, or where the local bot cannot be installed,
                                           with the embedded bot
  sample [NAME [--url URL] ...]            run a program of samples/; without a name, list them
  test [--quick | --real | --matrix] [--require] [--coverage] [pytest arguments]
                                           run the tests; --real adds those with real parts (Pipecat, PulseAudio,
                                           Chromium), --matrix also every version and the long runs; with --require
                                           an unavailable part fails the run instead of skipping its tests.
                                           --quick runs only the tests of pure and in-memory modules, which start
                                           no program and no server and open no device, meant for less than 40 s.
                                           --coverage measures lines and branches, also in the processes that tests
                                           start, and fails if a folder has less than pyproject.toml demands, or a
                                           core module by the tests of its folder alone.
                                           Without pytest arguments several processes share the tests
  mutants [-j2] [NAME ...]                 change core modules as tests/mutants lists it, one change at a time, in a
                                           copy, and count the changes that the tests see; all modules take most of
                                           an hour, so they are part of test --matrix. -j2 tests two at once
  soak [--minutes N] [--seed S] [--output DIR] ...
                                           open and close sessions under injected faults; nothing may grow. Writes
                                           a plot, a table and a verdict to DIR (default: .cache/soak)
  bench [--quick] [--only NAME] ...        measure the package beside other clients:
                                           docs/background/performance.md. --quick takes five minutes and prints
                                           the rows that matter
  docs [--serve | --links | --pictures]    build the site of docs/ in .cache/docs, and print its path. --serve shows it
                                           at http://127.0.0.1:8000; --links checks the links to other sites;
                                           --pictures makes the pictures in docs/_static again, with Chromium
  setup [--real | --matrix]                install what lint and test need, except libraries for devices, and compile
                                           it; run nothing
  check [FILE or FOLDER ...]               the loop of a developer: ruff, mypy and the quick tests of the files that
                                           have changed since the last commit, or of those named
  lint [--require] [ruff arguments]        ruff check and format, mypy, pyright, the import contracts, the tests of
                                           tests/source, bandit, codespell and pip-audit; with --require it also fails
                                           if pyright is unavailable or no list of known vulnerabilities can be reached
  release [--python MINOR ...] [--extra NAME ...] [--require]
                                           rehearse a release: build and check it, and install it with each Python
                                           and each extra in clean environments; publishes nothing

Every command first sets up what it needs, in .venv/ and .cache/ of this folder; COMMAND --help sets up nothing."""

# Names of tables in pyproject.toml, which alone lists packages.
DEMO_PARTS = ("cli",)
SAMPLE_PARTS = (*DEMO_PARTS, "samples")
# Samples that need more than the others.
SAMPLE_EXTRAS = {
    "kiosk": ("sounddevice",),
    "video_transport": ("video",),
    "video_call": ("sounddevice", "video", "webrtc"),
    "load_test": ("locust",),
    "phone_bridge": ("resample",),
}
SOAK_PARTS = (*DEMO_PARTS, "soak")
BENCH_PARTS = (*SOAK_PARTS, "speed", "locust", "webrtc", "bench")
EXTRAS = ("resample", "aec", "files", "screen", "speed", "locust", "mcp", "scenarios", "webrtc")
TEST_PARTS = (*DEMO_PARTS, *EXTRAS, "test")
LINT_PARTS = (*TEST_PARTS, "lint")
PYRIGHT_PARTS = (*LINT_PARTS, "pyright")
DOCS_MINORS = (12, 13, 14, 11)  # minor versions of Python 3 on which the pinned Sphinx runs, the preferred one first

# Minor versions of Python 3 on which each Pipecat runs, the preferred one first.
PIPECAT = {"1.14.0": (11, 12, 13), "0.0.108": (11, 12, 13, 10), "0.0.73": (11, 12, 10)}
# A bot of the tests for each of these, which imports what most bots of that version do.
BOTS = {"1.14.0": "stock", "0.0.108": "configured_1_2", "0.0.73": "configured_0_3"}
# With `test --matrix` only.
MATRIX_PIPECAT = {"1.13.0": (11, 12, 13), "1.5.0": (11, 12, 13), "1.2.1": (11, 12, 13), "0.0.62": (11,)}
# `test --matrix` also runs the tests with these minor versions of Python 3, and versions of protobuf.
PYTHONS = (10, 11, 12, 13, 14)
PROTOBUFS = ("4.25", "5.29", "6.33", "7")
# `bench` also measures these client libraries. Each has an environment of its own, from the group of this name; the
# first Pipecat of those above is measured, too.
PEERS = ("peer-picows", "peer-client-js")
PAGES = {"peer-client-js": ROOT / "benchmarks/peers/client_js"}  # client libraries that run in a browser
# A command that exists if a program is installed, and the Debian packages that contain it.
PROGRAMS = {
    "pulseaudio": ("pulseaudio", "libasound2-plugins"),
    "pactl": ("pulseaudio-utils",),
    "Xvfb": ("xvfb",),
    "chromium": ("chromium",),
    "strace": ("strace",),
    "tmux": ("tmux",),
    "valgrind": ("valgrind",),
}
MATRIX_PROGRAMS = {  # with `test --matrix` only
    "ip": ("iproute2",),
    "iptables": ("iptables",),
    "turnserver": ("coturn",),
}
# The extras for devices, whose packages need more than pip installs: the module whose import succeeds if all is there,
# the line for the user if it does not, and the Debian packages that are needed.
DEVICES = {
    "audio": (
        "pyaudio",
        "PyAudio: cannot be built here (needs gcc and portaudio19-dev)",
        ("gcc", "libc6-dev", "python3-dev", "portaudio19-dev"),
    ),
    "sounddevice": (
        "sounddevice",
        "sounddevice: cannot be used here (needs libportaudio2; if audio hangs, see docs/guides/no-sound.md)",
        ("libportaudio2",),
    ),
    "video": (
        "cv2",
        "OpenCV: cannot be installed here (needs opencv-python, libgl1 and libglib2.0-0)",
        ("libgl1", "libglib2.0-0"),
    ),
}

# `test --quick` runs the test files in these folders of tests/, except files that match NOT_QUICK: they start a program
# or a server, or need a real part; a fork takes milliseconds. A folder that does not exist is skipped.
QUICK_FOLDERS = (
    "protocol",
    "concurrency",
    "session",
    "conversation",
    "client",
    "media",
    "recording",
    "testing",
    "notebook",
    "cli",
)
NOT_QUICK = re.compile(
    r"subprocess|run_python|multiprocessing|gevent|EmbeddedBot|FaultProxy|[sS]cripted_?[sS]erver|create_server"
    r"|\b(?:Server|Proxy|serving|black_hole)\(|\bPeer\b|running_kernel|\bStub\b|mark\.(?:real|matrix)"
)

# The parts of `run.py`, which tests/test_run.py tests.
OWN_FILES = ("run.py", *(f"tools/{name}.py" for name in ("environments", "links", "local_bot", "machine", "results")))
NO_TESTS = 5  # the status of pytest if the files have no test that is selected, such as only tests of real parts

DEMO_SECONDS = 1800.0
DEMO_CHOICES = {"--url", "--speech"}  # options without which the demo asks the local bot
# Programs that take a command's further arguments, and have a help of their own.
MODULES = {
    "demo": "rtvi_sync demo",
    "test": "pytest",
    "soak": "tools.soak",
    "bench": "benchmarks",
    "release": "tools.release",
}
# A slow package index must not keep the demo waiting: the embedded bot answers then.
LOCAL_BOT_SECONDS = 150.0
TEST_SECONDS = 6 * 3600.0  # on a busy machine; the tests end their own hangs
DOCS_SECONDS = 1800.0  # on a busy machine
SOAK_SECONDS = 7 * 24 * 3600.0
BENCH_SECONDS = 6 * 3600.0
WAIT_SECONDS = 0.1
DEVICE_SECONDS = 120.0  # until the library of an extra for devices counts as hanging
END_SECONDS = 3.0  # that threads have to end after a signal, when their programs have ended

# Most tests are blocked most of the time, so more of them run than there are cores.
PROCESSES = min(4 * (os.cpu_count() or 1), 8)
# Arguments of pytest for all tests. The tests of the source are part of lint. A test that fails is run once more, of a
# real part twice (tests/conftest.py): if it passes then, the closing lines name it as flaky.
ALL_TESTS = (
    *("-n", str(PROCESSES), "--ignore=tests/source", "-rfER"),
    *("--reruns=1", "--rerun-except=left behind"),  # which a second run in the same process would not show
)


def run_command(command: Sequence[object], seconds: float | None, cwd: Path | None = None, **variables: str) -> int:
    """Run a command with its output visible, and return its exit status. A signal that ends run.py ends the command."""
    environ = {**os.environ, "PYTHONPATH": str(ROOT), **variables}  # the package is used in place, without a build
    with started(command, in_foreground=True, cwd=cwd, env=environ) as child:
        return status_within(seconds, child, command)


def run_aside(command: Sequence[object], seconds: float, **variables: str) -> tuple[int, str]:
    """Run a command of the project beside others, and return its exit status and its output."""
    environ = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    with tempfile.TemporaryFile() as file:
        with started(command, in_foreground=True, cwd=ROOT, env=environ, stdout=file, stderr=file) as child:
            status = status_within(seconds, child, command)
        file.seek(0)
        return status, file.read().decode("utf-8", "replace")


def status_within(seconds: float | None, child: subprocess.Popen[bytes], command: Sequence[object]) -> int:
    """Wait for the end of a command, and return its exit status."""
    try:
        status = child.wait(seconds)
    except subprocess.TimeoutExpired:
        raise SetupError(f"stopped after {seconds:.0f} s: {command[2]}") from None
    return status if status >= 0 else 128 - status


# Set-up of the tests


def pipecat_environment(version: str) -> Path:
    """Return the Python of the environment for one version of Pipecat."""
    minors = {**PIPECAT, **MATRIX_PIPECAT}[version]
    pins = ROOT / f"tests/pipecat/requirements-{version}.txt"
    return pinned_environment(f"pipecat-{version}", minors, pins, f"Pipecat {version}")


def has_devices(python: Path, part: str) -> bool:
    """Return whether an environment has everything that an extra for devices needs, and it does not hang."""
    return run_quietly([python, "-c", f"import {DEVICES[part][0]}"], DEVICE_SECONDS)


def install_devices(python: Path) -> list[str]:
    """Install the extras for devices; return one line for each that cannot be installed."""
    unavailable = []
    project = read_project(python)
    for part, (_, problem, _) in DEVICES.items():
        if not has_devices(python, part):
            with contextlib.suppress(SetupError):
                install(python, requirements_of(project, (part,)), f"the packages for {part}")
            if not has_devices(python, part):
                unavailable.append(problem)
    return unavailable


def install_programs(python: Path, programs: Mapping[str, Sequence[str]] = PROGRAMS) -> list[str]:
    """Install programs, and the system libraries that the tests use, as root on Debian; return the missing programs."""
    missing = [name for name in programs if not shutil.which(name)]
    devices = [part for part in DEVICES if not has_devices(python, part)]
    wanted = [*missing, *(f"the libraries for {part}" for part in devices)]
    if wanted and shutil.which("apt-get") and hasattr(os, "geteuid") and os.geteuid() == 0:
        print_step("Installing " + ", ".join(wanted))
        packages = [package for name in missing for package in programs[name]]
        packages += [package for part in devices for package in DEVICES[part][2]]
        os.environ["DEBIAN_FRONTEND"] = "noninteractive"
        run_quietly(["apt-get", "update"])
        run_quietly(["apt-get", "install", "-y", "--no-install-recommends", *packages], INSTALL_SECONDS)
        if "turnserver" in missing and shutil.which("systemctl"):  # the package starts a server; tests start their own
            run_quietly(["systemctl", "disable", "--now", "coturn"])
    return [name for name in missing if not shutil.which(name)]


def variable_of(part: str) -> str:
    """Return the name of the environment variable with the path of a real part."""
    return "RTVI_" + re.sub(r"\W", "_", part).upper()


def set_up_real_parts(python: Path, *, matrix: bool) -> tuple[dict[str, str], list[str]]:
    """Set up the real parts, including those that only the matrix needs.

    Returns:
        Environment variables with the paths for the tests, and one line for each part that is unavailable.
    """
    programs, versions = (
        ({**PROGRAMS, **MATRIX_PROGRAMS}, [*PIPECAT, *MATRIX_PIPECAT]) if matrix else (PROGRAMS, [*PIPECAT])
    )
    # In parallel, because each waits for the package index most of the time.
    with ThreadPoolExecutor() as pool:
        missing = pool.submit(install_programs, python, programs)
        environments = {f"Pipecat {version}": pool.submit(pipecat_environment, version) for version in versions}
        environments["local bot"] = pool.submit(lambda: add_webrtc(local_bot_environment()))
    variables: dict[str, str] = {}
    unavailable = [f"{name}: not installed, and this user cannot install it" for name in missing.result()]
    for name, environment in environments.items():
        try:
            variables[variable_of(name)] = str(environment.result())
        except (SetupError, OSError) as error:
            unavailable.append(f"{name}: {error}")
    return variables, unavailable


def quick_files() -> list[str]:
    """Return the test files that `test --quick` runs, as paths relative to the project."""
    files = (file for folder in QUICK_FOLDERS for file in sorted((ROOT / "tests" / folder).rglob("test_*.py")))
    return [file.relative_to(ROOT).as_posix() for file in files if is_quick(file)]


def run_tests(name: str, python: Path, arguments: Sequence[str], **variables: str) -> Result:
    """Run pytest with its output visible, and return its counts. A run that is stopped counts as failed."""
    print_step(f"Testing with {name}")
    counts = CACHE / "results" / f"{name}.json"
    counts.parent.mkdir(exist_ok=True)
    counts.unlink(missing_ok=True)
    try:
        status = run_command(
            [python, "-m", "pytest", *arguments], TEST_SECONDS, ROOT, **variables, **{VARIABLE: str(counts)}
        )
    except SetupError as error:
        print_step(f"{name}: {error}")
        status = 1
    return Result(name, status, counts)


def run_other_versions() -> tuple[list[Result], list[str]]:
    """Run the tests with other Pythons and protobufs. Return the results, and a line for each unavailable version."""
    pythons: list[tuple[str, str | None, list[str], str]] = [
        (f"Python 3.{minor}", find_python((minor,)), [], "tests") for minor in PYTHONS if minor != sys.version_info[1]
    ]
    protobufs = [(f"protobuf {v}", BASE, [f"protobuf=={v}.*"], "tests/protocol") for v in PROTOBUFS]
    results, unavailable = [], []
    for name, base, pins, tests in [*pythons, *protobufs]:
        try:
            if base is None:
                raise SetupError("was not found")
            python = make_environment(CACHE / name.replace(" ", "-"), base)
            install(python, requirements_of(read_project(python), TEST_PARTS) + pins, f"the packages for {name}")
        except (SetupError, OSError) as error:
            unavailable.append(f"{name}: {error}")
            continue
        if tests == "tests":
            unavailable += [f"{name}: {line}" for line in install_devices(python)]
        words = ["-q", "-m", "not real and not matrix", *ALL_TESTS, tests]
        results.append(run_tests(name, python, words))
    return results, unavailable


# Commands


def demo(arguments: list[str]) -> int:
    """Run the demo with the arguments of `python -m rtvi_sync demo`; with the local bot, unless they choose another."""
    chosen = {argument.partition("=")[0] for argument in arguments} & DEMO_CHOICES
    with contextlib.ExitStack() as stack:
        with ThreadPoolExecutor() as pool:
            local = None if chosen or not LOCAL_BOT.is_dir() else pool.submit(local_bot_environment, LOCAL_BOT_SECONDS)
            python = own_environment(DEMO_PARTS)
            try:
                install_project(python)
            except (SetupError, OSError) as error:
                print_step(f"The command rtvi-sync is unavailable: {error}")
        options: list[object] = []
        if local is not None:
            try:
                options = local_bot_options(local.result(), stack)
            except (SetupError, OSError) as error:
                print_step(f"The local bot is unavailable, so the embedded bot answers: {error}")
        status = run_command([python, "-m", "rtvi_sync", "demo", *options, *arguments], DEMO_SECONDS)
    if not status:
        print_step(f"Try next: {next_step(python, arguments, has_local_bot=bool(options))}")
    return status


def next_step(python: Path, arguments: Sequence[str], *, has_local_bot: bool) -> str:
    """Return the command to try after a demo with these arguments."""
    program = python.with_name("rtvi-sync" + python.suffix)
    words = shown(program) if program.exists() else f"{shown(python)} -m rtvi_sync"
    urls = re.findall(r"(?<!\S)--url[=\n](\S+)", "\n".join(arguments))
    if urls:
        return f"{words} talk {urls[-1]}"
    if has_local_bot:
        bot = f"python3 {shown(ROOT / 'run.py')} sample {LOCAL_BOT.name}"
        return f"{bot}, and in another terminal {words} talk http://localhost:7860"
    return f"{words} talk URL, with the URL of your bot"


def shown(file: Path) -> str:
    """Return a file's path as short as the user can type it in the current folder."""
    return str(file.relative_to(Path.cwd()) if Path.cwd() in file.parents else file)


def local_bot_options(python: Path, stack: contextlib.ExitStack) -> list[object]:
    """Start the local bot, which ends with the stack. Return the options with which the demo asks it questions."""
    print_step("Starting the local bot: Pipecat with PocketSphinx, rules and espeak-ng (samples/local_bot)")
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    speech = speak_questions(python, folder / "questions.wav")
    return ["--url", stack.enter_context(serve_local_bot(python)), "--speech", speech]


def whole_local_bot() -> Path:
    """Return the Python of the local bot's environment, with all ways in that can be had."""
    python = local_bot_environment()
    try:
        add_webrtc(python)
    except SetupError as error:
        print_step(f"The bot leaves its entry 'webrtc' out: {error}")
    return python


def sample_programs() -> dict[str, Path]:
    """Return the samples by name: each is a file, or a package with a `__main__.py`."""
    files = {path.stem: path for path in ROOT.glob("samples/*.py")}
    return dict(sorted({**files, **{path.parent.name: path for path in ROOT.glob("samples/*/__main__.py")}}.items()))


def sample(arguments: list[str]) -> int:
    """Run a sample without a time limit; without a name, list the samples."""
    programs = sample_programs()
    if arguments and arguments[0] in programs:
        parts = (*SAMPLE_PARTS, *SAMPLE_EXTRAS.get(arguments[0], ()))
        python = whole_local_bot() if arguments[0] == LOCAL_BOT.name else own_environment(parts)
        return run_command([python, "-m", f"samples.{arguments[0]}", *arguments[1:]], None)
    width = max(map(len, programs), default=0)
    lines = [f"  {name:{width}}  {summary_of(path)}" for name, path in programs.items()]
    lines = ["usage: python3 run.py sample NAME [--url URL] ...", "", *lines]
    if not arguments:
        print(*lines, sep="\n")
        return 0
    print(f"run.py: no such sample: {arguments[0]}", "", *lines, sep="\n", file=sys.stderr)
    return 2


def summary_of(program: Path) -> str:
    """Return the first line of a program's docstring."""
    return docstring_of(program).partition("\n")[0]


def docstring_of(program: Path) -> str:
    """Return a program's docstring."""
    return ast.get_docstring(ast.parse(program.read_text(encoding="utf-8"))) or ""


def test(arguments: list[str]) -> int:
    """Run pytest with its own arguments unchanged; without any, in several processes."""
    options = {"--quick", "--real", "--matrix", "--require", "--coverage"} & set(arguments)
    if {"--coverage", "--matrix"} <= options:
        raise SetupError("--coverage measures one Python: use it without --matrix")
    rest = [argument for argument in arguments if argument not in options] or [*ALL_TESTS]
    python = own_environment(TEST_PARTS)
    if "--quick" in options:
        words = ["-m", "not real and not matrix", *rest, *quick_files()]
        return run_pytest(python, words, {}, measure="--coverage" in options)
    variables, unavailable = set_up_tests(python, options)
    results, more = run_other_versions() if "--matrix" in options else ([], [])
    unavailable += more
    required = "--require" in options
    for line in unavailable:
        print_step(f"Unavailable, what needs it {'fails' if required else 'is skipped by name'}: {line}")
    if required:
        variables["RTVI_REQUIRE_REAL"] = "1"
    selected = "" if "--matrix" in options else "not matrix" if "--real" in options else "not real and not matrix"
    if "--matrix" in options:
        name = f"Python 3.{sys.version_info[1]}, real parts and long runs"
        results.append(run_tests(name, python, ["-m", selected, *rest], **variables))
        print(*summary(results, unavailable), sep="\n", flush=True)
        status = int(not all(result.good for result in results))
    else:
        whole = options == set(arguments)
        status = run_pytest(python, ["-m", selected, *rest], variables, measure="--coverage" in options, judge=whole)
    return 1 if required and unavailable else status


def setup(arguments: list[str]) -> int:
    """Make the environments of lint and the tests, and with --real or --matrix the real parts.

    What the tests import is compiled: otherwise all processes of the first run would do so at the same time, each for
    itself. The libraries for devices are left to `test`: they are added to .venv, which another command may be using.
    """
    python = own_environment(LINT_PARTS)
    with ThreadPoolExecutor() as pool:
        pool.submit(run_quietly, [python, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"], cwd=ROOT)
        if {"--real", "--matrix"} & {*arguments}:
            variables, unavailable = set_up_real_parts(python, matrix="--matrix" in arguments)
            for line in unavailable:
                print_step(f"Unavailable: {line}")
            for version, bot in BOTS.items():
                if pipecat := variables.get(variable_of(f"Pipecat {version}")):
                    pool.submit(run_quietly, [pipecat, "-c", f"import {bot}"], cwd=ROOT / "tests/pipecat/bots")
    return 0


def set_up_tests(python: Path, options: Collection[str]) -> tuple[dict[str, str], list[str]]:
    """Set up the parts of the tests. Return environment variables, and one line for each unavailable part."""
    variables: dict[str, str] = {}
    unavailable = []
    try:
        own_environment(LINT_PARTS)
    except SetupError as error:
        unavailable.append(str(error))
    found: list[tuple[dict[str, str], list[str]]] = []
    if "--real" in options or "--matrix" in options:
        found.append(set_up_real_parts(python, matrix="--matrix" in options))
    found.append(({}, install_devices(python)))
    if "--matrix" in options:
        found += [bench_peers(), make_environments({"RTVI_AUTOBAHN": autobahn})]
    for more_variables, lines in found:
        variables |= more_variables
        unavailable += lines
    return variables, unavailable


def run_pytest(
    python: Path, words: Sequence[str], variables: dict[str, str], *, measure: bool, judge: bool = False
) -> int:
    """Run pytest with its output visible, and return its exit status.

    Args:
        python: of the environment.
        words: the arguments.
        variables: environment variables.
        measure: print the coverage.
        judge: fail if the coverage is less than pyproject.toml demands.
    """
    if not measure:
        return run_command([python, "-m", "pytest", *words], TEST_SECONDS, ROOT, **variables)
    status = run_measured(python, words, variables)
    run_command([python, "-m", "coverage", "report", "--skip-empty"], STEP_SECONDS, ROOT)
    if not judge:
        return status
    demands = read_project(python)["tool"]["rtvi_sync"]
    for folder, percent in demands["coverage"].items():
        status = judge_coverage(python, folder, f"{folder}/*", percent) or status
    alone = demands.get("coverage-alone", {})
    for folder in sorted({Path(module).parent.as_posix() for module in alone}):
        tests = folder.replace("rtvi_sync", "tests", 1)
        selection = ["-q", "-m", "not real and not matrix", *ALL_TESTS, tests]
        status = run_measured(python, selection, variables) or status
        for module, percent in alone.items():
            if Path(module).parent.as_posix() == folder:
                status = judge_coverage(python, f"{module} by {tests}", module, percent) or status
    return status


def run_measured(python: Path, words: Sequence[str], variables: dict[str, str]) -> int:
    """Run pytest and keep its coverage data. Return its exit status."""
    coverage = [python, "-m", "coverage"]
    (CACHE / "coverage").mkdir(exist_ok=True)
    run_quietly([*coverage, "erase"], cwd=ROOT)
    status = run_command([*coverage, "run", "-m", "pytest", *words], TEST_SECONDS, ROOT, **variables)
    run_quietly([*coverage, "combine"], cwd=ROOT)
    return status


def judge_coverage(python: Path, name: str, files: str, percent: float) -> int:
    """Print how much of some files is covered. Return an exit status: not 0 if it is less than demanded."""
    print_step(f"Coverage of {name} in percent, at least {percent}:")
    limits = ["--format=total", f"--fail-under={percent}", f"--include={files}"]
    return run_command([python, "-m", "coverage", "report", *limits], STEP_SECONDS, ROOT)


def mutants(arguments: list[str]) -> int:
    """Test the mutants with the arguments of `python -m tools.mutants`."""
    return run_command([own_environment(TEST_PARTS), "-m", "tools.mutants", *arguments], TEST_SECONDS)


def soak(arguments: list[str]) -> int:
    """Run the soak with the arguments of `python -m tools.soak`."""
    return run_command([own_environment(SOAK_PARTS), "-m", "tools.soak", *arguments], SOAK_SECONDS)


def make_environments(makers: dict[str, Callable[[], Path]]) -> tuple[dict[str, str], list[str]]:
    """Make environments, by variable. Return the variables with their Pythons, and a line for each unavailable one."""
    variables: dict[str, str] = {}
    unavailable = []
    for variable, make in makers.items():
        try:
            variables[variable] = str(make())
        except (SetupError, OSError) as error:
            unavailable.append(f"{variable}: {error}")
    return variables, unavailable


def bench_peers() -> tuple[dict[str, str], list[str]]:
    """Set up the client libraries that `bench` compares."""
    makers: dict[str, Callable[[], Path]] = {"RTVI_PEER_PIPECAT": partial(pipecat_environment, next(iter(PIPECAT)))}
    for group in PEERS:
        name = group.partition("-")[2].replace("-", "_").upper()
        makers[f"RTVI_PEER_{name}"] = partial(bench_environment, group)
    return make_environments(makers)


def bench_environment(group: str) -> Path:
    """Return the Python of an environment of `bench`, with the packages of a group."""
    python = make_environment(CACHE / f"bench-{group}", BASE)
    install(python, requirements_of(read_project(python), (group,)), f"the packages for {group}")
    if group in PAGES:
        bundle(PAGES[group], python.parents[1] / "page")
    return python


def bench(arguments: list[str]) -> int:
    """Run the benchmarks with the arguments of `python -m benchmarks`."""
    python = own_environment(BENCH_PARTS)
    found, unavailable = bench_peers()
    unavailable += [f"{name}: not installed, and this user cannot install it" for name in install_programs(python)]
    for line in unavailable:
        print_step(f"Unavailable, left out by name: {line}")
    return run_command([python, "-m", "benchmarks", *arguments], BENCH_SECONDS, ROOT, **found)


def lint(arguments: list[str]) -> int:
    """Check style, types, import contracts and known vulnerabilities. Every check runs, even after a failure."""
    python = own_environment(LINT_PARTS)
    required = "--require" in arguments
    pyright = pyright_checks()
    contracts = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    fixing = [
        ["-m", "ruff", "check", *(argument for argument in arguments if argument != "--require")],
        ["-m", "ruff", "format", "--check"],
    ]
    checks = [
        ["-m", "mypy"],
        *pyright,
        ["-c", contracts],
        ["-m", "pytest", "-q", "-m", "not matrix", "-n", str(os.cpu_count() or 1), "tests/source"],  # they compute
        ["-m", "bandit", "-q", "-c", "pyproject.toml", "-r", "rtvi_sync", "run.py", "tools", "samples"],
        ["-m", "codespell_lib", "."],
        ["-m", "tools.audit", *(["--require"] if required else [])],
    ]
    path = f"{python.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"  # pyright finds its Python on this path

    failed = [" ".join(check[:3]) for check in fixing if run_command([python, *check], STEP_SECONDS, ROOT, PATH=path)]
    # Most of these use one processor: two at a time, each with its output in one piece.
    with ThreadPoolExecutor(2) as pool:
        ran = [pool.submit(run_aside, [python, *check], STEP_SECONDS, PATH=path) for check in checks]
        for check, future in zip(checks, ran, strict=True):
            status, told = future.result()
            print(told, end="", flush=True)
            if status:
                failed.append(" ".join(check[:3]))
    for name in failed:
        print_step(f"FAILED: {name}")
    return 1 if failed or (required and not pyright) else 0


def docs(arguments: list[str]) -> int:
    """Build the site, and fail at a warning; or check the links to other sites, or make the pictures."""
    wrong = {*arguments} - {"--serve", "--links", "--pictures"}
    if wrong:
        raise SetupError(f"docs takes --serve, --links and --pictures, and no {' '.join(sorted(wrong))}")
    if "--pictures" in arguments:
        return pictures()
    python = docs_environment()
    site = CACHE / "docs"
    state = CACHE / "doctrees"  # apart from the site, which can be copied as it is
    if "--links" in arguments:
        return links([python, "-m", "sphinx", "-b", "linkcheck", "-j", "auto", "-d", state, "docs"])
    strict = ["-W", "--keep-going", "-n", "-j", "auto", "-q"]
    status = run_command([python, "-m", "sphinx", "-b", "html", *strict, "-d", state, "docs", site], DOCS_SECONDS, ROOT)
    if status:
        shutil.rmtree(state, ignore_errors=True)  # Sphinx warns of a page only when it reads the page
        return status
    print_step(f"The site is in {shown(site / 'index.html')}")
    if "--serve" in arguments:
        words = [python, "-m", "http.server", "--bind", "127.0.0.1", "--directory", site, "8000"]
        return run_command(words, None, ROOT)
    return 0


def links(sphinx: Sequence[object]) -> int:
    """Check the links to other sites, and print the broken ones, and each host that cannot be reached, in one line."""
    folder = CACHE / "links"
    shutil.rmtree(folder, ignore_errors=True)
    print_step("Checking the links to other sites")
    run_quietly([*sphinx, folder], DOCS_SECONDS, ROOT)  # which fails if a link is broken
    rows = folder / "output.json"
    if not rows.exists():
        raise SetupError("the links could not be checked")
    lines, right = report(rows)
    for line in lines:
        print_step(line)
    return int(not right)


def pictures() -> int:
    """Make the pictures of README and the docs."""
    python = own_environment(TEST_PARTS)
    if install_programs(python, {"chromium": PROGRAMS["chromium"]}):
        raise SetupError("the pictures need Chromium: apt install chromium")
    return run_command([python, "-m", "tools.pictures"], DOCS_SECONDS, ROOT)


def docs_environment() -> Path:
    """Return the Python of the environment with Sphinx, which does not run on each Python that the package does."""
    base = find_python(DOCS_MINORS)
    if base is None:
        raise SetupError("the site needs Python " + " or ".join(f"3.{minor}" for minor in DOCS_MINORS))
    python = make_environment(CACHE / "sphinx", base)
    install(python, requirements_of(read_project(python), ("docs",)), "the packages for docs")
    return python


def check(arguments: list[str]) -> int:
    """Run ruff on all files, mypy and the quick tests on those that have changed since the last commit or are named."""
    changed = named_files(arguments) if arguments else changed_files()
    python = own_environment(LINT_PARTS)
    checks = [["-m", "ruff", "check"], ["-m", "ruff", "format", "--check"]]
    types = [str(path) for path in changed if path.suffix == ".py" and is_typed(path)]
    tests = tests_of(changed)
    if types:
        checks.append(["-m", "mypy", *types])
    if tests:
        checks.append(["-m", "pytest", "-q", "-m", "not real and not matrix", "-n", str(PROCESSES), *tests])
    for words in checks:
        status = run_command([python, *words], TEST_SECONDS, ROOT)
        if status and (words[1], status) != ("pytest", NO_TESTS):
            return status
    return 0


def named_files(names: Sequence[str]) -> list[Path]:
    """Return the named files, and the Python files of the named folders, relative to the project.

    A name is a path from the current folder or from the project.
    """
    found: list[Path] = []
    for name in names:
        paths = [path for path in (Path(name).resolve(), (ROOT / name).resolve()) if path.exists()]
        if not paths or not paths[0].is_relative_to(ROOT):
            raise SetupError(f"{name} is not a file or folder of this project: name others, or none for all changes")
        files = sorted(paths[0].rglob("*.py")) if paths[0].is_dir() else paths[:1]
        found += [file.relative_to(ROOT) for file in files]
    return [path for path in dict.fromkeys(found) if not path.parts[0].startswith(".")]  # .venv is not the project's


def changed_files() -> list[Path]:
    """Return the files that differ from the last commit, those that are gone or that git does not know included."""
    git = shutil.which("git")
    if git is None:
        raise SetupError("git is not installed, so name the files that have changed")
    names: list[str] = []
    for words in (["diff", "--name-only", "--no-renames", "HEAD"], ["ls-files", "--others", "--exclude-standard"]):
        try:
            done = subprocess.run([git, *words], cwd=ROOT, capture_output=True, text=True, check=True)
        except subprocess.CalledProcessError as error:
            raise SetupError(f"git cannot list the changed files ({error}): name the files") from None
        names += done.stdout.splitlines()
    return [Path(name) for name in names]


def is_typed(path: Path) -> bool:
    """Return whether a file is there and mypy checks it."""
    typed = ("run.py", "rtvi_sync", "samples", "tests", "tools", "benchmarks")
    return path.parts[0] in typed and (ROOT / path).is_file()


def tests_of(changed: Collection[Path]) -> list[str]:
    """Return the test files for changed files.

    For a test file, itself; for a module, the file of its name and the quick ones of the folder that mirrors its own;
    for a tool, the tests that import it; for a page of the docs, the tests of the docs.
    """
    found: list[Path] = []
    for path in changed:
        if path.parts[0] == "tests" and path.name.startswith("test_"):
            found.append(ROOT / path)
        elif path.parts[0] == "rtvi_sync":
            folder = ROOT.joinpath("tests", *path.parts[1:-1])
            found += [folder / f"test_{path.stem}.py", *filter(is_quick, sorted(folder.glob("test_*.py")))]
        elif path.name == "README.md" or (path.parts[0] == "docs" and path.suffix == ".md"):
            found.append(ROOT / "tests/test_docs.py")
        if path.as_posix() in OWN_FILES:
            found.append(ROOT / "tests/test_run.py")
        if path.parts[0] == "tools" and len(path.parts) > 1:
            tool = re.compile(rf"\btools(?:\.| import .*\b){Path(path.parts[1]).stem}\b")
            tests = sorted((ROOT / "tests").rglob("test_*.py"))
            found += [file for file in tests if tool.search(file.read_text("utf-8"))]
    return list(dict.fromkeys(file.relative_to(ROOT).as_posix() for file in found if file.is_file()))


def is_quick(file: Path) -> bool:
    """Return whether a test file starts no program and no server, and needs no real part."""
    return not NOT_QUICK.search(file.read_text("utf-8"))


def pyright_checks() -> list[list[str]]:
    """Return the pyright checks: the programs that use the whole interface, and everything the package exports."""
    try:
        own_environment(PYRIGHT_PARTS)
    except SetupError as error:
        print_step(f"NOT CHECKED by pyright, which is unavailable: {error}")
        return []
    return [["-m", "pyright", "tests/typing"], ["-m", "pyright", "--verifytypes", "rtvi_sync", "--ignoreexternal"]]


def release(arguments: list[str]) -> int:
    """Rehearse a release with the arguments of `python -m tools.release`."""
    return run_command([own_environment(("release",)), "-m", "tools.release", *arguments], TEST_SECONDS, ROOT)


def print_help(command: str, arguments: Sequence[str]) -> None:
    """Print the help of a command, or of the sample that the arguments name. Nothing is set up for it."""
    programs = sample_programs() if command == "sample" else {}
    named = next((name for name in arguments if name in programs), None)
    if command == "sample" and named is None:
        sample([])
        return
    if named is not None:
        text, module = docstring_of(programs[named]), f"samples.{named}"
    else:
        usage, *commands = re.split(r"\n(?=  \w|\n)", HELP)
        text = "\n\n".join([usage.replace("COMMAND", command), *(c for c in commands if c.split()[:1] == [command])])
        module = MODULES.get(command, "")
    print(text)
    if module and named != LOCAL_BOT.name:
        print(f"\nAll options, after the first run: {shown(ROOT / '.venv' / VENV_PYTHON)} -m {module} --help")


COMMANDS = {
    "demo": demo,
    "sample": sample,
    "test": test,
    "mutants": mutants,
    "soak": soak,
    "bench": bench,
    "docs": docs,
    "setup": setup,
    "check": check,
    "lint": lint,
    "release": release,
}


def main(arguments: list[str]) -> int:
    """Run the command that the arguments name on another thread, and return the exit status.

    The main thread, which Python runs signal handlers on, only waits, so that a signal interrupts nothing.
    """
    if not arguments or arguments[0] in ("-h", "--help"):
        print(HELP)
        return 0
    if arguments[0] not in COMMANDS:
        print(f"run.py: no such command: {arguments[0]}\n\n{HELP}", file=sys.stderr)
        return 2
    if {"-h", "--help"} & {*arguments[1:]}:
        print_help(arguments[0], arguments[1:])
        return 0
    os.environ.pop("PYTHONPATH", None)  # pip would count the packages there as part of the environment
    # Packages are installed without bytecode files: the first program that imports a module writes its file.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    signal.signal(signal.SIGTERM, stop)
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # as shells have it for `command &`
        signal.signal(signal.SIGINT, stop)
    status = ThreadPoolExecutor().submit(status_of, arguments)
    while not (status.done() or stop_signal()):
        # With a limit, because a signal between Python's last look for signals and the wait would not end the wait.
        wait([status], WAIT_SECONDS)
    if stop_signal():
        end_programs()
        wait([status], END_SECONDS)
        os._exit(128 + stop_signal())  # at a usual exit Python would wait for all threads
    return status.result()


def status_of(arguments: list[str]) -> int:
    """Run the command that the arguments name, report its failure, and return the exit status."""
    try:
        with contextlib.suppress(OSError):  # a read-only folder is enough if nothing has to be set up
            CACHE.mkdir(exist_ok=True)
            LOG.write_text("", encoding="utf-8")
        status = COMMANDS[arguments[0]](arguments[1:])
    except (SetupError, OSError, subprocess.TimeoutExpired) as error:
        tail = [] if isinstance(error, OSError) else log_tail()
        print(*(f"  | {line}" for line in tail), f"run.py: {describe_error(error, tail)}", sep="\n", file=sys.stderr)
        return 1
    if status not in (0, 130):
        report_damage()
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
