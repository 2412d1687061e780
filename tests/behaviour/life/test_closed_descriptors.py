"""Programs that close all descriptors they find, as `os.closerange()` and libraries that daemonize a process do."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from rtvi_sync.testing import EmbeddedBot
from tests.support.processes import run_python
from tests.support.required import numbered_sockets
from tests.support.selection import some_of
from tests.support.slowness import takes
from tests.support.waiting import until
from tests.support.webrtc import FarLoop, ready_answers, rtc_bot

pytestmark = numbered_sockets

PREAMBLE = """
    import json, logging, os, select, socket, sys, threading, warnings
    from pathlib import Path
    from rtvi_sync import *
    from rtvi_sync.media import *
    from tests.support.slowness import GUARD, takes

    gone, ends = threading.Event(), []

    def make_client(mic=None, **options):
        # Without pings: no timer wakes the thread that reads the network.
        transport = WebSocketTransport(sys.argv[1], ping_interval=None)
        return RTVIClient(transport=transport, mic=mic or SilenceSource(), enable_mic=mic is not None,
                          speaker=NullSink(), connect_timeout=20, request_timeout=10, **options)

    def ended(info):
        ends.append([info.initiator, "closed the session's descriptor" in str(info.error)])
        gone.set()

    def fails(call, *arguments):
        try:
            call(*arguments)
        except RTVIError as error:
            return "closed the session's descriptor" in str(error) or str(error)
        return "no error"

    highest = lambda: max(map(int, os.listdir("/proc/self/fd")))
"""

#: Files and sockets that the application opens with the freed descriptor numbers, and how it checks that they are
#: untouched.
OPEN = {
    "files": """
        def take():
            return open(os.path.join(sys.argv[2], str(len(taken))), "w+b", buffering=0)

        def untouched(file):
            with file:
                file.write(b"mine")
                file.seek(0)
                return file.read() == b"mine"
    """,
    "sockets": """
        def take():
            pair = socket.socketpair()
            for end in pair:
                end.setblocking(False)
            return pair

        def untouched(pair):
            with pair[0], pair[1]:
                for end in pair:
                    end.send(b"mine")
                return all(end.recv(100) == b"mine" for end in pair)
    """,
    "epolls": """
        def take():
            epoll, (reader, writer) = select.epoll(), os.pipe()
            epoll.register(reader, select.EPOLLIN)
            os.write(writer, b"mine")
            return epoll, reader

        def untouched(opened):
            epoll, reader = opened
            with epoll:
                return epoll.poll(0) == [(reader, select.EPOLLIN)] and os.read(reader, 100) == b"mine"
    """,
}

#: The application's use of its session before the next one starts, if any.
CALLS = {
    "connects again": "client.connect()",
    "disconnects": "client.disconnect(); client.connect()",
    "connects another client": "other = make_client(); other.connect(); other.disconnect(); client.connect()",
}

STRIKE = """
    client = make_client()
    client.on("disconnected", ended)
    client.connect()
    client.send_client_request("echo", 1)
    last = highest()
    os.closerange(3, 4096)
    taken = []
    while highest() <= last + 3:
        taken.append(take())
    with takes(1.0):
        {call}
    report = {{"ended": len(ends)}}
    report["again"] = client.send_client_request("echo", 2)
    with make_client() as second:
        report["second"] = second.send_client_request("echo", 3)
    client.disconnect()
    report["untouched"] = all(map(untouched, taken))
    print(json.dumps(report))
"""


def run(script: str, bot: EmbeddedBot, *arguments: str) -> dict[str, object]:
    """Run a script in its own process and return its report."""
    code, out, err = run_python(script, bot.ws_url, *arguments)
    told = [line for line in err.splitlines() if not line.startswith("The session is lost: ")]
    assert (code, told) == (0, []), err
    return json.loads(out)


@pytest.mark.parametrize(("call", "opened"), some_of(itertools.product(CALLS, OPEN), *zip(CALLS, OPEN, strict=True)))
def test_a_live_session_ends_and_others_begin(call: str, opened: str, tmp_path: Path) -> None:
    """The session ends at once with the next `connect()` or `disconnect()`, later ones work, and nothing that the
    application has opened with the same numbers is written to, read or closed."""
    script = "\n".join([PREAMBLE, OPEN[opened].replace("\n    ", "\n"), STRIKE.format(call=CALLS[call])])
    with EmbeddedBot() as bot:
        report = run(script, bot, str(tmp_path))
    assert report == {"ended": 1, "again": 2, "second": 3, "untouched": True}


DOUBLE_CLOSE = """
    def addresses():
        found = {}
        for number in map(int, os.listdir("/proc/self/fd")):
            try:
                found[number] = os.readlink(f"/proc/self/fd/{number}")
            except OSError:
                pass  # of the listing itself
        return found

    def is_tcp(number):
        sock = socket.socket(fileno=number)
        try:
            return sock.family == socket.AF_INET
        finally:
            sock.detach()

    before = addresses()
    first = make_client()
    first.on("disconnected", ended)
    first.connect()
    (number,) = (n for n, target in addresses().items() if before.get(n) != target and "socket" in target and is_tcp(n))
    os.close(number)
    second = make_client()
    second.connect()
    assert gone.wait(GUARD)
    report = {"same": is_tcp(number), "ends": ends, "second": second.send_client_request("echo", 2)}
    first.disconnect()
    report["still"] = second.send_client_request("echo", 3)
    second.disconnect()
    print(json.dumps(report))
