"""Microphones and speakers as the program sees them at the client, on a machine without PyAudio's faults."""

from __future__ import annotations

import array
import struct
import threading
import wave
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rtvi_sync import (
    DeviceError,
    MemoryTransport,
    ReconnectPolicy,
    RTVIClient,
    UnsupportedFeatureError,
    WebSocketTransport,
)
from rtvi_sync.errors import MissingExtraError, RTVIError
from rtvi_sync.media import (
    AudioLevel,
    BytesSink,
    BytesSource,
    MediaDeviceInfo,
    NullSink,
    SilenceSource,
    WavSink,
)
from rtvi_sync.testing import EmbeddedBot
from tests.support.fake_devices import FakeBackend, FakeInput, heard_by, info, watched
from tests.support.moments import at
from tests.support.probes import audio_frame, interrupt_and_play, look_for_devices
from tests.support.slowness import GUARD
from tests.support.threads import InThread
from tests.support.waiting import until
from tests.support.wavs import write_wav


def has_heard(session: Any, sample: int) -> bool:
    """Return whether the bot has received this sample."""
    return sample in heard_by(session)


def has_size(path: Path, size: int) -> bool:
    """Return whether the file has at least `size` bytes."""
    return path.exists() and path.stat().st_size >= size


def say(session: Any, pcm: bytes) -> None:
    """Have the bot say something, all at once."""
    for start in range(0, len(pcm), 1920):
        session.send_frame(audio_frame(pcm[start : start + 1920], 24000))


# -- available devices ------------------------------------------------------------------------------------------------


def test_lists(client_of: Callable[..., RTVIClient], backend: FakeBackend) -> None:
    """Each kind has its list, fresh at each call; nothing is opened for it."""
    client = client_of()
    assert client.get_all_mics() == backend.there[:2]
    assert client.get_all_speakers() == backend.there[2:]
    backend.there.append(info("new", "audioinput"))
    assert [mic.label for mic in client.get_all_mics()] == ["mic_a", "mic_b", "new"]
    assert backend.opened == []


def test_lists_without_the_library(client_of: Callable[..., RTVIClient], backend: FakeBackend) -> None:
    """The error says how to install it."""

    def devices() -> list[MediaDeviceInfo]:
        raise MissingExtraError("A microphone", "audio")

    backend.devices = devices  # type: ignore[method-assign]
    with pytest.raises(MissingExtraError, match="pip install"):
        client_of().get_all_mics()


# -- before a session -------------------------------------------------------------------------------------------------


def test_what_is_disabled_or_not_carried(backend: FakeBackend, client_of: Callable[..., RTVIClient]) -> None:
    """A muted microphone is not opened; a transport without audio opens no device."""
    client_of(enable_mic=False).init_devices()
    assert backend.opened == ["fake/speaker_a"]
    silent = RTVIClient(transport=MemoryTransport())
    silent.init_devices()
    assert backend.opened == ["fake/speaker_a"]
    silent.disconnect()


def test_without_a_transport(backend: FakeBackend) -> None:
    """Devices need none."""
    client = RTVIClient()
    client.init_devices()
    assert len(backend.open) == 2
    client.update_mic("fake/mic_b")
    assert backend.open.count("fake/mic_b") == 1
    client.disconnect()
    assert backend.open == []


# -- files, functions, none -------------------------------------------------------------------------------------------


def test_files(client_of: Callable[..., RTVIClient], bot: EmbeddedBot, backend: FakeBackend, tmp_path: Path) -> None:
    """A `Path` is opened by `connect()`, and each session adds to the recording."""
    question, answer = tmp_path / "question.wav", tmp_path / "answer.wav"
    client = client_of(mic=question, speaker=answer)
    with pytest.raises(DeviceError, match=r"Cannot read the audio file .*question\.wav"):
        client.connect()
    assert client.media_state.mic.state == "error"
    write_wav(question, [b"\xe8\x03" * 1600])
    for number in (1, 2):
        with client:
            session = bot.wait_for_session()
            until(partial(has_heard, session, 1000))
            say(session, b"\1\2" * 2400)
            until(partial(has_size, answer, 44 + number * 4800))
    with wave.open(str(answer)) as file:
        assert file.readframes(10_000) == b"\1\2" * 4800
    assert backend.opened == []


