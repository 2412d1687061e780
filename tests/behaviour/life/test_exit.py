"""Live sessions when the interpreter exits, on each Python there is."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable
from itertools import takewhile

import pytest

from tests.behaviour.life.pythons import OTHERS, python_of
from tests.support.processes import python, rest_of, run_python
from tests.support.slowness import GUARD, at_some_limit, takes

PREAMBLE = """
    import atexit, sys, threading

    daemons = []  # waited for after the exit of the package, whose hook is registered later
    atexit.register(lambda: [thread.join() for thread in daemons])

    from rtvi_sync import *
    from rtvi_sync.media import *
    from rtvi_sync.testing import EmbeddedBot
    from tests.support.clients import session_of, transport_of

    def memory(**options):
        client = RTVIClient(transport=MemoryTransport(), **options)
        client.on("disconnected", lambda info: sys.stdout.write(f"disconnected {info.initiator}\\n"))
        return client

    def websocket(**options):
        bot = EmbeddedBot()
        bot.start()
        transport = WebSocketTransport(bot.ws_url)
        client = RTVIClient(transport=transport, mic=SilenceSource(), speaker=NullSink(), **options)
        client.on("disconnected", lambda info: print("disconnected", info.initiator, flush=True))
        return client
"""


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(
    params=[
        pytest.param(None, id="this"),
        *(pytest.param(minor, id=f"3.{minor}", marks=pytest.mark.matrix) for minor in OTHERS),
    ]
)
def run(request: pytest.FixtureRequest) -> Run:
    """Run a script on one of the Pythons, and hold its exit to a time; return exit code, output and errors."""
    executable = sys.executable if request.param is None else python_of(request.param)

    def run(
        script: str, timeout: float = GUARD, needs: str = "rtvi_sync", exits_within: float | None = None
    ) -> tuple[int, str, str]:
        if executable != sys.executable and run_python(f"import {needs}", executable=executable)[0]:
            pytest.skip(f"Python 3.{request.param} cannot use this one's {needs}")
        if exits_within is None:
            return run_python(PREAMBLE + script, timeout=timeout, executable=executable)
        script = textwrap.dedent(PREAMBLE + script) + "print('exits')"
        with python(script, executable=executable) as process:
            assert process.stdout is not None
            before = "".join(takewhile(lambda line: line != "exits\n", process.stdout))
            with takes(exits_within):
                out, err = rest_of(process)
        return process.returncode, before + out, err

    return run


@pytest.mark.parametrize("kind", ["memory", "websocket"])
def test_a_live_session(run: Run, kind: str) -> None:
    """Invariant "process": a program that just ends while connected exits with 0, without noise or hang, and
    `disconnected` is delivered."""
    code, out, err = run(
        f"""
    client = {kind}()
    client.connect()
    print("connected", flush=True)
    """,
        needs={"memory": "rtvi_sync", "websocket": "websockets.sync.server"}[kind],
    )
    assert (code, out, err) == (0, "connected\ndisconnected client\n", "")


@pytest.mark.parametrize("ending", ["sys.exit(3)", "raise SystemExit(3)"])
def test_the_exit_code_is_kept(run: Run, ending: str) -> None:
    """The program's own exit code is the process's."""
    code, out, err = run(f"""
    client = memory()
    client.connect()
    {ending}
    """)
    assert (code, out, err) == (3, "disconnected client\n", "")


def test_an_unhandled_exception(run: Run) -> None:
    """A program that dies shows its own traceback and nothing else."""
    code, out, err = run("""
    client = memory()
    client.connect()
    raise ValueError("the program's own")
    """)
    assert (code, out) == (1, "disconnected client\n")
    assert err.count("Traceback") == 1
    assert err.rstrip().endswith("ValueError: the program's own")


def test_many_live_sessions(run: Run) -> None:
    """Fifty live sessions end at exit in bounded time."""
    code, out, err = run(
        """
    clients = [memory() for _ in range(50)]
    for client in clients:
        client.connect()
    """,
        exits_within=5.0,
    )
    assert (code, out, err) == (0, "disconnected client\n" * 50, "")


def test_soon(run: Run) -> None:
    """The end of a live session takes a moment, and no time-out."""
    code, out, err = run(
        """
    client = memory()
    client.connect()
    """,
        exits_within=0.5,
    )
    assert (code, out, err) == (0, "disconnected client\n", "")


def test_exit_drops_the_events_of_manual_mode(run: Run) -> None:
    """In manual mode, an exit drops the events that were not processed."""
    code, out, err = run("""
    client = memory(events="manual")
    client.connect()
    """)
    assert (code, out, err) == (0, "", "")


def test_a_handler_that_blocks(run: Run) -> None:
    """A handler that never returns delays the exit by its limit and no more; its stack is logged."""
    code, out, err = run(
        """
    from tests.support import limits
    limits.change(teardown=1.0)
    client = memory()
    entered = threading.Event()
    def never():
        entered.set()
        threading.Event().wait()
    client.on("server_message", never)
    client.connect()
    transport_of(client).receive({"label": "rtvi-ai", "type": "server-message", "data": 1})
    entered.wait()
    """,
        timeout=GUARD,
    )
    assert (code, out) == (0, "")
    assert "never" in err
    assert "Traceback" not in err


def test_a_thread_that_waits(run: Run) -> None:
    """A thread of the program's that waits for an answer at the exit gets `DisconnectedError`."""
    code, out, err = run("""
    client = memory(request_timeout=None)
    from tests.support.clients import ready_bot as ready
    from tests.support.probes import requests_under_way, set_bot
    set_bot(client, lambda t, m: iter(()) if m.type == "client-message" else ready(t, m))
    client.connect()
    def ask():
        try:
            client.send_client_request("never")
        except DisconnectedError:
            sys.stdout.write("told\\n")
    daemons.append(threading.Thread(target=ask, daemon=True))
    daemons[0].start()
    while not requests_under_way(client):
        threading.Event().wait(0.01)
    """)
    assert (code, err) == (0, "")
    assert sorted(out.splitlines()) == ["disconnected client", "told"]


