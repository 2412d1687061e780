"""The table of messages: what each decodes into, and which bot knows it."""

from __future__ import annotations

import copy
import json
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtvi_sync.errors import ProtocolError, UnsupportedFeatureError
from rtvi_sync.events import event_from
from rtvi_sync.messages import (
    AboutBotData,
    ActionDescription,
    ActionResponseData,
    ActionsAvailableData,
    AudioLevelData,
    BotCapabilities,
    BotLLMMarkerData,
    BotLLMSearchResponseData,
    BotLLMTextData,
    BotOutputData,
    BotReadyData,
    BotTTSTextData,
    ConfigAvailableData,
    ConfigData,
    ConfigDescription,
    ConfigOption,
    ErrorData,
    LLMFunctionCallData,
    LLMFunctionCallInProgressData,
    LLMFunctionCallStartedData,
    LLMFunctionCallStoppedData,
    LLMSearchOrigin,
    LLMSearchResult,
    LLMTokenUsageData,
    OptionDescription,
    Payload,
    PipecatMetricData,
    PipecatMetricsData,
    RTVIClientConfigOption,
    ServerResponseData,
    SpokenProgressData,
    StorageItemStoredData,
    SystemLogData,
    TranscriptData,
    TTFATMetricData,
    UICommandData,
    UIJobCompletedEnvelope,
    UIJobGroupCompletedEnvelope,
    UIJobGroupData,
    UIJobGroupStartedEnvelope,
    UIJobUpdateEnvelope,
    UserInputData,
    UserLLMTextData,
)
from rtvi_sync.protocol.decoding import decoder_of
from rtvi_sync.protocol.dialects import INBOUND, OUTBOUND, MessageSpec, decode_payload, require_feature

SENTENCE: dict[str, Any] = {"output_type": "sentence", "text_type": "sentence", "aggregated_by": "sentence"}
LEGACY_CONFIG = (
    RTVIClientConfigOption(
        "vad",
        (ConfigOption("params", {"confidence": 0.5, "start_secs": 0.2, "stop_secs": 0.3, "min_volume": 0.0}),),
    ),
    RTVIClientConfigOption("tts", (ConfigOption("voice", "tone"),)),
    RTVIClientConfigOption(
        "llm",
        (
            ConfigOption("model", "scripted-llm"),
            ConfigOption("initial_messages", [{"role": "system", "content": "You repeat what you hear."}]),
            ConfigOption("run_on_config", False),
        ),
    ),
)
LEGACY_CONFIG_JSON = (
    '[{"service": "vad", "options": [{"name": "params", "value": {"confidence": 0.5, "start_secs": 0.2, "stop_secs":'
    ' 0.3, "min_volume": 0.0}}]}, {"service": "tts", "options": [{"name": "voice", "value": "tone"}]}, {"service":'
    ' "llm", "options": [{"name": "model", "value": "scripted-llm"}, {"name": "initial_messages", "value": [{"role":'
    ' "system", "content": "You repeat what you hear."}]}, {"name": "run_on_config", "value": false}]}]'
)

