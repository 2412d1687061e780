"""Environments: how they are made, and what is installed in them. Standard library only."""

import contextlib
import json
import os
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .machine import BASE, CACHE, ROOT, VENV_PYTHON, SetupError, ask, find_uv, locked, pip_wheels, quiet, say

STAMP = "rtvi-sync-setup.json"
INSTALL_SECONDS = 3600.0
AUTOBAHN = "autobahntestsuite==25.10.1"

IDENTITY = "import os, sys; print(os.path.realpath(sys.executable), sys.version)"
# Prints the version of a virtual environment's Python if it starts and has a pip.
VERSION = """
import importlib.util, sys
assert sys.prefix != sys.base_prefix and importlib.util.find_spec("pip")
print(sys.version)
"""
# Prints the first installed file that is missing or cut short, as a pip that was killed or a full disk leaves it.
DAMAGE = """
import csv, os, sysconfig
from importlib.metadata import distributions
def damage():
    for package in distributions(path=[*{sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}]):
        record = package.read_text("RECORD")  # not `files`, which leaves out what is missing (from Python 3.12 on)
        if record is None:
            return f"{package.name} has no list of its files"
        for name, _, size in filter(None, csv.reader(record.splitlines())):
            path = package.locate_file(name)
            if not os.path.exists(path) or int(size or 0) > os.path.getsize(path):
                return f"{name} is missing or cut short"
    return "none"
print(damage())
"""

READ_TOML = """
import importlib, json, sys
toml = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "pip._vendor.tomli")
print(json.dumps(toml.loads(open(sys.argv[1], encoding="utf-8").read())))
"""


