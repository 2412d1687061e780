"""Every message of the protocol, sent by a real bot of its generation, is the typed event that programs get."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rtvi_sync import Event, RTVIEvent
from rtvi_sync.messages import (
    ActionResponseData,
    AppendToContextResultData,
    BotCapabilities,
    BotLLMMarkerData,
    BotLLMSearchResponseData,
    BotOutputData,
    BotTTSAudioData,
    ErrorData,
    LLMFunctionCallData,
    LLMFunctionCallInProgressData,
    LLMFunctionCallStartedData,
    LLMFunctionCallStoppedData,
    LLMSearchOrigin,
    LLMSearchResult,
    LLMTokenUsageData,
    PipecatMetricData,
    PipecatMetricsData,
    ServerResponseData,
    StorageItemStoredData,
    STTUsageData,
    STTUsageMetricData,
    TTFAMetricData,
    TTFATMetricData,
    UICommandData,
    UIJobCompletedEnvelope,
    UIJobGroupCompletedEnvelope,
    UIJobGroupStartedEnvelope,
    UIJobUpdateEnvelope,
)
from rtvi_sync.protocol.dialects import INBOUND, MessageSpec
from tests.pipecat.clients import message_of
from tests.pipecat.conftest import Shared

from .showing import KINDS, show_everything

pytestmark = pytest.mark.inside

# Pipecat -> the protocol version that it speaks
PROTOCOLS = {"1.14.0": (2, 2), "0.0.108": (1, 2), "0.0.73": (0, 3)}
# Messages that a version knows by the dialect table, and that its bot does not send.
_NEEDS_GOOGLE = "its observer of searches needs Google's packages"
UNSENT = {
    ("bot-llm-search-response", "0.0.108"): _NEEDS_GOOGLE,
    ("bot-llm-search-response", "0.0.73"): _NEEDS_GOOGLE,
}
# Types that none of these bots has.
UNSHOWN = {"ui-task": "only Pipecat 1.2 (RTVI 1.3) sends it: test_interim.py, with `run.py test --matrix`"}
# Types that Pipecat has no class for: an application sends them, by Pipecat's own frame for messages.
BY_HAND = {"append-to-context-result", "llm-json-completion", "storage-item-stored"}


@pytest.fixture(scope="module")
def shown(shared_bots: Shared) -> Callable[[str], list[Event]]:
    """Return `shown(version)`, which returns the events of a session in which that Pipecat showed everything."""
    sessions: dict[str, list[Event]] = {}

    def events_of(version: str) -> list[Event]:
        if version not in sessions:
            sessions[version] = show_everything(shared_bots.server(KINDS[version]), version)
        return sessions[version]

    return events_of


def knows(version: str, spec: MessageSpec) -> bool:
    """Return whether a Pipecat knows a message, by the dialect table."""
    protocol = PROTOCOLS[version]
    return (spec.since is None or protocol >= spec.since) and (spec.until is None or protocol < spec.until)


def tell_messages(counts: Counter[Any]) -> Iterator[str]:
    """Yield the table of the summary: which message which bot showed."""
    yield f"Messages that real bots showed   {''.join(f'{version:>10}' for version in PROTOCOLS)}"
    for type_ in INBOUND:
        states = {version: state for type_of_row, version, state in counts if type_of_row == type_}
        cells = "".join(f"{states.get(version, ''):>10}" for version in PROTOCOLS)
        yield f"  {type_:<31}{cells}  {'by hand' if type_ in BY_HAND else UNSHOWN.get(type_, '')}".rstrip()
    yield "  seen: as a typed event; -: not in this version; no: the bot cannot send it"


@pytest.mark.parametrize("version", PROTOCOLS)
def test_every_message(version: str, shown: Callable[[str], list[Event]], show_table: Callable[..., None]) -> None:
    """A bot shows every message that the dialect table says it has, and no other; each is an event of its class."""
    events = [event for event in shown(version) if event.message is not None]
    table: Counter[Any] = Counter()
    for type_, spec in INBOUND.items():
        of_type = [event for event in events if message_of(event).type == type_]
        state = "seen" if of_type else "no" if (type_, version) in UNSENT else "-"
        table[type_, version, state] += 1
        for event in of_type:
            assert event.type in {spec.event, RTVIEvent.CONFIG_UPDATED}
            if spec.payload is not None:
                assert isinstance(event.data, spec.payload)
                assert not event.data.extra, f"{type_} has fields that {spec.payload.__name__} has not"
    show_table(tell_messages, table)

    seen = {type_ for type_, _, state in table if state == "seen"}
    expected = {type_ for type_, spec in INBOUND.items() if knows(version, spec) and (type_, version) not in UNSENT}
    assert seen == expected
    assert RTVIEvent.UNKNOWN_MESSAGE not in {event.type for event in events}


def test_no_message_is_left_out() -> None:
    """Each message of the dialect table is known by one of the bots at least, or cannot be shown, for a reason."""
    known = {t for t, spec in INBOUND.items() for v in PROTOCOLS if knows(v, spec) and (t, v) not in UNSENT}
    assert known | set(UNSHOWN) == set(INBOUND)
    assert not known & set(UNSHOWN)


_E = RTVIEvent
_USAGE = LLMTokenUsageData(prompt_tokens=10, completion_tokens=5, total_tokens=15, cache_read_input_tokens=2)
_PASSAGE = LLMSearchResult(text="a passage", confidence=(0.5, 0.75))
_ORIGIN = LLMSearchOrigin(site_uri="https://example.org", site_title="Example", results=(_PASSAGE,))
# The scenes of every bot, of bots of RTVI 1.x and later, and of each bot alone
EVERY = [
    (
        _E.METRICS,
        PipecatMetricsData(
            ttfb=(PipecatMetricData(processor="LLM#0", model="a model", value=0.25),),
            processing=(PipecatMetricData(processor="LLM#0", model="a model", value=0.5),),
            tokens=(_USAGE,),
            characters=(PipecatMetricData(processor="TTS#0", model="a voice", value=42),),
        ),
    ),
    (_E.METRICS, PipecatMetricsData()),
    *((_E.SERVER_MESSAGE, data) for data in ("a string", 0, False, None, [1, None], {"nested": {"key": "ä"}})),
    (_E.ERROR, ErrorData(message="a scripted error")),
    (_E.MESSAGE_ERROR, ErrorData(message="Unsupported type no-such-type")),
    (_E.BOT_TTS_AUDIO, BotTTSAudioData(audio="AAAA", sample_rate=16000, num_channels=1)),
]
LATER = [
    (_E.SERVER_RESPONSE, ServerResponseData(t="show", d=None)),
    (_E.LLM_FUNCTION_CALL_STARTED, LLMFunctionCallStartedData()),
    (_E.LLM_FUNCTION_CALL_STARTED, LLMFunctionCallStartedData(function_name="name")),
    (_E.LLM_FUNCTION_CALL_IN_PROGRESS, LLMFunctionCallInProgressData(tool_call_id="call_1")),
    (_E.LLM_FUNCTION_CALL_IN_PROGRESS, LLMFunctionCallInProgressData(tool_call_id="call_2", function_name="name")),
    (_E.LLM_FUNCTION_CALL_STOPPED, LLMFunctionCallStoppedData(tool_call_id="call_1")),
    (_E.LLM_FUNCTION_CALL_STOPPED, LLMFunctionCallStoppedData(tool_call_id="call_2", function_name="name")),
]


def called(number: int, name: str) -> list[tuple[RTVIEvent, Any]]:
    """Return the messages about a function call that is reported in full; the function returns its arguments."""
    id_, arguments = f"call_{number}", {"level": name}
    in_progress = LLMFunctionCallInProgressData(tool_call_id=id_, function_name=name, arguments=arguments)
    result = {"echo": arguments}
    return [
        (_E.LLM_FUNCTION_CALL_STARTED, LLMFunctionCallStartedData(function_name=name)),
        (_E.LLM_FUNCTION_CALL_IN_PROGRESS, in_progress),
        (_E.LLM_FUNCTION_CALL_STOPPED, LLMFunctionCallStoppedData(tool_call_id=id_, function_name=name, result=result)),
    ]


def handed_over(number: int) -> tuple[RTVIEvent, Any]:
    """Return the deprecated message, by which the bot leaves a function to the client."""
    data = LLMFunctionCallData(tool_call_id=f"call_{number}", function_name="old_client_tool", arguments={"q": 1})
    return _E.LLM_FUNCTION_CALL, data


OWN = {
    "1.14.0": [
        (
            _E.METRICS,
            PipecatMetricsData(
                ttfa=(TTFAMetricData(processor="TTS#0", ttfa=0.75, ttfb=0.5, leading_silence=0.25),),
                ttfat=(TTFATMetricData(processor="LLM#0", ttfat=1.5, ttfb=0.5, thinking_time=1.0),),
                stt_usage=(STTUsageMetricData(processor="STT#0", value=STTUsageData(audio_seconds=2.5)),),
            ),
        ),
        (
            _E.UI_JOB_GROUP,
            UIJobGroupStartedEnvelope(
                kind="group_started", job_id="job-1", at=1, workers=("a", "b"), label="research", cancellable=True
            ),
        ),
        (
            _E.UI_JOB_GROUP,
            UIJobUpdateEnvelope(kind="job_update", job_id="job-1", at=2, worker_name="a", data={"progress": 0.5}),
        ),
        (
            _E.UI_JOB_GROUP,
            UIJobCompletedEnvelope(
                kind="job_completed", job_id="job-1", at=3, worker_name="a", status="completed", response=[1]
            ),
        ),
        (_E.UI_JOB_GROUP, UIJobGroupCompletedEnvelope(kind="group_completed", job_id="job-1", at=4)),
        (_E.UI_COMMAND, UICommandData(command="toast", payload={"title": "Saved", "duration_ms": 1500})),
        (_E.UI_COMMAND, UICommandData(command="refresh")),
        (
            _E.BOT_LLM_SEARCH_RESPONSE,
            BotLLMSearchResponseData(search_result="an answer", rendered_content="<p>", origins=(_ORIGIN,)),
        ),
        (_E.BOT_LLM_MARKER, BotLLMMarkerData(text="●", kind="complete", raw="● Hi.", markers=("●", "◐", "○"))),
        (
            _E.LLM_FUNCTION_CALL_IN_PROGRESS,
            LLMFunctionCallInProgressData(
                tool_call_id="call_3", function_name="arguments", arguments={"level": "arguments"}
            ),
        ),
        (_E.LLM_FUNCTION_CALL_STOPPED, LLMFunctionCallStoppedData(tool_call_id="call_3", function_name="arguments")),
        *called(4, "full"),
        handed_over(5),
        (
            _E.LLM_FUNCTION_CALL_STOPPED,
            LLMFunctionCallStoppedData(tool_call_id="call_6", function_name="slow", cancelled=True),
        ),
    ],
    "0.0.108": [
        *called(3, "full"),
        handed_over(4),
        (_E.ACTION_RESPONSE, ActionResponseData(result=3)),
        (_E.APPEND_TO_CONTEXT_RESULT, AppendToContextResultData(result=True)),
    ],
    "0.0.73": [
        handed_over(2),
        (_E.LLM_FUNCTION_CALL_START, LLMFunctionCallStartedData(function_name="old_client_tool")),
        (_E.STORAGE_ITEM_STORED, StorageItemStoredData(action="append", items=[1])),
        (_E.LLM_JSON_COMPLETION, '{"key": "value"}'),
        (_E.ACTION_RESPONSE, ActionResponseData(result=3)),
    ],
}


@pytest.mark.parametrize("version", PROTOCOLS)
def test_values(version: str, shown: Callable[[str], list[Event]]) -> None:
    """Messages with known contents arrive with these contents, each in the attribute that is meant for it."""
    happened = [(event.type, event.data) for event in shown(version)]
    wanted = [*EVERY, *(LATER if PROTOCOLS[version] >= (1, 0) else []), *OWN[version]]
    # 0 is not False here, and the class counts too.
    assert [want for want in wanted if repr(want) not in map(repr, happened)] == []


def data_of(events: list[Event], event: RTVIEvent) -> list[Any]:
    """Return the data of the events of a type."""
    return [happened.data for happened in events if happened.type is event]


@pytest.mark.parametrize("version", PROTOCOLS)
def test_bot_ready(version: str, shown: Callable[[str], list[Event]]) -> None:
    """Each generation describes itself in bot-ready: its version, its library, its features, its config."""
    [ready] = data_of(shown(version), _E.BOT_READY)
    capabilities = {
        "1.14.0": BotCapabilities(
            audio_in=True, audio_out=True, video_in=False, screen_in=False, video_out=False, metrics=True
        )
    }
    assert ready.version == {"1.14.0": "2.2.0", "0.0.108": "1.2.0", "0.0.73": "0.3.0"}[version]
    assert ready.about.library_version == (version if version != "0.0.73" else None)
    assert ready.capabilities == capabilities.get(version, BotCapabilities())
    assert (ready.config is not None) == (version == "0.0.73")


def test_spoken_progress(shown: Callable[[str], list[Event]]) -> None:
    """RTVI 2: a segment's progress starts before the segment itself is new, and ends completed."""
    outputs: list[BotOutputData] = data_of(shown("1.14.0"), _E.BOT_OUTPUT)
    spoken = [output for output in outputs if output.text == "You said: hello bot."]
    assert [output.spoken_status for output in spoken] == ["in-progress", "new", *["in-progress"] * 2, "completed"]
    assert len({output.segment_id for output in spoken}) == 1
    assert {output.output_type for output in spoken} == {"sentence"}
    progress = [output.spoken_progress for output in spoken if output.spoken_status != "new"]
    words = [step.accumulated_text for step in progress if step is not None]
    assert words == ["You", "You said:", "You said: hello", "You said: hello bot."]
    assert progress[-1] is not None
    assert progress[-1].remaining_text == ""
    assert (outputs[-1].text, outputs[-1].will_be_spoken) == ("You said: Stop.", False)
    assert (outputs[-1].spoken_status, outputs[-1].spoken_progress) == ("new", None)


