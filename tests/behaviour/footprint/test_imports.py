"""The cost of importing the package: time, modules and classes, and when they are imported."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from rtvi_sync import RTVIClient, RTVIClientHelper, RTVIEventCallbacks, signals
from tests.support.clients import memory_client
from tests.support.forking import in_child
from tests.support.wire import forget_payloads

from .counted import run

ROOT: Final = str(Path(__file__).parents[3])
# The imports of a WebSocket client; `import rtvi_sync` alone imports next to nothing.
IMPORT: Final = "from rtvi_sync import RTVIClient, WebSocketTransport"
DEPENDENCIES: Final = "import httpx, websocket, attrs, blinker"
# The modules of the package that this imports, and the classes that attrs makes for it, 0.3 ms each: 113 and 60.
MOST_MODULES: Final = 115
MOST_CLASSES: Final = 62
COUNT: Final = f"""
import sys
{IMPORT}
modules = [module for name, module in sys.modules.items() if name.partition(".")[0] == "rtvi_sync"]
found = {{value for module in modules for value in vars(module).values() if isinstance(value, type)}}
print(len(modules), sum("__attrs_attrs__" in vars(each) for each in found))
"""
PAYLOADS: Final = {"rtvi_sync.protocol.application_payloads", "rtvi_sync.protocol.turn_payloads"}


@pytest.mark.matrix
def test_import_is_quick(tmp_path: Path) -> None:
    """Importing a WebSocket client takes under twice the time of the package's four dependencies."""

    def seconds_to(code: str) -> float:
        # Installed packages are compiled once; so is all code here, regardless of the environment's settings.
        compiled = {"PYTHONPYCACHEPREFIX": str(tmp_path), "PYTHONDONTWRITEBYTECODE": ""}
        timed = f"import time; began = time.perf_counter(); {code}; print(time.perf_counter() - began)"
        return float(run(timed, **compiled))

    seconds_to(IMPORT)
    seconds_to(DEPENDENCIES)

    # Side by side, so that other load on the machine affects both.
    pairs = [(seconds_to(IMPORT), seconds_to(DEPENDENCIES)) for _ in range(7)]

    assert statistics.median(ours / theirs for ours, theirs in pairs) < 2


@pytest.mark.matrix
def test_import_makes_few_classes() -> None:
    """A short program spends most of its time on its imports."""
    modules, classes = map(int, run(COUNT).split())
    assert 0 < modules <= MOST_MODULES
    assert 0 < classes <= MOST_CLASSES


class Helper(RTVIClientHelper):
    message_types = ("ui-command",)


def connect_signal(client: RTVIClient) -> None:
    """Connect a receiver to the signal of this client."""
    signals.ui_command.connect(print, sender=client)


LISTENING: Final[dict[str, Callable[[RTVIClient], object]]] = {
    "on": lambda client: client.on("ui-command", print),
    "once": lambda client: client.once("ui-command", print),
    "decorator": lambda client: client.on("ui-command")(print),
    "callback": lambda _: memory_client(callbacks=RTVIEventCallbacks(on_ui_command=print)),
    "events": lambda client: client.events("ui-command"),
    "all events": lambda client: client.events(),
    "signal": connect_signal,
    "signal of all clients": lambda _: signals.ui_command.connect(print),
    "helper": lambda client: client.register_helper("ui", Helper()),
    "function": lambda client: client.register_function_call_handler("f", print),
    "turns": lambda client: client.on("turn-ended", print),
}


@pytest.mark.parametrize("listen", LISTENING.values(), ids=LISTENING)
def test_payload_classes_are_imported_before_there_is_a_listener(listen: Callable[[RTVIClient], object]) -> None:
    """No thread of a session imports them later: the child of a fork at that moment could never import them."""

    def child() -> bool:
        client = memory_client()
        forget_payloads()
        listen(client)
        return not PAYLOADS.isdisjoint(sys.modules)

    assert in_child(child)


SESSION: Final = """
import sys
from tests.support.clients import memory_client

client = memory_client()
before = set(sys.modules)
print(*sorted(name.rpartition(".")[2] for name in before if name.endswith("_payloads")))
with client:
    print(*sorted(name.rpartition(".")[2] for name in sys.modules if name.endswith("_payloads")))
    connected = set(sys.modules)
    client.on("user-transcription", print)
    client.turns()
    client.stats()
    client.wait_until_ready()
    client.barge_in("Stop", after="server-message").cancel()
    print(*sorted(set(sys.modules) - connected))
    client.barge_in("Stop", after="ui-command").cancel()
    print(*sorted(name.rpartition(".")[2] for name in set(sys.modules) - connected))
    with client.expect():
        pass
    print(*sorted(name.rpartition(".")[2] for name in set(sys.modules) - connected))
"""


def test_what_a_session_imports() -> None:
    """The calls of a session, and the payloads of turns, are imported by `connect()`, and nothing later: a process may
    have no descriptor left then, or fork. A call that listens to other events imports their payloads."""
    assert run(SESSION, PYTHONPATH=ROOT).splitlines() == [
        "session_payloads",
        "session_payloads turn_payloads",
        "",
        "application_payloads",
        "application_payloads service_payloads",
    ]
