"""Tests that every transport must pass, for authors of transports.

Subclass `TransportContract` in a test file under a name that starts with Test, and define the far end of the transport.
docs/guides/transport.md has an example. This module needs pytest, which no other module of the package imports.
"""

from __future__ import annotations

import abc
import threading
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
from rtvi_sync.testing.contract_rig import LIMIT, BackgroundCall, Bot, ContractBot, FarEnd, Rig, descriptors

from ..concurrency.clock import monotonic

__all__ = ["Bot", "FarEnd", "Rig", "TransportContract"]

# Limit for a session's threads and sockets to end, in seconds.
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
    """Return the new threads that do not end in time. Idle threads of the pool are stopped first."""
    deadline = monotonic() + _SETTLE
    while True:
        stop_idle_threads()
        left = set(threading.enumerate()) - before
        if not left or monotonic() > deadline:
            return left
        threading.Event().wait(0.02)


class TransportContract(abc.ABC):
    """Tests that use the transport through a complete client and record the transport's callbacks."""

    @abc.abstractmethod
    def far_end(self, bot: Bot) -> AbstractContextManager[FarEnd]:
        """Return a transport and its peer for one test, where `bot` answers. Both end with the `with` block."""

    @pytest.fixture
    def rig(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
        """Yield the rig of a test, and check at the end that no thread or socket is left."""
        bot = ContractBot()
        threads, open_before = set(threading.enumerate()), descriptors()
        with self.far_end(bot) as far:
            rig = Rig(far, bot, monkeypatch)
            yield rig
            far.transport.disconnect()
        deadline = monotonic() + _SETTLE
        assert _threads_left(threads) == set()
        while not descriptors() <= open_before and monotonic() < deadline:
            threading.Event().wait(0.02)
        assert descriptors() <= open_before
        assert not any(log.overlapped for log in rig.session_logs), "messages were delivered on two threads at once"

    # -- messages -----------------------------------------------------------------------------------------------------

    def test_any_json_goes_both_ways(self, rig: Rig) -> None:
        """Check that any JSON returns unchanged in the answer to its request."""
        rig.need_messages()
        with rig.session() as client:
            for data in _ANY_JSON:
                assert client.send_client_request("echo", data) == data
            with pytest.raises(RequestRejectedError, match=r"No\."):
                client.send_client_request("refuse")

    def test_the_order_is_kept(self, rig: Rig) -> None:
        """Check that each thread's messages, and the bot's messages, arrive in the order of sending."""
        rig.need_messages()
        with rig.session() as client, client.events("server-message", timeout=LIMIT) as events:
            for n in range(200):
                client.send_client_message("repeat", n)
            assert [next(events).data for _ in range(200)] == list(range(200))

    def test_many_threads_send(self, rig: Rig) -> None:
        """Check that any thread may send: each message arrives complete, and each answer finds its request."""
        rig.need_messages()
        with rig.session() as client:
            failures: list[BaseException] = []

            def ask(sender: int) -> None:
                try:
                    for n in range(40):
                        assert client.send_client_request("echo", [sender] * n * 10) == [sender] * n * 10
                except BaseException as error:  # noqa: BLE001 - raised below
                    failures.append(error)

            threads = [start_thread("contract", ask, sender) for sender in range(4)]
            for thread in threads:
                thread.join(LIMIT)
            assert failures == []

    def test_a_callback_may_send(self, rig: Rig) -> None:
        """Check that a message handler can send: the transport holds no lock there that sending needs."""
        rig.need_messages()
        with rig.session() as client, client.events("server-message", timeout=LIMIT) as events:
            again = [RTVIMessage("client-message", {"t": "repeat", "d": n}, str(n)) for n in (1, 2)]
            rig.session_logs[-1].after_message = lambda: again and rig.far.transport.send_message(again.pop(0))
            client.send_client_message("repeat", 0)
            assert [next(events).data for _ in range(3)] == [0, 1, 2]

    def test_sizes(self, rig: Rig) -> None:
        """Check that a message over `max_message_size` bytes is refused without harm, while the bot's may be larger."""
        rig.need_messages()
        rig.far.transport.max_message_size = 20_000
        with rig.session() as client, client.events("server-message", timeout=LIMIT) as events:
            for too_large in ("x" * 20_000, "ü" * 10_000):
                with pytest.raises(MessageTooLargeError, match="client-message"):
                    client.send_client_request("echo", too_large)
            assert client.send_client_request("echo", "ü" * 9_500) == "ü" * 9_500
            size = min(500_000, rig.far.max_inbound - 200)  # minus the envelope
            rig.far.send(rig.bot.message("server-message", "x" * size))
            assert len(next(events).data) == size

    @pytest.mark.parametrize("junk", _JUNK, ids=range(len(_JUNK)))
    def test_junk(self, rig: Rig, junk: str) -> None:
        """Check that data that is not a message does no harm."""
        with rig.session() as client:
            rig.far.send(junk)
            rig.check_session(client)
        assert rig.session_logs[-1].ends == []

    def test_without_a_connection(self, rig: Rig) -> None:
        """Check that a message is refused immediately before, between and after sessions."""
        for _ in range(3):
            rig.check_refusal()
            rig.check_works()

    def test_what_media_it_lacks(self, rig: Rig) -> None:
        """Check that enabling unsupported media raises with the missing feature, and disabling does nothing."""
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
        """Check that the end is reported once, waiting and sending calls raise, and the transport can connect again."""
        with rig.session() as client, client.events("disconnected", timeout=LIMIT) as events:
            waiting = rig.waiting_calls(client)
            getattr(rig.far, how)()
            for call in waiting:
                with pytest.raises(DisconnectedError):
                    call.result()
            assert next(events).data.initiator in ("server", "network")
            rig.check_refusal()
        assert len(rig.session_logs[0].ends) == 1
        rig.check_works()

    def test_the_bot_leaves_when_asked(self, rig: Rig) -> None:
        """Check that the bot ends the session after `disconnect_bot()`."""
        rig.need_messages()
        with rig.session() as client, client.events("disconnected", timeout=LIMIT) as events:
            client.disconnect_bot()
            rig.bot.wait_for_messages("disconnect-bot")
            rig.far.end()
            assert next(events).data.initiator in ("server", "network")

    def test_our_own_end(self, rig: Rig) -> None:
        """Check that messages sent before `disconnect()` arrive, and that no callback follows it, not even the end."""
        rig.need_messages()
        counts = []
        for n in range(1, 6):
            with rig.session() as client:
                for number in range(50):
                    client.send_client_message("note", number)
                    rig.far.send(rig.bot.message("server-message", number))
            counts.append(rig.session_logs[-1].messages)
            rig.bot.wait_for_messages("client-message", 52 * n - 1)
            rig.check_works()
        assert [log.messages for log in rig.session_logs[::2]] == counts
        assert all(log.ends == [] for log in rig.session_logs)

    def test_one_session_after_the_other(self, rig: Rig) -> None:
        """Check several sessions in sequence, ended in each way, with one client and with several."""
        client = rig.client()
        for n in range(12):
            with client.events("disconnected", timeout=LIMIT) as events:
                client.connect(rig.far.auth_bundle)
                rig.check_session(client, n)
                if n % 3:
                    (rig.far.end if n % 3 == 1 else rig.far.cut)()
                    next(events)
            client.disconnect()
            assert len(rig.session_logs) == 2 * n + 1
            rig.check_works()
        expected = 2 if rig.far.transport.carries_messages else 1
        assert [log.messages for log in rig.session_logs] == [expected] * 24

    def test_disconnect_at_any_time(self, rig: Rig) -> None:
        """Check that `disconnect()` may precede any other method, repeat, and run on several threads at once."""
        transport = rig.far.transport
        transport.disconnect()
        rig.check_works()
        with rig.session():
            threads = [start_thread("contract", transport.disconnect) for _ in range(4)]
            for thread in threads:
                thread.join(LIMIT)
            transport.disconnect()
        rig.check_works()

    # -- abandoned attempts -------------------------------------------------------------------------------------------

    @pytest.mark.parametrize(
        "moment",
        [
            *("before initialize", "after initialize", "before init_devices", "after init_devices"),
            *("before connect", "after connect", "before send_ready_message"),
        ],
    )
    def test_given_up(self, rig: Rig, moment: str) -> None:
        """Check that a step that returns late, during the next session, opens nothing and does no harm."""
        when, method = moment.split()
        reached, resume = rig.hold(method, after=when == "after")
        client = rig.client()
        call = BackgroundCall(lambda: client.connect(rig.far.auth_bundle))
        assert reached.wait(LIMIT)
        client.disconnect()
        with rig.session() as other:
            resume.set()
            with pytest.raises(DisconnectedError):
                call.result()
            rig.check_session(other, 2)
        rig.check_works()

    @pytest.mark.parametrize("how", ["disconnect", "limit"])
    def test_given_up_while_connect_waits(self, rig: Rig, how: str) -> None:
        """Check that an abort wakes a `connect()` that waits for a server."""
        if rig.far.hanging_bundle is None:
            pytest.skip("connect() of this transport never waits: its far end has no hanging_bundle")
        threads = set(threading.enumerate())
        begun, resume = rig.hold("connect", after=False)
        resume.set()
        client = rig.client(connect_timeout=0.3 if how == "limit" else LIMIT)
        call = BackgroundCall(lambda: client.connect(rig.far.hanging_bundle))
        assert begun.wait(LIMIT)
        if how == "disconnect":
            client.disconnect()
        with pytest.raises(ConnectionTimeoutError if how == "limit" else DisconnectedError) as caught:
            call.result()
        assert getattr(caught.value, "phase", "transport") == "transport"
        assert client.state is (TransportState.ERROR if how == "limit" else TransportState.DISCONNECTED)
        assert _threads_left(threads) == set(), "connect() was not woken"
        rig.check_works()

    def test_the_bot_is_never_ready(self, rig: Rig) -> None:
        """Check that the connection is closed if the time limit passes after it was opened."""
        rig.need_messages()
        rig.bot.is_ready = False
        for limit in (0.3, 3.0, 30.0):  # the first limit that lets this machine open the connection
            with pytest.raises(ConnectionTimeoutError) as caught:
                rig.client(connect_timeout=limit).connect(rig.far.auth_bundle)
            if caught.value.phase == "bot-ready":
                break
        assert caught.value.phase == "bot-ready"
        with pytest.raises(DisconnectedError):
            rig.far.transport.send_message(RTVIMessage("client-message", {"t": "echo"}, "1"))
        rig.bot.is_ready = True
        rig.check_works()

    def test_an_answer_that_does_not_come(self, rig: Rig) -> None:
        """Check that a request times out without ending the session."""
        rig.need_messages()
        with rig.session() as client:
            with pytest.raises(RequestTimeoutError):
                client.send_client_request("never answered", timeout=0.05)
            assert client.send_client_request("echo", 1) == 1
