"""A user's program in full use of the interface. It is checked by mypy and not executed."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx

from rtvi_sync import (
    AbortController,
    AbortSignal,
    APIRequest,
    BotAlreadyStartedError,
    BotError,
    BotLLMTextData,
    BotReadyData,
    ClientStats,
    CloseInfo,
    ConnectError,
    ConnectionTimeoutError,
    ConnectTimeout,
    DeviceError,
    DisconnectedError,
    Endpoints,
    EvalTransport,
    Event,
    EventStream,
    Expect,
    ExpectationError,
    ForkedProcessError,
    HandlerError,
    InvalidTransportParamsError,
    MemoryTransport,
    MissingExtraError,
    PendingTurn,
    ReconnectPolicy,
    Recording,
    RecordingSession,
    ReportedFunctionCall,
    RequestRejectedError,
    RequestTimeoutError,
    RTVIClient,
    RTVIClientConfigOption,
    RTVIClientOptions,
    RTVIClientParams,
    RTVIError,
    RTVIEvent,
    RTVIEventCallbacks,
    RTVIMessage,
    ScenarioFileError,
    SessionError,
    SmallWebRTCTransport,
    StartBotError,
    TelephonyTransport,
    TimelineEntry,
    TranscriptData,
    Transport,
    TransportOptions,
    TransportStartError,
    TransportState,
    TransportStats,
    Turn,
    TurnAudio,
    TurnTimings,
    UsageError,
    WebSocketTransport,
    WouldDeadlockError,
    __version__,
    connect,
    is_transient,
    signals,
)
from rtvi_sync.media import (
    AudioDroppedData,
    AudioFrame,
    AudioLevel,
    AudioSink,
    AudioSource,
    AudioTrack,
    BytesSink,
    BytesSource,
    CallbackSink,
    CallbackSource,
    CameraSource,
    DeviceStatus,
    FileVideoSource,
    MediaDeviceInfo,
    MediaPort,
    MediaState,
    NoisySource,
    NullSink,
    Participant,
    ParticipantTracks,
    PushSource,
    ScreenSource,
    SilenceSource,
    ToneSource,
    Track,
    TrackData,
    TrackFrames,
    Tracks,
    VideoFrame,
    VideoSource,
    VideoTrack,
    WavSink,
    WavSource,
)
from rtvi_sync.testing import EmbeddedBot, Mismatch, ReplayBot


def show(*values: object) -> None:
    """Stand for a program's use of values."""


def construction() -> RTVIClient:
    """Return every option, in all the ways in which options can be given."""

    def handler(params: RTVIClientParams, timeout: ConnectTimeout, abort: AbortController) -> dict[str, str]:
        remaining: float | None = timeout.remaining()
        signal: AbortSignal = abort.signal
        if (remaining is not None and remaining < 1) or signal.aborted:
            abort.abort()
        signal.on_abort(timeout.clear)
        signal.raise_if_aborted()
        signal.wait(0.1)
        timeout.clear()
        return {"ws_url": params.construct_url("connect")}

    RTVIClient()
    RTVIClient({"enableMic": True, "params": {"baseUrl": "https://api.example"}})
    RTVIClient(RTVIClientOptions(transport=MemoryTransport(), timeout=timedelta(seconds=3)))
    with httpx.Client() as http_client:
        RTVIClient(http_client=http_client, proxy=False, ssl_context=None)
    RTVIClient(timeout=10_000, events="manual", cam=None, enable_camera=False)
    RTVIClient(reconnect=ReconnectPolicy(max_attempts=3, retry_on=lambda error: is_transient(error)))
    RTVIClient(mic=Path("question.wav"), speaker=Path("answer.wav"), cam=False)
    RTVIClient(mic=lambda frames: bytes(2 * frames), speaker=lambda pcm, rate: show(pcm, rate))
    RTVIClient(text_only=True, mic=False, speaker=False)
    RTVIClient(mic=True)  # type: ignore[call-overload]
    RTVIClient(events="later")  # type: ignore[call-overload]
    RTVIClient(timeout="10")  # type: ignore[call-overload]
    RTVIClient(mike=True)  # type: ignore[call-overload]
    return RTVIClient(
        transport=WebSocketTransport(token="secret", headers={"X-Mine": "1"}, token_in="header"),
        params=RTVIClientParams(
            base_url="https://api.example/v1",
            endpoints=Endpoints(connect="start", action=None),
            request_data={"user": "ada"},
            headers={"Authorization": "Bearer secret"},
            config=[RTVIClientConfigOption("llm")],
            services={"llm": "together"},
        ),
        callbacks=RTVIEventCallbacks(on_bot_ready=show),
        connect_timeout=timedelta(seconds=10),
        request_timeout=None,
        enable_mic=True,
        enable_cam=False,
        custom_connect_handler=handler,
        mic=WavSource("question.wav"),
        speaker=WavSink("answer.wav"),
        text_only=False,
        echo_cancellation=True,
        audio_backend="sounddevice",
        max_queued_events=1000,
        max_queued_bytes=1_000_000,
        max_queued_audio_bytes=1_000_000,
        track_turns=True,
        max_turn_audio=60,
    )