def test_output_of_words(shown: Callable[[str], list[Event]]) -> None:
    """RTVI 1: a sentence arrives once, unspoken, and then each of its words when it is spoken."""
    outputs: list[BotOutputData] = data_of(shown("0.0.108"), _E.BOT_OUTPUT)
    assert [(o.text, o.output_type, o.spoken) for o in outputs[:5]] == [
        ("You said: hello bot.", "sentence", False),
        *((word, "word", True) for word in ("You", "said:", "hello", "bot.")),
    ]


@pytest.mark.parametrize("version", PROTOCOLS)
def test_texts(version: str, shown: Callable[[str], list[Event]]) -> None:
    """The user's words arrive first in part, the bot's in tokens, and raw texts are the same."""
    events = shown(version)
    spoken = [(data.text, data.final) for data in data_of(events, _E.USER_TRANSCRIPT)]
    assert spoken == [("hello", False), ("hello bot", True)]
    assert data_of(events, _E.USER_LLM_TEXT)[0].text == "hello bot"
    tokens = [data.text for data in data_of(events, _E.BOT_LLM_TEXT)]
    assert tokens[:4] == ["You", " said:", " hello", " bot."]
    assert data_of(events, _E.BOT_TRANSCRIPT)[0].text == "You said: hello bot."
    if version == "1.14.0":
        assert [(data.text, data.final) for data in data_of(events, _E.STT_RAW_TEXT)] == spoken
        assert [data.text for data in data_of(events, _E.LLM_RAW_TEXT)] == tokens
        assert data_of(events, _E.TTS_RAW_TEXT) == data_of(events, _E.BOT_TTS_TEXT)