# Type, data as bots were seen to send it ("" where the message has none), and what it means.
EXAMPLES: list[tuple[str, str, Any]] = [
    # Protocol 2.2 (pipecat-ai 1.14.0)
    (
        "bot-ready",
        '{"version": "2.2.0", "about": {"library": "pipecat-ai", "library_version": "1.14.0"}, "capabilities":'
        ' {"audio_in": true, "audio_out": true, "video_in": false, "screen_in": false, "video_out": false,'
        ' "metrics": true}}',
        BotReadyData(
            version="2.2.0",
            about=AboutBotData(library="pipecat-ai", library_version="1.14.0"),
            capabilities=BotCapabilities(
                audio_in=True, audio_out=True, video_in=False, screen_in=False, video_out=False, metrics=True
            ),
        ),
    ),
    (
        "error-response",
        '{"error": "RTVI version 0.3.0 is not compatible with server protocol 2.2.0."}',
        ErrorData(message="RTVI version 0.3.0 is not compatible with server protocol 2.2.0."),
    ),
    (
        "bot-output",
        '{"text": "One two. Three.", "output_type": "sentence", "text_type": "sentence", "aggregated_by": "sentence",'
        ' "segment_id": 663, "spoken": false, "will_be_spoken": true, "spoken_status": "new", "spoken_progress":'
        ' {"accumulated_text": "", "remaining_text": "One two. Three."}}',
        BotOutputData(
            text="One two. Three.",
            **SENTENCE,
            segment_id=663,
            spoken=False,
            will_be_spoken=True,
            spoken_status="new",
            spoken_progress=SpokenProgressData(accumulated_text="", remaining_text="One two. Three."),
        ),
    ),
    (
        "bot-output",
        '{"text": "One two. Three.", "output_type": "sentence", "text_type": "sentence", "aggregated_by": "sentence",'
        ' "segment_id": 663, "will_be_spoken": true, "spoken_status": "in-progress", "spoken_progress":'
        ' {"accumulated_text": "One two.", "remaining_text": " Three."}}',
        BotOutputData(
            text="One two. Three.",
            **SENTENCE,
            segment_id=663,
            spoken=None,
            will_be_spoken=True,
            spoken_status="in-progress",
            spoken_progress=SpokenProgressData(accumulated_text="One two.", remaining_text=" Three."),
        ),
    ),
    (
        "bot-output",
        '{"text": "You said: Quietly please.", "output_type": "sentence", "text_type": "sentence", "aggregated_by":'
        ' "sentence", "segment_id": 469, "spoken": false, "will_be_spoken": false, "spoken_status": "new"}',
        BotOutputData(
            text="You said: Quietly please.",
            **SENTENCE,
            segment_id=469,
            spoken=False,
            will_be_spoken=False,
            spoken_status="new",
            spoken_progress=None,
        ),
    ),
    (
        "bot-output",
        '{"text": "One", "output_type": "word", "text_type": "word", "aggregated_by": "word", "segment_id": 915,'
        ' "spoken": true, "will_be_spoken": false, "spoken_status": "new"}',
        BotOutputData(
            text="One",
            output_type="word",
            text_type="word",
            aggregated_by="word",
            segment_id=915,
            spoken=True,
            will_be_spoken=False,
            spoken_status="new",
        ),
    ),
    ("bot-interrupted", "", None),
    ("bot-llm-started", "", None),
    ("bot-llm-stopped", "", None),
    ("bot-tts-started", "", None),
    ("bot-tts-stopped", "", None),
    ("bot-started-speaking", "", None),
    ("bot-stopped-speaking", "", None),
    ("user-started-speaking", "", None),
    ("user-stopped-speaking", "", None),
    ("user-mute-started", "", None),
    ("user-mute-stopped", "", None),
    ("vad-user-started-speaking", "", None),
    (
        "user-input",
        '{"text": "Hello bot", "input_type": "chat", "timestamp": "2026-11-20T03:27:54.787+00:00", "final": true,'
        ' "msg_id": "150cffa3"}',
        UserInputData(
            text="Hello bot",
            input_type="chat",
            timestamp="2026-11-20T03:27:54.787+00:00",
            final=True,
            msg_id="150cffa3",
        ),
    ),
    (
        "user-input",
        '{"text": "hello", "input_type": "transcription", "timestamp": "2026-11-20T03:28:33.925+00:00", "final":'
        ' false, "user_id": "user-1"}',
        UserInputData(
            text="hello",
            input_type="transcription",
            timestamp="2026-11-20T03:28:33.925+00:00",
            final=False,
            user_id="user-1",
        ),
    ),
    (
        "user-input",
        '{"text": "mhm", "input_type": "backchannel", "timestamp": "...", "final": true, "user_id": "user-1"}',
        UserInputData(text="mhm", input_type="backchannel", timestamp="...", final=True, user_id="user-1"),
    ),
    (
        "user-transcription",
        '{"text": "Hello world.", "user_id": "user-1", "timestamp": "2026-11-20T03:28:33.947+00:00", "final": true}',
        TranscriptData(text="Hello world.", user_id="user-1", timestamp="2026-11-20T03:28:33.947+00:00", final=True),
    ),
    (
        "stt-raw-text",
        '{"text": "hello", "user_id": "user-1", "timestamp": "...", "final": false}',
        TranscriptData(text="hello", user_id="user-1", timestamp="...", final=False),
    ),
    ("user-llm-text", '{"text": "Hello bot"}', UserLLMTextData(text="Hello bot")),
    ("bot-llm-text", '{"text": " said:"}', BotLLMTextData(text=" said:")),
    ("bot-transcription", '{"text": "You said: Hello bot."}', BotLLMTextData(text="You said: Hello bot.")),
    ("bot-tts-text", '{"text": "You"}', BotTTSTextData(text="You")),
    ("llm-raw-text", '{"text": "You"}', BotLLMTextData(text="You")),
    ("tts-raw-text", '{"text": "You"}', BotTTSTextData(text="You")),
    (
        "bot-llm-marker",
        '{"text": "●", "kind": "complete", "raw": "● Hi.", "markers": []}',
        BotLLMMarkerData(text="●", kind="complete", raw="● Hi.", markers=()),
    ),
    ("user-audio-level", '{"value": 0.9595}', AudioLevelData(value=0.9595)),
    ("bot-audio-level", '{"value": 0.9585000000000001}', AudioLevelData(value=0.9585000000000001)),
    ("server-message", '{"any": ["json", 1, null]}', {"any": ["json", 1, None]}),
    ("server-message", '"just a string"', "just a string"),
    (
        "llm-function-call-started",
        '{"function_name": "get_weather"}',
        LLMFunctionCallStartedData(function_name="get_weather"),
    ),
    ("llm-function-call-started", "{}", LLMFunctionCallStartedData(function_name=None)),
    (
        "llm-function-call-in-progress",
        '{"tool_call_id": "call_1", "function_name": "get_weather", "arguments": {"city": "Oslo"}}',
        LLMFunctionCallInProgressData(tool_call_id="call_1", function_name="get_weather", arguments={"city": "Oslo"}),
    ),
    (
        "llm-function-call-stopped",
        '{"tool_call_id": "call_1", "cancelled": false, "function_name": "get_weather", "result": {"conditions":'
        ' "sunny", "temperature": 21, "city": "Oslo"}}',
        LLMFunctionCallStoppedData(
            tool_call_id="call_1",
            cancelled=False,
            function_name="get_weather",
            result={"conditions": "sunny", "temperature": 21, "city": "Oslo"},
        ),
    ),
    (
        "llm-function-call-stopped",
        '{"tool_call_id": "call_6", "cancelled": true, "function_name": "slow_tool"}',
        LLMFunctionCallStoppedData(tool_call_id="call_6", cancelled=True, function_name="slow_tool", result=None),
    ),
    (
        "llm-function-call",
        '{"function_name": "client_tool", "tool_call_id": "call_7", "args": {"q": 1}}',
        LLMFunctionCallData(function_name="client_tool", tool_call_id="call_7", arguments={"q": 1}),
    ),
    (
        "ui-command",
        '{"command": "toast", "payload": {"title": "Saved", "duration_ms": 1500}}',
        UICommandData(command="toast", payload={"title": "Saved", "duration_ms": 1500}),
    ),
    (
        "ui-job-group",
        '{"kind": "group_started", "job_id": "job-1", "workers": ["a", "b"], "label": "research", "cancellable":'
        ' true, "at": 1}',
        UIJobGroupStartedEnvelope(
            kind="group_started", job_id="job-1", workers=("a", "b"), label="research", cancellable=True, at=1
        ),
    ),
    (
        "ui-job-group",
        '{"kind": "job_update", "job_id": "job-1", "worker_name": "a", "data": {"progress": 0.5}, "at": 2}',
        UIJobUpdateEnvelope(kind="job_update", job_id="job-1", worker_name="a", data={"progress": 0.5}, at=2),
    ),
    (
        "ui-job-group",
        '{"kind": "job_completed", "job_id": "job-1", "worker_name": "a", "status": "completed", "response": {"ok":'
        ' true}, "at": 3}',
        UIJobCompletedEnvelope(
            kind="job_completed", job_id="job-1", worker_name="a", status="completed", response={"ok": True}, at=3
        ),
    ),
    (
        "ui-job-group",
        '{"kind": "group_completed", "job_id": "job-1", "at": 5}',
        UIJobGroupCompletedEnvelope(kind="group_completed", job_id="job-1", at=5),
    ),
    (
        "metrics",
        '{"ttfb": [{"processor": "ScriptedLLM#0", "model": "scripted-llm", "value": 0.25}], "processing":'
        ' [{"processor": "ScriptedLLM#0", "model": "scripted-llm", "value": 0.5}], "tokens": [{"prompt_tokens": 10,'
        ' "completion_tokens": 5, "total_tokens": 15, "cache_read_input_tokens": 2}], "characters": [{"processor":'
        ' "ToneTTS#0", "model": "tone-tts", "value": 42}]}',
        PipecatMetricsData(
            ttfb=(PipecatMetricData(processor="ScriptedLLM#0", model="scripted-llm", value=0.25),),
            processing=(PipecatMetricData(processor="ScriptedLLM#0", model="scripted-llm", value=0.5),),
            tokens=(
                LLMTokenUsageData(prompt_tokens=10, completion_tokens=5, total_tokens=15, cache_read_input_tokens=2),
            ),
            characters=(PipecatMetricData(processor="ToneTTS#0", model="tone-tts", value=42),),
        ),
    ),
    (
        "metrics",
        '{"ttfat": [{"processor": "ScriptedLLM#3", "model": "scripted-llm", "ttfat": 7.2e-05, "ttfb": 9.1e-06,'
        ' "thinking_time": 6.2e-05}]}',
        PipecatMetricsData(
            ttfat=(
                TTFATMetricData(
                    processor="ScriptedLLM#3",
                    model="scripted-llm",
                    ttfat=7.2e-05,
                    ttfb=9.1e-06,
                    thinking_time=6.2e-05,
                ),
            )
        ),
    ),
    ("metrics", "{}", PipecatMetricsData()),
    (
        "system-log",
        '{"text": "2026-11-20 03:42:23.884 | DEBUG    | ...\\n"}',
        SystemLogData(text="2026-11-20 03:42:23.884 | DEBUG    | ...\n"),
    ),
    ("error", '{"error": "scripted error", "fatal": false}', ErrorData(message="scripted error", fatal=False)),
    ("error", '{"error": "it broke", "fatal": true}', ErrorData(message="it broke", fatal=True)),
    ("server-response", '{"t": "ping", "d": {"pong": {"a": 1}}}', ServerResponseData(t="ping", d={"pong": {"a": 1}})),
    ("server-response", '{"t": "null"}', ServerResponseData(t="null", d=None)),
    ("error-response", '{"error": "no way"}', ErrorData(message="no way")),
    # Protocol 1.0 (pipecat-ai 0.0.85) and 0.3 (0.0.73)
    ("bot-ready", '{"version": "1.0.0"}', BotReadyData(version="1.0.0", config=None)),
    (
        "bot-ready",
        '{"version": "0.3.0", "config": ' + LEGACY_CONFIG_JSON + "}",
        BotReadyData(version="0.3.0", config=LEGACY_CONFIG),
    ),
    ("config", '{"config": ' + LEGACY_CONFIG_JSON + "}", ConfigData(config=LEGACY_CONFIG)),
    (
        "config-available",
        '{"config": [{"name": "vad", "options": [{"name": "params", "type": "object"}]}, {"name": "llm", "options":'
        ' [{"name": "model", "type": "string"}]}]}',
        ConfigAvailableData(
            config=(
                ConfigDescription(service="vad", options=(OptionDescription(name="params", type="object"),)),
                ConfigDescription(service="llm", options=(OptionDescription(name="model", type="string"),)),
            )
        ),
    ),
    (
        "actions-available",
        '{"actions": [{"service": "llm", "action": "get_context", "arguments": [], "result": "array"}, {"service":'
        ' "llm", "action": "run", "arguments": [{"name": "interrupt", "type": "bool"}], "result": "bool"}]}',
        ActionsAvailableData(
            actions=(
                ActionDescription(service="llm", action="get_context", arguments=(), result="array"),
                ActionDescription(
                    service="llm",
                    action="run",
                    arguments=(OptionDescription(name="interrupt", type="bool"),),
                    result="bool",
                ),
            )
        ),
    ),
    ("action-response", '{"result": true}', ActionResponseData(result=True)),
    (
        "error-response",
        '{"error": "Action llm:nosuch not registered"}',
        ErrorData(message="Action llm:nosuch not registered"),
    ),
    ("storage-item-stored", '{"action": "append", "items": [1]}', StorageItemStoredData(action="append", items=[1])),
]


