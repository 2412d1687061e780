"""Values that sources, sinks, tracks, test tools, the blueprint, the notebook and the traces must refuse."""

from __future__ import annotations

import io
import math
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rtvi_sync import RTVIClient, WebSocketTransport
from rtvi_sync.cli import run_program
from rtvi_sync.django import RTVIVoice
from rtvi_sync.flask import RTVIBlueprint
from rtvi_sync.media import (
    AudioTrack,
    BytesSink,
    BytesSource,
    CallbackSink,
    CallbackSource,
    CameraSource,
    FileVideoSource,
    MediaDeviceInfo,
    NoisySource,
    PushSource,
    ScreenSource,
    SilenceSource,
    ToneSource,
    VideoFrame,
    VideoTrack,
    WavSink,
    WavSource,
)
from rtvi_sync.media.convert import (
    FrameSink,
    ResamplingSink,
    ResamplingSource,
    decode_alaw,
    decode_mulaw,
    encode_alaw,
    encode_mulaw,
    to_mono,
    to_stereo,
)
from rtvi_sync.notebook import Conversation
from rtvi_sync.otel import instrument
from rtvi_sync.testing import (
    EmbeddedBot,
    Fault,
    FaultProxy,
    MeasuredClient,
    ProviderAPI,
    ReplayBot,
    Reply,
    faults,
    run_many,
    scenarios,
    simulate,
    word_error_rate,
)
from tests.behaviour.validation.calls import (
    NOT_BOOL,
    NOT_BYTES,
    NOT_COUNT,
    NOT_EVENT,
    NOT_FUNCTION,
    NOT_INTEGER,
    NOT_MAPPING,
    NOT_NAME,
    NOT_NUMBER,
    NOT_PATH,
    NOT_RATE,
    NOT_SECONDS,
    NOT_STRING,
    NOT_STRINGS,
    NOT_WAIT,
    Call,
    call,
    construct,
)
from tests.support.targets import Targets

NOT_FRACTION = ("1", True, None, -0.1, 1.1, math.nan)
NOT_PORT = (*NOT_INTEGER, None, -1, 65536)
NOT_TEXTS = (5, {"a": "b"}, [5], ["text", None], b"text")
NOT_FAULT = (5, None, "reset", faults.Reset)
NOT_DIRECTION = (5, "client", ["to_client"])
NOT_SIZE = (*NOT_INTEGER, 0, -1)
JUDGE = scenarios.ChatJudge("http://127.0.0.1:9/v1", "m", timeout=5)
BLUEPRINT = RTVIBlueprint(lambda _: RTVIClient())
VOICE = RTVIVoice(lambda _: RTVIClient())


def _set_on_measurement(targets: Targets) -> Callable[..., None]:
    def set_to(on_measurement: Any) -> None:
        targets.measured().on_measurement = on_measurement

    return set_to


BOT = construct(
    EmbeddedBot,
    transcripts=NOT_TEXTS,
    replies=(5, {"(": "b"}, {5: "b"}, {"a": 5}, {"a": None}, [5], b"text", *NOT_FUNCTION[2:]),
    greeting=(5, ["Hello"], b"text"),
    faults=(5, None, "drop", ["drop"], [faults.Reset()], {"drop": 1}),
    on_request=(*NOT_MAPPING, None, {5: "value"}),
    handler=NOT_FUNCTION,
    echo=(*NOT_BOOL, None),
    audio_out_sample_rate_hz=NOT_RATE,
    ready=(*NOT_BOOL, None),
    version=(5, None, 2.2),
    metrics=(*NOT_BOOL, None),
    speech_threshold=("5", True, [5], None, math.nan, -1),
    hangover=(*NOT_WAIT, None),
    config=(5, None, "llm", [5], [{"options": []}]),
    config_types=(*NOT_MAPPING, None, {"llm": 5}, {"llm": {"model": 5}}),
    on_config=NOT_FUNCTION,
    actions=(*NOT_MAPPING, {5: print}, {"run": print}, {("llm", 5): print}, {"llm:run": 5}),
    action_stream=(*NOT_BOOL, None),
    headers=(*NOT_STRINGS, None),
    quirks=(*NOT_BOOL, None),
    host=NOT_NAME,
    port=NOT_PORT,
    ssl_context=(True, False, "cert.pem", ssl.SSLContext),
    provider_api=(5, "http://127.0.0.1:9", ProviderAPI),
)

