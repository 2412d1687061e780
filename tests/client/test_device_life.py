"""Devices before, between and after sessions: when they are opened and closed, and by how many threads."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from rtvi_sync import DeviceError, RTVIClient, WebSocketTransport
from rtvi_sync.errors import RTVIError
from rtvi_sync.media import (
    AudioLevel,
    MediaDeviceInfo,
    NullSink,
    SilenceSource,
    TrackData,
)
from rtvi_sync.testing import EmbeddedBot
from tests.support.clients import manager_of
from tests.support.fake_devices import FakeBackend, FakeInput, heard_by, watched
from tests.support.garbage import collect
from tests.support.moments import at
from tests.support.slowness import GUARD
from tests.support.threads import InThread, thread_names
from tests.support.waiting import until


def test_devices_before_a_session(client_of: Callable[..., RTVIClient], bot: EmbeddedBot, backend: FakeBackend) -> None:
    """`init_devices()` opens and reports the devices, and their levels can be read; `connect()` reuses the open
    ones.
    """
    client = client_of()
    told: list[tuple[str, Any]] = []
    for name in ("mic_updated", "speaker_updated", "media_state_updated", "track_started"):
        client.on(name, lambda data, name=name: told.append((name, data)))
    levels: list[AudioLevel] = []
    client.on("local_audio_level", levels.append)
    assert client.media_state.mic.state == "uninitialized"
    selected = client.selected_mic
    assert selected is None
    client.init_devices()
    assert (client.media_state.mic.state, client.media_state.speaker.state) == ("granted", "granted")
    assert (client.selected_mic, client.selected_speaker) == (backend.there[0], backend.there[2])
    until(lambda: sum(each.level > 0 for each in levels) >= 3)  # a busy machine has pauses, which are silent
    level = max(levels, key=lambda each: each.level)
    assert level.level == pytest.approx(1000 / 32768)
    assert level.dbfs == pytest.approx(-30.3, abs=0.1)
    track = client.tracks().local.audio
    assert track is not None
    assert next(track.frames()).pcm[:2] == b"\xe8\x03"
    with client:
        session = bot.wait_for_session()
        until(lambda: 1000 in heard_by(session))
        assert client.tracks().local.audio is track
    assert backend.opened == ["fake/mic_a", "fake/speaker_a"]
    assert [data.label for name, data in told if name.endswith("r_updated") or name == "mic_updated"] == [
        "mic_a",
        "speaker_a",
    ]
    states = [data.mic.state for name, data in told if name == "media_state_updated"]
    assert states[:2] == ["initializing", "granted"]
    started = [data for name, data in told if name == "track_started"]
    assert isinstance(started[0], TrackData)
    assert (started[0].track, started[0].participant.local) == (track, True)


def test_nothing_is_left_without_a_session(client_of: Callable[..., RTVIClient], backend: FakeBackend) -> None:
    """`disconnect()` closes the devices of `init_devices()`, which can open them again; `close()` is final."""
    client = client_of()
    for _ in range(3):
        client.init_devices()
        client.init_devices()
        assert len(backend.open) == 2
        client.disconnect()
        assert backend.open == []
        assert client.tracks().local.audio is None
    client.init_devices()
    client.close()
    assert backend.open == []
    with pytest.raises(RTVIError, match="closed for good"):
        client.init_devices()


def test_a_client_that_is_dropped(backend: FakeBackend) -> None:
    """The devices of a dropped client are closed when it is collected, though a handler refers to it."""
    client = RTVIClient()
    client.on("local_audio_level", lambda level, client=client: None)
    client.init_devices()
    gone = weakref.ref(client)
    del client
    collect()
    assert gone() is None
    until(lambda: backend.open == [] and not thread_names())


def test_events_between_sessions(client_of: Callable[..., RTVIClient], backend: FakeBackend) -> None:
    """A choice while no device is open is not reported, and queues no work."""
    client = client_of()
    heard: list[MediaDeviceInfo] = []
    client.on("mic_updated", heard.append)
    client.init_devices()
    until(lambda: heard == [backend.there[0]])
    client.disconnect()
    client.update_mic("fake/mic_b")
    assert client.selected_mic == backend.there[1]
    assert heard == [backend.there[0]]
    assert client.stats().events_queued == 0


def test_choosing_before_a_session(
    client_of: Callable[..., RTVIClient], bot: EmbeddedBot, backend: FakeBackend
) -> None:
    """A chosen device is looked up at once, and opened when it is needed."""
    client = client_of()
    with pytest.raises(DeviceError, match=r"'nowhere'.*'fake/mic_a'") as caught:
        client.update_mic("nowhere")
    assert caught.value.type == "not-found"
    client.update_mic("fake/mic_b")
    client.update_speaker("fake/speaker_b")
    assert backend.opened == []
    assert client.selected_mic == backend.there[1]
    with client:
        session = bot.wait_for_session()
        until(lambda: 2000 in heard_by(session))
    assert backend.opened == ["fake/mic_b", "fake/speaker_b"]
    client.update_mic(SilenceSource())
    assert client.selected_mic is None


def test_devices_that_are_opened_twice_at_once(
    client_of: Callable[..., RTVIClient], bot: EmbeddedBot, backend: FakeBackend
) -> None:
    """`connect()` and `init_devices()` wait for the call that is opening devices, and use its devices."""
    opening, go_on = slow_speaker(backend)
    client = client_of()
    under_way = [InThread(client.init_devices)]
    assert opening.wait(GUARD)
    under_way += [InThread(client.init_devices), InThread(client.connect)]
    threading.Event().wait(0.05)  # both calls may reach the devices in this time; no result depends on it
    go_on.set()
    for each in under_way:
        each.get()
    assert client.state == "ready"
    assert sorted(backend.opened) == ["fake/mic_a", "fake/speaker_a"]


def test_devices_that_are_opened_while_a_session_begins(bot: EmbeddedBot, backend: FakeBackend) -> None:
    """`init_devices()` opens them for the session, whose end closes them, and can be called again after it."""

    class Transport(WebSocketTransport):
        def initialize(self, options: Any, on_message: Any) -> None:
            super().initialize(options, on_message)
            client.init_devices()

    client = RTVIClient(transport=Transport(bot.ws_url), connect_timeout=GUARD)
    heard: list[TrackData] = []
    client.on("track_stopped", heard.append)
    client.connect()
    bot.wait_for_session().close()
    client.wait(GUARD)
    assert backend.open == []
    assert [data.participant.id for data in heard] == ["local"]
    client.init_devices()
    assert sorted(backend.open) == ["fake/mic_a", "fake/speaker_a"]
    client.disconnect()
    assert backend.open == []


def test_a_device_that_failed_is_not_chosen_any_more(
    client_of: Callable[..., RTVIClient], backend: FakeBackend
) -> None:
    """`media_state` no longer tells its error, in a session and between two."""
    client = client_of(mic="fake/nowhere")
    with pytest.raises(DeviceError):
        client.connect()
    told = [client.media_state.mic.state]
    client.update_mic(False)
    told.append(client.media_state.mic.state)
    with client:
        told.append(client.media_state.mic.state)
    assert told == ["error", "uninitialized", "uninitialized"]


def test_what_is_switched_while_a_session_begins(client_of: Callable[..., RTVIClient], backend: FakeBackend) -> None:
    """A microphone that is unmuted, and another that is chosen, while the speaker is being opened: both count."""
    opening, go_on = slow_speaker(backend)
    client = client_of(enable_mic=False)
    connecting = InThread(client.connect)
    assert opening.wait(GUARD)
    switching = [InThread(lambda: client.enable_mic(True)), InThread(lambda: client.update_mic("fake/mic_b"))]
    until(lambda: client.is_mic_enabled)
    go_on.set()
    for each in (connecting, *switching):
        each.get()
    until(lambda: [each for each in backend.open if "mic" in each] == ["fake/mic_b"])
    assert client.selected_mic == backend.there[1]
    assert client.media_state.mic.state == "granted"


def test_a_client_is_closed_while_its_devices_are_opened(
    client_of: Callable[..., RTVIClient], backend: FakeBackend
) -> None:
    """Nothing stays open, and the call says why."""
    entered, go_on = threading.Event(), threading.Event()

    def late(proceed: Callable[[], object], _: object) -> object:
        entered.set()
        assert go_on.wait(GUARD)
        return proceed()

    client = client_of()
    with at("devices take their threads", late):
        opening = InThread(client.init_devices)
        assert entered.wait(GUARD)
    client.close()
    go_on.set()
    with pytest.raises(RTVIError, match="closed for good"):
        opening.get()
    assert backend.open == []


def test_devices_that_cannot_be_had_leave_nothing(client_of: Callable[..., RTVIClient], backend: FakeBackend) -> None:
    """Devices that cannot be opened leave nothing behind, not even a thread."""
    before = set(thread_names())
    client = client_of(speaker="nowhere")
    with pytest.raises(DeviceError, match="nowhere"):
        client.init_devices()
    assert backend.open == []
    until(lambda: set(thread_names()) == before)


def test_a_device_that_hangs_before_a_session(
    client_of: Callable[..., RTVIClient], backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A device that hangs before a session is reported."""
    go_on, read = threading.Event(), FakeInput.read
    client = client_of(speaker=NullSink())
    with client.events("device_error", timeout=GUARD) as events:
        client.init_devices()
        monkeypatch.setattr(FakeInput, "read", lambda stream: (go_on.wait(GUARD), read(stream))[1])
        assert next(events).data.devices == ("mic",)
    go_on.set()