def decode(type: str, data: Any) -> Any:
    return decode_payload(INBOUND[type], data)


def check_hostile(type: str, data: Any) -> None:
    """Asserts that the data has one of the two outcomes that there are."""
    try:
        payload = decode(type, data)
    except ProtocolError as error:
        payload = error
    cls = INBOUND[type].payload
    if isinstance(payload, ProtocolError):
        assert str(payload).startswith(f"{type}: data")
    elif cls is None:
        assert payload is data
    else:
        assert isinstance(payload, cls)


@pytest.mark.parametrize(("type", "text", "expected"), EXAMPLES)
def test_what_bots_were_seen_to_send(type: str, text: str, expected: Any) -> None:
    """Every message seen on the wire decodes into its class, with each value in its place."""
    payload = decode(type, json.loads(text) if text else None)
    assert payload == expected
    assert payload.__class__ is expected.__class__
    if isinstance(payload, Payload):
        assert payload.extra == {}


# The table


@pytest.mark.parametrize("spec", [*INBOUND.values(), *OUTBOUND.values()], ids=lambda spec: spec.type)
def test_rows_are_sound(spec: MessageSpec) -> None:
    """An inbound row has an event, an outbound one has none; a message begins before it ends."""
    assert (spec.event is not None) == (spec.direction == "in")
    assert spec.feature
    assert spec.since is None or spec.until is None or spec.since < spec.until