def connecting(client: RTVIClient) -> None:
    """Start and end a session in all ways; handle its errors."""
    ready: BotReadyData = client.connect()
    show(ready.version, ready.about)
    client.connect({"ws_url": "ws://localhost:7860"})
    bundle: Any = client.start_bot("https://api.example/start", {"a": 1}, {"X-A": "1"}, timeout=5.0)
    client.connect(bundle)
    client.start_bot(APIRequest(endpoint="https://api.example/start", headers={"X-A": "1"}))
    client.start_bot_and_connect({"endpoint": "https://api.example/start"})
    made: RTVIClient = RTVIClient.for_url("https://api.example", enable_mic=False)
    made.connect()
    with connect("wss://bot.example", transport="eval", token="abc", headers={"X-A": "1"}, text_only=True) as other:
        used = other.transport
        if isinstance(used, EvalTransport):
            used.configure("full", vad_user_speaking=True, llm_markers=False)
            used.seed_context([{"role": "user", "content": "My name is Ada."}])
            used.set_user_image("me.jpg")
            used.cancel()
    call = TelephonyTransport(
        "telnyx",
        "wss://bot.example/ws",
        from_number="+15550100",
        parameters={"plan": "gold"},
        codec="PCMA",
        transcribe=lambda pcm, rate: f"{len(pcm) / rate} s",
    )
    show(call.call_id, call.stream_id)
    call.send_dtmf("12#")
    webrtc = SmallWebRTCTransport(
        "https://bot.example/api/offer",
        headers={"X-A": "1"},
        ice_servers=["stun:host:3478", {"urls": ["turn:host?transport=tcp"], "username": "u", "credential": "c"}],
        ice_timeout=5,
        audio_bitrate=24_000,
        cam_bitrate=800_000,
        cam_size=(640, 360),
        screen_bitrate=None,
        screen_size=(1280, 720),
    )
    webrtc.max_message_size = 65536
    with client as same:
        state: TransportState = same.state
        show(state.value, same.connected, same.version, same.transport_expiry, __version__)
        stats: ClientStats = same.stats()
        carried: TransportStats = stats
        round_trip: float | None = carried.round_trip
        transport: Transport | None = same.transport
        show(stats.messages_sent, round_trip, transport)
    info: CloseInfo = client.wait()
    show(info, client.wait(timeout=5))
    client.wait_until_ready(timeout=5)
    client.params = RTVIClientParams(base_url="https://api.example")
    client.params.request_data = {"n": 2}
    url: str = client.construct_url("action")
    show(url)


def errors_of_connecting(client: RTVIClient) -> None:
    """Show the attributes of errors."""
    try:
        client.connect()
    except ConnectionTimeoutError as error:
        phase: str = error.phase
        elapsed: float = error.elapsed
        show(phase, elapsed)
    except StartBotError as error:
        status: int | None = error.status
        show(status)
    except ConnectError as error:
        show(error.status)


