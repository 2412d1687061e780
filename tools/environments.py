"""Virtual environments: making them and installing into them. Standard library only."""

import contextlib
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from .machine import (
    BASE,
    CACHE,
    ROOT,
    UV_SECONDS,
    VENV_PYTHON,
    SetupError,
    find_python,
    locked,
    not_installed,
    output_of,
    pip_wheels,
    print_step,
    run_quietly,
    run_uv,
)

STAMP = "rtvi-sync-setup.json"
INSTALL_SECONDS = 3600.0
AUTOBAHN = "autobahntestsuite==25.10.1"

# Prints which Python this is: its file on the first line, then its version.
IDENTITY = "import os, sys; print(os.path.realpath(sys.executable), sys.version, sep=chr(10))"
# Prints the version of a virtual environment's Python if it starts and has a pip.
VERSION = """
import importlib.util, sys
assert sys.prefix != sys.base_prefix and importlib.util.find_spec("pip")
print(sys.version)
"""
# Prints the first installed file that is missing or truncated, as after a killed pip or on a full disk.
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
    """Return an environment's stamp: its base Python, whether it is finished, and the requirements installed in it."""
    try:
        stamp: dict[str, Any] = json.loads((folder / STAMP).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return stamp


def write_stamp(folder: Path, base: str, installed: Sequence[str], *, finished: bool = True) -> None:
    """Write an environment's stamp. One that is not finished is made again by the next run."""
    stamp = {"base": base, "finished": finished, "installed": installed}
    (folder / STAMP).write_text(json.dumps(stamp, indent=1), encoding="utf-8")


def lock_of(folder: Path) -> contextlib.AbstractContextManager[None]:
    """Return the lock of an environment, held while it is made or changed. Using an environment needs no lock."""
    return locked(CACHE / f"{folder.name}.lock", folder.name)


def make_environment(folder: Path, base: str) -> Path:
    """Return the Python of the environment in a folder, which is made, with pip in it, if it does not exist."""
    python = folder / VENV_PYTHON
    identity = output_of(base, "-c", IDENTITY)
    if not identity:
        raise SetupError(f"{base} does not start: install this Python again")
    if is_usable(folder, identity):
        return python
    with lock_of(folder):
        if is_usable(folder, identity):  # another process has just made it
            return python
        print_step(f"Making {folder.relative_to(ROOT)}")
        clear_folder(folder, identity)
        if not run_uv(base, "venv", "--allow-existing", "--seed", "--python", base, folder, seconds=UV_SECONDS):
            clear_folder(folder, identity)
            if not run_quietly([base, "-m", "venv", folder]):
                clear_folder(folder, identity)
                make_by_hand(folder, base)
                seed_pip(python)
        write_stamp(folder, identity, [])
    return python


def is_usable(folder: Path, identity: str) -> bool:
    """Return whether an environment was finished by this base Python, still starts, and has a pip."""
    stamp = read_stamp(folder)
    if stamp.get("base") != identity or not stamp.get("finished"):
        return False
    version = output_of(folder / VENV_PYTHON, "-c", VERSION)
    return bool(version) and identity.endswith(version)


def find_damage(python: Path) -> str:
    """Return a description of the damage to an environment's packages, or an empty string."""
    found = output_of(python, "-c", DAMAGE)
    return "" if found == "none" else found or "its Python does not start"


def clear_folder(folder: Path, base: str) -> None:
    """Remove the rest of an earlier attempt. The folder always has a stamp, by which the next run recognizes it."""
    if folder.is_dir():
        write_stamp(folder, base, [], finished=False)
        for entry in list(folder.iterdir()):
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            elif entry.name != STAMP:
                entry.unlink()
        return
    new = folder.with_name(f"{folder.name}.new")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    write_stamp(new, base, [], finished=False)
    new.rename(folder)


def make_by_hand(folder: Path, base: str) -> None:
    """Make a virtual environment without the venv module, in an empty folder: Python itself needs only these files."""
    python = folder / VENV_PYTHON
    real = Path(base).resolve()
    facts = f"home = {real.parent}\ninclude-system-site-packages = false\n"
    (folder / "pyvenv.cfg").write_text(facts, encoding="utf-8")
    python.parent.mkdir()
    for name in (python.name, "python3"):  # other programs look for the second name
        python.with_name(name).symlink_to(real)
    if output_of(python, "-c", "import sys; print(sys.prefix)") != str(folder):
        raise SetupError(f"{base} makes no virtual environment: install its venv module (apt install python3-venv)")


def seed_pip(python: Path) -> None:
    """Install pip from a wheel of itself, which runs straight from the file."""
    with locked(CACHE / "pip.lock", "pip"):  # all environments share the folder of its wheel
        for wheel in pip_wheels():
            if run_quietly([python, wheel / "pip", "install", "--no-index", "--no-deps", wheel]):
                return
    raise SetupError("no pip was found: install it (apt install python3-pip) or set PIP_INDEX_URL to a package index")


def install(python: Path, requirements: Sequence[str], what: str, seconds: float = INSTALL_SECONDS) -> None:
    """Install requirements into a Python's environment within a time limit, unless its stamp lists them."""
    folder = python.parents[1]
    if has_installed(folder, requirements):
        return
    with lock_of(folder):
        if has_installed(folder, requirements):  # another process has just installed them
            return
        stamp = read_stamp(folder)
        if not stamp.get("finished"):
            raise SetupError(f"{folder.name} was left unfinished by another run.py: run the command again")
        print_step(f"Installing {what}")
        # If this process is killed, the next run makes the environment again.
        write_stamp(folder, stamp["base"], [], finished=False)
        end = time.monotonic() + seconds
        pip = [python, "-m", "pip", "install", "--no-input", "--disable-pip-version-check", "--prefer-binary"]
        # Without bytecode files: modules write their own when imported, and thousands are never imported.
        installed = run_uv(python, "pip", "install", "--python", python, *requirements, seconds=seconds) or run_quietly(
            [*pip, "--no-compile", *requirements], max(1.0, end - time.monotonic())
        )
        if installed:
            # Packages of other commands are still installed, except those that are replaced here.
            names = {package_of(line) for line in requirements}
            others = [line for line in stamp["installed"] if package_of(line) not in names]
            write_stamp(folder, stamp["base"], [*requirements, *others])
        elif not find_damage(python):
            write_stamp(folder, stamp["base"], stamp["installed"])
    if not installed:
        raise not_installed(what)


def has_installed(folder: Path, requirements: Sequence[str]) -> bool:
    """Return whether an environment's stamp lists all requirements."""
    return set(requirements) <= set(read_stamp(folder).get("installed", ()))


def package_of(requirement: str) -> str:
    """Return the normalized package name of a requirement."""
    return re.sub(r"[-_.]+", "-", re.split(r"[^\w.-]", requirement, maxsplit=1)[0]).lower()


def requirements_of(project: dict[str, Any], parts: Sequence[str]) -> list[str]:
    """Return the requirements of the package and of the named extras and groups of a parsed pyproject.toml."""
    tables = {**project["project"]["optional-dependencies"], **project["dependency-groups"]}

    def lines_of(part: str) -> Iterator[str]:
        for line in tables[part]:
            if isinstance(line, str):
                yield line
            else:
                yield from lines_of(line["include-group"])

    named = (line for part in parts for line in lines_of(part))
    return list(dict.fromkeys([*project["project"]["dependencies"], *named]))


def read_project(python: Path) -> dict[str, Any]:
    """Return pyproject.toml, parsed by an environment's Python: before 3.11 only its pip contains a TOML parser."""
    text = output_of(python, "-c", READ_TOML, ROOT / "pyproject.toml")
    if not text:
        raise SetupError("pyproject.toml cannot be read")
    project: dict[str, Any] = json.loads(text)
    return project


def own_folder(identity: str) -> Path:
    """Return the folder of the project's own environment for this Python: `.venv`, unless that is another's.

    It is another's if the user made it, which must not be rebuilt, or if run.py made it with another Python that can
    still use it: the two may run at once.
    """
    folder = ROOT / ".venv"
    base = read_stamp(folder).get("base")
    if not folder.exists() or base == identity:
        return folder
    made_by_user = not (folder / STAMP).exists()
    if made_by_user or (base and output_of(base.splitlines()[0], "-c", IDENTITY) == base):
        return CACHE / f"venv-3.{sys.version_info[1]}"
    return folder


def claim_own_folder() -> Path:
    """Return the folder of the project's own environment, which no other Python takes from now on."""
    identity = output_of(BASE, "-c", IDENTITY)
    folder = own_folder(identity)
    if identity and read_stamp(folder).get("base") != identity:
        with lock_of(folder):
            # Another process may have just claimed it.
            if own_folder(identity) == folder and read_stamp(folder).get("base") != identity:
                clear_folder(folder, identity)
    return own_folder(identity)


def report_damage() -> None:
    """Report files that are missing from the own environment, and have the next run make it again."""
    folder = own_folder(output_of(BASE, "-c", IDENTITY))
    stamp = read_stamp(folder)
    if not stamp.get("finished"):
        return  # it does not exist, or another process is changing it
    problem = find_damage(folder / VENV_PYTHON)
    if problem:
        print_step(f"run.py: {folder} is damaged: {problem}. The next run makes it again", file=sys.stderr)
        with contextlib.suppress(OSError):
            write_stamp(folder, stamp["base"], [], finished=False)


def own_environment(parts: Sequence[str]) -> Path:
    """Return the Python of the project's own environment, with the named extras and groups."""
    python = make_environment(claim_own_folder(), BASE)
    install(python, requirements_of(read_project(python), parts), f"the packages for {parts[-1]}")
    return python


def install_project(python: Path) -> None:
    """Install this project itself into an environment, which runs it in place: with `rtvi-sync`, without a compiler."""
    install(python, [f"--editable={ROOT}"], "rtvi-sync")


def pinned_environment(
    name: str, minors: Sequence[int], pins: Path, what: str, seconds: float = INSTALL_SECONDS
) -> Path:
    """Return the Python of an environment in .cache with exactly the packages that a file lists.

    Args:
        name: of its folder.
        minors: the minor versions of Python 3 that it may have, the preferred one first.
        pins: the file, one requirement a line.
        what: the thing that is installed, for the line that the user reads.
        seconds: the time limit of the installation.
    """
    base = find_python(minors)
    if base is None:
        raise SetupError("needs Python " + " or ".join(f"3.{minor}" for minor in minors) + ", none was found")
    python = make_environment(CACHE / name, base)
    install(python, read_pins(pins), what, seconds)
    return python


def read_pins(file: Path) -> list[str]:
    """Return the requirements that a file lists, one a line."""
    lines = file.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def autobahn() -> Path:
    """Return a Python beside the packages of the Autobahn test suite, which needs Python 2.7."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    found = [
        *filter(None, map(shutil.which, ("python2.7", "python2"))),
        *map(str, pyenv.glob("versions/2.7*/bin/python")),
    ]
    question = "import sys; assert sys.version_info[:2] == (2, 7); print(sys.executable)"
    base = next(filter(None, (output_of(python, "-c", question) for python in found)), None)
    if base is None:
        raise SetupError("needs Python 2.7, none was found")
    folder = CACHE / "autobahn"
    python = folder / "python"
    with lock_of(folder):
        if not has_installed(folder, [AUTOBAHN]) or read_stamp(folder)["base"] != base:
            print_step("Installing the Autobahn test suite")
            clear_folder(folder, base)
            pip = [base, "-m", "pip", "install", "--no-input", "--disable-pip-version-check", "--target", folder]
            if not run_quietly([*pip, AUTOBAHN], INSTALL_SECONDS):
                raise not_installed("its packages")
            # Its .pth file, which would make this a package, is not read in a --target folder.
            (folder / "zope" / "__init__.py").touch()
            python.symlink_to(base)
            write_stamp(folder, base, [AUTOBAHN])
    return python


def bundle(source: Path, folder: Path) -> None:
    """Make one file, `bundle.js`, of a page's scripts, the first of which is `page.js`, and of their packages.

    Args:
        source: where the scripts are, and the `package.json` that names the packages.
        folder: where to put the packages and the file.
    """
    files = [source / "package.json", *source.glob("*.js")]
    made = folder / "bundle.js"
    with lock_of(folder):
        if not made.exists() or made.stat().st_mtime <= max(file.stat().st_mtime for file in files):
            _bundle(files, made)


def _bundle(files: Sequence[Path], made: Path) -> None:
    folder = made.parent
    missing = [program for program in ("npm", "chromium") if not shutil.which(program)]
    if missing:
        raise SetupError("needs " + " and ".join(missing))
    print_step(f"Making {made.relative_to(ROOT)}")
    folder.mkdir(parents=True, exist_ok=True)
    for file in files:
        shutil.copy(file, folder)
    npm = [shutil.which("npm"), "install", "--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock"]
    esbuild = ["node_modules/.bin/esbuild", "page.js", "--bundle", "--minify", f"--outfile={made}"]
    if not (run_quietly(npm, INSTALL_SECONDS, folder) and run_quietly(esbuild, cwd=folder)):
        raise not_installed("its packages")
