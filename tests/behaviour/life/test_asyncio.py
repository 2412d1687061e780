"""Programs whose thread runs an asyncio loop, as notebooks do: every call works there, and blocks it like any other."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rtvi_sync.media import ToneSource
from rtvi_sync.testing import EmbeddedBot
from tests.support.clients import websocket_client
from tests.support.processes import python, rest_of, run_python
from tests.support.slowness import GUARD


@pytest.fixture(scope="module")
def bot() -> Iterator[EmbeddedBot]:
    """Yield a bot that answers speech at once."""
    with EmbeddedBot(hangover=0.1) as bot:
        yield bot


@pytest.fixture(autouse=True)
def _policy_untouched() -> Iterator[None]:
    """Check that no test sets a policy or a loop of its own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # since Python 3.14 policies are on their way out
        before = asyncio.get_event_loop_policy()
        yield
        assert asyncio.get_event_loop_policy() is before
    with pytest.raises(RuntimeError, match="no running event loop"):
        asyncio.get_running_loop()


def talk(bot: EmbeddedBot, **options: Any) -> list[bool]:
    """Hold sessions with every call that blocks; return whether handlers saw a running loop."""
    source = ToneSource(duration=0.2)
    client = websocket_client(bot, mic=source, **options)
    saw_loop: list[bool] = []
    client.on("bot_ready", lambda: saw_loop.append(has_running_loop()))
    manual = options.get("events") == "manual"
    with client.events("bot_stopped_speaking", timeout=GUARD) as events, client:
        if manual:
            client.process_events(0.1)
        assert source.wait(GUARD)
        next(events)
        track = client.tracks().local.audio
        assert track is not None
        assert next(track.frames()).duration > 0
        assert client.send_client_request("echo", [1]) == [1]
    client.connect(client.start_bot(f"{bot.base_url}/start"))
    client.send_text("hello")
    client.wait_for("bot_stopped_speaking", timeout=GUARD)
    client.disconnect()
    if manual:
        client.process_events(0)
    client.start_bot_and_connect(f"{bot.base_url}/start")
    client.close()
    if manual:
        client.process_events(0)
    return saw_loop


def has_running_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


@pytest.mark.parametrize(("events", "in_loop"), [("thread", False), ("manual", True)])
def test_every_call_in_a_coroutine(bot: EmbeddedBot, events: str, in_loop: bool) -> None:
    """All calls work in a coroutine under `asyncio.run()`; handlers see the loop in manual mode only."""

    async def main() -> list[bool]:
        loop = asyncio.get_running_loop()
        saw_loop = talk(bot, events=events)
        assert asyncio.get_running_loop() is loop
        await asyncio.sleep(0)
        return saw_loop

    assert asyncio.run(main(), debug=True) == [in_loop] * 3


def test_a_thread_beside_the_loop(bot: EmbeddedBot) -> None:
    """With `asyncio.to_thread()` the loop keeps running."""
    ticks: list[int] = []

    async def tick() -> None:
        while True:
            ticks.append(1)
            await asyncio.sleep(0.005)

    async def main() -> None:
        ticking = asyncio.create_task(tick())
        await asyncio.to_thread(talk, bot)
        ticking.cancel()

    asyncio.run(main())
    assert len(ticks) > 10


def test_a_handler_that_calls_into_the_loop(bot: EmbeddedBot) -> None:
    """Events reach a loop by `call_soon_threadsafe()`, in order."""

    async def main() -> list[int]:
        loop = asyncio.get_running_loop()
        arrived: asyncio.Queue[int] = asyncio.Queue()
        client = websocket_client(bot)
        client.on("server_response", lambda answer: loop.call_soon_threadsafe(arrived.put_nowait, answer.d))
        with client:
            for number in range(10):
                client.send_client_message("echo", number)
            return [await asyncio.wait_for(arrived.get(), GUARD) for _ in range(10)]

    assert asyncio.run(main()) == list(range(10))


def test_a_loop_that_runs_for_ever(bot: EmbeddedBot) -> None:
    """A session lives on between the callbacks of a running loop, as between the cells of Jupyter."""
    loop = asyncio.new_event_loop()
    results: list[Any] = []

    def cell(run: Callable[[], Any], done: threading.Event) -> None:
        results.append(run())
        done.set()

    client = websocket_client(bot)
    cells: list[Callable[[], Any]] = [
        client.connect,
        lambda: client.send_client_request("echo", 1),
        lambda: client.send_client_request("echo", 2),
        client.disconnect,
    ]
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        for run in cells:
            done = threading.Event()
            loop.call_soon_threadsafe(cell, run, done)
            assert done.wait(GUARD)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(GUARD)
        loop.close()
    assert results[1:] == [1, 2, None]


def test_asyncio_stays_out() -> None:
    """A session of a program that does not use asyncio does not import it."""
    code, out, err = run_python(
        """
    import sys
    from tests.support.clients import memory_client
    with memory_client() as client:
        client.send_client_request("echo", 1)
    print("asyncio" in sys.modules)
    """,
        executable=sys.executable,
    )
    assert (code, out, err) == (0, "False\n", "")


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="the platform has no signals of this kind")
def test_ctrl_c_under_asyncio_run() -> None:
    """Since Python 3.11 the first one is asyncio's, for the task; the second ends the call that holds the loop up."""
    script = """
    import asyncio, threading
    from tests.support.clients import memory_client
    from tests.behaviour.life.blocking import tell, tell_when_blocked

    async def main():
        with memory_client() as client:
            threading.Thread(target=tell_when_blocked, daemon=True).start()
            try:
                client.wait_for("server_message")
            except KeyboardInterrupt:
                tell("interrupted", client.send_client_request("echo", 1))

    asyncio.run(main())
    tell("ended")
    """
    with python(script) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "blocked\n"
            heard = threading.Event()

            def press() -> None:
                while not heard.wait(0.2):
                    process.send_signal(signal.SIGINT)

            pressing = threading.Thread(target=press)
            pressing.start()
            line = process.stdout.readline()
            heard.set()
            pressing.join()
            rest_of(process)
        finally:
            heard.set()
            process.kill()
    assert line == "interrupted 1\n"


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="the platform has no signals of this kind")
def test_ctrl_c_while_a_thread_beside_the_loop_connects() -> None:
    """The first Ctrl-C ends the program though the server never answers, because `finally` disconnects."""
    code, out, err = run_python("""
    import asyncio, os, signal, socket, threading
    from rtvi_sync import RTVIClient

    server = socket.create_server(("127.0.0.1", 0))
    client = RTVIClient.for_url(f"http://127.0.0.1:{server.getsockname()[1]}", text_only=True)
    accepted = []

    def press():
        accepted.append(server.accept())
        os.kill(os.getpid(), signal.SIGINT)

    async def main():
        threading.Thread(target=press, daemon=True).start()
        try:
            await asyncio.to_thread(client.connect)
        finally:
            client.disconnect()

    try:
        asyncio.run(main())
    except KeyboardInterrupt:
        print("ended", client.state.value)
    accepted[0][0].close()
    server.close()
    """)
    assert (code, out, err) == (0, "ended disconnected\n", "")