TABLE: dict[str, Call] = {
    # sources
    "WavSource": construct(WavSource, {"path": "no_such_file.wav"}, path=(*NOT_PATH, None), sample_rate_hz=NOT_RATE),
    "BytesSource": construct(
        BytesSource,
        {"pcm": b"", "sample_rate_hz": 16_000},
        pcm=(*NOT_BYTES, b"odd"),
        sample_rate_hz=(*NOT_RATE, None),
    ),
    "WavSource.read": construct(SilenceSource().read, {"frames": 1}, frames=(*NOT_INTEGER, None, -1)),
    "WavSource.wait": construct(SilenceSource().wait, timeout=NOT_WAIT),
    "SilenceSource": construct(SilenceSource, sample_rate_hz=(*NOT_RATE, None)),
    "ToneSource": construct(
        ToneSource,
        frequency_hz=(*NOT_NUMBER, None, 0, 8000),
        duration=NOT_WAIT,
        sample_rate_hz=(*NOT_RATE, None),
        volume=NOT_FRACTION,
    ),
    "CallbackSource": construct(
        CallbackSource, {"fn": print}, fn=(*NOT_FUNCTION, None), sample_rate_hz=(*NOT_RATE, None)
    ),
    "PushSource": construct(PushSource, sample_rate_hz=(*NOT_RATE, None), max_seconds=(*NOT_SECONDS, None)),
    "PushSource.push": construct(PushSource().push, {"pcm": b""}, pcm=(*NOT_BYTES, b"odd"), timeout=NOT_WAIT),
    "PushSource.read": construct(PushSource().read, {"frames": 1}, frames=NOT_COUNT),
    "PushSource.wait": construct(PushSource().wait, timeout=NOT_WAIT),
    "CameraSource": construct(
        CameraSource,
        device_id=(*NOT_STRING, ""),
        width=NOT_COUNT,
        height=NOT_COUNT,
        fps=(*NOT_SECONDS, None),
        backend=(5, "opencv", object()),
    ),
    "FileVideoSource": construct(
        FileVideoSource,
        {"path": "no_such_file.mp4"},
        path=(*NOT_PATH, None),
        fps=NOT_SECONDS,
        loop=(*NOT_BOOL, None),
    ),
    "ScreenSource": construct(ScreenSource, monitor=(*NOT_INTEGER, None, -1), fps=(*NOT_SECONDS, None)),
    # sinks, tracks and objects made from them
    "WavSink": construct(WavSink, {"path": "no_such_folder/file.wav"}, path=(*NOT_PATH, None)),
    "BytesSink": construct(BytesSink, max_bytes=NOT_COUNT),
    "CallbackSink": construct(CallbackSink, {"fn": print}, fn=(*NOT_FUNCTION, None), on_drop=NOT_FUNCTION),
    "ResamplingSource": construct(
        ResamplingSource,
        {"source": SilenceSource(), "sample_rate_hz": 8_000},
        source=(5, None, "file.wav", print),
        sample_rate_hz=(*NOT_RATE, None),
    ),
    "ResamplingSource.read": call(
        lambda _: ResamplingSource(SilenceSource(), 8_000).read, {"frames": 1}, frames=NOT_COUNT
    ),
    "NoisySource": construct(
        NoisySource,
        {"source": SilenceSource()},
        source=(5, None, "file.wav", print),
        snr_db=(*NOT_NUMBER, -41, 101),
        loss=NOT_FRACTION,
        jitter=(*NOT_WAIT, None, 11),
        seed=(*NOT_INTEGER, None, -1),
    ),
    "NoisySource.read": call(lambda _: NoisySource(SilenceSource()).read, {"frames": 1}, frames=NOT_COUNT),
    "ResamplingSink": construct(
        ResamplingSink,
        {"sink": BytesSink(), "sample_rate_hz": 8_000},
        sink=(5, None, "file.wav", print, SilenceSource()),
        sample_rate_hz=(*NOT_RATE, None),
    ),
    "FrameSink": construct(
        FrameSink,
        {"frame_size": 160, "sample_rate_hz": 8_000},
        frame_size=NOT_COUNT,
        sample_rate_hz=(*NOT_RATE, None),
        delay_frames=(*NOT_INTEGER, None, -1),
        max_bytes=NOT_COUNT,
    ),
    "encode_mulaw": construct(encode_mulaw, {"pcm": b""}, pcm=(*NOT_BYTES, b"odd")),
    "encode_alaw": construct(encode_alaw, {"pcm": b""}, pcm=(*NOT_BYTES, b"odd")),
    "decode_mulaw": construct(decode_mulaw, {"data": b""}, data=NOT_BYTES),
    "decode_alaw": construct(decode_alaw, {"data": b""}, data=NOT_BYTES),
    "to_mono": construct(to_mono, {"pcm": b""}, pcm=NOT_BYTES, channels=NOT_COUNT),
    "to_stereo": construct(to_stereo, {"pcm": b""}, pcm=NOT_BYTES),
    "AudioTrack.frames": construct(AudioTrack(label="mic").frames, buffer=(*NOT_SECONDS, None)),
    "VideoTrack.frames": construct(VideoTrack(label="cam").frames, buffer=NOT_COUNT),
    "VideoFrame": construct(
        VideoFrame,
        {"image": bytes(3), "width": 1, "height": 1, "timestamp": 0.0},
        image=(*NOT_BYTES, b"ab"),
        width=(*NOT_COUNT, 2),
        height=(*NOT_COUNT, 2),
        format=NOT_NAME,
        timestamp=(*NOT_NUMBER, None),
    ),
    "MediaDeviceInfo": construct(
        MediaDeviceInfo,
        {"device_id": "1", "kind": "audioinput", "label": "A microphone"},
        device_id=(*NOT_STRING, None),
        kind=(*NOT_STRING, None),
        label=(*NOT_STRING, None),
        group_id=(*NOT_STRING, None),
        is_default=(*NOT_BOOL, None),
    ),
    # the embedded bot
    "EmbeddedBot": BOT,
    "Reply": construct(
        Reply,
        {"text": "Yes."},
        text=NOT_STRING,
        after=(*NOT_WAIT, None),
        filler=(*NOT_STRING, None),
        call=(5, "", [], ("a",), ("a", {}, 1), (5, {}), ("", {}), ("a", 5), ("a", {5: 1})),
        result=({1, 2}, b"text", object()),
        seconds=(*NOT_WAIT, None),
        report_level=(5, None, "all"),
        say=NOT_STRING,
    ),
    "Fault": construct(
        Fault,
        {"kind": "drop"},
        kind=(5, None, "reset", ["drop"]),
        on=(0, -1, 1.5, True, "(", ["a"], b"a"),
    ),
    "ProviderAPI": construct(
        ProviderAPI, answer=(5, None, True, 200, "404", "always"), host=NOT_NAME, port=(*NOT_PORT, None)
    ),
    "ProviderAPI.wait_for_hang_up": construct(
        ProviderAPI().wait_for_hang_up, {"timeout": 0}, timeout=(*NOT_WAIT, None)
    ),
    "EmbeddedBot.assert_heard": call(
        lambda targets: targets.bot().assert_heard,
        {"timeout": 0},
        patterns="variadic: the test of its own is in tests/testing/embedded_bot/test_bot.py",
        timeout=(*NOT_WAIT, None),
    ),
    "EmbeddedBot.stop": call(lambda targets: targets.bot().stop, timeout=(*NOT_WAIT, None)),
    "EmbeddedBot.wait_for_session": call(
        lambda targets: targets.bot().wait_for_session, {"timeout": 0}, timeout=(*NOT_WAIT, None)
    ),
    "BotSession.call_function": call(
        lambda targets: targets.session().call_function,
        {"name": "weather"},
        name=NOT_NAME,
        arguments=NOT_MAPPING,
        timeout=(*NOT_WAIT, None),
        report_level=(5, None, "all"),
    ),
    "BotSession.close": call(
        lambda targets: targets.session().close,
        code=(*NOT_INTEGER, None, -1, 999, 1005, 1006, 1015, 2999, 5000),
        reason=(*NOT_STRING, None, "é" * 62, "\ud800"),
    ),
    "BotSession.send": call(lambda targets: targets.session().send, {"message": {}}, message=(*NOT_MAPPING, None)),
    "BotSession.send_frame": call(lambda targets: targets.session().send_frame, frame=(5, None, b"frame", {})),
    "BotSession.send_raw": call(lambda targets: targets.session().send_raw, {"data": b""}, data=(5, [1, 2], None)),
    "BotSession.send_mark": call(lambda targets: targets.session().send_mark, {"name": "m1"}, name=NOT_NAME),
    "BotSession.wait_for_call": call(lambda targets: targets.session().wait_for_call, timeout=(*NOT_WAIT, None)),
    "BotSession.wait_for_dtmf": call(
        lambda targets: targets.session().wait_for_dtmf,
        {"keys": "12#"},
        keys=(*NOT_NAME, "A", "1 2", "1a"),
        timeout=(*NOT_WAIT, None),
    ),
    "BotSession.wait_for_mark": call(
        lambda targets: targets.session().wait_for_mark, {"name": "m1"}, name=NOT_NAME, timeout=(*NOT_WAIT, None)
    ),
    "BotSession.wait_ended": call(lambda targets: targets.session().wait_ended, timeout=(*NOT_WAIT, None)),
    "BotSession.wait_for_message": call(
        lambda targets: targets.session().wait_for_message,
        {"type": "client-ready"},
        type=NOT_NAME,
        timeout=(*NOT_WAIT, None),
        where=NOT_FUNCTION,
    ),
    # the proxy and its faults
    "ReplayBot": construct(
        ReplayBot,
        {"path": "no_such_recording"},
        path=(*NOT_PATH, None),
        pace=(5, "slow", None),
        match=(5, "all", None),
        strict=(*NOT_BOOL, None),
        timeout=(*NOT_WAIT, None),
        port=NOT_PORT,
    ),
    "FaultProxy": construct(
        FaultProxy,
        {"target_host": "127.0.0.1", "target_port": 9},
        target_host=NOT_NAME,
        target_port=(*NOT_PORT, 0),
        host=NOT_NAME,
    ),
    "FaultProxy.before": construct(
        FaultProxy.before,
        {"url": "ws://127.0.0.1:9/ws"},
        url=(5, None, b"ws://bot.example", "", "/ws", "gopher://bot.example", "ws://bot.example:port"),
        host=NOT_NAME,
    ),
    "FaultProxy.inject": call(
        lambda targets: targets.proxy().inject,
        {"fault": faults.Reset()},
        fault=NOT_FAULT,
        direction=NOT_DIRECTION,
        after_bytes=(*NOT_INTEGER, None, -1),
        counted_in=NOT_DIRECTION,
    ),
    "FaultProxy.stop": call(lambda targets: targets.proxy().stop, timeout=(*NOT_WAIT, None)),
    "FaultProxy.url": call(
        lambda targets: targets.proxy().url, {"url": "ws://127.0.0.1:9/ws"}, url=(5, None, b"ws://bot.example")
    ),
    "Injection.wait": call(lambda targets: targets.injection().wait, {"timeout": 0}, timeout=(*NOT_WAIT, None)),
    "ProxyConnection.inject": call(
        lambda targets: targets.connection().inject,
        {"fault": faults.Delay(1)},
        fault=NOT_FAULT,
        direction=NOT_DIRECTION,
        after_bytes=(*NOT_INTEGER, None, -1),
        counted_in=NOT_DIRECTION,
    ),
    "ProxyConnection.received_bytes": call(
        lambda targets: targets.connection().received_bytes,
        {"direction": "to_client"},
        direction=(*NOT_DIRECTION, None),
    ),
    "ProxyConnection.wait_ended": call(
        lambda targets: targets.connection().wait_ended, {"timeout": 0}, timeout=(*NOT_WAIT, None)
    ),
    "Delay": construct(faults.Delay, {"seconds": 0}, seconds=(*NOT_WAIT, None)),
    "Split": construct(faults.Split, size_bytes=NOT_COUNT),
    "Coalesce": construct(
        faults.Coalesce, {"size_bytes": 1, "seconds": 0}, size_bytes=NOT_COUNT, seconds=(*NOT_WAIT, None)
    ),
    "Throttle": construct(faults.Throttle, {"bytes_per_second": 1.5}, bytes_per_second=(*NOT_SECONDS, None)),
    "Drop": construct(faults.Drop, size_bytes=NOT_SIZE),
    "Corrupt": construct(faults.Corrupt, size_bytes=NOT_SIZE, mask=(*NOT_COUNT, 256)),
    # scenarios
    "load": construct(scenarios.load, {"path": Path(__file__).with_name("no_such.yaml")}, path=(*NOT_PATH, None)),
    "Scenario.run": construct(
        scenarios.Scenario(name="s", full_name="f/s", path=Path("f.yaml")).run,
        {"bot": "ws://127.0.0.1:9", "transport": "eval"},
        bot=(5, None, RTVIClient, ""),
        transport=(5, None, "pigeon"),
        judge=NOT_FUNCTION,
        tts=NOT_FUNCTION,
        transcribe=NOT_FUNCTION,
        next_line=NOT_FUNCTION,
        timeout=(*NOT_SECONDS, None),
        connect_timeout=(*NOT_SECONDS, None),
        token=NOT_STRING,
        headers=NOT_STRINGS,
        record=NOT_PATH,
    ),
    "ScenarioResult.report": construct(
        scenarios.ScenarioResult(name="f/s", path=Path("f.yaml")).report, verbose=(*NOT_BOOL, None)
    ),
    "ChatJudge": construct(
        scenarios.ChatJudge,
        {"base_url": "http://127.0.0.1:9/v1", "model": "m"},
        base_url=(5, None, "", "ws://127.0.0.1:9", "no url"),
        model=NOT_NAME,
        api_key=(*NOT_STRING, "", "two\nlines"),
        timeout=(*NOT_SECONDS, None),
        client=(5, "client", True),
    ),
    "ChatJudge.judge": construct(
        JUDGE.judge,
        {"criterion": "c"},
        criterion=NOT_NAME,
        conversation=(5, None, "text", [5], [("user",)], [("user", 5)]),
        reply=(*NOT_STRING, None),
        call=(5, "name", ("name",), ("name", 5), (5, {})),
    ),
    # load
    "MeasuredClient": construct(
        MeasuredClient,
        options=(5, "ws://bot.example", [("timeout", 5)]),
        keywords="named by RTVIClientOptions, whose rows a test of its own runs through the client",
    ),
    "MeasuredClient.for_url": construct(
        MeasuredClient.for_url,
        {"url": "ws://bot.example"},
        url=(5, None, b"ws://bot.example", Path("ws")),
        transport=(5, None, "daily", WebSocketTransport),
        token=NOT_STRING,
        headers=NOT_STRINGS,
        options="named by RTVIClientOptions, as those of the constructor",
    ),
    "MeasuredClient.on_measurement": call(
        _set_on_measurement,
        {"on_measurement": print},
        on_measurement=NOT_FUNCTION,
    ),
    "MeasuredClient.wait_for_answer": call(lambda targets: targets.measured().wait_for_answer, timeout=NOT_WAIT),
    "MeasuredClient.measure": call(lambda targets: targets.measured().measure, {"name": "step"}, name=NOT_NAME),
    "run_many": construct(
        run_many,
        {"scenario": print, "n": 0, "client": "ws://bot.example"},
        scenario=(*NOT_FUNCTION, None),
        n=(*NOT_INTEGER, None, -1),
        client=(5, None, b"ws://bot.example", *NOT_FUNCTION[2:]),
        concurrency=NOT_COUNT,
        spawn_rate=("5", True, None, 0, -1, math.nan),
        session_timeout=NOT_SECONDS,
        connect=(*NOT_FUNCTION, None),
        on_row=NOT_FUNCTION,
        progress=NOT_BOOL,
    ),
    "simulate": construct(
        simulate,
        {"client": RTVIClient(), "next_line": print},
        client=(5, None, RTVIClient, "ws://bot.example"),
        next_line=(*NOT_FUNCTION, None),
        max_turns=NOT_COUNT,
        until=NOT_FUNCTION,
        timeout=NOT_WAIT,
    ),
    "word_error_rate": construct(
        word_error_rate,
        {"reference": "a", "said": "b"},
        reference=(*NOT_STRING, None),
        said=(*NOT_STRING, None),
    ),
    "Report.show": call(lambda targets: targets.report().show, {"stream": io.StringIO()}, stream=(5, "report.txt")),
    "Report.to_csv": call(lambda targets: targets.report().to_csv, path=NOT_PATH),
    "Report.to_json": call(lambda targets: targets.report().to_json, path=NOT_PATH),
    "Report.to_html": call(lambda targets: targets.report().to_html, path=NOT_PATH),
    # integrations
    "run_program": construct(run_program, {"main": int}, main=(*NOT_FUNCTION, None), name=(*NOT_STRING, None)),
    "RTVIBlueprint": construct(
        RTVIBlueprint,
        {"make_client": print},
        make_client=(*NOT_FUNCTION, None),
        voice=(*NOT_BOOL, None),
        name=NOT_NAME,
        connect=(*NOT_FUNCTION, None),
        events=(5, None, "botReady", *([event] for event in NOT_EVENT)),
        heartbeat_interval=(*NOT_SECONDS, None),
        leave_timeout=(*NOT_SECONDS, None, 0.001),
        idle_timeout=(*NOT_SECONDS, None),
        start_timeout=(*NOT_SECONDS, None),
        stream_lifetime=(*NOT_SECONDS, None),
        max_sessions=NOT_COUNT,
        max_streams=NOT_COUNT,
        max_events=NOT_COUNT,
    ),
    "RTVIBlueprint.close": construct(BLUEPRINT.close, timeout=(*NOT_WAIT, None)),
    "RTVIBlueprint.end_streams_on": construct(
        BLUEPRINT.end_streams_on, signal_number=(None, "SIGTERM", -1, 10**6, 1.5)
    ),
    "RTVIVoice": construct(
        RTVIVoice,
        {"make_client": print},
        make_client=(*NOT_FUNCTION, None),
        name=NOT_NAME,
        connect=(*NOT_FUNCTION, None),
        events=(5, None, "botReady", *([event] for event in NOT_EVENT)),
        leave_timeout=(*NOT_SECONDS, None, 0.001),
        idle_timeout=(*NOT_SECONDS, None),
        start_timeout=(*NOT_SECONDS, None),
        max_sessions=NOT_COUNT,
        max_pages=NOT_COUNT,
        max_events=NOT_COUNT,
    ),
    "RTVIVoice.close": construct(VOICE.close, timeout=(*NOT_WAIT, None)),
    "RTVIVoice.end_pages_on": construct(VOICE.end_pages_on, signal_number=(None, "SIGTERM", -1, 10**6, 1.5)),
    "Conversation": construct(
        Conversation, {"client": RTVIClient()}, client=(5, None, RTVIClient), keep=(*NOT_SECONDS, None)
    ),
    "instrument": construct(
        instrument,
        {"client": RTVIClient()},
        client=(5, None, RTVIClient),
        tracer_provider=(5, "console", print),
        conversation_id=(*NOT_STRING, ""),
        content=(*NOT_BOOL, None),
    ),
}
