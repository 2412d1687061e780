"""`run.py` in a small project, with a Python without venv and pip, and no package index except the test's.

Eight cases with an environment run each time, and the others with the matrix.
"""

import ast
import base64
import contextlib
import ctypes
import errno
import hashlib
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import metadata
from pathlib import Path

import pytest

import run
from tests.support.slowness import GUARD
from tools import environments, machine

pytestmark = pytest.mark.timeout(900)  # each environment takes seconds; on a busy machine, a minute

ROOT = Path(__file__).resolve().parents[1]
LOGIN = "a user:pass/word"
SAYS_WHY = ".cache/setup.log says why"

PYPROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["tools"]
[project]
name = "rtvi_sync"
dependencies = ["throwaway>=1"]
[project.optional-dependencies]
cli = ["throwaway-testing"]
resample = []
aec = []
screen = []
webrtc = []
files = []
speed = []
locust = []
mcp = []
scenarios = []
audio = ["absent-audio"]
sounddevice = ["absent-sounddevice"]
video = ["absent-video"]
[dependency-groups]
soak = []
samples = ["throwaway-samples"]
test = ["pytest", "coverage"]
lint = ["throwaway-linters"]
pyright = []
[tool.rtvi_sync.coverage]
"rtvi_sync" = 90
[tool.rtvi_sync.coverage-alone]
"rtvi_sync/core/one.py" = 95
"rtvi_sync/core/two.py" = 80
"""

# Replaces the package: prints its arguments, and ends as they say.
PACKAGE = """
import sys, threading, throwaway, throwaway_testing
try:
    print("arguments", sys.argv[1:], flush=True)
    if "--wait" in sys.argv:
        threading.Event().wait(60)
except KeyboardInterrupt:
    print("ended its session", flush=True)
if __name__ == "__main__" or "--fail" in sys.argv:
    sys.exit(7 if "--fail" in sys.argv else 0)

def main():
    pass
