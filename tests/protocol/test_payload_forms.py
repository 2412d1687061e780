"""Messages that one version sends in another form than the next: the application gets one payload."""

from __future__ import annotations

from typing import Any

import pytest

from rtvi_sync.errors import ProtocolError
from rtvi_sync.messages import (
    AboutBotData,
    BotCapabilities,
    BotLLMSearchResponseData,
    BotOutputData,
    BotReadyData,
    BotTTSAudioData,
    ErrorData,
    LLMFunctionCallData,
    LLMFunctionCallInProgressData,
    LLMFunctionCallStartedData,
    LLMFunctionCallStoppedData,
    LLMSearchOrigin,
    LLMSearchResult,
    LLMTokenUsageData,
    PipecatMetricsData,
    SpokenProgressData,
    STTUsageData,
    STTUsageMetricData,
    TranscriptData,
    TTFAMetricData,
    UIJobCompletedEnvelope,
    UIJobGroupCompletedEnvelope,
    UIJobGroupData,
    UIJobGroupStartedEnvelope,
    UIJobUpdateEnvelope,
    UserInputData,
)
from rtvi_sync.protocol.dialects import INBOUND, decode_payload

pytestmark = pytest.mark.inside


def decode(type: str, data: Any) -> Any:
    return decode_payload(INBOUND[type], data)


# Output of the bot


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        # Pipecat 0.0.96 to 1.3.0, and later ones for a client of 1.x
        (
            {"text": "One two.", "spoken": False, "aggregated_by": "sentence"},
            BotOutputData(text="One two.", spoken=False, output_type="sentence", aggregated_by="sentence"),
        ),
        (
            {"text": "One", "spoken": True, "aggregated_by": "word"},
            BotOutputData(text="One", spoken=True, output_type="word", aggregated_by="word"),
        ),
        # Pipecat 1.4.0 to 1.12.0
        (
            {"text": "One two.", "aggregated_by": "sentence", "segment_id": 7, "will_be_spoken": False},
            BotOutputData(
                text="One two.",
                output_type="sentence",
                aggregated_by="sentence",
                segment_id=7,
                will_be_spoken=False,
            ),
        ),
        # Pipecat 1.13.0
        (
            {"text": "x = 1", "text_type": "code", "aggregated_by": "code", "spoken_status": "new"},
            BotOutputData(
                text="x = 1", output_type="code", text_type="code", aggregated_by="code", spoken_status="new"
            ),
        ),
        # the required minimum
        ({"text": ""}, BotOutputData(text="")),
    ],
)
def test_bot_output_of_every_version(data: Any, expected: BotOutputData) -> None:
    """The text's meaning has one name, and values missing in a version are None."""
    assert decode("bot-output", data) == expected


def test_the_first_progress_may_come_before_the_segment() -> None:
    """Each message about a segment says all of it, so that none has to be the first."""
    data = {
        "text": "One two.",
        "segment_id": 7,
        "spoken_status": "in-progress",
        "spoken_progress": {"accumulated_text": "One", "remaining_text": " two."},
    }
    output = decode("bot-output", data)
    assert output.spoken_progress == SpokenProgressData(accumulated_text="One", remaining_text=" two.")
    assert output.spoken_progress.accumulated_text + output.spoken_progress.remaining_text == output.text


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (
            {
                "search_result": "Sunny.",
                "rendered_content": "<b>Sunny.</b>",
                "origins": [
                    {
                        "site_uri": "https://weather.example",
                        "site_title": "Weather",
                        "results": [{"text": "sunny", "confidence": [0.9, 1]}],
                    }
                ],
            },
            BotLLMSearchResponseData(
                search_result="Sunny.",
                rendered_content="<b>Sunny.</b>",
                origins=(
                    LLMSearchOrigin(
                        site_uri="https://weather.example",
                        site_title="Weather",
                        results=(LLMSearchResult(text="sunny", confidence=(0.9, 1)),),
                    ),
                ),
            ),
        ),
        (
            {"search_result": None, "rendered_content": None, "origins": [{}, {"results": [{"text": ""}]}]},
            BotLLMSearchResponseData(origins=(LLMSearchOrigin(), LLMSearchOrigin(results=(LLMSearchResult(text=""),)))),
        ),
        ({}, BotLLMSearchResponseData()),
    ],
)
def test_search_responses(data: Any, expected: BotLLMSearchResponseData) -> None:
    """Whatever a search lacks is None, or an empty tuple."""
    assert decode("bot-llm-search-response", data) == expected