def test_a_file_that_changes(client_of: Callable[..., RTVIClient], bot: EmbeddedBot, tmp_path: Path) -> None:
    """A file is read again for each session and by `update_mic()`; one that is gone, or open, is sent as it was."""
    path = write_wav(tmp_path / "a.wav", [b"\xe8\x03" * 1600])
    client = client_of(mic=path)
    with client:
        session = bot.wait_for_session()
        until(partial(has_heard, session, 1000))
        write_wav(path, [b"\xd0\x07" * 3200])
        client.update_mic(path)
        until(partial(has_heard, session, 2000))
    write_wav(path, [b"\xb8\x0b" * 4800])
    with client:
        until(partial(has_heard, bot.wait_for_session(), 3000))
    path.unlink()
    client.init_devices()
    path.write_bytes(b"no audio")  # an open file is not opened again
    with client:
        until(partial(has_heard, bot.wait_for_session(), 3000))
    with pytest.raises(DeviceError, match="Cannot use the audio file"):
        client.connect()


@pytest.mark.parametrize("begins_with_sink", [False, True])
def test_a_recording_that_is_chosen_again(
    client_of: Callable[..., RTVIClient], bot: EmbeddedBot, tmp_path: Path, begins_with_sink: bool
) -> None:
    """A file that is chosen again, in a session or between two, is added to."""
    path = tmp_path / "answer.wav"
    client = client_of(mic=False, speaker=WavSink(path) if begins_with_sink else path)
    for number in (1, 2):
        with client:
            say(bot.wait_for_session(), b"\1\2" * 2400)
            until(partial(has_size, path, 44 + number * 4800))
            client.update_speaker(False)
            client.update_speaker(path)
        client.update_speaker(path)


def test_a_file_that_cannot_be_written(client_of: Callable[..., RTVIClient], tmp_path: Path) -> None:
    """`connect()` says so, not the constructor."""
    client = client_of(mic=False, speaker=tmp_path / "nowhere" / "a.wav")
    with pytest.raises(DeviceError, match="does not exist"):
        client.connect()


def test_files_in_a_session(client_of: Callable[..., RTVIClient], bot: EmbeddedBot, tmp_path: Path) -> None:
    """A file that cannot be used leaves the old source in its place; one that is used already goes on."""
    path = write_wav(tmp_path / "a.wav", [b"\xe8\x03" * 160_000])
    with client_of(mic=False, speaker=False) as client:
        session = bot.wait_for_session()
        with pytest.raises(DeviceError, match="Cannot read"):
            client.update_mic(tmp_path / "b.wav")
        client.update_mic(path)
        until(lambda: 1000 in heard_by(session))
        track = client.tracks().local.audio
        client.update_mic(path)
        assert client.tracks().local.audio is track
        client.update_mic(lambda frames: b"\xd0\x07" * frames)
        until(lambda: 2000 in heard_by(session))
        heard: list[bytes] = []
        client.update_speaker(lambda pcm, rate: heard.append(pcm))
        say(session, b"\1\2" * 960)
        until(lambda: b"".join(heard) == b"\1\2" * 960)


@pytest.mark.parametrize("options", [{"text_only": True}, {"mic": False, "speaker": False, "cam": False}])
def test_no_devices_at_all(
    client_of: Callable[..., RTVIClient], bot: EmbeddedBot, backend: FakeBackend, options: dict[str, Any]
) -> None:
    """No device is looked for or opened, nothing is sent, and nothing is reported as missing."""
    backend.devices = lambda: pytest.fail("a device was looked for")  # type: ignore[method-assign]
    client = client_of(**options)
    errors: list[Any] = []
    client.on("device_error", errors.append)
    client.init_devices()
    with client:
        session = bot.wait_for_session()
        client.enable_mic(False)
        client.enable_mic(True)
        assert client.tracks().local.audio is None
        client.send_client_message("text")
        session.wait_for_message("client-message", timeout=GUARD)
        assert session.audio == b""
    assert (backend.opened, errors) == ([], [])