@pytest.mark.parametrize("type", INBOUND)
def test_the_wire_type_names_its_event(type: str) -> None:
    """Wherever an event is named, the wire type that causes it does."""
    assert event_from(type) is INBOUND[type].event


def test_no_two_inbound_types_share_an_event() -> None:
    """A handler of an event gets payloads of one class."""
    assert len({spec.event for spec in INBOUND.values()}) == len(INBOUND)


def test_the_table_cannot_be_changed() -> None:
    """The table is shared by all clients of the process."""
    with pytest.raises(TypeError):
        INBOUND["x"] = INBOUND["error"]  # type: ignore[index]


# Decoding


@pytest.mark.parametrize(
    ("type", "data", "message"),
    [
        ("bot-output", {"text": 1}, "bot-output: data.text: expected str, got int"),
        ("bot-output", {}, "bot-output: data.text: expected str, got nothing"),
        ("bot-output", {"text": None}, "bot-output: data.text: expected str, got null"),
        ("bot-output", [], "bot-output: data: expected dict, got list"),
        ("bot-output", None, "bot-output: data.text: expected str, got nothing"),
        ("bot-output", {"text": "", "segment_id": True}, "bot-output: data.segment_id: expected int, got bool"),
        ("bot-output", {"text": "", "segment_id": 1.0}, "bot-output: data.segment_id: expected int, got float"),
        (
            "bot-output",
            {"text": "", "spoken_progress": {"accumulated_text": ""}},
            "bot-output: data.spoken_progress.remaining_text: expected str, got nothing",
        ),
        ("bot-audio-level", {"value": True}, "bot-audio-level: data.value: expected float, got bool"),
        ("metrics", {"ttfb": {}}, "metrics: data.ttfb: expected list, got dict"),
        ("metrics", {"ttfb": [{"value": 1}, None]}, "metrics: data.ttfb[1]: expected dict, got null"),
        ("metrics", {"ttfb": [{"value": 1}, {"value": ""}]}, "metrics: data.ttfb[1].value: expected float, got str"),
        ("bot-llm-marker", {"text": "", "markers": ["a", 1]}, "bot-llm-marker: data.markers[1]: expected str, got int"),
        ("error", {"error": {"code": 1}}, "error: data.error: expected str, got dict"),
        ("error", {"message": 1}, "error: data.message: expected str, got int"),
        (
            "llm-function-call",
            {"tool_call_id": "1", "args": []},
            "llm-function-call: data.args: expected dict, got list",
        ),
        ("ui-job-group", {"kind": ["group_started"]}, "ui-job-group: data.kind: expected str, got list"),
        (
            "ui-job-group",
            {"kind": "job_update", "job_id": "1"},
            "ui-job-group: data.worker_name: expected str, got nothing",
        ),
        ("ui-job-group", "group_started", "ui-job-group: data: expected dict, got str"),
        (
            "config",
            {"config": [{"service": "a", "options": [{}]}]},
            "config: data.config[0].options[0].name: expected str, got nothing",
        ),
    ],
)
def test_errors_name_type_and_path(type: str, data: Any, message: str) -> None:
    """What does not fit is told by type, path, and what was expected there."""
    with pytest.raises(ProtocolError) as caught:
        decode(type, data)
    assert str(caught.value) == message