def test_speech_as_a_message() -> None:
    """Audio is mono unless the bot states otherwise."""
    assert decode("bot-tts-audio", {"audio": "AAAA", "sample_rate": 24000}) == BotTTSAudioData(
        audio="AAAA", sample_rate=24000, num_channels=1
    )


# Speech of the user


def test_a_transcription_of_which_nothing_more_is_known() -> None:
    """Text is enough: it is final, and has no user."""
    assert decode("user-transcription", {"text": "hi"}) == TranscriptData(
        text="hi", final=True, timestamp="", user_id=""
    )
    assert decode("user-input", {"text": "hi", "input_type": "chat"}) == UserInputData(
        text="hi", input_type="chat", final=True, timestamp="", user_id=None, msg_id=None
    )


# The bot itself


@pytest.mark.parametrize(
    ("about", "expected"),
    [
        (
            {"library": "pipecat-ai", "library_version": "1.14.0"},
            AboutBotData(library="pipecat-ai", library_version="1.14.0"),
        ),
        ({"name": "Ada", "library": 5}, AboutBotData(extra={"name": "Ada"})),
        ({}, AboutBotData()),
        (None, AboutBotData()),
        ("a text", AboutBotData()),
        (["x"], AboutBotData()),
    ],
)
def test_bots_say_about_themselves_what_they_like(about: Any, expected: AboutBotData) -> None:
    """The standard leaves `about` open, so that no `about` makes a bot-ready unreadable."""
    assert decode("bot-ready", {"version": "1.0.0", "about": about}) == BotReadyData(version="1.0.0", about=expected)


@pytest.mark.parametrize("capabilities", [5, "all", [], {"audio_in": "yes"}, {"audio_in": {"rates": [16000]}}])
def test_capabilities_of_another_shape(capabilities: Any) -> None:
    """Capabilities that cannot be understood are none told."""
    assert decode("bot-ready", {"capabilities": capabilities}).capabilities == BotCapabilities()


@pytest.mark.parametrize(
    ("data", "message", "fatal"),
    [
        ({"error": "it broke", "fatal": True}, "it broke", True),
        ({"message": "it broke", "fatal": True}, "it broke", True),
        ({"error": "it broke"}, "it broke", False),
        ({"message": "it broke"}, "it broke", False),
        ({}, "", False),
        (None, "", False),
    ],
)
def test_both_forms_of_an_error_are_decoded(data: Any, message: str, fatal: bool) -> None:
    """The standard writes `message`, Pipecat `error`; an error with neither has an empty message."""
    assert decode("error", data) == ErrorData(message=message, fatal=fatal)


# Function calls


@pytest.mark.parametrize(
    ("type", "data", "expected"),
    [
        # report level NONE
        ("llm-function-call-started", {}, LLMFunctionCallStartedData()),
        ("llm-function-call-in-progress", {"tool_call_id": "1"}, LLMFunctionCallInProgressData(tool_call_id="1")),
        (
            "llm-function-call-stopped",
            {"tool_call_id": "1", "cancelled": False},
            LLMFunctionCallStoppedData(tool_call_id="1"),
        ),
        # NAME
        ("llm-function-call-started", {"function_name": "f"}, LLMFunctionCallStartedData(function_name="f")),
        (
            "llm-function-call-in-progress",
            {"tool_call_id": "1", "function_name": "f"},
            LLMFunctionCallInProgressData(tool_call_id="1", function_name="f"),
        ),
        # ARGUMENTS, of which there are none
        (
            "llm-function-call-in-progress",
            {"tool_call_id": "1", "function_name": "f", "arguments": {}},
            LLMFunctionCallInProgressData(tool_call_id="1", function_name="f", arguments={}),
        ),
        # FULL
        (
            "llm-function-call-stopped",
            {"tool_call_id": "1", "cancelled": False, "function_name": "f", "result": [1, {"a": None}]},
            LLMFunctionCallStoppedData(tool_call_id="1", function_name="f", result=[1, {"a": None}]),
        ),
        # before 1.2
        ("llm-function-call-start", {"function_name": "f"}, LLMFunctionCallStartedData(function_name="f")),
        (
            "llm-function-call",
            {"function_name": "f", "tool_call_id": "1", "args": {"q": 1}},
            LLMFunctionCallData(function_name="f", tool_call_id="1", arguments={"q": 1}),
        ),
        # Pipecat 0.0.66
        (
            "llm-function-call",
            {"function_name": "f", "tool_call_id": "1", "arguments": {"q": 1}},
            LLMFunctionCallData(function_name="f", tool_call_id="1", arguments={"q": 1}),
        ),
    ],
)
def test_function_calls_at_every_report_level(type: str, data: Any, expected: Any) -> None:
    """Data that a bot withholds is None; a function without arguments has an empty dict."""
    assert decode(type, data) == expected