def test_a_microphone_is_taken_away(
    client_of: Callable[..., RTVIClient], bot: EmbeddedBot, backend: FakeBackend
) -> None:
    """False closes the device for good; another choice opens one."""
    with client_of(speaker=False) as client:
        session = bot.wait_for_session()
        until(lambda: 1000 in heard_by(session))
        client.update_mic(False)
        assert (backend.open, client.tracks().local.audio) == ([], None)
        assert client.media_state.mic.state == "uninitialized"
        client.enable_mic(True)
        assert backend.open == []
        client.update_mic("fake/mic_b")
        until(lambda: 2000 in heard_by(session))
        client.update_mic(False)
    with client:
        assert backend.open == []
        client.update_mic(None)
        assert backend.open == ["fake/mic_a"]


# -- in a session -----------------------------------------------------------------------------------------------------


def test_another_microphone(client_of: Callable[..., RTVIClient], bot: EmbeddedBot, backend: FakeBackend) -> None:
    """The bot hears the new one, the track goes on, and the event tells which it is."""
    with client_of() as client:
        session = bot.wait_for_session()
        track = client.tracks().local.audio
        assert track is not None
        frames = track.frames()
        until(lambda: 1000 in heard_by(session))
        with client.events("mic_updated", timeout=GUARD) as events:
            client.update_mic("fake/mic_b")
            assert next(events).data == backend.there[1]
        until(lambda: {1000, 2000} <= heard_by(session))
        assert client.tracks().local.audio is track
        assert track.ready_state == "live"
        until(lambda: any(frame.pcm.startswith(b"\xd0\x07") for frame in frames.queued()))
        assert backend.open.count("fake/mic_a") == 0
        client.update_mic(backend.there[1])
        assert backend.opened.count("fake/mic_b") == 1


def test_a_microphone_that_cannot_be_had(client_of: Callable[..., RTVIClient], backend: FakeBackend) -> None:
    """If a microphone cannot be opened, the previous one goes on."""
    backend.broken["fake/mic_b"] = DeviceError("Not for you", devices=("mic",), type="permissions")
    with client_of() as client:
        for wrong in ("fake/mic_b", "nowhere"):
            with pytest.raises(DeviceError):
                client.update_mic(wrong)
        with pytest.raises(TypeError, match="a device, its id"):
            client.update_mic(5)  # type: ignore[arg-type]
        assert client.selected_mic == backend.there[0]
        assert client.media_state.mic.state == "granted"
        assert "fake/mic_a" in backend.open