def test_errors_do_not_quote_what_was_received() -> None:
    """A value of the bot, however long or secret, stays out of the error."""
    with pytest.raises(ProtocolError) as caught:
        decode("bot-llm-text", {"text": ["secret" * 100_000]})
    assert str(caught.value) == "bot-llm-text: data.text: expected str, got list"


def test_unknown_fields_are_kept() -> None:
    """Fields that a class does not know are in `.extra` of the object that they were in."""
    payload = decode("bot-ready", {"version": "2.9.0", "mood": None, "about": {"library": "x", "built": [1]}})
    assert payload.extra == {"mood": None}
    assert payload.about.extra == {"built": [1]}


def test_a_field_called_extra_is_just_another_unknown_one() -> None:
    """A bot cannot replace `.extra`."""
    assert decode("bot-llm-text", {"text": "a", "extra": 1}).extra == {"extra": 1}


def test_null_means_absent() -> None:
    """An optional field that is null has its default."""
    nulls = {"version": None, "about": None, "capabilities": {"audio_in": None}, "config": None}
    assert decode("bot-ready", nulls) == BotReadyData()
    assert decode("llm-function-call", {"tool_call_id": "1", "args": None}).arguments == {}


def test_absent_data_is_an_empty_object() -> None:
    """Where nothing is required, a message without data has a payload of defaults."""
    assert decode("metrics", None) == PipecatMetricsData()
    assert decode("error", None) == ErrorData(message="", fatal=False)