def test_exit_while_a_daemon_thread_connects(run: Run) -> None:
    """A connect() on a daemon thread does not hold up the exit, and ends with it."""
    code, out, err = run(
        """
    client = RTVIClient(transport=MemoryTransport(lambda *_: None), connect_timeout=None)
    def connect():
        try:
            client.connect()
        except DisconnectedError as error:
            print("told", error.initiator)
    daemons.append(threading.Thread(target=connect, daemon=True))
    daemons[0].start()
    while client.state is not TransportState.CONNECTED:
        threading.Event().wait(0.01)
    """,
        timeout=GUARD,
    )
    assert (code, out, err) == (0, "told client\n", "")


def test_disconnect_in_an_atexit_function(run: Run) -> None:
    """A program may end its sessions in its own exit hooks, also where no thread can be started any more."""
    code, out, err = run("""
    import atexit
    client = memory()
    client.connect()
    def leave():
        client.disconnect()
        print("left", client.state, flush=True)
    atexit.register(leave)
    """)
    assert (code, err) == (0, "")
    assert out == "disconnected client\nleft disconnected\n"


def test_a_client_that_dies_with_the_module(run: Run) -> None:
    """Clients in reference cycles at the exit make no noise."""
    code, out, err = run("""
    class Agent:
        def __init__(self):
            self.client = memory()
            self.client.on("bot_ready", self.ready)
        def ready(self):
            pass
        def __del__(self):
            self.client.disconnect()
    agent = Agent()
    agent.client.connect()
    agent.me = agent
    """)
    assert (code, err) == (0, "")
    assert out == "disconnected client\n"


def test_a_dropped_client_warns(run: Run) -> None:
    """A client that is dropped while connected warns, even with `-W error`, and the process still ends well."""
    code, _, err = run("""
    client = memory()
    client.connect()
    del client
    import gc
    gc.collect()
    threading.Event().wait(0.2)
    """)
    assert code == 0
    assert "ResourceWarning" in err
    assert "disconnect()" in err


def test_a_transport_that_hangs_at_exit(run: Run) -> None:
    """The exit is bounded even then, where Python lets a thread be started, and the hang is logged."""
    code, _, err = run(
        """
    from tests.support import limits
    limits.change(teardown=1.0)
    class Hanging(MemoryTransport):
        def disconnect(self):
            threading.Event().wait(3)
    client = RTVIClient(transport=Hanging())
    client.connect()
    """,
        timeout=GUARD,
    )
    assert code == 0
    assert "Traceback" not in err


def test_a_thread_that_connects(run: Run) -> None:
    """The interpreter waits for a thread of the program's that is no daemon; its `connect()` has a limit."""

    def check(limit: float) -> None:
        code, out, err = run(f"""
    client = RTVIClient(transport=MemoryTransport(lambda *_: None), connect_timeout={limit})
    def connect():
        try:
            client.connect()
        except ConnectionTimeoutError as error:
            print(error.phase, flush=True)
    connecting = threading.Thread(target=connect)
    connecting.start()
    while client.state is not TransportState.CONNECTED and connecting.is_alive():
        threading.Event().wait(0.01)
    """)
        assert (code, out, err) == (0, "bot-ready\n", "")

    at_some_limit(check)


