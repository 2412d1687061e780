"""The command that adds an extra to this installation of the package, however the package was installed."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from importlib.metadata import Distribution

_NAME: Final = "rtvi_sync"
_FOLDER: Final = Path(__file__).parents[1]


def install_command(extra: str) -> str:
    """Return the command line that installs an extra into the environment of this Python.

    The command names the origin of the installation (a package index, a wheel, a folder, a repository), and a tool that
    can install into this environment (pip, uv or pipx).
    """
    try:
        installed = _distribution()
        is_editable, target = _target(extra, installed)
        return f"{_installer(installed, is_editable=is_editable)} {target}"
    except Exception:  # noqa: BLE001 - a damaged environment must not hide the error that has the command
        return f'pip install "{_NAME}[{extra}]"'


def _distribution() -> Distribution | None:
    from importlib import metadata  # imported late: it takes longer than all of this module

    try:
        return metadata.distribution(_NAME)
    except metadata.PackageNotFoundError:
        return None


def _target(extra: str, installed: Distribution | None) -> tuple[bool, str]:
    """Return whether the package is used in place, and the requirement to pass to the installer."""
    if _is_project(_FOLDER):
        return True, _quoted(f"{_FOLDER}[{extra}]")
    origin = _origin(installed) if installed is not None else {}
    url = _without_password(str(origin.get("url", "")))
    from_here = _local_path(url)
    if installed is not None and from_here is not None and not from_here.exists():
        return False, " ".join(map(_quoted, _requirements(installed, extra)))
    if "dir_info" in origin and from_here is not None:
        return False, _quoted(f"{from_here}[{extra}]")
    if isinstance(vcs := origin.get("vcs_info"), dict):
        revision = vcs.get("requested_revision") or vcs.get("commit_id")
        url = f"{vcs.get('vcs')}+{url}{f'@{revision}' if revision else ''}"
    if url and (folder := origin.get("subdirectory")):
        url += f"#subdirectory={folder}"
    return False, _quoted(f"{_NAME}[{extra}]{f' @ {url}' if url else ''}")


def _is_project(folder: Path) -> bool:
    """Return whether a folder has the source of this package, which is used in place, as by `pip install -e`."""
    file = folder / "pyproject.toml"
    return file.is_file() and f'\nname = "{_NAME}"\n' in file.read_text(encoding="utf-8")


def _origin(installed: Distribution) -> dict[str, Any]:
    """Return the installer's record of the origin (`direct_url.json`). Empty if it was a package index."""
    import json

    origin: dict[str, Any] = json.loads(installed.read_text("direct_url.json") or "{}")
    return origin


def _local_path(url: str) -> Path | None:
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    parts = urlsplit(url)
    return Path(url2pathname(parts.path)) if parts.scheme == "file" else None


def _without_password(url: str) -> str:
    from urllib.parse import urlsplit

    user, at, host = (parts := urlsplit(url)).netloc.rpartition("@")
    return parts._replace(netloc=f"{user.partition(':')[0]}{at}{host}").geturl()


def _requirements(installed: Distribution, extra: str) -> list[str]:
    """Return the packages of an extra. If the package's own source is gone, only they can be installed."""
    found = []
    for line in installed.requires or ():
        requirement, _, marker = line.partition(";")
        if extra in marker.replace("'", '"').split('"'):
            found.append(requirement.strip())
    return found


def _installer(installed: Distribution | None, *, is_editable: bool) -> str:
    """Return the first words of the command: the tool, and its option for a package that is used in place."""
    environment = Path(sys.prefix)
    edit = " -e" if is_editable else ""
    if (environment / "pipx_metadata.json").is_file():
        return f"pipx runpip {_quoted(environment.name)} install{edit}"
    if (environment / "uv-receipt.toml").is_file():
        if environment.name.replace("_", "-") == _NAME.replace("_", "-"):
            return f"uv tool install{edit}"
        return f"uv tool install {_quoted(environment.name)} --with{'-editable' if is_editable else ''}"
    python = _quoted(sys.executable or "python")
    if _has_pip():
        return f"{'pip' if _is_first('pip') else f'{python} -m pip'} install{edit}"
    if _is_of_uv(environment, installed):
        if (environment.parent / "uv.lock").is_file():
            return f"uv add{' --editable' if is_editable else ''}"
        is_active = os.environ.get("VIRTUAL_ENV") == sys.prefix
        return f"uv pip install{'' if is_active else f' --python {python}'}{edit}"
    return f"pip --python {python} install{edit}"


def _has_pip() -> bool:
    from importlib.util import find_spec

    return find_spec("pip") is not None


def _is_first(program: str) -> bool:
    """Return whether a program is found by its name alone, and belongs to this environment."""
    import shutil
    import sysconfig

    found = shutil.which(program)
    return found is not None and Path(found).parent == Path(sysconfig.get_path("scripts"))


def _is_of_uv(environment: Path, installed: Distribution | None) -> bool:
    if installed is not None and (installed.read_text("INSTALLER") or "").strip() == "uv":
        return True
    file = environment / "pyvenv.cfg"
    return file.is_file() and "\nuv = " in file.read_text(encoding="utf-8")


def _quoted(word: str) -> str:
    """Return a word quoted for shells, including the shells of Windows."""
    return f'"{word}"' if set(word) & set(" []<>=;@#&()") else word
