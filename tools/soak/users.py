"""A user of the soak: clients with all options, one session after the other, all kinds of calls in them."""

from __future__ import annotations

import functools
import random
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from rtvi_sync import (
    BotNotReadyError,
    Event,
    FunctionCall,
    ReconnectPolicy,
    RTVIClient,
    RTVIError,
    WebSocketTransport,
    signals,
)
from rtvi_sync.media import (
    AudioSink,
    AudioSource,
    BytesSink,
    BytesSource,
    CallbackSink,
    CallbackSource,
    NullSink,
    SilenceSource,
    ToneSource,
    WavSink,
)

from .bots import Address
from .ledger import Ledger, UserError

_CONNECT: Final = 3.0
_REQUEST: Final = 1.0
_DISCONNECT: Final = 5.0
_PING_INTERVAL: Final = 1.0
_PING_TIMEOUT: Final = 1.5
_RECONNECT: Final = ReconnectPolicy(max_attempts=3, initial_delay=0.1, max_delay=0.5, stable_after=1.0)
_LISTENED: Final = 0.3
# Seconds before a user whose connect() has failed tries again.
_PAUSE: Final = 0.3
_SESSION_SECONDS: Final = (0.0, 8.0)
_LARGE: Final = "größer " * 20_000
_SECOND_OF_AUDIO: Final = ToneSource(330).samples(0, 16_000)


@functools.cache
def trusting(authority: str) -> ssl.SSLContext:
    """Return a context that trusts only one authority; it is made once."""
    return ssl.create_default_context(cadata=authority)


def ask_back(client: RTVIClient, _: Event) -> None:
    """Make a request, from a handler."""
    client.send_client_request("echo", "from a handler")


class Handlers:
    """Handlers without a reference to their client, so that it can be collected while it is connected."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._count = 0

    def count(self, _: Any) -> None:
        """Count an event."""
        self._count += 1

    def raise_at_random(self) -> None:
        """Raise, at random."""
        if self._rng.random() < 0.2:
            raise UserError("sorry")

    def tell_weather(self, call: FunctionCall) -> str:
        """Answer the bot's function call, or fail at random."""
        self.raise_at_random()
        return f"rain in {call.arguments['city']}"

    def block(self) -> None:
        """Block for 20 ms."""
        threading.Event().wait(0.02)


