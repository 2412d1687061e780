"""The table of messages: how their data is decoded, and which bot knows them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import pytest

from rtvi_sync.errors import ProtocolError, UnsupportedFeatureError
from rtvi_sync.events import event_from
from rtvi_sync.messages import (
    BotLLMSearchResponseData,
    BotReadyData,
    ErrorData,
    LLMSearchOrigin,
    LLMSearchResult,
    Payload,
    PipecatMetricsData,
    UIJobGroupData,
)
from rtvi_sync.protocol.decoding import decoder_of
from rtvi_sync.protocol.dialects import (
    FIELDS,
    INBOUND,
    OUTBOUND,
    VERSIONS,
    FieldSpec,
    MessageSpec,
    decode_payload,
    parse_version,
    require_feature,
    supports,
)

pytestmark = pytest.mark.inside


def decode(type: str, data: Any) -> Any:
    return decode_payload(INBOUND[type], data)


# The table


@pytest.mark.parametrize("spec", [*INBOUND.values(), *OUTBOUND.values()], ids=lambda spec: spec.type)
def test_rows_are_sound(spec: MessageSpec) -> None:
    """An inbound row has an event, an outbound one has none; a message's first version precedes its last."""
    assert (spec.event is not None) == (spec.direction == "in")
    assert spec.feature
    assert spec.since is None or spec.until is None or spec.since < spec.until


@pytest.mark.parametrize("type", INBOUND)
def test_the_wire_type_names_its_event(type: str) -> None:
    """Wherever an event is named, the wire type that causes it does."""
    assert event_from(type) is INBOUND[type].event


def test_types_that_share_an_event_share_a_payload() -> None:
    """A handler of an event gets payloads of one class, whatever the bot's version calls the message."""
    payloads = {(spec.event, spec.payload) for spec in INBOUND.values()}
    assert len(payloads) == len({spec.event for spec in INBOUND.values()})


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
    """An error gives the type, the path, and the expected form."""
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
    """The arguments of a call are named `args` on the wire, and `arguments` in all other messages."""
    for name in ("args", "arguments"):
        assert decode("llm-function-call", {"tool_call_id": "1", name: {"q": 1}}).arguments == {"q": 1}


@pytest.mark.parametrize("name", ["output_type", "text_type", "aggregated_by"])
def test_output_type_of_any_bot(name: str) -> None:
    """Whatever a bot's version calls it, `.output_type` has it, and unknown fields beside it are kept."""
    payload = decode("bot-output", {"text": "a", name: "code", "new": 1})
    assert payload.output_type == getattr(payload, name) == "code"
    assert payload.extra == {"new": 1}


def test_an_unknown_kind_of_job_group_message() -> None:
    """A message of an unknown kind keeps its fields beyond the common ones."""
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


@pytest.mark.parametrize(
    ("annotation", "message"),
    [(set, "has no meaning in JSON"), (int | str, "has no meaning in JSON"), (Any, "needs a default")],
)
def test_a_class_that_json_cannot_mean_is_refused_at_import(annotation: Any, message: str) -> None:
    """A mistake in a payload class shows when its decoder is made, not when a message arrives."""
    cls = attrs.frozen(kw_only=True)(type("Odd", (Payload,), {"__annotations__": {"odd": annotation}}))
    with pytest.raises(TypeError, match=message):
        decoder_of(cls)


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
    assert caught.value.needed_version is not None
    assert caught.value.needed_version.startswith(f"{first[:3]} or later")
    assert caught.value.bot_version == last_before
    assert str(caught.value) == (
        f"{type!r} needs a bot that speaks RTVI {caught.value.needed_version}; this one speaks {last_before}. "
        "Update the bot."
    )