def test_user_input(shown: Callable[[str], list[Event]]) -> None:
    """RTVI 2.2: the user's spoken, typed and murmured words (while the bot speaks) have kinds of their own."""
    inputs = data_of(shown("1.14.0"), _E.USER_INPUT)
    kinds = {data.input_type: data for data in inputs}
    assert [(data.text, data.final) for data in inputs[:2]] == [("hello", False), ("hello bot", True)]
    assert set(kinds) == {"transcription", "chat", "backchannel"}
    assert (kinds["chat"].text, kinds["chat"].final) == ("Stop", True)
    assert kinds["chat"].msg_id
    assert kinds["transcription"].msg_id is None
    assert (kinds["backchannel"].text, kinds["backchannel"].user_id) == ("mhm", "user-1")
    assert all(data.timestamp for data in inputs)


@pytest.mark.parametrize("version", ["1.14.0", "0.0.108"])
def test_audio_levels(version: str, shown: Callable[[str], list[Event]]) -> None:
    """Levels of the user and of the bot are between 0 and 1, and not 0 while they speak."""
    for event in _E.USER_AUDIO_LEVEL, _E.BOT_AUDIO_LEVEL:
        levels = [data.value for data in data_of(shown(version), event)]
        assert all(0 <= level <= 1 for level in levels)
        assert max(levels) > 0.1
