"""The blinker signals."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from rtvi_sync import (
    Event,
    RTVIClient,
    RTVIEvent,
    signals,
)
from tests.support.clients import memory_client, say, settle
from tests.support.garbage import collect
from tests.support.processes import run_python
from tests.support.slowness import GUARD
from tests.support.threads import InThread, switch_interval


@pytest.fixture
def quick_turns() -> Iterator[None]:
    """Let threads take turns all the time, so that an event among busy threads is delivered soon."""
    with switch_interval(1e-5):
        yield


class TestSignals:
    @pytest.mark.parametrize("name", ["BotReady", "botReady", "BOT_READY", "on_bot_ready", "onBotReady"])
    def test_any_name(self, name: str) -> None:
        """A signal has every name of its event."""
        assert getattr(signals, name) is signals.bot_ready

    def test_sender_and_no_sender(self, client: RTVIClient) -> None:
        """With a sender a receiver hears one client, without it all of them; it is called once per event."""
        mine: list[Any] = []
        everyones: list[Any] = []

        def one(sender: RTVIClient, event: Event) -> None:
            mine.append((sender, event.data))

        def all_(sender: RTVIClient, event: Event) -> None:
            everyones.append((sender, event.data))

        signals.server_message.connect(one, sender=client)
        signals.server_message.connect(all_)
        signals.server_message.connect(all_, sender=client)
        with memory_client() as other:
            say(client, 1)
            settle(client)
            say(other, 2)
            settle(other)
            assert mine == [(client, 1)]
            assert everyones == [(client, 1), (other, 2)]
        signals.server_message.disconnect(all_)

    def test_the_order_is_that_in_which_they_were_connected(self, client: RTVIClient) -> None:
        """Receivers of one client's events and of all clients' are called in one order."""
        called: list[int] = []
        receivers = [lambda sender, event, n=n: called.append(n) for n in range(4)]
        for n, receiver in enumerate(receivers):
            with_sender: dict[str, Any] = {"sender": client} if n % 2 == 0 else {}
            signals.server_message.connect(receiver, **with_sender)
        say(client, "x")
        settle(client)
        assert called == [0, 1, 2, 3]

    def test_receivers_are_weak(self, client: RTVIClient) -> None:
        """A receiver that is gone is not called, and its event is not queued any more; `weak=False` keeps one."""
        heard: list[Any] = []

        class Listener:
            def hear(self, sender: RTVIClient, event: Event) -> None:
                heard.append(event.data)

        listener = Listener()
        signals.server_message.connect(listener.hear, sender=client)
        signals.server_message.connect(lambda sender, event: heard.append("kept"), sender=client, weak=False)
        collect()
        say(client, 1)
        settle(client)
        del listener
        collect()
        say(client, 2)
        settle(client)
        assert heard == [1, "kept", "kept"]

    def test_a_dead_receiver_is_forgotten(self, client: RTVIClient) -> None:
        """The first event after its end takes it off the books."""

        def receiver(sender: RTVIClient, event: Event) -> None: ...

        signals.ui_command.connect(receiver, sender=client)
        assert signals.ui_command.receivers
        del receiver
        collect()
        assert not signals.ui_command.has_receivers_for(client)
        assert not signals.ui_command.receivers

    def test_a_client_is_not_kept_alive(self) -> None:
        """Receivers of a client do not keep it, and go with it."""
        import weakref

        def receiver(sender: RTVIClient, event: Event) -> None: ...

        client = memory_client()
        signals.ui_command.connect(receiver, sender=client)
        gone = weakref.ref(client)
        del client
        collect()
        assert gone() is None
        assert not signals.ui_command.has_receivers_for(memory_client())
        assert not signals.ui_command.receivers

    @pytest.mark.parametrize("disconnects", [True, False])
    def test_of_a_sender_that_is_gone_nothing_stays(self, disconnects: bool) -> None:
        """A process may see any number of clients, and each may have lost its receivers before."""
        signal = signals.EventSignal(RTVIEvent.METRICS)

        class Sender:
            pass

        def receiver(sender: object, event: Event) -> None:
            pass

        senders = [Sender() for _ in range(3)]
        for sender in senders:
            signal.connect(receiver, sender=sender)
            if disconnects:
                signal.disconnect(receiver, sender=sender)
        del senders, sender
        collect()
        assert not signal.receivers

    def test_disconnect_one_sender(self, client: RTVIClient) -> None:
        """A receiver may be taken off one client and stay with another."""

        def receiver(sender: RTVIClient, event: Event) -> None: ...

        other = memory_client()
        signals.ui_command.connect(receiver, sender=client)
        signals.ui_command.connect(receiver, sender=other)
        signals.ui_command.disconnect(receiver, sender=client)
        assert not signals.ui_command.has_receivers_for(client)
        assert signals.ui_command.has_receivers_for(other)
        signals.ui_command.disconnect(receiver)
        assert not signals.ui_command.has_receivers_for(other)

    def test_the_rest_of_blinkers_interface(self, client: RTVIClient) -> None:
        """`connect_via`, `connected_to`, `send` and `muted` work as in blinker."""
        heard: list[Any] = []

        @signals.ui_command.connect_via(client)
        def one(sender: Any, **more: Any) -> None:
            heard.append(("via", more))

        def two(sender: Any, **more: Any) -> None:
            heard.append(("to", more))

        with signals.ui_command.connected_to(two, sender=client):
            signals.ui_command.send(client, event=1)
        signals.ui_command.send(client, event=2)
        with signals.ui_command.muted():
            signals.ui_command.send(client, event=3)
        assert heard == [("via", {"event": 1}), ("to", {"event": 1}), ("via", {"event": 2})]

    @pytest.mark.usefixtures("quick_turns")
    def test_receivers_on_many_threads(self, client: RTVIClient) -> None:
        """Receivers may be added and removed on many threads while events are delivered, and none is left."""
        count = [0] * 6
        stop = threading.Event()

        def work(number: int) -> None:
            while not stop.is_set():

                def receiver(sender: RTVIClient, event: Event) -> None: ...

                signals.server_message.connect(receiver, sender=client)
                if number % 2:
                    signals.server_message.disconnect(receiver, sender=client)
                count[number] += 1

        threads = [InThread(functools.partial(work, n)) for n in range(6)]
        client.on("server_message", lambda: None)
        for n in range(50):
            say(client, n)
        settle(client)
        stop.set()
        for thread in threads:
            thread.get()
        assert all(count)
        del threads
        collect()
        assert not signals.server_message.has_receivers_for(client)

    def test_every_event_has_a_signal(self) -> None:
        """Each event has a signal of its name, and `dir()` shows them all."""
        for event in RTVIEvent:
            assert getattr(signals, event.snake) is signals.BY_EVENT[event]
            assert event.snake in dir(signals)
        assert signals.bot_text is signals.bot_llm_text


def test_a_bound_method_is_no_complaint_at_exit() -> None:
    """`weakref.WeakMethod` has a callback that fails at the exit of Python 3.11, where modules are gone."""
    script = """
        from rtvi_sync import MemoryTransport, RTVIClient, signals

        class Application:
            def on_ready(self, client, event):
                print("ready", flush=True)

        application = Application()
        signals.bot_ready.connect(application.on_ready)
        with RTVIClient(transport=MemoryTransport()):
            pass
        """
    assert run_python(script, timeout=GUARD) == (0, "ready\n", "")