def test_a_card_for_one_stream(client_of: Callable[..., RTVIClient], bot: EmbeddedBot, backend: FakeBackend) -> None:
    """Where the old microphone keeps the new one from being opened it is closed first, and opened again if need be."""
    backend.exclusive = True
    with client_of() as client:
        session = bot.wait_for_session()
        client.update_mic("fake/mic_b")
        assert [each for each in backend.open if "mic" in each] == ["fake/mic_b"]
        backend.broken["fake/mic_a"] = DeviceError("No", devices=("mic",), type="unknown")
        with pytest.raises(DeviceError, match="No"):
            client.update_mic("fake/mic_a")
        assert [each for each in backend.open if "mic" in each] == ["fake/mic_b"]
        before = len(session.audio)
        until(lambda: len(session.audio) > before + 32000 // 5)
        assert client.tracks().local.audio is not None


def test_what_the_transport_does_not_carry(backend: FakeBackend) -> None:
    """Nothing is opened for it in its session, whatever is chosen; the choice is kept for another one."""
    client = RTVIClient(transport=MemoryTransport(), connect_timeout=GUARD)
    with client:
        client.update_mic("fake/mic_b")
        client.update_speaker(BytesSink())
        assert backend.opened == []
        assert client.tracks().local.audio is None
        assert client.selected_mic == backend.there[1]


@pytest.mark.parametrize("error", [OSError("broken pipe"), RTVIError("gone")])
def test_a_transport_that_raises(backend: FakeBackend, error: Exception) -> None:
    """The bot hears nothing more; the track goes on, and the session."""

    class Broken(MemoryTransport):
        def send_audio(self, pcm: bytes, sample_rate_hz: int) -> None:
            raise error

    client = RTVIClient(transport=Broken(audio=True), connect_timeout=GUARD)
    with client:
        track = client.tracks().local.audio
        assert track is not None
        frames = track.frames()
        for _ in range(5):
            next(frames)
        assert client.send_client_request("ping", 1) == 1
    assert backend.open == []


def test_a_transport_that_blocks(backend: FakeBackend) -> None:
    """The session still ends, and the microphone is closed: disconnect() wakes such a transport."""
    entered, release = threading.Event(), threading.Event()

    class Blocking(MemoryTransport):
        def send_audio(self, pcm: bytes, sample_rate_hz: int) -> None:
            entered.set()
            release.wait(GUARD)

        def disconnect(self) -> None:
            super().disconnect()
            release.set()

    client = RTVIClient(transport=Blocking(audio=True), connect_timeout=GUARD)
    with client:
        assert entered.wait(GUARD)
    assert release.is_set()
    until(lambda: backend.open == [])


def test_a_switch_that_cannot_be_thrown(client_of: Callable[..., RTVIClient], backend: FakeBackend) -> None:
    """A switch that cannot be thrown stays where it was, so that the next session starts as this one."""
    client = client_of(mic="fake/nowhere", enable_mic=False)
    with client:
        with pytest.raises(DeviceError, match="nowhere"):
            client.enable_mic(True)
        assert client.is_mic_enabled is False
    with client:
        assert client.connected


def test_mute(client_of: Callable[..., RTVIClient], bot: EmbeddedBot, backend: FakeBackend) -> None:
    """A muted microphone is closed, and opened again when it is unmuted."""
    with client_of() as client:
        session = bot.wait_for_session()
        until(lambda: 1000 in heard_by(session))
        client.enable_mic(False)
        until(lambda: "fake/mic_a" not in backend.open)
        client.enable_mic(True)
        until(lambda: "fake/mic_a" in backend.open)


def test_unmuted_at_last(client_of: Callable[..., RTVIClient], bot: EmbeddedBot, backend: FakeBackend) -> None:
    """A microphone that was muted from the start is opened then."""
    with client_of(enable_mic=False) as client:
        session = bot.wait_for_session()
        assert backend.opened == ["fake/speaker_a"]
        client.enable_mic(True)
        until(lambda: 1000 in heard_by(session))


def test_a_device_that_fails_and_comes_back(client_of: Callable[..., RTVIClient], backend: FakeBackend) -> None:
    """The session lives; the failure is told once, and that it works again."""
    with client_of() as client, client.events("device_error", "media_state_updated", timeout=GUARD) as events:
        backend.broken["fake/mic_a"] = DeviceError("Unplugged", devices=("mic",), type="unknown")
        failed = [next(events), next(events)]
        assert {event.type.snake for event in failed} == {"device_error", "media_state_updated"}
        assert (client.media_state.mic.state, client.media_state.mic.reason) == ("error", "unknown")
        assert client.send_client_request("ping", 1) == 1
        del backend.broken["fake/mic_a"]
        assert next(events).data.mic.state == "granted"


def test_missing_defaults(client_of: Callable[..., RTVIClient], backend: FakeBackend, caplog: Any) -> None:
    """A machine without devices: one event, one warning, and a device that is plugged in later is used."""
    microphone = backend.there[0]
    backend.there.clear()
    client = client_of()
    errors: list[DeviceError] = []
    client.on("device_error", errors.append)
    with client:
        assert client.media_state.mic.reason == "not-found"
        assert client.tracks().local.audio is None
        backend.there.append(microphone)
        until(lambda: client.media_state.mic.state == "granted")
        assert backend.open == ["fake/mic_a"]
        assert client.tracks().local.audio is not None
    assert [error.devices for error in errors] == [("mic", "speaker")]
    (warned,) = [text for text in caplog.messages if "No mic and no speaker" in text]
    assert warned.endswith("The session continues without them, and tries them again")


@pytest.mark.parametrize("at_first", ["there", "missing"])
def test_a_named_device_is_missing(
    client_of: Callable[..., RTVIClient], bot: EmbeddedBot, backend: FakeBackend, caplog: Any, at_first: str
) -> None:
    """A session that replaces another needs no named device, nor does `connect()` if it is repeated. It comes back."""
    microphone = backend.there[0]
    client = client_of(mic="fake/mic_a", reconnect=ReconnectPolicy.forever(initial_delay=0.01))
    if at_first == "missing":
        backend.there.remove(microphone)
    errors: list[DeviceError] = []
    client.on("device_error", errors.append)
    with client:
        if at_first == "there":
            backend.there.remove(microphone)
            bot.wait_for_session().close()
        until(lambda: errors)
        assert (errors[0].devices, errors[0].type) == (("mic",), "not-found")
        assert "No mic: " in caplog.text
        client.wait_until_ready(GUARD)
        assert client.media_state.speaker.state == "granted"
        backend.there.append(microphone)
        until(lambda: client.media_state.mic.state == "granted")
        assert client.selected_mic == microphone


def test_a_device_that_appears_while_others_open(
    client_of: Callable[..., RTVIClient], backend: FakeBackend, caplog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A microphone that works before the speaker has opened is not reported as missing; its next absence is."""
    microphones = backend.there[:2]
    del backend.there[:2]
    client = client_of()
    errors: list[DeviceError] = []
    client.on("device_error", errors.append)

    def open_slowly(*arguments: Any) -> Any:
        backend.there[:0] = microphones
        until(lambda: client.media_state.mic.state == "granted")
        return FakeBackend.open_output(backend, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(backend, "open_output", open_slowly)
        with client:
            assert client.media_state.mic.state == "granted"
    assert errors == []
    assert "No mic" not in caplog.text
    del backend.there[:2]
    with client:
        until(lambda: errors)
    assert errors[0].devices == ("mic",)
    assert "No mic: " in caplog.text


def test_a_named_device_is_missing_when_it_is_turned_on(
    client_of: Callable[..., RTVIClient], backend: FakeBackend
) -> None:
    """A session that needs no named device does not need it later, either: it is tried again."""
    microphone = backend.there.pop(0)
    client = client_of(mic="fake/mic_a", enable_mic=False, reconnect=ReconnectPolicy.forever(initial_delay=0.01))
    errors: list[DeviceError] = []
    client.on("device_error", errors.append)
    with client:
        client.enable_mic(True)
        until(lambda: errors)
        assert client.is_mic_enabled
        backend.there.append(microphone)
        until(lambda: client.media_state.mic.state == "granted")
    assert [(error.devices, error.type) for error in errors] == [(("mic",), "not-found")]


def test_a_named_device_is_missing_at_once(client_of: Callable[..., RTVIClient], backend: FakeBackend) -> None:
    """Without a policy that repeats it, `connect()` raises."""
    backend.there.pop(0)
    with pytest.raises(DeviceError, match="mic_a") as error:
        client_of(mic="fake/mic_a", reconnect=ReconnectPolicy()).connect()
    assert error.value.type == "not-found"


def test_a_device_that_failed_is_chosen_again(client_of: Callable[..., RTVIClient], backend: FakeBackend) -> None:
    """`update_mic()` tries a device that has failed at once, and raises if it still fails."""
    microphone, other = backend.there[:2]
    del backend.there[:2]
    with client_of() as client:
        with pytest.raises(DeviceError):
            client.update_mic(None)
        backend.there[:0] = [microphone, other]
        client.update_mic(None)
        assert client.media_state.mic.state == "granted"
        assert backend.open.count("fake/mic_a") == 1


# -- the speaker ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("exclusive", [False, True], ids=["two streams", "one stream"])
def test_another_speaker(
    client_of: Callable[..., RTVIClient], bot: EmbeddedBot, backend: FakeBackend, exclusive: bool
) -> None:
    """A change of the speaker in mid-sentence loses nothing, even on a card that serves one stream."""
    backend.exclusive = exclusive
    speech = b"".join(struct.pack("<h", 1 + n % 9000) for n in range(48000))
    with client_of(enable_mic=False) as client:
        session = bot.wait_for_session()
        say(session, speech)
        until(lambda: any(backend.heard.get("fake/speaker_a", b"")))
        client.update_speaker("fake/speaker_b")
        until(lambda: backend.heard.get("fake/speaker_b", b"").endswith(bytes(960)) and speech_of(backend) == speech)
        assert client.selected_speaker == backend.there[3]


def speech_of(backend: FakeBackend) -> bytes:
    """Return the speech of all speakers in order, without the silence between; its samples are never zero."""
    heard = array.array("h", b"".join(bytes(backend.heard.get(f"fake/speaker_{name}", b"")) for name in "ab"))
    return array.array("h", filter(None, heard)).tobytes()


def test_volume(client_of: Callable[..., RTVIClient], bot: EmbeddedBot, backend: FakeBackend) -> None:
    """The volume is the speaker's: tracks hear the bot as it speaks."""
    speech = struct.pack("<h", 8000) * 24000
    with client_of(enable_mic=False) as client:
        assert (client.speaker_volume, client.is_speaker_enabled) == (1.0, True)
        session = bot.wait_for_session()
        client.speaker_volume = 0.5
        track = client.tracks().bot.audio
        assert track is not None
        frames = track.frames()
        say(session, speech)
        until(lambda: struct.pack("<h", 4000) * 10 in backend.heard.get("fake/speaker_a", b""))
        assert next(frames).pcm[:2] == struct.pack("<h", 8000)
        client.enable_speaker(False)
        assert client.is_speaker_enabled is False
        for wrong in (-0.1, 1.1, float("nan"), "0.5", None):
            with pytest.raises((TypeError, ValueError), match="speaker_volume must be a number from 0 to 1"):
                client.speaker_volume = wrong  # type: ignore[assignment]


def test_a_muted_speaker(client_of: Callable[..., RTVIClient], bot: EmbeddedBot, backend: FakeBackend) -> None:
    """Nothing of the bot is heard, while its track goes on."""
    with client_of(enable_mic=False) as client:
        session = bot.wait_for_session()
        client.enable_speaker(False)
        track = client.tracks().bot.audio
        assert track is not None
        frames = track.frames()
        say(session, struct.pack("<h", 8000) * 4800)
        next(frames)
        until(lambda: len(backend.heard.get("fake/speaker_a", b"")) > 24000)
        assert not any(backend.heard["fake/speaker_a"])


# -- levels and tracks ------------------------------------------------------------------------------------------------


def test_levels_of_the_bot(client_of: Callable[..., RTVIClient], bot: EmbeddedBot) -> None:
    """Levels of the bot arrive while it speaks, and end with silence, though the bot sends none."""
    client = client_of(mic=SilenceSource(), speaker=NullSink())
    levels: list[AudioLevel] = []
    client.on("remote_audio_level", levels.append)
    with client:
        say(bot.wait_for_session(), struct.pack("<h", 16384) * 24000)
        until(lambda: bool(levels) and levels[-1].level == 0.0)
        half: Any = pytest.approx(-6.02, abs=0.01)
        assert levels[0] == AudioLevel(level=0.5, dbfs=half)
        assert levels[-1].dbfs == -100.0


def test_levels_that_nobody_has_time_for(client_of: Callable[..., RTVIClient]) -> None:
    """While a handler runs, only the newest level waits, so that the handler's next value is recent."""
    entered, release = threading.Event(), threading.Event()
    levels: list[AudioLevel] = []

    def on_level(level: AudioLevel) -> None:
        levels.append(level)
        if len(levels) == 1:
            entered.set()
            release.wait(GUARD)

    client = client_of(speaker=NullSink())
    client.on("local_audio_level", on_level)
    client.init_devices()
    assert entered.wait(GUARD)
    track = client.tracks().local.audio
    assert track is not None
    frames = track.frames()
    for _ in range(20):  # 0.4 s
        next(frames)
    assert client.stats().events_queued <= 1
    release.set()
    until(lambda: len(levels) > 3)


def test_tracks_that_begin_and_end(client_of: Callable[..., RTVIClient], bot: EmbeddedBot) -> None:
    """Local and bot's, each told once."""
    client = client_of(mic=BytesSource(bytes(640), 16000), speaker=BytesSink())
    told: list[tuple[str, str, str]] = []
    for name in ("track_started", "track_stopped"):
        client.on(name, lambda data, name=name: told.append((name, data.participant.id, data.track.ready_state)))
    with client:
        say(bot.wait_for_session(), bytes(4800))
        until(lambda: len(told) == 2)
    assert sorted(told) == [
        ("track_started", "bot", "live"),
        ("track_started", "local", "live"),
        ("track_stopped", "bot", "ended"),
        ("track_stopped", "local", "ended"),
    ]


# -- missing devices --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("feature", ["cam", "screen-share"])
@pytest.mark.parametrize("where", ["in a session", "with devices", "outside"])
def test_video_over_websocket(client_of: Callable[..., RTVIClient], feature: str, where: str) -> None:
    """Video over WebSocket is refused by name, and the event fires, whenever it is asked for."""
    client = client_of(mic=SilenceSource(), speaker=NullSink())
    seen: list[UnsupportedFeatureError] = []
    client.on("unsupported_feature", seen.append)
    if where == "in a session":
        client.connect()
    elif where == "with devices":
        client.init_devices()
    enable = client.enable_cam if feature == "cam" else client.enable_screen_share
    with pytest.raises(UnsupportedFeatureError, match="no video") as caught:
        enable(True)
    assert caught.value.feature == feature
    until(lambda: [error.feature for error in seen] == [feature])
    enable(False)
    assert (client.is_cam_enabled, client.is_sharing_screen) == (False, False)


def test_a_backend_of_the_application(bot: EmbeddedBot) -> None:
    """A backend of the application lists and opens the devices."""
    own = FakeBackend()
    client = RTVIClient(transport=WebSocketTransport(bot.ws_url), connect_timeout=GUARD, audio_backend=own)
    assert [mic.label for mic in client.get_all_mics()] == ["mic_a", "mic_b"]
    with client:
        assert own.open == ["fake/mic_a", "fake/speaker_a"]
    assert own.open == []


# -- devices that are plugged in and out ------------------------------------------------------------------------------


def test_hot_plug(client_of: Callable[..., RTVIClient]) -> None:
    """Devices are not listed before there is a listener; then each changed list is reported, and only that."""
    with watched() as watches, client_of() as client:
        with client.events():  # who takes everything means nothing in particular
            look_for_devices(client)
            assert watches == []
        with client.events("available_mics_updated", "available_speakers_updated", timeout=GUARD) as events:
            until(lambda: len(watches) == 1)
            one, two, out = info("one", "audioinput"), info("two", "audioinput"), info("out", "audiooutput")
            watches[0].on_change([one, out])
            assert {next(events).type.snake for _ in range(2)} == {
                "available_mics_updated",
                "available_speakers_updated",
            }
            watches[0].on_change([one, two, out])
            assert next(events).data == [one, two]
        with client.events("available_cams_updated", timeout=GUARD) as events:
            until(lambda: len(watches) == 2)
            watches[1].on_change([info("cam", "videoinput")])
            assert [camera.label for camera in next(events).data] == ["cam"]
    assert all(watch.closed for watch in watches)


# -- from several threads at once -------------------------------------------------------------------------------------


def test_switching_on_many_threads(client_of: Callable[..., RTVIClient], backend: FakeBackend) -> None:
    """After switches from many threads, one microphone and one speaker are open, and the session lives."""
    with client_of() as client:

        def switch(number: int) -> None:
            for turn in range(8):
                client.update_mic(f"fake/mic_{'ab'[(number + turn) % 2]}")
                client.update_speaker(f"fake/speaker_{'ab'[(number + turn) % 2]}")
                client.enable_mic(bool((number + turn) % 3))

        switching = [InThread(partial(switch, number)) for number in range(4)]
        for each in switching:
            each.get()
        client.enable_mic(True)
        until(lambda: sorted(each[5] for each in backend.open) == ["m", "s"])
        assert client.send_client_request("ping", 1) == 1


# -- at the same time -------------------------------------------------------------------------------------------------


def test_speech_goes_on_while_the_speaker_is_switched(
    client_of: Callable[..., RTVIClient], bot: EmbeddedBot, backend: FakeBackend
) -> None:
    """Audio that arrives during the switch follows the audio that waited, and an interruption clears both."""
    with client_of(enable_mic=False) as client:
        session = bot.wait_for_session()
        say(session, struct.pack("<h", 1) * 240_000)
        until(lambda: client.stats().audio_received > 9.99)
        written = threading.Event()

        def slowly(go_on: Callable[[], object], _: object) -> None:
            if not written.is_set() and threading.current_thread().name != "MainThread":
                written.set()
                threading.Event().wait(0.1)
            go_on()

        with at("a speaker gets audio", slowly):
            switching = InThread(lambda: client.update_speaker("fake/speaker_b"))
            assert written.wait(GUARD)
            interrupt_and_play(client, struct.pack("<h", 2) * 24_000, 24_000)
            switching.get()
            until(lambda: struct.pack("<h", 2) * 9600 in backend.heard.get("fake/speaker_b", b""))
            until(lambda: backend.heard["fake/speaker_b"].endswith(bytes(19200)))
        assert struct.pack("<h", 1) * 4800 not in backend.heard["fake/speaker_b"]


def test_neither_can_be_had(client_of: Callable[..., RTVIClient], backend: FakeBackend) -> None:
    """The new microphone fails, and so does the old one that had made way: that is told, and the old one comes back."""
    backend.exclusive = True
    with client_of() as client, client.events("device_error", timeout=GUARD) as events:
        open_input = backend.open_input

        def once_more(*args: Any, **options: Any) -> Any:
            backend.open_input = broken  # type: ignore[method-assign]
            return open_input(*args, **options)

        def broken(*args: Any, **options: Any) -> Any:
            raise DeviceError("Gone", devices=("mic",), type="unknown")

        backend.open_input = once_more  # type: ignore[method-assign]
        with pytest.raises(DeviceError, match="Gone"):
            client.update_mic("fake/mic_b")
        assert next(events).data.devices == ("mic",)
        mic = client.media_state.mic
        assert mic.state == "error"
        backend.open_input = open_input  # type: ignore[method-assign]
        until(lambda: client.media_state.mic.state == "granted")
        assert backend.open[-1] == "fake/mic_a"
        client.update_mic("fake/mic_b")
        assert client.media_state.mic.state == "granted"


@pytest.mark.parametrize("at_first", ["a device", "a source"])
def test_a_microphone_that_hangs(
    client_of: Callable[..., RTVIClient], backend: FakeBackend, monkeypatch: pytest.MonkeyPatch, at_first: str
) -> None:
    """A microphone that hangs is reported, even as the session's first device, and its level falls to 0."""
    go_on, read = threading.Event(), FakeInput.read
    levels: list[AudioLevel] = []
    client = client_of(mic=SilenceSource() if at_first == "a source" else None, speaker=NullSink())
    client.on("local_audio_level", levels.append)
    with client, client.events("device_error", timeout=GUARD) as events:
        threading.Event().wait(0.4)  # in which no list of devices was requested
        client.update_mic("fake/mic_b")
        until(lambda: bool(levels) and levels[-1].level > 0)
        monkeypatch.setattr(FakeInput, "read", lambda stream: (go_on.wait(GUARD), read(stream))[1])
        assert "does not answer" in str(next(events).data)
        until(lambda: levels[-1].level == 0.0)
        assert client.media_state.mic.state == "error"
        go_on.set()
        until(lambda: client.media_state.mic.state == "granted")


def test_back_to_the_default_while_muted(client_of: Callable[..., RTVIClient], backend: FakeBackend) -> None:
    """Which one that is, is known once it is opened."""
    with client_of(mic="fake/mic_b") as client:
        client.enable_mic(False)
        client.update_mic(None)
        assert client.selected_mic is None
        assert client.tracks().local.audio is not None
        client.enable_mic(True)
        until(lambda: client.selected_mic == backend.there[0])


def test_a_transport_that_fails_to_send(bot: EmbeddedBot, backend: FakeBackend, caplog: Any) -> None:
    """A transport's error in send_audio() is logged once; the microphone's track goes on."""

    class Broken(WebSocketTransport):
        def send_audio(self, pcm: bytes, sample_rate_hz: int) -> None:
            raise ZeroDivisionError("mine")

    with RTVIClient(transport=Broken(bot.ws_url), speaker=NullSink(), connect_timeout=GUARD) as client:
        until(lambda: any("Sending audio failed" in record.getMessage() for record in caplog.records))
        track = client.tracks().local.audio
        assert track is not None
        frames = track.frames()
        assert next(frames).pcm[:2] == b"\xe8\x03"
    assert len([record for record in caplog.records if record.exc_info]) == 1


# -- small things -----------------------------------------------------------------------------------------------------


def test_a_source_in_place_of_a_device_that_failed(client_of: Callable[..., RTVIClient], backend: FakeBackend) -> None:
    """The source repairs the media state, and the track's label names the source."""
    with client_of() as client:
        track = client.tracks().local.audio
        assert track is not None
        assert track.label == "default"
        client.update_mic("fake/mic_b")
        assert track.label == "fake/mic_b"
        backend.broken["fake/mic_b"] = DeviceError("Unplugged", devices=("mic",), type="unknown")
        until(lambda: client.media_state.mic.state == "error")
        client.update_mic(SilenceSource())
        assert client.media_state.mic.state == "granted"
        assert track.label == "SilenceSource"