def errors_of_sessions(client: RTVIClient) -> None:
    """Show the attributes of errors of sessions and devices."""
    try:
        client.connect()
    except DisconnectedError as error:
        code: int | None = error.code
        reason: str = error.reason
        initiator: str = error.initiator
        turn: Turn | None = error.turn
        show(code, reason, initiator, turn and turn.audio)
    except BotError as error:
        fatal: bool = error.fatal
        show(fatal)
    except MissingExtraError as error:
        extra: str = error.extra
        show(extra)
    except ScenarioFileError as error:
        show(error.path, error.line, error.column, error.text)
    except (SessionError, UsageError) as error:
        show(error.status)
    except DeviceError as error:
        devices: tuple[str, ...] = error.devices
        kind: str = error.type
        show(devices, kind, error.details)
    except (BotAlreadyStartedError, TransportStartError, InvalidTransportParamsError, ForkedProcessError):
        raise
    except (RTVIError, TimeoutError, ConnectionError):
        raise
    finally:
        client.disconnect()
        client.close()


def messages(client: RTVIClient) -> None:
    """Say everything that can be said."""
    client.send_message(RTVIMessage("my-type", {"a": 1}))
    client.send_client_message("note", {"a": [1, None]})
    answer: Any = client.send_client_request("question", timeout=None)
    client.send_client_request("question", 5, timeout=2.5)
    client.send_client_request("question", timeout="soon")  # type: ignore[arg-type]
    client.send_text("hello", run_immediately=False, audio_response=False)
    client.disconnect_bot()
    show(answer)
    try:
        client.send_client_request("question")
    except RequestRejectedError as error:
        show(error.response)


def events(client: RTVIClient) -> None:
    """Take events in all ways."""

    @client.on("bot-llm-text")
    def on_text(data: BotLLMTextData) -> None:
        show(data.text)

    @client.once(RTVIEvent.BOT_READY)
    def on_ready() -> None:
        show("ready")

    def on_transcript(data: TranscriptData) -> None:
        show(data.text, data.final)

    same = client.on("user_transcript", on_transcript)
    client.off("user_transcript", same)
    client.off(RTVIEvent.BOT_LLM_TEXT)
    on_ready()

    def receiver(sender: RTVIClient, event: Event) -> None:
        if isinstance(event.data, CloseInfo):
            show(event.data.code, event.data.error)
        if isinstance(event.data, HandlerError):
            show(event.data.error, event.data.handler, event.data.event)
        message: RTVIMessage | None = event.message
        show(sender, event.type.snake, event.received_at, message)

    signals.disconnected.connect(receiver, sender=client)
    signals.bot_ready.connect(receiver, weak=False)
    signals.disconnected.disconnect(receiver)

    stream: EventStream
    with client.events("bot-output", RTVIEvent.BOT_STOPPED_SPEAKING, timeout=30) as stream:
        for event in stream:
            if event.type is RTVIEvent.BOT_STOPPED_SPEAKING:
                break
    try:
        found: Event = client.wait_for("server_message", where=lambda event: event.data == 1, timeout=5)
    except (RequestTimeoutError, WouldDeadlockError):
        return
    count: int = client.process_events(timeout=None) + client.process_events()
    show(found.data, count)