"""


def test_a_socket_that_is_closed_by_mistake() -> None:
    """A session whose socket the application closes ends when the next session gets the number, and that one works."""
    with EmbeddedBot() as bot:
        report = run(PREAMBLE + DOUBLE_CLOSE, bot)
    assert report == {"same": True, "ends": [["network", True]], "second": 2, "still": 3}


def test_a_live_session_ends_by_itself() -> None:
    """A call that waits ends within seconds, with an error that names the cause, and so does the session."""
    script = (
        PREAMBLE
        + """
    logging.disable()  # of the warning that a message was lost
    client = make_client()
    client.on("disconnected", ended)
    client.connect()
    os.closerange(3, 4096)
    with takes(5.0):
        report = {"request": fails(client.send_client_request, "echo", 1), "gone": gone.wait(GUARD), "ends": ends}
    print(json.dumps(report))
    """
    )
    with EmbeddedBot() as bot:
        assert run(script, bot) == {"request": True, "gone": True, "ends": [["network", True]]}


def test_the_exit() -> None:
    """The process ends at once though it has a session without descriptors."""
    script = (
        PREAMBLE
        + """
    client = make_client()
    client.connect()
    os.closerange(3, 4096)
    print("{}")
    """
    )
    with EmbeddedBot() as bot, takes(3.0):
        assert run(script, bot) == {}


def test_a_client_that_reconnects() -> None:
    """A session that was lost in this way is replaced like any other."""
    script = (
        PREAMBLE
        + """
    client = make_client(reconnect=ReconnectPolicy())
    client.connect()
    with client.events("bot_ready", timeout=GUARD) as events:
        os.closerange(3, 4096)
        next(events)
    print(json.dumps({"answer": client.send_client_request("echo", 1)}))
    client.disconnect()
    """
    )
    with EmbeddedBot() as bot:
        assert run(script, bot) == {"answer": 1}


def test_a_session_without_a_socket() -> None:
    """A session over `MemoryTransport` ends by itself, too."""
    script = (
        PREAMBLE
        + """
    client = RTVIClient(transport=MemoryTransport(), text_only=True, connect_timeout=20)
    client.on("disconnected", ended)
    client.connect()
    os.closerange(3, 4096)
    with takes(10.0):
        gone.wait(GUARD)
    print(json.dumps({"ends": ends, "state": client.state.value}))
    """
    )
    with EmbeddedBot() as bot:
        assert run(script, bot) == {"ends": [["network", True]], "state": "disconnected"}


def test_a_session_over_webrtc(far_loop: FarLoop) -> None:
    """A WebRTC session without its descriptors ends by itself, and later sessions work."""
    script = (
        PREAMBLE
        + """
    transport = SmallWebRTCTransport(sys.argv[1] + "/api/offer")
    client = RTVIClient(transport=transport, mic=SilenceSource(), enable_mic=False, speaker=NullSink(),
                        connect_timeout=60, request_timeout=60)
    client.on("disconnected", ended)
    client.connect()
    os.closerange(3, 4096)
    with takes(10.0):
        report = {"request": fails(client.send_client_request, "echo", 1), "gone": gone.wait(GUARD), "ends": list(ends)}
    client.connect()
    report["again"] = client.send_client_request("echo", 2)
    os.closerange(3, 4096)
    client.disconnect()
    client.connect()
    report["third"] = client.send_client_request("echo", 3)
    client.disconnect()
    print(json.dumps(report))
    """
    )
    with rtc_bot(far_loop, ready_answers) as bot:
        code, out, err = run_python(script, bot.url)
    assert (code, err) == (0, ""), err
    assert json.loads(out) == {"request": True, "gone": True, "ends": [["network", True]], "again": 2, "third": 3}


def test_a_process_that_becomes_a_daemon(tmp_path: Path) -> None:
    """A daemon that has forked twice, closed all descriptors and redirected the standard ones can open sessions; the
    parent's earlier session continues.
    """
    script = (
        PREAMBLE
        + """
    warnings.simplefilter("ignore", DeprecationWarning)
    client = make_client()
    client.connect()
    pid = os.fork()
    if not pid:
        os.setsid()
        if os.fork():
            os._exit(0)
        os.closerange(3, 4096)
        for number in range(3):
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
        report = {"state": str(client.state)}
        try:
            client.send_text("hello")
        except ForkedProcessError:
            report["sent"] = False
        with make_client() as own:
            report["answer"] = own.send_client_request("echo", 1)
        with open(sys.argv[2] + ".part", "w") as file:
            json.dump(report, file)
        os.rename(file.name, sys.argv[2])
        os._exit(0)
    os.waitpid(pid, 0)
    print(json.dumps({"answer": client.send_client_request("echo", 2)}))
    client.disconnect()
    """
    )
    told = tmp_path / "daemon"
    with EmbeddedBot() as bot:
        assert run(script, bot, str(told)) == {"answer": 2}
        until(told.exists)
    assert json.loads(told.read_text()) == {"state": "disconnected", "sent": False, "answer": 1}
