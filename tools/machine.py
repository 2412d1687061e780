"""The machine: running programs, finding Pythons, and getting a pip. Standard library only."""

# ruff: noqa: S310, S603 (running programs and downloading from the user's own package index is the purpose)

import base64
import configparser
import contextlib
import errno
import hashlib
import os
import re
import shutil
import signal
import ssl
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from html.parser import HTMLParser
from http.client import HTTPException
from pathlib import Path
from typing import Any, TextIO
from urllib.parse import unquote, urljoin, urlsplit

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

ROOT = Path(__file__).resolve().parents[1]
CACHE = ROOT / ".cache"
LOG = CACHE / "setup.log"
VENV_PYTHON = "Scripts/python.exe" if os.name == "nt" else "bin/python"
BASE = getattr(sys, "_base_executable", None) or sys.executable  # inside a venv: the Python that the venv was made from
STEP_SECONDS = 1800.0  # on a busy machine
UV_SECONDS = 60.0  # uv's limit; then pip does the work, more slowly

FACTS = "import os, sys; print(sys.version_info[1], os.path.abspath(getattr(sys, '_base_executable', sys.executable)))"
# The settings of pip that uv can be given, and the names that uv has for them; without a name, it needs none.
UV_VARIABLES = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "no-index": "UV_NO_INDEX",
    "constraint": "UV_CONSTRAINT",
    "trusted-host": "UV_INSECURE_HOST",
    "cert": "SSL_CERT_FILE",
    "timeout": "UV_HTTP_TIMEOUT",
    "default-timeout": "UV_HTTP_TIMEOUT",
    **dict.fromkeys(("config-file", "disable-pip-version-check", "no-input", "prefer-binary", "cache-dir"), ""),
    **dict.fromkeys(("progress-bar", "quiet", "root-user-action", "break-system-packages"), ""),
}
BUNDLED = "import ensurepip, os; print(os.path.join(os.path.dirname(ensurepip.__file__), '_bundled'))"


# Errors of file systems without locks, such as NFS without its lock service, or a folder shared with a host.
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)
# Windows locks bytes, and a locked byte cannot be read: this offset is far behind the process id.
_LOCKED_BYTE = 1 << 20
_held = threading.local()
# Seconds between two attempts to take a lock that another process holds.
_LOCK_INTERVAL = 0.1
# Seconds that a program has to end.
_END_SECONDS = 10.0
# The programs that run, and whether Ctrl-C reaches them, too. Changed in single steps, since every thread starts some.
_running: dict[subprocess.Popen[Any], bool] = {}
_stop_signal = 0


class SetupError(Exception):
    """Something cannot be set up. The text is the one line that the user reads."""


# Remedies for errors of the operating system, for those that a user can fix.
_ELSEWHERE = "Copy this folder to a place that you can write to, and run it there"
_SPACE = "Free some space and run the command again"
_FULL = os.strerror(errno.ENOSPC)
_CURES = {
    errno.EACCES: _ELSEWHERE,
    errno.EPERM: _ELSEWHERE,
    errno.EROFS: _ELSEWHERE,
    errno.ENOSPC: _SPACE,
    errno.EDQUOT: _SPACE,
}


def describe_error(error: Exception, tail: Sequence[str] = ()) -> str:
    """Return one line with the failure and its cure; `tail` is the end of the log."""
    if _FULL in "\n".join(tail):  # a program that was started reported it
        error = OSError(errno.ENOSPC, _FULL, str(ROOT))
    if not isinstance(error, OSError):
        return str(error)
    where = f": {error.filename}" if error.filename is not None else ""
    cure = _CURES.get(error.errno or 0)
    return f"{error.strerror or error}{where}{f'. {cure}' if cure else ''}"


def print_step(line: str, file: TextIO | None = None) -> None:
    """Print one line, in one write: several threads set up parts of the tests."""
    print(f"{line}\n", end="", flush=True, file=file)