def conversations(client: RTVIClient) -> None:
    """Ask, and judge the answers."""
    recording: RecordingSession
    with client.record(
        "talk.jsonl", audio=True, report=True, redact=lambda row: None, overwrite=True, max_bytes=10
    ) as recording:
        recording.mark("here")
        show(recording.path, recording.paths, recording.lost)
    read: Recording = Recording.load(recording.path)
    heard: TurnAudio = read.audio(read.turns()[0], side="user")
    with ReplayBot("talk", pace="fast", match="type", strict=True, timeout=1, port=0) as replay:
        mismatches: list[Mismatch] = replay.mismatches
        show(replay.base_url, replay.ws_url, replay.done, mismatches)
    show(read.head, read.rows, read.seconds, read.is_cut, read.rtvi, read.bot, Recording.load_all("."), heard)
    second: PendingTurn = client.barge_in(
        "Stop!", after="bot-started-speaking", delay=0.5, where=lambda e: e.data is None
    )
    first: Turn = client.ask("Tell me a story", 30, audio_response=True, settle=1)
    spoken: Turn = client.ask(Path("question.wav")).expect(contains="sunny", calls={"get_weather": {"city": "Oslo"}})
    client.ask(b"ab", None, sample_rate_hz=16_000).expect(matches="^It", absent_calls=["get_time"], voice_to_voice=1)
    greeting = client.listen(timeout=None, settle=1)
    if not second.done() and not second.cancel():
        show(second.result(5).bot_text)
    for turn in (first, spoken, greeting, *client.turns()):
        show(turn.number, turn.session, turn.initiator, turn.modality, turn.message_id, turn.status, turn.assumed)
        show(turn.user_text, turn.bot_text, turn.spoken_text, turn.spoken_exact, turn.errors, turn.metrics, turn.bot)
        audio: TurnAudio = turn.audio
        if audio and not turn.user_audio.truncated:
            audio.save("turn.wav")
            audio.play()
            show(audio.pcm, audio.sample_rate_hz, audio.seconds, audio.wav, audio.to_numpy())
        call: ReportedFunctionCall
        for call in turn.function_calls:
            show(call.function_name, call.tool_call_id, call.arguments, call.result, call.cancelled, call.stopped)
        entry: TimelineEntry
        for entry in turn.timeline:
            show(entry.at, entry.who, entry.kind, entry.text)
        timings: TurnTimings = turn.timings
        show(timings.user_started, timings.acknowledged, timings.llm_started, timings.ended)
        show(turn.voice_to_voice, turn.time_to_first_audio, turn.time_to_first_token, turn.turn_detection)
        show(turn.transcription, turn.duration, turn.is_open, turn.interrupted)
    expect: Expect
    try:
        with client.expect(within=5) as expect:
            expect.event("bot-llm-started", within=1, check_from="start")
            said: str = expect.text("sunny", matches="It.*")
            expect.call("get_weather", city="Oslo")
            expect.turn(first_audio=1)
            expect.absent("error", for_=1)
            expect.no_more(for_=1)
            show(said)
    except ExpectationError as error:
        checked: Turn | None = error.turn
        show(error.kind, error.expected, error.got, checked, error.timeline)


def media(client: RTVIClient) -> None:
    """Use sources, sinks and tracks."""
    sources: list[AudioSource] = [
        WavSource("a.wav"),
        BytesSource(b"", 16000),
        SilenceSource(),
        ToneSource(440, duration=1.0, sample_rate_hz=16000),
        CallbackSource(lambda frames: bytes(2 * frames)),
        PushSource(8000, max_seconds=10),
        NoisySource(WavSource("a.wav"), snr_db=20, loss=0.05, jitter=0.1, seed=7),
    ]
    sinks: list[AudioSink] = [
        WavSink("b.wav"),
        BytesSink(),
        NullSink(),
        CallbackSink(lambda pcm, rate: None, on_drop=lambda: None),
    ]
    show(sources, sinks)
    tracks: Tracks = client.tracks()
    bot: ParticipantTracks = tracks.bot
    track: AudioTrack | None = bot.audio
    if track is not None:
        show(track.id, track.kind, track.label, track.enabled, track.ready_state)
        frames: TrackFrames[AudioFrame] = track.frames()
        frame: AudioFrame
        for frame in frames:
            show(frame.pcm, frame.sample_rate_hz, frame.timestamp, frames.dropped, frame.to_numpy().shape)
    video: VideoTrack | None = tracks.local.video
    if video is not None:
        images: TrackFrames[VideoFrame] = video.frames(buffer=1)
        image: VideoFrame
        for image in images:
            show(image.image, image.width, image.height, image.format, image.timestamp, image.to_numpy().shape)
    cameras: list[VideoSource] = [
        Camera(),
        CameraSource(width=1280, height=720, fps=15),
        FileVideoSource("clip.mp4", loop=False),
        ScreenSource(monitor=1, fps=5),
    ]
    show(cameras)


