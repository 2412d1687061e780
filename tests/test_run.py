"""`run.py` for real: a small project, a Python that has neither venv nor pip, and no package index but our own."""

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

PYPROJECT = """
[project]
name = "rtvi_sync"
dependencies = ["throwaway>=1"]
[project.optional-dependencies]
testing = ["throwaway-testing"]
cli = []
resample = []
screen = []
speed = []
locust = []
audio = ["absent-audio"]
video = ["absent-video"]
[dependency-groups]
soak = []
bench = []
samples = ["throwaway-samples"]
test = ["pytest"]
peer-websockets = []
lint = ["throwaway-linters"]
pyright = []
"""

# Stands for the package: says what it was given, and ends as it is told to.
PACKAGE = """
import sys, threading, throwaway, throwaway_testing
try:
    print("arguments", sys.argv[1:], flush=True)
    if "--wait" in sys.argv:
        threading.Event().wait(60)
except KeyboardInterrupt:
    print("ended its session", flush=True)
sys.exit(7 if "--fail" in sys.argv else 0)
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

# Stands for every tool that looks at the source: says what it was given.
LINTER = "import sys; print(__spec__.name, sys.argv[1:], flush=True)"
LINTERS = {
    **{f"{name}.py": LINTER.encode() for name in ("ruff", "mypy", "bandit", "pyright")},
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
            archive.writestr(path, data)
    return wheel


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all that the small project needs, pip itself among it, made from the pip of this environment."""
    folder = tmp_path_factory.mktemp("wheels")
    for name in ("throwaway", "throwaway_testing", "throwaway_samples"):
        make_wheel(folder, name, "1.0", {f"{name}.py": b""})
    make_wheel(folder, "pytest", "1.0", {"pytest.py": PYTEST.encode()})
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
    """A real Python without venv, ensurepip and pip: a copy of this one's binary beside the rest of its library."""
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
    """A small project with the real run.py, to which the one fixed place outside of the environment is hidden."""
    shutil.copy(ROOT / "run.py", folder)
    (folder / "tools").mkdir()
    for name in ("__init__.py", "environments.py", "results.py"):
        shutil.copy(ROOT / "tools" / name, folder / "tools")
    source = (ROOT / "tools" / "machine.py").read_text(encoding="utf-8")
    assert source.count('"/usr/share/python-wheels"') == 1
    hidden = source.replace('"/usr/share/python-wheels"', '"/nonexistent"')
    (folder / "tools" / "machine.py").write_text(hidden, encoding="utf-8")
    (folder / "tools" / "audit.py").write_text(LINTER)
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
    """An environment in which nothing else of this machine is found: no program, no Python, no settings of pip."""
    (home / "nothing").mkdir(exist_ok=True)
    kept = {name: value for name, value in os.environ.items() if name in ("SYSTEMROOT", "TEMP", "TMPDIR", "LANG")}
    own = {"PATH": str(home / "nothing"), "HOME": str(home), "PYENV_ROOT": str(home), "PIP_CONFIG_FILE": os.devnull}
    return {**kept, **own, **variables}


class Machine:
    """The small project on a machine of its own."""

    def __init__(self, python: Path, folder: Path, **variables: str) -> None:
        self.python = python
        self.project = new_project(folder)
        self.environ = poor_environ(folder, **variables)

    def command(self, *arguments: str) -> list[str]:
        return [str(self.python), str(self.project / "run.py"), *arguments]

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
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
        environ = {**self.environ, **variables}
        command = self.command(*arguments)
        return subprocess.run(command, cwd=self.project, env=environ, capture_output=True, text=True, timeout=4 * GUARD)

    @property
    def log(self) -> str:
        return (self.project / ".cache" / "setup.log").read_text()


