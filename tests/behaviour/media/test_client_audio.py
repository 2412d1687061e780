"""Sound as the program sees it at the client: sources, sinks, tracks and the mute switch, over a real connection."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from rtvi_sync import (
    DeviceError,
    EvalTransport,
    Event,
    MemoryTransport,
    RTVIClient,
    RTVIEvent,
    RTVIMessage,
    TransportState,
    WebSocketTransport,
    signals,
)
from rtvi_sync.media import (
    AudioDroppedData,
    BytesSink,
    BytesSource,
    CallbackSink,
    NullSink,
    PushSource,
    SilenceSource,
    ToneSource,
)
from rtvi_sync.testing import BotSession, EmbeddedBot
from tests.support import limits
from tests.support.fake_devices import FakeBackend, use_audio
from tests.support.slowness import GUARD
from tests.support.threads import InThread, own_threads
from tests.support.waiting import until
from tests.support.wire import AudioRawFrame


@pytest.fixture
def bot() -> Iterator[EmbeddedBot]:
    with EmbeddedBot() as running:
        yield running


over_each_transport = pytest.mark.parametrize("transport_class", [WebSocketTransport, EvalTransport])


def client_of(bot: EmbeddedBot, transport_class: Any = WebSocketTransport, **options: Any) -> RTVIClient:
    options = {"mic": SilenceSource(), "speaker": NullSink(), "connect_timeout": GUARD, **options}
    return RTVIClient(transport=transport_class(bot.ws_url), **options)


@over_each_transport
def test_a_turn(bot: EmbeddedBot, transport_class: Any) -> None:
    """The source's speech reaches the bot, and the bot's speech reaches the sink, bit by bit the same."""
    speech = ToneSource(440, duration=0.5, sample_rate_hz=16000)
    sink = BytesSink()
    with client_of(bot, transport_class, mic=speech, speaker=sink) as client:
        spoken = client.events("bot_stopped_speaking", timeout=GUARD)
        assert speech.wait(GUARD)
        next(spoken)
    assert sink.sample_rate_hz == 16000
    assert len(sink.pcm) >= 0.4 * 2 * 16000


@over_each_transport
def test_sources_start_from_their_beginning_in_each_session(bot: EmbeddedBot, transport_class: Any) -> None:
    """Each `connect()` plays the source from its start, and only once the bot is ready."""
    pcm = bytes(range(1, 251)) * 64  # 1 s at 8 kHz, nothing of it silence
    source = BytesSource(pcm, 8000)
    client = client_of(bot, transport_class, mic=source)
    for _ in range(2):
        with client:
            session = bot.wait_for_session()
            assert source.wait(GUARD)
        session.wait_ended(GUARD)
        assert session.audio.lstrip(b"\0").startswith(pcm[:4000])


@over_each_transport
def test_tracks(bot: EmbeddedBot, transport_class: Any) -> None:
    """`tracks()` is empty outside of a session; inside it, the audio being sent can be read until the session ends."""
    client = client_of(bot, transport_class, mic=ToneSource(440, duration=5.0, sample_rate_hz=16000))
    assert client.tracks().local.audio is None
    with client:
        track = client.tracks().local.audio
        assert track is not None
        assert (track.kind, track.ready_state, track.enabled) == ("audio", "live", True)
        frames = track.frames()
        first = next(frames)
        assert first.sample_rate_hz == 16000
        assert any(first.pcm)
        assert client.tracks().bot.audio is not None
        rest = InThread(lambda: len(list(frames)))
    assert rest.get() >= 0
    assert track.ready_state == "ended"
    assert client.tracks().local.audio is None


@over_each_transport
def test_mute(bot: EmbeddedBot, transport_class: Any) -> None:
    """A muted microphone sends no sound, and its source stands still until it is unmuted."""
    source = ToneSource(440, duration=0.3, sample_rate_hz=16000)
    client = client_of(bot, transport_class, mic=source, enable_mic=False)
    enabled = client.is_mic_enabled
    assert enabled is False
    with client:
        session = bot.wait_for_session()
        assert source.wait(0.4) is False
        assert not any(session.audio)
        client.enable_mic(True)
        assert client.is_mic_enabled is True
        assert source.wait(GUARD)
        until(lambda: any(session.audio))


def test_mute_while_connecting(bot: EmbeddedBot) -> None:
    """The switch may be thrown at any time of an attempt."""
    called, release = threading.Event(), threading.Event()

    def handler(*_: Any) -> Any:
        called.set()
        release.wait(GUARD)

    source = ToneSource(440, duration=0.2, sample_rate_hz=16000)
    client = client_of(bot, mic=source, custom_connect_handler=handler)
    connecting = InThread(client.connect)
    assert called.wait(GUARD)
    client.enable_mic(False)
    release.set()
    connecting.get()
    session = bot.wait_for_session()
    assert source.wait(0.3) is False
    client.disconnect()
    assert not any(session.audio)


def test_twenty_sessions_with_audio_of_the_applications_own(bot: EmbeddedBot) -> None:
    """Callbacks for the bots' audio, and pushes of the users' audio, need no thread for each session."""
    heard, voices = [bytearray() for _ in range(20)], [PushSource(16_000) for _ in range(20)]
    clients = [
        client_of(bot, mic=voice, speaker=CallbackSink(lambda pcm, _, into=into: into.extend(pcm)))  # type: ignore[misc]
        for voice, into in zip(voices, heard, strict=True)
    ]
    with contextlib.ExitStack() as stack:
        for client in clients:
            stack.enter_context(client)
        for client, voice in zip(clients, voices, strict=True):
            voice.push(bytes(range(1, 251)) * 8)
            client.send_text("Hello")
        until(lambda: all(heard))
        assert all(voice.wait(GUARD) for voice in voices)
        until(lambda: len(own_threads()) <= 8)  # workers that were busy with the connects go after a while
    assert all(voice.waiting_seconds == 0 for voice in voices)


def test_no_devices(bot: EmbeddedBot, caplog: pytest.LogCaptureFixture) -> None:
    """Without devices and sources a session continues without sound: one warning, one `device_error`."""
    client = RTVIClient(transport=WebSocketTransport(bot.ws_url), connect_timeout=GUARD)
    errors: list[Any] = []
    client.on("device_error", errors.append)
    with client:
        assert client.send_client_request("ping", 1) == 1
    assert [type(e) for e in errors] == [DeviceError]
    assert set(errors[0].devices) == {"mic", "speaker"}
    assert len([r for r in caplog.records if "No mic" in r.getMessage()]) == 1


@pytest.mark.parametrize("device", ["mic", "speaker"])
def test_a_device_by_its_id(bot: EmbeddedBot, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that was asked for by id and is not there fails the attempt."""
    use_audio(monkeypatch, FakeBackend())  # the extra may not be installed
    client = client_of(bot, **{device: "no-such-device"})
    with pytest.raises(DeviceError, match="no-such-device") as caught:
        client.connect()
    assert caught.value.devices == (device,)
    assert caught.value.type == "not-found"
    assert client.state is TransportState.ERROR


