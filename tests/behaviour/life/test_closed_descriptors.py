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
from tests.support.waiting import until
from tests.support.webrtc import FarLoop, ready_answers, rtc_bot

pytestmark = numbered_sockets

PREAMBLE = """
    import json, os, select, socket, sys, threading, warnings
    from pathlib import Path
    from rtvi_sync import *
    from rtvi_sync.media import *
    from tests.support.clients import session_of
    from tests.support.probes import requests_under_way
    from tests.support.slowness import GUARD, takes
    from tests.support.threads import thread_names
    from tests.support.waiting import until

    gone, ends = threading.Event(), []

    def sleep():
        # Until the thread that reads the network, and no other, is in epoll_wait() or epoll_pwait().
        calls = ("232", "281", "22")
        until(lambda: any(task.read_text().split()[0] in calls for task in Path("/proc/self/task").glob("*/syscall")))

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

#: What the application opens with the numbers that have become free, and how it finds that nothing has touched it.
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

#: What the thread that reads the network does meanwhile.
BUSY = {
    "just read": "client, before = make_client(), lambda: client.send_client_request('echo', 1)",
    "asleep": "client, before = make_client(), sleep",
    # It wakes within 20 ms. Between its check and its write nothing can keep a frame from what has the number by then.
    "sending": "client, before = make_client(SilenceSource()), sleep",
}

STRIKE = """
    client.on("disconnected", ended)
    client.connect()
    before()
    last = highest()
    os.closerange(3, 4096)
    taken = []
    while highest() <= last + 3:
        taken.append(take())
    with takes(1.0):
        report = {"send": fails(client.send_text, "hello"), "gone": gone.wait(GUARD), "ends": list(ends)}
    report["request"] = fails(client.send_client_request, "echo", 1)
    report["state"] = str(client.state)
    client.connect()
    report["again"] = client.send_client_request("echo", 2)
    with make_client() as second:
        report["second"] = second.send_client_request("echo", 3)
    client.disconnect()
    report["threads"] = len(thread_names()) <= 1  # one may sleep until the process ends
    report["untouched"] = all(map(untouched, taken))
    print(json.dumps(report))
"""


def run(script: str, bot: EmbeddedBot, *arguments: str) -> dict[str, object]:
    """Return what a script reports in a process of its own."""
    code, out, err = run_python(script, bot.ws_url, *arguments)
    assert (code, err) == (0, ""), err
    return json.loads(out)


@pytest.mark.parametrize(("busy", "opened"), some_of(itertools.product(BUSY, OPEN), *zip(BUSY, OPEN, strict=True)))
def test_a_live_session_ends_and_others_begin(busy: str, opened: str, tmp_path: Path) -> None:
    """The session ends within a second of the next call, with an error that names the cause, later ones work, and
    nothing that the application has opened with the same numbers is written to, read or closed."""
    script = "\n".join([PREAMBLE, "    " + BUSY[busy], OPEN[opened].replace("\n    ", "\n"), STRIKE])
    with EmbeddedBot() as bot:
        report = run(script, bot, str(tmp_path))
    assert report == {
        "send": True,
        "gone": True,
        "ends": [["network", True]],
        "request": True,
        "state": "disconnected",
        "again": 2,
        "second": 3,
        "threads": True,
        "untouched": True,
    }


CALLS = {
    "send": "lambda: client.send_text('hello')",
    "connect": "client.connect",
    "the connect of another client": "other.connect",
    "disconnect": "client.disconnect",
}


@pytest.mark.parametrize("call", CALLS)
def test_the_next_call_ends_what_waits(call: str) -> None:
    """A request that waits for its answer ends with the error within a second, whichever call of the package comes
    next."""
    script = (
        PREAMBLE
        + """
    def strike():
        while not requests_under_way(client):
            threading.Event().wait(0.01)
        sleep()
        os.closerange(3, 4096)
        with takes(1.0):
            try:
                call()
            except RTVIError:
                pass
            over.wait()

    over = threading.Event()
    client, other = make_client(), make_client()
    client.connect()
    call = """
        + CALLS[call]
        + """
    striking = threading.Thread(target=strike)
    striking.start()
    try:
        client.send_client_request("hang", timeout=GUARD)
    except DisconnectedError:
        over.set()
        print('{"ended": true}')
    striking.join()
    other.disconnect()
    """
    )
    with EmbeddedBot(handler=lambda session, message: message.get("data", {}).get("t") == "hang") as bot:
        assert run(script, bot) == {"ended": True}


def test_a_client_that_reconnects() -> None:
    """A session that was lost in this way is replaced like any other."""
    script = (
        PREAMBLE
        + """
    client = make_client(reconnect=ReconnectPolicy())
    client.connect()
    with client.events("bot_ready", timeout=GUARD) as events:
        os.closerange(3, 4096)
        fails(client.send_text, "hello")
        next(events)
    print(json.dumps({"answer": client.send_client_request("echo", 1)}))
    client.disconnect()
    """
    )
    with EmbeddedBot() as bot:
        assert run(script, bot) == {"answer": 1}


@pytest.mark.parametrize(
    ("call", "limit"),
    [("fails(client.send_client_request, 'echo', 1)", 1.0), pytest.param("pass", 2.0, marks=pytest.mark.matrix)],
    ids=["sends", "waits"],
)
def test_a_session_over_webrtc(call: str, limit: float, far_loop: FarLoop) -> None:
    """A WebRTC session without its descriptors ends with the next call or ping, and later sessions work."""
    script = (
        PREAMBLE
        + OPEN["sockets"].replace("\n    ", "\n")
        + f"""
    transport = SmallWebRTCTransport(sys.argv[1] + "/api/offer")
    client = RTVIClient(transport=transport, mic=SilenceSource(), enable_mic=False, speaker=NullSink(),
                        connect_timeout=60, request_timeout=60)
    client.on("disconnected", ended)
    client.connect()
    last = highest()
    os.closerange(3, 4096)
    taken = []
    while highest() <= last + 3:
        taken.append(take())
    with takes({limit}):
        {call}
        report = {{"gone": gone.wait(GUARD), "ends": list(ends)}}
    client.connect()
    report["again"] = client.send_client_request("echo", 2)
    client.disconnect()
    report["untouched"] = all(map(untouched, taken))
    print(json.dumps(report))
    """
    )
    with rtc_bot(far_loop, ready_answers) as bot:
        code, out, err = run_python(script, bot.url)
    assert (code, err) == (0, ""), err
    assert json.loads(out) == {"gone": True, "ends": [["network", True]], "again": 2, "untouched": True}


def test_a_process_that_becomes_a_daemon(tmp_path: Path) -> None:
    """Forks twice, closes all descriptors and redirects the standard ones: the daemon's own sessions work, and the
    session from before the fork is the parent's, which goes on."""
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