"""

# Replaces setuptools: builds the wheel that runs the project in place.
BACKEND = """
import pathlib, zipfile
def build_editable(folder, settings=None, metadata=None):
    info, wheel = "rtvi_sync-1.0.dist-info", "rtvi_sync-1.0-py3-none-any.whl"
    files = {
        "rtvi_sync.pth": str(pathlib.Path.cwd()),
        f"{info}/METADATA": "Metadata-Version: 2.1\\nName: rtvi_sync\\nVersion: 1.0\\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\\nGenerator: test\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
        f"{info}/entry_points.txt": "[console_scripts]\\nrtvi-sync = rtvi_sync.__main__:main\\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{name},,\\n" for name in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(pathlib.Path(folder, wheel), "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return wheel
"""

SAMPLE = '''"""Say what was given.

And more.
"""
import sys, threading, throwaway_samples
from rtvi_sync import __main__ as package
'''

PYTEST = """
import json, os, sys
print("pytest", sys.argv[1:], os.environ.get("RTVI_REQUIRE_REAL"), flush=True)
if "RTVI_TEST_RESULTS" in os.environ:
    with open(os.environ["RTVI_TEST_RESULTS"], "w") as file:
        json.dump({"passed": 3, "failed": 0, "skipped": {"no such device": 2}}, file)
"""

# Replaces coverage: prints its arguments; the total is too little.
COVERAGE = """
import sys
print("coverage", sys.argv[1:], flush=True)
sys.exit(2 if "--format=total" in sys.argv else 0)
"""

# Replaces the local bot: listens at the port of its last argument, and leaves its process id.
LOCAL_BOT = """
import os, pathlib, socket, sys, threading
pathlib.Path("bot.pid").write_text(str(os.getpid()))
listener = socket.create_server(("localhost", int(sys.argv[-1])))
threading.Event().wait(60)
"""

# Replaces every tool that checks the source: prints its arguments.
LINTER = "import sys; print(__spec__.name, sys.argv[1:], flush=True)"
LINTERS = {
    **{f"{name}.py": LINTER.encode() for name in ("ruff", "mypy", "bandit", "codespell_lib", "pyright")},
    "importlinter/cli.py": b"def lint_imports_command():\n    print('contracts', flush=True)\n",
}

posix = pytest.mark.skipif(os.name != "posix", reason="the bare Python is laid out as on POSIX")


def make_wheel(folder: Path, name: str, version: str, files: Mapping[str, bytes]) -> Path:
    """Write a wheel of pure Python."""
    info = f"{name}-{version}.dist-info"
    content = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},,\n" for path in [*content, f"{info}/RECORD"])
    wheel = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in [*content.items(), (f"{info}/RECORD", record.encode())]:
            entry = zipfile.ZipInfo(path)
            entry.external_attr = 0o100755 << 16  # pip makes such scripts executable
            archive.writestr(entry, data, zipfile.ZIP_DEFLATED)
    return wheel


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of wheels with all that the small project needs, including this environment's pip."""
    folder = tmp_path_factory.mktemp("wheels")
    for name in ("throwaway", "throwaway_testing", "throwaway_samples"):
        make_wheel(folder, name, "1.0", {f"{name}.py": b""})
    make_wheel(folder, "pytest", "1.0", {"pytest.py": PYTEST.encode()})
    make_wheel(folder, "coverage", "1.0", {"coverage.py": COVERAGE.encode()})
    make_wheel(folder, "throwaway_linters", "1.0", LINTERS)
    pip = metadata.distribution("pip")
    package = Path(str(pip.locate_file("pip")))
    files = {
        path.relative_to(package.parent).as_posix(): path.read_bytes()
        for path in package.rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    make_wheel(folder, "pip", pip.version, files)
    return folder


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a real Python without venv, ensurepip and pip: this binary, with the rest of its library."""
    home = tmp_path_factory.mktemp("bare")
    library = Path(sysconfig.get_path("stdlib"))
    copy = home / library.relative_to(sys.base_prefix)
    copy.mkdir(parents=True)
    for entry in library.iterdir():
        if entry.name not in ("venv", "ensurepip", "site-packages", "dist-packages", "sitecustomize.py"):
            (copy / entry.name).symlink_to(entry)
    python = home / "bin" / f"python3.{sys.version_info[1]}"
    python.parent.mkdir()
    shutil.copy2(os.path.realpath(machine.BASE), python)
    for module in ("venv", "ensurepip", "pip"):
        assert subprocess.run([python, "-c", f"import {module}"], capture_output=True).returncode == 1
    return python


def new_project(folder: Path) -> Path:
    """Make a small project with the real run.py, from which the one hard-coded path of the system is hidden."""
    shutil.copy(ROOT / "run.py", folder)
    (folder / "tools").mkdir()
    for name in ("__init__.py", "environments.py", "links.py", "local_bot.py", "results.py"):
        shutil.copy(ROOT / "tools" / name, folder / "tools")
    source = (ROOT / "tools" / "machine.py").read_text(encoding="utf-8")
    assert source.count('"/usr/share/python-wheels"') == 1
    hidden = source.replace('"/usr/share/python-wheels"', '"/nonexistent"')
    (folder / "tools" / "machine.py").write_text(hidden, encoding="utf-8")
    (folder / "tools" / "audit.py").write_text(LINTER)
    (folder / "tools" / "backend.py").write_text(BACKEND)
    (folder / "pyproject.toml").write_text(PYPROJECT)
    (folder / "rtvi_sync").mkdir()
    (folder / "rtvi_sync" / "__init__.py").touch()
    (folder / "rtvi_sync" / "__main__.py").write_text(PACKAGE)
    for sample in ("short.py", "long/__init__.py", "long/__main__.py"):
        path = folder / "samples" / sample
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(SAMPLE if path.stem != "__init__" else "")
    return folder


def poor_environ(home: Path, **variables: str) -> dict[str, str]:
    """Return environment variables that hide this machine's programs, Pythons and pip settings."""
    (home / "nothing").mkdir(exist_ok=True)
    kept = {name: value for name, value in os.environ.items() if name in ("SYSTEMROOT", "TEMP", "TMPDIR", "LANG")}
    own = {"PATH": str(home / "nothing"), "HOME": str(home), "PYENV_ROOT": str(home), "PIP_CONFIG_FILE": os.devnull}
    return {**kept, **own, **variables}


class Machine:
    """The small project on an isolated machine."""

    def __init__(self, python: Path, folder: Path, **variables: str) -> None:
        self.python = python
        self.project = new_project(folder)
        self.environ = poor_environ(folder, **variables)

    def command(self, *arguments: str) -> list[str]:
        """Return the words of a command line."""
        return [str(self.python), str(self.project / "run.py"), *arguments]

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        """Start run.py."""
        return subprocess.Popen(
            self.command(*arguments),
            cwd=self.project,
            env=self.environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # a process group of its own, as a terminal gives each command
        )

    def run(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run run.py to its end."""
        environ = {**self.environ, **variables}
        command = self.command(*arguments)
        return subprocess.run(command, cwd=self.project, env=environ, capture_output=True, text=True, timeout=4 * GUARD)

    @property
    def log(self) -> str:
        """Return the log file."""
        return (self.project / ".cache" / "setup.log").read_text()


NEXT = "Try next: .venv/bin/rtvi-sync talk URL, with the URL of your bot"
FIRST_DEMO = ["Making .venv", "Installing the packages for cli", "Installing rtvi-sync", "arguments ['demo']", NEXT]


@pytest.fixture(scope="module")
def ready(bare_python: Path, wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """Return a machine with only a bare Python and a folder of wheels, after its first set-up."""
    box = Machine(bare_python, tmp_path_factory.mktemp("ready"), PIP_FIND_LINKS=str(wheels), PIP_NO_INDEX="1")
    first = box.run("demo", "--url", "http://127.0.0.1:7860/connect")
    assert first.returncode == 0, first.stderr
    assert first.stdout.splitlines() == [
        "Making .venv",
        "Installing the packages for cli",
        "Installing rtvi-sync",
        "arguments ['demo', '--url', 'http://127.0.0.1:7860/connect']",
        "Try next: .venv/bin/rtvi-sync talk http://127.0.0.1:7860/connect",
    ]
    return box


class Index(BaseHTTPRequestHandler):
    """A simple package index that requires a name and a password."""

    folder: Path
    wrong_hash = False
    on_request: Callable[[str], object] = staticmethod(lambda _path: None)

    def do_GET(self) -> None:
        """Serve a page or a file to requests with the login."""
        self.on_request(self.path)
        login = "Basic " + base64.b64encode(LOGIN.encode()).decode()
        allowed = self.headers.get("Authorization") == login
        self.send_response(200 if allowed else 401)
        self.send_header("Content-Type", "text/html")
        self.send_header("WWW-Authenticate", 'Basic realm="index"')
        self.end_headers()
        if allowed:
            self.wfile.write(self.page() if self.path.endswith("/") else self.file().read_bytes())

    def file(self) -> Path:
        """Return the path of the requested file."""
        return self.folder / self.path.rpartition("/")[2]

    def page(self) -> bytes:
        """Return a package's page."""
        name = self.path.strip("/").rpartition("/")[2].replace("-", "_")
        links = [
            '<a href="/files/pip-999.0-py3-none-any.whl" data-requires-python="&gt;=3.99">for a later Python</a>',
            '<a href="/files/pip-998.0-py3-none-any.whl" data-yanked="broken">withdrawn</a>',
        ]
        for wheel in self.folder.glob(f"{name}-*.whl"):
            digest = hashlib.sha256(b"other" if self.wrong_hash else wheel.read_bytes()).hexdigest()
            links.append(f'<a href="../../files/{wheel.name}#sha256={digest}" data-requires-python="&gt;=3.7">it</a>')
        return "<!DOCTYPE html><html><body>{}</body></html>".format("\n".join(links)).encode()

    def log_message(self, format: str, *args: object) -> None:
        """Keep the test's output clean."""


@pytest.fixture
def index(wheels: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """Serve an index; yield its address, with name and password. A parameter makes its hashes wrong."""
    with serving({"folder": wheels, "wrong_hash": getattr(request, "param", False)}) as address:
        yield address


@contextlib.contextmanager
def serving(fields: Mapping[str, object]) -> Iterator[str]:
    """Serve an index with these class attributes; yield its address."""
    handler = type("Handler", (Index,), dict(fields))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://a%20user:pass%2Fword@127.0.0.1:{server.server_port}/simple"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class HeldIndex:
    """An index whose responses about one package are delayed until `release()`."""

    def __init__(self, package: str, folder: Path) -> None:
        self.asked, self._released = threading.Event(), threading.Event()
        self.fields = {"folder": folder, "on_request": staticmethod(self._hold)}
        self.release = self._released.set
        self._package = package

    def _hold(self, path: str) -> None:
        if path.strip("/").endswith(self._package):
            self.asked.set()
            self._released.wait(300)


@pytest.fixture
def held(wheels: Path) -> Iterator[tuple[HeldIndex, str]]:
    """Serve an index that delays the small project's first package; yield it and its address."""
    index = HeldIndex("/throwaway", wheels)
    with serving(index.fields) as address:
        try:
            yield index, address
        finally:
            index.release()


@pytest.mark.matrix
def test_without_arguments_the_commands_are_shown() -> None:
    """Without arguments every command is printed, and the status is 0."""
    done = subprocess.run([sys.executable, ROOT / "run.py"], capture_output=True, text=True, timeout=GUARD)
    assert done.returncode == 0
    assert all(f"\n  {command} " in done.stdout for command in run.COMMANDS)


@pytest.mark.matrix
def test_an_unknown_command_is_refused() -> None:
    """The error names the unknown command, and the status is 2."""
    done = subprocess.run([sys.executable, ROOT / "run.py", "dmeo"], capture_output=True, text=True, timeout=GUARD)
    assert done.returncode == 2
    assert done.stderr.startswith("run.py: no such command: dmeo\n")


@pytest.mark.matrix
def test_an_older_python_is_refused_in_one_line() -> None:
    """Under an older version the script prints one line before it imports anything that version lacks."""
    source = (ROOT / "run.py").read_text(encoding="utf-8")
    ast.parse(source, feature_version=(3, 6))
    older = "import sys; sys.version_info = (3, 8, 10); sys.path.clear(); sys.meta_path.clear(); exec(sys.argv[1], {})"
    done = subprocess.run([sys.executable, "-c", older, source], capture_output=True, text=True, timeout=GUARD)
    assert done.returncode == 1
    assert done.stderr == f"run.py needs Python 3.10 or newer, and {sys.executable} is 3.8\n"


@pytest.mark.matrix
def test_a_python_without_its_whole_library_is_refused_in_one_line() -> None:
    """If a part of the standard library is missing, one line names it and the cure."""
    without = "import sys; sys.modules['json'] = None; sys.path.insert(0, sys.argv[1]); import run"
    done = subprocess.run([sys.executable, "-c", without, ROOT], capture_output=True, text=True, timeout=GUARD)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "json" in done.stderr
    assert "apt install python3" in done.stderr


def test_requirements_come_from_the_named_tables_alone() -> None:
    """The package's own requirements are first, then those in the named extras and groups, with the ones they
    include."""
    project = {
        "project": {"dependencies": ["a>=1"], "optional-dependencies": {"testing": ["b"], "audio": ["c"]}},
        "dependency-groups": {"test": ["d", {"include-group": "bench"}], "bench": ["e<2", "b"], "lint": ["f"]},
    }
    assert environments.requirements_of(project, ("testing", "test")) == ["a>=1", "b", "d", "e<2"]


def test_the_projects_own_file_has_every_part() -> None:
    """Each part that a command names is a table of pyproject.toml, and each later command needs more."""
    project = json.loads(machine.output_of(sys.executable, "-c", environments.READ_TOML, ROOT / "pyproject.toml"))
    each = (run.DEMO_PARTS, run.SOAK_PARTS, run.TEST_PARTS, run.LINT_PARTS, run.PYRIGHT_PARTS)
    needs = [set(environments.requirements_of(project, parts)) for parts in each]
    assert all(less < more for less, more in itertools.pairwise(needs))


def test_the_extra_all_needs_no_compiler() -> None:
    """The extra `all` has each extra but `audio`, whose PyAudio is compiled on most systems."""
    project = json.loads(machine.output_of(sys.executable, "-c", environments.READ_TOML, ROOT / "pyproject.toml"))
    extras = project["project"]["optional-dependencies"]
    (line,) = extras.pop("all")
    packages = {environments.package_of(line) for extra in extras for line in extras[extra]}
    named = line.removeprefix("rtvi_sync[").removesuffix("]").split(",")
    assert {*named} == {*extras} - {"audio"}
    assert packages - {environments.package_of(line) for extra in named for line in extras[extra]} == {"pyaudio"}


def test_ci_and_newcomers_install_what_the_tests_need() -> None:
    """Each command of pip in `CONTRIBUTING.md` and in the workflow names the extras that run.py installs."""
    commands = [
        line
        for page in ("CONTRIBUTING.md", ".github/workflows/ci.yml")
        for line in (ROOT / page).read_text("utf-8").splitlines()
        if "--group test" in line
    ]
    named = [set(extras.split(",")) for extras in re.findall(r"\[(.*?)\]", "\n".join(commands))]
    assert named == [{*run.DEMO_PARTS, *run.EXTRAS}] * 3


def test_the_stamp_keeps_what_other_commands_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment remembers the packages of every command, and of each package only the latest requirement."""
    monkeypatch.setattr(environments, "run_uv", lambda *_, **__: True)
    monkeypatch.setattr(environments, "CACHE", tmp_path)
    (tmp_path / "bin").mkdir()
    environments.write_stamp(tmp_path, "this one", [])
    for requirements in (["a>=1", "B_c[x]<2"], ["d", "b-c>=2"]):
        environments.install(tmp_path / "bin" / "python", requirements, "it")
    assert environments.read_stamp(tmp_path) == {
        "base": "this one",
        "finished": True,
        "installed": ["d", "b-c>=2", "a>=1"],
    }


@posix
@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """The block is still entered, and the log has the reason."""

    def no_lock(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("fcntl.flock", no_lock)
    monkeypatch.setattr(machine, "CACHE", tmp_path)
    monkeypatch.setattr(machine, "LOG", tmp_path / "setup.log")
    entered = False
    with machine.locked(tmp_path / "it.lock", "it"):
        entered = True
    assert entered
    assert os.strerror(number) in machine.LOG.read_text(encoding="utf-8")


@posix
def test_threads_exclude_each_other_without_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The demo sets up two environments at once; "another run.py" would be itself."""
    waits = threading.Event()
    with ThreadPoolExecutor() as pool:
        with machine.locked(tmp_path / "it.lock", "it"), pytest.MonkeyPatch.context() as patch:
            patch.setattr(machine, "raise_if_stopped", waits.set)  # called by one who waits

            def wait_for_lock() -> None:
                with machine.locked(tmp_path / "it.lock", "it"):
                    pass

            waiting = pool.submit(wait_for_lock)
            assert waits.wait(GUARD)
        waiting.result(GUARD)
    assert capsys.readouterr().out == ""


@posix
def test_without_venv_and_pip_a_second_run_installs_nothing(ready: Machine) -> None:
    """After the set-up, a machine without venv, pip and other programs runs the demo immediately."""
    again = ready.run("demo", "a b")
    assert (again.returncode, again.stdout, again.stderr) == (0, f"arguments ['demo', 'a b']\n{NEXT}\n", "")
    assert ready.log == ""
    assert not (ready.project / ".cache" / "pip").exists()


@posix
def test_after_the_demo_the_command_is_installed(ready: Machine, tmp_path: Path) -> None:
    """`rtvi-sync` of `.venv` runs the package of this folder, from any other."""
    program = ready.project / ".venv" / "bin" / "rtvi-sync"
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}  # the tests' may name ours
    done = subprocess.run([program, "talk"], cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=GUARD)
    assert (done.returncode, done.stdout, done.stderr) == (0, "arguments ['talk']\n", "")


@pytest.mark.matrix
@posix
def test_a_command_that_cannot_be_installed_is_one_line(bare_python: Path, wheels: Path, tmp_path: Path) -> None:
    """Without the build tools of the package, the demo runs, and the last line names the commands that work."""
    box = Machine(bare_python, tmp_path, PIP_FIND_LINKS=str(wheels), PIP_NO_INDEX="1")
    (box.project / "tools" / "backend.py").write_text("")
    done = box.run("demo")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-3:] == [
        f"The command rtvi-sync is unavailable: rtvi-sync: could not be installed ({SAYS_WHY})",
        "arguments ['demo']",
        "Try next: .venv/bin/python -m rtvi_sync talk URL, with the URL of your bot",
    ]


@posix
@pytest.mark.parametrize(
    ("arguments", "begin", "end"),
    [
        (["demo", "--help"], "usage: python3 run.py demo ...", ".venv/bin/python -m rtvi_sync demo --help"),
        (["test", "tests/x.py", "-h"], "usage: python3 run.py test ...", ".venv/bin/python -m pytest --help"),
        (["lint", "--help"], "usage: python3 run.py lint ...", "can be reached"),
        (["sample", "--help"], "usage: python3 run.py sample NAME [--url URL] ...", "short  Say what was given."),
        (["sample", "short", "--help"], "Say what was given.", ".venv/bin/python -m samples.short --help"),
    ],
)
def test_help_installs_nothing(bare_python: Path, tmp_path: Path, arguments: list[str], begin: str, end: str) -> None:
    """The help of a command, and of a sample, is there at once, on a machine without pip and package index."""
    box = Machine(bare_python, tmp_path)
    done = box.run(*arguments)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"{begin}\n")
    assert done.stdout.endswith(f"{end}\n")
    assert {path.name for path in box.project.iterdir()} & {".venv", ".cache"} == set()


@posix
def test_a_sample_starts_with_what_it_needs(ready: Machine) -> None:
    """A file or a package of samples/ gets its packages, at the first start only, and all further arguments."""
    first = ready.run("sample", "short", "--url", "ws://127.0.0.1:1")
    again = ready.run("sample", "long", "--fail")
    demo = ready.run("demo")
    assert first.stdout.splitlines() == [
        "Installing the packages for samples",
        "arguments ['--url', 'ws://127.0.0.1:1']",
    ], first.stderr
    assert (again.returncode, again.stdout) == (7, "arguments ['--fail']\n")
    assert demo.stdout == f"arguments ['demo']\n{NEXT}\n"  # packages of one command stay installed for the other


@pytest.mark.matrix
@posix
def test_the_samples_are_listed(ready: Machine) -> None:
    """Without a name, or with an unknown one, each sample is listed with one line; nothing is set up."""
    listed = ready.run("sample")
    unknown = ready.run("sample", "shrot")
    lines = ["usage: python3 run.py sample NAME [--url URL] ...", ""]
    lines += ["  long   Say what was given.", "  short  Say what was given."]
    assert (listed.returncode, listed.stdout.splitlines()) == (0, lines)
    assert unknown.returncode == 2
    assert unknown.stderr.splitlines() == ["run.py: no such sample: shrot", "", *lines]


@pytest.mark.matrix
@posix
def test_what_ends_the_command_ends_the_sample(ready: Machine) -> None:
    """A SIGTERM to run.py also ends the process that it has started."""
    with subprocess.Popen(
        ready.command("sample", "short", "--wait"), cwd=ready.project, env=ready.environ, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        while b"arguments" not in line:
            line = process.stdout.readline()
        process.terminate()
        assert process.stdout.read() == b""  # the pipe ends when the last process that has it ends
    assert process.returncode == 128 + signal.SIGTERM


@pytest.mark.matrix
@posix
def test_the_demos_failure_is_the_exit_status(ready: Machine) -> None:
    """The command has the status of the demo."""
    assert ready.run("demo", "--fail").returncode == 7


@pytest.mark.matrix
@posix
@pytest.mark.skipif(sys.version_info[1] not in (11, 12, 13), reason="Pipecat does not run on this Python")
def test_the_demo_asks_the_local_bot(ready: Machine) -> None:
    """If it can be installed and starts, and no other bot is named; otherwise one line says why not.

    Only the sample installs the packages for WebRTC; where they cannot be installed, the bot is served without it.
    """
    folder = ready.project / "samples" / "local_bot"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "__main__.py").write_text(LOCAL_BOT)
    (folder / "questions.py").touch()
    (folder / "requirements-webrtc.txt").write_text("absent-aiortc\n")
    (folder / "requirements.txt").write_text("absent-pipecat\n")
    absent = ready.run("demo")
    (folder / "requirements.txt").write_text("# pins\nthrowaway==1.0\n")
    asked, named = ready.run("demo"), ready.run("demo", "--url=ws://127.0.0.1:1")
    process_id = (ready.project / "bot.pid").read_text()
    (folder / "__main__.py").write_text("raise SystemExit(3)")
    broken = ready.run("demo")
    served = ready.run("sample", "local_bot")
    (folder / "requirements-webrtc.txt").write_text("throwaway==1.0\n")
    with_webrtc = ready.run("sample", "local_bot")
    (folder / "questions.py").write_text("raise SystemExit(3)")
    mute = ready.run("demo")
    shutil.rmtree(folder)

    unavailable = "The local bot is unavailable, so the embedded bot answers: "
    assert absent.stdout.splitlines()[-3:] == [
        f"{unavailable}the local bot (0.6 GB): could not be installed ({SAYS_WHY})",
        "arguments ['demo']",
        NEXT,
    ], absent.stderr
    given = r"arguments \['demo', '--url', 'http://localhost:\d+', '--speech', '(.*)'\]"
    match = re.fullmatch(given, asked.stdout.splitlines()[-2])
    assert match, asked.stdout
    assert not Path(match[1]).parent.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(int(process_id), 0)
    assert asked.stdout.splitlines()[-1] == (
        "Try next: python3 run.py sample local_bot, and in another terminal .venv/bin/rtvi-sync talk http://localhost:7860"
    )
    assert named.stdout.splitlines() == [
        "arguments ['demo', '--url=ws://127.0.0.1:1']",
        "Try next: .venv/bin/rtvi-sync talk ws://127.0.0.1:1",
    ]
    assert f"{unavailable}it does not start; " in broken.stdout
    left_out = "The bot leaves its entry 'webrtc' out: the packages for webrtc (0.3 GB): could not be installed"
    assert f"{left_out} ({SAYS_WHY})" in served.stdout.splitlines()
    assert (served.returncode, with_webrtc.returncode, with_webrtc.stdout) == (3, 3, "")  # that it ends is the bot's
    assert f"{unavailable}espeak-ng does not speak here; " in mute.stdout
    assert [done.returncode for done in (absent, asked, named, broken, mute)] == [0] * 5


def unavailable_parts(done: subprocess.CompletedProcess[str]) -> list[str]:
    """Return the parts that were unavailable in a run of the tests."""
    return re.findall(r"^Unavailable, what needs it (?:fails|is skipped by name): (.*)$", done.stdout, re.MULTILINE)


@pytest.mark.matrix
@posix
def test_pytest_gets_its_arguments_untouched(ready: Machine) -> None:
    """The command's own options choose the markers; pytest gets everything else unchanged."""
    plain = ready.run("test", "tests/protocol", "-k", "not x")
    selected = "['-m', 'not real and not matrix', 'tests/protocol', '-k', 'not x']"
    assert plain.stdout.splitlines()[-1] == f"pytest {selected} None", plain.stderr


@pytest.mark.matrix
@posix
@pytest.mark.matrix  # it sets up all that a matrix needs
def test_a_matrix_ends_with_what_each_version_has_found(ready: Machine) -> None:
    """Pytest gets its arguments; the last lines are counts, skips by reason, the unavailable parts, and the sum."""
    script = ready.project / "run.py"
    whole = script.read_text(encoding="utf-8")
    one_of_each = re.sub(r"^(PYTHONS|PROTOBUFS|PEERS) = \((.*?),.*\)$", r"\1 = (\2,)", whole, flags=re.MULTILINE)
    assert one_of_each != whole
    script.write_text(one_of_each, encoding="utf-8")  # each version takes seconds
    matrix = ready.run("test", "-x", "--matrix", "--require", "--", "a")
    script.write_text(whole, encoding="utf-8")
    ran, counts, reason, *unavailable, total = matrix.stdout.splitlines()[-len(unavailable_parts(matrix)) - 4 :]
    assert ran == "pytest ['-m', '', '-x', '--', 'a'] 1"
    assert counts == f"Python 3.{sys.version_info[1]}, real parts and long runs: 3 passed, 0 failed, 2 skipped"
    assert reason == "  2 skipped: no such device"
    assert unavailable == [f"not tested: {line}" for line in unavailable_parts(matrix)]
    assert total == "3 passed, 0 failed"
    assert matrix.returncode == 1  # a part is unavailable, and required


@pytest.mark.matrix
@posix
def test_quick_selects_files_by_folder_and_content(ready: Machine) -> None:
    """Test files of pure modules run, in several processes by default; those that start a server do not."""
    for name, text in (("protocol/test_pure.py", ""), ("client/test_server.py", "EmbeddedBot"), ("life/test_x.py", "")):
        file = ready.project / "tests" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    plain, one_process = ready.run("test", "--quick"), ready.run("test", "-x", "--quick")
    shutil.rmtree(ready.project / "tests")
    selection, pure = ["-m", "not real and not matrix"], "tests/protocol/test_pure.py"
    assert plain.stdout.splitlines()[-1] == f"pytest {[*selection, *run.ALL_TESTS, pure]} None", plain.stderr
    assert one_process.stdout.splitlines()[-1] == f"pytest {[*selection, '-x', pure]} None", one_process.stderr


@pytest.mark.matrix
@posix
def test_coverage_is_judged_for_the_whole_suite(ready: Machine) -> None:
    """pytest runs under coverage, then the tests of each folder with a core module alone; too little coverage fails the
    whole suite, but not a selection of tests."""
    whole, selection, matrix = (ready.run("test", "--coverage", *more) for more in ((), ("tests/x",), ("--matrix",)))
    command = ["run", "-m", "pytest", "-m", "not real and not matrix"]
    report = "coverage ['report', '--skip-empty']"
    alone = ["run", "-m", "pytest", "-q", "-m", "not real and not matrix", *run.ALL_TESTS, "tests/core"]
    assert whole.stdout.splitlines()[-9:] == [
        f"coverage {[*command, *run.ALL_TESTS]}",
        report,
        "Coverage of rtvi_sync in percent, at least 90:",
        "coverage ['report', '--format=total', '--fail-under=90', '--include=rtvi_sync/*']",
        f"coverage {alone}",
        "Coverage of rtvi_sync/core/one.py by tests/core in percent, at least 95:",
        "coverage ['report', '--format=total', '--fail-under=95', '--include=rtvi_sync/core/one.py']",
        "Coverage of rtvi_sync/core/two.py by tests/core in percent, at least 80:",
        "coverage ['report', '--format=total', '--fail-under=80', '--include=rtvi_sync/core/two.py']",
    ], whole.stderr
    assert selection.stdout.splitlines()[-2:] == [f"coverage {[*command, 'tests/x']}", report]
    assert [done.returncode for done in (whole, selection, matrix)] == [2, 0, 1]
    assert matrix.stderr.splitlines()[-1] == "run.py: --coverage measures one Python: use it without --matrix"


def test_quick_covers_the_pure_packages() -> None:
    """Each pure or in-memory package has quick tests, and none of them starts a program or a bot."""
    files = run.quick_files()
    assert {"protocol", "concurrency", "client", "media"} <= {file.split("/")[1] for file in files}
    assert len(files) > 50
    assert not any(
        re.search(r"import (subprocess|multiprocessing)|EmbeddedBot", Path(file).read_text()) for file in files
    )


def test_the_check_of_a_change_runs_the_tests_that_are_near() -> None:
    """A changed module selects the tests of its name and the quick ones of its folder, a changed test file itself, a
    tool the tests that import it, a page the tests of the docs; a deleted file selects the ones that remain."""
    module = run.tests_of([Path("rtvi_sync/transports/websocket.py")])
    assert module[0] == "tests/transports/test_websocket.py"
    assert "tests/transports/test_base.py" in module
    assert "tests/transports/test_eval.py" not in module  # it starts servers
    assert run.tests_of([Path("rtvi_sync/transports/gone.py")]) == run.tests_of([Path("rtvi_sync/transports/base.py")])
    changed = [
        "tests/test_url.py",
        "tests/test_gone.py",
        "tests/conftest.py",
        "docs/guides/turns.md",
        "README.md",
        "run.py",
    ]
    near = ["tests/test_url.py", "tests/test_docs.py", "tests/test_run.py"]
    assert run.tests_of([*map(Path, changed)]) == near
    assert run.tests_of([Path("tools/results.py")]) == ["tests/test_run.py", "tests/test_results.py"]
    assert run.tests_of([Path("tools/soak/plot.py")]) == ["tests/behaviour/soak/test_soak.py"]


def test_a_check_takes_files_and_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are named from the current folder or from the project, and a folder stands for its Python files; a name of
    nothing, or of something elsewhere, is refused."""
    monkeypatch.chdir(ROOT / "tests")
    names = ["./test_url.py", "tests/test_url.py", str(ROOT / "run.py"), "../docs/guides/turns.md"]
    assert [path.as_posix() for path in run.named_files(names)] == [
        "tests/test_url.py",
        "run.py",
        "docs/guides/turns.md",
    ]
    assert Path("tests/mutants/session.py") in run.named_files(["mutants"])
    for wrong in ("test_gone.py", os.devnull):
        with pytest.raises(machine.SetupError, match=f"^{wrong} is not a file or folder of this project"):
            run.named_files([wrong])


def test_a_check_without_a_quick_test_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests of real parts are not run, which is no failure; mypy gets all files that it knows, and a failure counts."""
    statuses = {"pytest": run.NO_TESTS}
    words: dict[str, list[str]] = {}

    def run_command(command: list[str], *_: object, **__: object) -> int:
        words[command[2]] = command[3:]
        return statuses.get(command[2], 0)

    monkeypatch.setattr(run, "own_environment", lambda _: "python")
    monkeypatch.setattr(run, "run_command", run_command)
    sample = str(Path("samples/local_bot/__main__.py"))
    changed = [Path("tests/flask/test_page.py"), Path("run.py"), Path(sample), Path("tools/gone.py")]
    monkeypatch.setattr(run, "changed_files", lambda: changed)
    assert run.check([]) == 0
    assert words["mypy"] == [*map(str, changed[:-1])]
    assert words["pytest"][-2:] == ["tests/flask/test_page.py", "tests/test_run.py"]
    statuses["pytest"] = 1
    assert run.check([]) == 1


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_a_check_knows_what_is_gone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A renamed file has changed under both names, a new one under its own."""

    def git(*words: str) -> None:
        settings = ["-c", "user.name=test", "-c", "user.email=test@example.com", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", *settings, *words], cwd=tmp_path, capture_output=True, check=True, timeout=GUARD)

    (tmp_path / "old.py").write_text("text = 1\n")
    git("init")
    git("add", ".")
    git("commit", "-m", "old")
    git("mv", "old.py", "renamed.py")
    (tmp_path / "new.py").touch()
    monkeypatch.setattr(run, "ROOT", tmp_path)
    assert run.changed_files() == [Path("old.py"), Path("renamed.py"), Path("new.py")]


@pytest.mark.matrix
@posix
def test_setup_runs_nothing(ready: Machine) -> None:
    """The set-up alone makes the environments, names the unavailable parts, and succeeds."""
    done = ready.run("setup", "--real")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "Unavailable: Pipecat 1.14.0: " in done.stdout
    assert not [line for line in lines if line.startswith(("arguments", "pytest", "ruff"))]


@pytest.mark.matrix
@posix
def test_a_real_part_that_cannot_be_had_is_one_line_and_fails_when_required(ready: Machine) -> None:
    """Every missing part is named, the tests still run, and only `--require` fails the run."""
    plain = ready.run("test", "--real")
    required = ready.run("test", "--real", "--require")
    assert [line.partition(":")[0] for line in unavailable_parts(plain)] == [
        *run.PROGRAMS,
        *(f"Pipecat {version}" for version in run.PIPECAT),
        "local bot",
        "PyAudio",
        "sounddevice",
        "OpenCV",
    ]
    assert plain.returncode == 0
    assert plain.stdout.splitlines()[-1] == f"pytest {['-m', 'not matrix', *run.ALL_TESTS]} None"
    assert required.returncode == 1
    assert required.stdout.splitlines()[-1] == f"pytest {['-m', 'not matrix', *run.ALL_TESTS]} 1"


@pytest.mark.matrix
@posix
def test_devices_are_looked_for_in_each_run(ready: Machine, tmp_path: Path) -> None:
    """Without a compiler the tests run; the extras for devices are installed later, if possible, and must load."""
    make_wheel(tmp_path, "absent_audio", "1.0", {"pyaudio.py": b""})
    make_wheel(tmp_path, "absent_video", "1.0", {"cv2.py": b"raise ImportError('libGL.so.1: cannot open')"})
    wheels = f"{ready.environ['PIP_FIND_LINKS']} {tmp_path}"
    runs = [ready.run("test"), ready.run("test", PIP_FIND_LINKS=wheels), ready.run("test")]
    log = ready.log
    remove = [str(ready.project / ".venv" / machine.VENV_PYTHON), "-m", "pip", "uninstall", "-y", "absent_audio"]
    subprocess.run(remove, env=ready.environ, capture_output=True, check=True, timeout=GUARD)

    skipped = "Unavailable, what needs it is skipped by name: "
    audio = skipped + "PyAudio: cannot be built here (needs gcc and portaudio19-dev)"
    video = skipped + "OpenCV: cannot be installed here (needs opencv-python, libgl1 and libglib2.0-0)"
    unavailable = [[line for line in done.stdout.splitlines() if line.startswith(skipped)] for done in runs]
    hint = "needs libportaudio2; if audio hangs, see docs/guides/no-sound.md"
    other = f"{skipped}sounddevice: cannot be used here ({hint})"
    assert unavailable == [[audio, other, video], [other, video], [other, video]]
    assert [done.returncode for done in runs] == [0, 0, 0]
    assert "libGL.so.1" in log


@posix
def test_devices_whose_library_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PortAudio may, on import: its extra is unavailable then, and the set-up goes on."""
    (tmp_path / "sounddevice.py").write_text("import threading; threading.Event().wait()")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(machine, "CACHE", tmp_path)
    monkeypatch.setattr(machine, "LOG", tmp_path / "log")
    monkeypatch.setattr(run, "DEVICE_SECONDS", 0.5)
    assert run.has_devices(Path(sys.executable), "sounddevice") is False
    assert "timed out" in (tmp_path / "log").read_text()


@pytest.mark.matrix
@posix
def test_lint_tools_that_cannot_be_had_do_not_stop_the_tests(ready: Machine) -> None:
    """Without the lint tools the tests run, and one line names the skipped ones."""
    file = ready.project / "pyproject.toml"
    file.write_text(PYPROJECT.replace("throwaway-linters", "absent-linter"))
    done = ready.run("test")
    file.write_text(PYPROJECT)
    assert done.returncode == 0
    assert f"by name: the packages for lint: could not be installed ({SAYS_WHY})" in done.stdout
    assert "absent-linter" in ready.log


@pytest.mark.matrix
@posix
def test_pyright_that_cannot_be_had_is_one_line_and_fails_when_required(ready: Machine) -> None:
    """Without pyright all other checks run, and only `--require` makes that a failure."""
    file = ready.project / "pyproject.toml"
    whole = ready.run("lint", "--fix")
    file.write_text(PYPROJECT.replace("pyright = []", 'pyright = ["absent-pyright"]'))
    plain = ready.run("lint")
    required = ready.run("lint", "--require")
    file.write_text(PYPROJECT)
    checks = [line.partition(" [")[0] for line in whole.stdout.splitlines() if not line.startswith("Installing")]
    expected = "ruff ruff mypy pyright pyright contracts pytest bandit codespell_lib tools.audit"
    assert " ".join(checks) == expected, whole.stderr
    assert "ruff ['check', '--fix']" in whole.stdout
    assert [done.returncode for done in (whole, plain, required)] == [0, 0, 1]
    line = "NOT CHECKED by pyright, which is unavailable: the packages for pyright: could not be installed"
    assert f"{line} ({SAYS_WHY})" in plain.stdout.splitlines()
    assert [line for line in plain.stdout.splitlines() if line.startswith("pyright")] == []


@pytest.mark.matrix
@posix
def test_changed_requirements_are_installed(ready: Machine) -> None:
    """A new requirement in pyproject.toml is installed; other changes of the file have no effect."""
    file = ready.project / "pyproject.toml"
    file.write_text(PYPROJECT.replace("throwaway>=1", "throwaway>=2") + "[tool.other]\nkey = 1\n")
    failed = ready.run("demo")
    file.write_text(PYPROJECT + "[tool.other]\nkey = 1\n")
    mended = ready.run("demo")
    assert failed.returncode == 1
    assert failed.stderr.splitlines()[-1] == f"run.py: the packages for cli: could not be installed ({SAYS_WHY})"
    assert "throwaway>=2" in failed.stderr
    assert mended.stdout == f"arguments ['demo']\n{NEXT}\n"


@pytest.mark.matrix
@posix
def test_an_environment_of_a_python_that_is_gone_is_replaced(ready: Machine) -> None:
    """An environment of a Python that does not start any more is made again."""
    stamp = ready.project / ".venv" / environments.STAMP
    facts = json.loads(stamp.read_text())
    stamp.write_text(json.dumps({**facts, "base": "another Python"}))
    left_over = ready.project / ".venv" / "left over"
    left_over.touch()
    done = ready.run("demo")
    assert done.stdout.splitlines()[0] == "Making .venv"
    assert not left_over.exists()
    assert json.loads(stamp.read_text())["base"] == facts["base"]


@pytest.mark.matrix
@posix
def test_an_environment_of_another_python_is_left_alone(ready: Machine, tmp_path: Path) -> None:
    """Another Python of this machine may be using `.venv`: this one gets an environment beside it."""
    another = make_python(tmp_path / "python 3.99")
    stamp = ready.project / ".venv" / environments.STAMP
    facts = stamp.read_text()
    theirs = json.dumps({**json.loads(facts), "base": f"{another}\n3.99"})
    stamp.write_text(theirs)
    first, again = ready.run("demo"), ready.run("demo")
    assert stamp.read_text() == theirs
    stamp.write_text(facts)
    mine = Path(".cache", f"venv-3.{sys.version_info[1]}")
    assert first.stdout.splitlines()[0] == f"Making {mine}", first.stderr
    assert again.stdout.splitlines() == ["arguments ['demo']", NEXT.replace(".venv", str(mine))]
    shutil.rmtree(ready.project / mine)


@posix
def test_of_two_pythons_at_once_one_gets_the_usual_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Python that waits for the lock finds that another one has taken the folder, which it does not empty."""
    for name, folder in (("ROOT", tmp_path), ("CACHE", tmp_path / ".cache")):
        monkeypatch.setattr(environments, name, folder)
    another = make_python(tmp_path / "python")
    taken = tmp_path / ".venv" / "taken"

    @contextlib.contextmanager
    def lock_of_another(folder: Path) -> Iterator[None]:
        environments.clear_folder(folder, f"{another}\n3.99")
        taken.touch()
        yield

    monkeypatch.setattr(environments, "lock_of", lock_of_another)
    assert environments.claim_own_folder() == tmp_path / ".cache" / f"venv-3.{sys.version_info[1]}"
    assert taken.exists()


def make_python(path: Path) -> Path:
    """Make a program that says it is another Python."""
    path.write_text('#!/bin/sh\necho "$0"\necho 3.99\n')
    path.chmod(0o755)
    return path


@pytest.mark.matrix
@posix
def test_of_two_at_once_the_second_waits_and_says_so(
    bare_python: Path, held: tuple[HeldIndex, str], tmp_path: Path
) -> None:
    """The second prints which process it waits for, and why; then both run."""
    index, address = held
    box = Machine(bare_python, tmp_path, PIP_INDEX_URL=address)
    with box.start("demo", "first") as first, contextlib.ExitStack() as stack:
        stack.callback(index.release)
        assert index.asked.wait(300)
        second = stack.enter_context(box.start("demo", "second"))
        assert second.stdout is not None
        waits = second.stdout.readline()
        index.release()
        lines = second.stdout.read().splitlines()
        ran, problems = first.communicate()
        # Which of the two installs the project itself is open.
        each = [
            [line for line in told if "rtvi-sync" not in line and "Waiting" not in line]
            for told in (lines, ran.splitlines())
        ]
    assert each == [
        ["arguments ['demo', 'second']"],
        ["Making .venv", "Installing the packages for cli", "arguments ['demo', 'first']"],
    ]
    assert problems == ""
    assert waits == f"Waiting for another run.py (process {first.pid}), which sets up .venv\n"
    assert (first.returncode, second.returncode) == (0, 0)


# Runs one of these functions as a command of run.py; another process holds the lock.
INTERRUPTED = """
import os, signal, subprocess, sys, threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
import run
from tools import machine

lock, moment, number = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
PROGRAM = [sys.executable, "-c", "import threading; threading.Event().wait(60); print('survived')"]
THAT_INTERRUPTS = [*PROGRAM[:2], f"import os; os.kill(os.getppid(), {number}); {PROGRAM[2]}"]

def wait_for_lock():
    with machine.locked(lock, "it"):
        pass

def run_in_pool(function, *arguments):
    with ThreadPoolExecutor() as pool:
        return pool.submit(function, *arguments).result()

def thread_waits_for_lock():
    say = machine.print_step
    machine.print_step = lambda line: (say(line), os.kill(os.getpid(), number))
    run_in_pool(wait_for_lock)

def no_thread_is_woken():
    main = threading.main_thread().ident
    def send_signal():
        while sys._current_frames()[main].f_code is not threading.Condition.wait.__code__:
            pass
        signal.pthread_kill(threading.get_ident(), number)
        wait_for_lock()

    with ThreadPoolExecutor(1) as pool:
        pool.submit(int).result()  # the main thread does not wait for a thread's start any more
        pool.submit(send_signal).result()

def lock_is_being_taken():
    enter = threading.Condition.__enter__
    def interrupted(condition):
        entered = enter(condition)
        if sys._getframe(1).f_code.co_name == "result":
            os.kill(os.getpid(), number)
        return entered

    threading.Condition.__enter__ = interrupted
    run_in_pool(wait_for_lock)

def program_runs_in_pool():
    run_in_pool(machine.run_quietly, THAT_INTERRUPTS)

def program_begins():
    execute = subprocess.Popen._execute_child
    def interrupted(*arguments):
        execute(*arguments)
        os.kill(os.getpid(), number)

    subprocess.Popen._execute_child = interrupted
    machine.run_quietly(PROGRAM)

run.COMMANDS["soak"] = lambda _: globals()[moment]()
machine.CACHE = run.CACHE = lock.parent
machine.LOG = run.LOG = Path("/dev/stderr")
sys.exit(run.main(["soak"]))
"""


@pytest.mark.matrix
@posix
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize(
    "moment",
    ["thread_waits_for_lock", "no_thread_is_woken", "lock_is_being_taken", "program_runs_in_pool", "program_begins"],
)
def test_a_signal_ends_a_run_at_any_moment(tmp_path: Path, moment: str, number: int, status: int) -> None:
    """All programs end with run.py, without a traceback, and no thread keeps waiting for a lock."""
    lock = tmp_path / "it.lock"
    with machine.locked(lock, "it"):
        command = [sys.executable, "-c", INTERRUPTED, str(lock), moment, str(int(number))]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            try:
                output, errors = process.communicate(timeout=GUARD)  # until the last program ends
            finally:
                process.kill()
    assert process.returncode == status, errors
    assert output in ("", f"Waiting for another run.py (process {os.getpid()}), which sets up it\n")
    assert [line for line in errors.splitlines() if not line.startswith("$ ")] == []  # in the log: only commands


@pytest.mark.matrix
@posix
def test_ctrl_c_during_the_imports_of_run_py() -> None:
    """The process ends as programs without a handler do, without a traceback."""
    program = """
import os, runpy, signal, sys

class Interrupting:
    def find_spec(self, name, *_):
        if name == "tools.machine":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
runpy.run_path("run.py", run_name="__main__")
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=GUARD)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")


@pytest.mark.matrix
@posix
@pytest.mark.parametrize("pip_survives", [True, False])
def test_what_a_killed_run_leaves_is_made_again(
    bare_python: Path, held: tuple[HeldIndex, str], tmp_path: Path, pip_survives: bool
) -> None:
    """After a kill during the installation the next run waits for the surviving pip, then starts again."""
    index, address = held
    box = Machine(bare_python, tmp_path, PIP_INDEX_URL=address)
    with box.start("demo") as killed, contextlib.ExitStack() as stack:
        assert index.asked.wait(300)
        if pip_survives:
            killed.kill()
        else:
            os.killpg(killed.pid, signal.SIGKILL)
        killed.wait()
        second = stack.enter_context(box.start("demo"))
        assert second.stdout is not None
        first_line = second.stdout.readline()
        index.release()
        lines = [first_line, *second.stdout]
    if pip_survives:
        assert lines.pop(0).startswith("Waiting for another run.py (process ")
    assert "".join(lines).splitlines() == FIRST_DEMO
    assert second.returncode == 0


@pytest.mark.matrix
@posix
@pytest.mark.parametrize("damage", ["python is gone", "python does not start", "packages are gone"])
def test_a_damaged_environment_is_made_again(ready: Machine, damage: str) -> None:
    """The next run makes it again."""
    python = ready.project / ".venv" / machine.VENV_PYTHON
    if damage == "packages are gone":
        (packages,) = ready.project.glob(".venv/lib/python3.*/site-packages")
        shutil.rmtree(packages)
    else:
        python.unlink()
    if damage == "python does not start":
        python.write_text("#!/bin/sh\nexit 1\n")
        python.chmod(0o755)
    done = ready.run("demo")
    assert done.stdout.splitlines() == FIRST_DEMO
    assert done.returncode == 0


@pytest.mark.matrix
@posix
def test_a_file_that_is_gone_is_named_and_comes_back(ready: Machine) -> None:
    """If a command fails and a file of a package is missing, a line says so, and the next run reinstalls all."""
    (module,) = ready.project.glob(".venv/lib/python3.*/site-packages/throwaway.py")
    module.unlink()
    failed, repaired = ready.run("demo"), ready.run("demo")
    folder = ready.project / ".venv"
    line = f"run.py: {folder} is damaged: throwaway.py is missing or cut short. The next run makes it again"
    assert (failed.returncode, failed.stderr.splitlines()[-1]) == (1, line)
    assert repaired.stdout.splitlines() == FIRST_DEMO


def obey_permissions() -> None:
    """Drop root's capability to ignore permissions, in a child process."""
    if sys.platform == "linux":
        for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
            ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP


@pytest.fixture
def read_only() -> Iterator[Callable[[Path], None]]:
    """Return a function that makes a folder and its content read-only until the end of the test."""
    modes: dict[Path, int] = {}

    def protect(folder: Path) -> None:
        for path in (folder, *folder.rglob("*")):
            if not path.is_symlink():
                modes[path] = path.stat().st_mode
                path.chmod(modes[path] & ~0o222)

    yield protect
    for path, mode in modes.items():
        path.chmod(mode)


@pytest.mark.matrix
@posix
def test_a_folder_that_cannot_be_written_is_one_line_with_the_cure(
    ready: Machine, bare_python: Path, tmp_path: Path, read_only: Callable[[Path], None]
) -> None:
    """A folder that cannot be written is one line with the cure; if all is set up already, the demo runs."""
    box = Machine(bare_python, tmp_path)
    read_only(box.project)
    read_only(ready.project)
    fresh, again = (
        subprocess.run(
            some.command("demo"),
            cwd=some.project,
            env=some.environ,
            preexec_fn=obey_permissions,
            capture_output=True,
            text=True,
            timeout=GUARD,
        )
        for some in (box, ready)
    )
    cure = "Copy this folder to a place that you can write to, and run it there"
    assert (fresh.returncode, fresh.stdout) == (1, "")
    assert fresh.stderr == f"run.py: Permission denied: {box.project / '.cache'}. {cure}\n"
    assert (again.returncode, again.stdout, again.stderr) == (0, f"arguments ['demo']\n{NEXT}\n", "")


@pytest.mark.matrix
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is always full")
def test_a_full_disk_is_one_line_with_the_cure(bare_python: Path, tmp_path: Path) -> None:
    """The line is the same if run.py itself has no space, and if a program that it started has none."""
    cure = "No space left on device{}. Free some space and run the command again"
    box = Machine(bare_python, tmp_path)
    log = box.project / ".cache" / "setup.log"
    log.parent.mkdir()
    log.symlink_to("/dev/full")
    own = box.run("demo")
    assert (own.returncode, own.stderr) == (1, f"run.py: {cure.format('')}\n")
    log.unlink()
    uv = tmp_path / "nothing" / "uv"
    uv.write_text("#!/bin/sh\necho 'error: No space left on device (os error 28)' >&2\nexit 2\n")
    uv.chmod(0o755)
    theirs = box.run("demo")
    assert (theirs.returncode, theirs.stderr.splitlines()[-1]) == (1, f"run.py: {cure.format(f': {box.project}')}")


@pytest.mark.parametrize(
    ("lines", "cause"),
    [
        (["error: No space left on device (os error 28)", *["another installation"] * 100], "No space left on device"),
        (["error: no such package"], SAYS_WHY),
    ],
)
def test_a_failed_installation_has_its_cause(
    lines: list[str], cause: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk is named, also where the other parts of a command go on; for the rest the log file is named."""
    monkeypatch.setattr(machine, "ROOT", tmp_path)
    monkeypatch.setattr(machine, "LOG", tmp_path / ".cache" / "setup.log")
    machine.LOG.parent.mkdir()
    machine.LOG.write_text("\n".join(lines), encoding="utf-8")
    assert str(machine.not_installed("the bot")) == f"the bot: could not be installed ({cause})"


@posix
def test_ctrl_c_ends_the_demo_cleanly(ready: Machine) -> None:
    """After Ctrl-C the demo closes its session, and the status is 130, without a traceback."""
    with ready.start("demo", "--wait") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "arguments ['demo', '--wait']\n"
        os.killpg(process.pid, signal.SIGINT)
        # communicate() would miss the bytes that readline() has buffered beyond the line.
        assert process.stderr is not None
        output, errors = process.stdout.read(), process.stderr.read()
    assert (process.returncode, output, errors) == (130, "ended its session\n", "")


@pytest.mark.matrix
@posix
def test_an_environment_that_the_user_made_is_left_alone(bare_python: Path, wheels: Path, tmp_path: Path) -> None:
    """A `.venv` that run.py did not make is not changed, and the environment is made elsewhere."""
    box = Machine(bare_python, tmp_path, PIP_FIND_LINKS=str(wheels), PIP_NO_INDEX="1")
    theirs = box.project / ".venv" / "theirs"
    theirs.parent.mkdir()
    theirs.touch()
    done = box.run("demo")
    assert done.stdout.splitlines()[0] == f"Making {Path('.cache', f'venv-3.{sys.version_info[1]}')}", done.stderr
    assert list(theirs.parent.iterdir()) == [theirs]


@pytest.mark.matrix
@posix
def test_packages_of_the_shell_are_not_those_of_the_environment(
    bare_python: Path, wheels: Path, tmp_path: Path
) -> None:
    """The packages on `PYTHONPATH` are still installed, for shells without it."""
    box = Machine(bare_python, tmp_path, PIP_FIND_LINKS=str(wheels), PIP_NO_INDEX="1")
    elsewhere = tmp_path / "elsewhere"
    with zipfile.ZipFile(next(wheels.glob("throwaway-*.whl"))) as archive:
        archive.extractall(elsewhere)
    done = box.run("demo", PYTHONPATH=str(elsewhere))
    assert done.returncode == 0, done.stderr
    assert list((box.project / ".venv").rglob("throwaway.py"))


@pytest.mark.matrix
@posix
def test_pip_comes_from_the_configured_index(bare_python: Path, index: str, tmp_path: Path) -> None:
    """Without any pip its wheel is downloaded from the index of pip's settings, with its login."""
    box = Machine(bare_python, tmp_path)
    settings = tmp_path / "pip.conf"
    settings.write_text(f"[global]\nindex_url = {index}\n")
    done = box.run("demo", PIP_CONFIG_FILE=str(settings))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-2] == "arguments ['demo']"
    assert [wheel.name for wheel in (box.project / ".cache" / "pip").iterdir()] == [
        f"pip-{metadata.version('pip')}-py3-none-any.whl"
    ]


# Replaces uv: installs by pip, and leaves its arguments and settings.
UV = b"""#!python
import os, pathlib, subprocess, sys
if sys.argv[1] != "pip":
    sys.exit(2)
told = [sys.argv[1], *sorted(f"{name}={value}" for name, value in os.environ.items() if name.startswith("UV_"))]
pathlib.Path("told.txt").write_text("\\n".join(told))
command = [sys.argv[4], "-m", "pip", "install", *sys.argv[5:]]
sys.exit(subprocess.run(command, env={**os.environ, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "wheels"}).returncode)
"""


@pytest.mark.matrix
@posix
def test_uv_is_fetched_by_pip_and_takes_its_place(bare_python: Path, wheels: Path, tmp_path: Path) -> None:
    """pip's settings say where the fetched uv is from, and uv gets those settings."""
    box = Machine(bare_python, tmp_path, PIP_FIND_LINKS=f"{wheels} {tmp_path / 'more'}", PIP_NO_INDEX="1")
    (tmp_path / "wheels").symlink_to(wheels)
    (tmp_path / "more").mkdir()
    make_wheel(tmp_path / "more", "uv", "1.0", {"uv-1.0.data/scripts/uv": UV})
    done = box.run("demo")
    assert done.stdout.splitlines() == FIRST_DEMO, done.stderr
    assert (tmp_path / "told.txt").read_text().splitlines() == [
        "pip",
        f"UV_FIND_LINKS={wheels},{tmp_path / 'more'}",
        "UV_INDEX_STRATEGY=unsafe-best-match",
        "UV_NO_INDEX=1",
        "UV_PYTHON_DOWNLOADS=never",
    ]
    assert "--prefer-binary" not in box.log


@posix
@pytest.mark.parametrize(
    ("variables", "told"),
    [
        (
            {"PIP_INDEX_URL": "https://a:b@index.invalid/simple", "PIP_EXTRA_INDEX_URL": "file:///one\nfile:///two"},
            "https://a:b@index.invalid/simple file:///one file:///two",
        ),
        ({"PIP_INDEX_URL": "", "PIP_QUIET": "1", "UV_DEFAULT_INDEX": "https://own.invalid"}, "https://own.invalid "),
        ({"PIP_INDEX_URL": "https://index.invalid", "UV_DEFAULT_INDEX": "https://own.invalid"}, "https://own.invalid "),
        ({"PIP_ONLY_BINARY": ":all:"}, None),
    ],
)
def test_uv_gets_pips_settings_or_is_not_used(
    variables: dict[str, str], told: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user's own settings of uv take precedence; with a setting of pip that uv has no name for, pip does the
    work."""
    for name in [name for name in os.environ if name.startswith(("PIP_", "UV_"))]:
        monkeypatch.delenv(name)
    for name, value in {"PIP_CONFIG_FILE": os.devnull, "PATH": f"{tmp_path}:{os.defpath}", **variables}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(machine, "CACHE", tmp_path)
    monkeypatch.setattr(machine, "LOG", tmp_path / "log")
    uv = tmp_path / "uv"
    uv.write_text(f'#!/bin/sh\necho "$UV_DEFAULT_INDEX $UV_INDEX" > {tmp_path}/told.txt\n')
    uv.chmod(0o755)
    assert machine.run_uv(sys.executable, "pip", "install", "it", seconds=GUARD) is (told is not None)
    assert (tmp_path / "told.txt").exists() is (told is not None)
    assert told is None or (tmp_path / "told.txt").read_text() == f"{told}\n"
    assert "index.invalid" not in machine.LOG.read_text()  # an address may contain a password


@pytest.mark.matrix
@posix
@pytest.mark.parametrize("index", [True], indirect=True)
def test_a_wheel_with_a_wrong_hash_is_refused(bare_python: Path, index: str, tmp_path: Path) -> None:
    """A pip whose bytes do not match the index's hash is not run."""
    box = Machine(bare_python, tmp_path, PIP_INDEX_URL=index)
    done = box.run("demo")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("run.py: no pip was found: install it")
    assert "does not have the hash" in box.log
    assert not list((box.project / ".cache").glob("pip/*"))


@pytest.mark.matrix
@posix
def test_without_any_pip_one_line_says_what_to_install(bare_python: Path, tmp_path: Path) -> None:
    """Without pip and index the last line names the packages to install, and the next run tries again."""
    box = Machine(bare_python, tmp_path)
    for _ in range(2):
        done = box.run("demo")
        assert done.returncode == 1
        assert done.stdout == "Making .venv\n"
        assert done.stderr.splitlines()[-1] == (
            "run.py: no pip was found: install it (apt install python3-pip) or set PIP_INDEX_URL to a package index"
        )


def test_an_index_without_tls_is_not_used() -> None:
    """pip is downloaded from another machine with TLS only, and the error does not show the password."""
    with pytest.raises(ValueError, match=r"^not a secure address: http://index\.invalid$"):
        machine.fetch("http://user:secret@index.invalid/simple/pip/", None)


@pytest.mark.matrix
def test_with_venv_the_environment_is_an_ordinary_one(wheels: Path, tmp_path: Path) -> None:
    """If `python -m venv` works, it is used."""
    pytest.importorskip("ensurepip")
    box = Machine(Path(machine.BASE), tmp_path, PIP_FIND_LINKS=str(wheels), PIP_NO_INDEX="1")
    done = box.run("demo")
    assert done.returncode == 0, done.stderr
    assert "-m venv" in box.log
    assert "--no-deps" not in box.log


def test_pythons_of_another_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of Pythons that this user cannot read is ignored."""

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "glob", refuse)
    assert next(iter(machine.interpreters())) == machine.BASE
    assert len(list(machine.interpreters())) >= 1
