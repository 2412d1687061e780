"""Values that the client, its methods and its options must refuse."""

from __future__ import annotations

import math
import os
import ssl
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from rtvi_sync import (
    ActionArgument,
    APIRequest,
    CloseInfo,
    ConfigOption,
    Endpoints,
    EvalTransport,
    LLMHelper,
    MemoryTransport,
    ReconnectPolicy,
    Recording,
    RTVIActionRequestData,
    RTVIClient,
    RTVIClientConfigOption,
    RTVIClientHelper,
    RTVIClientOptions,
    RTVIClientParams,
    RTVIEvent,
    RTVIEventCallbacks,
    RTVIMessage,
    SmallWebRTCTransport,
    TelephonyTransport,
    Turn,
    TurnAudio,
    WebSocketTransport,
    connect,
    is_transient,
    signals,
)
from rtvi_sync.media import NullSink, VideoFrame, WavSource
from tests.behaviour.validation.calls import (
    NOT_BOOL,
    NOT_BYTES,
    NOT_CONFIG,
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
    demanding,
)
from tests.support.targets import Targets, pending_turn
from tests.support.wire import is_generator

JSON = "any JSON; what is not JSON is refused by the encoder"
NOT_LIMIT = (*NOT_SECONDS, timedelta(0), timedelta(seconds=-1))
NOT_ACTION = (5, None, "llm:run", ["llm", "run"], {5: "run"})
NOT_REQUEST = (5, None, b"http://bot.example", Path("start"), {"endpoint": Path("start")})
NOT_QUESTION = (5, None, ["Hello"], object())
NOT_TEXTS = (5, b"text", [5])
NOT_COUNT_OR_NONE = tuple(value for value in NOT_COUNT if value is not None)
NOT_TRACK = (5, b"0", NullSink, object())


class AsyncSource:
    """A source that is read in vain."""

    sample_rate_hz = 16_000

    async def read(self, frames: int) -> bytes:
        return b""

    def close(self) -> None: ...


class AsyncSink:
    """A sink that is written to in vain."""

    async def write(self, pcm: bytes, sample_rate_hz: int) -> None: ...

    def drop(self) -> None: ...

    def close(self) -> None: ...


class WriteOnly:
    """A sink that would fail at the first interruption."""

    def write(self, pcm: bytes, sample_rate_hz: int) -> None: ...


class ReadOnly:
    """A source that would fail at the end of the session."""

    sample_rate_hz = 16_000

    def read(self, frames: int) -> bytes:
        return b""


def _method(name: str, targets: Targets) -> Callable[..., object]:
    method: Callable[..., object] = getattr(targets.client(), name)
    return method


def _recording(name: str) -> Callable[[Targets], Callable[..., object]]:
    def method(_: Targets) -> Callable[..., object]:
        function: Callable[..., object] = getattr(Recording(Path(os.devnull), ()), name)
        return function

    return method


def _mark(targets: Targets) -> Callable[..., object]:
    recording = targets.client().record(Path(mkdtemp()) / "a")
    recording.close()
    return recording.mark


def _result(_: Targets) -> Callable[..., object]:
    return pending_turn(Turn(number=1, session=1, initiator="bot")).result


def _set_params(targets: Targets) -> Callable[..., None]:
    def set_to(params: Any) -> None:
        targets.client().params = params

    return set_to


def _set_volume(targets: Targets) -> Callable[..., None]:
    def set_to(speaker_volume: Any) -> None:
        targets.client().speaker_volume = speaker_volume

    return set_to


