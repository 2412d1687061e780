"""Live sessions when the interpreter exits."""

from __future__ import annotations

import pytest

from tests.client.helpers import run_python

PREAMBLE = """
    import sys, threading, time
    from rtvi_sync import *
    from rtvi_sync.media import *
    from rtvi_sync.testing import EmbeddedBot

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


def run(script: str, timeout: float = 15.0) -> tuple[int, str, str]:
    return run_python(PREAMBLE + script, timeout=timeout)


@pytest.mark.parametrize("kind", ["memory", "websocket"])
def test_a_live_session(kind: str) -> None:
    """Invariant "process": a program that just ends while connected exits with 0, without noise or hang, and
    `disconnected` is delivered."""
    code, out, err = run(f"""
    client = {kind}()
    client.connect()
    print("connected", flush=True)
    """)
    assert (code, out, err) == (0, "connected\ndisconnected client\n", "")


@pytest.mark.parametrize("ending", ["sys.exit(3)", "raise SystemExit(3)"])
def test_the_exit_code_is_kept(ending: str) -> None:
    """The program's own exit code is the process's."""
    code, out, err = run(f"""
    client = memory()
    client.connect()
    {ending}
    """)
    assert (code, out, err) == (3, "disconnected client\n", "")


def test_an_unhandled_exception() -> None:
    """A program that dies shows its own traceback and nothing else."""
    code, out, err = run("""
    client = memory()
    client.connect()
    raise ValueError("the program's own")
    """)
    assert (code, out) == (1, "disconnected client\n")
    assert err.count("Traceback") == 1
    assert err.rstrip().endswith("ValueError: the program's own")


def test_many_live_sessions() -> None:
    """Fifty of them end as well, in bounded time."""
    code, out, err = run("""
    clients = [memory() for _ in range(50)]
    for client in clients:
        client.connect()
    begun = time.monotonic()
    import atexit
    atexit.register(lambda: None)
    """)
    assert (code, out, err) == (0, "disconnected client\n" * 50, "")


def test_soon() -> None:
    """The end of a live session takes a moment, and no time-out."""
    code, out, err = run("""
    import atexit
    ended = []
    def tell():
        print("fast" if time.monotonic() - ended[0] < 0.5 else "slow")
    client = memory()
    client.on("disconnected", tell)
    client.connect()
    atexit.register(lambda: ended.append(time.monotonic()))
    """)
    assert (code, err) == (0, "")
    assert "fast" in out


def test_manual_mode() -> None:
    """What nobody processes is dropped."""
    code, out, err = run("""
    client = memory(events="manual")
    client.connect()
    """)
    assert (code, out, err) == (0, "", "")


def test_a_handler_that_blocks() -> None:
    """A handler that never returns delays the exit by its limit and no more; its stack is logged."""
    code, out, err = run(
        """
    import rtvi_sync.teardown
    rtvi_sync.teardown.TEARDOWN_LIMIT = 1.0
    client = memory()
    entered = threading.Event()
    def never():
        entered.set()
        threading.Event().wait()
    client.on("server_message", never)
    client.connect()
    client._connector.transport.receive({"label": "rtvi-ai", "type": "server-message", "data": 1})
    entered.wait()
    """,
        timeout=10,
    )
    assert (code, out) == (0, "")
    assert "never" in err
    assert "Traceback" not in err


def test_a_thread_that_waits() -> None:
    """A thread of the program's that waits for an answer at the exit gets `DisconnectedError`."""
    code, out, err = run("""
    client = memory(request_timeout=None)
    client._connector.transport._bot = lambda t, m: iter(()) if m.type == "client-message" else ready(t, m)
    from rtvi_sync.transports.memory import ready_bot as ready
    client.connect()
    def ask():
        try:
            client.send_client_request("never")
        except DisconnectedError:
            sys.stdout.write("told\\n")
    threading.Thread(target=ask, daemon=True).start()
    while not client._connector.session()._pending._waiters:
        threading.Event().wait(0.01)
    """)
    assert (code, err) == (0, "")
    assert sorted(out.splitlines()) == ["disconnected client", "told"]


def test_while_connecting() -> None:
    """A connect() that a daemon thread is in does not hold up the exit."""
    code, out, err = run(
        """
    client = RTVIClient(transport=MemoryTransport(lambda *_: None))
    def connect():
        try:
            client.connect()
        except DisconnectedError as error:
            print("told", error.initiator, flush=True)
    threading.Thread(target=connect, daemon=True).start()
    while client.state is not TransportState.CONNECTED:
        threading.Event().wait(0.01)
    """,
        timeout=8,
    )
    assert (code, err) == (0, "")
    assert out in ("told client\n", "")


def test_disconnect_in_an_atexit_function() -> None:
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


def test_connect_in_an_atexit_function() -> None:
    """Where threads cannot be started any more `connect()` raises and does not hang."""
    code, _, err = run(
        """
    import atexit
    client = memory(connect_timeout=5)
    def connect():
        try:
            client.connect()
        except Exception as error:
            print(type(error).__name__, flush=True)
        client.disconnect()
    atexit.register(connect)
    """,
        timeout=10,
    )
    assert (code, err) == (0, "")


def test_a_client_that_dies_with_the_module() -> None:
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


def test_a_dropped_client_warns() -> None:
    """Dropped while connected: with `-W error` the warning is told, and the process still ends well."""
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


def test_a_transport_that_hangs_at_exit() -> None:
    """The exit is bounded even then, where Python lets a thread be started, and the hang is logged."""
    code, _, err = run(
        """
    import rtvi_sync.teardown
    rtvi_sync.teardown.TEARDOWN_LIMIT = 1.0
    class Hanging(MemoryTransport):
        def disconnect(self):
            threading.Event().wait(3)
    client = RTVIClient(transport=Hanging())
    client.connect()
    """,
        timeout=10,
    )
    assert code == 0
    assert "Traceback" not in err