def test_a_thread_that_connects_too_late(run: Run) -> None:
    """Where the program is ending and Python starts no more threads, `connect()` says so, and nothing hangs."""
    code, out, err = run("""
    import atexit
    client = memory(connect_timeout=5)
    def connect():
        try:
            client.connect()
            client.disconnect()
            print("connected", flush=True)
        except RTVIError as error:
            print("shutdown" in str(error), flush=True)
    atexit.register(connect)
    """)
    assert (code, err) == (0, "")
    assert out in ("connected\ndisconnected client\n", "disconnected client\nconnected\n", "True\n")


def test_exit_in_a_handler(run: Run) -> None:
    """An exit in a handler does not end its thread or the program: it is logged, and the next event is delivered."""
    code, out, err = run("""
    client = memory()
    told = threading.Event()
    client.on("server_message", lambda: sys.exit(3))
    client.on("metrics", told.set)
    client.connect()
    for type_ in "server-message", "metrics":
        transport_of(client).receive({"label": "rtvi-ai", "type": type_, "data": {}})
    print("told", told.wait(), flush=True)
    """)
    assert (code, out) == (0, "told True\ndisconnected client\n")
    assert "A handler of 'serverMessage' raised" in err
    assert "SystemExit: 3" in err


def test_exit_in_a_handler_in_manual_mode(run: Run) -> None:
    """An exit in a handler of manual mode ends the program, because the handler runs on the program's own thread."""
    code, out, err = run("""
    client = memory(events="manual")
    client.on("server_message", lambda: sys.exit(3))
    client.connect()
    transport_of(client).receive({"label": "rtvi-ai", "type": "server-message", "data": 1})
    client.process_events()
    print("not reached", flush=True)
    """)
    assert (code, out, err) == (3, "", "")


def test_a_hard_exit_in_a_handler(run: Run) -> None:
    """`os._exit()` ends the process there and then, as it does everywhere."""
    code, out, err = run("""
    import os
    client = memory()
    client.on("server_message", lambda: os._exit(4))
    client.connect()
    transport_of(client).receive({"label": "rtvi-ai", "type": "server-message", "data": 1})
    threading.Event().wait()
    """)
    assert (code, out, err) == (4, "", "")


def test_exit_in_a_request(run: Run) -> None:
    """The end of the main thread ends the session under other threads that use it; they get an error, and are
    silent.
    """
    code, out, err = run("""
    client = memory()
    client.connect()
    begun = threading.Barrier(4)
    def use(call):
        call()
        begun.wait()
        try:
            while True:
                call()
        except (BotNotReadyError, DisconnectedError, TimeoutError):
            pass
    def wait():
        try:
            client.wait_for("metrics", timeout=0.01)
        except RequestTimeoutError:
            pass
    for call in (lambda: client.send_text("x"), lambda: client.send_client_request("echo", 1), wait):
        threading.Thread(target=use, args=(call,), daemon=True).start()
    begun.wait()
    """)
    assert (code, out, err) == (0, "disconnected client\n", "")


def test_exit_while_another_thread_disconnects(run: Run) -> None:
    """A session that another thread disconnects during the exit ends once."""
    code, out, err = run("""
    class Slow(MemoryTransport):
        def disconnect(self):
            ending.set()
            threading.Event().wait(0.3)
    ending = threading.Event()
    client = RTVIClient(transport=Slow())
    client.on("disconnected", lambda info: sys.stdout.write(f"disconnected {info.initiator}\\n"))
    client.connect()
    threading.Thread(target=client.disconnect, daemon=True).start()
    ending.wait()
    """)
    assert (code, err) == (0, "")
    assert out in ("disconnected client\n", "")


def test_exit_while_the_client_reconnects(run: Run) -> None:
    """A session that is about to be replaced is not, and the exit does not wait for it."""
    code, out, err = run(
        """
    client = memory(reconnect=ReconnectPolicy(initial_delay=60.0, max_delay=60.0))
    lost = threading.Event()
    client.on("reconnecting", lost.set)
    client.connect()
    transport_of(client).end()
    lost.wait()
    """,
        exits_within=2.0,
    )
    assert (code, out) == (0, "disconnected network\n")
    assert [line[:20] for line in err.splitlines()] == ["The session is lost:"]


def test_an_exit_hook_that_was_there_before() -> None:
    """A hook that was registered before the package was imported runs when its sessions have ended."""
    script = """
    import atexit
    def look():
        print(client.state, flush=True)
        try:
            client.send_text("x")
        except BotNotReadyError:
            print("told", flush=True)
    atexit.register(look)
    from rtvi_sync import *
    client = RTVIClient(transport=MemoryTransport())
    client.connect()
    """
    code, out, err = run_python(script, executable=sys.executable)
    assert (code, out, err) == (0, "disconnected\ntold\n", "")