class HungSink:
    """A sink whose first `write()` does not return until the test lets it."""

    def __init__(self) -> None:
        self.entered, self.may_return = threading.Event(), threading.Event()
        self.callers: set[int] = set()
        self.met = False  # whether two threads were in it at once
        self.writes = 0

    def write(self, pcm: bytes, sample_rate_hz: int) -> None:
        self.callers.add(threading.get_ident())
        self.met = self.met or len(self.callers) > 1
        self.writes += 1
        self.entered.set()
        assert self.may_return.wait(GUARD)
        self.callers.remove(threading.get_ident())

    def drop(self) -> None:
        pass

    def close(self) -> None:
        self.met = self.met or bool(self.callers)


def test_a_hung_sink_and_the_next_session() -> None:
    """A session that would call a sink in which a call of the last one hangs is refused; then it can be used again."""
    sink, transport = HungSink(), MemoryTransport(audio=True)
    client = RTVIClient(transport=transport, mic=False, speaker=sink, connect_timeout=GUARD)
    client.connect()
    transport.receive_audio(b"\1\0" * 480, 24000)
    assert sink.entered.wait(GUARD)
    client.disconnect()
    with pytest.raises(DeviceError, match=r"HungSink was used before, and a call of its methods has not returned yet"):
        client.connect()
    sink.may_return.set()
    client.connect()  # waits for the call
    transport.receive_audio(b"\2\0" * 480, 24000)
    until(lambda: sink.writes == 2)
    client.disconnect()
    assert not sink.met


