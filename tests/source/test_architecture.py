"""The invariants of `docs/background/architecture.md`: layers, names and sizes of modules, threads."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.slowness import GUARD

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "rtvi_sync"
MODULES = sorted(PACKAGE.rglob("*.py"))
NAMES = [str(path.relative_to(ROOT)) for path in MODULES]


def dotted(path: Path) -> str:
    """Return the name under which a file is imported."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_no_circles() -> None:
    """No module imports itself by way of others, not even inside a function."""
    grimp = pytest.importorskip("grimp", reason="`run.py lint` installs it with import-linter")
    graph = grimp.build_graph("rtvi_sync", exclude_type_checking_imports=True, cache_dir=None)
    left = {module: set(graph.find_modules_directly_imported_by(module)) for module in graph.modules}
    while ends := [module for module, imported in left.items() if not imported & left.keys()]:
        for module in ends:
            del left[module]
    assert left == {}, "these import a circle of modules, or are in one"


def test_each_module_is_one_sentence() -> None:
    """The first line of each module's docstring is a sentence, which `python -m tools.house --modules` prints."""
    wrong = [
        dotted(path)
        for path in MODULES
        if not re.fullmatch(
            r"[A-Z`].*[.:]", (ast.get_docstring(ast.parse(path.read_text("utf-8"))) or "").partition("\n")[0]
        )
    ]
    assert wrong == []


def test_the_page_shows_the_layers_of_the_contract() -> None:
    """The drawing in `docs/background/architecture.md` has the layers that import-linter checks, in their order."""
    page = (ROOT / "docs/background/architecture.md").read_text("utf-8")
    drawn = re.findall(r"\w+", "".join(line[:68] for line in page.split("```")[1].splitlines(keepends=True)))
    contract = (ROOT / "pyproject.toml").read_text("utf-8").partition("layers = [")[2].partition("]\n")[0]
    assert drawn == [layer for layer in re.findall(r"\w+", re.sub(r"#.*", "", contract)) if layer != "__main__"]


def test_the_page_is_short() -> None:
    """A newcomer reads `docs/background/architecture.md` in ten minutes."""
    assert len((ROOT / "docs/background/architecture.md").read_text("utf-8").split()) <= 1500


def test_each_class_is_named_once() -> None:
    """No two classes of the package have the same name, as `docs/background/style.md` says."""
    places: dict[str, list[str]] = {}
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(f"{dotted(path)}:{node.lineno}")
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_threads_begin_in_one_place() -> None:
    """Invariant "threads": every thread is started by `concurrency/lifecycle.py`, and nowhere else; no pool, no
    process, and no loop except in `concurrency/loop_thread.py`, which the modules of aiortc use, and in mcp."""
    elsewhere = [
        dotted(path)
        for path in MODULES
        if path.name not in ("lifecycle.py", "loop_thread.py")
        and not path.name.startswith("aiortc_")
        and re.search(
            r"threading\.(Thread|Timer)\(|_thread\.start_new|ThreadPoolExecutor|multiprocessing|asyncio\.",
            path.read_text(),
        )
    ]
    assert elsewhere == []


def test_mcp_is_used_in_one_place() -> None:
    """Invariant "asyncio": only `cli/agent_server.py` imports mcp, and runs its loop."""
    users = [dotted(path) for path in MODULES if re.search(r"^\s*(from|import) (mcp|anyio)", path.read_text(), re.M)]
    assert users == ["rtvi_sync.cli.agent_server"]


def test_patched_modules_are_used_through_the_module() -> None:
    """`import queue`, `import threading`, never `from` them: a gevent-patched process replaces their members."""
    wrong = [
        dotted(path)
        for path in MODULES
        if re.search(r"^\s*from (queue|threading|socket|select|selectors|time|ssl) import", path.read_text(), re.M)
    ]
    assert wrong == []


def test_locks_are_made_in_one_place() -> None:
    """A lock that the main thread may take is made by `new_lock()`, and conditions belong to servers and bots."""
    elsewhere = [
        dotted(path)
        for path in MODULES
        if re.search(r"= threading\.R?Lock\(", path.read_text())
        or (
            re.search(r"threading\.Condition\(", path.read_text())
            and not path.is_relative_to(ROOT / "rtvi_sync/web")
            and not path.is_relative_to(ROOT / "rtvi_sync/testing")
        )
    ]
    assert elsewhere == [
        "rtvi_sync.client.recorder",  # of the thread that writes
        "rtvi_sync.concurrency.latch",  # threads sleep on it
        "rtvi_sync.concurrency.lock",
        "rtvi_sync.concurrency.worker_pool",  # as above
        "rtvi_sync.media.devices.portaudio",  # with a time limit
        "rtvi_sync.testing.contract_rig",  # never waited for
        "rtvi_sync.transports.websocket_writer",  # never waited for on the main thread
    ]


def test_every_lock_says_what_it_guards() -> None:
    """Above each lock that is made stands a comment."""
    silent = []
    for path in MODULES:
        lines = path.read_text().splitlines()
        for number, line in enumerate(lines):
            makes_one = re.search(
                r"= (new_lock\(|threading\.(R?Lock|Condition)\(|attrs\.field\(.*threading\.Condition)", line
            )
            if makes_one and "after_fork" not in enclosing_function(lines, number):
                above = [text.strip() for text in lines[max(0, number - 3) : number]]
                if not any(text.startswith("#") for text in above):
                    silent.append(f"{dotted(path)}:{number + 1}")
    assert silent == []


def test_time_is_read_in_one_place() -> None:
    """Invariant "clock": only `concurrency/clock.py` reads the module `time`, whose functions tools for tests replace.
    `sleep()` follows no clock."""
    elsewhere = [
        dotted(path)
        for path in MODULES
        if path.name != "clock.py"
        and re.search(
            r"\btime\.(monotonic|perf_counter|time)(_ns)?\b|from time\b|import time as|timeit", path.read_text()
        )
    ]
    assert elsewhere == []


def enclosing_function(lines: list[str], number: int) -> str:
    """Return the last `def` line above a line."""
    return next((line for line in reversed(lines[:number]) if re.match(r"\s*def ", line)), "")


def test_importing_loads_nothing_heavy() -> None:
    """A client over WebSocket loads no audio, video, number, terminal or event-loop package, and of other transports,
    HTTP and devices, which not every session has, nothing."""
    modules = [
        *("asyncio", "numpy", "rich", "websockets", "pyaudio", "cv2", "soxr", "mss", "multiprocessing"),
        *("google.protobuf", "httpx", "httpcore", "urllib.request", "email", "certifi", "tenacity"),
        *("ctypes", "subprocess", "rtvi_sync.media.devices.portaudio_backend", "rtvi_sync.protocol.turn_payloads"),
        *("rtvi_sync.transports.eval", "rtvi_sync.transports.small_webrtc", "rtvi_sync.net.http"),
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

    client = "rtvi_sync.client.client, rtvi_sync.transports.websocket"
    assert loaded(client) <= loaded("websocket, attrs, blinker")


def test_nothing_of_this_machine() -> None:
    """No file of the package knows a directory of the machine it was written on."""
    found = [dotted(path) for path in MODULES if re.search(r"/(work|root|home|tmp|Users)/\w", path.read_text())]
    assert found == []