@contextlib.contextmanager
def locked(file: Path, what: str) -> Iterator[None]:
    """Hold a lock file; if another process holds it, print a line and wait. Without file locks, do not lock.

    Other threads of this process exclude each other without a line.

    The operating system releases the lock of a process that dies. On POSIX, programs that `run_quietly()` starts under
    the lock inherit it: a pip that outlives a killed run.py keeps it until it ends.

    Args:
        file: created if it is missing, and never deleted.
        what: the thing that the lock protects, for the line that the user reads.

    Raises:
        OSError: The file cannot be written.
        SystemExit: This process is to end.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        if not _lock(descriptor):
            holder = os.read(descriptor, 20).decode("ascii", "replace")
            if holder != str(os.getpid()):
                print_step(f"Waiting for another run.py{holder and f' (process {holder})'}, which sets up {what}")
            while not _lock(descriptor):  # polled, because a thread blocked in flock() could not be stopped
                raise_if_stopped()
                time.sleep(_LOCK_INTERVAL)
        os.ftruncate(descriptor, 0)
        os.lseek(descriptor, 0, os.SEEK_SET)
        os.write(descriptor, str(os.getpid()).encode())
        before: tuple[int, ...] = getattr(_held, "descriptors", ())
        _held.descriptors = (*before, descriptor)
        try:
            yield
        finally:
            _held.descriptors = before
            os.ftruncate(descriptor, 0)
            _unlock(descriptor)
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> bool:
    """Lock a file; return False if another thread or process holds it."""
    if sys.platform == "win32":
        os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EDEADLK):
                raise
            return False
        finally:
            os.lseek(descriptor, 0, os.SEEK_SET)
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        write_log("no lock:", error)
    return True


def _unlock(descriptor: int) -> None:
    if sys.platform == "win32":
        os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)
    else:
        with contextlib.suppress(OSError):  # the file system may have no locks
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # close() is not enough: children may have inherited the lock


def write_log(*words: object) -> None:
    """Append a line to the log file, which is shown only after a failure."""
    CACHE.mkdir(exist_ok=True)
    with LOG.open("a", encoding="utf-8") as log:
        print(*words, file=log)


# Programs


def stop(number: int, _frame: object = None) -> None:
    """Have this process end: the handler of SIGINT and SIGTERM. A wait elsewhere raises SystemExit."""
    # Raising here would leave locks of the interrupted code locked, and programs running that it has just started.
    global _stop_signal
    _stop_signal = number


def stop_signal() -> int:
    """Return the number of the signal that has stopped this process, or 0."""
    return _stop_signal


def raise_if_stopped() -> None:
    """Raise SystemExit if a signal has stopped this process."""
    if _stop_signal:
        raise SystemExit(128 + _stop_signal)


@contextlib.contextmanager
def started(
    command: Sequence[object], *, in_foreground: bool = False, **options: Any
) -> Iterator[subprocess.Popen[Any]]:
    """Start a program, which ends with the block at the latest; yield its `Popen`.

    Args:
        command: its words.
        in_foreground: it shares the terminal, so Ctrl-C interrupts it as well.
        options: of `Popen`.

    Raises:
        SystemExit: A signal has stopped this process.
    """
    child = subprocess.Popen([str(word) for word in command], **options)
    _running[child] = in_foreground
    try:
        raise_if_stopped()
        yield child
    finally:
        end_program(child)
        del _running[child]
        raise_if_stopped()  # that it did not do its work says nothing then


def end_program(child: subprocess.Popen[Any]) -> None:
    """Terminate a program that still runs; kill it if it does not end within 10 s."""
    if child.poll() is None:
        child.terminate()
        try:
            child.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def end_programs() -> None:
    """End all programs of a stopped process, the newest first."""
    for child, in_foreground in reversed(list(_running.items())):
        if in_foreground and _stop_signal == signal.SIGINT:  # it may have to close a session
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(_END_SECONDS)
        end_program(child)


def run_quietly(
    command: Sequence[object],
    seconds: float = STEP_SECONDS,
    cwd: Path | None = None,
    variables: Mapping[str, str] | None = None,
) -> bool:
    """Run a command, with more environment variables, and its output in the log file; return whether it succeeded."""
    write_log("$", *command)
    inherited = () if sys.platform == "win32" else getattr(_held, "descriptors", ())
    nothing, environ = subprocess.DEVNULL, {**os.environ, **(variables or {})}
    try:
        with (
            LOG.open("ab") as log,
            started(command, stdin=nothing, stdout=log, stderr=log, cwd=cwd, pass_fds=inherited, env=environ) as child,
        ):
            return child.wait(seconds) == 0
    except (OSError, subprocess.TimeoutExpired) as error:
        write_log(error)
        return False


def output_of(*command: object) -> str:
    """Return a command's output, or an empty string if it fails."""
    nothing = subprocess.DEVNULL
    try:
        with started(command, stdin=nothing, stdout=subprocess.PIPE, stderr=nothing, text=True) as child:
            output: str = child.communicate(timeout=STEP_SECONDS)[0]
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return output.strip() if child.returncode == 0 else ""


