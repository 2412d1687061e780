"""What every transport must do, as tests, for the authors of transports.

Subclass `TransportContract` in a test file of yours, under a name that begins with Test, and say what is at the other
end of your transport; docs/writing-a-transport.md has an example. This module needs pytest, which nothing else of the
package imports.
"""

from __future__ import annotations

import abc
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest

from rtvi_sync import (
    ConnectionTimeoutError,
    DisconnectedError,
    MessageTooLargeError,
    RequestRejectedError,
    RequestTimeoutError,
    RTVIMessage,
    TransportState,
    UnsupportedFeatureError,
)
from rtvi_sync.concurrency.lifecycle import start_thread, stop_idle_threads
from rtvi_sync.media import Tracks
from rtvi_sync.testing.contract_rig import LIMIT, Bot, ContractBot, FarEnd, Outcome, Rig, descriptors

__all__ = ["Bot", "FarEnd", "Rig", "TransportContract"]

# How long threads and sockets of a session may take to be gone, in seconds.
_SETTLE = 2.0
_ANY_JSON: list[Any] = [
    *(None, True, -1.5, 2**53, "", 'ü\u2028\n"\\\x00\U0001f600'),
    *([], {}, [1, [{"": None}]], {"ü": [""]}),
]
_JUNK = [
    *("no JSON", "", "{", "[]", "null", "{}", "[" * 500 + "]" * 500),
    *('{"label":"another","type":"bot-ready","data":{}}', '{"label":"rtvi-ai"}', '{"label":"rtvi-ai","type":7}'),
]


def _threads_left(before: set[threading.Thread]) -> set[threading.Thread]:
    """The threads that were not there before, and neither end in time nor only wait for something to do."""
    deadline = time.monotonic() + _SETTLE
    while True:
        stop_idle_threads()
        left = set(threading.enumerate()) - before
        if not left or time.monotonic() > deadline:
            return left
        threading.Event().wait(0.02)