@pytest.mark.parametrize(
    ("type", "feature", "instead"),
    [
        ("describe-config", "config", "send_client_request()"),
        ("get-config", "config", "send_client_request()"),
        ("update-config", "config", "send_client_request()"),
        ("describe-actions", "actions", "send_client_request()"),
        ("action", "actions", "send_client_request()"),
        ("append-to-context", "append-to-context", "send_text()"),
    ],
)
def test_what_a_bot_no_longer_knows(type: str, feature: str, instead: str) -> None:
    """Config and actions pass up to 1.x and are refused from 2.0 on, with the name of their replacement."""
    require_feature(type, "1.4.0")
    for version in ("2.0.0", "2.2.0", "3.0.0"):
        with pytest.raises(UnsupportedFeatureError) as caught:
            require_feature(type, version)
        assert caught.value.feature == feature
        assert caught.value.needed_version is not None
        assert caught.value.needed_version.endswith("before 2.0")
        assert caught.value.bot_version == version
        assert f"before 2.0; this one speaks {version}." in str(caught.value)
        assert str(caught.value).endswith(f"{instead}.")


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
    """Without a valid version, only the bot's answer shows which messages it knows."""
    require_feature(type, version)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("2.2.0", (2, 2)),
        ("0.3.0", (0, 3)),
        ("2.1", (2, 1)),
        ("10.20.30-rc.1+x", (10, 20)),
        ("abc", None),
        ("2", None),
        ("v2.0.0", None),
        (" 2.0", None),
        ("2.\u0662", None),
        ("", None),
        (None, None),
    ],
)
def test_parsing_versions(text: str | None, version: tuple[int, int] | None) -> None:
    """Two numbers are a version, whatever follows them; anything else is none."""
    assert parse_version(text) == version


@pytest.mark.parametrize(
    ("name", "known_to", "not_known_to"),
    [
        ("dtmf", ["2.0.0", "2.1.0", "2.9.0", "3.0.0"], ["0.3.0", "1.4.0"]),
        ("dtmf.button", ["2.0.0"], ["0.3.0", "2.1.0", "2.2.0", "3.0.0"]),
        ("dtmf.buttons", ["2.1.0", "2.2.0", "3.0.0"], ["0.3.0", "2.0.0"]),
        ("update-config", ["0.3.0", "1.2.0"], ["2.0.0"]),
        ("my-own", ["0.3.0", "3.0.0"], []),
    ],
)
def test_what_is_supported(name: str, known_to: list[str], not_known_to: list[str]) -> None:
    """A type or a part of one is supported by the versions of its row, and by bots of which nothing is known."""
    assert all(supports(name, version) for version in [*known_to, None, "", "abc"])
    assert not any(supports(name, version) for version in not_known_to)


@pytest.mark.parametrize("name", FIELDS)
def test_fields_belong_to_a_type(name: str) -> None:
    """Every field of the table belongs to an outbound type, and was added or removed while the type existed."""
    message, _, field = name.partition(".")
    spec, bounds = OUTBOUND[message], FIELDS[name]
    assert field
    assert spec.since is None or spec.since <= bounds.since
    assert bounds.until is None or bounds.since < bounds.until
    assert (bounds.since, bounds.until) != (spec.since, spec.until)


def test_the_versions_follow_each_other() -> None:
    """The versions of the table are those that Pipecat announced, one after the other, as its releases."""
    releases = [tuple(map(int, release.split("."))) for pair in VERSIONS.values() for release in pair]
    assert list(VERSIONS) == sorted(VERSIONS)
    assert releases == sorted(releases)


@pytest.mark.parametrize("table", [INBOUND, OUTBOUND, FIELDS], ids=["in", "out", "fields"])
def test_rows_begin_and_end_with_versions_that_exist(table: Mapping[str, MessageSpec | FieldSpec]) -> None:
    """No row names a version that no bot announces."""
    for name, spec in table.items():
        assert {spec.since, spec.until} <= {*VERSIONS, None}, name


def test_minor_versions_are_numbers() -> None:
    """2.10 is later than 2.2."""
    require_feature("send-file", "2.10")
    with pytest.raises(UnsupportedFeatureError):
        require_feature("send-file", "2.1")