def read_stamp(folder: Path) -> dict[str, Any]:
    """What a set-up left in an environment: the Python under it and the requirements that were installed."""
    try:
        stamp: dict[str, Any] = json.loads((folder / STAMP).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return stamp


def write_stamp(folder: Path, base: str, installed: Sequence[str]) -> None:
    """Note in an environment how far its set-up is. Without a `base` it is unfinished: the next run makes it again."""
    (folder / STAMP).write_text(json.dumps({"base": base, "installed": installed}, indent=1), encoding="utf-8")


def lock_of(folder: Path) -> contextlib.AbstractContextManager[None]:
    """Hold the lock of an environment while it is made or changed. To use an environment takes no lock."""
    return locked(CACHE / f"{folder.name}.lock", folder.name)


def make_environment(folder: Path, base: str) -> Path:
    """The Python of the environment in a folder, which is made, with pip in it, unless it is there already."""
    python = folder / VENV_PYTHON
    identity = ask(base, "-c", IDENTITY)
    if not identity:
        raise SetupError(f"{base} does not start: install this Python again")
    if is_sound(folder, identity):
        return python
    with lock_of(folder):
        if is_sound(folder, identity):  # by now: another process has made it
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


def is_sound(folder: Path, identity: str) -> bool:
    """True if an environment was finished by this base Python, still starts, and has a pip."""
    if read_stamp(folder).get("base") != identity:
        return False
    version = ask(folder / VENV_PYTHON, "-c", VERSION)
    return bool(version) and identity.endswith(version)


def damage(python: Path) -> str:
    """What is damaged among the packages of an environment, or an empty string."""
    found = ask(python, "-c", DAMAGE)
    return "" if found == "none" else found or "its Python does not start"


def empty(folder: Path) -> None:
    """Clear away what an earlier try left. At any moment the folder has a stamp, by which the next run knows it."""
    if folder.is_dir():
        write_stamp(folder, "", [])
        for entry in list(folder.iterdir()):
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            elif entry.name != STAMP:
                entry.unlink()
        return
    new = folder.with_name(f"{folder.name}.new")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    write_stamp(new, "", [])
    new.rename(folder)


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
    with locked(CACHE / "pip.lock", "pip"):  # its wheel comes to one place, for one environment at a time
        for wheel in pip_wheels():
            if quiet([python, wheel / "pip", "install", "--no-index", "--no-deps", wheel]):
                return
    raise SetupError("no pip was found: install it (apt install python3-pip) or set PIP_INDEX_URL to a package index")


def install(python: Path, requirements: Sequence[str], what: str) -> None:
    """Install requirements into the environment of a Python, unless its stamp says that they are there."""
    folder = python.parents[1]
    if has_installed(folder, requirements):
        return
    with lock_of(folder):
        if has_installed(folder, requirements):  # by now: another process has installed them
            return
        stamp = read_stamp(folder)
        if not stamp.get("base"):
            raise SetupError(f"{folder.name} was left unfinished by another run.py: run the command again")
        say(f"Installing {what}")
        write_stamp(folder, "", [])  # if this is killed, what it leaves is not trusted
        uv = find_uv()
        pip = [python, "-m", "pip", "install", "--no-input", "--disable-pip-version-check", "--prefer-binary"]
        installed = (uv and quiet([uv, "pip", "install", "--python", python, *requirements], INSTALL_SECONDS)) or quiet(
            [*pip, *requirements], INSTALL_SECONDS
        )
        if installed:
            # What was installed for another command is still there, unless it is one of these in another version.
            names = {package_of(line) for line in requirements}
            others = [line for line in stamp["installed"] if package_of(line) not in names]
            write_stamp(folder, stamp["base"], [*requirements, *others])
        elif not damage(python):
            write_stamp(folder, stamp["base"], stamp["installed"])
    if not installed:
        raise SetupError(f"{what}: could not be installed")


def has_installed(folder: Path, requirements: Sequence[str]) -> bool:
    """True if the stamp of an environment lists all requirements."""
    return set(requirements) <= set(read_stamp(folder).get("installed", ()))


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


def own_folder() -> Path:
    """Where the project's own environment is, or comes to."""
    folder = ROOT / ".venv"
    if folder.exists() and not (folder / STAMP).exists():
        return CACHE / "venv"  # the user made that one: it is not ours to rebuild
    return folder


def report_damage() -> None:
    """Say whether files are gone from the own environment, and have the next run make it again."""
    folder = own_folder()
    if not read_stamp(folder).get("base"):
        return  # not there, or just being changed by another process
    trouble = damage(folder / VENV_PYTHON)
    if trouble:
        say(f"run.py: {folder} is damaged: {trouble}. The next run makes it again", file=sys.stderr)
        with contextlib.suppress(OSError):
            write_stamp(folder, "", [])


def own_environment(parts: Sequence[str]) -> Path:
    """The Python of the project's own environment, with the named extras and groups."""
    python = make_environment(own_folder(), BASE)
    install(python, requirements_of(read_project(python), parts), f"the packages for {parts[-1]}")
    return python


def autobahn() -> Path:
    """A Python beside the packages of the Autobahn test suite, which there is for Python 2.7 only."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    found = [
        *filter(None, map(shutil.which, ("python2.7", "python2"))),
        *map(str, pyenv.glob("versions/2.7*/bin/python")),
    ]
    question = "import sys; assert sys.version_info[:2] == (2, 7); print(sys.executable)"
    base = next(filter(None, (ask(python, "-c", question) for python in found)), None)
    if base is None:
        raise SetupError("needs Python 2.7, none was found")
    folder = CACHE / "autobahn"
    python = folder / "python"
    with lock_of(folder):
        if read_stamp(folder) != {"base": base, "installed": [AUTOBAHN]}:
            say("Installing the Autobahn test suite")
            empty(folder)
            pip = [base, "-m", "pip", "install", "--no-input", "--disable-pip-version-check", "--target", folder]
            if not quiet([*pip, AUTOBAHN], INSTALL_SECONDS):
                raise SetupError("its packages could not be installed")
            # What makes it a package is a .pth file, which is not read here.
            (folder / "zope" / "__init__.py").touch()
            python.symlink_to(base)
            write_stamp(folder, base, [AUTOBAHN])
    return python


def bundle(source: Path, folder: Path) -> None:
    """Make one file, `bundle.js`, of a page's script, `page.js`, and of what the `package.json` beside it names.

    Args:
        source: where these two are.
        folder: where the packages and the file come to.
    """
    files = [source / "package.json", source / "page.js"]
    made = folder / "bundle.js"
    with lock_of(folder):
        if not made.exists() or made.stat().st_mtime <= max(file.stat().st_mtime for file in files):
            _bundle(files, made)


def _bundle(files: Sequence[Path], made: Path) -> None:
    folder = made.parent
    missing = [program for program in ("npm", "chromium") if not shutil.which(program)]
    if missing:
        raise SetupError("needs " + " and ".join(missing))
    say(f"Making {made.relative_to(ROOT)}")
    folder.mkdir(parents=True, exist_ok=True)
    for file in files:
        shutil.copy(file, folder)
    npm = [shutil.which("npm"), "install", "--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock"]
    esbuild = ["node_modules/.bin/esbuild", "page.js", "--bundle", "--minify", f"--outfile={made}"]
    if not (quiet(npm, INSTALL_SECONDS, folder) and quiet(esbuild, cwd=folder)):
        raise SetupError("its packages could not be installed")