class ContinuousTransport(MemoryTransport):
    """A transport whose bot sends its silence, too, as over RTP."""

    audio_is_continuous = True


def test_an_answer_right_after_an_interruption() -> None:
    """A bot that was silent when it was interrupted is heard from its first sample on: nothing was on its way."""
    sink, transport = BytesSink(), ContinuousTransport(audio=True)
    answer = b"\1\2" * 480
    with RTVIClient(transport=transport, mic=False, speaker=sink, connect_timeout=GUARD):
        for _ in range(2):
            transport.receive(RTVIMessage("bot-interrupted"))
            transport.receive_audio(10 * answer, 24000)
            transport.receive_audio(bytes(2 * 24000), 24000)
    assert sink.pcm == 20 * answer


def test_one_source_for_two_clients(bot: EmbeddedBot) -> None:
    """A source serves one session at a time."""
    source = SilenceSource()
    with client_of(bot, mic=source) as client:
        with pytest.raises(DeviceError, match="another session"):
            client_of(bot, mic=source).connect()
        assert client.send_client_request("ping", 1) == 1


def test_a_source_that_disconnects(bot: EmbeddedBot) -> None:
    """A source of the program's that ends the session from its own thread: `disconnect()` returns there too."""
    from rtvi_sync.media import CallbackSource

    connected, left = threading.Event(), threading.Event()

    def read(frames: int) -> bytes:
        connected.wait()
        client.disconnect()
        left.set()
        return b""

    client = client_of(bot, mic=CallbackSource(read, sample_rate_hz=16000))
    client.connect()
    connected.set()
    assert left.wait(GUARD)
    assert client.state is TransportState.DISCONNECTED
    client.disconnect()


class SlowSink:
    """A sink that works, and takes its time."""

    def __init__(self) -> None:
        self.taken: list[bytes] = []
        self.closed = 0

    def write(self, pcm: bytes, sample_rate_hz: int) -> None:
        time.sleep(0.1)
        self.taken.append(pcm)

    def drop(self) -> None:
        """Do nothing: no interruption arrives."""

    def close(self) -> None:
        self.closed += 1


def say(session: BotSession, frames: int) -> None:
    """Have the bot send frames of 20 ms, all different, at once."""
    for number in range(frames):
        session.send_frame(AudioRawFrame(audio=bytes([number]) * 960, sample_rate=24000, num_channels=1))


def test_a_slow_sink_gets_all(bot: EmbeddedBot) -> None:
    """A sink that takes 100 ms for each frame is not hung: `disconnect()` waits until it has all, and it is closed."""
    sink = SlowSink()
    with limits.changed(teardown=GUARD), client_of(bot, speaker=sink) as client:
        say(bot.wait_for_session(), 20)
        until(lambda: client.stats().audio_received == pytest.approx(0.4))
    assert sink.taken == [bytes([number]) * 960 for number in range(20)]
    assert sink.closed == 1
    assert client.stats().speaker_dropped_seconds == 0


def test_what_a_slow_sink_cannot_take_in_time(bot: EmbeddedBot) -> None:
    """At the limit of `disconnect()` the rest is dropped and counted; the event precedes `disconnected`, by every door,
    and the sink is closed.
    """
    sink = SlowSink()
    by_callback: list[Any] = []
    by_signal: list[Any] = []
    client = client_of(bot, speaker=sink, callbacks={"on_audio_dropped": by_callback.append})

    def dropped(_: RTVIClient, event: Event) -> None:
        by_signal.append(event.data)

    signals.audio_dropped.connect(dropped, sender=client)
    with client.events(RTVIEvent.AUDIO_DROPPED, "disconnected", timeout=GUARD) as events:
        with client:
            say(bot.wait_for_session(), 100)
            until(lambda: client.stats().audio_received == pytest.approx(2.0))
        loss = next(events)
        assert next(events).type is RTVIEvent.DISCONNECTED
    lost = client.stats().speaker_dropped_seconds
    assert lost > 0
    assert len(sink.taken) * 0.02 + lost == pytest.approx(2.0)
    assert sink.taken == [bytes([number]) * 960 for number in range(len(sink.taken))]
    assert sink.closed == 1
    assert loss.type is RTVIEvent.AUDIO_DROPPED
    about: Any = pytest.approx(lost)
    assert by_callback == by_signal == [loss.data] == [AudioDroppedData(seconds=about, sink=sink)]
