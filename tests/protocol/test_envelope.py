"""The JSON envelope: it is read or refused, without any other error."""

from __future__ import annotations

import contextlib
import datetime
import enum
import importlib.util
import json
import sys
from collections import OrderedDict
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtvi_sync.errors import ProtocolError
from rtvi_sync.messages import RTVIMessage
from rtvi_sync.protocol import envelope
from tests.support.probes import standard_json

from .json_values import JSON

pytestmark = pytest.mark.inside


class Mood(enum.Enum):
    """An enum that is nothing else, with a member whose value is no JSON."""

    GOOD = "good"
    MIXED = (1, 2)
    STRANGE = frozenset[Any]()


class Level(enum.IntEnum):
    """A number with a name."""

    HIGH = 3


class Point(NamedTuple):
    """A list whose items have names."""

    x: int
    y: int


# Python values that JSON does not have, or has in another form.
NOT_QUITE_JSON = st.recursive(
    JSON
    | st.integers()
    | st.text(st.characters())
    | st.uuids()
    | st.sampled_from(Mood)
    | st.sampled_from([object(), b"", {1, 2}, datetime.date(2024, 2, 29), Level.HIGH, OrderedDict(a=1), Point(1, 2)]),
    lambda inner: st.tuples(inner) | st.dictionaries(st.none() | st.booleans() | st.integers(), inner, max_size=2),
    max_leaves=4,
)
ENVELOPES = st.dictionaries(st.sampled_from(["label", "type", "id", "data"]), JSON)


def document(**fields: Any) -> str:
    return json.dumps({"label": "rtvi-ai", "type": "x", **fields})


@given(envelope_=ENVELOPES | JSON)
def test_both_parsers_agree(envelope_: Any) -> None:
    """A text means the same with the extra "speed" and without it, NaN and lone surrogates included.

    Integers beyond 64 bits are floats with it; no bot sends them.
    """
    pytest.importorskip("orjson")
    text = json.dumps(envelope_)

    def outcome() -> str:
        try:
            return repr(envelope.decode(text))
        except ProtocolError as error:
            return repr(error)

    with_speed = outcome()
    with standard_json():
        assert outcome() == with_speed


@given(NOT_QUITE_JSON)
def test_both_writers_agree(data: Any) -> None:
    """The extra "speed" refuses the same values as the standard library, and writes equivalent JSON."""
    pytest.importorskip("orjson")

    def outcome() -> str:
        try:
            return repr(json.loads(envelope.encode(RTVIMessage("x", data, "1"))))
        except (TypeError, ValueError) as error:
            return repr(error)

    with_speed = outcome()
    with standard_json():
        assert outcome() == with_speed