@pytest.fixture(scope="module")
def ready(bare_python: Path, wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """A machine with nothing but a bare Python and a folder of wheels, on which the set-up has been done once."""
    box = Machine(bare_python, tmp_path_factory.mktemp("ready"), PIP_FIND_LINKS=str(wheels), PIP_NO_INDEX="1")
    first = box.run("demo", "--url", "http://127.0.0.1:7860/connect")
    assert first.returncode == 0, first.stderr
    assert first.stdout.splitlines() == [
        "Making .venv",
        "Installing the packages for cli",
        "arguments ['demo', '--url', 'http://127.0.0.1:7860/connect']",
    ]
    return box


class Index(BaseHTTPRequestHandler):
    """A package index of the simple kind that wants a name and a password."""

    folder: Path
    wrong_hash = False
    on_request: Callable[[str], object] = staticmethod(lambda _path: None)

    def do_GET(self) -> None:
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
        return self.folder / self.path.rpartition("/")[2]

    def page(self) -> bytes:
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
    """The address of an index, name and password in it; a parameter tells whether its hashes are wrong."""
    with serving({"folder": wheels, "wrong_hash": getattr(request, "param", False)}) as address:
        yield address


@contextlib.contextmanager
def serving(fields: Mapping[str, object]) -> Iterator[str]:
    """Serve an index with these class attributes; its address."""
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
    """An index whose answers about one package are held back until `release()`."""

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
    """An index that holds back the first package of the small project, and its address."""
    index = HeldIndex("/throwaway", wheels)
    with serving(index.fields) as address:
        try:
            yield index, address
        finally:
            index.release()


def test_without_arguments_the_commands_are_shown() -> None:
    """No argument at all prints every command and succeeds."""
    done = subprocess.run([sys.executable, ROOT / "run.py"], capture_output=True, text=True, timeout=GUARD)
    assert done.returncode == 0
    assert all(f"\n  {command} " in done.stdout for command in run.COMMANDS)


def test_an_unknown_command_is_refused() -> None:
    """A command that is not there is named, and the exit status is that of a wrong call."""
    done = subprocess.run([sys.executable, ROOT / "run.py", "dmeo"], capture_output=True, text=True, timeout=GUARD)
    assert done.returncode == 2
    assert done.stderr.startswith("run.py: no such command: dmeo\n")


def test_an_older_python_is_refused_in_one_line() -> None:
    """Under an older version the script says so in one line, before it asks for anything that version lacks."""
    source = (ROOT / "run.py").read_text(encoding="utf-8")
    ast.parse(source, feature_version=(3, 6))
    older = "import sys; sys.version_info = (3, 8, 10); sys.path.clear(); sys.meta_path.clear(); exec(sys.argv[1], {})"
    done = subprocess.run([sys.executable, "-c", older, source], capture_output=True, text=True, timeout=GUARD)
    assert done.returncode == 1
    assert done.stderr == f"run.py needs Python 3.10 or newer, and {sys.executable} is 3.8\n"


def test_a_python_without_its_whole_library_is_refused_in_one_line() -> None:
    """Where a part of the standard library is missing, one line says which and what to do."""
    without = "import sys; sys.modules['json'] = None; sys.path.insert(0, sys.argv[1]); import run"
    done = subprocess.run([sys.executable, "-c", without, ROOT], capture_output=True, text=True, timeout=GUARD)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "json" in done.stderr
    assert "apt install python3" in done.stderr


def test_requirements_come_from_the_named_tables_alone() -> None:
    """The package's own requirements come first, then those of the named extras and groups, and no others."""
    project = {
        "project": {"dependencies": ["a>=1"], "optional-dependencies": {"testing": ["b"], "audio": ["c"]}},
        "dependency-groups": {"test": ["d", "e<2"], "lint": ["f"]},
    }
    assert environments.requirements_of(project, ("testing", "test")) == ["a>=1", "b", "d", "e<2"]


def test_the_projects_own_file_has_every_part() -> None:
    """Each part that a command names is a table of pyproject.toml, and each later command needs more than the last."""
    project = json.loads(machine.ask(sys.executable, "-c", environments.READ_TOML, ROOT / "pyproject.toml"))
    each = (run.DEMO_PARTS, run.SOAK_PARTS, run.TEST_PARTS, run.LINT_PARTS, run.PYRIGHT_PARTS)
    needs = [set(environments.requirements_of(project, parts)) for parts in each]
    assert all(less < more for less, more in itertools.pairwise(needs))


def test_the_stamp_keeps_what_other_commands_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment remembers the packages of every command, and of each package only the latest requirement."""
    monkeypatch.setattr(environments, "quiet", lambda *_: True)
    monkeypatch.setattr(environments, "CACHE", tmp_path)
    (tmp_path / "bin").mkdir()
    environments.write_stamp(tmp_path, "this one", [])
    for requirements in (["a>=1", "B_c[x]<2"], ["d", "b-c>=2"]):
        environments.install(tmp_path / "bin" / "python", requirements, "it")
    assert environments.read_stamp(tmp_path) == {"base": "this one", "installed": ["d", "b-c>=2", "a>=1"]}


@posix
@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """One run works there as well: the block is entered, and the log has the reason."""

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
def test_without_venv_and_pip_a_second_run_installs_nothing(ready: Machine) -> None:
    """Once set up, a machine without venv, pip or any program on its path runs the demo at once."""
    again = ready.run("demo", "a b")
    assert (again.returncode, again.stdout, again.stderr) == (0, "arguments ['demo', 'a b']\n", "")
    assert ready.log == ""
    assert not (ready.project / ".cache" / "pip").exists()


@posix
def test_a_sample_starts_with_what_it_needs(ready: Machine) -> None:
    """A file or a package of samples/ gets its own packages, at the first start alone, and all further arguments."""
    first = ready.run("sample", "short", "--url", "ws://127.0.0.1:1")
    again = ready.run("sample", "long", "--fail")
    demo = ready.run("demo")
    assert first.stdout.splitlines() == [
        "Installing the packages for samples",
        "arguments ['--url', 'ws://127.0.0.1:1']",
    ], first.stderr
    assert (again.returncode, again.stdout) == (7, "arguments ['--fail']\n")
    assert demo.stdout == "arguments ['demo']\n"  # what was installed for the one is there for the other


@posix
def test_the_samples_are_listed(ready: Machine) -> None:
    """Without a name, or with one that is not there, each sample is named and told in a line; nothing is set up."""
    listed = ready.run("sample")
    unknown = ready.run("sample", "shrot")
    lines = ["usage: python3 run.py sample NAME [--url URL] ...", ""]
    lines += ["  long   Say what was given.", "  short  Say what was given."]
    assert (listed.returncode, listed.stdout.splitlines()) == (0, lines)
    assert unknown.returncode == 2
    assert unknown.stderr.splitlines() == ["run.py: no such sample: shrot", "", *lines]


@posix
def test_what_ends_the_command_ends_the_sample(ready: Machine) -> None:
    """A SIGTERM to run.py ends the server that it has started too."""
    with subprocess.Popen(
        ready.command("sample", "short", "--wait"), cwd=ready.project, env=ready.environ, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        while b"arguments" not in line:
            line = process.stdout.readline()
        process.terminate()
        assert process.stdout.read() == b""  # it ends with the last process that has the pipe
    assert process.returncode == 128 + signal.SIGTERM


@posix
def test_the_demos_failure_is_the_exit_status(ready: Machine) -> None:
    """A demo that fails makes the command fail with the same status."""
    assert ready.run("demo", "--fail").returncode == 7


def lacked(done: subprocess.CompletedProcess[str]) -> list[str]:
    """What a run of the tests could not have."""
    return re.findall(r"^Cannot be had, what needs it (?:fails|is skipped by name): (.*)$", done.stdout, re.MULTILINE)


@posix
def test_pytest_gets_its_arguments_untouched(ready: Machine) -> None:
    """The command's own options choose the marks and everything else reaches pytest as it was written."""
    plain = ready.run("test", "tests/protocol", "-k", "not x")
    script = ready.project / "run.py"
    whole = script.read_text(encoding="utf-8")
    one_of_each = re.sub(r"^(PYTHONS|PROTOBUFS|PEERS) = \((.*?),.*\)$", r"\1 = (\2,)", whole, flags=re.MULTILINE)
    assert one_of_each != whole
    script.write_text(one_of_each, encoding="utf-8")  # each version that is tried takes seconds
    matrix = ready.run("test", "-x", "--matrix", "--require", "--", "a")
    script.write_text(whole, encoding="utf-8")
    selected = "['-m', 'not real and not matrix', 'tests/protocol', '-k', 'not x']"
    assert plain.stdout.splitlines()[-1] == f"pytest {selected} None", plain.stderr
    ran, counts, reason, *lacking, total = matrix.stdout.splitlines()[-len(lacked(matrix)) - 4 :]
    assert ran == "pytest ['-m', '', '-x', '--', 'a'] 1"
    assert counts == f"Python 3.{sys.version_info[1]}, real parts and long runs: 3 passed, 0 failed, 2 skipped"
    assert reason == "  2 skipped: no such device"
    assert lacking == [f"not tested: {line}" for line in lacked(matrix)]
    assert total == "3 passed, 0 failed"
    assert matrix.returncode == 1  # something is lacking, and required


@posix
def test_a_real_part_that_cannot_be_had_is_one_line_and_fails_when_required(ready: Machine) -> None:
    """Every missing part is named, the tests still run, and only `--require` makes the run fail."""
    plain = ready.run("test", "--real")
    required = ready.run("test", "--real", "--require")
    assert [line.partition(":")[0] for line in lacked(plain)] == [
        *run.PROGRAMS,
        *(f"Pipecat {version}" for version in run.PIPECAT),
        "PyAudio",
        "OpenCV",
    ]
    assert plain.returncode == 0
    assert plain.stdout.splitlines()[-1] == f"pytest ['-m', 'not matrix', '-n', '{run.PROCESSES}'] None"
    assert required.returncode == 1
    assert required.stdout.splitlines()[-1] == f"pytest ['-m', 'not matrix', '-n', '{run.PROCESSES}'] 1"


@posix
def test_devices_are_looked_for_in_each_run(ready: Machine, tmp_path: Path) -> None:
    """Without a compiler the tests run; what drives devices comes once it can be had, and counts if it loads."""
    make_wheel(tmp_path, "absent_audio", "1.0", {"pyaudio.py": b""})
    make_wheel(tmp_path, "absent_video", "1.0", {"cv2.py": b"raise ImportError('libGL.so.1: cannot open')"})
    wheels = f"{ready.environ['PIP_FIND_LINKS']} {tmp_path}"
    runs = [ready.run("test"), ready.run("test", PIP_FIND_LINKS=wheels), ready.run("test")]
    log = ready.log
    remove = [ready.project / ".venv" / machine.VENV_PYTHON, "-m", "pip", "uninstall", "-y", "absent_audio"]
    subprocess.run(remove, env=ready.environ, capture_output=True, check=True, timeout=GUARD)

    skipped = "Cannot be had, what needs it is skipped by name: "
    audio = skipped + "PyAudio: cannot be built here (needs gcc and portaudio19-dev)"
    video = skipped + "OpenCV: cannot be had here (needs opencv-python, libgl1 and libglib2.0-0)"
    lacking = [[line for line in done.stdout.splitlines() if line.startswith(skipped)] for done in runs]
    assert lacking == [[audio, video], [video], [video]]
    assert [done.returncode for done in runs] == [0, 0, 0]
    assert "libGL.so.1" in log


@posix
def test_lint_tools_that_cannot_be_had_do_not_stop_the_tests(ready: Machine) -> None:
    """Without the lint tools the tests run, and one line says what is skipped."""
    file = ready.project / "pyproject.toml"
    file.write_text(PYPROJECT.replace("throwaway-linters", "absent-linter"))
    done = ready.run("test")
    file.write_text(PYPROJECT)
    assert done.returncode == 0
    assert "by name: the packages for lint: could not be installed" in done.stdout
    assert "absent-linter" in ready.log


@posix
def test_pyright_that_cannot_be_had_is_one_line_and_fails_when_required(ready: Machine) -> None:
    """Every check runs; without pyright the others still do, and only `--require` makes that a failure."""
    file = ready.project / "pyproject.toml"
    whole = ready.run("lint", "--fix")
    file.write_text(PYPROJECT.replace("pyright = []", 'pyright = ["absent-pyright"]'))
    plain = ready.run("lint")
    required = ready.run("lint", "--require")
    file.write_text(PYPROJECT)
    checks = [line.partition(" [")[0] for line in whole.stdout.splitlines() if not line.startswith("Installing")]
    assert checks == ["ruff", "mypy", "pyright", "pyright", "contracts", "bandit", "tools.audit"], whole.stderr
    assert "ruff ['check', '--fix']" in whole.stdout
    assert [done.returncode for done in (whole, plain, required)] == [0, 0, 1]
    line = "NOT CHECKED by pyright, which cannot be had: the packages for pyright: could not be installed"
    assert line in plain.stdout.splitlines()
    assert [line for line in plain.stdout.splitlines() if line.startswith("pyright")] == []


@posix
def test_changed_requirements_are_installed(ready: Machine) -> None:
    """A requirement that is new in pyproject.toml is installed; other changes of the file cost nothing."""
    file = ready.project / "pyproject.toml"
    file.write_text(PYPROJECT.replace("throwaway>=1", "throwaway>=2") + "[tool.other]\nkey = 1\n")
    failed = ready.run("demo")
    file.write_text(PYPROJECT + "[tool.other]\nkey = 1\n")
    mended = ready.run("demo")
    assert failed.returncode == 1
    assert failed.stderr.splitlines()[-1] == "run.py: the packages for cli: could not be installed"
    assert "throwaway>=2" in failed.stderr
    assert mended.stdout == "arguments ['demo']\n"


@posix
def test_an_environment_of_another_python_is_made_anew(ready: Machine) -> None:
    """An environment that was half made, or by another Python, is replaced."""
    stamp = ready.project / ".venv" / environments.STAMP
    facts = json.loads(stamp.read_text())
    stamp.write_text(json.dumps({**facts, "base": "another Python"}))
    left_over = ready.project / ".venv" / "left over"
    left_over.touch()
    done = ready.run("demo")
    assert done.stdout.splitlines()[0] == "Making .venv"
    assert not left_over.exists()
    assert json.loads(stamp.read_text())["base"] == facts["base"]


@posix
def test_of_two_at_once_the_second_waits_and_says_so(
    bare_python: Path, held: tuple[HeldIndex, str], tmp_path: Path
) -> None:
    """The second names the first and what it waits for; it finds all installed, and both run."""
    index, address = held
    box = Machine(bare_python, tmp_path, PIP_INDEX_URL=address)
    with box.start("demo", "first") as first, contextlib.ExitStack() as stack:
        stack.callback(index.release)
        assert index.asked.wait(300)
        second = stack.enter_context(box.start("demo", "second"))
        assert second.stdout is not None
        waits = second.stdout.readline()
        index.release()
        assert second.stdout.read() == "arguments ['demo', 'second']\n"
        assert first.communicate() == (
            "Making .venv\nInstalling the packages for cli\narguments ['demo', 'first']\n",
            "",
        )
    assert waits == f"Waiting for another run.py (process {first.pid}), which sets up .venv\n"
    assert (first.returncode, second.returncode) == (0, 0)


WAITING = """
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
import run
from tools import machine

def wait():
    with machine.locked(Path(sys.argv[1]), "it"):
        pass

def command(_):
    with ThreadPoolExecutor() as pool:
        return pool.submit(wait).result()

run.COMMANDS["soak"] = command
machine.CACHE = run.CACHE = Path(sys.argv[1]).parent
machine.LOG = run.LOG = machine.CACHE / "setup.log"
sys.exit(run.main(["soak"]))
"""


@posix
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_a_run_whose_thread_waits_for_a_lock(tmp_path: Path, number: int, status: int) -> None:
    """Environments are made by several threads: none of them waits on for the lock, which is held to the end here."""
    lock = tmp_path / "it.lock"
    with machine.locked(lock, "it"):
        command = [sys.executable, "-c", WAITING, str(lock)]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                first_line = process.stdout.readline()
                assert first_line == f"Waiting for another run.py (process {os.getpid()}), which sets up it\n"
                process.send_signal(number)
                assert process.communicate(timeout=GUARD) == ("", "")
            finally:
                process.kill()
    assert process.returncode == status


@posix
@pytest.mark.parametrize("pip_survives", [True, False])
def test_what_a_killed_run_leaves_is_made_again(
    bare_python: Path, held: tuple[HeldIndex, str], tmp_path: Path, pip_survives: bool
) -> None:
    """A run that is killed while it installs leaves no lock, once its pip has ended, and nothing that is trusted."""
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
    assert lines == ["Making .venv\n", "Installing the packages for cli\n", "arguments ['demo']\n"]
    assert second.returncode == 0


@posix
@pytest.mark.parametrize("damage", ["python is gone", "python does not start", "packages are gone"])
def test_a_damaged_environment_is_made_again(ready: Machine, damage: str) -> None:
    """Whatever is wrong with it, the next run repairs it without a question."""
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
    assert done.stdout.splitlines() == ["Making .venv", "Installing the packages for cli", "arguments ['demo']"]
    assert done.returncode == 0


@posix
def test_a_file_that_is_gone_is_named_and_comes_back(ready: Machine) -> None:
    """If a command fails and a file of a package is missing, a line says so, and the next run installs all again."""
    (module,) = ready.project.glob(".venv/lib/python3.*/site-packages/throwaway.py")
    module.unlink()
    failed, repaired = ready.run("demo"), ready.run("demo")
    folder = ready.project / ".venv"
    line = f"run.py: {folder} is damaged: throwaway.py is missing or cut short. The next run makes it again"
    assert (failed.returncode, failed.stderr.splitlines()[-1]) == (1, line)
    assert repaired.stdout.splitlines() == ["Making .venv", "Installing the packages for cli", "arguments ['demo']"]


def obey_permissions() -> None:
    """In a child: give up root's right to write where permissions forbid it. Other users do not have it."""
    if sys.platform == "linux":
        for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
            ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP


@pytest.fixture
def read_only() -> Iterator[Callable[[Path], None]]:
    """Takes the right to write from a folder and all that is in it, for the time of the test."""
    modes: dict[Path, int] = {}

    def protect(folder: Path) -> None:
        for path in (folder, *folder.rglob("*")):
            if not path.is_symlink():
                modes[path] = path.stat().st_mode
                path.chmod(modes[path] & ~0o222)

    yield protect
    for path, mode in modes.items():
        path.chmod(mode)


@posix
def test_a_folder_that_cannot_be_written_is_one_line_with_the_cure(
    ready: Machine, bare_python: Path, tmp_path: Path, read_only: Callable[[Path], None]
) -> None:
    """No traceback, and nothing of a log; where all is set up already, the demo runs."""
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
            timeout=60,
        )
        for some in (box, ready)
    )
    cure = "Copy this folder to a place that you can write to, and run it there"
    assert (fresh.returncode, fresh.stdout) == (1, "")
    assert fresh.stderr == f"run.py: Permission denied: {box.project / '.cache'}. {cure}\n"
    assert (again.returncode, again.stdout, again.stderr) == (0, "arguments ['demo']\n", "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is always full")
