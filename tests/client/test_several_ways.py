"""Several ways to the bot: when `connect()` tries each one, and how it reports to the caller."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import pytest

from rtvi_sync import (
    BotError,
    CloseInfo,
    ConnectError,
    ConnectionTimeoutError,
    DeviceError,
    DisconnectedError,
    MemoryTransport,
    ReconnectPolicy,
    RTVIClient,
    RTVIMessage,
    StartBotError,
    TransportStartError,
    TransportState,
)
from tests.support.attempts import connect_within, timed_out
from tests.support.clients import ready_bot
from tests.support.probes import use_ways
from tests.support.slowness import GUARD
from tests.support.threads import InThread
from tests.support.waiting import until

URL = "ws://127.0.0.1:9/ws"
ERROR = {"error": "no credits", "fatal": True}


class Named(MemoryTransport):
    """A transport that counts its attempts."""

    def __init__(
        self, name: str, bot: Any = ready_bot, refusal: Exception | None = None, *, audio: bool = False
    ) -> None:
        super().__init__(bot, audio=audio)
        self.name = name
        self.attempts = 0
        self._refusal = refusal

    def connect(self, auth_bundle: Any, abort: Any) -> None:
        self.attempts += 1
        if self._refusal is not None:
            raise self._refusal
        super().connect(auth_bundle, abort)


def resets(transport: MemoryTransport, _message: RTVIMessage) -> None:
    transport.end(CloseInfo(initiator="network", reason="reset by peer"))


def is_silent(_transport: MemoryTransport, _message: RTVIMessage) -> None:
    """Answer nothing."""


def fails(_transport: MemoryTransport, _message: RTVIMessage) -> Iterable[RTVIMessage]:
    return [RTVIMessage("error", ERROR)]


def silent_at_first(
    then: Callable[[MemoryTransport, RTVIMessage], Iterable[Any] | None] = ready_bot,
) -> Callable[[MemoryTransport, RTVIMessage], Iterable[Any] | None]:
    """Return a bot that is silent in its first session."""
    sessions: list[int] = []

    def bot(transport: MemoryTransport, message: RTVIMessage) -> Iterable[Any] | None:
        if message.type == "client-ready":
            sessions.append(1)
        return then(transport, message) if len(sessions) > 1 else None

    return bot


def client_of(*transports: Named, patience: float | None = None, **options: Any) -> RTVIClient:
    client = RTVIClient(**{"transport": transports[0], "connect_timeout": GUARD, **options})
    use_ways(client, URL, *transports, patience=patience)
    return client


@pytest.mark.parametrize(
    "make",
    [
        lambda: Named("first", resets),
        lambda: Named("first", refusal=TransportStartError("refused with 403", status=403)),
        lambda: Named("first", refusal=OSError("no route")),
    ],
    ids=["reset", "refused", "broken"],
)
def test_another_way_follows_one_that_fails(make: Callable[[], Named]) -> None:
    """The application sees one connect: its states do not include `error`, and the transport is the bot's."""
    first, second = make(), Named("second")
    states: list[TransportState] = []
    told: list[str] = []
    client = client_of(first, second, callbacks={"on_transport_state_changed": states.append})
    for name in ("connected", "bot_connected", "bot_ready", "bot_disconnected", "disconnected"):
        client.on(name, lambda _data=None, name=name: told.append(name))
    assert client.transport is first
    with client:
        assert (client.transport, client.state) == (second, TransportState.READY)
        assert (first.attempts, second.attempts) == (1, 1)
    assert TransportState.ERROR not in states
    assert states.count(TransportState.CONNECTED) == 1
    assert told == ["connected", "bot_connected", "bot_ready", "bot_disconnected", "disconnected"]


@pytest.mark.parametrize("events", ["thread", "manual"])
def test_events_go_on_until_a_way_leads_to_a_bot(events: str) -> None:
    """Listeners registered before `connect()` hear the bot of the second way."""
    second = Named("second")
    client = client_of(Named("first", resets), second, events=events)
    stream = client.events("server-message", "disconnected", timeout=GUARD)
    with client:
        second.receive(RTVIMessage("server-message", "hello"))
        assert next(stream).data == "hello"
    assert next(stream).type == "disconnected"
    assert next(stream, None) is None