class TransportContract(abc.ABC):
    """The tests. They talk through a whole client, and look at what the transport tells it."""

    @abc.abstractmethod
    def far_end(self, bot: Bot) -> AbstractContextManager[FarEnd]:
        """A transport and its surroundings for one test, where `bot` answers; they end with the `with` block."""

    @pytest.fixture
    def rig(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
        """What a test works with. In the end no thread and no socket may be left."""
        bot = ContractBot()
        threads, open_before = set(threading.enumerate()), descriptors()
        with self.far_end(bot) as far:
            rig = Rig(far, bot, monkeypatch)
            yield rig
            far.transport.disconnect()
        deadline = time.monotonic() + _SETTLE
        assert _threads_left(threads) == set()
        while not descriptors() <= open_before and time.monotonic() < deadline:
            threading.Event().wait(0.02)
        assert descriptors() <= open_before
        assert not any(told.overlapped for told in rig.told), "messages were delivered on two threads at once"

    # -- messages -----------------------------------------------------------------------------------------------------

    def test_any_json_goes_both_ways(self, rig: Rig) -> None:
        """Whatever JSON is sent comes back unchanged, in the answer to this request."""
        with rig.session() as client:
            for data in _ANY_JSON:
                assert client.send_client_request("echo", data) == data
            with pytest.raises(RequestRejectedError, match=r"No\."):
                client.send_client_request("refuse")

    def test_the_order_is_kept(self, rig: Rig) -> None:
        """Messages of one thread are heard, and those of the bot told, in the order in which they were sent."""
        with rig.session() as client, client.events("server-message", timeout=LIMIT) as events:
            for n in range(200):
                client.send_client_message("repeat", n)
            assert [next(events).data for _ in range(200)] == list(range(200))

    def test_many_threads_send(self, rig: Rig) -> None:
        """Any thread may send: each message arrives whole, and each answer finds its request."""
        with rig.session() as client:
            failures: list[BaseException] = []

            def ask(sender: int) -> None:
                try:
                    for n in range(40):
                        assert client.send_client_request("echo", [sender] * n * 10) == [sender] * n * 10
                except BaseException as error:  # noqa: BLE001 - it is raised below
                    failures.append(error)

            threads = [start_thread("contract", ask, sender) for sender in range(4)]
            for thread in threads:
                thread.join(LIMIT)
            assert failures == []

    def test_whoever_is_told_may_send(self, rig: Rig) -> None:
        """Where a message is delivered one can be sent: no lock is held there that sending needs."""
        with rig.session() as client, client.events("server-message", timeout=LIMIT) as events:
            again = [RTVIMessage("client-message", {"t": "repeat", "d": n}, str(n)) for n in (1, 2)]
            rig.told[-1].then = lambda: again and rig.far.transport.send_message(again.pop(0))
            client.send_client_message("repeat", 0)
            assert [next(events).data for _ in range(3)] == [0, 1, 2]

    def test_sizes(self, rig: Rig) -> None:
        """A message over `max_message_size` bytes is refused, and costs nothing; those of the bot may be larger."""
        rig.far.transport.max_message_size = 20_000
        with rig.session() as client, client.events("server-message", timeout=LIMIT) as events:
            for too_large in ("x" * 20_000, "ü" * 10_000):
                with pytest.raises(MessageTooLargeError, match="client-message"):
                    client.send_client_request("echo", too_large)
            assert client.send_client_request("echo", "ü" * 9_500) == "ü" * 9_500
            rig.far.send(rig.bot.message("server-message", "x" * 500_000))
            assert len(next(events).data) == 500_000

    @pytest.mark.parametrize("junk", _JUNK, ids=range(len(_JUNK)))
    def test_junk(self, rig: Rig, junk: str) -> None:
        """What is no message does no harm."""
        with rig.session() as client:
            rig.far.send(junk)
            assert client.send_client_request("echo", 1) == 1
        assert rig.told[-1].ends == []

    def test_without_a_connection(self, rig: Rig) -> None:
        """Before, between and after sessions a message is refused at once."""
        for _ in range(3):
            with pytest.raises(DisconnectedError):
                rig.far.transport.send_message(RTVIMessage("client-message", {"t": "echo"}, "1"))
            rig.works()

    def test_what_media_it_lacks(self, rig: Rig) -> None:
        """Turning on what the transport does not carry says what is missing; turning it off does nothing."""
        transport = rig.far.transport
        with rig.session():
            for feature, is_carried, enable in (
                ("mic", transport.supports_audio, transport.enable_mic),
                ("cam", transport.supports_video, transport.enable_cam),
            ):
                enable(False)
                if not is_carried:
                    with pytest.raises(UnsupportedFeatureError) as refusal:
                        enable(True)
                    assert refusal.value.feature == feature
            transport.interrupt_playback()
            assert isinstance(transport.tracks(), Tracks)

    # -- the end ------------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("how", ["end", "cut"])
    def test_the_other_side_ends(self, rig: Rig, how: str) -> None:
        """It is told once, whoever waits gets an error, who sends too, and the transport can be used again."""
        with rig.session() as client, client.events("disconnected", timeout=LIMIT) as events:
            waiting = Outcome(lambda: client.send_client_request("never answered"))
            rig.bot.heard("client-message", 2)
            getattr(rig.far, how)()
            with pytest.raises(DisconnectedError):
                waiting.get()
            assert next(events).data.initiator in ("server", "network")
            with pytest.raises(DisconnectedError):
                rig.far.transport.send_message(RTVIMessage("client-message", {"t": "echo"}, "1"))
        assert len(rig.told[0].ends) == 1
        rig.works()

    def test_the_bot_leaves_when_asked(self, rig: Rig) -> None:
        """After `disconnect_bot()` the bot ends the session."""
        with rig.session() as client, client.events("disconnected", timeout=LIMIT) as events:
            client.disconnect_bot()
            rig.bot.heard("disconnect-bot")
            rig.far.end()
            assert next(events).data.initiator in ("server", "network")

    def test_our_own_end(self, rig: Rig) -> None:
        """What was sent before `disconnect()` arrives; after it nothing is told, not even the end."""
        counts = []
        for n in range(1, 6):
            with rig.session() as client:
                for number in range(50):
                    client.send_client_message("note", number)
                    rig.far.send(rig.bot.message("server-message", number))
            counts.append(rig.told[-1].messages)
            rig.bot.heard("client-message", 52 * n - 1)
            rig.works()
        assert [told.messages for told in rig.told[::2]] == counts
        assert all(told.ends == [] for told in rig.told)

    def test_one_session_after_the_other(self, rig: Rig) -> None:
        """Any number, however each ends, of one client or of several."""
        client = rig.client()
        for n in range(12):
            with client.events("disconnected", timeout=LIMIT) as events:
                client.connect(rig.far.auth_bundle)
                assert client.send_client_request("echo", n) == n
                if n % 3:
                    (rig.far.end if n % 3 == 1 else rig.far.cut)()
                    next(events)
            client.disconnect()
            assert len(rig.told) == 2 * n + 1
            rig.works()
        assert [told.messages for told in rig.told] == [2] * 24

    def test_disconnect_at_any_time(self, rig: Rig) -> None:
        """It may be called before anything else, again and again, and on several threads at once."""
        transport = rig.far.transport
        transport.disconnect()
        rig.works()
        with rig.session():
            threads = [start_thread("contract", transport.disconnect) for _ in range(4)]
            for thread in threads:
                thread.join(LIMIT)
            transport.disconnect()
        rig.works()

    # -- attempts that come to nothing --------------------------------------------------------------------------------

    @pytest.mark.parametrize(
        "moment",
        [
            *("before initialize", "after initialize", "before init_devices", "after init_devices"),
            *("before connect", "after connect", "before send_ready_message"),
        ],
    )
    def test_given_up(self, rig: Rig, moment: str) -> None:
        """A step that comes back late, when another session is there already, opens nothing and harms nothing."""
        when, method = moment.split()
        there, go_on = rig.hold(method, after=when == "after")
        client = rig.client()
        outcome = Outcome(lambda: client.connect(rig.far.auth_bundle))
        assert there.wait(LIMIT)
        client.disconnect()
        with rig.session() as other:
            go_on.set()
            with pytest.raises(DisconnectedError):
                outcome.get()
            assert other.send_client_request("echo", 2) == 2
        rig.works()

    @pytest.mark.parametrize("how", ["disconnect", "limit"])
    def test_given_up_while_connect_waits(self, rig: Rig, how: str) -> None:
        """An abort wakes a `connect()` that waits for a server."""
        if rig.far.hanging_bundle is None:
            pytest.skip("connect() of this transport never waits, as its author says")
        threads = set(threading.enumerate())
        begun, go_on = rig.hold("connect", after=False)
        go_on.set()
        client = rig.client(connect_timeout=0.3 if how == "limit" else LIMIT)
        outcome = Outcome(lambda: client.connect(rig.far.hanging_bundle))
        assert begun.wait(LIMIT)
        if how == "disconnect":
            client.disconnect()
        with pytest.raises(ConnectionTimeoutError if how == "limit" else DisconnectedError) as caught:
            outcome.get()
        assert getattr(caught.value, "phase", "transport") == "transport"
        assert client.state is (TransportState.ERROR if how == "limit" else TransportState.DISCONNECTED)
        assert _threads_left(threads) == set(), "it was not woken"
        rig.works()

    def test_the_bot_is_never_ready(self, rig: Rig) -> None:
        """When the limit passes after the connection was opened, it is closed."""
        rig.bot.is_ready = False
        with pytest.raises(ConnectionTimeoutError) as caught:
            rig.client(connect_timeout=0.3).connect(rig.far.auth_bundle)
        assert caught.value.phase == "bot-ready"
        with pytest.raises(DisconnectedError):
            rig.far.transport.send_message(RTVIMessage("client-message", {"t": "echo"}, "1"))
        rig.bot.is_ready = True
        rig.works()

    def test_an_answer_that_does_not_come(self, rig: Rig) -> None:
        """A request times out, and the session goes on."""
        with rig.session() as client:
            with pytest.raises(RequestTimeoutError):
                client.send_client_request("never answered", timeout=0.05)
            assert client.send_client_request("echo", 1) == 1