def test_a_full_disk_is_one_line_with_the_cure(bare_python: Path, tmp_path: Path) -> None:
    """Whether run.py itself has no space left, or a program that it started says so."""
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


@posix
def test_ctrl_c_ends_the_demo_cleanly(ready: Machine) -> None:
    """Ctrl-C lets the demo end its session and then exits with 130 and no traceback."""
    with ready.start("demo", "--wait") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "arguments ['demo', '--wait']\n"
        os.killpg(process.pid, signal.SIGINT)
        # Not communicate(), which misses what readline() has taken out of the pipe beyond the line.
        assert process.stderr is not None
        output, errors = process.stdout.read(), process.stderr.read()
    assert (process.returncode, output, errors) == (130, "ended its session\n", "")


@posix
def test_an_environment_that_the_user_made_is_left_alone(bare_python: Path, wheels: Path, tmp_path: Path) -> None:
    """A `.venv` that is not run.py's own stays as it is, and the set-up goes elsewhere."""
    box = Machine(bare_python, tmp_path, PIP_FIND_LINKS=str(wheels), PIP_NO_INDEX="1")
    theirs = box.project / ".venv" / "theirs"
    theirs.parent.mkdir()
    theirs.touch()
    done = box.run("demo")
    assert done.stdout.splitlines()[0] == f"Making {Path('.cache', 'venv')}", done.stderr
    assert list(theirs.parent.iterdir()) == [theirs]