@pytest.mark.parametrize("events", ["thread", "manual"])
def test_events_end_with_a_connect_that_fails(events: str) -> None:
    """Events end when the last way fails, not the first. Later listeners hear the next `connect()`."""
    bots: list[Any] = [fails]
    second = Named("second", lambda *arguments: bots[-1](*arguments))
    client = client_of(Named("first", resets), second, events=events)
    stream = client.events("server-message", "transport-state-changed", timeout=GUARD)
    with pytest.raises(BotError):
        client.connect()
    later = client.events("server-message", timeout=GUARD)
    assert [event.data for event in stream][-1] is TransportState.ERROR
    end = client.wait(GUARD)
    assert stream.ended == end
    assert isinstance(end.error, BotError)
    bots.append(ready_bot)
    with client:
        second.receive(RTVIMessage("server-message", "hello"))
        assert next(later).data == "hello"


class OwnSource:
    """A microphone of the application that may be used once."""

    sample_rate_hz = 16000

    def __init__(self) -> None:
        self.ended = 0

    def read(self, frames: int) -> bytes:
        assert not self.ended, "it is closed"
        return bytes(2 * frames)

    def close(self) -> None:
        self.ended += 1


class OwnSink(OwnSource):
    """A speaker of the application that may be used once."""

    def write(self, pcm: bytes, sample_rate_hz: int) -> None:
        assert not self.ended, "it is closed"

    def drop(self) -> None:
        """Play nothing."""


@pytest.mark.parametrize("first", [resets, is_silent], ids=["fails", "is silent"])
def test_devices_of_the_application_stay_open(first: Any) -> None:
    """A way that fails does not close the devices that the next one uses."""
    source, sink = OwnSource(), OwnSink()
    ways = Named("first", first, audio=True), Named("second", audio=True)
    with client_of(*ways, mic=source, speaker=sink, patience=0.1) as client:
        assert client.tracks().local.audio is not None
        assert (source.ended, sink.ended) == (0, 0)
    assert (source.ended, sink.ended) == (1, 1)


def test_devices_are_closed_if_no_way_leads_to_a_bot() -> None:
    """connect() closes the microphone and the speaker if no transport reaches the bot."""
    source, sink = OwnSource(), OwnSink()
    ways = [Named(name, resets, audio=True) for name in ("first", "second")]
    client = client_of(*ways, mic=source, speaker=sink)
    with pytest.raises(ConnectError):
        client.connect()
    assert (source.ended, sink.ended) == (1, 1)


def test_devices_and_streams_are_closed_if_the_call_ends_between_two_ways() -> None:
    """No session follows that would close them."""
    source, second = OwnSource(), Named("second", audio=True)
    client = client_of(Named("first", resets, audio=True), second, mic=source, speaker=False)
    stream = client.events("bot-ready", "server-message", timeout=GUARD)

    def disconnect(state: TransportState) -> None:
        if state is TransportState.DISCONNECTED:
            client.disconnect()

    client.on("transport_state_changed", disconnect)
    with pytest.raises(DisconnectedError):
        client.connect()
    assert second.attempts == 0
    assert next(stream, None) is None
    until(lambda: source.ended)
    assert source.ended == 1


def test_all_ways_failed() -> None:
    """The error has each of them, with its own."""
    client = client_of(
        Named("first", resets), Named("second", refusal=TransportStartError("is not there.", status=404))
    )
    with pytest.raises(
        ConnectError, match=r"\n  first: The connection to the bot was lost.*\n  second: is not there\.\n"
    ) as caught:
        client.connect()
    (first, lost), (second, refused) = caught.value.attempts
    assert (first, second) == ("first", "second")
    assert isinstance(lost, DisconnectedError)
    assert isinstance(refused, TransportStartError)
    assert caught.value.status == 404
    assert client.state is TransportState.ERROR


def test_one_cause_is_told_once() -> None:
    """A cause that all attempts have in common appears once in the error."""
    gone = [Named(name, refusal=TransportStartError("127.0.0.1:9 cannot be reached")) for name in ("first", "second")]
    with pytest.raises(ConnectError, match=r"(?m)^127.0.0.1:9 cannot be reached$") as caught:
        client_of(*gone).connect()
    assert len(caught.value.attempts) == 2


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: Named("first", fails), BotError),
        (lambda: Named("first", refusal=DeviceError("no mic", devices=("mic",))), DeviceError),
    ],
    ids=["bot error", "device"],
)
def test_what_concerns_every_way_ends_the_call(make: Callable[[], Named], error: type[Exception]) -> None:
    """An error that concerns every transport ends connect() without another attempt."""
    second = Named("second")
    with pytest.raises(error) as caught:
        client_of(make(), second).connect()
    assert second.attempts == 0
    assert getattr(caught.value, "attempts", ()) == ()


