"""The messages of telephone providers, against one captured call of each with a bot of Pipecat 1.14.0."""

from __future__ import annotations

import base64
import contextlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtvi_sync.errors import ProtocolError
from rtvi_sync.protocol.telephony import (
    KEYS,
    MAX_PAYLOAD,
    PROVIDERS,
    CallAudio,
    CallEnd,
    CallWriter,
    ClearAudio,
    KeyPress,
    PhoneCall,
    PlaybackMark,
    ProviderName,
    call_in,
)

from .json_values import JSON

pytestmark = pytest.mark.inside

NAMES: tuple[ProviderName, ...] = get_args(ProviderName)
each_provider = pytest.mark.parametrize("name", NAMES)

# Telnyx sends it if the application that dials has one; no bot reads it.
LEFT_OUT = {("telnyx", "start"): {"start.client_state": "str"}}
# The writer names the stream in all messages; no bot reads it here.
ADDED = {("plivo", "start"): {"streamId": "str"}}


@attrs.frozen
class Captured:
    """One message of a captured call."""

    sender: str
    message: dict[str, Any]

    @property
    def event(self) -> str:
        event = self.message.get("event", "")
        assert isinstance(event, str)
        return event

    @property
    def text(self) -> str:
        return json.dumps(self.message)


def captured(name: str, sender: str) -> list[Captured]:
    """Return the messages that one side of the captured call sent, with payloads of their full lengths; the captures
    cut them.
    """
    lines = (Path(__file__).parent / "calls" / f"{name}.jsonl").read_text().splitlines()
    entries = [json.loads(line, object_hook=_whole) for line in lines]
    return [Captured(sender, entry["m"]) for entry in entries if entry["from"] == sender and "event" in entry["m"]]


def _whole(found: dict[str, Any]) -> dict[str, Any]:
    cut = re.search(r"\((\d+) bytes\)", found.get("payload", ""))
    return {**found, "payload": base64.b64encode(bytes(int(cut[1]))).decode()} if cut else found


def call_of(name: ProviderName, **changes: Any) -> PhoneCall:
    call = PhoneCall(
        provider=name,
        call_id="CA1",
        stream_id="MZ1",
        from_number="+15550100",
        to_number="+15550199",
        parameters={"plan": "gold"},
        codec=PROVIDERS[name].codecs[0],
    )
    return attrs.evolve(call, **changes)


def shape(document: dict[str, Any], path: str = "") -> dict[str, str]:
    """Return the types of all values by their paths; an application's own data is one value."""
    found: dict[str, str] = {}
    for key, value in document.items():
        if isinstance(value, dict) and "arameters" not in key:
            found |= shape(value, f"{path}{key}.")
        else:
            found[f"{path}{key}"] = type(value).__name__
    return found


def written(name: ProviderName) -> Iterator[dict[str, Any]]:
    """Yield a message of each kind that the writer has."""
    writer = CallWriter(call_of(name), 1795847554.949)
    texts = [*writer.opening(), writer.audio(b"\xff" * 160, 0.02), writer.key("5", 1.0), writer.stop()]
    for text in texts:
        if text is not None:
            yield json.loads(text)


@each_provider
def test_what_a_provider_writes(name: ProviderName) -> None:
    """Each kind of message has the keys of the captured one, with values of the same types."""
    shapes = {each.event: shape(each.message) for each in captured(name, "network")}
    messages = {message["event"]: message for message in written(name)}
    for event in {"connected", "start", "media", "dtmf"} & shapes.keys():
        expected = {**shapes[event], **ADDED.get((name, event), {})}
        left_out = LEFT_OUT.get((name, event), {})
        assert shape(messages[event]) == {path: kind for path, kind in expected.items() if path not in left_out}
    assert ("stop" in messages) == (name != "plivo")