def log_tail(lines: int = 15) -> list[str]:
    """Return the last lines of the log file."""
    return LOG.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:] if LOG.exists() else []


def not_installed(what: str) -> SetupError:
    """Return the error of a failed installation, with its cause or where it can be read."""
    # Many lines, because other installations write into the same file at the same time.
    cause = _FULL if _FULL in "\n".join(log_tail(200)) else f"{LOG.relative_to(ROOT)} says why"
    return SetupError(f"{what}: could not be installed ({cause})")


# Pythons


def interpreters() -> Iterator[str]:
    """Yield every Python 3 that is found on this machine, the running one first."""
    yield BASE
    names = ("python3", "python", *(f"python3.{minor}" for minor in range(10, 20)))
    yield from filter(None, map(shutil.which, names))
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    with contextlib.suppress(OSError):  # after sudo, or in a container, PYENV_ROOT may name another user's folder
        yield from map(str, sorted(pyenv.glob("versions/3.*/" + VENV_PYTHON), reverse=True))


def find_python(minors: Sequence[int]) -> str | None:
    """Return a Python of the first available of these minor versions of 3; never a venv's or a launcher script."""
    known: dict[str, str] = {}
    for python in dict.fromkeys(interpreters()):
        minor, _, executable = output_of(python, "-c", FACTS).partition(" ")
        known.setdefault(minor, executable)
    for minor in map(str, minors):
        found = known.get(minor) or output_of("uv", "python", "find", "--system", f"3.{minor}")
        if found:
            return found
    return None


# pip


def pip_settings() -> dict[str, str]:
    """Return pip's own settings, from all of pip's sources, in rising priority."""
    home = Path.home()
    files: list[Path] = [
        Path("/etc/xdg/pip/pip.conf"),
        Path("/etc/pip.conf"),
        Path("/Library/Application Support/pip/pip.conf"),
        home / "Library/Application Support/pip/pip.conf",
        home / ".pip/pip.conf",
        home / ".config/pip/pip.conf",
        Path(os.environ.get("PROGRAMDATA", home)) / "pip/pip.ini",
        Path(os.environ.get("APPDATA", home)) / "pip/pip.ini",
    ]
    chosen = os.environ.get("PIP_CONFIG_FILE", "")
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    parser.read([] if chosen == os.devnull else [*files, chosen], encoding="utf-8")
    settings: dict[str, str] = {}
    for section in ("global", "install"):
        if parser.has_section(section):
            settings.update({name.replace("_", "-"): value for name, value in parser.items(section)})
    for name, value in os.environ.items():
        if name.startswith("PIP_"):
            settings[name[4:].lower().replace("_", "-")] = value
    return settings


def run_uv(python: object, *arguments: object, seconds: float) -> bool:
    """Run uv in pip's place, which takes a fraction of the time; return whether it succeeded. If not, pip is needed.

    A uv that this machine lacks is fetched by a Python's pip. uv knows nothing of pip's settings: it gets those that it
    has names for, and is not used if there are others.
    """
    variables = {"UV_INDEX_STRATEGY": "unsafe-best-match", "UV_PYTHON_DOWNLOADS": "never"}  # as pip does
    for name, value in pip_settings().items():
        if value and name not in UV_VARIABLES:
            write_log("uv is not used, because of the setting", name)
            return False
        if value and UV_VARIABLES[name]:
            variables[UV_VARIABLES[name]] = ("," if name == "find-links" else " ").join(value.split())
    folder, new = CACHE / "uv", CACHE / "uv.new"
    with locked(CACHE / "uv.lock", "uv"):
        if not (shutil.which("uv") or folder.exists()):
            shutil.rmtree(new, ignore_errors=True)
            pip = [python, "-m", "pip", "install", "--no-input", "--disable-pip-version-check"]
            if run_quietly([*pip, "--only-binary=:all:", "--target", new, "uv"], min(seconds, UV_SECONDS)):
                new.rename(folder)
    uv = shutil.which("uv") or shutil.which("uv", path=folder / "bin")
    own = {name: value for name, value in os.environ.items() if name.startswith("UV_")}
    return uv is not None and run_quietly([uv, *arguments], seconds, variables={**variables, **own})


