"""A process that has no descriptor or no thread left: each call raises an error that it documents, and works later."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rtvi_sync.testing import EmbeddedBot
from tests.support import part_probes
from tests.support.clients import websocket_client
from tests.support.processes import run_python

# Each call is made with room for no further descriptor or thread, for one more, and so on, until it succeeds. Resources
# of an earlier call (idle threads, the selector of the io thread) are removed before each.
SCRIPT = """
import gc, json, resource, sys, threading

from rtvi_sync import RTVIClient, WebSocketTransport
from rtvi_sync.media import NullSink, SilenceSource
from tests.support import limits
from tests.support.threads import end_idle_threads

what, base_url, ws_url = sys.argv[1:]
CALLS = {
    "connect": lambda client: client.connect(),
    "connect(given)": lambda client: client.connect({"ws_url": ws_url}),
    "start_bot": lambda client: client.start_bot(base_url + "/start"),
    "start_bot_and_connect": lambda client: client.start_bot_and_connect(base_url + "/start"),
    "action": lambda client: client.action({"service": "tts", "action": "say"}),
    "init_devices": lambda client: client.init_devices(),
}
limits.change(teardown=0.5)  # the end of a session waits so long for a thread
begin = threading.Thread.start
room = None


def refuse(thread):
    global room
    if room is not None and thread.name.startswith("rtvi-"):
        if room == 0:
            raise RuntimeError("can't start new thread")
        room -= 1
    begin(thread)


def leave_room_for(number):
    global room
    if what == "threads":
        room = number
    else:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard if number is None else 3 + number, hard))


threading.Thread.start = refuse
client = RTVIClient(
    transport=WebSocketTransport(),
    params={"base_url": base_url},
    connect_timeout=10.0,
    mic=SilenceSource(),
    speaker=NullSink(),
)


def call(name, number, raised):
    leave_room_for(number)
    try:
        CALLS[name](client)
    except Exception as error:
        raised.append((type(error).__name__, str(error)))
        return False
    finally:
        try:
            client.disconnect()  # never raises
        finally:
            leave_room_for(None)
        client.disconnect()
        assert client.state in ("disconnected", "error"), client.state
        end_idle_threads()
        gc.collect()
    return True


refusals = {name: [] for name in CALLS}
for name, raised in refusals.items():
    assert call(name, None, raised), raised  # what is loaded once is loaded
    assert any(call(name, number, raised) for number in range(40)), raised
print(json.dumps(refusals))
"""

DOCUMENTED = {
    "connect": {"StartBotError", "TransportStartError"},
    "connect(given)": {"TransportStartError"},
    "start_bot": {"StartBotError"},
    "start_bot_and_connect": {"StartBotError", "TransportStartError"},
    "action": {"DisconnectedError"},
    "init_devices": {"DeviceError"},
}


@pytest.mark.parametrize(("what", "advice"), [("descriptors", "ulimit -n"), ("threads", "ulimit -u")])
def test_each_call_says_what_is_missing(what: str, advice: str) -> None:
    """`connect()`, `start_bot()`, `action()` and `init_devices()` raise an error of a documented kind, with advice, and
    never a bare `OSError` or a class without a public name. `disconnect()` never raises, and the client works when
    there is room again.
    """
    with EmbeddedBot(version="1.0.0", actions={("tts", "say"): lambda: True}) as bot:
        code, out, err = run_python(SCRIPT, what, bot.base_url, bot.ws_url, timeout=100.0)
    assert code == 0, err
    refusals: dict[str, list[tuple[str, str]]] = json.loads(out)
    for name, raised in refusals.items():
        assert raised, f"there was always room for {name}"
        assert {kind for kind, _ in raised} <= DOCUMENTED[name], raised
        assert [text for _, text in raised if advice not in text] == []


#: Makes the selectors of a process refuse more than a few sockets: select() as on Windows, epoll as Linux does.
SELECTORS = {
    "select": """
import selectors
select = selectors.SelectSelector.select

def limited(self, timeout=None):
    if len(self.get_map()) > 4:
        raise ValueError("too many file descriptors in select()")
    return select(self, timeout)

selectors.SelectSelector.select = limited
selectors.DefaultSelector = selectors.SelectSelector
""",
    "epoll": """
import errno, selectors

class Limited(selectors.EpollSelector):
    def register(self, *args, **kwargs):
        if len(self.get_map()) >= 4:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().register(*args, **kwargs)

selectors.DefaultSelector = Limited
""",
}

ONE_TOO_MANY = """
import sys
from rtvi_sync import ConnectError, connect

def begin():
    return connect(sys.argv[1], text_only=True, connect_timeout=30)

clients = [begin() for _ in range(3)]
try:
    begin()
except ConnectError as error:
    print(error)
print([client.ask("hello", timeout=30).status for client in clients])
clients.pop().disconnect()
clients.append(begin())
print([client.ask("hello", timeout=30).status for client in clients])
for client in clients:
    client.disconnect()
"""


@pytest.mark.parametrize(("selector", "limit"), [("select", "select()"), ("epoll", "fs.epoll.max_user_watches")])
def test_one_socket_too_many(selector: str, limit: str) -> None:
    """A session beyond the selector's room is refused with the limit's name, and the other sessions continue."""
    with EmbeddedBot() as bot:
        code, out, err = run_python(SELECTORS[selector] + ONE_TOO_MANY, bot.ws_url)
    assert (code, err) == (0, "")
    refusal, *answers = out.splitlines()
    assert limit in refusal
    assert "no more than 4" in refusal
    assert "over several processes" in refusal
    assert answers == [str(["complete"] * 3)] * 2


def test_disconnect_after_start_bot(monkeypatch: pytest.MonkeyPatch) -> None:
    """`disconnect()` brings a client back to `disconnected` even if no descriptor is left for its own work."""

    def none_left() -> Any:
        raise OSError(24, "Too many open files")

    with EmbeddedBot() as bot:
        client = websocket_client(bot)
        client.start_bot(f"{bot.base_url}/start")
        with monkeypatch.context() as patched:
            part_probes.replace_runtime(patched, none_left)
            client.disconnect()
        assert client.state == "disconnected"