def test_a_json_integer_is_a_float_of_any_size() -> None:
    """JSON writes 1.0 as 1; even an integer that no float can hold is no error."""
    assert decode("bot-audio-level", {"value": 1}).value == 1
    assert decode("bot-audio-level", {"value": 10**400}).value == 10**400


@pytest.mark.parametrize(
    ("data", "text", "extra"),
    [
        ({"error": "a"}, "a", {}),
        ({"message": "b"}, "b", {}),
        ({"error": None, "message": "b"}, "b", {}),
        ({"error": "a", "message": "b"}, "a", {"message": "b"}),
        ({"error": "", "message": "b"}, "", {"message": "b"}),
    ],
)
def test_the_text_of_an_error_has_two_names(data: Any, text: str, extra: Any) -> None:
    """Servers write `error`, client-js reads `message`; the other one is not lost if both are there."""
    assert decode("error", data) == decode("error-response", data) == ErrorData(message=text, extra=extra)


def test_function_call_arguments_have_two_names() -> None:
    """The wire calls the arguments of a call `args`, those of every other message `arguments`."""
    for name in ("args", "arguments"):
        assert decode("llm-function-call", {"tool_call_id": "1", name: {"q": 1}}).arguments == {"q": 1}


@pytest.mark.parametrize("name", ["output_type", "text_type", "aggregated_by"])
def test_output_type_of_any_bot(name: str) -> None:
    """Whatever a bot's version calls it, `.output_type` has it, and unknown fields beside it are kept."""
    payload = decode("bot-output", {"text": "a", name: "code", "new": 1})
    assert payload.output_type == getattr(payload, name) == "code"
    assert payload.extra == {"new": 1}