def pip_wheels() -> Iterator[Path]:
    """Yield wheels of pip, from local to remote sources; a remote source is used only if the caller asks for more.

    No index is hard-coded: the user's settings, another pip or the system's package manager name them.
    """
    settings = pip_settings()
    pythons = list(dict.fromkeys(interpreters()))
    folders = [*settings.get("find-links", "").split(), "/usr/share/python-wheels"]
    folders += [folder for folder in (output_of(python, "-c", BUNDLED) for python in pythons) if folder]
    for folder in folders:
        yield from sorted(Path(folder).glob("pip-*.whl"), reverse=True)
    target = CACHE / "pip"
    version = f"3.{sys.version_info[1]}"
    for python in pythons:
        command = [python, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--python-version", version]
        if run_quietly([*command, "--dest", target, "pip"]):
            yield from target.glob("pip-*.whl")
    for index in f"{settings.get('index-url', '')} {settings.get('extra-index-url', '')}".split():
        yield from index_wheels(index, settings.get("cert"), target)
    if shutil.which("apt-get") and shutil.which("dpkg-deb"):
        yield from apt_wheels(CACHE / "apt")


class Links(HTMLParser):
    """A parser that collects the attributes of every link on an index page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[dict[str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Record the attributes of a link."""
        if tag == "a":
            self.found.append({name: value or "" for name, value in attrs})


def index_wheels(index: str, cafile: str | None, target: Path) -> Iterator[Path]:
    """Yield pip's newest wheel for this Python from a simple index, checked by the hash on the page."""
    page = index.rstrip("/") + "/pip/"
    try:
        links = Links()
        links.feed(fetch(page, cafile).decode("utf-8", "replace"))
        wheels: list[tuple[list[int], str, str]] = []
        for link in links.found:
            url, _, digest = urljoin(page, link.get("href", "")).partition("#sha256=")
            name = re.search(r"/pip-(\d+(?:\.\d+)*)-py3-none-any\.whl$", url)
            oldest = re.search(r">=\s*3\.(\d+)", link.get("data-requires-python", ""))
            if name and "data-yanked" not in link and (not oldest or int(oldest[1]) <= sys.version_info[1]):
                wheels.append(([int(part) for part in name[1].split(".")], url, digest))
        if not wheels:
            return
        _, url, digest = max(wheels)
        body = fetch(url, cafile)
        if digest and hashlib.sha256(body).hexdigest() != digest:
            raise ValueError("pip's wheel does not have the hash that the index gives for it")
        target.mkdir(parents=True, exist_ok=True)
        wheel = target / url.rpartition("/")[2]
        wheel.write_bytes(body)
    except (OSError, ValueError, HTTPException) as error:
        write_log("package index:", error)
        return
    yield wheel


def fetch(url: str, cafile: str | None, limit_bytes: int = 1 << 25) -> bytes:
    """Download a file through the environment's proxy, with the name and password of the URL, if any."""
    parts = urlsplit(url)
    require_secure_url(url)
    request = urllib.request.Request(parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl())
    if parts.username:
        login = unquote(f"{parts.username}:{parts.password or ''}")
        # "Unredirected", because another host must not see it.
        request.add_unredirected_header("Authorization", "Basic " + base64.b64encode(login.encode()).decode())
    tls = ssl.create_default_context(cafile=cafile)
    with urllib.request.urlopen(request, timeout=30, context=tls) as answer:  # nosec B310
        require_secure_url(answer.url)
        body: bytes = answer.read(limit_bytes)
    return body


def require_secure_url(url: str) -> None:
    """Raise ValueError for an address without TLS, from which a program could be replaced on its way."""
    parts = urlsplit(url)
    if parts.scheme != "https" and parts.hostname not in ("localhost", "127.0.0.1", "::1"):
        raise ValueError(f"not a secure address: {parts.scheme}://{parts.hostname}")


def apt_wheels(folder: Path) -> Iterator[Path]:
    """Yield pip's wheel from Debian's package, which is unpacked in `folder`: no root, nothing is installed."""
    for needed in ("lists/partial", "cache/archives/partial"):
        (folder / needed).mkdir(parents=True, exist_ok=True)
    settings = [f"Dir::State::lists={folder}/lists", f"Dir::Cache={folder}/cache", "APT::Sandbox::User=root"]
    apt = ["apt-get", *(word for setting in settings for word in ("-o", setting))]
    if run_quietly([*apt, "update"]) and run_quietly([*apt, "download", "python3-pip-whl"], cwd=folder):
        for package in folder.glob("python3-pip-whl_*.deb"):
            run_quietly(["dpkg-deb", "-x", package, folder])
    yield from folder.glob("usr/share/python-wheels/pip-*.whl")