def test_who_lacks_a_device_hears_of_new_ones(client_of: Callable[..., RTVIClient], backend: FakeBackend) -> None:
    """New devices are watched for as soon as an application listens, even if there is none yet."""
    backend.there.clear()
    with watched() as watches, client_of() as client:
        threading.Event().wait(0.4)
        assert watches == []  # without a listener
        with client.events("available_mics_updated"):
            until(lambda: [watch.list_devices for watch in watches] == [backend.devices])


@pytest.mark.parametrize("call", ["connect", "init_devices", "enable_mic"])
def test_nothing_is_opened_after_the_end(client_of: Callable[..., RTVIClient], backend: FakeBackend, call: str) -> None:
    """A call that is about to open a device when the session ends leaves the microphone closed."""
    entered, go_on = threading.Event(), threading.Event()

    def late(proceed: Callable[[], object], _: object) -> None:
        entered.set()
        assert go_on.wait(GUARD)
        proceed()

    client = client_of(enable_mic=call == "connect", speaker=NullSink())
    if call != "connect":
        client.connect()
    calls: dict[str, Callable[[], object]] = {
        "connect": client.connect,
        "init_devices": client.init_devices,
        "enable_mic": lambda: client.enable_mic(True),
    }
    if call == "init_devices":
        manager_of(client).media.settings.mic = True
    with at("a device is opened" if call == "enable_mic" else "connect() opens the devices", late):
        opening = InThread(calls[call])
        assert entered.wait(GUARD)
    client.disconnect()
    go_on.set()
    with contextlib.suppress(RTVIError):
        opening.get()
    assert backend.open == []
    assert client.tracks().local.audio is None


def slow_speaker(backend: FakeBackend) -> tuple[threading.Event, threading.Event]:
    """Have a speaker open only when the second event is set; the first says that it is about to."""
    opening, go_on, open_output = threading.Event(), threading.Event(), backend.open_output

    def slowly(*args: Any, **options: Any) -> Any:
        opening.set()
        assert go_on.wait(GUARD)
        return open_output(*args, **options)

    backend.open_output = slowly  # type: ignore[method-assign]
    return opening, go_on
