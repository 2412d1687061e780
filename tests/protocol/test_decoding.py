"""Payloads decoded from messages: some seen from bots, and some that no sane bot would send."""

from __future__ import annotations

import copy
import json
import pickle
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtvi_sync.errors import ProtocolError
from rtvi_sync.messages import (
    AboutBotData,
    ActionDescription,
    ActionResponseData,
    ActionsAvailableData,
    AudioLevelData,
    BotCapabilities,
    BotLLMMarkerData,
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
    UIJobGroupStartedEnvelope,
    UIJobUpdateEnvelope,
    UserInputData,
    UserLLMTextData,
)
from rtvi_sync.protocol.decoding import ANY_SHAPE, MismatchError, decoder_of, sent_as
from rtvi_sync.protocol.dialects import INBOUND, decode_payload

pytestmark = pytest.mark.inside

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

# Type, data as seen from bots ("" if the message has none), and the decoded payload.
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


def check_hostile(type: str, data: Any) -> None:
    """Assert that the data has one of the two possible outcomes."""
    try:
        payload = decode_payload(INBOUND[type], data)
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
    payload = decode_payload(INBOUND[type], json.loads(text) if text else None)
    assert payload == expected
    assert payload.__class__ is expected.__class__
    if isinstance(payload, Payload):
        assert payload.extra == {}


@pytest.mark.parametrize("type", INBOUND)
def test_endless_nesting(type: str) -> None:
    """Nesting far beyond Python's recursion limit is decoded or refused like anything else."""
    deep: Any = "x"
    for _ in range(10_000):
        deep = [{"text": deep}]
    fields = ("text", "config", "ttfb", "about", "spoken_progress", "d", "result", "args", "unknown")
    check_hostile(type, deep)
    check_hostile(type, dict.fromkeys(fields, deep))


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


def test_extra_is_made_when_it_is_asked_for() -> None:
    """A payload without unknown fields has its own `extra` like any other, and keeps its value."""
    one, other = (decode_payload(INBOUND["user-transcription"], {"text": "a", "final": True}) for _ in range(2))
    assert copy.copy(one) == pickle.loads(pickle.dumps(one)) == other
    assert one.extra == {}
    one.extra["note"] = 1
    assert one.extra == {"note": 1}
    assert other.extra == {}
    assert one != other
    assert attrs.asdict(other) == {"text": "a", "final": True, "timestamp": "", "user_id": "", "extra": {}}
    with pytest.raises(AttributeError, match="'TranscriptData' object has no attribute 'txt'"):
        _ = one.txt


# By the fields of a class


@attrs.frozen(kw_only=True)
class Line(Payload):
    """One line of an order."""

    size: int
    note: str = ""


@attrs.frozen(kw_only=True)
class Order(Payload):
    """A message with a field of each kind."""

    text: str
    count: int = 0
    share: float = 0.5
    is_paid: bool = False
    name: str = attrs.field(default="none", metadata=sent_as("name", "title", "label"))
    options: dict[str, Any] = attrs.field(factory=dict)
    line: Line | None = None
    lines: tuple[Line, ...] = ()
    words: tuple[str, ...] = ()
    odd: tuple[Line, ...] = attrs.field(default=(), metadata=ANY_SHAPE)


for payload_class in (Line, Order):
    attrs.resolve_types(payload_class, globals())  # the annotations of this module are strings
decode_order = decoder_of(Order)


@pytest.mark.parametrize("value", [True, 1.0, "1", [1], {}], ids=repr)
def test_a_json_integer_is_nothing_else(value: Any) -> None:
    """A field of the type int takes no other JSON, and the error gives its path and the wrong value."""
    with pytest.raises(MismatchError, match=rf"\.count: expected int, got {type(value).__name__}"):
        decode_order({"text": "", "count": value})


def test_a_json_number_is_any_number() -> None:
    """A field of the type float takes integers, as received, and no boolean."""
    order = decode_order({"text": "", "share": 1})
    assert (order.share, type(order.share)) == (1, int)
    with pytest.raises(MismatchError, match=r"\.share: expected float, got bool"):
        decode_order({"text": "", "share": True})


@pytest.mark.parametrize(("data", "got"), [({}, "nothing"), ({"text": None}, "null")])
def test_a_required_field_is_neither_absent_nor_null(data: Any, got: str) -> None:
    """A field without a default must be there."""
    with pytest.raises(MismatchError, match=rf"\.text: expected str, got {got}"):
        decode_order(data)


def test_an_optional_field_may_be_absent_or_null() -> None:
    """A field with a default has it if the message has none, and a new object each time."""
    names = [field.name for field in attrs.fields(Order) if field.name not in ("text", "extra")]
    absent, null = decode_order({"text": "a"}), decode_order({"text": "a", **dict.fromkeys(names)})
    assert absent == null == Order(text="a")
    absent.options["key"] = 1
    assert null.options == decode_order({"text": "a"}).options == {}


@pytest.mark.parametrize(
    ("data", "path"),
    [
        ({"line": {}}, ".line.size: expected int, got nothing"),
        ({"line": {"size": 1, "note": 2}}, ".line.note: expected str, got int"),
        ({"lines": [{"size": 1}, 2]}, ".lines[1]: expected dict, got int"),
        ({"lines": [{"size": 1}, {"size": "2"}]}, ".lines[1].size: expected int, got str"),
        ({"lines": {}}, ".lines: expected list, got dict"),
        ({"words": ["a", 1]}, ".words[1]: expected str, got int"),
    ],
)
def test_an_error_has_the_whole_path(data: dict[str, Any], path: str) -> None:
    """The error of a part names its place from the message on."""
    with pytest.raises(MismatchError) as caught:
        decode_order({"text": "", **data})
    assert str(caught.value) == path


def test_a_field_has_the_first_name_that_is_not_null() -> None:
    """A field may be sent by several names, none of which is unknown then."""
    for data, name in (
        ({"title": "b", "label": "c"}, "b"),
        ({"name": None, "title": "b"}, "b"),
        ({"name": "a"}, "a"),
        ({"label": "c"}, "c"),
    ):
        order = decode_order({"text": "", **data})
        assert order.name == name
    assert decode_order({"text": "", "label": "c"}).extra == {}
    assert decode_order({"text": "", "name": "a", "label": "c"}).extra == {"label": "c"}


@pytest.mark.parametrize("odd", [1, "a", {}, [1], [{}], [{"size": "large"}], None], ids=repr)
def test_a_field_in_any_shape_is_no_error(odd: Any) -> None:
    """A field that bots fill as they like counts as absent in any shape but its own."""
    assert decode_order({"text": "", "odd": odd}).odd == ()
    assert decode_order({"text": "", "odd": [{"size": 1}]}).odd == (Line(size=1),)


def test_unknown_fields_are_kept() -> None:
    """Unknown fields are in `extra`, whether or not the message has all of the known ones."""
    whole: dict[str, Any] = {"text": "", "count": 1, "share": 0.1, "is_paid": True, "name": "a", "options": {}}
    whole |= {"line": {"size": 1, "own": 2}, "lines": [], "words": ["a"], "odd": []}
    for data in ({"text": ""}, whole, {**whole, "count": None}):
        assert decode_order(data).extra == {}
        assert decode_order({**data, "own": 1, "other": None}).extra == {"own": 1, "other": None}
    assert decode_order(whole).line.extra == {"own": 2}
    assert decode_order({**whole, "line": {"size": 1, "note": "", "own": 2}}).line.extra == {"own": 2}
    lacking = {name: value for name, value in whole.items() if name != "count"}
    assert decode_order({**lacking, "own": 1}).extra == {"own": 1}
