"""What this machine has: programs to run, Pythons, and a pip from wherever there is one. Standard library only."""

# ruff: noqa: S310, S603 (running programs and fetching from the user's own package index is the purpose)

import base64
import configparser
import contextlib
import hashlib
import os
import re
import shutil
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from html.parser import HTMLParser
from http.client import HTTPException
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

ROOT = Path(__file__).resolve().parents[1]
CACHE = ROOT / ".cache"
LOG = CACHE / "setup.log"
VENV_PYTHON = "Scripts/python.exe" if os.name == "nt" else "bin/python"
BASE = getattr(sys, "_base_executable", None) or sys.executable  # started from inside a venv: the Python under it
STEP_SECONDS = 300.0

FACTS = "import os, sys; print(sys.version_info[1], os.path.abspath(getattr(sys, '_base_executable', sys.executable)))"
BUNDLED = "import ensurepip, os; print(os.path.join(os.path.dirname(ensurepip.__file__), '_bundled'))"


class SetupError(Exception):
    """Something cannot be had. The text is the one line that the user reads."""


def note(*words: object) -> None:
    """Write a line to the log file, which is shown only when something fails."""
    CACHE.mkdir(exist_ok=True)
    with LOG.open("a", encoding="utf-8") as log:
        print(*words, file=log)


def quiet(command: Sequence[object], seconds: float = STEP_SECONDS, cwd: Path | None = None) -> bool:
    """Run a command with its noise in the log file; True if it succeeded in time."""
    words = [str(word) for word in command]
    note("$", *words)
    try:
        with LOG.open("ab") as log:
            done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, timeout=seconds, cwd=cwd)
    except (OSError, subprocess.TimeoutExpired) as error:
        note(error)
        return False
    return done.returncode == 0


def ask(*command: object) -> str:
    """What a command prints, or an empty string if it fails."""
    words = [str(word) for word in command]
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


# Pythons


def interpreters() -> Iterator[str]:
    """Every Python 3 that this machine is known to have, the running one first."""
    yield BASE
    names = ("python3", "python", *(f"python3.{minor}" for minor in range(10, 20)))
    yield from filter(None, map(shutil.which, names))
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    with contextlib.suppress(OSError):  # another user's, which the environment still names (sudo, a container)
        yield from map(str, sorted(pyenv.glob("versions/3.*/" + VENV_PYTHON), reverse=True))


def find_python(minors: Sequence[int]) -> str | None:
    """A Python of the first of these minor versions of 3 that is there; never a venv's, nor a launcher script."""
    known: dict[str, str] = {}
    for python in dict.fromkeys(interpreters()):
        minor, _, executable = ask(python, "-c", FACTS).partition(" ")
        known.setdefault(minor, executable)
    for minor in map(str, minors):
        found = known.get(minor) or ask("uv", "python", "find", "--system", f"3.{minor}")
        if found:
            return found
    return None


# pip


def pip_settings() -> dict[str, str]:
    """pip's own settings, from the places where pip looks for them, the strongest last."""
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


def find_uv() -> str | None:
    """uv, where it can stand in for pip: it does not read pip's settings, so not where an index is set only for pip."""
    only_pip_knows = {"index-url", "extra-index-url", "find-links", "no-index"} & set(pip_settings())
    return shutil.which("uv") if not only_pip_knows or "UV_DEFAULT_INDEX" in os.environ else None


def pip_wheels() -> Iterator[Path]:
    """Wheels of pip, from the nearest place to the farthest; what is far is looked at only when asked for.

    No index is named here: an index is what the user's settings, another pip or the system's package manager know.
    """
    settings = pip_settings()
    pythons = list(dict.fromkeys(interpreters()))
    folders = [*settings.get("find-links", "").split(), "/usr/share/python-wheels"]
    folders += [folder for folder in (ask(python, "-c", BUNDLED) for python in pythons) if folder]
    for folder in folders:
        yield from sorted(Path(folder).glob("pip-*.whl"), reverse=True)
    target = CACHE / "pip"
    version = f"3.{sys.version_info[1]}"
    for python in pythons:
        command = [python, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--python-version", version]
        if quiet([*command, "--dest", target, "pip"]):
            yield from target.glob("pip-*.whl")
    for index in f"{settings.get('index-url', '')} {settings.get('extra-index-url', '')}".split():
        yield from index_wheels(index, settings.get("cert"), target)
    if shutil.which("apt-get") and shutil.which("dpkg-deb"):
        yield from apt_wheels(CACHE / "apt")


class Links(HTMLParser):
    """Collects the attributes of every link on a page of an index."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[dict[str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep a link."""
        if tag == "a":
            self.found.append({name: value or "" for name, value in attrs})


def index_wheels(index: str, cafile: str | None, target: Path) -> Iterator[Path]:
    """pip's newest wheel for this Python from an index of the simple kind, checked by the hash that the page gives."""
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
        note("package index:", error)
        return
    yield wheel


def fetch(url: str, cafile: str | None, limit_bytes: int = 1 << 25) -> bytes:
    """Download a file through the environment's proxy, with the name and password that the URL may hold."""
    parts = urlsplit(url)
    require_safe(url)
    request = urllib.request.Request(parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl())
    if parts.username:
        login = unquote(f"{parts.username}:{parts.password or ''}")
        # "Unredirected": another host must not see it.
        request.add_unredirected_header("Authorization", "Basic " + base64.b64encode(login.encode()).decode())
    tls = ssl.create_default_context(cafile=cafile)
    with urllib.request.urlopen(request, timeout=30, context=tls) as answer:  # nosec B310
        require_safe(answer.url)
        body: bytes = answer.read(limit_bytes)
    return body


def require_safe(url: str) -> None:
    """Refuse to take a program from an address that anyone on the way could speak for."""
    parts = urlsplit(url)
    if parts.scheme != "https" and parts.hostname not in ("localhost", "127.0.0.1", "::1"):
        raise ValueError(f"not a secure address: {parts.scheme}://{parts.hostname}")


def apt_wheels(folder: Path) -> Iterator[Path]:
    """Debian's package of pip's wheel, fetched and unpacked in a folder of ours: needs no root, installs nothing."""
    for needed in ("lists/partial", "cache/archives/partial"):
        (folder / needed).mkdir(parents=True, exist_ok=True)
    settings = [f"Dir::State::lists={folder}/lists", f"Dir::Cache={folder}/cache", "APT::Sandbox::User=root"]
    apt = ["apt-get", *(word for setting in settings for word in ("-o", setting))]
    if quiet([*apt, "update"]) and quiet([*apt, "download", "python3-pip-whl"], cwd=folder):
        for package in folder.glob("python3-pip-whl_*.deb"):
            quiet(["dpkg-deb", "-x", package, folder])
    yield from folder.glob("usr/share/python-wheels/pip-*.whl")