# Job groups

GROUP = [
    UIJobGroupStartedEnvelope(
        kind="group_started", job_id="j", workers=("a", "b"), label="research", cancellable=False, at=1
    ),
    UIJobUpdateEnvelope(kind="job_update", job_id="j", worker_name="a", data={"progress": 0.5}, at=2),
    UIJobCompletedEnvelope(kind="job_completed", job_id="j", worker_name="a", status="done", response=1, at=3),
    UIJobGroupCompletedEnvelope(kind="group_completed", job_id="j", at=4),
]


@pytest.mark.parametrize(
    ("type", "group", "worker", "workers", "kind"),
    [
        ("ui-job-group", "job_id", "worker_name", "workers", "job"),
        ("ui-task", "task_id", "agent_name", "agents", "task"),
    ],
)
def test_job_groups_of_1_3_and_later(type: str, group: str, worker: str, workers: str, kind: str) -> None:
    """Protocol 1.3 called jobs tasks and workers agents; the payloads do not."""
    messages: list[dict[str, Any]] = [
        {"kind": "group_started", group: "j", workers: ["a", "b"], "label": "research", "cancellable": False, "at": 1},
        {"kind": f"{kind}_update", group: "j", worker: "a", "data": {"progress": 0.5}, "at": 2},
        {"kind": f"{kind}_completed", group: "j", worker: "a", "status": "done", "response": 1, "at": 3},
        {"kind": "group_completed", group: "j", "at": 4},
    ]
    assert [decode(type, message) for message in messages] == GROUP


def test_a_job_group_of_which_little_is_known() -> None:
    """Group and kind are enough, and only where a worker does something it has to be named."""
    assert decode("ui-job-group", {"kind": "group_started", "job_id": "j"}) == UIJobGroupStartedEnvelope(
        kind="group_started", job_id="j", workers=(), label=None, cancellable=True, at=0
    )
    assert decode("ui-job-group", {"kind": "paused", "job_id": "j"}) == UIJobGroupData(kind="paused", job_id="j")
    with pytest.raises(ProtocolError, match=r"ui-task: data\.worker_name: expected str, got nothing"):
        decode("ui-task", {"kind": "task_update", "task_id": "j"})


# Metrics


def test_metrics_of_every_kind() -> None:
    """Each kind has its class; kinds that a bot does not report are empty, and unknown ones are kept."""
    data = {
        "ttfa": [{"processor": "T", "ttfa": 0.3, "ttfb": 0.2, "leading_silence": 0.1}],
        "stt_usage": [{"processor": "S", "model": "m", "value": {"audio_seconds": 2}}, {}],
        "tokens": [
            {
                "prompt_tokens": 1,
                "completion_tokens": 2,
                "total_tokens": 3,
                "cache_read_input_tokens": 4,
                "cache_creation_input_tokens": 5,
                "reasoning_tokens": 6,
                "input_audio_tokens": 7,
                "output_audio_tokens": 8,
                "cache_read_input_audio_tokens": 9,
            },
            {},
        ],
        "turns": [{"is_complete": True}],
    }
    assert decode("metrics", data) == PipecatMetricsData(
        ttfa=(TTFAMetricData(processor="T", ttfa=0.3, ttfb=0.2, leading_silence=0.1),),
        stt_usage=(
            STTUsageMetricData(processor="S", model="m", value=STTUsageData(audio_seconds=2)),
            STTUsageMetricData(),
        ),
        tokens=(
            LLMTokenUsageData(
                prompt_tokens=1,
                completion_tokens=2,
                total_tokens=3,
                cache_read_input_tokens=4,
                cache_creation_input_tokens=5,
                reasoning_tokens=6,
                input_audio_tokens=7,
                output_audio_tokens=8,
                cache_read_input_audio_tokens=9,
            ),
            LLMTokenUsageData(),
        ),
        extra={"turns": [{"is_complete": True}]},
    )


@pytest.mark.parametrize("data", [{}, None, {"ttfb": None}, {"ttfb": [], "tokens": []}])
def test_empty_metrics(data: Any) -> None:
    """A report without figures is one, in whatever way it is empty."""
    assert decode("metrics", data) == PipecatMetricsData()