def test_a_refusal_on_a_later_way_hides_nothing() -> None:
    """The call ends, and its error includes the earlier failures."""
    first = Named("first", refusal=TransportStartError("refused with 403", status=403))
    client = client_of(first, Named("second", refusal=StartBotError("too many", status=429)), Named("third"))
    with pytest.raises(ConnectError, match=r"refused with 403\.\n  second: too many") as raised:
        client.connect()
    assert raised.value.status == 429
    assert [way for way, _ in raised.value.attempts] == ["first", "second"]


def test_a_silent_way_is_left() -> None:
    """connect() leaves a silent transport for the next one."""
    first, second = Named("first", is_silent), Named("second")
    with client_of(first, second, patience=0.1) as client:
        assert client.transport is second


@pytest.mark.parametrize("limit", [GUARD, None])
def test_all_are_silent_at_first(limit: float | None) -> None:
    """A silent way does not take the time of the one before it, which may only have been slow."""
    first, second = Named("first", silent_at_first()), Named("second", is_silent)
    with client_of(first, second, connect_timeout=limit, patience=0.1) as client:
        assert (client.transport, first.attempts, second.attempts) == (first, 2, 1)


def test_a_way_that_was_left_gets_the_rest_of_the_time() -> None:
    """A bot that loads its models is slower than the share of one way."""
    first, second = Named("first", silent_at_first()), Named("second", resets)
    with client_of(first, second, patience=0.1) as client:
        assert (client.transport, first.attempts, second.attempts) == (first, 2, 1)


def test_a_way_that_was_tried_twice_is_told_once() -> None:
    """The text has its last error, `attempts` has both."""
    with pytest.raises(ConnectError) as caught:
        client_of(Named("first", silent_at_first(resets)), Named("second", resets), patience=0.1).connect()
    assert [name for name, _ in caught.value.attempts] == ["first", "second", "first"]
    assert "not ready" in str(caught.value.attempts[0][1])
    assert "not ready" not in str(caught.value)


def test_the_limit_of_the_call_passes() -> None:
    """The error of a connect() whose limit passes names each transport that was tried."""
    client = client_of(Named("first", resets), Named("second", is_silent))
    attempt = partial(connect_within, client)
    within = r"^No bot was reached within [\d.]+ s, by any transport:"
    error = timed_out("bot-ready", attempt, rf"{within}\n  first: .*\n  second: The bot was not ready")
    assert [name for name, _ in error.attempts] == ["first", "second"]


def test_a_limit_in_the_wrong_unit() -> None:
    """The error of `timeout=5`, which is in milliseconds, says so."""
    with pytest.raises(ConnectionTimeoutError, match=r"within 0\.005 s \(timeout= is in milliseconds, "):
        RTVIClient(transport=Named("silent", is_silent), timeout=5).connect()


def test_all_are_silent_until_the_limit() -> None:
    """The error has a line for each way, with the time of all its attempts, and no advice to raise a limit for each."""
    client = client_of(Named("first", is_silent), Named("second", is_silent), connect_timeout=2.0)
    with pytest.raises(ConnectionTimeoutError) as caught:
        client.connect()
    text = str(caught.value)
    told = [float(one or other) for one, other in re.findall(r"within ([\d.]+) s; |again for ([\d.]+) s", text)]
    spent = [error.elapsed for _, error in caught.value.attempts if isinstance(error, ConnectionTimeoutError)]
    assert [name for name, _ in caught.value.attempts] == ["first", "second", "first"]
    assert sorted(told) == pytest.approx(sorted(spent), abs=0.006)
    assert [line.split(":")[0] for line in text.splitlines()[1:-1]] == ["  first", "  second"]
    assert "attempt_timeout=" not in text


def test_disconnect_ends_the_call() -> None:
    """No way is tried after it."""
    first, second = Named("first", is_silent), Named("second")
    client = client_of(first, second)
    thread = InThread(client.connect)
    until(lambda: client.state is TransportState.CONNECTING and first.attempts)
    client.disconnect()
    with pytest.raises(DisconnectedError):
        thread.get()
    assert second.attempts == 0
    assert client.state is TransportState.DISCONNECTED


def test_a_reconnect_uses_the_way_that_worked() -> None:
    """A lost session is replaced over the transport that worked."""
    first, second = Named("first", resets), Named("second")
    with client_of(first, second, reconnect=ReconnectPolicy(initial_delay=0.01)) as client:
        second.end(CloseInfo(initiator="network"))
        client.wait_for("bot_ready", timeout=GUARD)
        assert (first.attempts, second.attempts) == (1, 2)


def test_connect_again_tries_all_ways() -> None:
    """Each connect() tries all transports again, from the first on."""
    first, second = Named("first", resets), Named("second")
    client = client_of(first, second)
    for count in (1, 2):
        with client:
            assert (first.attempts, second.attempts) == (count, count)