FIELDS: dict[str, Call] = {
    "RTVIClientOptions": construct(
        RTVIClientOptions,
        transport=(5, "websocket", WebSocketTransport, object()),
        params=(5, "http://bot.example", [("base_url", "x")], Endpoints()),
        callbacks=(5, print, [print]),
        timeout=NOT_LIMIT,
        enable_mic=(*NOT_BOOL, None),
        enable_cam=NOT_BOOL,
        enable_camera=NOT_BOOL,
        custom_connect_handler=NOT_FUNCTION,
        connect_timeout=NOT_LIMIT,
        request_timeout=NOT_SECONDS,
        mic=(*NOT_TRACK, *NOT_FUNCTION[2:], WavSource, AsyncSource(), ReadOnly(), NullSink(), True),
        speaker=(*NOT_TRACK, *NOT_FUNCTION[2:], AsyncSink(), WriteOnly(), True),
        cam=(*NOT_TRACK, AsyncSource(), ReadOnly(), NullSink(), True, Path("a.mp4"), print),
        text_only=(*NOT_BOOL, None),
        http_client=(5, "http://bot.example", object()),
        events=(5, None, "threads", "Manual", ["thread"]),
        ssl_context=(False, True, "ca.pem", ssl.SSLContext),
        proxy=({"https": "http://proxy"}, True, 5, b"http://proxy", Path("proxy")),
        echo_cancellation=(*NOT_BOOL, None),
        audio_backend=(5, True, "alsa", "PyAudio", object()),
        max_queued_events=NOT_COUNT,
        max_queued_bytes=NOT_COUNT,
        max_queued_audio_bytes=NOT_COUNT,
        track_turns=(*NOT_BOOL, None),
        max_turn_audio=(*NOT_WAIT, None),
        reconnect=(True, False, 3, {"max_attempts": 3}, ReconnectPolicy),
    ),
    "RTVIClientParams": construct(
        RTVIClientParams,
        base_url=(5, Path("api"), b"http://bot.example", ["http://bot.example"]),
        endpoints=(5, "connect/", [("connect", "x")], Endpoints),
        request_data=(*NOT_MAPPING, {5: "value"}),
        headers=NOT_STRINGS,
        config=(5, "llm", {"service": "llm"}, [5], ["llm"]),
        services=NOT_STRINGS,
    ),
    "Endpoints": construct(Endpoints, connect=(*NOT_STRING, Path("connect")), action=(*NOT_STRING, Path("action"))),
}