def devices(client: RTVIClient) -> None:
    """Use the devices of the machine."""
    client.init_devices()
    mics: list[MediaDeviceInfo] = client.get_all_mics()
    for device in mics + client.get_all_speakers() + client.get_all_cams():
        show(device.device_id, device.kind, device.label, device.group_id)
    selected: MediaDeviceInfo | None = client.selected_mic or client.selected_speaker or client.selected_cam
    if selected is not None:
        client.update_mic(selected.device_id)
    client.update_mic(WavSource("a.wav"))
    client.update_mic(WavSink("a.wav"))  # type: ignore[arg-type]
    client.update_mic(Path("a.wav"))
    client.update_mic(False)
    client.update_speaker(WavSink("a.wav"))
    client.update_speaker(lambda pcm, rate: None)
    client.update_cam(Camera())
    for update in (client.update_mic, client.update_speaker, client.update_cam):
        update(None)

    client.enable_mic(not client.is_mic_enabled)
    client.enable_cam(client.is_cam_enabled)
    client.enable_speaker(not client.is_speaker_enabled)
    client.enable_screen_share(not client.is_sharing_screen)
    client.speaker_volume = client.speaker_volume / 2
    client.speaker_volume = "loud"  # type: ignore[assignment]

    state: MediaState = client.media_state
    status: DeviceStatus
    for status in (state.mic, state.cam, state.speaker):
        error: DeviceError | None = status.error
        reason: str | None = status.reason
        show(status.state == "granted", error, reason)
        show(status.state == "broken")  # type: ignore[comparison-overlap]

    @client.on("local_audio_level")
    def on_level(level: AudioLevel) -> None:
        show(level.level, level.dbfs)

    @client.on(RTVIEvent.TRACK_STARTED)
    def on_track(started: TrackData) -> None:
        participant: Participant = started.participant
        show(participant.id, participant.name, participant.local)
        track: Track[Any] = started.track
        if isinstance(track, AudioTrack):
            show(track.frames(buffer=1.0))

    @client.on(RTVIEvent.AUDIO_DROPPED)
    def on_dropped(dropped: AudioDroppedData) -> None:
        sink: AudioSink | str | None = dropped.sink
        show(dropped.seconds + 1.0, sink)

    client.on("available_mics_updated", show)
    on_level(AudioLevel(level=0.1, dbfs=-20.0))
    on_track(TrackData(track=VideoTrack(label="x"), participant=Participant(id="bot", name="Bot", local=False)))
    stats: ClientStats = client.stats()
    show(stats.mic_underruns, stats.mic_dropped, stats.speaker_underruns, stats.speaker_dropped_seconds)


class MyTransport(Transport):
    """A transport of the user's own."""

    name = "mine"
    supports_audio = True
    supports_video = True

    def connect(self, auth_bundle: Any, abort: AbortSignal) -> None:
        limit: float | None = abort.remaining()
        show(auth_bundle, limit)

    def disconnect(self) -> None:
        options: TransportOptions = self.options
        options.on_closed(CloseInfo(initiator="network"))

    def send_message(self, message: RTVIMessage) -> None:
        self.on_message(self.serialize(message))
        self.on_message({"label": "rtvi-ai", "type": "x"})

    def send_audio(self, pcm: bytes, sample_rate_hz: int) -> None:
        media: MediaPort = self.options.media
        media.receive_audio(pcm, sample_rate_hz, 1)

    def send_video(self, frame: VideoFrame) -> None:
        self.options.media.receive_video(frame)


class Callbacks(RTVIEventCallbacks):
    """Callbacks as methods."""

    def on_bot_ready(self, data: BotReadyData) -> None:
        """Show the bot's version when it is ready."""


class Camera:
    """A source of pictures of the user's own."""

    def read(self) -> VideoFrame | None:
        """Return one black pixel."""
        return VideoFrame(image=bytes(3), width=1, height=1, format="RGB", timestamp=0.0)

    def close(self) -> None:
        """Do nothing: there is nothing to close."""


class Source:
    """A source of the user's own."""

    sample_rate_hz = 16000

    def read(self, frames: int) -> bytes:
        """Return silence."""
        return bytes(2 * frames)

    def close(self) -> None:
        """Do nothing: there is nothing to close."""


class DerivedSource(AudioSource):
    """A source of the user's own that derives from the protocol."""

    def __init__(self) -> None:
        self.sample_rate_hz: int = 16000

    def read(self, frames: int) -> bytes:
        """Return silence."""
        return bytes(2 * frames)

    def close(self) -> None:
        """Do nothing: there is nothing to close."""


def main() -> None:
    """Run the parts together."""
    callbacks: Mapping[str, Any] = {"on_connected": lambda: None}
    with EmbeddedBot() as bot:
        RTVIClient(transport=MyTransport(), callbacks=callbacks, mic=Source())
        RTVIClient(transport=MyTransport(), mic=DerivedSource())
        RTVIClient(transport=WebSocketTransport(bot.ws_url), callbacks=Callbacks())
    for part in (connecting, messages, events, conversations, media, devices):
        part(construction())