@posix
def test_pip_comes_from_the_configured_index(bare_python: Path, index: str, tmp_path: Path) -> None:
    """Where no pip is anywhere, its wheel is fetched from the index that pip's settings name, login included."""
    box = Machine(bare_python, tmp_path)
    settings = tmp_path / "pip.conf"
    settings.write_text(f"[global]\nindex_url = {index}\n")
    done = box.run("demo", PIP_CONFIG_FILE=str(settings))
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("arguments ['demo']\n")
    assert [wheel.name for wheel in (box.project / ".cache" / "pip").iterdir()] == [
        f"pip-{metadata.version('pip')}-py3-none-any.whl"
    ]


@posix
@pytest.mark.parametrize("index", [True], indirect=True)
def test_a_wheel_with_a_wrong_hash_is_refused(bare_python: Path, index: str, tmp_path: Path) -> None:
    """A pip whose bytes are not those that the index promises is not run."""
    box = Machine(bare_python, tmp_path, PIP_INDEX_URL=index)
    done = box.run("demo")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("run.py: no pip was found: install it")
    assert "does not have the hash" in box.log
    assert not list((box.project / ".cache").glob("pip/*"))


@posix
def test_where_no_pip_is_to_be_had_one_line_says_what_to_install(bare_python: Path, tmp_path: Path) -> None:
    """Without any pip and any index the last line names the ways out, and the next run tries again."""
    box = Machine(bare_python, tmp_path)
    for _ in range(2):
        done = box.run("demo")
        assert done.returncode == 1
        assert done.stdout == "Making .venv\n"
        assert done.stderr.splitlines()[-1] == (
            "run.py: no pip was found: install it (apt install python3-pip) or set PIP_INDEX_URL to a package index"
        )


def test_an_index_without_tls_is_not_used() -> None:
    """pip is fetched from another machine over a secure connection only, and the error does not show the password."""
    with pytest.raises(ValueError, match=r"^not a secure address: http://index\.invalid$"):
        machine.fetch("http://user:secret@index.invalid/simple/pip/", None)


def test_with_venv_the_environment_is_an_ordinary_one(wheels: Path, tmp_path: Path) -> None:
    """Where `python -m venv` works it is what is used."""
    pytest.importorskip("ensurepip")
    box = Machine(Path(machine.BASE), tmp_path, PIP_FIND_LINKS=str(wheels), PIP_NO_INDEX="1")
    done = box.run("demo")
    assert done.returncode == 0, done.stderr
    assert "-m venv" in box.log
    assert "--no-deps" not in box.log


def test_pythons_of_another_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of Pythons that the environment names and nobody lets us look into holds none for us."""

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "glob", refuse)
    assert next(iter(machine.interpreters())) == machine.BASE
    assert len(list(machine.interpreters())) >= 1