@each_provider
def test_numbers(name: ProviderName) -> None:
    """Messages are numbered from 1 on, the first of them `start`, and those with audio once more."""
    provider, writer = PROVIDERS[name], CallWriter(call_of(name), 0.0)
    texts = [*writer.opening(), writer.audio(b"a", 0.02), writer.key("1", 0.03), writer.audio(b"b", 0.04)]
    messages = [message for message in map(json.loads, texts) if message["event"] != "connected"]
    assert [message[provider.number_key] for message in messages] == [provider.number_type(n) for n in (1, 2, 3, 4)]
    assert [message["media"]["chunk"] for message in messages if message["event"] == "media"] == [
        provider.number_type(n) for n in (1, 2)
    ]


@each_provider
def test_the_captured_bot_is_read(name: ProviderName) -> None:
    """Audio and `clear` of a real bot are read; another provider's mark is none."""
    kinds = {"media": CallAudio, "playAudio": CallAudio, "clear": ClearAudio, "clearAudio": ClearAudio}
    size = 640 if name == "exotel" else 320
    for each in captured(name, "bot"):
        said = PROVIDERS[name].read_bot(each.text)
        if each.event == "mark":
            assert said == (None if name == "plivo" else PlaybackMark("m1"))
        else:
            assert isinstance(said, kinds[each.event])
        if isinstance(said, CallAudio):
            assert said.payload == bytes(size)


@each_provider
def test_the_captured_call_is_found(name: ProviderName) -> None:
    """The call is in the first messages, in any order, as every provider's numbers and parameters say."""
    opening = [each.text for each in captured(name, "network")[:2]]
    start = next(each.message for each in captured(name, "network") if each.event == "start")
    call = call_in(opening)
    assert call == call_in(reversed(opening))
    assert call is not None
    ids = json.dumps(start)
    assert (call.provider, f'"{call.call_id}"' in ids, f'"{call.stream_id}"' in ids) == (name, True, True)
    assert (call.from_number, call.to_number) == ("+15550100", "+15550199")
    assert call.parameters["plan"] == "gold"
    assert call.codec == PROVIDERS[name].codecs[0]


@each_provider
def test_the_captured_provider_is_read(name: ProviderName) -> None:
    """Audio and keys are read, and messages without a meaning for bots give none."""
    provider, keys, sizes = PROVIDERS[name], "", set()
    for each in captured(name, "network"):
        said = provider.read_caller(each.text)
        if isinstance(said, CallAudio):
            sizes.add(len(said.payload))
        elif isinstance(said, KeyPress):
            keys += said.key
        elif each.event == "mark":
            assert said == (None if name == "plivo" else PlaybackMark("m1"))
        else:
            assert (said, each.event in ("connected", "start")) == (None, True)
    assert keys == "12#*950"
    assert sizes == {1600 if name == "exotel" else 160}


@each_provider
@pytest.mark.parametrize("parameters", [{}, {"plan": "gold", "x": ""}])
@pytest.mark.parametrize("numbers", [(None, None), ("+15550100", "sip:bot@example.com")])
def test_a_call_round_trip(
    name: ProviderName, parameters: dict[str, str], numbers: tuple[str | None, str | None]
) -> None:
    """The bot finds the call that the provider tells of; Plivo and Twilio name numbers among the parameters."""
    call = call_of(name, parameters=parameters, from_number=numbers[0], to_number=numbers[1])
    found = call_in(CallWriter(call, 0.0).opening())
    assert found is not None
    assert {**found.parameters} | parameters == {**found.parameters}
    assert (found.from_number or None, found.to_number or None) == numbers
    assert (found.provider, found.call_id, found.stream_id) == (name, "CA1", "MZ1")


@each_provider
def test_each_codec_is_told(name: ProviderName) -> None:
    """The bot learns which codec the caller's audio has."""
    for codec in PROVIDERS[name].codecs:
        found = call_in(CallWriter(call_of(name, codec=codec), 0.0).opening())
        assert found is not None
        assert found.codec == codec