def test_an_unknown_kind_of_job_group_message() -> None:
    """A kind that is not known yet keeps what it has beyond the common fields."""
    data = {"kind": "job_paused", "job_id": "1", "at": 2, "worker_name": "a"}
    assert decode("ui-job-group", data) == UIJobGroupData(
        kind="job_paused", job_id="1", at=2, extra={"worker_name": "a"}
    )


def test_a_search_response_keeps_its_sources() -> None:
    """Objects in arrays in objects in arrays are typed all the way down."""
    data = {"origins": [{"site_uri": "https://a.example", "results": [{"text": "x", "confidence": [0.5, 1]}]}]}
    result = LLMSearchResult(text="x", confidence=(0.5, 1))
    assert decode("bot-llm-search-response", data) == BotLLMSearchResponseData(
        origins=(LLMSearchOrigin(site_uri="https://a.example", results=(result,)),)
    )


def test_what_has_no_class_is_handed_over_as_it_came() -> None:
    """The data of a server message is not copied; a message without data has None."""
    data = {"any": object()}
    assert decode("server-message", data) is data
    assert decode("server-message", None) is None


@pytest.mark.parametrize("type", INBOUND)
def test_endless_nesting(type: str) -> None:
    """Nesting far beyond Python's recursion limit is decoded or refused like anything else."""
    deep: Any = "x"
    for _ in range(100_000):
        deep = [{"text": deep}]
    fields = ("text", "config", "ttfb", "about", "spoken_progress", "d", "result", "args", "unknown")
    check_hostile(type, deep)
    check_hostile(type, dict.fromkeys(fields, deep))


@pytest.mark.parametrize(
    ("annotation", "message"),
    [(set, "no JSON can mean"), (int | str, "no JSON can mean"), (Any, "needs a default")],
)
def test_a_class_that_json_cannot_mean_is_refused_at_import(annotation: Any, message: str) -> None:
    """A mistake in a payload class shows when its decoder is made, not when a message comes."""
    cls = attrs.frozen(kw_only=True)(type("Odd", (Payload,), {"__annotations__": {"odd": annotation}}))
    with pytest.raises(TypeError, match=message):
        decoder_of(cls)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(type=st.sampled_from(sorted(INBOUND)), data=JSON)
def test_any_json_decodes_or_is_refused(type: str, data: Any) -> None:
    """Whatever JSON a bot sends as data, the outcome is a payload or a `ProtocolError`."""
    check_hostile(type, data)