def test_the_extra_speed_is_not_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without orjson, the module can still be imported, and decodes."""
    monkeypatch.setitem(sys.modules, "orjson", None)
    spec = importlib.util.spec_from_file_location("rtvi_sync.protocol._slow_envelope", envelope.__file__)
    assert spec is not None
    assert spec.loader is not None
    slow = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(slow)
    assert slow.decode('{"label":"rtvi-ai","type":"x","data":[NaN]}').type == "x"


def test_what_a_text_weighs() -> None:
    """A text of many small values weighs more than it is long, whether text or bytes."""
    small, many = '{"a":"' + 2001 * "b" + '"}', '{"a":[' + 999 * "1," + "123]}"
    assert len(small) == len(many)
    assert len(small) < envelope.estimated_size(small) < envelope.estimated_size(many)
    for text in (small, many):
        assert envelope.estimated_size(text.encode()) == pytest.approx(envelope.estimated_size(text), rel=0.05)
    # One character beyond 16 bits makes each of a text take four bytes.
    assert envelope.estimated_size(small + "\N{PARTY POPPER}") > 3.5 * envelope.estimated_size(small)


class TestDecode:
    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ('{"label":"rtvi-ai","type":"bot-ready","id":"1","data":{}}', RTVIMessage("bot-ready", {}, "1")),
            ('{"label":"rtvi-ai","type":"bot-interrupted"}', RTVIMessage("bot-interrupted", None, None)),
            ('{"label":"rtvi-ai","type":"x","data":null}', RTVIMessage("x", None, None)),
            ('{"label":"rtvi-ai","type":"x","data":"text","more":1}', RTVIMessage("x", "text", None)),
            (b'{"label":"rtvi-ai","type":"x","data":"\xc3\xbc"}', RTVIMessage("x", "ü", None)),
            (bytearray(b'{"label":"rtvi-ai","type":"x"}'), RTVIMessage("x", None, None)),
        ],
    )
    def test_text_and_bytes_are_decoded(self, text: str | bytes, message: RTVIMessage) -> None:
        """decode() takes text and bytes; absent fields are None, unknown ones are ignored."""
        assert envelope.decode(text) == message

    @pytest.mark.parametrize(
        ("id_", "expected"),
        [
            (7, "7"),
            (-7, "-7"),
            ("", ""),
            (None, None),
            (1.5, None),
            (True, None),
            ([1], None),
            ({}, None),
            (2**70, None),
        ],
    )
    def test_ids(self, id_: Any, expected: str | None) -> None:
        """A number is as good an id as its text; anything else that is no text is none."""
        assert envelope.decode(document(id=id_)).id == expected

    def test_an_id_too_large_to_print(self) -> None:
        """A parsed document can hold a number that Python refuses to print."""
        assert envelope.open_document({"label": "rtvi-ai", "type": "x", "id": 10**5000}) == ("x", None, None)

    @pytest.mark.parametrize("text", ["{}", '{"label":"other","type":"x"}', '{"label":null,"type":"x"}', '{"label":1}'])
    def test_foreign_messages(self, text: str) -> None:
        """A message with another label, or none, is not RTVI's."""
        with pytest.raises(envelope.ForeignMessageError):
            envelope.decode(text)

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "no json",
            "[]",
            "null",
            "5",
            "1.5",
            '"text"',
            "true",
            b"\xff",
            b"\x80abc",
            '{"label":"rtvi-ai"}',
            document(type=None),
            document(type=""),
            document(type=5),
            document(type=["x"]),
            "[" * 100_000,
            '{"a":' * 100_000,
            "9" * 5000,
            "{" + " " * 1000,
        ],
        ids=lambda text: repr(text[:20]),
    )
    def test_what_is_refused(self, text: str | bytes) -> None:
        """Everything else is a `ProtocolError` with a short text."""
        with pytest.raises(ProtocolError) as caught:
            envelope.decode(text)
        assert not isinstance(caught.value, envelope.ForeignMessageError)
        assert len(str(caught.value)) < 250

    def test_depth(self) -> None:
        """Data of 100 levels is accepted, deeper data is refused, whichever containers it is made of."""
        for opening, closing in (("[", "]"), ('{"a":', "}")):
            for levels, accepted in ((99, True), (100, True), (101, False), (900, False)):
                data = opening * levels + "1" + closing * levels
                text = f'{{"label":"rtvi-ai","type":"x","data":{data}}}'
                if accepted:
                    assert envelope.decode(text).type == "x"
                else:
                    with pytest.raises(ProtocolError, match="100 levels"):
                        envelope.decode(text)

    @given(st.text() | st.binary())
    def test_any_text(self, text: str | bytes) -> None:
        """Whatever the text is, there is a message or a `ProtocolError`."""
        with contextlib.suppress(ProtocolError):
            assert isinstance(envelope.decode(text), RTVIMessage)

    @given(JSON | ENVELOPES | ENVELOPES.map(lambda fields: {**fields, "label": "rtvi-ai"}))
    def test_any_json(self, parsed: Any) -> None:
        """Whatever the document is, too; and a message is well-formed."""
        try:
            message = envelope.decode(json.dumps(parsed))
        except ProtocolError:
            return
        assert message.type
        assert message.id is None or isinstance(message.id, str)
        assert message.label == "rtvi-ai"


class TestEncode:
    def test_document(self) -> None:
        """Compact JSON with label, type, id and data, in that order; None is left out."""
        assert envelope.encode(RTVIMessage("x", {"ü": [1, None]}, "7")) == (
            '{"label":"rtvi-ai","type":"x","id":"7","data":{"ü":[1,null]}}'.encode()
        )
        assert envelope.encode(RTVIMessage("x", None, None)) == b'{"label":"rtvi-ai","type":"x"}'

    @pytest.mark.parametrize("data", [object(), {1, 2}, b"bytes", {"a": {object(): 1}}])
    def test_not_json(self, data: Any) -> None:
        """A value that JSON cannot express is a `TypeError`."""
        with pytest.raises(TypeError):
            envelope.encode(RTVIMessage("x", data))

    @pytest.mark.parametrize("data", [float("nan"), float("inf"), [-float("inf")]])
    def test_not_finite(self, data: Any) -> None:
        """JSON has no NaN and no infinity; a bot's parser may stumble over them."""
        with pytest.raises(ValueError, match="a number that JSON does not have"):
            envelope.encode(RTVIMessage("x", data))

    def test_cycles_and_depth(self) -> None:
        """Data that refers to itself, or is too deep, is a `ValueError`."""
        cycle: list[Any] = []
        cycle.append(cycle)
        deep: Any = 1
        for _ in range(200_000):
            deep = [deep]
        for data in (cycle, deep):
            with pytest.raises(ValueError, match=r"refers back to|deeply"):
                envelope.encode(RTVIMessage("x", data))
        while isinstance(deep, list):  # its own destruction must not recurse either
            deep = deep.pop()

    @given(st.text(min_size=1), JSON, st.none() | st.text())
    def test_round_trip(self, type_: str, data: Any, id_: str | None) -> None:
        """An encoded message is decoded to an equal one."""
        message = RTVIMessage(type_, data, id_)
        try:
            text = envelope.encode(message)
        except ValueError:  # a number that is not finite
            return
        assert envelope.decode(text) == message