TABLE: dict[str, Call] = {
    **FIELDS,
    "RTVIClient": construct(
        RTVIClient,
        options=(5, "http://bot.example", [("timeout", 5)], MemoryTransport()),
        keywords="named by RTVIClientOptions, whose rows a test of its own runs through the client",
    ),
    "RTVIClient.params": call(_set_params, {"params": {}}, params=(5, "x", [("base_url", "x")])),
    "RTVIClient.speaker_volume": call(
        _set_volume,
        {"speaker_volume": 1},
        speaker_volume=("1", True, None, -0.1, 1.1, math.nan),
    ),
    "RTVIClient.action": call(
        lambda targets: targets.client().action,
        {"action": {"service": "llm", "action": "run"}},
        action=NOT_ACTION,
        timeout=NOT_WAIT,
    ),
    "RTVIClient.action_stream": call(
        lambda targets: targets.client().action_stream,
        {"action": {"service": "llm", "action": "run"}},
        action=NOT_ACTION,
        timeout=NOT_WAIT,
    ),
    "RTVIClient.append_to_context": call(
        lambda targets: targets.client().append_to_context,
        {"role": "user", "content": "Hello"},
        role=NOT_NAME,
        content=JSON,
        run_immediately=NOT_BOOL,
    ),
    "RTVIClient.cancel_ui_job_group": call(
        lambda targets: targets.client().cancel_ui_job_group, {"job_id": "1"}, job_id=NOT_NAME, reason=NOT_STRING
    ),
    "RTVIClient.connect": call(
        lambda targets: targets.client().connect, connection_params="what the transport takes, which checks it"
    ),
    "RTVIClient.construct_url": call(
        lambda targets: targets.client().construct_url, {"endpoint": "connect"}, endpoint=(*NOT_STRING, None)
    ),
    "RTVIClient.for_url": construct(
        RTVIClient.for_url,
        {"url": "ws://bot.example"},
        url=(5, None, b"ws://bot.example"),
        transport=(5, None, "daily", WebSocketTransport),
        token=NOT_STRING,
        headers=NOT_STRINGS,
        options="named by RTVIClientOptions, as those of the constructor",
    ),
    "connect": construct(
        connect,
        {"url": "ws://bot.example"},
        url=(5, None, b"ws://bot.example"),
        transport=(5, None, "daily", WebSocketTransport),
        token=NOT_STRING,
        headers=NOT_STRINGS,
        options="named by RTVIClientOptions, as those of the constructor",
    ),
    "RTVIClient.describe_actions": call(lambda targets: targets.client().describe_actions, timeout=NOT_WAIT),
    "RTVIClient.describe_config": call(lambda targets: targets.client().describe_config, timeout=NOT_WAIT),
    "RTVIClient.enable_cam": call(
        lambda targets: targets.client().enable_cam, {"enable": False}, enable=(*NOT_BOOL, None)
    ),
    "RTVIClient.enable_mic": call(
        lambda targets: targets.client().enable_mic, {"enable": False}, enable=(*NOT_BOOL, None)
    ),
    "RTVIClient.enable_screen_share": call(
        lambda targets: targets.client().enable_screen_share, {"enable": False}, enable=(*NOT_BOOL, None)
    ),
    "RTVIClient.enable_speaker": call(
        lambda targets: targets.client().enable_speaker, {"enable": False}, enable=(*NOT_BOOL, None)
    ),
    "RTVIClient.events": call(
        lambda targets: targets.client().events,
        events=tuple((event,) for event in NOT_EVENT),
        timeout=NOT_WAIT,
    ),
    "RTVIClient.get_bot_config": call(lambda targets: targets.client().get_bot_config, timeout=NOT_WAIT),
    "RTVIClient.get_helper": call(lambda targets: targets.client().get_helper, {"service": "llm"}, service=NOT_NAME),
    "RTVIClient.get_service_option_value_from_config": call(
        lambda targets: targets.client().get_service_option_value_from_config,
        {"service_key": "llm", "option": "model", "config": []},
        service_key=(*NOT_STRING, None),
        option=(*NOT_STRING, None),
        config=NOT_CONFIG,
        timeout=NOT_WAIT,
    ),
    "RTVIClient.get_service_options_from_config": call(
        lambda targets: targets.client().get_service_options_from_config,
        {"service_key": "llm", "config": []},
        service_key=(*NOT_STRING, None),
        config=NOT_CONFIG,
        timeout=NOT_WAIT,
    ),
    "RTVIClient.off": call(
        lambda targets: targets.client().off, {"event": "botReady"}, event=NOT_EVENT, handler=(5, "print")
    ),
    "RTVIClient.on": call(
        lambda targets: targets.client().on,
        {"event": "botReady", "handler": print},
        event=NOT_EVENT,
        handler=(*NOT_FUNCTION, lambda one, two: None),
    ),
    "RTVIClient.once": call(
        lambda targets: targets.client().once,
        {"event": "botReady", "handler": print},
        event=NOT_EVENT,
        handler=(*NOT_FUNCTION, lambda one, two: None),
    ),
    "RTVIClient.process_events": call(lambda targets: targets.client().process_events, timeout=NOT_WAIT),
    "RTVIClient.register_function_call_handler": call(
        lambda targets: targets.client().register_function_call_handler,
        {"name": "weather", "function": print},
        name=(*NOT_STRING, ""),
        function=NOT_FUNCTION,
    ),
    "RTVIClient.register_helper": call(
        lambda targets: targets.client().register_helper,
        {"service": "llm", "helper": LLMHelper()},
        service=NOT_NAME,
        helper=(5, None, LLMHelper, object()),
    ),
    "RTVIClient.send_client_message": call(
        lambda targets: targets.client().send_client_message, {"type": "hello"}, type=NOT_NAME, data=JSON
    ),
    "RTVIClient.send_client_request": call(
        lambda targets: targets.client().send_client_request,
        {"type": "hello"},
        type=NOT_NAME,
        data=JSON,
        timeout=NOT_WAIT,
    ),
    "RTVIClient.send_dtmf": call(
        lambda targets: targets.client().send_dtmf, {"keys": "123#"}, keys=(5, None, ["1"], "", "12a", "1 2")
    ),
    "RTVIClient.send_file": call(
        lambda targets: targets.client().send_file,
        {"file": b"text"},
        file=(5, None, ["file"], {"url": "https://bot.example"}),
        content=(*NOT_STRING, None),
        run_immediately=NOT_BOOL,
        audio_response=NOT_BOOL,
        format=(*NOT_STRING, ""),
        name=(*NOT_STRING, ""),
        custom_options=NOT_MAPPING,
        timeout=NOT_WAIT,
    ),
    "RTVIClient.record": call(
        lambda targets: targets.client().record,
        {"path": os.path.join(os.devnull, "a")},
        path=(*NOT_PATH, None),
        audio=(*NOT_BOOL, None),
        report=(*NOT_BOOL, None),
        redact=NOT_FUNCTION,
        overwrite=(*NOT_BOOL, None),
        max_bytes=(*NOT_COUNT, None),
    ),
    "RTVIClient.send_message": call(
        lambda targets: targets.client().send_message,
        {"message": RTVIMessage("hello")},
        message=(5, None, "hello", {"type": "hello"}, RTVIMessage),
    ),
    "RTVIClient.send_text": call(
        lambda targets: targets.client().send_text,
        {"content": "Hello"},
        content=(*NOT_STRING, None),
        run_immediately=NOT_BOOL,
        audio_response=NOT_BOOL,
    ),
    "RTVIClient.send_ui_event": call(
        lambda targets: targets.client().send_ui_event, {"event": "click"}, event=NOT_NAME, payload=JSON
    ),
    "RTVIClient.send_ui_snapshot": call(
        lambda targets: targets.client().send_ui_snapshot, {"tree": {}}, tree=(*NOT_MAPPING, None)
    ),
    "RTVIClient.set_config_options": call(
        lambda targets: targets.client().set_config_options,
        {"config_options": [], "config": []},
        config_options=(*NOT_CONFIG, None),
        config=NOT_CONFIG,
    ),
    "RTVIClient.set_service_option_in_config": call(
        lambda targets: targets.client().set_service_option_in_config,
        {"service_key": "llm", "options": [], "config": []},
        service_key=NOT_NAME,
        options=(5, None, "model", [5], {"value": 1}, {"name": 5}),
        config=NOT_CONFIG,
    ),
    "RTVIClient.unregister_function_call_handler": call(
        lambda targets: targets.client().unregister_function_call_handler, {"name": "weather"}, name=(*NOT_STRING, "")
    ),
    "RTVIClient.unregister_helper": call(
        lambda targets: targets.client().unregister_helper, {"service": "llm"}, service=NOT_NAME
    ),
    "RTVIClient.update_cam": call(
        lambda targets: targets.client().update_cam,
        {"device_id": None},
        device_id=(*NOT_TRACK, AsyncSource(), NullSink(), True),
    ),
    "RTVIClient.update_mic": call(
        lambda targets: targets.client().update_mic,
        {"device_id": None},
        device_id=(*NOT_TRACK, AsyncSource(), NullSink(), True),
    ),
    "RTVIClient.update_speaker": call(
        lambda targets: targets.client().update_speaker, {"device_id": None}, device_id=(*NOT_TRACK, AsyncSink(), True)
    ),
    "RTVIClient.update_config": call(
        lambda targets: targets.client().update_config,
        {"config": []},
        config=(*NOT_CONFIG, None),
        interrupt=NOT_BOOL,
        timeout=NOT_WAIT,
    ),
    "RTVIClient.ask": call(
        lambda targets: targets.client().ask,
        {"question": "Hello"},
        question=NOT_QUESTION,
        timeout=NOT_WAIT,
        audio_response=NOT_BOOL,
        settle=NOT_WAIT,
        sample_rate_hz=NOT_COUNT_OR_NONE,
    ),
    "RTVIClient.barge_in": call(
        lambda targets: targets.client().barge_in,
        {"question": "Hello"},
        question=NOT_QUESTION,
        after=NOT_EVENT,
        delay=NOT_WAIT,
        where=NOT_FUNCTION,
        audio_response=NOT_BOOL,
        sample_rate_hz=NOT_COUNT_OR_NONE,
    ),
    "RTVIClient.listen": call(lambda targets: targets.client().listen, timeout=NOT_WAIT, settle=NOT_WAIT),
    "RTVIClient.expect": call(lambda targets: targets.client().expect, within=NOT_WAIT),
    "Expect.event": call(
        lambda targets: targets.client().expect().event,
        {"event": "botReady"},
        event=NOT_EVENT,
        where=NOT_FUNCTION,
        within=NOT_WAIT,
        check_from=(5, None, "now"),
    ),
    "Expect.text": call(
        lambda targets: targets.client().expect().text,
        {"contains": "noon"},
        contains=NOT_TEXTS,
        matches=NOT_TEXTS,
        within=NOT_WAIT,
    ),
    "Expect.call": call(
        lambda targets: targets.client().expect().call,
        {"name": "f"},
        name=NOT_NAME,
        within=NOT_WAIT,
        arguments=JSON,
    ),
    "Expect.turn": call(
        lambda targets: targets.client().expect().turn,
        within=NOT_WAIT,
        demands=({"contain": "noon"}, {"contains": ""}, {"firstAudio": 1.0}),
    ),
    "Expect.absent": call(
        lambda targets: targets.client().expect().absent,
        {"event": "botReady", "for_": 0},
        event=NOT_EVENT,
        for_=NOT_WAIT,
        where=NOT_FUNCTION,
    ),
    "Expect.no_more": call(lambda targets: targets.client().expect().no_more, {"for_": 0}, for_=NOT_WAIT),
    "PendingTurn.result": call(_result, timeout=NOT_WAIT),
    "Turn.expect": call(
        lambda _: Turn(number=1, session=1, initiator="bot").expect,
        contains=NOT_TEXTS,
        excludes=NOT_TEXTS,
        matches=NOT_TEXTS,
        calls=(5, "f", [5], {5: {}}, {"f": 5}),
        absent_calls=(5, "f", None, [5]),
        voice_to_voice=NOT_WAIT,
        first_audio=NOT_WAIT,
        wer=(*NOT_NUMBER, -0.1, 1.1),
        reference=(*NOT_STRING, ""),
        transcribe=NOT_FUNCTION,
        interrupted=(*NOT_BOOL, None),
        errors=(*NOT_BOOL, None),
        misspelt=({"contain": "noon"}, {"call": "f"}, {"firstAudio": 1.0}),
    ),
    "Turn.transcribe": call(
        lambda _: Turn(number=1, session=1, initiator="bot").transcribe, transcribe=(*NOT_FUNCTION, None)
    ),
    "Recording.load": call(lambda _: Recording.load, {"path": os.devnull}, path=(*NOT_PATH, None)),
    "Recording.load_all": call(lambda _: Recording.load_all, {}, paths=tuple((each,) for each in (*NOT_PATH, None))),
    "Recording.check_output": call(_recording("check_output"), {"path": "page.html"}, path=(*NOT_PATH, None)),
    "Recording.export": call(_recording("export"), {"format": "vtt"}, path=NOT_PATH, format=(5, "text", b"vtt")),
    "Recording.report": call(_recording("report"), path=NOT_PATH, embed_audio=(*NOT_BOOL, None)),
    "Recording.audio": call(_recording("audio"), {}, turn=(5, "first"), side=(5, "left", None)),
    "RecordingSession.mark": call(_mark, text=(5, None, b"text")),
    "TurnAudio.save": call(lambda _: TurnAudio().save, {"path": os.devnull}, path=(*NOT_PATH, None)),
    "RTVIClient.wait": call(lambda targets: targets.client().wait, {"timeout": 0}, timeout=NOT_WAIT),
    "RTVIClient.wait_until_ready": call(
        lambda targets: targets.client().wait_until_ready, {"timeout": 0}, timeout=NOT_WAIT
    ),
    "RTVIClient.wait_for": call(
        lambda targets: targets.client().wait_for,
        {"event": "botReady", "timeout": 0},
        event=NOT_EVENT,
        where=NOT_FUNCTION,
        timeout=NOT_WAIT,
    ),
    **{
        f"RTVIClient.{name}": call(
            partial(_method, name),
            {"endpoint": "http://bot.example/start"},
            endpoint=NOT_REQUEST,
            request_data=(*NOT_MAPPING, {5: "value"}),
            headers=NOT_STRINGS,
            timeout=NOT_SECONDS,
        )
        for name in ("start_bot", "start_bot_and_connect")
    },
    "RTVIClientParams.construct_url": construct(
        RTVIClientParams(base_url="http://bot.example").construct_url,
        {"endpoint": "connect"},
        endpoint=(*NOT_STRING, None),
    ),
    "RTVIEventCallbacks": construct(
        RTVIEventCallbacks,
        callbacks=(*({"on_bot_ready": wrong} for wrong in NOT_FUNCTION), {"on_no_such_event": print}),
    ),
    "APIRequest": construct(
        APIRequest,
        {"endpoint": "http://bot.example/start"},
        endpoint=(5, None, Path("start"), b"http://bot.example"),
        headers=NOT_STRINGS,
        request_data=(*NOT_MAPPING, {5: "value"}),
        timeout=NOT_SECONDS,
    ),
    "ActionArgument": construct(ActionArgument, {"name": "text"}, name=NOT_NAME, value=JSON),
    "RTVIActionRequestData": construct(
        RTVIActionRequestData,
        {"service": "llm", "action": "run"},
        service=NOT_NAME,
        action=NOT_NAME,
        arguments=(5, "text", {"name": "text"}, [5], ["text"]),
    ),
    "RTVIMessage": construct(
        RTVIMessage, {"type": "hello"}, type=(*NOT_STRING, None), data=JSON, id=NOT_STRING, label=(*NOT_STRING, None)
    ),
    "ConfigOption": construct(
        ConfigOption,
        {"name": "model"},
        name=(*NOT_STRING, None),
        value=JSON,
        extra="unknown fields of the bot's message",
    ),
    "RTVIClientConfigOption": construct(
        RTVIClientConfigOption,
        {"service": "llm"},
        service=(*NOT_STRING, None),
        options=(5, None, "model", {"name": "model"}, [5]),
        extra="unknown fields of the bot's message",
    ),
    "ReconnectPolicy": construct(
        ReconnectPolicy,
        max_attempts=(*NOT_INTEGER, 0, -1),
        max_elapsed=NOT_SECONDS,
        initial_delay=(*NOT_SECONDS, None),
        max_delay=(*NOT_SECONDS, None),
        stable_after=(*NOT_SECONDS, None),
        retry_on=NOT_FUNCTION,
        attempt_timeout=NOT_SECONDS,
        first_connect=(*NOT_BOOL, None),
    ),
    "ReconnectPolicy.forever": construct(
        ReconnectPolicy.forever, changes="named by ReconnectPolicy, as those of the constructor"
    ),
    "is_transient": construct(is_transient, {"error": ValueError()}, error=(5, None, "error", ValueError)),
    "AbortController.abort": call(lambda targets: targets.abort().abort, reason=(5, "reason", ValueError)),
    "AbortSignal.attach": call(lambda targets: targets.abort().signal.attach, sock=(5, None, "socket")),
    "AbortSignal.on_abort": call(
        lambda targets: targets.abort().signal.on_abort, {"callback": print}, callback=(*NOT_FUNCTION, None)
    ),
    "AbortSignal.wait": call(lambda targets: targets.abort().signal.wait, {"timeout": 0}, timeout=NOT_WAIT),
    "LLMHelper": construct(
        LLMHelper, callbacks=(5, print, [print], {"on_llm_function_call": 5}, {"on_no_such_event": print}, {5: print})
    ),
    "RTVIClientHelper": construct(RTVIClientHelper, callbacks=(5, print, [print], {"on_anything": print})),
    "LLMHelper.append_to_messages": call(
        lambda targets: targets.helper().append_to_messages,
        {"messages": []},
        messages=(5, None, "Hello"),
        run_immediately=NOT_BOOL,
        timeout=NOT_WAIT,
    ),
    "LLMHelper.emit": call(
        lambda targets: targets.helper().emit,
        {"event": "llm_function_call"},
        event=(5, None, "no_such_event"),
        payload="whatever the helper tells its handlers",
    ),
    "LLMHelper.get_context": call(lambda targets: targets.helper().get_context, timeout=NOT_WAIT),
    "LLMHelper.handle_function_call": call(
        lambda targets: targets.helper().handle_function_call, {"function": print}, function=(*NOT_FUNCTION, None)
    ),
    "LLMHelper.off": call(
        lambda targets: targets.helper().off,
        {"event": "llm_function_call", "handler": print},
        event=(5, None, "no_such_event"),
        handler=(5, None, "print"),
    ),
    "LLMHelper.on": call(
        lambda targets: targets.helper().on,
        {"event": "llm_function_call", "handler": print},
        event=(5, None, "no_such_event"),
        handler=(*NOT_FUNCTION, None),
    ),
    "LLMHelper.run": call(lambda targets: targets.helper().run, interrupt=NOT_BOOL, timeout=NOT_WAIT),
    "LLMHelper.set_context": call(
        lambda targets: targets.helper().set_context,
        {"context": []},
        context=(5, None, "Hello", {"role": "system", "content": "A single message"}, {"messages": "Hello"}),
        interrupt=NOT_BOOL,
        timeout=NOT_WAIT,
    ),
    "CloseInfo": construct(
        CloseInfo,
        code=(*NOT_INTEGER, -1),
        reason=(*NOT_STRING, None),
        initiator=NOT_NAME,
        error=(5, "error", ValueError),
        reconnecting=NOT_BOOL,
    ),
    "CloseInfo.as_error": construct(CloseInfo().as_error, before=(*NOT_STRING, None)),
    "MemoryTransport": construct(
        MemoryTransport,
        bot=(*(wrong for wrong in NOT_FUNCTION if not is_generator(wrong)), None),
        audio=(*NOT_BOOL, None),
        video=(*NOT_BOOL, None),
    ),
    "MemoryTransport.end": call(lambda targets: targets.transport().end, info=(5, "end", CloseInfo, {"code": 1000})),
    "MemoryTransport.receive": call(
        lambda targets: targets.transport().receive, {"message": "{}"}, message="a bot may send anything"
    ),
    "MemoryTransport.receive_audio": call(
        lambda targets: targets.transport().receive_audio,
        {"pcm": b"", "sample_rate_hz": 16_000},
        pcm=NOT_BYTES,
        sample_rate_hz=(*NOT_RATE, None),
        num_channels=NOT_COUNT,
    ),
    "MemoryTransport.receive_video": call(
        lambda targets: targets.transport().receive_video,
        {"frame": VideoFrame(image=bytes(3), width=1, height=1, timestamp=0.0)},
        frame=(5, None, b"image", VideoFrame),
    ),
    "SmallWebRTCTransport": construct(
        SmallWebRTCTransport,
        webrtc_url=(5, b"http://bot.example", Path("offer"), ["http://bot.example"]),
        headers=NOT_STRINGS,
        ice_servers=(5, "stun:host", {"urls": "stun:host"}, [5], ["http://host"], [{"urls": []}]),
        ice_timeout=NOT_SECONDS,
        allow_insecure=(*NOT_BOOL, None),
        allowed_origins=(5, None, "http://bot.example", [5], {"http://bot.example": 1}),
        max_message_size=NOT_COUNT,
        audio_bitrate=(*NOT_INTEGER, 0, 5_999, 510_001),
        **dict.fromkeys(("cam_bitrate", "screen_bitrate"), (*NOT_INTEGER, 0, 49_999)),
        **dict.fromkeys(("cam_size", "screen_size"), (*NOT_INTEGER, 640, (640,), (640, 0), (640.0, 480), "640x480")),
    ),
    "EvalTransport": construct(
        EvalTransport,
        ws_url=(5, b"ws://bot.example", Path("ws"), ["ws://bot.example"]),
        token=NOT_STRING,
        headers=NOT_STRINGS,
        skip_tts=(*NOT_BOOL, None),
        capture_bot_audio=NOT_BOOL,
        capture_bot_images=(*NOT_BOOL, None),
        options="named by WebSocketTransport, whose they are",
    ),
    "EvalTransport.configure": construct(
        EvalTransport().configure,
        function_call_report_level=(5, "everything", ["full"], {"*": "everything"}, {5: "full"}),
        vad_user_speaking=NOT_BOOL,
        llm_markers=NOT_BOOL,
    ),
    "EvalTransport.seed_context": construct(
        EvalTransport().seed_context, {"messages": []}, messages=(5, None, "text", {"role": "user"}, ["text"])
    ),
    "EvalTransport.set_user_image": construct(
        EvalTransport().set_user_image, {"path": __file__}, path=(*NOT_PATH, None)
    ),
    "TelephonyTransport": construct(
        TelephonyTransport,
        provider=(5, None, "vonage", ["twilio"]),
        ws_url=(5, b"ws://bot.example", Path("ws"), ["ws://bot.example"]),
        token=NOT_STRING,
        headers=NOT_STRINGS,
        from_number=NOT_STRING,
        to_number=NOT_STRING,
        parameters=NOT_STRINGS,
        call_id=(*NOT_STRING, ""),
        codec=(5, "opus", "PCMA", ["PCMU"]),
        transcribe=NOT_FUNCTION,
        loss=(5j, "0.1", -0.1, 1.1),
        jitter=(5j, "0.1", -0.1, 11),
        seed=(*NOT_INTEGER, -1),
        hangover=NOT_SECONDS,
        options="named by WebSocketTransport, whose they are",
    ),
    "TelephonyTransport.send_dtmf": construct(
        TelephonyTransport().send_dtmf, {"keys": "1"}, keys=(5, None, "", "A", "1 2", ["1"])
    ),
    "WebSocketTransport": construct(
        WebSocketTransport,
        ws_url=(5, b"ws://bot.example", Path("ws"), ["ws://bot.example"]),
        token=NOT_STRING,
        headers=NOT_STRINGS,
        token_in=(5, None, "body", ["query"]),
        allow_insecure=(*NOT_BOOL, None),
        max_message_size=NOT_COUNT,
        max_inbound_message_size=NOT_COUNT,
        stall_timeout=NOT_SECONDS,
        ping_interval=NOT_SECONDS,
        ping_timeout=NOT_SECONDS,
    ),
    **{
        f"{name}.send_audio": call(
            function,
            {"pcm": b"", "sample_rate_hz": 16_000},
            pcm=(*NOT_BYTES, b"\0", memoryview(bytes(3))),
            sample_rate_hz=(*NOT_RATE, None),
        )
        for name, function in {
            "EvalTransport": lambda _: EvalTransport().send_audio,
            "MemoryTransport": lambda targets: targets.transport().send_audio,
            "SmallWebRTCTransport": lambda targets: targets.webrtc().send_audio,
            "TelephonyTransport": lambda _: TelephonyTransport().send_audio,
            "WebSocketTransport": lambda _: WebSocketTransport().send_audio,
        }.items()
    },
    "EventSignal.connect": construct(
        signals.EventSignal(RTVIEvent.METRICS).connect,
        {"receiver": print, "weak": False, "sender": RTVIClient()},
        receiver=(*(wrong for wrong in NOT_FUNCTION if wrong is not demanding), None),
        sender=(5, None, "client"),
        weak=(*NOT_BOOL, None),
    ),
}