@given(
    example=st.sampled_from([example[:2] for example in EXAMPLES if example[1]]),
    value=JSON,
    choices=st.data(),
)
def test_a_real_message_with_anything_in_it_decodes_or_is_refused(
    example: tuple[str, str], value: Any, choices: st.DataObject
) -> None:
    """A real message in which any one part is replaced by any JSON never has another outcome either."""
    root = {"data": json.loads(example[1])}
    container: Any = root
    key: Any = "data"
    while isinstance(container[key], (dict, list)) and container[key] and choices.draw(st.booleans()):
        container = container[key]
        keys = sorted(container) if isinstance(container, dict) else range(len(container))
        key = choices.draw(st.sampled_from(keys))
    container[key] = value
    before = copy.deepcopy(root)
    check_hostile(example[0], root["data"])
    assert repr(root) == repr(before)


# Versions


@pytest.mark.parametrize(
    ("type", "first", "last_before"),
    [
        ("client-message", "1.0.0", "0.3.0"),
        ("send-text", "1.0.0", "0.3.0"),
        ("append-to-context", "1.0.0", "0.3.0"),
        ("ui-event", "1.3.0", "1.2.0"),
        ("ui-snapshot", "1.3.0", "1.2.0"),
        ("ui-cancel-job-group", "1.4.0", "1.3.0"),
        ("dtmf", "2.0.0", "1.4.0"),
        ("send-file", "2.2.0", "2.1.0"),
    ],
)
def test_what_a_bot_does_not_know_yet(type: str, first: str, last_before: str) -> None:
    """A type passes from the version on that brought it; before, the error says feature, need and the bot's version."""
    require_feature(type, first)
    with pytest.raises(UnsupportedFeatureError) as caught:
        require_feature(type, last_before)
    assert caught.value.feature == type
    assert f"RTVI {first[:3]} or later; this one speaks {last_before}." in str(caught.value)


@pytest.mark.parametrize(
    ("type", "feature"),
    [
        ("describe-config", "config"),
        ("get-config", "config"),
        ("update-config", "config"),
        ("describe-actions", "actions"),
        ("action", "actions"),
        ("append-to-context", "append-to-context"),
    ],
)
def test_what_a_bot_no_longer_knows(type: str, feature: str) -> None:
    """Config and actions pass up to 1.x and are refused from 2.0 on."""
    require_feature(type, "1.4.0")
    for version in ("2.0.0", "2.2.0", "3.0.0"):
        with pytest.raises(UnsupportedFeatureError) as caught:
            require_feature(type, version)
        assert caught.value.feature == feature
        assert f"before 2.0; this one speaks {version}." in str(caught.value)


@pytest.mark.parametrize("type", ["client-ready", "disconnect-bot", "llm-function-call-result", "raw-audio", "my-own"])
@pytest.mark.parametrize("version", ["0.3.0", "1.0.0", "2.2.0", "3.0.0"])
def test_what_every_bot_may_get(type: str, version: str) -> None:
    """The basic types pass for every bot, and so do types of the application's own."""
    require_feature(type, version)


@pytest.mark.parametrize("type", [row.type for row in OUTBOUND.values() if row.until is None])
def test_a_future_bot_knows_what_is_not_known_to_be_gone(type: str) -> None:
    """Nothing that is current is refused to a bot of a later version."""
    for version in ("2.10.0", "3.0.0", "10.0.0-rc.1"):
        require_feature(type, version)


@pytest.mark.parametrize(
    "version", [None, "", "abc", "2", "v2.0.0", "0.3.0\n", "0.3.0;", "9" * 10_000 + ".0", "0.3.\x1b[31m"]
)
@pytest.mark.parametrize("type", ["dtmf", "update-config"])
def test_an_unknown_version_passes(type: str, version: str | None) -> None:
    """Without a version that makes sense nobody knows what the bot knows, so it is asked."""
    require_feature(type, version)


def test_minor_versions_are_numbers() -> None:
    """2.10 is later than 2.2."""
    require_feature("send-file", "2.10")
    with pytest.raises(UnsupportedFeatureError):
        require_feature("send-file", "2.1")
