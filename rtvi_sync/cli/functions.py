"""The user's functions that a command calls, named by their place."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rtvi_sync.protocol.validation import FUNCTION

# The modules whose frames precede those of imported code.
_IMPORTERS = (__name__, "importlib", "importlib._bootstrap", "importlib._bootstrap_external")


def function_at(place: str, option: str) -> Callable[..., Any]:
    """Return the function at a place: "MODULE:FUNCTION", or "FILE.py:FUNCTION".

    A file runs once, even if several of its functions are named.

    Raises:
        ValueError: No such function exists, or the import of the module or file fails. The text then has the traceback,
            without the frames of this package.
        OSError: The file cannot be read.
    """
    where, colon, name = place.rpartition(":")
    if not (colon and where and name):
        raise ValueError(
            f"{option} {place}: name a file and a function, as in calls.py:call, or a module, as in calls:call"
        )
    is_file = where.endswith(".py") or Path(where).exists()
    try:
        module = _of_file(where, option) if is_file else _of_name(where, option)
    except SystemExit:
        raise ValueError(
            f"{option}: {where} ends the program when it is imported; let it do so under if __name__ == '__main__'"
        ) from None
    function: Any = module
    for part in name.split("."):
        function = getattr(function, part, None)
    if not FUNCTION.has_type(function):
        raise ValueError(f"{option}: {where} has no function {name!r}")
    found: Callable[..., Any] = function
    return found


def _of_name(name: str, option: str) -> Any:
    sys.path.insert(0, os.getcwd())  # like `python -m`
    try:
        return importlib.import_module(name)
    except Exception as error:  # noqa: BLE001 - the code is the user's
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing is None or not f"{name}.".startswith(f"{missing}."):  # the module exists, but its code fails
            raise _failed(name, option, error) from None
        raise ValueError(f"{option}: no module {name!r} in this folder or among the installed packages") from None


def _of_file(file: str, option: str) -> Any:
    path = Path(file).resolve()
    path.open("rb").close()
    loaded = sys.modules.get(path.stem)
    if loaded is not None and getattr(loaded, "__file__", None) == str(path):
        return loaded
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ValueError(f"{option} {file} is not a Python file: its name must end with .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)  # like an import, because pickle and the file may look for it
    sys.path.insert(0, str(path.parent))  # for imports of files beside it
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        if sys.modules[path.stem] is module:
            del sys.modules[path.stem]
        if isinstance(error, Exception):
            raise _failed(file, option, error) from None
        raise
    return module


def _failed(where: str, option: str, error: Exception) -> ValueError:
    """Return the error for a module or file whose import failed, with the traceback of the user's code."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_globals.get("__name__") in _IMPORTERS:
        frames = frames.tb_next
    shown = "".join(traceback.format_exception(type(error), error, frames))
    return ValueError(f"{option}: the import of {where} fails:\n{shown.rstrip()}")
