"""Environments: how they are made, and what is installed in them. Standard library only."""

import json
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import Any

from .machine import BASE, CACHE, ROOT, VENV_PYTHON, SetupError, ask, find_uv, pip_wheels, quiet

STAMP = "rtvi-sync-setup.json"
INSTALL_SECONDS = 1200.0
AUTOBAHN = "autobahntestsuite==25.10.1"

# pip's wheel comes to one place, for one environment at a time.
SEEDING = Lock()

READ_TOML = """
import importlib, json, sys
toml = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "pip._vendor.tomli")
print(json.dumps(toml.loads(open(sys.argv[1], encoding="utf-8").read())))
"""


def say(line: str) -> None:
    """Print one step."""
    print(f"{line}\n", end="", flush=True)  # noqa: T201 - at once: several threads set up what the tests need


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
    if read_stamp(folder) != {"base": base, "installed": [AUTOBAHN]}:
        say("Installing the Autobahn test suite")
        empty(folder)
        pip = [base, "-m", "pip", "install", "--no-input", "--disable-pip-version-check", "--target", folder]
        if not quiet([*pip, AUTOBAHN], INSTALL_SECONDS):
            raise SetupError("its packages could not be installed")
        (folder / "zope" / "__init__.py").touch()  # what makes it a package is a .pth file, which is not read here
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
    if made.exists() and made.stat().st_mtime > max(file.stat().st_mtime for file in files):
        return
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