@each_provider
def test_messages_round_trip(name: ProviderName) -> None:
    """Messages written by one side are read by the other, in both directions."""
    provider, call = PROVIDERS[name], call_of(name)
    writer = CallWriter(call, 0.0)
    assert provider.read_bot(provider.bot_audio(call, b"\0\xff")) == CallAudio(b"\0\xff")
    assert provider.read_bot(provider.bot_clear(call)) == ClearAudio()
    assert provider.read_bot(provider.bot_mark(call, "é")) == PlaybackMark("é")
    assert provider.read_caller(writer.audio(b"\0\xff", 0.0)) == CallAudio(b"\0\xff")
    assert provider.read_caller(writer.played("é")) == PlaybackMark("é")
    for key in KEYS:
        assert provider.read_caller(writer.key(key, 0.0)) == KeyPress(key)
    stop = writer.stop()
    assert (stop is None) == (name == "plivo")
    assert stop is None or provider.read_caller(stop) == CallEnd()
    cleared = writer.cleared()
    assert (cleared is None) == (name != "plivo")
    assert cleared is None or provider.read_caller(cleared) is None


# -- hostile input ----------------------------------------------------------------------------------------------------

NO_MESSAGES = ["", "[]", "5", "null", '"media"', "{", "\ufeff{}", b"\xff", b"\0" * 9, "[" * 100_000, "9" * 5000]
BAD_MEDIA = [
    {},
    {"media": None},
    {"media": []},
    {"media": {}},
    {"media": {"payload": None}},
    {"media": {"payload": 5}},
    {"media": {"payload": ["AAAA"]}},
    {"media": {"payload": "A"}},
    {"media": {"payload": "A==="}},
    {"media": {"payload": "????"}},
    {"media": {"payload": "AAA\u00e9"}},
    {"media": {"payload": "AA\nAA"}},
    {"media": {"payload": "A" * (MAX_PAYLOAD * 4 // 3 + 8)}},
]


@each_provider
@pytest.mark.parametrize("text", NO_MESSAGES, ids=range(len(NO_MESSAGES)))
def test_no_messages(name: ProviderName, text: str | bytes) -> None:
    """Data that is not a JSON object is refused, and starts no call."""
    for read in (PROVIDERS[name].read_bot, PROVIDERS[name].read_caller):
        with pytest.raises(ProtocolError):
            read(text)
    assert call_in([text, text]) is None


@each_provider
@pytest.mark.parametrize("content", BAD_MEDIA, ids=range(len(BAD_MEDIA)))
def test_bad_audio(name: ProviderName, content: dict[str, Any]) -> None:
    """Audio without a payload of base64, or with too much of it, is refused; the error does not have it."""
    provider = PROVIDERS[name]
    played = json.loads(provider.bot_audio(call_of(name), b""))["event"]
    for read, event in ((provider.read_bot, played), (provider.read_caller, "media")):
        with pytest.raises(ProtocolError) as refused:
            read(json.dumps({"event": event, **content}))
        assert len(str(refused.value)) < 200


@each_provider
@pytest.mark.parametrize("wrong", [None, 5, [], {}, "no", "\ud800", "x" * 1001], ids=lambda value: repr(value)[:9])
def test_names_that_are_none(name: ProviderName, wrong: Any) -> None:
    """A mark or a key without a text is refused, or one that cannot be answered; a text that is no key says nothing."""
    provider, call = PROVIDERS[name], call_of(name)
    mark = {"mark": {"name": wrong}, "name": wrong}
    writer = CallWriter(call, 0.0)
    for read, example in ((provider.read_bot, provider.bot_mark(call, "")), (provider.read_caller, writer.played(""))):
        text = json.dumps({**json.loads(example), **mark})
        if wrong == "no":
            assert read(text) == PlaybackMark("no")
        else:
            with pytest.raises(ProtocolError):
                read(text)
    key = json.dumps({"event": "dtmf", "dtmf": {"digit": wrong}})
    if isinstance(wrong, str):
        assert provider.read_caller(key) is None
    else:
        with pytest.raises(ProtocolError):
            provider.read_caller(key)


# The names of all fields that are read, and some values.
WORDS = st.sampled_from(
    [
        *("event", "start", "media", "mark", "name", "payload", "digit", "dtmf", "from", "to", "from_number", "stop"),
        *("stream_id", "streamSid", "streamId", "stream_sid", "callSid", "callId", "call_sid", "call_control_id"),
        *("account_sid", "custom_parameters", "customParameters", "extra_headers", "media_format", "encoding"),
        *("clear", "playAudio", "clearAudio", "checkpoint", "playedStream", "PCMA", "AAAA", "5", "a=b;c"),
    ]
)
VALUES = st.recursive(
    JSON | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS | st.text(), inner, max_size=6),
    max_leaves=12,
)
TEXTS = st.dictionaries(WORDS, VALUES, max_size=8).map(json.dumps) | VALUES.map(json.dumps) | st.text() | st.binary()


@given(TEXTS, TEXTS)
def test_nothing_but_a_protocol_error(text: str | bytes, other: str | bytes) -> None:
    """Whatever arrives is read or refused, and never anything else; a call that is found is one of a provider."""
    for provider in PROVIDERS.values():
        for read in (provider.read_bot, provider.read_caller):
            with contextlib.suppress(ProtocolError):
                read(text)
    call = call_in([text, other])
    if call is not None:
        assert call.provider in NAMES
        assert call.call_id
        assert call.stream_id
        assert all(isinstance(part, str) for pair in call.parameters.items() for part in pair)
        assert call.codec in PROVIDERS[call.provider].codecs


# -- parameters -------------------------------------------------------------------------------------------------------

FITS: list[tuple[ProviderName, dict[str, str]]] = [
    ("twilio", {f"p{n}": "x" * 400 for n in range(10)}),
    ("telnyx", {f"p{n}": "x" * 400 for n in range(10)}),
    ("plivo", {"p": "x" * 510}),
    ("exotel", {"a": "x" * 85, "b": "x" * 84, "c": "x" * 84}),
]
DOES_NOT_FIT: list[tuple[ProviderName, dict[str, str]]] = [
    ("plivo", {"p": "x" * 511}),
    ("plivo", {"p": "é" * 256}),
    ("plivo", {"p": "a;b"}),
    ("plivo", {"p=": "a"}),
    ("exotel", {"a": "x" * 85, "b": "x" * 85, "c": "x" * 84}),
    ("exotel", {"a": "", "b": "", "c": "", "d": ""}),
    ("exotel", {"from_number": "", "b": "", "c": "", "d": ""}),
]


@pytest.mark.parametrize(("name", "parameters"), FITS)
def test_parameters_that_fit(name: ProviderName, parameters: dict[str, str]) -> None:
    """Parameters up to the provider's limit arrive; its own fields for numbers do not count."""
    call = call_of(name, parameters=parameters, from_number=None, to_number=None)
    PROVIDERS[name].check(call)
    found = call_in(CallWriter(call, 0.0).opening())
    assert found is not None
    assert found.parameters == parameters
    if name != "plivo":
        PROVIDERS[name].check(call_of(name, parameters=parameters))


@pytest.mark.parametrize(("name", "parameters"), DOES_NOT_FIT)
def test_parameters_that_do_not_fit(name: ProviderName, parameters: dict[str, str]) -> None:
    """Parameters over the provider's limit are refused, and the error does not have their values."""
    call = call_of(name, parameters=parameters, from_number=None, to_number=None)
    with pytest.raises(ValueError, match=r"parameters of|parameters, of") as refused:
        PROVIDERS[name].check(call)
    assert not any(len(value) > 1 and value in str(refused.value) for value in parameters.values())


def test_numbers_count_with_plivo() -> None:
    """Plivo has no fields for numbers, so they share the room of the parameters."""
    call = call_of("plivo", parameters={"p": "x" * 500})
    with pytest.raises(ValueError, match="with the numbers"):
        PROVIDERS["plivo"].check(call)


@each_provider
def test_nothing_private_is_shown(name: ProviderName) -> None:
    """The repr of a call shows no numbers and no parameters."""
    assert "1555" not in repr(call_of(name))
    assert "gold" not in repr(call_of(name))