class User:
    """A user with one session after the other.

    Args:
        rng: makes all choices.
        addresses: the bots' addresses.
        ledger: where calls are counted.
        folder: for audio files.
        until: the monotonic time at which the last session ends.
    """

    def __init__(
        self, rng: random.Random, addresses: Sequence[Address], ledger: Ledger, folder: Path, until: float
    ) -> None:
        self._rng = rng
        self._addresses = addresses
        self._ledger = ledger
        self._folder = folder
        self._until = until
        self._manual = False
        self._secure = False
        self._reconnects = False
        self._calls: Sequence[tuple[str, float, Callable[[RTVIClient], object]]] = (
            ("send_text", 0, lambda client: client.send_text("One two three", self._chance(), self._chance())),
            ("send_client_message", 0, lambda client: client.send_client_message("note", {"volume": 11})),
            ("send_client_message", 0, lambda client: client.send_client_message("flood")),
            ("send_client_message", 0, self._get_dropped),
            ("send_client_request", _REQUEST, self._ask),
            ("send_client_request", _REQUEST, self._ask),
            ("send_client_request", _REQUEST, self._ask_much),
            ("send_client_request", _REQUEST, lambda client: client.send_client_request("refuse", "such thing")),
            ("send_client_request", 0.1, lambda client: client.send_client_request("slow", timeout=0.1)),
            ("wait_for", 0.5, lambda client: client.wait_for("server-message", timeout=0.5)),
            ("wait_for", 0.5, lambda client: client.wait_for("bot-stopped-speaking", timeout=0.5)),
            ("events", 2.0, self._follow),
            ("process_events", 0.5, self._process),
            ("enable_mic", 0, lambda client: client.enable_mic(self._chance())),
            ("send_client_message", 0, lambda client: client.send_client_message("text frames")),
            ("send_client_message", 0, lambda client: client.send_client_message("call")),
            ("get_bot_config", _REQUEST, lambda client: client.get_bot_config()),
            ("describe_config", _REQUEST, lambda client: client.describe_config()),
            ("update_config", _REQUEST, self._configure),
            ("describe_actions", _REQUEST, lambda client: client.describe_actions()),
            ("action", _REQUEST, self._act),
            ("action", _REQUEST, lambda client: client.action({"service": "math", "action": "fail"})),
            ("stats", 0, lambda client: client.stats()),
            ("tracks", _LISTENED, self._read_tracks),
            ("on, off", 0, self._replace_handler),
        )

    def live(self) -> None:
        """Create clients and use them until the time is up."""
        try:
            while time.monotonic() < self._until:
                client = self._make_client()
                self._use(client)
                self._ledger.add_reconnects(client.stats().reconnects)
                del client
        except Exception as error:
            self._ledger.blame(f"the soak itself: {error!r}")
            raise

    def _chance(self, probability: float = 0.5) -> bool:
        return self._rng.random() < probability

    # -- clients ------------------------------------------------------------------------------------------------------

    def _make_client(self) -> RTVIClient:
        address = self._rng.choice(self._addresses)
        self._manual, self._secure = self._chance(0.25), address.authority is not None
        self._reconnects = self._chance(0.4)
        handlers = Handlers(self._rng)
        client = RTVIClient(
            transport=WebSocketTransport(address.ws_url, ping_interval=_PING_INTERVAL, ping_timeout=_PING_TIMEOUT),
            params={"base_url": address.base_url},
            connect_timeout=_CONNECT,
            request_timeout=_REQUEST,
            events="manual" if self._manual else "thread",
            ssl_context=trusting(address.authority) if address.authority is not None else None,
            proxy=False,
            reconnect=_RECONNECT if self._reconnects else None,
            enable_mic=self._chance(0.8),
            mic=self._make_source(),
            speaker=self._make_sink(),
            callbacks={"on_bot_transcript": handlers.count, "on_user_transcript": handlers.count},
        )
        client.on("bot-started-speaking", handlers.raise_at_random)
        client.on("bot-stopped-speaking", handlers.block)
        client.on("disconnected", handlers.raise_at_random)
        client.register_function_call_handler("get_weather", handlers.tell_weather)
        if self._chance(0.3):
            signals.bot_ready.connect(ask_back, sender=client)
        return client

    def _make_source(self) -> AudioSource:
        return self._rng.choice(
            (
                ToneSource,
                SilenceSource,
                lambda: ToneSource(duration=0.5),
                lambda: BytesSource(_SECOND_OF_AUDIO, 16_000),
                lambda: CallbackSource(lambda frames: _SECOND_OF_AUDIO[: 2 * frames]),
            )
        )()

    def _make_sink(self) -> AudioSink:
        file = self._folder / f"{threading.current_thread().name}.wav"
        return self._rng.choice((NullSink, BytesSink, lambda: CallbackSink(lambda *_: None), lambda: WavSink(file)))()

    def _use(self, client: RTVIClient) -> None:
        for _ in range(self._rng.randint(1, 3)):
            with self._ledger.call("connect", _CONNECT):
                self._connect(client)
                self._ledger.ready()
            until = min(self._until, time.monotonic() + self._rng.uniform(*_SESSION_SECONDS))
            while time.monotonic() < until and self._has_session(client):
                name, limit, act = self._rng.choice(self._calls)
                with self._ledger.call(name, limit):
                    act(client)
                threading.Event().wait(self._rng.uniform(0, 0.1))
            if not client.connected:
                threading.Event().wait(_PAUSE)
            if self._end_session(client):
                return
        with self._ledger.call("close", _DISCONNECT):
            client.close()
        if self._manual:
            client.process_events()

    def _has_session(self, client: RTVIClient) -> bool:
        """Return whether there is a session; if one was lost, wait for the client to reconnect."""
        if self._reconnects and not client.connected and client.stats().sessions:
            with self._ledger.call("wait_for", _REQUEST):
                client.wait_for("bot-ready", timeout=_REQUEST)
        return client.connected

    def _connect(self, client: RTVIClient) -> None:
        way = self._rng.choice(("default", "default", "given", "given", "start", "start", "abandon"))
        if way == "given":
            client.connect({})
        elif way == "start":
            client.start_bot_and_connect(client.construct_url("start"), timeout=_CONNECT)
        elif way == "abandon":
            stop = threading.Timer(self._rng.uniform(0, 0.05), client.disconnect)
            stop.start()
            try:
                client.connect()
            finally:
                stop.join()
        else:
            client.connect()

    def _end_session(self, client: RTVIClient) -> bool:
        """End the session, or let it end. Return True if the user should drop the client without a call."""
        way = self._rng.choice(("disconnect", "disconnect", "together", "leave", "drop", "forget"))
        if way in ("leave", "drop") and client.connected:
            with self._ledger.call("wait_for", _REQUEST), client.events("disconnected", timeout=_REQUEST) as events:
                client.send_client_message(way)
                next(events, None)
        elif way == "together":
            other = threading.Thread(target=client.disconnect)
            other.start()
            with self._ledger.call("disconnect", _DISCONNECT):
                client.disconnect()
            other.join()
        if way != "forget":
            with self._ledger.call("disconnect", _DISCONNECT):
                client.disconnect()
            with self._ledger.call("send_text", 0):
                self._must_raise(client)
            if self._chance(0.3):
                with self._ledger.call("action without a session", _REQUEST):
                    self._act(client)
        return way == "forget"

    # -- calls --------------------------------------------------------------------------------------------------------

    def _get_dropped(self, client: RTVIClient) -> None:
        if self._reconnects:
            client.send_client_message("drop")

    def _ask(self, client: RTVIClient) -> None:
        question = self._rng.choice(("still there?", _LARGE))
        self._compare(client.send_client_request("echo", question), question)

    def _ask_much(self, client: RTVIClient) -> None:
        """Send several requests at once, each on a thread of its own."""
        errors: list[RTVIError] = []

        def ask(number: int) -> None:
            try:
                self._compare(client.send_client_request("echo", number), number)
            except RTVIError as error:
                errors.append(error)

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]

    def _compare(self, got: object, sent: object) -> None:
        if got != sent and self._secure:  # without TLS a fault may turn an answer into another valid one
            self._ledger.blame(f"sent {str(sent)[:100]!r}, got {str(got)[:100]!r}")

    def _configure(self, client: RTVIClient) -> None:
        """Set an option to a value that the bot accepts or refuses."""
        name, value = self._rng.choice((("voice", "ada"), ("voice", "bob"), ("speed", 2), ("speed", -1)))
        options = [{"name": name, "value": value}]
        client.update_config([{"service": "tts", "options": options}], interrupt=self._chance())

    def _act(self, client: RTVIClient) -> None:
        a, b = self._rng.randrange(100), self._rng.randrange(100)
        arguments = [{"name": "a", "value": a}, {"name": "b", "value": b}]
        answer = client.action({"service": "math", "action": "add", "arguments": arguments})
        self._compare(answer.data, {"result": a + b})

    def _follow(self, client: RTVIClient) -> None:
        with client.events(timeout=0.5) as events:
            for number, _ in enumerate(events):
                if number == 3:
                    return

    def _process(self, client: RTVIClient) -> None:
        if self._manual:
            client.process_events(timeout=0.5)

    def _read_tracks(self, client: RTVIClient) -> None:
        tracks = client.tracks()
        for track in (tracks.local.audio, tracks.bot.audio):
            if track is not None:
                frames = track.frames(buffer=0.1)
                end = threading.Timer(_LISTENED / 2, frames.close)
                end.start()
                for _ in frames:
                    pass
                end.join()

    def _replace_handler(self, client: RTVIClient) -> None:
        client.off("bot-llm-text")
        client.on("bot-llm-text", Handlers(self._rng).count)

    def _must_raise(self, client: RTVIClient) -> None:
        """Check that a text after the end of the session raises."""
        try:
            client.send_text("Are you there?")
        except BotNotReadyError:
            return
        self._ledger.blame("a text was sent after the end")
