"""The house as `docs/architecture.md` describes it: floors, modules, threads."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.slowness import GUARD

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "rtvi_sync"
MODULES = sorted(PACKAGE.rglob("*.py"))
NAMES = [str(path.relative_to(ROOT)) for path in MODULES]

# The floors from the ground up; a module on one imports modules of its own and of lower floors. `import-linter`
# checks the finer order within them.
FLOORS = [
    {"errors", "messages", "events", "protocol", "_version", "_validation"},
    {"concurrency"},
    {"media"},
    {"transports"},
    {
        *("signals", "options", "stats", "streams", "dispatch", "announce", "effects", "functions"),
        *("teardown", "devices", "start", "session", "http_action"),
        *("attempt", "reconnect", "watch", "sessionless", "connect", "client_part", "helpers"),
        *("outbound", "bot_messages", "bot_config", "bot_actions", "client_devices", "client", "__init__"),
    },
    {"notes", "testing"},
    {"cli", "flask", "notebook", "locust", "__main__"},
]


def floor_of(module: str) -> int:
    """The floor of a module, by the name that follows the package's."""
    return next(number for number, floor in enumerate(FLOORS) if module in floor)


def dotted(path: Path) -> str:
    """The name under which a file is imported."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(path: Path) -> set[str]:
    """The package's modules, below its own name, that a file imports anywhere in it."""
    found: set[str] = set()
    here = path.relative_to(ROOT).with_suffix("").parts
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {a.name.split(".")[1] for a in node.names if a.name.startswith("rtvi_sync.")}
        elif isinstance(node, ast.ImportFrom):
            base = [*here[: len(here) - node.level], *(node.module or "").split(".")] if node.level else []
            names = [part for part in base or (node.module or "").split(".") if part]
            if names and names[0] == "rtvi_sync":
                found |= {names[1]} if len(names) > 1 else {alias.name for alias in node.names}
    return {name for name in found if (PACKAGE / f"{name}.py").exists() or (PACKAGE / name).is_dir()}


@pytest.mark.parametrize("path", MODULES, ids=NAMES)
def test_a_floor_imports_only_floors_below(path: Path) -> None:
    """Invariant "six floors": nothing reaches upwards."""
    own = path.relative_to(PACKAGE).with_suffix("").parts[0]
    above = {name for name in imports_of(path) if floor_of(name) > floor_of(own)}
    assert above == set()


def test_import_contracts() -> None:
    """The contracts of `pyproject.toml`, which know the order within a floor too, hold."""
    pytest.importorskip("importlinter", reason="`run.py lint` installs import-linter and checks the contracts")
    check = "from importlinter.cli import lint_imports_command; lint_imports_command(['--no-cache'])"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, timeout=GUARD, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_module_has_a_floor() -> None:
    """A new module says where it belongs."""
    tops = {path.relative_to(PACKAGE).with_suffix("").parts[0] for path in MODULES}
    assert tops == set().union(*FLOORS)


@pytest.mark.parametrize(
    "path", [p for p in MODULES if floor_of(p.relative_to(PACKAGE).with_suffix("").parts[0]) == 0], ids=dotted
)
def test_the_ground_floor_is_pure(path: Path) -> None:
    """Invariant "the ground is pure": no thread, socket or clock."""
    impure = {"threading", "socket", "selectors", "time", "queue", "asyncio", "ssl"}
    imported = {
        name.split(".")[0]
        for node in ast.walk(ast.parse(path.read_text()))
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom) and not node.level
            else []
        )
    }
    assert imported & impure == set()


@pytest.mark.parametrize("path", MODULES, ids=NAMES)
def test_no_module_is_too_long(path: Path) -> None:
    """No module grows past 500 lines."""
    assert len(path.read_text().splitlines()) <= 500


def test_each_module_imports_alone() -> None:
    """Every module can be the first that a process imports: there is no cycle that hides behind another order."""
    names = [dotted(path) for path in MODULES if path.name != "__main__.py"]
    script = """
import os, sys
sys.path.insert(0, sys.argv[1])
import rtvi_sync  # whichever module is asked for, the package comes first
failed = []
for name in sys.argv[2:]:
    if name in sys.modules:
        continue
    pid = os.fork()
    if pid == 0:
        try:
            __import__(name)
            os._exit(0)
        except BaseException as error:
            print(name, type(error).__name__, error, flush=True)
            os._exit(1)
    if os.waitpid(pid, 0)[1]:
        failed.append(name)
sys.exit(bool(failed))
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script, str(ROOT), *names], capture_output=True, text=True, timeout=GUARD
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


def test_threads_begin_in_one_place() -> None:
    """Invariant "threads": every thread is started by `concurrency/lifecycle.py`, and nowhere else; no pool, no
    process, no loop."""
    elsewhere = [
        dotted(path)
        for path in MODULES
        if path.name != "lifecycle.py"
        and re.search(
            r"threading\.(Thread|Timer)\(|_thread\.start_new|ThreadPoolExecutor|multiprocessing|asyncio\.",
            path.read_text(),
        )
    ]
    assert elsewhere == []


def test_patched_modules_are_used_through_the_module() -> None:
    """`import queue`, `import threading`, never `from` them: a gevent-patched process replaces their members."""
    wrong = [
        dotted(path)
        for path in MODULES
        if re.search(r"^\s*from (queue|threading|socket|select|selectors|time|ssl) import", path.read_text(), re.M)
    ]
    assert wrong == []


def test_every_lock_says_what_it_guards() -> None:
    """Above each lock that is made stands a comment."""
    silent = []
    for path in MODULES:
        lines = path.read_text().splitlines()
        for number, line in enumerate(lines):
            makes_one = re.search(r"= (threading\.(R?Lock|Condition)\(|attrs\.field\(.*threading\.Condition)", line)
            if makes_one and "after_fork" not in enclosing_function(lines, number):
                above = [text.strip() for text in lines[max(0, number - 3) : number]]
                if not any(text.startswith("#") for text in above):
                    silent.append(f"{dotted(path)}:{number + 1}")
    assert silent == []


def enclosing_function(lines: list[str], number: int) -> str:
    """The last `def` line above a line."""
    return next((line for line in reversed(lines[:number]) if re.match(r"\s*def ", line)), "")


def test_importing_loads_nothing_heavy() -> None:
    """`import rtvi_sync` loads no audio, video, number, terminal or event-loop package, and of HTTP and devices, which
    not every session has, nothing."""
    modules = [
        *("asyncio", "numpy", "rich", "websockets", "pyaudio", "cv2", "soxr", "mss", "multiprocessing"),
        *("httpx", "httpcore", "urllib.request", "email", "certifi", "tenacity"),
        *("ctypes", "subprocess", "rtvi_sync.media.devices.pyaudio_backend", "rtvi_sync.protocol.speech_payloads"),
    ]
    script = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); import %s; print(*(m for m in {modules} if m in sys.modules))"
    )

    def loaded(what: str) -> set[str]:
        out = subprocess.run(
            [sys.executable, "-c", script % what],
            capture_output=True,
            text=True,
            check=True,
            timeout=GUARD,
            env={**os.environ, "PYTHONPATH": ""},
        ).stdout
        return set(out.split())

    assert loaded("rtvi_sync") <= loaded("websocket, attrs, blinker, google.protobuf")


def test_nothing_of_this_machine() -> None:
    """No file of the package knows a directory of the machine it was written on."""
    found = [dotted(path) for path in MODULES if re.search(r"/(work|root|home|tmp|Users)/\w", path.read_text())]
    assert found == []
